"""Entries by stream, in the order in which they were last known to be ours. No I/O and no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from pelops.worker.entry import Entry


class Held:
    """What this worker was given and has not settled, whatever became of it since."""

    def __init__(self) -> None:
        self._held: dict[bytes, dict[bytes, Entry]] = {}  # by stream; refreshed longest ago first

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def __iter__(self) -> Iterator[Entry]:
        for entries in self._held.values():
            yield from entries.values()

    def get(self, key: bytes, raw_id: bytes) -> Entry | None:
        """The entry, if it is held."""
        return self._held.get(key, {}).get(raw_id)

    def settle(self, entries: Iterable[Entry]) -> None:
        """These are acknowledged, rejected or released: nothing of them is left here."""
        held = self._held
        for entry in entries:
            held[entry.key].pop(entry.raw_id, None)

    def due_for_refresh(self, since_s: float, most: int) -> list[Entry]:
        """What was not refreshed since `since_s`, longest ago first."""
        due: list[Entry] = []
        for entries in self._held.values():
            for entry in entries.values():
                if entry.refreshed_s > since_s or len(due) >= most:
                    break
                due.append(entry)
        return due

    def refreshed(self, entries: Iterable[Entry], at_s: float) -> None:
        """These are ours still; they were asked for at `at_s`."""
        for entry in entries:
            held = self._held[entry.key]
            if held.pop(entry.raw_id, None) is not None:
                entry.refreshed_s = at_s
                held[entry.raw_id] = entry

    def distrust(self) -> None:
        """Nothing is known to be ours any more, until it is confirmed."""
        for entry in self:
            entry.refreshed_s = -inf

    def oldest_refresh_s(self) -> float | None:
        """When what was refreshed longest ago was asked for."""
        firsts = (next(iter(entries.values()), None) for entries in self._held.values())
        return min((entry.refreshed_s for entry in firsts if entry is not None), default=None)
