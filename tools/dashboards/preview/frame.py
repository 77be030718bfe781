"""What every chart works with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tools.dashboards.model import Panel, Query

PALETTE: Final = (
    *("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#b877d9", "#3fb6b0", "#5794f2"),
    *("#37872d", "#fade2a", "#447ebc", "#c15c17", "#890f02", "#0a437c", "#6d1f62", "#584477"),
)
COLORS: Final = {
    "green": "#73bf69",
    "yellow": "#fade2a",
    "orange": "#ff9830",
    "red": "#f2495c",
    "blue": "#5794f2",
    "purple": "#b877d9",
    "text": "#ccccdc",
}
# Behind white text.
BACKGROUNDS: Final = {
    "green": "#2a6e32",
    "yellow": "#8a6d00",
    "orange": "#b35c00",
    "red": "#b0243a",
    "blue": "#1f60c4",
    "purple": "#6d3a8c",
    "text": "#24272d",
}


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a result: its labels, and its points (Unix time, value)."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """The time that is shown, as Unix times, and the seconds between two points."""

    start: float
    end: float
    step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Where a chart is, in pixels."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A series with its legend and its color."""

    legend: str
    color: str
    query: Query
    series: Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A panel with the results of its queries."""

    panel: Panel
    results: Sequence[Sequence[Series]]
    shown: TimeRange
    colors: Sequence[str] = field(default=PALETTE)

    def name_series(self) -> list[Named]:
        """Return all series with legends and colors, in the order in which Grafana has them."""
        named: list[Named] = []
        for query, found in zip(self.panel.queries, self.results, strict=True):
            for series in found:
                color = COLORS[query.color] if query.color else self.colors[len(named) % 16]
                legend = fill_legend(query.legend, series.labels)
                named.append(Named(legend=legend, color=color, query=query, series=series))
        return named


def fill_legend(legend: str, labels: Mapping[str, str]) -> str:
    """Put the values of labels in place of their names; a label that is missing is empty."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend).strip()
