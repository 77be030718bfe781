"""The output of a long-running command, line by line, each with the time at which it came."""

import threading
import time
from dataclasses import dataclass

from local_cluster.processes import Process

LOOK_S = 0.02


class FollowingEnded(Exception):
    """The command ended though it should go on; the text is the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of output."""

    text: str
    came_ms: int  # on the clock of this machine, at most LOOK_S late


class Following:
    """Collects the lines of a process; it ends with this one, or by `stop`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lines: list[Line] = []
        self._is_over = threading.Event()
        threading.Thread(target=self._read, name=process.name, daemon=True).start()

    @property
    def lines(self) -> tuple[Line, ...]:
        """All that have come so far. Raises FollowingEnded when no more will come."""
        if not self._process.is_alive():
            raise FollowingEnded(f"{self._process.name}: {self._process.tail()}")
        return tuple(self._lines)

    def stop(self) -> None:
        """End the process."""
        self._is_over.set()
        self._process.kill()

    def _read(self) -> None:
        with self._process.log.open("rb") as log:
            rest = b""
            while not self._is_over.wait(LOOK_S):
                *whole, rest = (rest + log.read()).split(b"\n")
                came_ms = now_ms()
                self._lines += [
                    Line(text=line.decode(errors="replace"), came_ms=came_ms) for line in whole
                ]


def now_ms() -> int:
    """The time of this machine, which Redis and the node share, in milliseconds."""
    return time.time_ns() // 1_000_000
