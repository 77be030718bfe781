"""What workers did, effect by effect: each left a line in the stream of results. Pure."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from demo.counting import FileCounts, parse_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One file counted by one worker."""

    path: str
    counts: FileCounts
    entry_id: str  # under which the worker was given it
    original_id: str  # before the operator made copies
    consumer: str
    at_ms: int

    @classmethod
    def parse(cls, at_ms: int, pairs: Mapping[bytes, bytes]) -> "Effect":
        """The effect that these pairs are. Raises KeyError, ValueError or TypeError for others."""
        return cls(
            path=os.fsdecode(pairs[b"path"]),
            counts=parse_counts(pairs[b"counts"]),
            entry_id=pairs[b"entry"].decode(),
            original_id=pairs[b"original"].decode(),
            consumer=pairs[b"consumer"].decode(),
            at_ms=at_ms,
        )


def results_of(effects: Iterable[Effect]) -> dict[str, FileCounts]:
    """The counts by path; of what was done twice, those of the last time."""
    return {effect.path: effect.counts for effect in effects}


def find_repeated(effects: Iterable[Effect]) -> set[str]:
    """The original IDs of entries that were done more than once."""
    times = Counter(effect.original_id for effect in effects)
    return {original_id for original_id, count in times.items() if count > 1}
