"""The parts of a group: what was counted, and what became of the entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from pelops.domain.audit import EXPECTED_STATUSES, AuditSummary, EntryStatus
from pelops.pipeline.report.charts import build_meter, build_swatch
from pelops.pipeline.report.markup import Child, Html, join, one_line, tag
from pelops.pipeline.report.model import (
    AgeBand,
    CountCheck,
    ExceptionalEntry,
    GroupReport,
    Source,
)
from pelops.pipeline.report.tables import (
    Cell,
    Table,
    build_table,
    code_cell,
    number_cell,
    text_cell,
)
from pelops.pipeline.report.words import (
    MEANINGS,
    REASONS,
    TITLES,
    count_entries,
    count_of,
    show_count,
    show_share,
    show_span,
)

_NUMBERS: Final = "number"
_SOURCES: Final = {
    Source.WINDOW: "",
    Source.EARLIER: "earlier window: ",
    Source.SETTLED: "earlier window, open until this one: ",
    Source.COPY: "copy in the retry stream: ",
}
MOST_AT_ONCE: Final = 10  # rows of a long table that are seen before it is unfolded


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a group's report: folded under its title, or one word where it has nothing."""

    name: str  # the end of its anchor
    title: str
    gist: str = ""  # of what is in it, beside its title
    body: Child = None  # None: there is nothing to show
    nothing: str = ""  # what was looked for, where there is nothing
    is_unseen: bool = False  # it was not looked for


def build_balance_part(group: GroupReport) -> Part:
    """Produced = the sum of all statuses, as a table; then every other count."""
    summary = group.summary
    table = _balance_table(summary) if summary.produced else None
    return Part(
        name="balance",
        title="Balance",
        gist=f"what became of {count_entries(summary.produced)}",
        body=[
            tag("p", tag("bdi", summary.sentence)),
            table,
            _roots(group),
            _checks(group.checks),
        ],
    )


def build_stuck_part(group: GroupReport) -> Part:
    """How old what is stuck is."""
    stuck = group.summary.counts.get(EntryStatus.STUCK, 0)
    earlier = group.summary.stuck_earlier
    bands = [band for band in group.stuck_ages or () if band.entries]
    title, name = "Ages of stuck entries", "stuck"
    if not stuck and not earlier and not bands:
        return Part(
            name=name, title=title, nothing="stuck entries", is_unseen=group.stuck_ages is None
        )
    oldest = group.summary.oldest_stuck
    gist = f"the oldest for {show_span(oldest)}" if oldest is not None else ""
    whose = f"{count_entries(stuck)} of this window {_are(stuck)} stuck"
    more = f", and {show_count(earlier)} of earlier windows" if earlier else ""
    lead = tag("p", f"{whose}{more}.")
    return Part(name=name, title=title, gist=gist, body=[lead, _bands(bands) if bands else None])


def build_unproven_part(group: GroupReport) -> Part:
    """What could not be proven, and why."""
    unproven, title = group.unproven, "What could not be proven"
    inferred = group.summary.counts.get(EntryStatus.ACKNOWLEDGED_INFERRED, 0)
    told = f"{count_of(inferred, 'acknowledgement')} {_are(inferred)} inferred"
    if not inferred and not unproven:
        return Part(name="unproven", title=title, nothing="statements without proof")
    lead = tag("p", f"{told}: {MEANINGS[EntryStatus.ACKNOWLEDGED_INFERRED]}.") if inferred else None
    rows = [
        [
            text_cell(one_line(one.sentence, 600)),
            number_cell("", "") if one.entries is None else _count_cell(one.entries),
        ]
        for one in unproven
    ]
    table = Table(
        caption="What could not be proven, and what would have proven it",
        headings=("What", "Entries"),
        rows=rows,
        kinds=(None, _NUMBERS),
    )
    return Part(
        name="unproven",
        title=title,
        gist=told if inferred else count_of(len(unproven), "limit"),
        body=[lead, build_table(table) if rows else None],
    )


def build_exceptions_part(group: GroupReport) -> Part:
    """Entries that somebody may have to look at, one by one; and how many nobody can list."""
    found, title, name = group.exceptions, "Entries to look at", "entries"
    unlisted = _count_unlisted(group)
    if not unlisted and (found is None or not found.count):
        return Part(
            name=name, title=title, nothing="entries to look at", is_unseen=found is None,
        )  # fmt: skip
    listed, count = (0, 0) if found is None else (len(found.first), found.count)
    gist = count_entries(count + unlisted)
    if 0 < listed < count:
        gist += f", the worst {show_count(listed)} listed" if listed > 1 else ", the worst listed"
    table = Table(
        caption="Entries that need a look, the worst first",
        headings=("Entry", "Status", "Why", "Consumer", "Idle", "Deliveries"),
        rows=[_exception_row(one) for one in (() if found is None else found.first)],
        kinds=(None, None, None, None, _NUMBERS, _NUMBERS),
    )
    rows = build_long_table(table) if listed else None
    path = "" if found is None else found.path
    where = tag("p", "All of them are in ", tag("code", path), ".") if path and count else None
    return Part(name=name, title=title, gist=gist, body=[rows, where, _show_unlisted(unlisted)])


def _count_unlisted(group: GroupReport) -> int:
    """Entries of the window that need a look and were kept nowhere one by one."""
    if group.exceptions is None:
        return 0
    counts = group.summary.counts
    known = sum(counts.get(status, 0) for status in EntryStatus if status not in EXPECTED_STATUSES)
    tables = group.exceptions.counts.get(Source.WINDOW, {})
    return max(0, known - sum(tables.values()))


def _show_unlisted(count: int) -> Html | None:
    if not count:
        return None
    told, what = ("1 entry is", "its ID") if count == 1 else (f"{count_entries(count)} are", "IDs")
    return tag("p", f"{told} known by number alone, gone before the archive could read {what}.")


def build_long_table(table: Table, at_once: int = MOST_AT_ONCE) -> Child:
    """A table of which the rows after the first ones are folded."""
    if len(table.rows) <= at_once + 2:
        return build_table(table)
    rest = replace(table, rows=table.rows[at_once:], caption=f"{table.caption}, continued")
    more = tag("summary", f"Show {show_count(len(rest.rows))} more")
    return [
        build_table(replace(table, rows=table.rows[:at_once])),
        tag("details", more, build_table(rest), class_="more"),
    ]


_CHECKED: Final = {
    "produced": "Produced, and with a status",
    "pending": "Pending in Redis, and open in the archive",
    "open": "Left open by the window before, and looked at again",
    "roots": "Added by users, and with an outcome",
    "requeued": "Requeued, and followed to the last copy",
}


def _count_cell(count: int) -> Cell:
    return number_cell(show_count(count), count)


def _balance_table(summary: AuditSummary) -> Html:
    rows = []
    for status in TITLES:
        count = summary.counts.get(status, 0)
        share = f"{100 * count / summary.produced:.4f}%"
        rows.append(
            [
                Cell(shown=_status_meaning(status), copied=status.value),
                number_cell(show_count(count), count),
                number_cell(show_share(count, summary.produced), share),
            ]
        )
    total = [
        text_cell("Produced"),
        number_cell(show_count(summary.produced), summary.produced),
        number_cell(show_share(1, 1), "100%"),
    ]
    table = Table(
        caption="What became of every entry that was produced",
        headings=("Status", "Entries", "Share"),
        rows=rows,
        total=total,
        kinds=(None, _NUMBERS, _NUMBERS),
    )
    return build_table(table)


def _status_meaning(status: EntryStatus) -> Html:
    named = tag("span", build_swatch(status), TITLES[status], class_="status")
    return tag("div", named, tag("small", MEANINGS[status], class_="meaning"), class_="named")


def _roots(group: GroupReport) -> Html | None:
    if group.roots is None:
        return None
    counts = {status: group.roots.get(status, 0) for status in TITLES}
    whole = sum(counts.values())
    rows = [
        [
            Cell(shown=tag("span", build_swatch(s), TITLES[s], class_="status"), copied=s.value),
            number_cell(show_count(n), n),
        ]
        for s, n in counts.items()
        if n
    ]
    table = Table(
        caption="Without copies: the outcome of what users added, each followed to its last copy",
        headings=("Status", "Entries"),
        rows=rows,
        total=[text_cell("Added by users"), number_cell(show_count(whole), whole)],
        kinds=(None, _NUMBERS),
        is_compact=True,
    )
    return build_table(table) if rows else None


def _checks(checks: Sequence[CountCheck]) -> Html | None:
    if not checks:
        return None
    rows = [
        [
            text_cell(_CHECKED.get(one.name, one.name)),
            number_cell(show_count(one.expected), one.expected),
            number_cell(show_count(one.found), one.found),
            Cell(shown=_mark(one), copied="yes" if one.holds else "no"),
        ]
        for one in checks
    ]
    table = Table(
        caption="Counts that must be equal",
        headings=("Count", "Expected", "Found", "Equal"),
        rows=rows,
        kinds=(None, _NUMBERS, _NUMBERS, None),
        is_compact=True,
    )
    return build_table(table)


def _mark(one: CountCheck) -> Html:
    """No tick: those belong to a verdict."""
    if one.holds:
        return tag("span", "equal")
    return tag("span", f"differs by {show_count(abs(one.expected - one.found))}", class_="broken")


def _bands(bands: Sequence[AgeBand]) -> Html:
    most = max(band.entries for band in bands)
    rows = [
        [
            text_cell(_age(band.at_least, band.below)),
            number_cell(show_count(band.entries), band.entries),
            Cell(shown=build_meter(band.entries, most, "stuck"), copied="", kind="bar"),
        ]
        for band in bands
    ]
    table = Table(
        caption="What is stuck, of this and earlier windows, by the time since its last delivery",
        headings=("Since", "Entries", ""),
        rows=rows,
        kinds=(None, _NUMBERS, "bar"),
    )
    return build_table(table)


def _age(at_least: timedelta, below: timedelta | None) -> str:
    if below is None:
        return f"{show_span(at_least)} or more"
    return (
        f"below {show_span(below)}"
        if not at_least
        else f"{show_span(at_least)} to {show_span(below)}"
    )


def _exception_row(one: ExceptionalEntry) -> list[Cell]:
    deliveries = "-" if one.deliveries is None else show_count(one.deliveries)
    idle_s = "" if one.idle is None else f"{one.idle / timedelta(seconds=1):.3f}"
    return [
        Cell(shown=join(_entry(one)), copied=str(one.entry_id)),
        Cell(
            shown=tag("span", build_swatch(one.status), TITLES[one.status], class_="status"),
            copied=one.status.value,
        ),
        text_cell(_why(one)),
        code_cell(one_line(one.consumer, 100)),
        number_cell(show_span(one.idle), idle_s),
        number_cell(deliveries, "" if one.deliveries is None else one.deliveries),
    ]


def _why(one: ExceptionalEntry) -> str:
    why = REASONS.get(one.why, one_line(one.why, 200))
    return f"{_SOURCES[one.source]}{why}"


def _entry(one: ExceptionalEntry) -> Iterator[Html]:
    yield tag("code", str(one.entry_id), class_="id")
    if one.root_id is not None and one.root_id != one.entry_id:
        yield tag("small", " copy of ", tag("code", str(one.root_id), class_="id"))


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
