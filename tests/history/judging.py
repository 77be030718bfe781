"""What a variant's history comes to: counts of what is wrong, 0 each, and of what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.faults.checker import (
    Check,
    find_acknowledged_and_dead_lettered,
    find_innocents_dead_lettered,
    find_lost,
    find_unsettled,
)
from tests.faults.hindering import WAYS
from tests.faults.history import SECOND_NS, Act, History
from tests.faults.owning import (
    find_acknowledged_without_effect,
    find_foreign_acknowledgements,
    find_inexplicable_duplicates,
    find_overlaps,
    find_unexpected_ends,
)
from tests.faults.premature_recovery import find_premature_recoveries
from tests.faults.repeating import find_recovered_twice

SHOWN = 5  # of each anomaly
LINES = 40  # of the story of each

# By the names under which they are counted.
CHECKS: Mapping[str, Check] = {
    "acknowledged without effect": find_acknowledged_without_effect,
    "lost": find_lost,
    "overlaps": find_overlaps,
    "foreign acknowledgements": find_foreign_acknowledgements,
    "unexplained duplicates": find_inexplicable_duplicates,
    "robbed": find_premature_recoveries,
    "recovered twice": find_recovered_twice,
    "innocents dead-lettered": find_innocents_dead_lettered,
    "acknowledged and dead-lettered": find_acknowledged_and_dead_lettered,
    "unexpected ends": find_unexpected_ends,
    "not drained": find_unsettled,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of the entries of one variant."""

    name: str
    facts: Mapping[str, int]
    counts: Mapping[str, int]  # of what is wrong, 0 each
    missing: tuple[str, ...]  # faults that never came
    evidence: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong, and everything happened that could have shown it."""
        return not any(self.counts.values()) and not self.missing

    @property
    def line(self) -> str:
        """The verdict with its counts."""
        counts = ", ".join(f"{what} {n}" for what, n in self.counts.items())
        missing = f"; never happened: {', '.join(self.missing)}" if self.missing else ""
        return f"{'PASS' if self.passed else 'FAIL'} {self.name}: {counts}{missing}"

    def render(self) -> str:
        """All of it in a few lines."""
        facts = ", ".join(f"{what} {n}" for what, n in self.facts.items())
        evidence = [f"  {one}" for one in self.evidence]
        return "\n".join([*evidence, f"{self.name}: {facts}", self.line])


def judge(name: str, history: History) -> Verdict:
    """Look at everything that is known."""
    found = {what: check(history) for what, check in CHECKS.items()}
    return Verdict(
        name=name,
        facts=_count_facts(history),
        counts={what: len(them) for what, them in found.items()},
        missing=tuple(_find_missing(history)),
        evidence=tuple(
            f"{one}{_report(history, one.subject)}"
            for them in found.values()
            for one in them[:SHOWN]
        ),
    )


def _report(history: History, unique: str) -> str:
    """What all workers wrote down about an entry, and what kept these workers from their work."""
    events = [event for event in history.events if event.unique == unique]
    if not events:
        return ""
    first_ns = events[0].at_ns
    who = {event.process for event in events}
    reported = [
        (event.at_ns, f"{event.process.consumer} ({event.process.pid}) {event.act} {event.result}")
        for event in events
    ]
    reported += [
        (one.began_ns, f"{one.kind} until {(one.ended_ns - first_ns) / SECOND_NS:.3f} s: {them}")
        for one in history.hindrances or ()
        if (them := ", ".join(str(process.pid) for process in who if one.hits(process)))
    ]
    lines = [
        f"\n    {(at_ns - first_ns) / SECOND_NS:8.3f} s {text}" for at_ns, text in sorted(reported)
    ]
    return "".join(lines[:LINES])


def _count_facts(history: History) -> dict[str, int]:
    acts = Counter(event.act for event in history.events)
    effects = Counter(event.unique for event in history.events if event.act is Act.EFFECT)
    kinds = Counter(one.kind for one in history.hindrances or ())
    moves = Counter(move.kind for move in history.moves)
    return {
        "entries": len(history.produced),
        "effects": acts[Act.EFFECT],
        "acknowledged": len(history.acknowledged),
        "done more than once": sum(count > 1 for count in effects.values()),
        "dead letters": len(history.letters),
        "processes": acts[Act.BOOT],
        **{kind: kinds[kind] for kind in sorted(kinds)},
        **{kind: moves[kind] for kind in sorted(moves)},
    }


def _find_missing(history: History) -> Iterator[str]:
    hindrances = history.hindrances or ()
    kinds = {one.kind for one in hindrances}
    yield from (kind for kind in ("killed", "terminated", "stopped", *WAYS) if kind not in kinds)
    longest = max(
        (one.ended_ns - one.began_ns for one in hindrances if one.kind == "stopped"), default=0
    )
    if longest <= history.timeout_ns:
        yield "stopped for longer than the processing timeout"
    if not history.acknowledged:
        yield "acknowledgements in the server's file"
