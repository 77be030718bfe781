"""Pictures of numbers over time, or another number, as SVG files that any browser shows.

    draw([Panel(title="backlog", lines=[Line(label="group", points=[(0, 5), (1, 3)])])], path)

One panel is below the other, all with the same time axis. Only the standard library is needed, so
that the demo can draw as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

WIDTH: Final = 960
PANEL: Final = 170  # height of what is drawn of one
LEFT, RIGHT, TOP, BETWEEN, BOTTOM = 64, 16, 44, 50, 40
COLORS: Final = ("#0b66c3", "#d9480f", "#2b8a3e", "#9c36b5", "#868e96", "#e8a700")
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#343a40}.title{font-size:16px;font-weight:600}"
    ".end{text-anchor:end}.middle{text-anchor:middle}"
    ".panel{font-weight:600}.grid{stroke:#e9ecef}.axis{stroke:#adb5bd}"
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round}"
)

Point = tuple[float, float]  # seconds, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Values over time, in the order of time."""

    label: str
    points: Sequence[Point]
    color: str | None = None  # None: by its place in the panel
    is_step: bool = False  # a value stays until the next one, as a number of replicas does


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Lines with one scale."""

    title: str
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where a panel lies, and what its edges mean."""

    top: float
    first_s: float
    last_s: float
    highest: float
    unit: str

    def x(self, seconds: float) -> float:
        share = (seconds - self.first_s) / (self.last_s - self.first_s)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self.top + PANEL * (1 - value / self.highest)


def draw(panels: Sequence[Panel], path: Path, *, title: str = "", unit: str = " s") -> None:
    """Write the picture. Values below zero and panels without points are drawn as nothing.

    `unit` follows each number of the horizontal axis.

    Raises OSError when the file cannot be written.
    """
    times = [at for panel in panels for line in panel.lines for at, _ in line.points] or [0.0]
    first_s, last_s = min(times), max(*times, min(times) + 1)
    height = TOP + len(panels) * (PANEL + BETWEEN) + BOTTOM - BETWEEN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        _text(LEFT, 20, title, kind="title"),
    ]
    for number, panel in enumerate(panels):
        top = TOP + number * (PANEL + BETWEEN)
        scale = _round_up(max((v for line in panel.lines for _, v in line.points), default=1.0))
        frame = _Frame(top=top, first_s=first_s, last_s=last_s, highest=scale, unit=unit)
        parts += _panel(panel, frame)
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def _panel(panel: Panel, frame: _Frame) -> Iterator[str]:
    yield _text(LEFT, frame.top - 8, panel.title, kind="panel")
    yield from _values(frame)
    yield from _times(frame)
    at = float(WIDTH - RIGHT)
    for number, line in reversed(list(enumerate(panel.lines))):
        color = line.color or COLORS[number % len(COLORS)]
        yield f'<path class="line" stroke="{color}" d="{_path(line, frame)}"/>'
        yield _text(at, frame.top - 8, line.label, kind="end", color=color)
        at -= 7 * len(line.label) + 16


def _values(frame: _Frame) -> Iterator[str]:
    """Lines across, with their values."""
    for quarter in range(5):
        value = frame.highest * quarter / 4
        y = frame.y(value)
        kind = "grid" if quarter else "axis"
        yield f'<path class="{kind}" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield _text(LEFT - 8, y + 4, f"{value:,.10g}", kind="end")


def _times(frame: _Frame) -> Iterator[str]:
    every = _round_up((frame.last_s - frame.first_s) / 10)
    number = math.ceil(frame.first_s / every)
    while number * every <= frame.last_s:
        x = frame.x(number * every)
        yield f'<path class="grid" d="M{x:.1f} {frame.top}V{frame.top + PANEL}"/>'
        yield _text(x, frame.top + PANEL + 16, f"{number * every:,.10g}{frame.unit}", kind="middle")
        number += 1


def _path(line: Line, frame: _Frame) -> str:
    """The line as path data; points that change nothing are left out."""
    moves: list[str] = []
    last: Point | None = None
    for index, (at, value) in enumerate(line.points):
        is_end = index + 1 == len(line.points)
        if line.is_step and last is not None and value == last[1] and not is_end:
            continue
        x, y = f"{frame.x(at):.1f}", f"{frame.y(max(0.0, value)):.1f}"
        if last is None:
            moves.append(f"M{x} {y}")
        else:
            moves.append(f"H{x}V{y}" if line.is_step else f"L{x} {y}")
        last = (at, value)
    return "".join(moves)


def _round_up(value: float) -> float:
    """The next number that reads well in quarters."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value * (1 - 1e-9))


def _text(x: float, y: float, text: str, *, kind: str = "", color: str = "") -> str:
    """`kind` names classes of the style; without one that says else, x is where it begins."""
    classes = f' class="{kind}"' if kind else ""
    fill = f' style="fill:{color}"' if color else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{classes}{fill}>{escape(text)}</text>'
