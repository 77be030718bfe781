"""Draws a dashboard from the results of its queries, much as Grafana would show it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch
from matplotlib.table import Table
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator
from matplotlib.transforms import Bbox

from tools.charts import COLORS, GRID, MUTED, TEXT, styled
from tools.dashboards.model import (
    COLUMNS,
    GRAY,
    ORANGE,
    Dashboard,
    Kind,
    Panel,
    Query,
    Unit,
    lay_out,
)

_PAGE: Final = "#eceff3"
_WIDTH: Final = 1440  # pixels, as all sizes
_HEIGHT: Final = 38  # of one unit of height
_LETTER: Final = 6.6  # width
_LINE: Final = 26  # of a table
_PALETTE: Final = {
    **{"green": "#37872d", "yellow": "#c99700", "orange": "#d9600a", "red": "#c4162a"},
    **{"blue": "#1f60c4", "purple": "#8f3bb8", "text": TEXT},
}
_SCALES: Final[Mapping[Unit, Mapping[str, float]]] = {  # the largest first
    Unit.SECONDS: {" d": 86400, " h": 3600, " min": 60, " s": 1, " ms": 1e-3, " µs": 1e-6},
    Unit.BYTES: {" TiB": 2**40, " GiB": 2**30, " MiB": 2**20, " KiB": 2**10, " B": 1},
    Unit.RATIO: {"%": 0.01},
    Unit.PER_SECOND: {" K/s": 1e3, " /s": 1},
    Unit.SECONDS_PER_SECOND: {" s/s": 1},
}
_COUNT_SCALES: Final[Mapping[str, float]] = {" Bil": 1e9, " Mil": 1e6, " K": 1e3, "": 1}


class Series(NamedTuple):
    """One series of a result: its labels, and its points (Unix time, value)."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


class TimeRange(NamedTuple):
    """The time that is shown, as Unix times, and the seconds between two points."""

    start: float
    end: float
    step: float


class _Shown(NamedTuple):
    """A series in a panel, and its newest value."""

    query: Query
    series: Series
    legend: str
    color: str
    value: float


@styled
def draw_dashboard(
    dashboard: Dashboard, results: Sequence[Sequence[Sequence[Series]]], times: TimeRange
) -> Figure:
    """Draw a dashboard.

    `results` has for each panel, and each of its queries, the series that Prometheus returned.
    """
    places = list(lay_out(dashboard))
    rows = 1 + max(place.y + place.height for place, _ in places)
    figure = Figure((_WIDTH / 72, rows * _HEIGHT / 72), facecolor=_PAGE)
    grid = figure.add_gridspec(rows, COLUMNS)
    head = figure.add_subfigure(grid[0, :], facecolor=_PAGE)
    head.text(0.005, 0.5, dashboard.title, size=18, weight="bold", va="center")
    words = [f"{one.label}: {one.sample.replace('.*', 'All')}" for one in dashboard.variables]
    first, last = (datetime.fromtimestamp(at, UTC) for at in (times.start, times.end))
    words.append(f"{first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S} UTC, a recorded run")
    head.text(0.995, 0.5, " | ".join(words), color=MUTED, ha="right", va="center")
    of_panels = enumerate(results)
    for place, what in places:
        lines = slice(place.y + 1, place.y + 1 + place.height)
        part = figure.add_subfigure(grid[lines, place.x : place.x + place.width])
        part.patch.set(facecolor=_PAGE, edgecolor=_PAGE, linewidth=8)  # the gap to the next
        if isinstance(what, Panel):
            number, found = next(of_panels)
            part.set_facecolor("white")
            x, y = 14 / part.bbox.width, 1 - 18 / part.bbox.height
            title = part.text(x, y, what.title, weight="bold", va="center", gid=f"panel-{number}")
            title.set_fontsize(min(13, 1.5 * part.bbox.width / len(what.title)))
            _DRAW[what.kind](part, what, _name_series(what, found), times)
        else:
            part.text(0.005, 0.4, what.title, size=15, weight="bold", va="center")
    return figure


def _name_series(panel: Panel, results: Sequence[Sequence[Series]]) -> list[_Shown]:
    """Give each series its legend and its color, in the order in which Grafana has them."""
    named: list[_Shown] = []
    for query, found in zip(panel.queries, results, strict=True):
        for series in found:
            parts = re.split(r"{{(\w+)}}", query.legend)
            parts[1::2] = [series.labels.get(name, "") for name in parts[1::2]]
            color = _PALETTE[query.color] if query.color else COLORS[len(named) % len(COLORS)]
            legend, value = "".join(parts).strip(), series.points[-1][1]
            named.append(_Shown(query, series, legend, color, value))
    return named


def _add_axes(part: SubFigure, labels: Sequence[str] = (), *, bottom: float = 68) -> Axes:
    """Leave space for the title, the labels at the left, and what is below."""
    width, height = part.bbox.width, part.bbox.height
    left = 14 + _LETTER * max(map(len, labels), default=0)
    size = ((width - left - 20) / width, (height - bottom - 40) / height)
    return part.add_axes((left / width, bottom / height, *size))


def _draw_stat(part: SubFigure, panel: Panel, named: Sequence[_Shown], times: TimeRange) -> None:
    """A number on the color of its state."""
    text, color = "-", GRAY
    for one in named[:1]:
        text, color = render_number(one.value, panel.unit), panel.steps.color_of(one.value)
        text, color = panel.texts.get(f"{one.value:g}", (text, color))
        if panel.show_label is not None:
            text, color = one.series.labels[panel.show_label], GRAY
    part.set_facecolor("white" if color == GRAY else _PALETTE[color])
    size = min(36.0, part.bbox.width * 1.2 / len(text))
    part.text(0.5, 0.42, text, size=size, weight="bold", ha="center", va="center")
    for words in part.texts:
        words.set_color(TEXT if color == GRAY else "white")


def _draw_lines(part: SubFigure, panel: Panel, named: Sequence[_Shown], times: TimeRange) -> None:
    """Lines over time; a missing point is a gap."""
    axes = _add_axes(part, ["750 ms "])
    count = round((times.end - times.start) / times.step) + 1
    grid = [times.start + times.step * number for number in range(count)]
    edges, below = [0.0], [0.0] * count
    for one in named:
        points = dict(one.series.points)
        values = [points.get(at, math.nan) for at in grid]
        if panel.stacked:
            above = [0.0 if math.isnan(value) else value for value in values]
            values = [sum(pair) for pair in zip(below, above, strict=True)]
            axes.fill_between(grid, below, values, color=one.color, alpha=0.6, linewidth=0)
            below = values
        else:
            axes.plot(grid, values, "--" if one.query.dashed else "-", color=one.color)
        edges += [value for value in values if math.isfinite(value)]
    scale = _find_scale(max(edges), panel.unit)[1]
    ticks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=panel.unit is Unit.COUNT)
    found = ticks.tick_values(min(edges) / scale, (max(edges) or scale) / scale)
    axes.set_yticks([tick * scale for tick in found])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: render_number(value, panel.unit)))
    _show_times(axes, times)
    _show_legend(part, {one.legend: one.color for one in named})


def _draw_states(part: SubFigure, panel: Panel, named: Sequence[_Shown], times: TimeRange) -> None:
    """A bar over time for each series, in the color of its state."""
    legends = sorted((one.legend for one in named), reverse=True)
    axes = _add_axes(part, legends)
    for one in named:
        for value, run in groupby(one.series.points, key=lambda point: point[1]):
            found = [at for at, _ in run]
            color = _PALETTE[panel.texts[f"{value:g}"][1]]
            length = found[-1] - found[0] + times.step
            axes.barh(legends.index(one.legend), length, 0.7, found[0], color=color)
    axes.set_yticks(range(len(legends)), legends)
    axes.grid(visible=False, axis="y")
    _show_times(axes, times)
    _show_legend(part, {text: _PALETTE[color] for text, color in panel.texts.values()})


def _show_times(axes: Axes, times: TimeRange) -> None:
    axes.set_xlim(times.start, times.end)
    axes.xaxis.set_major_locator(MultipleLocator(60 * math.ceil((times.end - times.start) / 480)))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda at, _: f"{datetime.fromtimestamp(at, UTC):%H:%M}")
    )


def _show_legend(part: SubFigure, colors: Mapping[str, str]) -> None:
    """Show at most two lines of legends below a chart."""
    columns = max(1, int(part.bbox.width / (_LETTER * max(map(len, colors), default=1) + 40)))
    most = 2 * columns - (len(colors) > 2 * columns)
    handles = [Patch(color=color, label=name) for name, color in list(colors.items())[:most]]
    if len(colors) > most:
        handles.append(Patch(alpha=0, label=f"and {len(colors) - most} more"))
    part.legend(handles=handles, loc="lower left", ncols=columns, borderaxespad=0.6)


def _draw_bars(part: SubFigure, panel: Panel, named: Sequence[_Shown], times: TimeRange) -> None:
    """A horizontal bar for each series."""
    legends, values = [one.legend for one in named], [one.value for one in named]
    axes = _add_axes(part, legends, bottom=10)
    bars = axes.barh(legends, values, color=[one.color for one in named])
    axes.bar_label(bars, [render_number(value, panel.unit) for value in values], padding=6)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xticks([])
    axes.grid(visible=False)


def _draw_table(part: SubFigure, panel: Panel, named: Sequence[_Shown], times: TimeRange) -> None:
    """A row for each set of labels; values that a query does not have are empty."""
    rows = _join_series(panel, named)
    columns: list[list[tuple[str, str]]] = []
    for name, title in panel.labels.items():
        texts = [labels.get(name, "") for labels, _ in rows]
        well = panel.well.get(title, texts)
        colors = [TEXT if text in well else _PALETTE[ORANGE] for text in texts]
        columns.append([(title, MUTED), *zip(texts, colors, strict=True)])
    for query in (one for one in panel.queries if one.legend):
        columns.append([(query.legend, MUTED)])
        for _, values in rows:
            value = values.get(query.legend)
            text = "" if value is None else render_number(value, query.unit or panel.unit)
            color = query.steps.color_of(value) if query.steps and value is not None else GRAY
            columns[-1].append((text, _PALETTE[color]))
    axes = _add_axes(part, bottom=10)
    axes.set_axis_off()
    most = int(panel.height * _HEIGHT / _LINE) - 2
    height = min(len(rows) + 1, most) / most
    made = Table(axes, bbox=Bbox.from_bounds(0, 1 - height, 1, height))
    for place, column in enumerate(columns):
        side = "left" if place < len(panel.labels) else "right"
        width = 3 + max(len(text) for text, _ in column)
        for number, (text, color) in enumerate(column[:most]):
            cell = made.add_cell(number, place, width, 1, text=text, loc=side, edgecolor=GRID)
            cell.visible_edges, cell.PAD = "B", 0.03
            cell.get_text().set_color(color)
    axes.add_table(made)
    if len(rows) >= most:
        axes.set_title(f"and {len(rows) + 1 - most} more", loc="right", weight="normal")


_Row = tuple[dict[str, str], dict[str, float]]


def _join_series(panel: Panel, named: Sequence[_Shown]) -> list[_Row]:
    """Join series on their labels, as Grafana's `merge` does; the largest first value first."""
    rows: list[_Row] = []
    for one in named:
        own = one.series.labels
        labels = {name: own[name] for name in panel.labels if name in own}
        for known, values in rows:
            if one.query.legend not in values and known | labels == labels | known:
                break
        else:
            known, values = {}, {}
            rows.append((known, values))
        known.update(labels)
        values[one.query.legend] = one.value
    first = panel.queries[0].legend

    def key(row: _Row) -> tuple[float, list[str]]:
        value = row[1].get(first, math.nan)
        return -value if first and math.isfinite(value) else 0.0, list(row[0].values())

    return sorted(rows, key=key)


def render_number(value: float, unit: Unit) -> str:
    """Write a value with its unit, in three digits."""
    name, size = _find_scale(value, unit)
    return "NaN" if math.isnan(value) else f"{float(f'{value / size:.3g}'):,g}{name}"


def _find_scale(value: float, unit: Unit) -> tuple[str, float]:
    """Return the unit in which a value reads well, and its size."""
    *larger, smallest = _SCALES.get(unit, _COUNT_SCALES).items()
    return next((one for one in larger if (abs(value) or 1.0) >= one[1]), smallest)


_Draw = Callable[[SubFigure, Panel, Sequence[_Shown], TimeRange], None]
_DRAW: Final[Mapping[Kind, _Draw]] = {
    Kind.STAT: _draw_stat,
    Kind.TIME_SERIES: _draw_lines,
    Kind.TABLE: _draw_table,
    Kind.STATES: _draw_states,
    Kind.BARS: _draw_bars,
}
