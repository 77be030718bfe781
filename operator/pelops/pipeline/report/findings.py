"""What needs attention in a group: the findings of its audit, and notes.

A finding is part of the summary and affects the verdict of the window. A note does not concern this
window: present dead letters, and permanent findings of earlier windows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, Field

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    UNKNOWN_KINDS,
    AuditSummary,
    AuditVerdict,
    kind_of,
    list_counted,
)
from pelops.pipeline.report.words import MEANINGS, TOTALS, count_entries, join_words, show_count


class Severity(StrEnum):
    """The severity of a finding, from worst to least."""

    FAILING = "failing"  # the entries cannot be accounted for
    LOST = "lost"
    PAYLOAD_GONE = "payload_gone"
    STUCK = "stuck"
    DEAD_LETTERED = "dead_lettered"
    OTHER = "other"
    UNKNOWN = "unknown"  # not known to be wrong, and not proven to be right


class ReportFinding(BaseModel, frozen=True):
    """A finding or a note."""

    severity: Severity
    kind: str = Field(
        description="A name for programs. The suffix is the origin: `-later`, earlier windows and "
        "settled since; `-earlier`, earlier windows and still open; `-copies`, the group's retry "
        "stream; `-before`, as earlier windows found it."
    )
    count: Annotated[int, Field(ge=0, strict=True)]
    sentence: str

    @property
    def title(self) -> str:
        """`2 lost`: the finding in a few words."""
        base, scope = _split(self.kind)
        words = TOTALS[_OF_KIND[base]] if base in _OF_KIND else base.replace("-", " ")
        return f"{show_count(self.count)} {words}{_SCOPES[scope]}"

    @property
    def part(self) -> str:
        """The part of the page that shows more of it; empty without one."""
        base, scope = _split(self.kind)
        if scope == _BEFORE:
            return "windows"
        known = _PARTS_OF_KINDS.get(base) or _PARTS.get(self.severity, "")
        return "balance" if not known and base.startswith("unbalanced") else known


_BEFORE: Final = "-before"
_SCOPES: Final = {
    "": "",
    "-later": " since, from earlier windows",
    "-earlier": " from earlier windows",
    "-copies": " in the retry stream",
    _BEFORE: " in earlier windows",
}
_OF_KIND: Final = {
    kind_of(EntryStatus.LOST): Severity.LOST,
    kind_of(EntryStatus.PAYLOAD_GONE): Severity.PAYLOAD_GONE,
    kind_of(EntryStatus.STUCK): Severity.STUCK,
    kind_of(EntryStatus.DEAD_LETTERED): Severity.DEAD_LETTERED,
    kind_of(EntryStatus.INDETERMINATE): Severity.UNKNOWN,
}
_FAILING: Final = frozenset({"archive-damaged", "epoch-break", "stream-missing", "group-missing"})
_PARTS: Final = {
    Severity.LOST: "entries",
    Severity.PAYLOAD_GONE: "entries",
    Severity.STUCK: "entries",
    Severity.DEAD_LETTERED: "letters",
    Severity.UNKNOWN: "entries",
}
_PARTS_OF_KINDS: Final = {
    "never-arrived": "compared",
    "without-effect": "compared",
    "duplicates-by-root": "duplicates",
    "duplicates-by-key": "duplicates",
}
# Each window counts these again while they last. Entries that were removed before the first window
# are reported only with that window.
_REPEATED: Final = frozenset({Severity.STUCK, Severity.PAYLOAD_GONE, Severity.DEAD_LETTERED})
_OF_THE_FIRST: Final = "removed-before-archive"
_ORDER: Final = {severity: place for place, severity in enumerate(Severity)}


def list_findings(summary: AuditSummary) -> tuple[ReportFinding, ...]:
    """Return the findings of a window, the worst first.

    If the list of findings was cut, the missing ones are built from the counts.
    """
    findings: dict[str, ReportFinding] = {}
    is_failing = summary.verdict is AuditVerdict.FAILING
    for finding in (*summary.findings, *list_counted(summary)):
        if finding.kind not in findings:
            findings[finding.kind] = _find(
                finding.kind,
                finding.count,
                finding.sentence,
                is_failure=is_failing and not findings,
            )
    return _sort(findings.values())


def list_notes(
    summary: AuditSummary, dead_letters: int, earlier: Sequence[AuditSummary]
) -> tuple[ReportFinding, ...]:
    """Return the notes of a window, the worst first.

    Args:
        dead_letters: number of dead letters that are in the dead-letter stream now.
        earlier: the earlier windows, the oldest first.
    """
    return _sort([*_of_dead_letters(summary, dead_letters), *_of_windows(earlier)])


def rank(findings: Iterable[ReportFinding]) -> tuple[tuple[int, int], ...]:
    """Return a key that sorts the worst findings first; of equal ones, those with more entries."""
    return tuple((_ORDER[one.severity], -one.count) for one in findings)


def _of_dead_letters(summary: AuditSummary, there: int) -> Iterator[ReportFinding]:
    findings = list_findings(summary)
    known = sum(one.count for one in findings if one.severity is Severity.DEAD_LETTERED)
    if there > known:
        holds = f"The dead-letter stream holds {count_entries(there)} now"
        beside = f", {show_count(there - known)} beside those of this window" if known else ""
        yield ReportFinding(
            severity=Severity.DEAD_LETTERED,
            kind="dead-letters",
            count=there - known,
            sentence=f"{holds}{beside}.",
        )


def _of_windows(earlier: Sequence[AuditSummary]) -> Iterator[ReportFinding]:
    counts: dict[str, int] = defaultdict(int)
    windows: dict[str, list[int]] = defaultdict(list)
    for summary in earlier:
        for finding in list_findings(summary):
            if finding.severity not in _REPEATED and finding.kind != _OF_THE_FIRST:
                base = _split(finding.kind)[0]
                counts[base] += finding.count
                windows[base].append(summary.window.number)
    for base, count in counts.items():
        numbers = sorted(set(windows[base]))
        span = (
            join_words(map(str, numbers)) if len(numbers) <= 4 else f"{numbers[0]} to {numbers[-1]}"
        )
        where = f"window{'s' if len(numbers) > 1 else ''} {span}"
        sentence = f"Found in {where}, before the window of this report."
        yield _find(f"{base}{_BEFORE}", count, sentence)


def _find(kind: str, count: int, sentence: str, *, is_failure: bool = False) -> ReportFinding:
    base, _ = _split(kind)
    severity = _OF_KIND.get(base, Severity.UNKNOWN if base in UNKNOWN_KINDS else Severity.OTHER)
    if base in _FAILING or (is_failure and severity is Severity.OTHER):
        severity = Severity.FAILING
    meaning = next((text for status, text in MEANINGS.items() if kind_of(status) == base), kind)
    return ReportFinding(severity=severity, kind=kind, count=count, sentence=sentence or meaning)


def _split(kind: str) -> tuple[str, str]:
    """Return a kind without its suffix, and the suffix."""
    suffix = next((one for one in _SCOPES if one and kind.endswith(one)), "")
    return kind.removesuffix(suffix), suffix


def _sort(findings: Iterable[ReportFinding]) -> tuple[ReportFinding, ...]:
    return tuple(sorted(findings, key=lambda one: _ORDER[one.severity]))
