"""The run as a picture: the backlog and how many workers there were, over time."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.plot import Line, Panel, draw
from demo.direct import ROOT
from demo.scaling import Course

PICTURE = ROOT / "build" / "demo.svg"


def draw_course(course: Course, path: Path = PICTURE, *, title: str) -> Path:
    """Write it; where it is, as seen from the repository. Second 0 is when the first entry came."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(list_panels(course), path, title=title)
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def list_panels(course: Course) -> list[Panel]:
    """What is drawn. The few entries that are pending have a scale of their own."""
    seen = course.looks
    lags = [(look.at_ms, look.backlog.lag) for look in seen if look.backlog.lag is not None]
    pending = [(look.at_ms, look.backlog.pending) for look in seen]
    counts = list(course.counts)
    end_ms = max([look.at_ms for look in seen] + [count.at_ms for count in counts], default=0)
    wanted = [(count.at_ms, count.wanted) for count in counts]
    ready = [(count.at_ms, count.ready) for count in counts]
    first_ms = course.first_ms
    return [
        Panel(title="entries undelivered", lines=[_line("", lags, first_ms)]),
        Panel(title="entries pending", lines=[_line("", pending, first_ms)]),
        Panel(
            title="workers",
            lines=[
                _step("wanted", wanted, first_ms, end_ms),
                _step("ready", ready, first_ms, end_ms),
            ],
        ),
    ]


def _line(label: str, points: Sequence[tuple[int, int]], first_ms: int) -> Line:
    return Line(label=label, points=[((ms - first_ms) / 1000, value) for ms, value in points])


def _step(label: str, points: Sequence[tuple[int, int]], first_ms: int, end_ms: int) -> Line:
    """A number that stays until it changes; the last one until the end."""
    whole = [*points, (end_ms, points[-1][1])] if points else []
    seconds = [((ms - first_ms) / 1000, value) for ms, value in whole]
    return Line(label=label, points=seconds, is_step=True)
