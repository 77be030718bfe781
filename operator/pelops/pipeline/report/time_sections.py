"""The parts of a group that tell of time: the plot, how long things took, earlier windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pelops.domain.audit import AuditSummary, EntryStatus
from pelops.pipeline.report.charts import build_balance, build_meter, build_timeline
from pelops.pipeline.report.markup import Child, Html
from pelops.pipeline.report.model import GroupReport, Spread
from pelops.pipeline.report.sections import Part
from pelops.pipeline.report.tables import Cell, Table, build_table, number_cell, text_cell
from pelops.pipeline.report.words import (
    TITLES,
    count_of,
    name_verdict,
    show_count,
    show_moment,
    show_span,
)

_NUMBERS: Final = "number"
_SHOWN: Final = (EntryStatus.LOST, EntryStatus.STUCK, EntryStatus.DEAD_LETTERED)


def build_timeline_part(group: GroupReport) -> Part:
    """Arrivals, recoveries and dead letters over time, and how long things took."""
    timeline = group.timeline
    body: list[Child] = [_spreads(group.spreads), _deliveries(group)]
    if timeline is not None:
        body.insert(0, build_timeline(timeline))
    elif not any(body):
        return Part(name="time", title="Over time", nothing="times", is_unseen=True)
    recovery = group.summary.recovery
    gist = f"recovered within {show_span(recovery.p99)} (99 %)" if recovery is not None else ""
    return Part(name="time", title="Over time", gist=gist, body=body)


def build_history_part(group: GroupReport) -> Part | None:
    """Windows before this one; None when there are none."""
    if not group.earlier:
        return None
    rows = [_window_row(one) for one in (group.summary, *reversed(group.earlier))]
    table = Table(
        caption="This window and those before it, the newest first",
        headings=(
            "Window",
            "Closed",
            "Verdict",
            "Entries",
            *(TITLES[status] for status in _SHOWN),
            "Outcomes",
        ),
        rows=rows,
        kinds=(_NUMBERS, "when", None, _NUMBERS, *[_NUMBERS] * len(_SHOWN), "bar"),
    )
    gist = f"{count_of(len(group.earlier), 'window')} before this one"
    return Part(name="windows", title="Windows", gist=gist, body=build_table(table))


def _window_row(one: AuditSummary) -> list[Cell]:
    counts = (one.counts.get(status, 0) for status in _SHOWN)
    return [
        number_cell(str(one.window.number), one.window.number),
        text_cell(show_moment(one.window.at)),
        # The word without its sign: a tick belongs to the verdict of the group.
        Cell(shown=name_verdict(one.verdict, one.certainty), copied=one.verdict),
        number_cell(show_count(one.produced), one.produced),
        *(number_cell(show_count(count), count) for count in counts),
        Cell(shown=build_balance(one.counts, one.sentence), copied=one.verdict, kind="bar"),
    ]


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
