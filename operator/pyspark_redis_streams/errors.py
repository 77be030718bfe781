"""Every error that this data source raises.

Spark shows a Python error as the last line of a traceback, so each message is complete. It names
the option or the Redis command, what was found, and what to do::

    RedisStreamsError
    ├── OptionError           an option is unknown, misspelt, of a wrong type, or does not fit
    ├── SchemaError           the schema asks for something that cannot be read or written
    ├── BadValue              an entry does not fit the schema (mode FAILFAST)
    ├── DataLoss              entries of the requested range are missing (failOnDataLoss)
    └── ServerError           Redis refused, or could not be asked
        ├── StreamMissing
        ├── GroupMissing
        ├── NotAStream        the key holds another type
        ├── NotPermitted      wrong credentials, or the ACL forbids a command or a key
        └── ServerUnavailable no answer after all retries

`plain_errors` and `plain_rows` remove this package's frames from the traceback, so that the message
does not come after forty other lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

_LONGEST: Final = 2_000  # characters; names and texts from a server can have any length


class RedisStreamsError(Exception):
    """Base of all errors of this data source.

    The middle of a message that is too long is left out.
    """

    def __init__(self, message: str) -> None:
        if len(message) > _LONGEST:
            kept = _LONGEST // 2 - 5
            message = f"{message[:kept]} [...] {message[-kept:]}"
        super().__init__(message)


class OptionError(RedisStreamsError):
    """An option is unknown, misspelt, of a wrong type, missing, or does not fit another."""


class SchemaError(RedisStreamsError):
    """The schema asks for a column that cannot be read or written."""


class BadValue(RedisStreamsError):
    """An entry does not fit the schema, and the mode is FAILFAST."""


class DataLoss(RedisStreamsError):
    """Requested entries were lost before they were read, or their presence is unproven."""


class ServerError(RedisStreamsError):
    """Redis refused a command, or could not be asked."""


class StreamMissing(ServerError):
    """The key does not exist, or no stream matches the pattern."""


class GroupMissing(ServerError):
    """The stream does not have this consumer group."""


class NotAStream(ServerError):
    """The key holds another type."""


class NotPermitted(ServerError):
    """The credentials are wrong, or the ACL forbids a command or a key."""


class ServerUnavailable(ServerError):
    """The server did not answer usably after all retries."""


Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def plain_errors(method: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Decorate a method of the data source: this package's errors have no frames and no cause."""

    @wraps(method)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return method(*args, **kwargs)
        except RedisStreamsError as error:
            problem = error.with_traceback(None)
        raise problem from None

    return call


def plain_rows(rows: Iterator[Any]) -> Iterator[Any]:
    """As `plain_errors`, for the rows that a task reads."""
    try:
        yield from rows
        return
    except RedisStreamsError as error:
        problem = error.with_traceback(None)
    raise problem from None
