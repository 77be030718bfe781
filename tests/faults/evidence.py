"""What a check answers, and what excuses a thing that would else be one."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.history import Event, History, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One thing that should not have happened."""

    anomaly: str
    subject: str  # the entry's unique name, or its ID
    text: str

    def __str__(self) -> str:
        return f"{self.anomaly} {self.subject}: {self.text}"


def is_excused_loss(history: History, unique: str) -> bool:
    """Whether a fault took the entry away."""
    return any(one.excuses_loss(unique) for one in history.disturbances)


def is_excused(history: History, done: Event, again_ns: int) -> bool:
    """Whether a fault undid what was done, so that it may be done again."""
    return any(
        one.excuses_repeat(done.unique, done.place, done.at_ns, again_ns)
        for one in history.disturbances
    )


def is_undone(history: History, unique: str, place: Place | None, done_ns: int) -> bool:
    """Whether a fault undid what was done, so that all is as it was before, until the end."""
    return any(
        one.excuses_repeat(unique, place, done_ns, max(done_ns, one.at_ns))
        for one in history.disturbances
        if done_ns <= max(one.at_ns, one.until_ns)
    )
