"""A life of many entries, audited, and compared with the truth entry by entry.

python -m tests.pipeline.auditing_truth --entries N: prints the comparison; ends with 1 when the
audit reports a wrong status with append-only files, or a wrong status as proven without.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from local_cluster.redis_servers import start_standalone
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditSummary
from pelops.pipeline.archive.tables import STATUSES, Archive
from pelops.pipeline.context import open_run
from pelops.pipeline.report.model import GroupReport
from pelops.pipeline.report.pages import read_reports
from pelops.pipeline.run import find_targets, run_audit
from pelops.pipeline.session import LazySession, open_session
from pelops.pipeline.settings import AuditTarget, PipelineSettings, read_place
from tests.pipeline.evidence_adapter import FILES
from tests.pipeline.mishaps import GROUP, STREAM, STUCK_MS, live, open_life

# Statuses that the stream alone cannot distinguish.
UNSEEN: Final = {
    EntryStatus.ACKNOWLEDGED_PROVEN,
    EntryStatus.ACKNOWLEDGED_INFERRED,
    EntryStatus.LOST,
}
UNSURE: Final = {None, EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.INDETERMINATE}
PAUSES: Final = 3  # audits on the way
_SHOWN: Final = 10  # entries with a wrong status


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The statuses that an audit reports, beside the true ones."""

    has_files: bool
    summaries: Sequence[AuditSummary]  # of each window
    counts: Counter[EntryStatus]  # of all windows, as far as later ones did not say otherwise
    reported: Mapping[bytes, EntryStatus]  # of each entry that the audits name, as the last of them
    true: Mapping[bytes, EntryStatus]  # of every entry
    took_s: float
    added: int = 0  # by users
    roots: int = 0  # outcomes of what users added, in all windows
    broken: Sequence[str] = ()  # identities that do not hold

    def pairs(self) -> Counter[tuple[EntryStatus | None, EntryStatus]]:
        """Number of entries by reported and true status; None: only counted."""
        return Counter((self.reported.get(one), true) for one, true in self.true.items())

    def wrong(self) -> dict[bytes, tuple[EntryStatus | None, EntryStatus]]:
        """Entries with a wrong status; with files only the true one is right."""
        pairs = ((one, (self.reported.get(one), true)) for one, true in self.true.items())
        return {one: pair for one, pair in pairs if not self._is_right(*pair)} | {
            one: (reported, EntryStatus.INDETERMINATE)
            for one, reported in self.reported.items()
            if one not in self.true
        }

    def miscounted(self) -> list[EntryStatus]:
        """Statuses that more or fewer entries have than in truth; without files, than are named.

        Without files, an entry that was removed before it was archived is indeterminate, or lost as
        far as counters prove it.
        """
        expected = Counter(self.true.values() if self.has_files else self.reported.values())
        if not self.has_files:
            unnamed = [true for one, true in self.true.items() if one not in self.reported]
            lost = self.counts[EntryStatus.LOST] - expected[EntryStatus.LOST]
            lost = min(max(lost, 0), unnamed.count(EntryStatus.LOST))
            expected[EntryStatus.LOST] += lost
            expected[EntryStatus.INDETERMINATE] += len(unnamed) - lost
        return [one for one in EntryStatus if self.counts[one] != expected[one]]

    def _is_right(self, reported: EntryStatus | None, true: EntryStatus) -> bool:
        """Without files nothing is proven, and statuses in `UNSEEN` are inferred or unknown."""
        if self.has_files:
            return reported is true
        if reported in UNSURE:
            return true in UNSEEN
        return reported is true and reported is not EntryStatus.ACKNOWLEDGED_PROVEN


async def audit_life(
    spark: SparkSession,
    directory: Path,
    *,
    entries: int,
    seed: int,
    size: int,
    pauses: int = PAUSES,
) -> AsyncGenerator[Compared, None]:
    """Live through so many entries, and audit them with append-only files and without.

    Both audits also run in `pauses` on the way; what they left open is looked at again.
    """
    with start_standalone("8.6", options=FILES) as servers:
        async with open_life(servers, seed=seed, size=size) as life:
            settings = PipelineSettings(
                place=read_place({}, f"redis://127.0.0.1:{life.port}/0"),
                archive=str(directory / "with-files"),
                targets=(AuditTarget(stream=STREAM, group=GROUP, stuck_after_ms=STUCK_MS),),
                aof_path=str(servers.server.directory / "appendonlydir"),
            )
            without = settings.model_copy(
                update={"aof_path": None, "archive": str(directory / "without")}
            )
            session = LazySession(given=spark)
            both = [_Audits(session, settings), _Audits(session, without)]
            await live(life, entries, pauses=pauses, pause=lambda: _audit_all(both))
            truth = life.driver.main
            true = dict(zip(truth.ids, truth.statuses(), strict=True))
            for audits in both:
                audits.run()
                yield replace(audits.compare(true), added=life.driver.added)


@dataclass(slots=True)
class _Audits:
    """Audits into one archive, one after the other."""

    spark: LazySession
    settings: PipelineSettings
    summaries: list[AuditSummary] = field(default_factory=list)
    took_s: float = 0.0

    def run(self) -> None:
        began = time.monotonic()
        run = open_run(self.spark, self.settings)
        try:
            self.summaries += run_audit(run, find_targets(run))
        finally:
            run.watch.close()
        self.took_s += time.monotonic() - began

    def compare(self, true: Mapping[bytes, EntryStatus]) -> Compared:
        reported: dict[bytes, EntryStatus] = {}
        counts: Counter[EntryStatus] = Counter()
        for one in self.summaries:
            counts.update(one.counts)
            for entry_id, window, status in self._statuses(one.window.number):
                if window != one.window.number:
                    # Of an earlier window: move the count from the former status to the new one.
                    counts[reported.get(entry_id, status)] -= 1
                    counts[status] += 1
                reported[entry_id] = status
        reports = list(self.reports())
        return Compared(
            has_files=self.settings.aof_path is not None,
            summaries=self.summaries,
            counts=counts,
            reported=reported,
            true=true,
            took_s=self.took_s,
            roots=sum(sum((one.roots or {}).values()) for one in reports),
            broken=[
                f"{check} of window {one.summary.window.number}"
                for one in reports
                for check in one.checks
                if not check.holds
            ],
        )

    def reports(self) -> Iterator[GroupReport]:
        """The report of each window."""
        archive = Archive.of(self.settings)
        for one in self.summaries:
            yield from read_reports(archive, {(STREAM, GROUP): one.window.number}).values()

    def _statuses(self, number: int) -> Iterator[tuple[bytes, int, EntryStatus]]:
        """Of each entry that the audit of a window names: its window, and its status."""
        condition = (ds.field("stream") == STREAM) & (ds.field("as_of") == number)
        columns = ("id", "window", "status")
        rows = Archive.of(self.settings).read(STATUSES, condition, columns=columns)
        values = (rows[name].to_pylist() for name in columns)
        for entry_id, window, status in zip(*values, strict=True):
            yield entry_id.encode(), window, EntryStatus(status)


def _audit_all(both: Sequence[_Audits]) -> None:
    for audits in both:
        audits.run()


def render_comparison(found: Compared) -> str:
    """The comparison as a table, and what is wrong."""
    how = "with append-only files" if found.has_files else "without append-only files"
    head = f"{len(found.true)} entries, {how}, audited in {found.took_s:.1f} s"
    counts, true = found.counts, Counter(found.true.values())
    rows = [
        f"  {status.value:<22} {true[status]:>10} {counts[status]:>10}"
        for status in EntryStatus
        if true[status] or counts[status]
    ]
    differing = [
        f"  reported {reported.value if reported else 'as a number only'}, in truth {true.value}: "
        f"{number}"
        for (reported, true), number in found.pairs().most_common()
        if reported is not true
    ]
    wrong = found.wrong()
    shown = [f"    {one.decode()}: {reported}" for one, reported in list(wrong.items())[:_SHOWN]]
    columns = f"  {'':<22} {'true':>10} {'reported':>10}"
    tail = f"  reported wrongly: {len(wrong)}; statuses miscounted: {len(found.miscounted())}"
    return "\n".join([head, columns, *rows, *differing, tail, *shown])


async def _report(chosen: argparse.Namespace, directory: Path) -> int:
    place = read_place({}, "redis://127.0.0.1:1/0")
    spark = open_session(PipelineSettings(place=place, archive=str(directory), memory_mib=2048))
    given = {name: getattr(chosen, name) for name in ("entries", "seed", "size", "pauses")}
    code = 0
    try:
        async with aclosing(audit_life(spark, directory, **given)) as comparisons:
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
    parser.add_argument("--pauses", type=int, default=PAUSES, help="audits before the last one")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pelops-truth-") as directory:
        return asyncio.run(_report(chosen, Path(directory)))


if __name__ == "__main__":
    sys.exit(main())
