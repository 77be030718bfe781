"""The elements of SVG that previews consist of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

Point = tuple[float, float]
CHARACTER: Final = 0.57  # the width of a usual character, as a share of the size of the font

_STYLE: Final = (
    "text{font-family:Inter,'Helvetica Neue',Arial,sans-serif;fill:#ccccdc}"
    ".m{fill:#8e8f98}.b{font-weight:600}.e{text-anchor:end}.c{text-anchor:middle}"
)


class Canvas:
    """Collects elements."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._size = f"{width:g} {height:g}"
        self._title = title
        self._clips = 0
        self._elements: list[str] = []
        self.rectangle((0, 0), (width, height), "#111217")

    def rectangle(
        self,
        corner: Point,
        size: Point,
        color: str,
        *,
        border: str | None = None,
        radius: float = 0,
    ) -> None:
        """Fill a rectangle."""
        more = f' stroke="{border}"' if border else ""
        more += f' rx="{radius:g}"' if radius else ""
        self._elements.append(
            f'<rect x="{_number(corner[0])}" y="{_number(corner[1])}" width="{_number(size[0])}" '
            f'height="{_number(size[1])}" fill="{color}"{more}/>'
        )

    def text(
        self, at: Point, words: str, size: float = 12, *, style: str = "", color: str | None = None
    ) -> None:
        """Write one line; `style` consists of m (muted), b (bold), e (ends here), c (centered)."""
        more = f' class="{style}"' if style else ""
        more += f' style="fill:{color}"' if color else ""
        self._elements.append(
            f'<text x="{_number(at[0])}" y="{_number(at[1])}" font-size="{size:g}"{more}>'
            f"{escape(words, quote=False)}</text>"
        )

    def line(
        self, points: Sequence[Point], color: str, *, width: float = 1.4, dashed: bool = False
    ) -> None:
        """Draw a line through points."""
        more = ' stroke-dasharray="6 4"' if dashed else ""
        self._elements.append(
            f'<path d="{_path(points)}" fill="none" stroke="{color}" stroke-width="{width:g}"'
            f'{more} stroke-linejoin="round"/>'
        )

    def area(self, points: Sequence[Point], color: str, opacity: float) -> None:
        """Fill what points surround."""
        self._elements.append(
            f'<path d="{_path(points)}Z" fill="{color}" fill-opacity="{opacity:g}"/>'
        )

    def render(self) -> str:
        """Return the file."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._size}" role="img">',
                f"<title>{escape(self._title)}</title><style>{_STYLE}</style>",
                *self._elements,
                "</svg>",
                "",
            ]
        )


def width_of(words: str, size: float) -> float:
    """Return about how wide a text is."""
    return len(words) * size * CHARACTER


def shorten(words: str, size: float, width: float) -> str:
    """Cut a text to a width."""
    most = int(width / (size * CHARACTER))
    return words if len(words) <= most else f"{words[: max(1, most - 1)]}…"


def _path(points: Sequence[Point]) -> str:
    kept = [
        point
        for number, point in enumerate(points)
        if not 0 < number < len(points) - 1
        or not _is_between(points[number - 1], point, points[number + 1])
    ]
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in kept)


def _is_between(before: Point, point: Point, after: Point) -> bool:
    """Whether a point of a level line can be left out."""
    return before[1] == point[1] == after[1]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
