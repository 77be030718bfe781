"""Pictures of numbers over time, or over another number, as SVG files.

    draw([Panel(title="backlog", lines=[Line(label="group", points=[(0, 5), (1, 3)])])], path)

One panel is below the other, all with the same horizontal axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from tools.charts import save, styled

Point = tuple[float, float]  # seconds, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Values over time, in the order of time."""

    label: str  # shown if the panel has several lines
    points: Sequence[Point]
    is_step: bool = False  # a value stays until the next one, as a number of replicas does


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Lines with one scale."""

    title: str
    lines: Sequence[Line]


@styled
def draw(panels: Sequence[Panel], path: Path, *, title: str, across: str = "seconds") -> None:
    """Write the picture. `across` names what the horizontal axis shows.

    Raises OSError when the file cannot be written.
    """
    figure = Figure((13.3, 0.9 + 2.7 * len(panels)), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    every = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(every, panels, strict=True):
        for line in panel.lines:
            style = "steps-post" if line.is_step else "default"
            times, values = [at for at, _ in line.points], [value for _, value in line.points]
            axes.plot(times, values, drawstyle=style, label=line.label, clip_on=False)
        axes.set_title(panel.title)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        if len(panel.lines) > 1:
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0, ncols=9)
    every[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    every[-1].set_xlabel(across)
    save(figure, path, title)
