"""Columns, frames and functions of the engine that works on a window: Spark, or Arrow tables.

The rules of the audit are written once, as expressions and frames in the words of PySpark. Modules
that hold rules take these words from here and not from PySpark. They are PySpark's, except within
`on_driver()`: there they are those of `pelops.pipeline.engine.arrow`, which mean the same of rows
that fit into memory, and need neither Java nor a job.

An entry ID is two columns, `ms` and `seq`; `at_or_before` and `within` compare them with IDs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pelops.domain.entry_id import EntryId

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
    "IDS",
    "MOST_BROADCAST",
    "Column",
    "DataFrame",
    "Row",
    "SparkSession",
    "at_or_before",
    "bounded",
    "count_along",
    "functions",
    "is_on_driver",
    "on_driver",
    "small",
    "unite",
    "unite_by_name",
    "within",
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


MOST_BROADCAST: Final = 500_000  # rows; more are joined by sorting, which spills to disk


def small(frame: DataFrame, rows: int) -> DataFrame:
    """A side of a join that every task may hold, when it is as small as that."""
    return functions.broadcast(frame) if rows <= MOST_BROADCAST else frame


IDS: Final = ("ms", "seq")


def bounded(entry_id: EntryId) -> tuple[int, int]:
    """Both numbers as a column of 64 bits with sign can be compared with."""
    most = 2**63 - 1
    return min(entry_id.ms, most), min(entry_id.seq, most)


def at_or_before(entry_id: EntryId) -> Column:
    """Whether a row's entry is not after this one."""
    ms, seq = bounded(entry_id)
    at = functions.col("ms")
    return (at < ms) | ((at == ms) & (functions.col("seq") <= seq))


def within(after: EntryId, last: EntryId) -> Column:
    """Whether a row's entry lies after the one ID and not after the other."""
    return ~at_or_before(after) & at_or_before(last)
