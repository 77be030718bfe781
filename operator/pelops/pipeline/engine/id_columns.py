"""Entry IDs as columns: `ms` and `seq`."""

from __future__ import annotations

from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.pipeline.archive.snapshot import bounded
from pelops.pipeline.engine.functions import Column
from pelops.pipeline.engine.functions import functions as F  # noqa: N812

IDS: Final = ("ms", "seq")


def at_or_before(entry_id: EntryId) -> Column:
    """Whether a row's entry is not after this one."""
    ms, seq = bounded(entry_id)
    return (F.col("ms") < ms) | ((F.col("ms") == ms) & (F.col("seq") <= seq))


def within(after: EntryId, last: EntryId) -> Column:
    """Whether a row's entry lies after the one ID and not after the other."""
    return ~at_or_before(after) & at_or_before(last)
