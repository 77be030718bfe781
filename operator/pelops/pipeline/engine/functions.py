"""Which of two engines works on a window: Spark, or Arrow tables in this process.

The rules of the audit are written once, as expressions and frames in the words of PySpark. Modules
that hold rules take these words from here and not from PySpark. Where nothing is said, they are
PySpark's; within `on_driver()` they are those of `pelops.pipeline.engine.arrow`, which mean the
same of rows that fit into memory, and need neither Java nor a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession, functions
else:
    # What annotations name; PySpark itself is imported by the first who needs it.
    Column = DataFrame = Row = SparkSession = Any

    class _Functions:
        """The functions of the engine that works now."""

        def __getattr__(self, name: str) -> Any:
            return getattr(_functions(), name)

    functions = _Functions()


__all__ = [
    "Column",
    "DataFrame",
    "Row",
    "SparkSession",
    "count_along",
    "functions",
    "is_on_driver",
    "on_driver",
    "unite",
    "unite_by_name",
]
_ON_DRIVER: Final = ContextVar("on_driver", default=False)


@contextmanager
def on_driver(wanted: bool = True) -> Iterator[None]:
    """Work with Arrow tables in this process, as long as the block lasts; or else with Spark."""
    token = _ON_DRIVER.set(wanted)
    try:
        yield
    finally:
        _ON_DRIVER.reset(token)


def is_on_driver() -> bool:
    """Whether this process works by itself now, without Spark."""
    return _ON_DRIVER.get()


def unite(frames: Iterable[DataFrame]) -> DataFrame:
    """The rows of all frames, which have the same columns in the same order."""
    return reduce(lambda one, other: one.unionAll(other), frames)


def unite_by_name(frames: Iterable[DataFrame]) -> DataFrame:
    """The rows of all frames, which have the same columns in any order."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def count_along(frame: DataFrame, condition: Column) -> tuple[DataFrame, Callable[[], int]]:
    """The frame, and what tells how many of its rows fulfil a condition: to be asked once all of it
    has been written, which counts them on the way.
    """
    if is_on_driver():
        number = frame.where(condition).count()
        return frame, lambda: number
    from pyspark.sql import Observation

    seen = Observation()
    counted = frame.observe(seen, functions.count_if(condition).alias("rows"))
    return counted, lambda: int(seen.get["rows"])


def _functions() -> Any:
    if is_on_driver():
        from pelops.pipeline.engine.arrow import functions as ours

        return ours
    from pyspark.sql import functions as theirs

    return theirs
