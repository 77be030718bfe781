"""Small histories of one entry, made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.faults.evidence import Evidence
from tests.faults.history import (
    SECOND_NS,
    Act,
    Event,
    History,
    Letter,
    Move,
    Place,
    Process,
    Produced,
    Source,
)

TIMEOUT_S = 20.0
FIRST = Process("w-1:uid", "boot-1", 101)
RESTARTED = Process("w-1:uid", "boot-2", 102)  # the same container, and so the same consumer
OTHER = Process("w-2:uid", "boot-3", 103)


def at(seconds: float) -> int:
    return round((1000 + seconds) * SECOND_NS)


def place(number: int, source: Source = Source.STREAM) -> Place:
    return (source, f"{1_700_000_000_000 + number}-0")


def event(
    seconds: float, act: Act, process: Process = FIRST, number: int = 1, result: str = ""
) -> Event:
    return Event(at(seconds), process, act, place(number), "a", result)


def alive(seconds: float, process: Process = FIRST) -> Event:
    return Event(at(seconds), process, Act.BEAT)


def booted(seconds: float, process: Process = FIRST) -> Event:
    return Event(at(seconds), process, Act.BOOT)


def move(seconds: float, number: int = 1, **changes: Any) -> Move:
    usual = Move(
        kind="requeued",
        at_ns=at(seconds),
        place=place(number),
        new_id=place(number + 1000)[1],
        consumer=FIRST.consumer,
        idle_ms=1000,
    )
    return replace(usual, **changes)


def letter(seconds: float = 9, **changes: Any) -> Letter:
    usual = Letter(
        letter_id="1700000009999-0",
        at_ns=at(seconds),
        unique="a",
        root_id=place(1)[1],
        reason="MaxRetriesExceeded",
    )
    return replace(usual, **changes)


def history(*events: Event, poison: bool = False, **changes: Any) -> History:
    """One entry, `a`, that Redis certainly has."""
    produced = Produced(unique="a", entry_id=place(1)[1], at_ns=at(0), is_poison=poison)
    usual = History(
        name="lane",
        timeout_ns=round(TIMEOUT_S * SECOND_NS),
        produced={"a": produced},
        events=tuple(sorted(events, key=lambda one: one.at_ns)),
    )
    return replace(usual, **changes)


def subjects(found: list[Evidence]) -> list[str]:
    return [one.subject for one in found]
