"""The top of a report: the verdict of all, what needs a look, and every group by severity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pelops.domain.audit import Certainty, Verdict, worst_certainty, worst_verdict
from pelops.pipeline.report.markup import Child, Html, join, one_line, tag
from pelops.pipeline.report.model import Finding, GroupLine, Severity
from pelops.pipeline.report.sections import build_long_table
from pelops.pipeline.report.severity import name_of
from pelops.pipeline.report.tables import Cell, Table, number_cell
from pelops.pipeline.report.words import VERDICTS, count_of, name_verdict, show_count, show_moment

MOST_NAMED: Final = 4  # findings of a group, in a row
MOST_ROWS: Final = 10  # groups that are seen before the table is unfolded
_NUMBERS: Final = "number"
_GRAVE: Final = frozenset({Severity.FAILING, Severity.LOST, Severity.PAYLOAD_GONE})


def build_badge(lines: Sequence[GroupLine], *, is_whole: bool) -> Html:
    """The verdict of groups in a word, red for what is lost.

    The only tick of a page is that of a whole page that is balanced.
    """
    verdict = worst_verdict([one.verdict for one in lines]) or Verdict.UNKNOWN
    certainty = worst_certainty([one.certainty for one in lines if one.certainty])
    glyph = VERDICTS[verdict][0]
    shown = is_whole or verdict is not Verdict.BALANCED
    mark = [tag("span", glyph, aria_hidden="true"), " "] if shown else None
    is_grave = any(found.severity in _GRAVE for one in lines for found in one.findings)
    grave = " grave" if is_grave and verdict is Verdict.FINDINGS else ""
    return tag("span", mark, name_verdict(verdict, certainty), class_=f"badge {verdict}{grave}")


def build_finding_list(found: Sequence[Finding], anchor: str, parts: set[str]) -> Html | None:
    """What needs a look, the worst first, each with its link to the part that shows more."""
    if not found:
        return None
    rows = [_finding(one, anchor if one.part in parts else "") for one in found]
    return tag("ul", rows, class_="told", aria_label="Findings")


def build_overview(lines: Sequence[GroupLine]) -> Html:
    """Groups that need a look, the worst first; then, folded, those that are balanced."""
    worse = [one for one in lines if one.verdict is not Verdict.BALANCED]
    balanced = [one for one in lines if one.verdict is Verdict.BALANCED]
    body: list[Child] = []
    if worse:
        body += [build_long_table(_table(worse, "Groups, the worst first", "Found"), MOST_ROWS)]
    if balanced:
        body += [_folded(balanced, is_alone=not worse)]
    return tag(
        "nav",
        tag("h2", "Groups", class_="unseen"),
        body,
        aria_label="Groups",
        class_="overview",
        id="groups",
    )


def _folded(balanced: Sequence[GroupLine], *, is_alone: bool) -> Html:
    proven = sum(one.certainty is Certainty.PROVEN for one in balanced)
    counts = {Certainty.PROVEN: proven, Certainty.INFERRED: len(balanced) - proven}
    basis = ", ".join(f"{show_count(n)} {of}" for of, n in counts.items() if n)
    summary = tag("summary", f"{count_of(len(balanced), 'balanced group')} ({basis})")
    table = build_long_table(_table(balanced, "Balanced groups", "Balanced"), MOST_ROWS)
    is_open = is_alone and len(balanced) <= MOST_ROWS
    return tag("details", summary, table, class_="folded", open="" if is_open else None)


def _finding(one: Finding, anchor: str) -> Html:
    name = one_line(name_of(one), 90)
    head = tag("a", name, href=f"#{anchor}-{one.part}") if anchor else name
    return tag(
        "li", tag("b", head), tag("bdi", _as_sentence(one.sentence)), class_=one.severity.value
    )


def _as_sentence(text: str) -> str:
    told = text.strip()
    if not told:
        return ""
    end = "" if told[-1] in ".!?…" else "."
    return f"{told[0].upper()}{told[1:]}{end}"


def _table(lines: Sequence[GroupLine], caption: str, heading: str) -> Table:
    rows = [
        [
            Cell(shown=_name(one), copied=f"{one.group} {one.stream}", kind="name"),
            Cell(shown=_found(one), copied=_copied(one), kind="text"),
            number_cell(show_count(one.produced), one.produced),
            number_cell(show_count(one.open), one.open),
            Cell(shown=show_moment(one.closed), copied=show_moment(one.closed), kind="when"),
        ]
        for one in lines
    ]
    return Table(
        caption=caption,
        headings=("Group", heading, "Entries", "Still open", "Window closed"),
        rows=rows,
        kinds=(None, None, _NUMBERS, _NUMBERS, "when"),
    )


def _name(one: GroupLine) -> Html:
    named = tag("bdi", one_line(one.group, 120))
    link = tag("a", named, href=one.href) if one.href else named
    return join([link, tag("small", tag("bdi", one_line(one.stream, 120)))])


def _found(one: GroupLine) -> Child:
    if one.verdict is Verdict.BALANCED:
        return one.certainty or ""
    if not one.findings:
        return VERDICTS[one.verdict][1]
    named = [
        tag("span", one_line(name_of(found), 60), class_=f"chip {found.severity}")
        for found in one.findings[:MOST_NAMED]
    ]
    more = len(one.findings) - MOST_NAMED
    rest = tag("small", f"and {show_count(more)} more") if more > 0 else None
    return [[chip, " "] for chip in [*named, rest] if chip is not None]


def _copied(one: GroupLine) -> str:
    told = ", ".join(name_of(found) for found in one.findings)
    return f"{one.verdict}: {told}" if told else f"{one.verdict} {one.certainty or ''}".strip()
