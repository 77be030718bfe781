"""A whole dashboard: its head, and its panels on Grafana's grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tools.dashboards.model import COLUMNS, Dashboard, Kind, Panel, Place, Row, lay_out
from tools.dashboards.preview.charts import (
    draw_bars,
    draw_stat,
    draw_states,
    draw_table,
    draw_time_series,
)
from tools.dashboards.preview.frame import Area, Drawn, Series, TimeRange
from tools.dashboards.preview.svg import Canvas, width_of

__all__ = ["Drawn", "Series", "TimeRange", "draw_dashboard"]

_WIDTH: Final = 1440
_MARGIN: Final = 14
_UNIT: Final = 30  # pixels of one unit of height
_GAP: Final = 8
_HEAD: Final = 52
_CELL: Final = (_WIDTH - 2 * _MARGIN + _GAP) / COLUMNS
_DRAW: Final = {
    Kind.STAT: draw_stat,
    Kind.TIME_SERIES: draw_time_series,
    Kind.TABLE: draw_table,
    Kind.STATES: draw_states,
    Kind.BARS: draw_bars,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """What is drawn where."""

    area: Area
    what: Row | Panel


def draw_dashboard(
    dashboard: Dashboard, results: Sequence[Sequence[Sequence[Series]]], shown: TimeRange
) -> str:
    """Return a dashboard as SVG.

    `results` has for each panel, and each of its queries, the series that Prometheus returned.
    """
    contents = [_Content(area=_area_of(place), what=what) for place, what in lay_out(dashboard)]
    bottom = max(content.area.y + content.area.height for content in contents)
    canvas = Canvas(_WIDTH, bottom + _MARGIN, f"{dashboard.title}: {dashboard.description}")
    _draw_head(canvas, dashboard, shown)
    of_panels = iter(results)
    for content in contents:
        if isinstance(content.what, Row):
            canvas.text((content.area.x, content.area.y + 21), content.what.title, 15, style="b")
        else:
            drawn = Drawn(panel=content.what, results=next(of_panels), shown=shown)
            _draw_panel(canvas, drawn, content.area)
    return canvas.render()


def _area_of(place: Place) -> Area:
    return Area(
        x=_MARGIN + place.x * _CELL,
        y=_HEAD + place.y * (_UNIT + _GAP),
        width=place.width * _CELL - _GAP,
        height=place.height * (_UNIT + _GAP) - _GAP,
    )


def _draw_head(canvas: Canvas, dashboard: Dashboard, shown: TimeRange) -> None:
    canvas.text((_MARGIN, 32), dashboard.title, 19, style="b")
    x = _MARGIN + width_of(dashboard.title, 19) + 36
    for variable in dashboard.variables:
        chosen = "All" if variable.sample == ".*" else variable.sample
        canvas.text((x, 32), variable.label, 12, style="m")
        x += width_of(variable.label, 12) + 22
        width = width_of(chosen, 12) + 18
        canvas.rectangle((x - 6, 17), (width, 22), "#181b1f", border="#34373d", radius=2)
        canvas.text((x + 3, 32), chosen, 12)
        x += width + 14
    first, last = (datetime.fromtimestamp(at, UTC) for at in (shown.start, shown.end))
    period = f"{first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S} UTC, a recorded run"
    canvas.text((_WIDTH - _MARGIN, 32), period, 12, style="m e")


def _draw_panel(canvas: Canvas, drawn: Drawn, area: Area) -> None:
    panel = drawn.panel
    canvas.rectangle(
        (area.x, area.y), (area.width, area.height), "#181b1f", border="#2a2d33", radius=2
    )
    if panel.kind is Kind.STAT:
        draw_stat(canvas, drawn, area)
        return
    canvas.text((area.x + 10, area.y + 21), panel.title, 13, style="b")
    inner = Area(x=area.x + 10, y=area.y + 32, width=area.width - 20, height=area.height - 40)
    _DRAW[panel.kind](canvas, drawn, inner)
