"""A life of many entries, audited, and compared with the truth entry by entry.

python -m tests.pipeline.auditing_truth --entries N: prints the comparison; ends with 1 when the
audit reports any entry something else with append-only files, or proves anything wrongly without.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from local_cluster.redis_servers import start_standalone
from pelops.domain.audit import AuditSummary, EntryStatus, Window
from pelops.pipeline.archive.layout import WindowPlace
from pelops.pipeline.engine.spark_session import open_session
from pelops.pipeline.run import open_run, run_audit
from pelops.pipeline.settings import AuditTarget, PipelineSettings, read_place
from pelops.policy.audit.classification import Proof
from tests.pipeline.evidence_adapter import FILES
from tests.pipeline.mishaps import GROUP, STREAM, STUCK_MS, live, open_life

# What the stream alone cannot tell apart.
UNSEEN: Final = {
    EntryStatus.ACKNOWLEDGED_PROVEN,
    EntryStatus.ACKNOWLEDGED_INFERRED,
    EntryStatus.LOST,
}
UNSURE: Final = {None, EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.INDETERMINATE}
_OF_PROOFS: Final = {
    str(Proof.ACKNOWLEDGED): EntryStatus.ACKNOWLEDGED_PROVEN,
    str(Proof.NOACK): EntryStatus.ACKNOWLEDGED_INFERRED,
}
PAUSES: Final = 3  # audits on the way
_SHOWN: Final = 10  # entries that are told wrongly


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What an audit said, beside what is true."""

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
        """How many entries were told to be the one, and are the other; None: only counted."""
        return Counter((self.reported.get(one), true) for one, true in self.true.items())

    def wrong(self) -> dict[bytes, tuple[EntryStatus | None, EntryStatus]]:
        """Entries of which the audit says something else; with files nothing else is allowed."""
        pairs = ((one, (self.reported.get(one), true)) for one, true in self.true.items())
        return {one: pair for one, pair in pairs if not self._is_right(*pair)} | {
            one: (reported, EntryStatus.INDETERMINATE)
            for one, reported in self.reported.items()
            if one not in self.true
        }

    def miscounted(self) -> list[EntryStatus]:
        """Statuses that more or fewer entries have than in truth; without files, than are named.

        Nobody watched: what was gone before it was archived is indeterminate without files, or lost
        as far as counters prove it.
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
        """Without files nothing is proven, and what nobody can tell is inferred or unknown."""
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
            without = replace(settings, aof_path=None, archive=str(directory / "without"))
            both = [_Audits(spark, settings), _Audits(spark, without)]
            await live(life, entries, pauses=pauses, pause=lambda: _audit_all(both))
            truth = life.driver.main
            true = dict(zip(truth.ids, truth.statuses(), strict=True))
            for audits in both:
                audits.run()
                yield replace(audits.compare(true), added=life.driver.added)


@dataclass(slots=True)
class _Audits:
    """Audits into one archive, one after the other."""

    spark: SparkSession
    settings: PipelineSettings
    summaries: list[AuditSummary] = field(default_factory=list)
    took_s: float = 0.0

    def run(self) -> None:
        began = time.monotonic()
        run = open_run(self.spark, self.settings)
        try:
            self.summaries += run_audit(run)
        finally:
            run.watch.close()
        self.took_s += time.monotonic() - began

    def compare(self, true: Mapping[bytes, EntryStatus]) -> Compared:
        reported: dict[bytes, EntryStatus] = {}
        counts: Counter[EntryStatus] = Counter()
        for one in self.summaries:
            reported |= _reported(self.settings, one.window)
            counts.update(one.counts)
            for entry_id, before, after in _settled(self.settings, one.window):
                reported[entry_id] = after
                counts.update({before: -1, after: 1})
        return Compared(
            has_files=self.settings.aof_path is not None,
            summaries=self.summaries,
            counts=counts,
            reported=reported,
            true=true,
            took_s=self.took_s,
            roots=sum(n for one in self.audits() for n in one["roots"].values()),
            broken=[
                f"{reported} of window {number}"
                for number, one in enumerate(self.audits())
                for reported in one["identities"]
                if reported["expected"] != reported["found"]
            ],
        )

    def audits(self) -> Iterator[dict[str, Any]]:
        """`audit.json` of each window."""
        for one in self.summaries:
            place = WindowPlace(root=self.settings.archive, stream=STREAM, number=one.window.number)
            yield json.loads(Path(place.of_group(GROUP, "audit.json")).read_text())


def _audit_all(both: Sequence[_Audits]) -> None:
    for audits in both:
        audits.run()


def _reported(settings: PipelineSettings, window: Window) -> dict[bytes, EntryStatus]:
    """The status of every entry of a window that its archive names.

    Entries that are no exceptions are acknowledged: proven where the files say so.
    """
    place = WindowPlace(root=settings.archive, stream=STREAM, number=window.number)
    if settings.aof_path is None:
        rows = _rows(place.part("entries"))
        reported = {one: EntryStatus.ACKNOWLEDGED_INFERRED for (one,) in rows}
    else:
        after = window.from_id.ms, window.from_id.seq
        rows = _rows(place.part(f"evidence/group={GROUP}"), "proof", after=after)
        reported = {one: _OF_PROOFS[proof] for one, proof in rows if proof in _OF_PROOFS}
    for part in ("exceptions", "unarchived"):
        rows = _rows(place.of_group(GROUP, part), "status")
        reported |= {one: EntryStatus(status) for one, status in rows}
    return reported


def _settled(
    settings: PipelineSettings, window: Window
) -> Iterator[tuple[bytes, EntryStatus, EntryStatus]]:
    """Entries of earlier windows that were open until this one: what they were, and are."""
    place = WindowPlace(root=settings.archive, stream=STREAM, number=window.number)
    for one, before, after in _rows(place.of_group(GROUP, "settled"), "status_before", "status"):
        yield one, EntryStatus(before), EntryStatus(after)


def _rows(path: str, *columns: str, after: tuple[int, int] = (-1, 0)) -> Iterator[tuple[Any, ...]]:
    """The ID of each row and these columns of it; nothing when there is no such part."""
    if not Path(path).exists():
        return
    table = pq.read_table(path, columns=["ms", "seq", *columns], partitioning=None)
    for batch in table.to_batches():
        values = [one.to_pylist() for one in batch.columns]
        for ms, seq, *rest in zip(*values, strict=True):
            if (ms, seq) > after:
                yield b"%d-%d" % (ms, seq), *rest


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
        f"  told {reported.value if reported else 'as a number only'}, in truth {true.value}: "
        f"{number}"
        for (reported, true), number in found.pairs().most_common()
        if reported is not true
    ]
    wrong = found.wrong()
    shown = [f"    {one.decode()}: {reported}" for one, reported in list(wrong.items())[:_SHOWN]]
    columns = f"  {'':<22} {'true':>10} {'told':>10}"
    tail = f"  told wrongly: {len(wrong)}; statuses miscounted: {len(found.miscounted())}"
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
