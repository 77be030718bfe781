"""Geometry of the plots. Positions along the time or share axis are in percent of the width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pelops.domain.outcome import EntryStatus
from pelops.pipeline.report.model import Timeline
from pelops.pipeline.report.words import (
    TITLES,
    round_up,
    show_count,
    show_moment,
    show_share,
    show_span,
)

PANEL: Final = 72  # pixels
HATCHED: Final = frozenset({EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.INDETERMINATE})
_LEAST: Final = 1.0  # percent: the least visible width
_TICKS: Final = (("", 0), ("middle few", 25), ("middle", 50), ("middle few", 75), ("end", 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The share of one status in a bar of all entries."""

    status: EntryStatus
    at: float
    width: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One step of a panel; `y` and `height` are in pixels."""

    at: float
    width: float
    y: float
    height: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One count over time, with its own scale."""

    title: str
    colour: str
    total: int
    peak: str
    top: int  # the count at the upper edge
    bars: tuple[Bar, ...]


def split_bar(counts: Mapping[EntryStatus, int]) -> list[Segment]:
    """Return the segments of a bar of all entries; together they fill it."""
    present = [(status, counts[status]) for status in TITLES if counts.get(status)]
    whole = sum(count for _, count in present)
    segments, at = [], 0.0
    for (status, count), width in zip(present, _widths([n for _, n in present]), strict=True):
        label = f"{TITLES[status]}: {show_count(count)} ({show_share(count, whole)})"
        segments.append(Segment(status=status, at=at, width=width, label=label))
        at += width
    return segments


def is_widened(counts: Mapping[EntryStatus, int]) -> bool:
    """Whether a share is drawn wider than it is, to be visible."""
    whole = sum(counts.values())
    return any(0 < 100 * count < _LEAST * whole for count in counts.values())


def meter_width(part: int, most: int) -> float:
    """Return the width of a bar in a table whose longest bar represents `most`."""
    return max(100 * part / most, 1.5) if part and most else 0


def plot_timeline(timeline: Timeline) -> tuple[list[Panel], list[tuple[str, int, str]]]:
    """Return arrivals, recoveries and dead letters over the same time, and the labels of the time.

    A label is its alignment, its position and its text.
    """
    counted = (
        ("Arrivals", "arrivals", timeline.arrivals),
        ("Recoveries", "requeued", timeline.recoveries),
        ("Dead letters", "dead_lettered", timeline.dead_letters),
    )
    panels = [_panel(title, colour, counts, timeline) for title, colour, counts in counted]
    whole = len(timeline.arrivals) * timeline.step
    ticks = [(kind, at, _clock(timeline.start + whole * at / 100, whole)) for kind, at in _TICKS]
    return panels, ticks


def _widths(counts: Sequence[int]) -> list[float]:
    """Return shares in percent; small ones are drawn wider, at the cost of the others."""
    whole = sum(counts)
    wished = [max(100 * count / whole, _LEAST) for count in counts]
    large = sum(width for width in wished if width > _LEAST)
    excess = sum(wished) - 100
    return [
        width - excess * width / large if width > _LEAST and large else width for width in wished
    ]


def _panel(title: str, colour: str, counts: Sequence[int], timeline: Timeline) -> Panel:
    most = max(counts, default=0)
    top = round_up(most)
    peak = f"at most {show_count(most)} in {show_span(timeline.step)}"
    bars = tuple(_bars(counts, timeline, top))
    total = sum(counts)
    return Panel(title=title, colour=colour, total=total, peak=peak, top=round(top), bars=bars)


def _bars(counts: Sequence[int], timeline: Timeline, top: float) -> Iterator[Bar]:
    width = 100 / max(len(counts), 1)
    for place, count in enumerate(counts):
        if count:
            height = max(2.0, (PANEL - 4) * count / top)
            when = show_moment(timeline.start + place * timeline.step)
            yield Bar(
                at=place * width,
                width=width * 0.86,
                y=PANEL - height,
                height=height,
                label=f"{when}: {show_count(count)}",
            )


def _clock(at: datetime, whole: timedelta) -> str:
    wanted = "%H:%M:%S" if whole < timedelta(hours=1) else "%H:%M"
    return at.astimezone(UTC).strftime("%b %d" if whole > timedelta(days=3) else wanted)
