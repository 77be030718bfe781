"""The window's entries that no user added: copies that recoveries and redrives have made.

A copy names its root in fields of its own, and the ledger names it in the event of the act.
Of a copy that was trimmed before the archive only the second is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.ledger import LedgerKind
from pelops.pipeline.archive.layout import slug
from pelops.pipeline.engine.sql import IDS, DataFrame, unite_by_name, within
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.stages import HEAVY, Content, WindowWork, run_stage, write_sorted

PART: Final = "copies"
ROOT: Final = ("root_ms", "root_seq", "retry_count")
# The acts that add a copy: to the stream or to the group's retry stream.
COPYING_ACTS: Final = [str(LedgerKind.REQUEUED), str(LedgerKind.REDRIVEN)]


def find_copies(work: WindowWork, acts: Content) -> Content:
    """Write the copies of the window, each with its root and whether it is archived.

    `acts` is what `read_acts` answered. Answers {"rows": ...}.
    """

    def make(directory: str) -> Content:
        entries = work.read("entries")
        marked = entries.where(F.col("root_ms").isNotNull()).select(*IDS, *ROOT)
        copies = marked.withColumn("archived", F.lit(True))
        groups = [target.group for target in work.plan.targets if acts["rows"][target.group]]
        if groups:
            unmarked = _reported(work, groups).join(marked.select(*IDS), list(IDS), "left_anti")
            there = entries.select(*IDS).join(unmarked, list(IDS), "left_semi")
            there = there.withColumn("archived", F.lit(True))
            found = unmarked.join(there, list(IDS), "left")
            is_there = F.coalesce("archived", F.lit(False))
            copies = copies.unionByName(found.withColumn("archived", is_there))
        is_heavy = work.plan.produced > HEAVY
        return {"rows": write_sorted(work, copies, directory, *IDS, is_heavy=is_heavy)}

    return run_stage(work, PART, make)


def _reported(work: WindowWork, groups: Sequence[str]) -> DataFrame:
    """Copies in the window's stream that the ledgers name, one row for each."""
    plan = work.plan
    # Of a stream that is archived from here on, also what was gone before.
    after = EntryId.MIN if plan.begins_anew else plan.window.from_id
    reported = unite_by_name(_reported_by_group(work, groups)).coalesce(1)
    reported = reported.where(within(after, plan.window.to_id))
    # An act on a copy may count one failure more than the copy has.
    return reported.groupBy(*IDS).agg(*(F.min(name).alias(name) for name in ROOT))


def _reported_by_group(work: WindowWork, groups: Sequence[str]) -> Iterator[DataFrame]:
    stream = F.lit(work.plan.stream)
    for group in groups:
        acts = work.read(f"acts/group={slug(group)}")
        made = F.col("kind").isin(COPYING_ACTS) & (F.col("target") == stream)
        yield acts.where(made).select(
            F.col("new_ms").alias("ms"), F.col("new_seq").alias("seq"), *ROOT
        )
        # An act on a copy names the root of it as well.
        is_copy = F.struct("root_ms", "root_seq") < F.struct("ms", "seq")
        yield acts.where((F.col("in_stream") == stream) & is_copy).select(*IDS, *ROOT)
