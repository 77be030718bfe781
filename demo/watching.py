"""`kubectl get scg`, each row again when it changed, until something has happened; and Events."""

import time
from collections.abc import Callable
from itertools import groupby

from demo.notices import Notices
from demo.playground import Playground

LOOK_S = 0.25
SHOW_S = 1.0  # a kubectl costs as much as fifty looks
STALLED_S = 60.0
AGES = frozenset({"AGE", "OLDEST"})
MIN_WIDTH = 8  # so that the columns stay where they are while the first cells fill


class Stalled(Exception):
    """What was waited for did not happen, and nothing moved any more."""


class Watch:
    """The lines that a person sees while the demo waits; the header comes once."""

    def __init__(self, cluster: Playground, namespace: str, notices: Notices) -> None:
        self._cluster = cluster
        self._notices = notices
        self._question = ("get", "scg", "-n", namespace)
        self._began: float | None = None
        self._widths: list[int] = []
        self._shown: dict[str, list[str]] = {}  # by name

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """Show rows until the condition holds; the seconds that it took.

        Raises Stalled when no row has changed for a minute and it still does not hold.
        """
        began = moved = shown = time.monotonic()
        self.show()
        while not condition():
            if time.monotonic() - shown >= SHOW_S:
                shown = time.monotonic()
                moved = shown if self.show() else moved
            if time.monotonic() - moved > STALLED_S:
                raise Stalled(f"no change for {STALLED_S:.0f} s while waiting for: {what}")
            time.sleep(LOOK_S)
        took = time.monotonic() - began
        self.show()
        return took

    def show(self) -> bool:
        """Print Events, and the rows that are others than the last time; whether any is.

        The ages of things do not count.
        """
        for notice, alike in groupby(self._notices.fresh()):
            times = len(list(alike))
            print(f"{'event':>8}  {notice}" + f" ({times} times)" * (times > 1), flush=True)
        header, *rows = split_table(self._cluster.kubectl(*self._question))
        if self._began is None:
            self._began = time.monotonic()
            self._widths = [MIN_WIDTH] * len(header)
            self._print("TIME", header)
        changed = [row for row in rows if self._shown.get(row[0]) != without_ages(header, row)]
        for row in changed:
            self._shown[row[0]] = without_ages(header, row)
            self._print(f"{time.monotonic() - self._began:.1f} s", row)
        return bool(changed)

    def _print(self, first: str, cells: list[str]) -> None:
        self._widths = [max(pair) for pair in zip(self._widths, map(len, cells), strict=True)]
        row = "  ".join(map(str.ljust, cells, self._widths))
        print(f"{first:>8}  {row}".rstrip(), flush=True)


def split_table(text: str) -> list[list[str]]:
    """The header and the rows of what `kubectl get` prints; a cell may be empty."""
    header, *rows = text.splitlines()
    starts = [
        index
        for index, letter in enumerate(header)
        if letter != " " and (index == 0 or header[index - 1] == " ")
    ]
    ends = [*starts[1:], None]
    cut = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
    return [[row[one].strip() for one in cut] for row in (header, *rows)]


def without_ages(header: list[str], cells: list[str]) -> list[str]:
    """The cells that report a change: an age changes by itself."""
    return [cell for name, cell in zip(header, cells, strict=True) if name not in AGES]
