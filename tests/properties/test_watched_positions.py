"""Whatever happens to a stream between two observations: what an observation says was delivered was
delivered, and what was trimmed undelivered is in a range that the ledger has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.domain.records.state import CHECKPOINT_AT, WATCH
from pelops.policy.group.losses import find_new_loss
from pelops.policy.group.retention import RetentionPlan
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.maintenance import record_loss, remember_position, trim_stream
from tests.integration.redis_adapter import an_owner, provision
from tests.properties.server_adapter import ServerAdapter

KEYS: Final = derive_keys("{watched}:orders", "ours")
OWNER: Final = an_owner()

pytestmark = pytest.mark.usefixtures("small_nodes")
COUNT = st.integers(1, 5)
USERS = [
    st.tuples(st.just("add"), COUNT),
    st.tuples(st.just("add"), COUNT),
    st.tuples(st.just("work"), COUNT),
    st.tuples(st.just("work"), COUNT),
    st.tuples(st.just("read"), COUNT),
]
OPERATOR = [
    st.tuples(st.just("observe")),
    st.tuples(st.just("remember")),
    st.tuples(st.just("remember")),
    st.tuples(st.just("retain"), st.integers(0, 3)),
]
TRIM = st.tuples(st.just("trim"), st.integers(0, 6))
DELETE = st.tuples(st.just("delete"), st.integers(0, 9))
DELETE_NEW = st.tuples(st.just("delete_new"), st.integers(0, 9))
Ops: TypeAlias = list[tuple[object, ...]]
Range: TypeAlias = tuple[EntryId, EntryId]


@dataclass
class Model:
    """A stream, the entries that were delivered, and those that were trimmed or deleted."""

    adapter: ServerAdapter
    top: int = 0
    present: list[int] = field(default_factory=list)
    position: int = 0
    remembered: int = 0  # the position when it was remembered last
    trimmed_undelivered: set[int] = field(default_factory=set)
    deleted_undelivered: set[int] = field(default_factory=set)
    has_deleted: bool = False
    claims: set[Range] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ask, self.wait, self.server = self.adapter.ask, self.adapter.wait, self.adapter.server
        self.ask("FLUSHALL")
        self.wait(provision(self.server, KEYS))

    def live(self, history: Ops) -> list[Range]:
        """Let all this happen, and check the claims; the losses that were recorded."""
        for op in (*history, ("remember",)):
            getattr(self, str(op[0]))(*op[1:])
        self.check()
        return self.recorded()

    def add(self, count: int) -> None:
        for _ in range(count):
            self.top += 1
            self.ask("XADD", KEYS.stream, f"{self.top}-0", "f", "v")
            self.present.append(self.top)

    def read(self, count: int) -> list[int]:
        words = ("GROUP", KEYS.group, "w", "COUNT", count, "STREAMS", KEYS.stream, ">")
        self.ask("XREADGROUP", *words)
        found = [one for one in self.present if one > self.position][:count]
        self.position = max([self.position, *found])
        return found

    def work(self, count: int) -> None:
        for one in self.read(count):
            self.ask("XACK", KEYS.stream, KEYS.group, f"{one}-0")

    def trim(self, length: int) -> None:
        self.ask("XTRIM", KEYS.stream, "MAXLEN", length)
        gone = self.present[: max(0, len(self.present) - length)]
        self.present = self.present[len(gone) :]
        self.trimmed_undelivered |= {one for one in gone if one > self.position}

    def delete(self, pick: int) -> None:
        if self.present:
            self.has_deleted = True
            one = self.present.pop(pick % len(self.present))
            self.ask("XDEL", KEYS.stream, f"{one}-0")
            if one > self.position:
                self.deleted_undelivered.add(one)

    def delete_new(self, pick: int) -> None:
        """Delete an entry after the position that was remembered last."""
        kept, self.present = self.present, [one for one in self.present if one > self.remembered]
        before = set(self.present)
        self.delete(pick)
        gone = before - set(self.present)
        self.present = [one for one in kept if one not in gone]

    def retain(self, length: int) -> None:
        plan = RetentionPlan(max_length=length, max_age=None, message="")
        self.wait(trim_stream(self.server, KEYS, OWNER, plan))
        left = self.ask("XRANGE", KEYS.stream, "-", "+")
        self.present = [parse_entry_id(one).ms for one, _ in left]

    def observe(self) -> None:
        stream = self.wait(observe_group(self.server, KEYS))
        loss = find_new_loss(stream)
        if loss is not None:
            first = stream.first_id or stream.last_generated_id.after()
            self.wait(record_loss(self.server, KEYS, OWNER, loss, first_id=first))

    def remember(self) -> None:
        # With a checkpoint, which also writes down a possible loss that is not yet due.
        self.ask("HSET", KEYS.state, CHECKPOINT_AT, 0)
        self.wait(remember_position(self.server, KEYS, OWNER))
        self.remembered = self.position
        (field,) = self.ask("HMGET", KEYS.state, WATCH)
        since, position = field.split()[:2]
        self.claims.add((parse_entry_id(since), parse_entry_id(position)))

    def recorded(self) -> list[Range]:
        """The ranges of the ledger's losses."""
        found = []
        for _, flat in self.ask("XRANGE", KEYS.ledger, "-", "+"):
            pairs = dict(zip(flat[::2], flat[1::2], strict=True))
            if pairs[b"kind"] == b"data-loss":
                after, before = pairs[b"after"], pairs[b"before"]
                found.append((parse_entry_id(after), parse_entry_id(before)))
        return found

    def check(self) -> None:
        """Every claim is true, and every trimmed entry that the group passed is in a range."""
        for one in self.trimmed_undelivered | self.deleted_undelivered:
            assert not any(since < EntryId(one) <= upto for since, upto in self.claims)
        recorded = self.recorded()
        if not self.has_deleted:  # else it may have been that
            passed = [one for one in self.trimmed_undelivered if one <= self.position]
            for one in passed:
                assert any(after < EntryId(one) < before for after, before in recorded)


@given(st.lists(st.one_of(*USERS, *OPERATOR, TRIM, TRIM, DELETE), max_size=40))
def test_what_is_said_to_be_delivered_was_delivered(adapter: ServerAdapter, history: Ops) -> None:
    Model(adapter).live(history)


@settings(max_examples=20)
@given(st.lists(st.one_of(*USERS, *OPERATOR), max_size=40))
def test_where_only_the_operator_trims_the_watch_has_no_gap(
    adapter: ServerAdapter, history: Ops
) -> None:
    model = Model(adapter)
    assert model.live(history) == []
    assert {since for since, _ in model.claims} == {EntryId.MIN}
    assert max(upto for _, upto in model.claims) == EntryId(model.position)


@settings(max_examples=20)
@given(st.lists(st.one_of(*USERS, *OPERATOR, DELETE_NEW), max_size=40))
def test_what_users_delete_is_no_loss(adapter: ServerAdapter, history: Ops) -> None:
    assert Model(adapter).live(history) == []


def test_the_last_delivered_entry_that_users_delete_is_a_possible_loss(
    adapter: ServerAdapter,
) -> None:
    """Redis does not record whether entries after it were trimmed as well: at least 0 are lost."""
    history: Ops = [("add", 2), ("work", 1), ("remember",), ("work", 1), ("delete", 0)]
    assert Model(adapter).live(history) == [(EntryId(1), EntryId(2))]
