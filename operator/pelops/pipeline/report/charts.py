"""Plots as inline SVG. Widths are shares of the page: letters keep their size on a phone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pelops.domain.audit import EntryStatus
from pelops.pipeline.report.markup import Html, tag
from pelops.pipeline.report.model import Timeline
from pelops.pipeline.report.words import (
    TITLES,
    round_up,
    show_count,
    show_moment,
    show_share,
    show_span,
)

_LEAST: Final = 1.0  # percent: what is there can be seen
_PANEL: Final = 72  # pixels
_MOST_BARS: Final = 120
_TICKS: Final = 4
HATCHED: Final = frozenset({EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.INDETERMINATE})


def build_swatch(status: EntryStatus) -> Html:
    """The colour of a status, beside its name."""
    return tag(
        "svg", _fills(status, 0, 100), class_="swatch", width=14, height=14, aria_hidden="true"
    )


def build_balance(counts: Mapping[EntryStatus, int], label: str) -> Html:
    """All entries as one bar, in which each status has its share."""
    present = [(status, counts.get(status, 0)) for status in TITLES if counts.get(status, 0)]
    parts: list[Html] = []
    at = 0.0
    for (status, count), width in zip(present, _widths([n for _, n in present]), strict=True):
        whole = sum(counts.values())
        told = f"{TITLES[status]}: {show_count(count)} ({show_share(count, whole)})"
        parts.append(tag("g", tag("title", told), _fills(status, at, width)))
        at += width
    return tag(
        "svg", parts, class_="balance", width="100%", height=36, role="img", aria_label=label
    )


def is_widened(counts: Mapping[EntryStatus, int]) -> bool:
    """Whether the bar draws a share wider than it is, so that it can be seen."""
    whole = sum(counts.values())
    return any(0 < 100 * count < _LEAST * whole for count in counts.values())


def build_meter(part: int, most: int, kind: str) -> Html:
    """A number in a table's row, as a bar beside those of other rows."""
    width = max(100 * part / most, 1.5) if part and most else 0
    bar = tag("rect", width=f"{width:.2f}%", height="100%", rx=3, class_=f"fill {kind}")
    return tag("svg", bar, class_="meter", width="100%", height=12, aria_hidden="true")


def build_timeline(timeline: Timeline) -> Html:
    """Arrivals, recoveries and dead letters over the same time, each with its own scale."""
    joined = _coarsen(timeline)
    panels = [
        _panel("Arrivals", joined.arrivals, joined, "arrivals"),
        _panel("Recoveries", joined.recoveries, joined, "requeued"),
        _panel("Dead letters", joined.dead_letters, joined, "dead_lettered"),
    ]
    return tag("div", panels, _axis(joined), class_="timeline")


def _fills(status: EntryStatus, at: float, width: float) -> Iterator[Html]:
    place = {"x": f"{at:.3f}%", "width": f"{width:.3f}%", "height": "100%"}
    yield tag("rect", class_=f"fill {status.value}", **place)
    if status in HATCHED:
        # Stripes: a line as thick as the bar is high, dashed.
        ends = {"x1": f"{at:.3f}%", "x2": f"{at + width:.3f}%", "y1": "50%", "y2": "50%"}
        yield tag("line", class_="stripes", stroke_width=80, stroke_dasharray="1.5 4", **ends)


def _widths(counts: Sequence[int]) -> list[float]:
    """Shares in percent; what is small is drawn larger, at the cost of the others."""
    whole = sum(counts)
    wished = [max(100 * count / whole, _LEAST) for count in counts]
    large = sum(width for width in wished if width > _LEAST)
    excess = sum(wished) - 100
    return [
        width - excess * width / large if width > _LEAST and large else width for width in wished
    ]


def _panel(title: str, counts: Sequence[int], timeline: Timeline, kind: str) -> Html:
    total, most = sum(counts), max(counts, default=0)
    if not total:
        return tag("figure", tag("figcaption", tag("b", title), " none"), class_="panel")
    top = round_up(most)
    told = show_count(total)
    peak = f"at most {show_count(most)} in {show_span(timeline.step)}"
    caption = tag("figcaption", tag("b", title), tag("span", told, class_="total"), peak)
    bars = tag("g", _bars(counts, timeline, top, kind))
    grid = [
        tag("line", x1=0, x2="100%", y1=y, y2=y, class_="grid") for y in (0.5, _PANEL / 2 + 0.5)
    ]
    axis = tag("line", x1=0, x2="100%", y1=_PANEL - 0.5, y2=_PANEL - 0.5, class_="axis")
    scale = tag("text", show_count(round(top)), x=2, y=12, class_="scale")
    label = f"{title}: {told}, {peak}"
    drawn = tag(
        "svg", grid, bars, axis, scale,
        width="100%", height=_PANEL, role="img", aria_label=label,
    )  # fmt: skip
    return tag("figure", caption, drawn, class_="panel")


def _bars(counts: Sequence[int], timeline: Timeline, top: float, kind: str) -> Iterator[Html]:
    width = 100 / max(len(counts), 1)
    for place, count in enumerate(counts):
        if count:
            height = max(2.0, (_PANEL - 4) * count / top)
            told = f"{show_moment(timeline.start + place * timeline.step)}: {show_count(count)}"
            yield tag(
                "rect",
                tag("title", told),
                x=f"{place * width:.3f}%",
                width=f"{width * 0.86:.3f}%",
                y=f"{_PANEL - height:.1f}",
                height=f"{height:.1f}",
                class_=f"fill {kind}",
            )


def _axis(timeline: Timeline) -> Html:
    end = timeline.start + len(timeline.arrivals) * timeline.step
    labels = [
        tag(
            "text",
            _clock(at, end - timeline.start),
            x=f"{100 * n / _TICKS:.0f}%",
            y=12,
            class_=kind,
        )
        for n, kind in zip(
            range(_TICKS + 1), ("", "middle few", "middle", "middle few", "end"), strict=True
        )
        for at in [timeline.start + (end - timeline.start) * n / _TICKS]
    ]
    return tag("svg", labels, class_="times", width="100%", height=18, aria_hidden="true")


def _clock(at: datetime, whole: timedelta) -> str:
    wanted = "%H:%M:%S" if whole < timedelta(hours=1) else "%H:%M"
    return at.astimezone(UTC).strftime("%b %d" if whole > timedelta(days=3) else wanted)


def _coarsen(timeline: Timeline) -> Timeline:
    """The same in steps so long that each one can be seen."""
    factor = -(-len(timeline.arrivals) // _MOST_BARS)
    if factor <= 1:
        return timeline
    return Timeline(
        start=timeline.start,
        step=factor * timeline.step,
        arrivals=_add_up(timeline.arrivals, factor),
        recoveries=_add_up(timeline.recoveries, factor),
        dead_letters=_add_up(timeline.dead_letters, factor),
    )


def _add_up(counts: Sequence[int], factor: int) -> tuple[int, ...]:
    return tuple(sum(counts[at : at + factor]) for at in range(0, len(counts), factor))
