"""What faults leave behind for the checker: made into disturbances once all names are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tests.faults.aof import Kept
from tests.faults.collecting import Findings, sources_of
from tests.faults.groups_under_fault import GroupUnderFault
from tests.faults.history import Act, Disturbance, Event, Place, Produced, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What one lane's notes are read against."""

    lane: GroupUnderFault
    produced: Mapping[str, Produced]
    events: tuple[Event, ...]
    findings: Findings
    names: Mapping[Place, str]


class Note(Protocol):
    """Something that a fault did to the data."""

    def resolve(self, known: Known) -> Disturbance | None:
        """What it excuses in this lane; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainNote:
    """A disturbance of one lane that is known exactly."""

    lane: str
    disturbance: Disturbance

    def resolve(self, known: Known) -> Disturbance | None:
        """It, in its lane."""
        return self.disturbance if known.lane.name == self.lane else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartNote:
    """A server was killed, and came back with what its append-only file had kept."""

    killed_ns: int
    up_ns: int  # no client was answered between these two
    kept: Kept

    def resolve(self, known: Known) -> Disturbance | None:
        """What was answered before and is not in the file: lost if added, else it may repeat."""
        keys = {source: key for key, source in sources_of(known.lane).items()}
        lost = {
            one.unique
            for one in known.produced.values()
            if one.entry_id
            and one.at_ns < self.up_ns
            and (keys[one.source], one.entry_id) not in self.kept.added
        }
        return Disturbance(
            kind="redis",
            at_ns=self.killed_ns,
            lost=frozenset(lost),
            repeated=frozenset(self._repeated(known)),
        )

    def _repeated(self, known: Known) -> set[str]:
        keys = sources_of(known.lane)
        ours = {known.lane.keys.stream, *known.lane.keys.derived()}
        repeated = {
            known.names.get((source, entry_id), "")
            for key, entry_id in self.kept.cut_ids
            if key in ours
            for source in ([keys[key]] if key in keys else Source)
        }
        forgotten = {event.unique for event in known.events if self._is_forgotten(event, known)}
        forgotten |= set(self._forgotten_moves(known))
        return (repeated | self.kept.cut_names | forgotten) - {""}

    def _forgotten_moves(self, known: Known) -> Iterator[str]:
        """The names of entries of which a ledger event was read that the file does not hold."""
        ledgers = (known.lane.keys.ledger, known.lane.keys.worker_ledger)
        for (_, ledger_id, _), move in known.findings.moves.items():
            is_kept = any((ledger, ledger_id) in self.kept.added for ledger in ledgers)
            if move.at_ns < self.up_ns and not is_kept:
                yield known.names.get(move.place, "")

    def _is_forgotten(self, event: Event, known: Known) -> bool:
        """Whether a worker was sent a delivery or an acknowledgement that is not in the file.

        An entry may be in it as delivered to another consumer, which had it before.
        """
        if event.place is None or event.at_ns >= self.up_ns:
            return False
        source, entry_id = event.place
        key = known.lane.keys.retry if source is Source.RETRY else known.lane.keys.stream
        if event.act is Act.READ:
            return (key, entry_id, event.process.consumer) not in self.kept.deliveries
        is_acknowledged = event.act is Act.ACK and event.result == "1"
        return is_acknowledged and (key, entry_id) not in self.kept.acknowledged


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyNote:
    """A group was destroyed; what its successor begins above comes again."""

    lane: str
    at_ns: int
    at_ms: int  # on Redis' clock

    def resolve(self, known: Known) -> Disturbance | None:
        """All above the position that the next group began with, as the ledger records it."""
        if known.lane.name != self.lane:
            return None
        later = [
            (int(ledger_id.partition("-")[0]), position)
            for ledger_id, position in known.findings.positions.items()
        ]
        found = min((one for one in later if one[0] >= self.at_ms), default=None)
        above: Place | None = (Source.STREAM, found[1]) if found else None
        return Disturbance(kind="destroy", at_ns=self.at_ns, repeats_above=above)
