"""The positions of a group in its stream, and what an observation must return for each.

Before each observation the group is put somewhere else within the case. Else the server would find
in its caches what it read a moment ago, which with a long stream rarely happens in production.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from benchmarks.pending import add_entries, count_pending, deliver_in_turn, require
from benchmarks.raw_redis import RawRedis
from benchmarks.recovery_ways import provision
from benchmarks.scanning_replica import worker_names
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.stream_observation import StreamObservation
from pelops.redis_core.server import Server

SHORTEST = 10_000  # entries; every case fits into such a stream
FIRST_MS = 1_700_000_000_000
PER_MS = 100
FEW = (5, 20)  # a look counts as many also of entries with 50 fields
EDGE = 1_000  # from here on neither end is near
CONSUMERS = 1_000
EACH = 5  # entries that a consumer holds

Behind: TypeAlias = Callable[[Random, int], int]  # of a stream of this length


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A group's place in its stream."""

    name: str
    what: str
    behind: Behind  # how many entries were delivered, or skipped
    is_counted: bool = (
        True  # whether the server knows how many these are; its lag is NULL otherwise
    )
    is_found: bool = True  # whether an observation can count those ahead
    consumers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stream, and the group of one case in it."""

    raw: RawRedis
    keys: GroupKeys
    length: int
    case: Case

    def place(self, random: Random) -> int:
        """Put the group somewhere within its case; how many entries lie ahead of it."""
        behind = self.case.behind(random, self.length)
        counted = ("ENTRIESREAD", behind) if self.case.is_counted else ()
        place = ("XGROUP", "SETID", self.keys.stream, self.keys.group, str(entry_id(behind)))
        self.raw.call(*place, *counted)
        return self.length - behind

    def check(self, seen: StreamObservation, ahead: int) -> None:
        """Raise unless a look found what there is."""
        lag = seen.group.lag if seen.group is not None else 0
        wanted = ahead if self.case.is_found else -1
        require(-1 if lag is None else lag, wanted, f"lag of {self.case.name}")

    def end(self) -> None:
        """Leave the stream without a group."""
        self.raw.call("XGROUP", "DESTROY", self.keys.stream, self.keys.group)


async def set_up(server: Server, raw: RawRedis, case: Case, length: int) -> Stage:
    """The only group of a filled stream, with its consumers."""
    keys = derive_keys(stream_of(length), case.name)
    await provision(server, keys)
    if case.consumers:
        held = case.consumers * EACH
        deliver_in_turn(raw, keys, worker_names(case.consumers), held, each=EACH)
        require(count_pending(raw, keys), held, f"pending entries of {case.name}")
    return Stage(raw=raw, keys=keys, length=length, case=case)


def fill(raw: RawRedis, length: int, body: Sequence[str]) -> None:
    """A stream of so many entries, with IDs that follow from their number."""
    add_entries(raw, stream_of(length), length, first_ms=FIRST_MS, per_ms=PER_MS, body=body)
    require(raw.call("XLEN", stream_of(length)), length, "entries")


def stream_of(length: int) -> str:
    """The key of the stream that has so many entries."""
    return f"orders:{length}"


def entry_id(number: int) -> EntryId:
    """The ID of an entry, of which the first has number 1."""
    return EntryId(FIRST_MS + (number - 1) // PER_MS, (number - 1) % PER_MS + 1)


def _all(_: Random, length: int) -> int:
    return length


def _anywhere(random: Random, length: int) -> int:
    return random.randint(EDGE, length - EDGE)


def _few(random: Random, _: int) -> int:
    return random.randint(*FEW)


def _all_but_few(random: Random, length: int) -> int:
    return length - random.randint(*FEW)


CASES = (
    Case(name="at-the-end", what="everything is delivered", behind=_all),
    Case(name="known", what="the lag is known and large", behind=_anywhere),
    Case(
        name="unknown",
        what="the lag is NULL, with many entries behind and ahead: it is unknown",
        behind=_anywhere,
        is_counted=False,
        is_found=False,
    ),
    Case(
        name="few-behind",
        what="the lag is NULL, with few entries behind the group",
        behind=_few,
        is_counted=False,
    ),
    Case(
        name="few-ahead",
        what="the lag is NULL, with few entries ahead of the group",
        behind=_all_but_few,
        is_counted=False,
    ),
    Case(
        name="many-consumers",
        what=f"as known, with {CONSUMERS:,} consumers that hold {EACH} entries each",
        behind=_anywhere,
        consumers=CONSUMERS,
    ),
)
