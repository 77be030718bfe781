"""One function for each kind of panel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from tools.dashboards.model import ORANGE, Panel, Query, Unit
from tools.dashboards.preview.frame import (
    BACKGROUNDS,
    COLORS,
    Area,
    Drawn,
    Named,
    Series,
    TimeRange,
    fill_legend,
)
from tools.dashboards.preview.numbers import find_ticks, render_number
from tools.dashboards.preview.svg import Canvas, Point, shorten, width_of

_GRID: Final = "#2a2d33"
_LEGEND: Final = 11.5
_ROW: Final = 27.0
_TIME_LABELS: Final = (15, 30, 60, 120, 300, 600, 1800, 3600)


def draw_stat(canvas: Canvas, drawn: Drawn, area: Area) -> None:
    """A number on the color of its state."""
    panel = drawn.panel
    found = drawn.results[0]
    value = found[0].points[-1][1] if found else math.nan
    text = render_number(value, panel.unit) if found else "-"
    color = panel.steps.color_of(value)
    if panel.show_label is not None and found:
        text, color = found[0].labels[panel.show_label], "text"
    if panel.texts and found:
        text, color = panel.texts[f"{value:g}"]
    canvas.rectangle((area.x, area.y), (area.width, area.height), BACKGROUNDS[color], radius=2)
    canvas.text((area.x + 10, area.y + 21), panel.title, 13, style="b", color="#fff")
    size = min(40.0, (area.width - 24) / (len(text) * 0.56))
    middle = (area.x + area.width / 2, area.y + area.height / 2 + 10 + size * 0.36)
    canvas.text(middle, text, size, style="b c", color="#fff")


def draw_time_series(canvas: Canvas, drawn: Drawn, area: Area) -> None:
    """Lines over time, with a legend below."""
    named = _stack(drawn.name_series()) if drawn.panel.stacked else drawn.name_series()
    rows = _lay_out_legend(named, area.width)
    plot = Area(
        x=area.x + 52, y=area.y + 4, width=area.width - 58, height=area.height - 26 - 17 * len(rows)
    )
    values = [value for one in named for _, value in one.series.points if math.isfinite(value)]
    ticks = find_ticks(max(values, default=1.0), drawn.panel.unit)
    if min(values, default=0.0) < 0:
        ticks = [*(-tick for tick in find_ticks(-min(values), drawn.panel.unit, 1)[:0:-1]), *ticks]
    scale = _Scale(plot=plot, shown=drawn.shown, lowest=ticks[0], highest=ticks[-1])
    _draw_axes(canvas, scale, ticks, drawn.panel.unit)
    for one in reversed(named):
        for run in _find_runs(one.series, drawn.shown.step):
            points = [scale.place(at, value) for at, value in run]
            if drawn.panel.stacked or (len(named) < 6 and not one.query.dashed):
                bottom = scale.place(0, 0)[1]
                closed = [(points[0][0], bottom), *points, (points[-1][0], bottom)]
                canvas.area(closed, one.color, 0.45 if drawn.panel.stacked else 0.08)
            canvas.line(points, one.color, dashed=one.query.dashed)
    _draw_legend(canvas, rows, Area(x=area.x, y=plot.y + plot.height + 32, width=0, height=0))


class _Scale:
    """Places values in a plot."""

    def __init__(self, *, plot: Area, shown: TimeRange, lowest: float, highest: float) -> None:
        self.plot = plot
        self.shown = shown
        self.lowest = lowest
        self.highest = highest

    def place(self, at: float, value: float) -> Point:
        """Return where a value is."""
        along = (at - self.shown.start) / (self.shown.end - self.shown.start)
        up = (value - self.lowest) / (self.highest - self.lowest)
        return (
            round(self.plot.x + along * self.plot.width, 1),
            round(self.plot.y + (1 - up) * self.plot.height, 1),
        )


def _draw_axes(canvas: Canvas, scale: _Scale, ticks: Sequence[float], unit: Unit) -> None:
    plot = scale.plot
    for tick in ticks:
        y = scale.place(0, tick)[1]
        canvas.line([(plot.x, y), (plot.x + plot.width, y)], _GRID, width=1)
        canvas.text((plot.x - 7, y + 4), render_number(tick, unit), 11, style="m e")
    shown = scale.shown
    most = plot.width / 90
    every = next(
        (one for one in _TIME_LABELS if (shown.end - shown.start) / one <= most), _TIME_LABELS[-1]
    )
    at = math.ceil(shown.start / every) * every
    while at <= shown.end:
        x = scale.place(at, 0)[0]
        label = f"{datetime.fromtimestamp(at, UTC):%H:%M}"
        canvas.line([(x, plot.y), (x, plot.y + plot.height)], _GRID, width=1)
        if at % 60 == 0:
            canvas.text((x, plot.y + plot.height + 15), label, 11, style="m c")
        at += every


def _find_runs(series: Series, step: float) -> Iterator[list[tuple[float, float]]]:
    """Yield the points between gaps."""
    run: list[tuple[float, float]] = []
    for at, value in series.points:
        if run and (at - run[-1][0] > step * 1.5 or not math.isfinite(value)):
            yield run
            run = []
        if math.isfinite(value):
            run.append((at, value))
    if run:
        yield run


def _stack(named: Sequence[Named]) -> list[Named]:
    """Add to each series those before it."""
    below: dict[float, float] = {}
    stacked = []
    for one in named:
        points = [
            (at, below.get(at, 0.0) + (value if math.isfinite(value) else 0.0))
            for at, value in one.series.points
        ]
        below |= dict(points)
        series = Series(one.series.labels, points)
        stacked.append(Named(legend=one.legend, color=one.color, query=one.query, series=series))
    return stacked


def _lay_out_legend(named: Sequence[Named], width: float) -> list[list[tuple[str, str]]]:
    """Break legends into at most two lines."""
    entries = list(dict.fromkeys((one.legend, one.color) for one in named))
    rows: list[list[tuple[str, str]]] = [[]]
    left = width
    for number, (legend, color) in enumerate(entries):
        needed = width_of(legend, _LEGEND) + 30
        if needed > left and rows[-1]:
            if len(rows) == 2:
                rest = f"and {len(entries) - number} more"
                while rows[-1] and width_of(rest, _LEGEND) + 30 > left:
                    left += width_of(rows[-1].pop()[0], _LEGEND) + 30
                    rest = f"and {len(entries) - sum(map(len, rows))} more"
                rows[-1].append((rest, ""))
                break
            rows.append([])
            left = width
        rows[-1].append((legend, color))
        left -= needed
    return rows


def _draw_legend(canvas: Canvas, rows: Sequence[Sequence[tuple[str, str]]], area: Area) -> None:
    for number, row in enumerate(rows):
        x, y = area.x + 2, area.y + 17 * number
        for legend, color in row:
            if color:
                canvas.rectangle((x, y - 5), (12, 3), color, radius=1)
            canvas.text((x + 17 if color else x, y), legend, _LEGEND)
            x += width_of(legend, _LEGEND) + 30


def draw_states(canvas: Canvas, drawn: Drawn, area: Area) -> None:
    """A bar over time for each series."""
    named = sorted(drawn.name_series(), key=lambda one: one.legend)
    if not named:
        return
    names = min(180.0, max(width_of(one.legend, 12) for one in named) + 14)
    height = min(_ROW, (area.height - 20) / len(named))
    plot = Area(x=area.x + names, y=area.y, width=area.width - names, height=height * len(named))
    scale = _Scale(plot=plot, shown=drawn.shown, lowest=0, highest=1)
    _draw_axes(canvas, scale, (), drawn.panel.unit)
    for number, one in enumerate(named):
        y = area.y + number * height
        canvas.text((plot.x - 8, y + height / 2 + 3), shorten(one.legend, 12, names), 12, style="e")
        for value, run in groupby(one.series.points, key=lambda point: point[1]):
            times = [at for at, _ in run]
            left = scale.place(times[0], 0)[0]
            right = scale.place(min(times[-1] + drawn.shown.step, drawn.shown.end), 0)[0]
            color = COLORS[drawn.panel.texts[f"{value:g}"][1]]
            size = (max(right - left, 1.0), height * 0.72)
            canvas.rectangle((left, y + height * 0.1), size, color)
    x = plot.x
    for text, color in drawn.panel.texts.values():
        canvas.rectangle((x, area.y + area.height - 10), (12, 10), COLORS[color])
        canvas.text((x + 18, area.y + area.height - 1), text, _LEGEND)
        x += width_of(text, _LEGEND) + 40


def draw_bars(canvas: Canvas, drawn: Drawn, area: Area) -> None:
    """A horizontal bar for each series, the longest first."""
    named = drawn.name_series()
    if not named:
        return
    names = max(width_of(one.legend, 12) for one in named) + 14
    highest = max(one.series.points[-1][1] for one in named)
    height = min(34.0, area.height / len(named))
    for number, one in enumerate(named):
        value, y = one.series.points[-1][1], area.y + number * height
        width = area.width - names - 70
        canvas.text((area.x + names - 8, y + height / 2 + 3), one.legend, 12, style="e")
        canvas.rectangle((area.x + names, y + 3), (width, height - 10), "#22252b")
        bar = (max(2.0, width * value / highest), height - 10)
        canvas.rectangle((area.x + names, y + 3), bar, one.color)
        text = render_number(value, drawn.panel.unit)
        canvas.text((area.x + area.width, y + height / 2 + 3), text, 12, style="e b")


_Cells = dict[tuple[str, ...], dict[str, float]]


def draw_table(canvas: Canvas, drawn: Drawn, area: Area) -> None:
    """A row for each set of labels; values that a query does not have are empty."""
    panel = drawn.panel
    rows = _join(drawn)
    numbers = [query for query in panel.queries if query.legend]
    labels = _measure_labels(rows, panel.labels, area.width - sum(q.width for q in numbers))
    widths = [*labels, *(query.width for query in numbers)]
    titles = [*panel.labels.values(), *(query.legend for query in numbers)]
    most = int((area.height - 24) / _ROW)
    x = area.x
    for column, (title, width) in enumerate(zip(titles, widths, strict=True)):
        is_label = column < len(labels)
        at = x + (2 if is_label else width - 8)
        canvas.text((at, area.y + 14), title, 12, style="b" if is_label else "b e", color="#6e9fff")
        for number, (names, values) in enumerate(rows[:most]):
            y = area.y + 24 + _ROW * number
            if column == 0:
                canvas.line([(area.x, y), (area.x + area.width, y)], _GRID, width=1)
            if is_label:
                linked = panel.link is not None and title == panel.labels.get("name")
                words = shorten(names[column], 12.5, width - 6)
                color = "#6e9fff" if linked else _color_of_text(panel, title, names[column])
                canvas.text((at, y + 18), words, 12.5, color=color)
            else:
                _draw_value(canvas, (at, y + 18), numbers[column - len(labels)], values, panel.unit)
        x += width
    if len(rows) > most:
        rest = f"and {len(rows) - most} more"
        canvas.text((area.x + area.width, area.y - 11), rest, 12, style="m e")


def _color_of_text(panel: Panel, title: str, words: str) -> str | None:
    """Show what is not well."""
    return COLORS[ORANGE] if title in panel.well and words not in panel.well[title] else None


def _draw_value(
    canvas: Canvas, at: Point, query: Query, values: Mapping[str, float], usual: Unit
) -> None:
    value = values.get(query.legend)
    if value is None:
        return
    color = COLORS[query.steps.color_of(value)] if query.steps else None
    canvas.text(at, render_number(value, query.unit or usual), 12.5, style="e", color=color)


def _measure_labels(
    rows: Sequence[tuple[tuple[str, ...], Mapping[str, float]]],
    labels: Mapping[str, str],
    width: float,
) -> list[float]:
    """Give each label the width that it needs, in proportion."""
    needed = [
        max([width_of(title, 12.5), *(width_of(names[at], 12.5) for names, _ in rows)]) + 14
        for at, title in enumerate(labels.values())
    ]
    return [one * width / sum(needed) for one in needed]


def _join(drawn: Drawn) -> list[tuple[tuple[str, ...], dict[str, float]]]:
    """Join the results on their labels, as Grafana's transformation `merge` does; sort them."""
    panel = drawn.panel
    rows: list[tuple[dict[str, str], dict[str, float]]] = []
    for query, found in zip(panel.queries, drawn.results, strict=True):
        for series in found:
            labels = {name: series.labels[name] for name in panel.labels if name in series.labels}
            row = next((one for one in rows if _agree(one[0], labels)), None)
            if row is None or query.legend in row[1]:
                row = ({}, {})
                rows.append(row)
            row[0].update(labels)
            row[1][query.legend] = series.points[-1][1]
    first = panel.queries[0].legend

    def key(row: tuple[dict[str, str], dict[str, float]]) -> tuple[float, list[str]]:
        value = row[1].get(first, math.nan)
        return -value if first and math.isfinite(value) else 0.0, list(row[0].values())

    return [
        (tuple(names.get(label, "") for label in panel.labels), values)
        for names, values in sorted(rows, key=key)
    ]


def _agree(known: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(known[name] == labels[name] for name in known.keys() & labels.keys())


__all__ = [
    "draw_bars",
    "draw_stat",
    "draw_states",
    "draw_table",
    "draw_time_series",
    "fill_legend",
]
