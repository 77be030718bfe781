"""A worker's record of what it did: a file of its own, a line per event, one write per line.

What was written is there whatever becomes of the process; a torn last line is left out by readers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.faults.history import Act, Event, Process, Source


class Journal:
    """Writes one process's events."""

    def __init__(self, directory: Path, consumer: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        began = time.time_ns()
        path = directory / f"{began}-{os.getpid()}.log"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._descriptor, f"{began} boot {os.getpid()} {consumer}\n".encode())

    def write(
        self, act: str, source: str = "-", entry_id: str = "-", unique: str = "-", result: str = "-"
    ) -> None:
        """Append one event."""
        line = f"{time.time_ns()} {act} {source} {entry_id} {unique} {result}\n"
        os.write(self._descriptor, line.encode())

    def write_all(self, act: str, rows: Iterable[tuple[str, str, str]], result: str) -> None:
        """Append one event for each (source, ID, unique name)."""
        head, tail = f"{time.time_ns()} {act} ", f" {result}\n"
        lines = [head + " ".join(row) + tail for row in rows]
        os.write(self._descriptor, "".join(lines).encode())


def read_journals(directory: Path) -> list[Event]:
    """All events of all processes, in the order of time."""
    events = [event for path in directory.glob("*.log") for event in _read(path)]
    return sorted(events, key=lambda event: event.at_ns)


def read_processes(directory: Path) -> list[Process]:
    """Every process that ever began, alive or not."""
    found = (_read_process(path) for path in sorted(directory.glob("*.log")))
    return [process for process in found if process is not None]


def _read_process(path: Path) -> Process | None:
    with path.open() as lines:
        first = lines.readline()
    if not first.endswith("\n"):
        return None
    _, _, pid, consumer = first.split(maxsplit=3)
    return Process(consumer.rstrip("\n"), path.stem, int(pid))


def _read(path: Path) -> Iterator[Event]:
    process = _read_process(path)
    if process is None:
        return
    with path.open() as lines:
        yield Event(int(next(lines).split()[0]), process, Act.BOOT)
        for line in lines:
            if line.endswith("\n"):
                yield _parse(line, process)


def _parse(line: str, process: Process) -> Event:
    at_ns, act, source, entry_id, unique, result = line.split()
    place = None if entry_id == "-" else (Source(source), entry_id)
    return Event(
        int(at_ns),
        process,
        Act(act),
        place,
        "" if unique == "-" else unique,
        "" if result == "-" else result,
    )
