"""A container's log: one file for all of its runs, and where in it each run begins."""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a log file."""

    path: Path
    start: int
    end: int | None  # None: to the end of the file, which may grow


class ContainerOutput:
    """Appends each run to the log file; knows the current run and the one before.

    What an earlier node process left in the file counts as one run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_running = False
        self._starts: list[int] = []

    def begin_run(self) -> BinaryIO:
        """A file for the process to write to; the caller closes it once the process has it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        output = self.path.open("ab")
        self._starts = [*self._known_starts()[-1:], self.path.stat().st_size]
        self._is_running = True
        return output

    def end_run(self) -> None:
        self._is_running = False

    def section(self, *, previous: bool) -> Section | None:
        """Where the current (or last) run is written, or the one before; None if there was none."""
        starts = self._known_starts()
        if len(starts) < 1 + previous:
            return None
        end = starts[-1] if previous else None
        return Section(path=self.path, start=starts[-1 - previous], end=end)

    def is_current(self, section: Section) -> bool:
        """Whether the run that wrote the section has not ended."""
        return self._is_running and section.start == self._starts[-1]

    def _known_starts(self) -> list[int]:
        if self._starts:
            return self._starts
        return [0] if self.path.exists() and self.path.stat().st_size else []
