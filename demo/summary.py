"""The results of the demo as tables for people."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import PurePath

from demo.corpus import Source
from demo.counting import FileCounts, Totals, add_up
from demo.recovery import Letter, Move, Rescue
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditSummary
from pelops.domain.records.ledger import LedgerKind

WIDEST = 60


def render_summary(sources: Sequence[Source], results: Mapping[str, FileCounts]) -> str:
    """Sums for each source and for all."""
    header = ["", *(field.name.replace("_", " ") for field in fields(Totals))]
    rows = [
        _row(source.label, add_up(results[str(p)] for p in source.paths if str(p) in results))
        for source in sources
    ]
    rows.append(_row("total", add_up(results.values())))
    return "\n".join(_align([header, *rows], lefts=1))


def render_rescues(rescues: Sequence[Rescue]) -> str:
    """Who was killed and how, and when what it held was deliverable again."""
    header = [
        "worker",
        "how",
        "pending",
        "started",
        "recovered",
        "after report",
        "after kill",
        "failed attempts",
        "resumed",
    ]
    rows = [
        [
            rescue.victim.pod,
            rescue.victim.how,
            str(len(rescue.victim.held)),
            str(sum(held.has_started for held in rescue.victim.held)),
            str(rescue.moved),
            f"{rescue.reported_to_deliverable_ms} ms" if rescue.at_once else "-",
            f"{rescue.kill_to_deliverable_ms} ms" if rescue.at_once else "-",
            str(rescue.counted_attempts),
            str(rescue.resumed),
        ]
        for rescue in rescues
    ]
    return "\n".join(_align([header, *rows], lefts=2))


def render_moves(moves: Sequence[Move], delays: Sequence[int]) -> str:
    """How many copies were made, and how soon. `delays` are sorted."""
    copies = sum(move.kind == LedgerKind.REQUEUED for move in moves)
    middle, slowest = (delays[len(delays) // 2], delays[-1]) if delays else (0, 0)
    return (
        f"  {copies} entries of workers that had ended were requeued: half of them within"
        f" {middle:,} ms of the first report of the end, all within {slowest:,} ms"
    )


def render_dead_letters(letters: Sequence[Letter], expected: Mapping[str, FileCounts]) -> str:
    """Each dead letter, with what Python says of the file."""
    header = ["file", "failed attempts", "reason", "error"]
    rows = [
        [
            "/".join(PurePath(letter.path).parts[-2:]),
            str(letter.retry_count),
            letter.reason,
            _shorten(expected[letter.path].error or "" if letter.path in expected else ""),
        ]
        for letter in sorted(letters, key=lambda one: one.path)
    ]
    return "\n".join(_align([header, *rows], lefts=4))


def render_audits(summaries: Mapping[str, AuditSummary]) -> str:
    """How many entries have each status, for each team in a column, and the verdicts."""
    audits = list(summaries.values())
    seen = [one for one in EntryStatus if any(audit.counts[one] for audit in audits)]
    rows = [
        ["", *summaries],
        *([one.value, *(f"{audit.counts[one]:,}" for audit in audits)] for one in seen),
        ["produced", *(f"{audit.produced:,}" for audit in audits)],
    ]
    verdicts = [
        f"  {label}, {one.verdict.value}: {one.sentence}" for label, one in summaries.items()
    ]
    return "\n".join([*_align(rows, lefts=1), *verdicts])


def _shorten(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def _row(label: str, totals: Totals) -> list[str]:
    return [label, *(f"{number:,}" for number in astuple(totals))]


def _align(rows: list[list[str]], *, lefts: int) -> list[str]:
    """Columns as wide as their widest cell; the first `lefts` of them begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [
                "",
                *map(str.ljust, row[:lefts], widths),
                *map(str.rjust, row[lefts:], widths[lefts:]),
            ]
        ).rstrip()
        for row in rows
    ]
