"""An overview of several groups: a line for each, and the verdict of all in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import (
    Field,
)

from pelops.domain.records.audit import (
    AuditVerdict,
    Certainty,
)
from pelops.pipeline.report.findings import ReportFinding, rank
from pelops.pipeline.report.parts import (
    Count,
    Moment,
    ReportPart,
)
from pelops.pipeline.report.words import (
    TOTALS,
    count_entries,
    count_of,
    join_words,
    show_count,
)


class GroupLine(ReportPart):
    """A group in an overview; its page has more."""

    stream: str
    group: str
    verdict: AuditVerdict
    certainty: Certainty | None
    sentence: str
    findings: tuple[ReportFinding, ...]
    notes: tuple[ReportFinding, ...] = ()
    window: Count
    closed: Annotated[Moment, Field(alias="closed_ms")]
    produced: Count
    open: Count = Field(description="Entries of all windows that can still change.")
    href: Annotated[str, Field(alias="page", description="From the directory of this document.")]


def sort_lines(lines: Iterable[GroupLine]) -> list[GroupLine]:
    """Return groups with the worst first; of equal ones those with more entries, then by name."""
    verdicts = list(AuditVerdict)
    return sorted(
        lines,
        key=lambda one: (
            -verdicts.index(one.verdict),
            rank((*one.findings, *one.notes)),
            one.stream,
            one.group,
        ),
    )


def describe_groups(lines: Sequence[GroupLine]) -> str:
    """The verdict of several groups in words; they are sorted, the worst first."""
    if not lines:
        return "There was no group to audit."
    if len(lines) == 1:
        return lines[0].sentence
    streams = len({one.stream for one in lines})
    of = f" of {count_of(streams, 'stream')}" if streams > 1 else ""
    head = f"{count_of(len(lines), 'group')}{of}, {count_entries(count_produced(lines))}"
    grave_lines = [
        one for one in lines if one.verdict in {AuditVerdict.FINDINGS, AuditVerdict.FAILING}
    ]
    if not grave_lines:
        return f"{head}: {_describe_well(lines)}."
    parts = list_totals(grave_lines)
    failing = sum(one.verdict is AuditVerdict.FAILING for one in grave_lines)
    if failing:
        parts.insert(0, f"{show_count(failing)} not accounted for")
    needs = "needs" if len(grave_lines) == 1 else "need"
    details = f": {join_words(parts)}" if parts else ""
    return f"{head}. {count_of(len(grave_lines), 'group')} {needs} attention{details}."


def describe_basis(balanced: Sequence[GroupLine]) -> str:
    """Numbers of groups that are proven and inferred."""
    proven = sum(one.certainty is Certainty.PROVEN for one in balanced)
    counts = {Certainty.PROVEN: proven, Certainty.INFERRED: len(balanced) - proven}
    return ", ".join(f"{show_count(n)} {of}" for of, n in counts.items() if n)


def list_totals(lines: Iterable[GroupLine]) -> list[str]:
    """Findings of several groups, such as `2 lost`. An entry counts once for each group."""
    totals: dict[str, int] = defaultdict(int)
    for line in lines:
        for one in line.findings:
            totals[one.severity] += one.count
    return [f"{show_count(totals[of])} {word}" for of, word in TOTALS.items() if totals.get(of)]


def count_produced(lines: Iterable[GroupLine]) -> int:
    """Number of entries of all streams; a stream with several groups counts once."""
    most: dict[tuple[str, int], int] = defaultdict(int)
    for line in lines:
        at = line.stream, line.window
        most[at] = max(most[at], line.produced)
    return sum(most.values())


def _describe_well(lines: Sequence[GroupLine]) -> str:
    unknown = [one for one in lines if one.verdict is not AuditVerdict.BALANCED]
    if unknown:
        totals = "".join(f" and {count} entries" for count in list_totals(unknown))
        balanced = show_count(len(lines) - len(unknown))
        return f"{balanced} balanced, {show_count(len(unknown))} unknown{totals}"
    inferred = sum(one.certainty is not Certainty.PROVEN for one in lines)
    if 0 < inferred < len(lines):
        return f"all balanced, {show_count(inferred)} inferred and the others proven"
    return f"all balanced, {Certainty.INFERRED if inferred else Certainty.PROVEN}"
