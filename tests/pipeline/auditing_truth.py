"""A life of many entries, audited, and compared with the truth entry by entry.

python -m tests.pipeline.auditing_truth --entries N: prints the comparison; ends with 1 when the
audit tells of any entry something else with append-only files, or proves anything wrongly without.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from local_cluster.redis_servers import start_standalone
from pelops.domain.audit import AuditSummary, EntryStatus
from pelops.pipeline.layout import WindowPlace
from pelops.pipeline.place import read_place
from pelops.pipeline.run import open_run, run_audit
from pelops.pipeline.session import open_session
from pelops.pipeline.settings import Settings, Target
from tests.pipeline.evidence_door import FILES
from tests.pipeline.mishaps import GROUP, STREAM, STUCK_MS, live, open_life

DONE: Final = {EntryStatus.ACKNOWLEDGED_PROVEN, EntryStatus.ACKNOWLEDGED_INFERRED}
_SHOWN: Final = 10  # entries that are told wrongly


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What an audit said, beside what is true."""

    has_files: bool
    summary: AuditSummary
    told: dict[bytes, EntryStatus]  # of entries that are not acknowledged
    true: dict[bytes, EntryStatus]  # of every entry
    true_counts: Counter[EntryStatus]
    took_s: float

    def wrong(self) -> dict[bytes, tuple[EntryStatus | None, EntryStatus]]:
        """Entries of which the audit says something else; with files nothing else is allowed.

        Without them, what nobody can tell may be indeterminate, or acknowledged by inference.
        """
        if self.has_files:
            return {
                one: (self.told.get(one), status)
                for one, status in self.true.items()
                if self.told.get(one) is not (None if status in DONE else status)
            }
        return {
            one: (status, self.true[one])
            for one, status in self.told.items()
            if status not in {self.true[one], EntryStatus.INDETERMINATE}
        }

    def miscounted(self) -> list[EntryStatus]:
        """Statuses that more or fewer entries have than in truth; without files, only more."""
        counts = self.summary.counts
        if self.has_files:
            return [one for one in EntryStatus if counts[one] != self.true_counts[one]]
        proven = [EntryStatus.ACKNOWLEDGED_PROVEN] * bool(counts[EntryStatus.ACKNOWLEDGED_PROVEN])
        unsure = DONE | {EntryStatus.INDETERMINATE}
        surplus = [one for one in EntryStatus if counts[one] > self.true_counts[one]]
        return proven + [one for one in surplus if one not in unsure]


async def audit_life(
    spark: SparkSession, directory: Path, *, entries: int, seed: int, size: int
) -> AsyncGenerator[Compared, None]:
    """Live through so many entries, and audit them with append-only files and without."""
    with start_standalone("8.6", options=FILES) as servers:
        async with open_life(servers, seed=seed, size=size) as life:
            settings = Settings(
                place=read_place({}, f"redis://127.0.0.1:{life.port}/0"),
                archive=str(directory / "with-files"),
                targets=(Target(stream=STREAM, group=GROUP, stuck_after_ms=STUCK_MS),),
                aof_path=str(servers.server.directory / "appendonlydir"),
            )
            without = replace(settings, aof_path=None, archive=str(directory / "without"))
            # The stream is empty: a window begins here, and no entry is trimmed before it.
            _audit(spark, settings)
            shutil.copytree(settings.archive, without.archive)
            await live(life, entries)
            truth = life.driver.main
            true = dict(zip(truth.ids, truth.statuses(), strict=True))
            for one in (settings, without):
                began = time.monotonic()
                summary, told = _audit(spark, one)
                yield Compared(
                    has_files=one.aof_path is not None,
                    summary=summary,
                    told=told,
                    true=true,
                    true_counts=Counter(truth.counts()),
                    took_s=time.monotonic() - began,
                )


def _audit(
    spark: SparkSession, settings: Settings
) -> tuple[AuditSummary, dict[bytes, EntryStatus]]:
    """The summary of the next window, and the status of every entry that is not acknowledged."""
    run = open_run(spark, settings)
    try:
        [summary] = run_audit(run)
    finally:
        run.watch.close()
    place = WindowPlace(root=settings.archive, stream=STREAM, number=summary.window.number)
    told: dict[bytes, EntryStatus] = {}
    for part in ("exceptions", "unarchived"):
        path = place.of_group(GROUP, part)
        if run.storage.exists(path):
            told |= _statuses(spark.read.parquet(path).collect())
    return summary, told


def _statuses(rows: list[Any]) -> dict[bytes, EntryStatus]:
    return {b"%d-%d" % (row["ms"], row["seq"]): EntryStatus(row["status"]) for row in rows}


def render_comparison(found: Compared) -> str:
    """The comparison as a table, and what is wrong."""
    how = "with append-only files" if found.has_files else "without append-only files"
    head = f"{len(found.true)} entries, {how}, audited in {found.took_s:.1f} s"
    rows = [
        f"  {status.value:<22} {found.true_counts[status]:>10} {found.summary.counts[status]:>10}"
        for status in EntryStatus
        if found.true_counts[status] or found.summary.counts[status]
    ]
    wrong = found.wrong()
    shown = [f"    {one.decode()}: {told}" for one, told in list(wrong.items())[:_SHOWN]]
    columns = f"  {'':<22} {'true':>10} {'told':>10}"
    tail = f"  told wrongly: {len(wrong)}; statuses miscounted: {len(found.miscounted())}"
    return "\n".join([head, columns, *rows, tail, *shown])


async def _tell(entries: int, seed: int, size: int, directory: Path) -> int:
    place = read_place({}, "redis://127.0.0.1:1/0")
    spark = open_session(Settings(place=place, archive=str(directory), memory_mib=2048))
    code = 0
    try:
        life = audit_life(spark, directory, entries=entries, seed=seed, size=size)
        async with aclosing(life) as comparisons:
            async for found in comparisons:
                print(render_comparison(found), flush=True)
                code = 1 if found.wrong() or found.miscounted() else code
    finally:
        spark.stop()
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=1000, help="entries between two mishaps")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pelops-truth-") as directory:
        return asyncio.run(_tell(chosen.entries, chosen.seed, chosen.size, Path(directory)))


if __name__ == "__main__":
    sys.exit(main())
