"""The look of all charts in the documentation, and how a chart becomes an SVG file.

Texts stay texts. The same data give the same file, on any day and on any machine.
"""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Final

from cycler import cycler
from matplotlib import style
from matplotlib.figure import Figure

COLORS: Final = (
    *("#1f60c4", "#e0561b", "#37872d", "#8f3bb8", "#c4162a", "#0f8f8f", "#b8860b", "#6e7681"),
    *("#82b5f8", "#ffa666", "#8fcf84", "#ca95e5", "#f2828c", "#5fd3d3", "#e5c158", "#adb5bd"),
)
TEXT: Final = "#24292f"
MUTED: Final = "#6e7681"
GRID: Final = "#e4e7eb"

# A decorator of functions that draw. Settings of the machine do not matter (`after_reset`).
styled: Final = style.context(
    {
        "axes.axisbelow": True,
        "axes.edgecolor": GRID,
        "axes.grid": True,
        "axes.labelcolor": MUTED,
        "axes.prop_cycle": cycler(color=COLORS),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 12,
        "axes.titleweight": "bold",
        "axes.xmargin": 0,
        "figure.constrained_layout.h_pad": 0.14,
        "figure.constrained_layout.w_pad": 0.14,
        "figure.dpi": 72,  # the unit of SVG files: a point is a pixel
        "figure.titlesize": 16,
        "figure.titleweight": "bold",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 11,
        "grid.color": GRID,
        "legend.frameon": False,
        "legend.handleheight": 0.5,
        "legend.handlelength": 1.2,
        "lines.linewidth": 1.5,
        "svg.fonttype": "none",
        "svg.hashsalt": "pelops",
        "text.color": TEXT,
        "text.parse_math": False,
        "xtick.bottom": False,
        "xtick.labelcolor": MUTED,
        "ytick.left": False,
        "ytick.labelcolor": MUTED,
    },
    after_reset=True,
)


@styled
def save(figure: Figure, path: Path, title: str) -> None:
    """Write a figure. Raises OSError when the file cannot be written."""
    drawn = StringIO()
    figure.savefig(drawn, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
    points = re.compile(r"^([ML]) (\S+) (\S+) \n", re.MULTILINE)  # six digits after the point each
    path.write_text(points.sub(_shorten, drawn.getvalue()), encoding="utf-8")


def _shorten(point: re.Match[str]) -> str:
    return f"{point[1]}{float(point[2]):.1f} {float(point[3]):.1f}"
