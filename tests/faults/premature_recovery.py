"""Live workers that were recovered prematurely."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.faults.evidence import Evidence
from tests.faults.history import SECOND_NS, Act, Event, History, Move, Place, Process

TOOK = frozenset({Act.READ, Act.START})
TAKES = frozenset({"requeued", "released", "dead-lettered"})


def find_premature_recoveries(history: History) -> list[Evidence]:
    """Entries moved from a process that had them, was alive, and had not used up its time."""
    lives = _read_lives(history)
    return [
        Evidence(anomaly="robbed", subject=move.place[1], text=_describe(move, robbed))
        for move in history.moves
        if move.kind in TAKES and (robbed := _find_robbed_process(move, lives, history)) is not None
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    """One process, from its first line to its last; certainly alive between the two."""

    process: Process
    began_ns: int
    last_ns: int
    had: frozenset[Place]
    done: Mapping[Place, int]  # when it had finished with an entry


def _read_lives(history: History) -> Mapping[str, list[_Life]]:
    events: dict[Process, list[Event]] = defaultdict(list)
    for event in history.events:
        events[event.process].append(event)
    lives: dict[str, list[_Life]] = defaultdict(list)
    for process, them in events.items():
        lives[process.consumer].append(_read_life(process, them))
    return lives


def _read_life(process: Process, events: Sequence[Event]) -> _Life:
    return _Life(
        process=process,
        began_ns=events[0].at_ns,
        last_ns=events[-1].at_ns,
        had=frozenset(e.place for e in events if e.act in TOOK and e.place),
        done={e.place: e.at_ns for e in events if e.act is Act.ACK and e.place},
    )


def _find_robbed_process(
    move: Move, lives: Mapping[str, list[_Life]], history: History
) -> _Life | None:
    if move.idle_ms * 1_000_000 >= history.timeout_ns or move.actor == move.consumer:
        return None
    delivered_ns = move.at_ns - move.idle_ms * 1_000_000
    for life in lives.get(move.consumer, ()):
        # It was delivered to this very process, which wrote something after it was moved.
        had_it = life.began_ns <= delivered_ns and move.place in life.had
        if (
            had_it
            and move.at_ns < life.last_ns
            and life.done.get(move.place, move.at_ns) >= (move.at_ns)
        ):
            return life
    return None


def _describe(move: Move, life: _Life) -> str:
    left_s = (life.last_ns - move.at_ns) / SECOND_NS
    return (
        f"{move.kind} ({move.reason}) from {move.consumer}, process {life.process.pid}, after "
        f"{move.idle_ms} ms; it was alive {left_s:.3f} s later"
    )
