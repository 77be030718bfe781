"""The parts of a group that tell of time: the plot, how long things took, earlier windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pelops.domain.audit import EntryStatus
from pelops.pipeline.report.charts import build_balance, build_meter, build_timeline
from pelops.pipeline.report.markup import Child, Html
from pelops.pipeline.report.model import GroupReport, Spread
from pelops.pipeline.report.numbers import show_count, show_moment, show_span
from pelops.pipeline.report.sections import build_part, show_unseen
from pelops.pipeline.report.tables import Cell, Table, build_table, number_cell, text_cell
from pelops.pipeline.report.words import TITLES

_NUMBERS: Final = "number"


def build_timeline_part(anchor: str, group: GroupReport) -> Html:
    """Arrivals, recoveries and dead letters over time, and how long things took."""
    timeline = group.timeline
    drawn: Child = show_unseen("No timeline was computed for this window.")
    if timeline is not None:
        drawn = build_timeline(timeline)
    return build_part(anchor, "Over time", drawn, _spreads(group.spreads), _deliveries(group))


def build_history_part(anchor: str, group: GroupReport) -> Html | None:
    """Windows before this one; None when there are none."""
    if not group.earlier:
        return None
    shown = (EntryStatus.STUCK, EntryStatus.DEAD_LETTERED, EntryStatus.LOST)
    rows = [
        [
            number_cell(str(one.window.number), one.window.number),
            text_cell(show_moment(one.window.at)),
            number_cell(show_count(one.produced), one.produced),
            *(number_cell(show_count(one.counts.get(s, 0)), one.counts.get(s, 0)) for s in shown),
            Cell(shown=build_balance(one.counts, one.sentence), copied=one.verdict, kind="bar"),
        ]
        for one in (*group.earlier, group.summary)
    ]
    table = Table(
        caption="The windows up to this one",
        headings=("Window", "Closed", "Produced", *(TITLES[status] for status in shown), "Balance"),
        rows=rows,
        kinds=(_NUMBERS, None, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, "bar"),
    )
    return build_part(anchor, "Windows", build_table(table))


def _spreads(spreads: Sequence[Spread]) -> Html | None:
    known = [one for one in spreads if one.entries]
    if not known:
        return None
    columns = ("p50", "p90", "p99", "most")
    rows = []
    for one in known:
        times: list[timedelta] = [getattr(one, column) for column in columns]
        cells = [
            number_cell(show_span(time), f"{time / timedelta(seconds=1):.3f}") for time in times
        ]
        rows.append(
            [text_cell(one.name), number_cell(show_count(one.entries), one.entries), *cells]
        )
    table = Table(
        caption="How long it took (copied in seconds)",
        headings=("Time", "Entries", "Half of them", "90 %", "99 %", "Longest"),
        rows=rows,
        kinds=(None, *[_NUMBERS] * 5),
    )
    return build_table(table)


def _deliveries(group: GroupReport) -> Html | None:
    counts = group.deliveries or ()
    if not any(counts):
        return None
    rows = [
        [
            text_cell(f"{n} or more" if n == len(counts) else str(n)),
            number_cell(show_count(count), count),
            Cell(shown=build_meter(count, max(counts), "arrivals"), copied="", kind="bar"),
        ]
        for n, count in enumerate(counts, 1)
        if count
    ]
    table = Table(
        caption="Deliveries of what was recovered or given up",
        headings=("Deliveries", "Entries", ""),
        rows=rows,
        kinds=(None, _NUMBERS, "bar"),
    )
    return build_table(table)
