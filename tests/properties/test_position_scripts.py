"""Whatever was done to a stream before: trimming and re-creating a group lose nothing.

A model in Python does to a group what the server does, and shows what the group has yet to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.entry_id import END_OF_STREAM, EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.policy.group.retention import RetentionPlan
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.group.maintenance import remember_position, trim_retry_stream, trim_stream
from tests.integration.redis_adapter import an_owner
from tests.properties.server_adapter import ServerAdapter

KEYS: Final = derive_keys("{position-scripts}:orders", "ours")
OWNER: Final = an_owner()
GROUPS: Final = ("ours", "theirs")

pytestmark = pytest.mark.usefixtures("small_nodes")
# Steps between IDs, so that all digits of both halves come to count.
STEP = st.sampled_from([(0, 1), (0, 9), (1, 0), (1, 2**64 - 2**20), (10**15, 0), (2**56, 7)])
COUNT = st.integers(1, 4)
PICK = st.integers(0, 9)
ADD = st.tuples(st.just("add"), STEP)
OP = st.one_of(
    ADD,
    ADD,
    ADD,
    st.tuples(st.just("deliver"), st.sampled_from(GROUPS), COUNT),
    st.tuples(st.just("deliver"), st.sampled_from(GROUPS), COUNT),
    st.tuples(st.just("acknowledge"), st.sampled_from(GROUPS), PICK),
    st.tuples(st.just("delete"), PICK),
    st.tuples(st.just("create"), PICK),
    st.tuples(st.just("remember")),
)
OPS = st.lists(OP, max_size=40)
# Entries of which all but a few are delivered, and some acknowledged.
MANY = st.tuples(
    st.lists(ADD, min_size=6, max_size=12),
    st.integers(4, 12).map(lambda count: [("deliver", "ours", count)]),
    st.lists(st.tuples(st.just("acknowledge"), st.just("ours"), PICK), max_size=8),
).map(lambda parts: [op for part in parts for op in part])
Ops: TypeAlias = list[tuple[object, ...]]


@dataclass
class Group:
    """The entries that were delivered to a group, and those that are pending."""

    position: EntryId
    pending: set[EntryId] = field(default_factory=set)

    def need(self) -> EntryId:
        return min([self.position, *self.pending])


@dataclass
class Model:
    """A stream and its groups."""

    adapter: ServerAdapter
    keys: GroupKeys = KEYS
    entries: list[EntryId] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=lambda: {"ours": Group(EntryId.MIN)})
    added: int = 0
    top: EntryId = EntryId.MIN
    stood: tuple[EntryId, EntryId | None] = (EntryId.MIN, None)
    remembered: tuple[int, EntryId] = (0, EntryId.MIN)  # counters when `stood` last changed

    def __post_init__(self) -> None:
        self.ask, self.wait, self.server = self.adapter.ask, self.adapter.wait, self.adapter.server
        self.ask("FLUSHALL")
        created = provision_group(
            self.server, KEYS, start=EntryId.MIN, owner=OWNER, with_retry=True
        )
        self.wait(created)

    def apply(self, op: tuple[object, ...]) -> None:
        getattr(self, str(op[0]))(*op[1:])

    def add(self, step: tuple[int, int]) -> None:
        self.top = self.next_id(step)
        self.ask("XADD", self.keys.stream, str(self.top), "f", "v")
        self.entries.append(self.top)
        self.added += 1

    def next_id(self, step: tuple[int, int]) -> EntryId:
        ms, seq = self.top.ms + step[0], step[1] if step[0] else self.top.seq + step[1]
        return EntryId(ms, seq)

    def deliver(self, name: str, count: int) -> None:
        group = self.groups.get(name)
        if group is None:
            return
        words = ("GROUP", name, "w", "COUNT", count, "STREAMS", self.keys.stream, ">")
        self.ask("XREADGROUP", *words)
        given_now = [one for one in self.entries if one > group.position][:count]
        group.pending |= set(given_now)
        group.position = max([group.position, *given_now])

    def acknowledge(self, name: str, pick: int) -> None:
        group = self.groups.get(name)
        if group is None or not group.pending:
            return
        entry_id = sorted(group.pending)[pick % len(group.pending)]
        self.ask("XACK", self.keys.stream, name, str(entry_id))
        group.pending.remove(entry_id)

    def delete(self, pick: int) -> None:
        if self.entries:
            gone = self.entries.pop(pick % len(self.entries))
            self.ask("XDEL", self.keys.stream, str(gone))

    def create(self, pick: int) -> None:
        if "theirs" in self.groups:
            return
        position = ([EntryId.MIN, *self.entries])[pick % (len(self.entries) + 1)]
        self.ask("XGROUP", "CREATE", self.keys.stream, "theirs", str(position))
        self.groups["theirs"] = Group(position)

    def remember(self) -> None:
        self.wait(remember_position(self.server, self.keys, OWNER))
        ours = self.groups["ours"]
        stands = (ours.position, min(ours.pending, default=None))
        if stands != self.stood:
            self.stood, self.remembered = stands, (self.added, self.top)

    def left(self) -> list[EntryId]:
        entries = self.ask("XRANGE", self.keys.stream, "-", "+")
        return [parse_entry_id(entry_id) for entry_id, _ in entries]

    def owed(self, name: str) -> list[EntryId]:
        """The entries in the stream that are undelivered or pending."""
        group = self.groups[name]
        return [e for e in self.entries if e > group.position or e in group.pending]

    def recreate(self) -> set[EntryId]:
        """The entries delivered to a group that was created again."""
        again = provision_group(self.server, KEYS, start=END_OF_STREAM, owner=OWNER)
        creation = self.wait(again).creation
        assert creation is not None
        assert creation.position <= self.top
        group = ("GROUP", KEYS.group, "again", "STREAMS", KEYS.stream, ">")
        reply = self.ask("XREADGROUP", *group)
        return {parse_entry_id(entry_id) for entry_id, _ in reply[0][1]} if reply else set()


@given(st.lists(st.tuples(MANY, OPS, st.integers(1, 4)), min_size=1, max_size=3))
def test_trimming_removes_no_entry_of_the_backlog_of_any_group(
    adapter: ServerAdapter, rounds: list[tuple[Ops, Ops, int]]
) -> None:
    model = Model(adapter)
    for first, ops, max_length in rounds:
        for op in (*first, *ops):
            model.apply(op)
        plan = RetentionPlan(max_length=max_length, max_age=None, message="")
        adapter.wait(trim_stream(adapter.server, KEYS, OWNER, plan))
        left = model.left()
        for name in model.groups:
            assert set(model.owed(name)) <= set(left)
        assert len(left) >= min(max_length, len(model.entries))
        model.entries = left


@given(MANY, OPS)
def test_a_retry_stream_keeps_its_backlog_and_nothing_before_it(
    adapter: ServerAdapter, first: Ops, ops: Ops
) -> None:
    # The group of the retry stream is provisioned like that of the stream.
    model = Model(adapter, derive_keys(KEYS.retry, KEYS.group))
    for op in (*first, *ops):
        if op[0] != "remember":
            model.apply(op)
    while adapter.wait(trim_retry_stream(adapter.server, KEYS, OWNER)).may_continue:
        pass
    need = min(group.need() for group in model.groups.values())
    assert model.left() == [e for e in model.entries if e >= need]


@given(MANY, OPS, OPS)
def test_a_group_created_again_gets_the_backlog_of_the_lost_one(
    adapter: ServerAdapter, first: Ops, before: Ops, after: Ops
) -> None:
    model = Model(adapter)
    for op in (*first, *before, ("remember",), *after):
        model.apply(op)
    owed = model.owed("ours")
    model.ask("XGROUP", "DESTROY", KEYS.stream, "ours")
    assert model.recreate() >= set(owed)


@given(MANY, OPS, st.lists(STEP, max_size=12))
def test_another_stream_of_the_same_name_is_given_whole(
    adapter: ServerAdapter, first: Ops, before: Ops, steps: list[tuple[int, int]]
) -> None:
    model = Model(adapter)
    for op in (*first, *before, ("remember",)):
        model.apply(op)
    model.ask("DEL", KEYS.stream)
    added, top = model.remembered
    model.added, model.top, model.entries = 0, EntryId.MIN, []
    for step in steps:
        # A stream that has outgrown the former one passes for it.
        if model.added + 1 < added or model.next_id(step) < top:
            model.add(step)
    assert model.recreate() == set(model.entries)
