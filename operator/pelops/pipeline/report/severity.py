"""Decides once what needs attention: every list, color, badge and tick of a report uses it.

Findings come from all tables of an audit: the summary, the entries that were kept one by one (of
this window, of earlier ones, of the retry stream, archived or not), the dead letters that are there
now, the user's own tables, counts that differ, and losses of the windows before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pelops.domain.audit import (
    EXPECTED_STATUSES,
    UNKNOWN_KINDS,
    AuditFinding,
    AuditSummary,
    AuditVerdict,
    Certainty,
    EntryStatus,
    worst_certainty,
    worst_verdict,
)
from pelops.pipeline.report.model import (
    CountCheck,
    EntrySource,
    GroupLine,
    GroupReport,
    Report,
    ReportFinding,
    Severity,
)
from pelops.pipeline.report.words import MEANINGS, count_entries, count_of, show_count

ACKNOWLEDGED: Final = (EntryStatus.ACKNOWLEDGED_PROVEN, EntryStatus.ACKNOWLEDGED_INFERRED)
_LATER: Final = "-later"  # kinds of entries of earlier windows that came to an end since
_EARLIER: Final = "-earlier"  # kinds of entries of earlier windows that are open
_COPIES: Final = "-copies"
_DEAD_LETTERS: Final = "dead-letters"  # in the dead-letter stream now
_BEFORE: Final = "-before"  # kinds of findings of the windows before
_ORDER: Final = {severity: place for place, severity in enumerate(Severity)}
_OF_STATUS: Final = {
    EntryStatus.LOST: Severity.LOST,
    EntryStatus.PAYLOAD_GONE: Severity.PAYLOAD_GONE,
    EntryStatus.STUCK: Severity.STUCK,
    EntryStatus.DEAD_LETTERED: Severity.DEAD_LETTERED,
    EntryStatus.INDETERMINATE: Severity.UNKNOWN,
}
_FAILING: Final = frozenset({"archive-damaged", "epoch-break", "stream-missing", "group-missing"})
# What is so of one entry and of several; where it belongs stands before it.
_STATES: Final = {
    EntryStatus.LOST: ("is lost", "are lost"),
    EntryStatus.PAYLOAD_GONE: ("is pending without a body", "are pending without a body"),
    EntryStatus.STUCK: (
        "is pending for longer than the limit",
        "are pending for longer than the limit",
    ),
    EntryStatus.DEAD_LETTERED: ("was dead-lettered", "were dead-lettered"),
    EntryStatus.INDETERMINATE: ("is indeterminate", "are indeterminate"),
}
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
    "counts-differ": "balance",
    "unarchived": "balance",
}
# Entries of earlier windows that are stuck or lack their body are counted again while they do, and
# dead letters with those that are there now.
_PASSING: Final = frozenset({Severity.STUCK, Severity.PAYLOAD_GONE, Severity.DEAD_LETTERED})
# What was gone before the first window is reported with that one alone.
_OF_THE_FIRST: Final = frozenset({"removed-before-archive"})
# Totals of several groups, in words.
_TOTALS: Final = {
    Severity.LOST: "lost",
    Severity.PAYLOAD_GONE: "without payload",
    Severity.STUCK: "stuck",
    Severity.DEAD_LETTERED: "dead-lettered",
    Severity.UNKNOWN: "indeterminate",
}


def list_findings(group: GroupReport) -> tuple[ReportFinding, ...]:
    """All that needs a look in a group, the worst first; each is reported once."""
    found: dict[str, ReportFinding] = {}
    for one in (
        *_of_summary(group.summary),
        *_of_tables(group),
        *_of_checks(group),
        *_of_earlier_windows(group),
    ):
        known = found.get(one.kind)
        if known is None or one.count > known.count:
            found[one.kind] = one
    found |= {one.kind: one for one in _of_dead_letters(group, found.values())}
    return tuple(sorted(found.values(), key=lambda one: _ORDER[one.severity]))


def verdict_of(group: GroupReport) -> AuditVerdict:
    """The verdict of the page: never better than that of the audit, or than any finding."""
    reported = [group.summary.verdict]
    if group.summary.certainty is Certainty.UNKNOWN:
        reported.append(AuditVerdict.UNKNOWN)
    return _worst(reported, list_findings(group))


def certainty_of(group: GroupReport) -> Certainty | None:
    """What `balanced` rests on; None for every other verdict."""
    is_balanced = verdict_of(group) is AuditVerdict.BALANCED
    return group.summary.certainty if is_balanced else None


def sentence_of(group: GroupReport) -> str:
    """What the audit says of its window, and what else needs a look."""
    reported = {one.kind for one in _of_summary(group.summary)}
    more = [name_of(one) for one in list_findings(group) if one.kind not in reported]
    return f"{group.summary.sentence} Beside that: {_join(more)}." if more else (
        group.summary.sentence
    )  # fmt: skip


def line_of(group: GroupReport, href: str = "") -> GroupLine:
    """The group in an overview."""
    summary = group.summary
    return GroupLine(
        stream=summary.stream,
        group=summary.group,
        verdict=verdict_of(group),
        certainty=certainty_of(group),
        sentence=sentence_of(group),
        findings=list_findings(group),
        window=summary.window.number,
        closed=summary.window.at,
        produced=summary.produced,
        open=summary.open,
        href=href,
    )


def sort_lines(lines: Iterable[GroupLine]) -> list[GroupLine]:
    """The worst first; of equal ones those with more of it, then by name."""
    return sorted(lines, key=_gravity)


def lines_of(report: Report) -> list[GroupLine]:
    """All groups of a report, the worst first."""
    return sort_lines([*map(line_of, report.groups), *report.others])


def verdict_of_all(report: Report) -> AuditVerdict:
    """The worst of all groups. Without any, nothing is known."""
    verdicts = [one.verdict for one in lines_of(report)]
    if report.unread or not verdicts:
        verdicts.append(AuditVerdict.UNKNOWN)
    return worst_verdict(verdicts) or AuditVerdict.UNKNOWN


def certainty_of_all(report: Report) -> Certainty | None:
    """What `balanced` rests on for all groups; None for every other verdict."""
    if verdict_of_all(report) is not AuditVerdict.BALANCED:
        return None
    return worst_certainty([one.certainty for one in lines_of(report) if one.certainty])


def sentence_of_all(report: Report) -> str:
    """The verdict for people."""
    lines = lines_of(report)
    if not lines:
        return "There was no group to audit."
    if len(report.groups) == 1 and not report.others:
        return sentence_of(report.groups[0])
    return _sentence_of_many(lines)


def headline_of(report: Report) -> str:
    """The verdict in so few words that they can be a headline."""
    lines = lines_of(report)
    if len(lines) > 1 or not report.groups or lines[0].verdict is not AuditVerdict.FINDINGS:
        return sentence_of_all(report)
    parts = [f"{show_count(n)} {_TOTALS[of]}" for of, n in total_by_severity(lines).items()]
    parts = parts or [name_of(one) for one in lines[0].findings]
    of = f" among {count_entries(lines[0].produced)}" if lines[0].produced else ""
    return f"{_join(parts)}{of}."


def name_of(finding: ReportFinding) -> str:
    """`2 lost`: the finding in a few words."""
    return f"{show_count(finding.count)} {title_of(finding.kind)}"


def title_of(kind: str) -> str:
    """A kind of finding in words."""
    base, scope = _split(kind)
    status = _status(base)
    reported = _TOTALS[_OF_STATUS[status]] if status else base.replace("-", " ")
    return f"{reported}{_SCOPES[scope]}"


def total_by_severity(lines: Iterable[GroupLine]) -> dict[Severity, int]:
    """Entries of each severity, but for those of earlier reports; one counts for each group."""
    totals: dict[Severity, int] = defaultdict(int)
    for line in lines:
        for one in line.findings:
            if one.severity in _TOTALS and not one.kind.endswith(_BEFORE):
                totals[one.severity] += one.count
    return {severity: totals[severity] for severity in Severity if totals[severity]}


def count_produced(lines: Iterable[GroupLine]) -> int:
    """The entries of all streams: those of a stream that several groups read count once."""
    most: dict[tuple[str, int], int] = defaultdict(int)
    for line in lines:
        at = line.stream, line.window
        most[at] = max(most[at], line.produced)
    return sum(most.values())


_SCOPES: Final = {
    "": "",
    _LATER: " since, from earlier windows",
    _EARLIER: " from earlier windows",
    _COPIES: " in the retry stream",
    _BEFORE: " in earlier windows",
}


def _worst(verdicts: Sequence[AuditVerdict], findings: Iterable[ReportFinding]) -> AuditVerdict:
    of_findings = (
        AuditVerdict.UNKNOWN if one.severity is Severity.UNKNOWN else AuditVerdict.FINDINGS
        for one in findings
    )
    return worst_verdict([*verdicts, *of_findings]) or AuditVerdict.UNKNOWN


def _of_summary(summary: AuditSummary) -> Iterator[ReportFinding]:
    is_failing = summary.verdict is AuditVerdict.FAILING
    for place, one in enumerate(summary.findings):
        yield _read(one, is_failing=is_failing and place == 0)
    reported = {one.kind for one in summary.findings}
    for kind, count in _counted(summary):
        if count and kind not in reported:
            yield _make(kind, count)


def _counted(summary: AuditSummary) -> Iterator[tuple[str, int]]:
    """What the counts of a summary say, for when its list of findings was cut."""
    for status in _OF_STATUS:
        yield _kind(status), summary.counts.get(status, 0)
    yield f"{_kind(EntryStatus.STUCK)}{_EARLIER}", summary.stuck_earlier
    yield f"{_kind(EntryStatus.LOST)}{_LATER}", summary.lost_earlier


def _of_tables(group: GroupReport) -> Iterator[ReportFinding]:
    tables = {} if group.exceptions is None else group.exceptions.counts
    for source, counts in tables.items():
        for status, count in counts.items():
            if count and status not in EXPECTED_STATUSES:
                yield _make(f"{_kind(status)}{_SCOPE_OF[source]}", count)
    for one in group.comparisons:
        if one.count:
            yield _make(one.kind, one.count, one.sentence)
    listed = 0 if group.exceptions is None else group.exceptions.count
    known = sum(count for counts in tables.values() for count in counts.values())
    if listed > known and not any(count for _, count in _counted(group.summary)):
        yield _make(
            "entries-to-look-at", listed, f"{count_entries(listed)} were kept for inspection."
        )


_SCOPE_OF: Final = {
    EntrySource.WINDOW: "",
    EntrySource.EARLIER: _EARLIER,
    EntrySource.SETTLED: _LATER,
    EntrySource.COPY: _COPIES,
}


def _of_dead_letters(group: GroupReport, found: Iterable[ReportFinding]) -> Iterator[ReportFinding]:
    """Dead letters that are there now, beside those that the audit has told of."""
    known = sum(one.count for one in found if one.severity is Severity.DEAD_LETTERED)
    there = 0 if group.letters is None else group.letters.count
    if there > known:
        holds = f"The dead-letter stream holds {count_entries(there)} now"
        beside = f", {show_count(there - known)} beside those of this audit" if known else ""
        yield _make(_DEAD_LETTERS, there - known, f"{holds}{beside}.")


def _of_checks(group: GroupReport) -> Iterator[ReportFinding]:
    broken = [one for one in group.checks if not one.holds]
    reported = {one.kind for one in group.summary.findings}
    broken = [one for one in broken if not reported & _reported_as(one)]
    if broken:
        names = _join([one.name for one in broken])
        most = max(abs(one.expected - one.found) for one in broken)
        yield _make("counts-differ", most, f"Two ways of counting disagree: {names}.")


def _reported_as(one: CountCheck) -> set[str]:
    return {f"unbalanced-{one.name}", "unbalanced", "counters-contradict"}


def _of_earlier_windows(group: GroupReport) -> Iterator[ReportFinding]:
    """What the windows before found and nothing has mended."""
    sums: dict[str, int] = defaultdict(int)
    windows: dict[str, list[int]] = defaultdict(list)
    for summary in group.earlier:
        for one in _of_summary(summary):
            if one.severity not in _PASSING and one.kind not in _OF_THE_FIRST:
                kind = _split(one.kind)[0]
                sums[kind] += one.count
                windows[kind].append(summary.window.number)
    for kind, count in sums.items():
        numbers = sorted(set(windows[kind]))
        where = f"window {numbers[0]}" if len(numbers) == 1 else f"windows {_span(numbers)}"
        reported = f"Found in {where}, before the window of this report."
        yield _make(f"{kind}{_BEFORE}", count, reported, part="windows")


def _span(numbers: Sequence[int]) -> str:
    return _join(list(map(str, numbers))) if len(numbers) <= 4 else (
        f"{numbers[0]} to {numbers[-1]}"
    )  # fmt: skip


def _read(one: AuditFinding, *, is_failing: bool) -> ReportFinding:
    made = _make(one.kind, one.count, one.sentence)
    if is_failing and made.severity is Severity.OTHER:
        return ReportFinding(
            severity=Severity.FAILING, kind=one.kind, count=one.count, sentence=one.sentence
        )
    return made


def _make(kind: str, count: int, sentence: str = "", part: str = "") -> ReportFinding:
    base, scope = _split(kind)
    status = _status(base)
    severity = _severity(base, status)
    reported = sentence
    if not reported and status is not None:
        meaning = MEANINGS[status]
        reported = f"{_WHOSE[scope]}{meaning}." if scope else f"{meaning[0].upper()}{meaning[1:]}."
    return ReportFinding(
        severity=severity,
        kind=kind,
        count=count,
        sentence=reported,
        part=part or _PARTS_OF_KINDS.get(base) or _PARTS.get(severity, ""),
    )


_WHOSE: Final = {
    _LATER: "Of earlier windows, and open until then: ",
    _EARLIER: "Of earlier windows: ",
    _COPIES: "Copies in the group's own retry stream: ",
    _BEFORE: "Of earlier windows: ",
}


def _severity(base: str, status: EntryStatus | None) -> Severity:
    if base in _FAILING:
        return Severity.FAILING
    if base == _DEAD_LETTERS:
        return Severity.DEAD_LETTERED
    if base in UNKNOWN_KINDS:
        return Severity.UNKNOWN
    return Severity.OTHER if status is None else _OF_STATUS[status]


def _status(base: str) -> EntryStatus | None:
    word = base.replace("-", "_")
    return next((status for status in _OF_STATUS if status.value == word), None)


def _kind(status: EntryStatus) -> str:
    return status.value.replace("_", "-")


def _split(kind: str) -> tuple[str, str]:
    """A kind without the windows that it is of, and those."""
    for scope in (_LATER, _EARLIER, _COPIES, _BEFORE):
        if kind.endswith(scope):
            return kind.removesuffix(scope), scope
    return kind, ""


def _gravity(line: GroupLine) -> tuple[int, tuple[tuple[int, int], ...], str, str]:
    worst = tuple((_ORDER[one.severity], -one.count) for one in line.findings)
    return _SEVERITY[line.verdict], worst, line.stream, line.group


_SEVERITY: Final = {verdict: -place for place, verdict in enumerate(AuditVerdict)}


def _sentence_of_many(lines: Sequence[GroupLine]) -> str:
    streams = len({one.stream for one in lines})
    found = [one for one in lines if one.verdict in {AuditVerdict.FINDINGS, AuditVerdict.FAILING}]
    head = f"{count_of(len(lines), 'group')}"
    of = f" of {count_of(streams, 'stream')}" if streams > 1 else ""
    head = f"{head}{of}, {count_entries(count_produced(lines))}"
    if not found:
        return f"{head}: {_well(lines)}."
    totals = total_by_severity(found)
    parts = [f"{show_count(count)} {_TOTALS[severity]}" for severity, count in totals.items()]
    failing = sum(one.verdict is AuditVerdict.FAILING for one in found)
    if failing:
        parts.insert(0, f"{show_count(failing)} not accounted for")
    needs = "needs" if len(found) == 1 else "need"
    reported = f": {_join(parts)}" if parts else ""
    return f"{head}. {count_of(len(found), 'group')} {needs} attention{reported}."


def _well(lines: Sequence[GroupLine]) -> str:
    unknown = [one for one in lines if one.verdict is not AuditVerdict.BALANCED]
    if unknown:
        count = total_by_severity(unknown).get(Severity.UNKNOWN, 0)
        reported = f" and {count_entries(count)} indeterminate" if count else ""
        balanced = show_count(len(lines) - len(unknown))
        return f"{balanced} balanced, {show_count(len(unknown))} unknown{reported}"
    inferred = sum(one.certainty is not Certainty.PROVEN for one in lines)
    if 0 < inferred < len(lines):
        return f"all balanced, {show_count(inferred)} inferred and the others proven"
    return f"all balanced, {Certainty.INFERRED if inferred else Certainty.PROVEN}"


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
