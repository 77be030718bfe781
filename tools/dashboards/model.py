"""What a dashboard consists of: panels with queries, in rows on a grid of 24 columns.

A panel is declared once. `grafana.py` writes it as JSON for Grafana, and `preview.py` draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

COLUMNS: Final = 24
NOTHING_HAPPENED: Final = "none"  # the value of a label in place of series that do not exist yet

GREEN, YELLOW, ORANGE, RED = "green", "yellow", "orange", "red"
BLUE, PURPLE, GRAY = "blue", "purple", "text"


class Unit(StrEnum):
    """The unit of the values of a panel, as Grafana names it."""

    COUNT = "short"
    SECONDS = "s"
    PER_SECOND = "suffix: /s"
    SECONDS_PER_SECOND = "suffix: s/s"
    RATIO = "percentunit"
    BYTES = "bytes"
    NONE = "none"  # a state or a name


class Kind(StrEnum):
    """How a panel shows its values, by the name of Grafana's plugin."""

    STAT = "stat"
    TIME_SERIES = "timeseries"
    TABLE = "table"
    STATES = "state-timeline"
    BARS = "bargauge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Colors by value: the first up to the first limit, and so on."""

    colors: tuple[str, ...] = (GREEN,)
    limits: tuple[float, ...] = ()

    def color_of(self, value: float) -> str:
        """Return the color of a value; an unknown one has none."""
        if math.isnan(value):
            return GRAY
        return self.colors[sum(value >= limit for limit in self.limits)]


PLAIN: Final = Steps(colors=(GRAY,))
GOOD: Final = Steps()


def or_none(expression: str, label: str) -> str:
    """Return 0 with a label that says so while an expression has no series."""
    nothing = f'label_replace(vector(0), "{label}", "{NOTHING_HAPPENED}", "", "")'
    return f"({expression}) or on() {nothing}"


def warn_from(limit: float, red: float | None = None) -> Steps:
    """Green, orange from a limit on, and red from another one on."""
    if red is None:
        return Steps(colors=(GREEN, ORANGE), limits=(limit,))
    return Steps(colors=(GREEN, ORANGE, RED), limits=(limit, red))


def red_below(limit: float, green: float | None = None) -> Steps:
    """Red, orange from a limit on, and green from another one on; without it green at once."""
    if green is None:
        return Steps(colors=(RED, GREEN), limits=(limit,))
    return Steps(colors=(RED, ORANGE, GREEN), limits=(limit, green))


def red_from(limit: float) -> Steps:
    """Green, and red from a limit on."""
    return Steps(colors=(GREEN, RED), limits=(limit,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """An expression in PromQL, and how its series are shown."""

    expression: str
    legend: str = ""  # {{label}} stands for the value of a label; in a table: the column
    color: str | None = None  # default: one of the palette
    dashed: bool = False  # a limit, beside what it limits
    unit: Unit | None = None  # in a table
    steps: Steps | None = None  # in a table
    width: int = 80  # in a table, in pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel."""

    title: str
    description: str
    kind: Kind
    queries: tuple[Query, ...]
    unit: Unit
    width: int
    height: int = 8
    steps: Steps = PLAIN  # of a stat and of bars
    stacked: bool = False
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # text and color by value
    labels: Mapping[str, str] = field(default_factory=dict)  # in a table: column by label
    # In a table: by column of text, what is well; all else is orange.
    well: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    link: str | None = None  # in a table: the dashboard that the first columns lead to
    show_label: str | None = None  # in a stat: the label that is shown in place of the value


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A selection above the dashboard: the values of a label of a metric."""

    name: str
    label: str
    metric: str  # with a selector, if the choice depends on another variable
    source: str  # the label
    several: bool = True  # several values, or all; otherwise exactly one
    sample: str = ".*"  # the value that previews use


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard."""

    name: str  # of the file
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    @property
    def uid(self) -> str:
        """The ID that links use."""
        return f"pelops-{self.name}"

    @property
    def panels(self) -> list[Panel]:
        """All panels in their order."""
        return [panel for row in self.rows for panel in row.panels]

    def fill(self, expression: str, *, interval_s: int, range_s: int) -> str:
        """Return an expression with the variables filled in, as Grafana does."""
        filled = expression.replace("$__rate_interval", f"{interval_s}s")
        filled = filled.replace("$__range", f"{range_s}s")
        for variable in self.variables:
            filled = filled.replace(f"${variable.name}", variable.sample)
        return filled


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a row's heading or a panel is, in columns and in units of height."""

    x: int
    y: int
    width: int
    height: int


def lay_out(dashboard: Dashboard) -> Iterator[tuple[Place, Row | Panel]]:
    """Yield headings and panels from top left to bottom right.

    Raises ValueError if panels of one line have different heights.
    """
    y = 0
    for row in dashboard.rows:
        yield Place(x=0, y=y, width=COLUMNS, height=1), row
        y += 1
        for line in _break_lines(row.panels):
            heights = {panel.height for panel in line}
            if len(heights) != 1:
                raise ValueError(f"{row.title}: {[panel.title for panel in line]}: {heights}")
            x = 0
            for panel in line:
                yield Place(x=x, y=y, width=panel.width, height=panel.height), panel
                x += panel.width
            y += heights.pop()


def _break_lines(panels: Sequence[Panel]) -> Iterator[list[Panel]]:
    line: list[Panel] = []
    for panel in panels:
        if sum(one.width for one in line) + panel.width > COLUMNS:
            yield line
            line = []
        line.append(panel)
    if line:
        yield line


def stat(title: str, expression: str, description: str, **more: object) -> Panel:
    """One number, in color."""
    return _make(Kind.STAT, title, (Query(expression=expression),), description, more)


def time_series(title: str, queries: Sequence[Query], description: str, **more: object) -> Panel:
    """Lines over time."""
    return _make(Kind.TIME_SERIES, title, tuple(queries), description, more)


def states(title: str, query: Query, description: str, **more: object) -> Panel:
    """A bar over time for each series, in the color of its state."""
    return _make(Kind.STATES, title, (query,), description, {"unit": Unit.NONE, **more})


def table(title: str, queries: Sequence[Query], description: str, **more: object) -> Panel:
    """A row for each set of labels, and a column for each query; sorted by the first query."""
    return _make(Kind.TABLE, title, tuple(queries), description, {"unit": Unit.COUNT, **more})


def bars(title: str, query: Query, description: str, **more: object) -> Panel:
    """A horizontal bar for each series."""
    return _make(Kind.BARS, title, (query,), description, more)


_WIDTHS: Final = {Kind.STAT: 3, Kind.TIME_SERIES: 8, Kind.BARS: 12}
_HEIGHTS: Final = {Kind.STAT: 4}


def _make(
    kind: Kind, title: str, queries: tuple[Query, ...], description: str, more: Mapping[str, object]
) -> Panel:
    usual = {"unit": Unit.COUNT, "width": _WIDTHS.get(kind, COLUMNS)}
    usual["height"] = _HEIGHTS.get(kind, 8)
    chosen: dict[str, object] = {**usual, **more}
    return Panel(  # the fields that the caller names are those of Panel
        title=title,
        description=description,
        kind=kind,
        queries=queries,
        **chosen,  # type: ignore[arg-type]
    )
