"""Whatever was done to a stream and its group: a lag that is called exact is, and `at_least` is
never above the true lag. A repair makes the server itself right and moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.stream_observation import GroupObservation, StreamObservation
from pelops.redis_streams.group.group_observation import ObservationRequest, observe_groups
from pelops.redis_streams.group.maintenance import repair_lag
from tests.integration.redis_adapter import an_owner, provision
from tests.properties.server_adapter import ServerAdapter

KEYS: Final = derive_keys("{lag-scripts}:orders", "ours")
UID: Final = an_owner().uid
LOOKS: Final = (ObservationRequest(KEYS), ObservationRequest(KEYS, is_deep=True))
BOUNDS: Final = (64, 800)  # entries ahead that each of these looks counts at most

PICK = st.integers(0, 200)
ADD = st.tuples(st.just("add"), st.sampled_from([1, 1, 2, 7, 90]))
READ = st.tuples(st.just("read"), st.sampled_from([1, 2, 5, 60]))
USUAL = st.one_of(
    *(ADD, ADD, READ, READ),
    st.tuples(st.just("acknowledge"), PICK),
    st.tuples(st.just("delete"), PICK),
    st.tuples(st.just("delete_done"), PICK),
    st.tuples(st.just("trim"), st.integers(0, 100)),
    st.tuples(st.just("set_id"), PICK),
    st.tuples(st.just("repair"), st.just(0)),
)
FORGED = st.tuples(st.just("forge"), PICK)
Ops: TypeAlias = list[tuple[str, int]]


@dataclass
class Stage:
    """A stream whose IDs are the numbers from 1 on, and a group that was created at 0."""

    adapter: ServerAdapter
    top: int = 0

    def __post_init__(self) -> None:
        self.ask, self.wait, self.server = self.adapter.ask, self.adapter.wait, self.adapter.server
        self.ask("FLUSHALL")
        self.wait(provision(self.server, KEYS))

    def apply(self, op: str, number: int) -> None:
        getattr(self, op)(number)

    def add(self, count: int) -> None:
        lua = "for i = ARGV[1], ARGV[2] do redis.call('XADD', KEYS[1], i .. '-0', 'f', 'v') end"
        self.ask("EVAL", lua, 1, KEYS.stream, self.top + 1, self.top + count)
        self.top += count

    def read(self, count: int) -> None:
        words = ("GROUP", KEYS.group, "worker", "COUNT", count, "STREAMS", KEYS.stream, ">")
        self.ask("XREADGROUP", *words)

    def acknowledge(self, pick: int) -> None:
        if pending := self.ask("XPENDING", KEYS.stream, KEYS.group, "-", "+", 200):
            self.ask("XACK", KEYS.stream, KEYS.group, pending[pick % len(pending)][0])

    def delete_done(self, pick: int) -> None:
        """Acknowledge and delete all that is pending but one, as workers do that leave nothing."""
        pending = self.ask("XPENDING", KEYS.stream, KEYS.group, "-", "+", 200)
        done = [each[0] for index, each in enumerate(pending) if index != pick % len(pending)]
        if done:
            self.ask("XACK", KEYS.stream, KEYS.group, *done)
            self.ask("XDEL", KEYS.stream, *done)

    def delete(self, pick: int) -> None:
        if entries := self.ask("XRANGE", KEYS.stream, "-", "+"):
            self.ask("XDEL", KEYS.stream, entries[pick % len(entries)][0])

    def trim(self, length: int) -> None:
        self.ask("XTRIM", KEYS.stream, "MAXLEN", length)

    def set_id(self, pick: int) -> None:
        self.ask("XGROUP", "SETID", KEYS.stream, KEYS.group, f"{pick % (self.top + 1)}-0")

    def forge(self, pick: int) -> None:
        """Say that the group has read so many entries, wherever it stands."""
        _, position = self.owed()
        read = pick % (self.top + 1)
        self.ask("XGROUP", "SETID", KEYS.stream, KEYS.group, str(position), "ENTRIESREAD", read)

    def repair(self, _: int) -> None:
        before = self.owed()
        pending = self.ask("XPENDING", KEYS.stream, KEYS.group)
        self.wait(repair_lag(self.server, KEYS, UID))
        assert self.owed() == before
        assert self.ask("XPENDING", KEYS.stream, KEYS.group) == pending
        assert not self.look()[1].is_lag_repairable
        assert not self.wait(repair_lag(self.server, KEYS, UID))

    def look(self) -> list[GroupObservation]:
        """A look of each kind."""
        groups = []
        for seen in self.wait(observe_groups(self.server, LOOKS)).values():
            assert isinstance(seen, StreamObservation)
            assert seen.group is not None
            groups.append(seen.group)
        return groups

    def owed(self) -> tuple[int, EntryId]:
        """The number of undelivered entries, and the position of the group."""
        position = self.look()[0].last_delivered_id
        return len(self.ask("XRANGE", KEYS.stream, f"({position}", "+")), position


@given(st.lists(USUAL, max_size=25))
def test_a_lag_that_is_called_exact_is(adapter: ServerAdapter, ops: Ops) -> None:
    stage = Stage(adapter)
    for op in ops:
        stage.apply(*op)
        owed, _ = stage.owed()
        for group in stage.look():
            assert group.lag in (None, owed)
            assert group.at_least <= owed


@given(st.lists(USUAL | FORGED, max_size=25))
@example([("add", 1), ("forge", 1), ("read", 1)])  # Redis 7.0: a lag of -1
def test_countable_lag_is_exact_although_the_counter_was_forged(
    adapter: ServerAdapter, ops: Ops
) -> None:
    stage = Stage(adapter)
    for op in ops:
        stage.apply(*op)
        owed, _ = stage.owed()
        for group, bound in zip(stage.look(), BOUNDS, strict=True):
            if owed < bound:
                assert (group.lag, group.at_least) == (owed, owed)
            else:
                assert group.at_least >= bound
