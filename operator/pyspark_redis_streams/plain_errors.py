"""Errors as a user of Spark sees them: without the inside of this package.

Spark shows a Python error as its whole traceback. For errors that a user can mend, the one line
that tells how must not be the last of forty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyspark_redis_streams.errors import RedisStreamsError

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def plain_errors(method: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Let errors of this package leave a method of the data source with nothing around them."""

    @wraps(method)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return method(*args, **kwargs)
        except RedisStreamsError as error:
            problem = error.with_traceback(None)
        raise problem from None

    return call


def plain_rows(rows: Iterator[Any]) -> Iterator[Any]:
    """As `plain_errors`, for what a task reads."""
    try:
        yield from rows
        return
    except RedisStreamsError as error:
        problem = error.with_traceback(None)
    raise problem from None
