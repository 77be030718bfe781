"""The parts of a group: what was counted, and what became of the entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from pelops.domain.audit import AuditSummary, EntryStatus
from pelops.pipeline.report.charts import (
    build_balance,
    build_meter,
    build_swatch,
    is_widened,
)
from pelops.pipeline.report.markup import Child, Html, join, one_line, tag
from pelops.pipeline.report.model import (
    CountCheck,
    ExceptionalEntry,
    GroupReport,
)
from pelops.pipeline.report.numbers import show_count, show_share, show_span
from pelops.pipeline.report.tables import (
    Cell,
    Table,
    build_table,
    code_cell,
    number_cell,
    text_cell,
)
from pelops.pipeline.report.words import MEANINGS, TITLES

_NUMBERS: Final = "number"


def build_part(anchor: str, title: str, *children: Child) -> Html:
    """A part of a group under its heading, which can be linked to."""
    link = tag("a", "#", href=f"#{anchor}", class_="anchor", aria_label=f"Link to: {title}")
    return tag("section", tag("h3", title, " ", link), *children, id=anchor, class_="part")


def show_empty(sentence: str) -> Html:
    """In place of a table: it was looked at, and nothing is there."""
    return tag(
        "p", tag("span", "✓", class_="tick", aria_hidden="true"), " ", sentence, class_="empty"
    )


def show_unseen(sentence: str) -> Html:
    """In place of a table: it was not looked at."""
    return tag("p", sentence, class_="unseen-part")


def build_balance_part(anchor: str, group: GroupReport) -> Html:
    """Produced = the sum of all statuses, as a bar and as a table; then every other count."""
    summary = group.summary
    if not summary.produced:
        body: Child = show_empty("Nothing was produced in this window.")
    else:
        label = f"Balance of {show_count(summary.produced)} entries; the table has the numbers"
        note = "Shares too small to be seen are drawn wider than they are."
        body = [
            build_balance(summary.counts, label),
            tag("p", note, class_="note") if is_widened(summary.counts) else None,
            _balance_table(summary),
        ]
    return build_part(anchor, "Balance", body, _roots(group), _checks(group.checks))


def build_stuck_part(anchor: str, group: GroupReport) -> Html:
    """How old what is stuck is."""
    stuck = group.summary.counts.get(EntryStatus.STUCK, 0)
    bands = [band for band in group.stuck_ages or () if band.entries]
    if not stuck and not bands:
        return build_part(anchor, "Stuck", show_empty("Nothing is stuck."))
    oldest = group.summary.oldest_stuck
    lead = tag(
        "p",
        f"{show_count(stuck)} of this window {_are(stuck)} stuck",
        f"; the oldest for {show_span(oldest)}." if oldest is not None else ".",
    )
    return build_part(anchor, "Stuck", lead, _bands(group) if bands else None)


def build_unproven_part(anchor: str, group: GroupReport) -> Html:
    """What could not be proven, and why."""
    title, unproven = "What could not be proven", group.unproven
    inferred = group.summary.counts.get(EntryStatus.ACKNOWLEDGED_INFERRED, 0)
    lead = tag("p", f"{show_count(inferred)} acknowledgements are inferred, not proven.")
    if inferred and not unproven:
        return build_part(anchor, title, lead)
    if not unproven:
        return build_part(anchor, title, show_empty("Everything that is said here is proven."))
    rows = [
        [
            code_cell(one.why),
            number_cell("-", "") if one.entries is None else _count_cell(one.entries),
            text_cell(one_line(one.sentence, 600)),
        ]
        for one in unproven
    ]
    table = Table(
        caption="What could not be proven, and what would have proven it",
        headings=("Why", "Entries", "What that means"),
        rows=rows,
        kinds=(None, _NUMBERS, None),
    )
    return build_part(anchor, title, lead if inferred else None, build_table(table))


def build_exceptions_part(anchor: str, group: GroupReport) -> Html:
    """Entries that somebody may have to look at, one by one."""
    found, title = group.exceptions, "Entries to look at"
    if found is None:
        return build_part(anchor, title, show_unseen("Entries were not listed for this window."))
    if not found.count:
        return build_part(anchor, title, show_empty("No entry needs a look."))
    where = [" All of them are in ", tag("code", found.path), "."] if found.path else None
    lead = tag("p", f"{show_count(len(found.first))} of {show_count(found.count)}.", where)
    table = Table(
        caption="Entries that need a look",
        headings=("Entry", "Status", "Why", "Consumer", "Idle", "Deliveries"),
        rows=[_exception_row(one) for one in found.first],
        kinds=(None, None, None, None, _NUMBERS, _NUMBERS),
    )
    return build_part(anchor, title, lead, build_table(table))


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
            text_cell(one.name),
            number_cell(show_count(one.expected), one.expected),
            number_cell(show_count(one.found), one.found),
            Cell(shown=_mark(one.holds), copied="yes" if one.holds else "no"),
        ]
        for one in checks
    ]
    table = Table(
        caption="Counts that must be equal",
        headings=("Count", "By counters", "By entries", "Equal"),
        rows=rows,
        kinds=(None, _NUMBERS, _NUMBERS, None),
        is_compact=True,
    )
    return build_table(table)


def _mark(holds: bool) -> Html:
    return tag("span", "✓ yes" if holds else "✕ no", class_="holds" if holds else "broken")


def _bands(group: GroupReport) -> Html:
    bands = group.stuck_ages or ()
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
        text_cell(one_line(one.why, 200)),
        code_cell(one_line(one.consumer, 100)),
        number_cell(show_span(one.idle), idle_s),
        number_cell(deliveries, "" if one.deliveries is None else one.deliveries),
    ]


def _entry(one: ExceptionalEntry) -> Iterator[Html]:
    yield tag("code", str(one.entry_id), class_="id")
    if one.root_id is not None and one.root_id != one.entry_id:
        yield tag("small", " copy of ", tag("code", str(one.root_id), class_="id"))


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
