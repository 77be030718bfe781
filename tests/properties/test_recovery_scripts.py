"""The recovery scripts against a model, on real servers: any order of whatever workers, users and
operators do. After each step the server holds what the model holds, byte for byte.

Delivery times lie days back on a grid, written with XCLAIM ... TIME, so that no test waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from local_cluster.redis_servers import RedisServers, StandaloneServers
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerEvent, parse_ledger_event
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.recovery import Action, Chunk, read_ids
from pelops.errors import ChunkChanged, WouldDuplicate
from pelops.policy.attempts import AttemptPlan, OwnerPlan, Settlement
from pelops.redis_streams import recovery
from pelops.redis_streams.consumers import remove_consumer
from pelops.redis_streams.server import Server
from pelops.redis_streams.sweeping import instant, open_sweep
from pelops.redis_streams.transport import Part
from tests.integration.redis_door import connected, endpoint_of, provision
from tests.properties.stream_model import (
    LETTER_FIELDS,
    Act,
    Letter,
    Pairs,
    Pending,
    Rule,
    StreamModel,
)

Answer = TypeVar("Answer")
GRID_MS: Final = 100_000  # between two deliveries
NAMES: Final = ("a", "b:\x00é", "c")
CONSUMERS = st.sampled_from(NAMES)
ODD_COUNTS = [b"banana", b"", b"nan", b"-5", b"0x10", b"1e400", b"999", b"0", b"1234567", b" 1"]
STALE: Final = "9-9 1-1"
REASONS: Final = recovery.Reasons(reason="MaxRetriesExceeded", error="it failed")
_NUMBERS = count()

names = st.sampled_from([b"_original_id", b"_retry_count", b"", b"f", b"f"]) | st.binary(max_size=6)
values = st.binary(max_size=12) | st.sampled_from([b"1-1", b"5-0"])
plain = st.lists(st.tuples(names, values), min_size=1, max_size=4).map(
    lambda pairs: tuple(part for pair in pairs for part in pair)
)
marked = st.tuples(
    plain,
    st.sampled_from([b"1-1", b"banana", b"18446744073709551615-1", b"7"]),
    st.sampled_from([*ODD_COUNTS, b"2"]),
).map(lambda parts: (*parts[0], b"_original_id", parts[1], b"_retry_count", parts[2]))
wide = st.sampled_from([3_898, 3_900, 3_901, 3_998, 4_500]).map(lambda pairs: (b"f", b"v") * pairs)


class Door:
    """The operator's door to one server, for rules that are no coroutines."""

    def __init__(self, servers: RedisServers) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = connected(endpoint_of(servers))
        self.server: Server = self.wait(self._connection.__aenter__())

    def wait(self, answer: Coroutine[Any, Any, Answer]) -> Answer:
        """The answer of a coroutine."""
        return self._loop.run_until_complete(answer)

    def ask(self, *words: Part) -> Any:
        """The reply to a command."""
        return self.wait(self.server.execute(*words))

    def close(self) -> None:
        """End the connections."""
        self.wait(self._connection.__aexit__(None, None, None))
        self._loop.close()


class RecoveryMachine(RuleBasedStateMachine):
    """Workers, users and two operators at one group."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self.door = door
        self.keys: GroupKeys = derive_keys(f"stream-{next(_NUMBERS)}", "g")
        self.model = StreamModel(group="g")
        self.deliveries = 0
        self.base_ms = 0

    @initialize()
    def provision(self) -> None:
        self.door.wait(provision(self.door.server, self.keys))
        seconds, _ = self.door.ask("TIME")
        self.base_ms = int(seconds) * 1000 - 10**9

    # -- what workers and users do

    @rule(pairs=plain | marked)
    def add(self, pairs: Pairs) -> None:
        entry_id = parse_entry_id(self.door.ask("XADD", self.keys.stream, "*", *pairs))
        self.model.add(entry_id, pairs)

    @rule(pairs=wide)
    @precondition(lambda self: sum(map(len, self.model.bodies.values())) < 30_000)
    def add_wide(self, pairs: Pairs) -> None:
        self.add(pairs)

    @rule(consumer=CONSUMERS, number=st.integers(1, 6))
    def deliver(self, consumer: str, number: int) -> None:
        self._join(consumer)
        read = ("XREADGROUP", "GROUP", "g", consumer, "COUNT", number, "STREAMS")
        self.door.ask(*read, self.keys.stream, ">")
        given = self.model.undelivered()[:number]
        self.model.deliver(given, consumer, self._age(consumer, given))

    @rule(data=st.data())
    @precondition(lambda self: self.model.pending)
    def acknowledge(self, data: st.DataObject) -> None:
        entry_id = self._some_pending(data)
        self.door.ask("XACK", self.keys.stream, "g", str(entry_id))
        self.model.acknowledge(entry_id)

    @rule(data=st.data(), consumer=CONSUMERS)
    @precondition(lambda self: self.model.pending)
    def claim(self, data: st.DataObject, consumer: str) -> None:
        entry_id = self._some_pending(data)
        if entry_id not in self.model.bodies:
            return  # Redis would drop it
        self.door.ask("XCLAIM", self.keys.stream, "g", consumer, 0, str(entry_id))
        self.model.consumers.add(consumer)
        held = self.model.pending[entry_id]
        delivered_ms = self._age(consumer, [entry_id])
        self.model.pending[entry_id] = Pending(consumer, delivered_ms, held.deliveries + 1)

    @rule(consumer=CONSUMERS)
    def read_history(self, consumer: str) -> None:
        """A worker that starts again reads what it holds: delivered anew."""
        own = self.model.held_by(consumer)
        if not self.model.bodies.keys() >= set(own):
            return  # versions differ in what they count for an entry without a body
        self._join(consumer)
        read = ("XREADGROUP", "GROUP", "g", consumer, "STREAMS", self.keys.stream, "0")
        self.door.ask(*read)
        delivered_ms = self._age(consumer, own)
        for entry_id in own:
            held = self.model.pending[entry_id]
            self.model.pending[entry_id] = Pending(consumer, delivered_ms, held.deliveries + 1)

    @rule(data=st.data())
    @precondition(lambda self: self.model.bodies)
    def delete_body(self, data: st.DataObject) -> None:
        entry_id = data.draw(st.sampled_from(sorted(self.model.bodies)))
        self.door.ask("XDEL", self.keys.stream, str(entry_id))
        del self.model.bodies[entry_id]
        if entry_id > self.model.position:
            self.model.deleted.add(entry_id)

    @rule(consumer=CONSUMERS, data=st.data())
    def mark(self, consumer: str, data: st.DataObject) -> None:
        """An SDK worker says what it has started."""
        own = self.model.held_by(consumer)
        started = set(data.draw(st.lists(st.sampled_from(own), max_size=3))) if own else set()
        words = " ".join(map(str, started))
        self.door.ask("HSET", self.keys.started, consumer, words)
        self.model.marks[consumer] = started

    # -- what operators do

    @rule(
        owner=CONSUMERS,
        after=st.integers(-1, 12),
        is_charged=st.booleans(),
        stages=st.booleans(),
        moves=st.booleans(),
        batch=st.sampled_from([1, 2, 3, 100]),
        charge_from=st.none() | st.integers(0, 8),
        held_before=st.none() | st.integers(0, 8),
    )
    def recover_owner(
        self,
        owner: str,
        after: int,
        is_charged: bool,
        stages: bool,
        moves: bool,
        batch: int,
        charge_from: int | None,
        held_before: int | None,
    ) -> None:
        """Rule A1: only what was delivered strictly before the cut."""
        cut_ms = self._ms(after)
        least_ms = 0 if held_before is None else self._ms(held_before)
        wanted = Rule(
            owner=owner,
            is_free=lambda _, held: least_ms <= held.delivered_ms < cut_ms,
            is_charged=is_charged,
            charge_from_ms=0 if charge_from is None else self._ms(charge_from),
            stages_first=stages,
            moves=moves,
        )
        order = self._order(wanted, held_before)
        moved, suspects = self.model.predict(wanted)
        batches = self.door.wait(self._all_batches(order, instant(cut_ms), batch))
        assert {one.entry_id for part in batches for one in part.suspects} == suspects
        assert sum(part.moved + part.gone for part in batches) == len(moved)
        self._take(moved)

    @rule(
        owner=CONSUMERS,
        after=st.integers(-1, 12),
        is_charged=st.booleans(),
        locks=st.booleans(),
        data=st.data(),
    )
    def recover_ids(
        self, owner: str, after: int, is_charged: bool, locks: bool, data: st.DataObject
    ) -> None:
        """What has been idle for so long, save what is locked; also IDs that mean nothing."""
        known = sorted({*self.model.pending, *self.model.bodies, EntryId(1, 1)})
        ids = data.draw(st.lists(st.sampled_from(known), max_size=8))
        locked = {one for one in ids if locks and one.seq % 2}
        for one in locked:
            self.door.ask("SET", self._lock(one), "held", "PX", 5_000)
        newest_ms = self._ms(after) - GRID_MS // 2
        wanted = Rule(
            owner=owner,
            is_free=lambda one, held: (
                held.delivered_ms < newest_ms and one in ids and one not in locked
            ),
            is_charged=is_charged,
            charge_from_ms=0,
            stages_first=False,
            moves=True,
        )
        moved, suspects = self.model.predict(wanted)
        done = self.door.wait(
            recovery.recover_entries(
                self.door.server,
                self._act(),
                self._order(wanted, None),
                [(one, self._idle_since(newest_ms)) for one in ids],
                locks=[self._lock(one) for one in ids] if locks else [],
            )
        )
        assert {one.entry_id for one in done.suspects} == suspects
        assert done.moved + done.gone == len(moved)
        self._take(moved)

    @rule(
        owner=CONSUMERS, after=st.integers(-1, 12), data=st.data(), batch=st.sampled_from([2, 100])
    )
    def settle(self, owner: str, after: int, data: st.DataObject, batch: int) -> None:
        """What was decided on an outdated chunk is refused, and nothing is done."""
        plan, owned = self._draw_plan(owner, after, data, [*Action])
        items = [(one.entry_id, one.action, one.charges) for one in owned.settlements]
        moved = self.model.predict_settled(owner, self._ms(after), items)
        act = self._act(batch)
        settle = recovery.settle_suspects(self.door.server, act, plan, owned, reasons=REASONS)
        if plan.chunk.written == STALE:
            with pytest.raises(ChunkChanged):
                self.door.wait(settle)
            return
        done = self.door.wait(settle)
        assert done.copied + done.dead == len(moved)
        copies = self._take(moved)
        retried = {one for one, action, _ in items if action is Action.RETRY}
        members = [copies[one] for one in moved if one in retried]
        self.model.chunk = sorted([*plan.kept, *members])

    @rule(owner=CONSUMERS, after=st.integers(-1, 12), data=st.data())
    def hand_over(self, owner: str, after: int, data: st.DataObject) -> None:
        """An offer changes nothing in the stream or the group."""
        plan, owned = self._draw_plan(owner, after, data, [Action.RETRY, Action.FREE])
        offer = recovery.hand_over(self.door.server, self._act(), plan, owned, reason="offered")
        if plan.chunk.written == STALE:
            with pytest.raises(ChunkChanged):
                self.door.wait(offer)
            return
        items = [(one.entry_id, Action.FREE, 0) for one in owned.settlements]
        there = [
            one
            for one, _, _ in items
            if (held := self.model.pending.get(one)) is not None
            and held.owner == owner
            and held.delivered_ms < self._ms(after)
            and one in self.model.bodies
        ]
        assert self.door.wait(offer).copied == len(set(there))
        self.model.offers += len(set(there))
        tried = {one.entry_id for one in owned.settlements if one.action is Action.RETRY}
        self.model.chunk = sorted({*plan.kept, *(tried & set(there))})

    @rule(consumer=st.sampled_from([*NAMES, "nobody"]))
    def remove(self, consumer: str) -> None:
        """Invariant 5: a consumer with pending entries is never deleted."""
        owns = bool(self.model.held_by(consumer))
        is_there = consumer in self.model.consumers
        is_gone = self.door.wait(remove_consumer(self.door.server, self._act(), consumer))
        assert is_gone == (is_there and not owns)
        if is_gone:
            self.model.consumers.discard(consumer)
            self.model.marks.pop(consumer, None)
            self.model.removed.append(consumer)

    @rule(owner=CONSUMERS)
    def recover_beside_another_group(self, owner: str) -> None:
        """Rule B5: nobody else is given a copy. The check comes after the look."""
        self.door.ask("XGROUP", "CREATE", self.keys.stream, "other", "0")
        wanted = Rule(
            owner=owner,
            is_free=lambda *_: True,
            is_charged=True,
            charge_from_ms=0,
            stages_first=False,
            moves=True,
        )
        with pytest.raises(WouldDuplicate):
            cut = instant(self._ms(10_000))
            self.door.wait(self._all_batches(self._order(wanted, None), cut, 100))
        self.door.ask("XGROUP", "DESTROY", self.keys.stream, "other")

    @rule()
    def look(self) -> None:
        """Copies that are not resolved are under way, and no others."""
        sight = self.door.wait(
            open_sweep(self.door.server, self.keys, uid="uid-1", due=timedelta(), with_retry=False)
        )
        assert not hasattr(sight, "swept_at")
        waiting = {*self.model.pending, *self.model.undelivered()}
        assert sight.chunk.under_way == {one for one in self.model.chunk if one in waiting}

    # -- what always holds

    @invariant()
    def nothing_is_lost(self) -> None:
        """Invariant 1: each entry is undelivered, pending, acknowledged or a dead letter, or has
        one copy of which the same is true.
        """
        assert self.model.find_lost() == []

    @invariant()
    def the_stream_holds_what_the_model_holds(self) -> None:
        """The user's pairs byte for byte; a copy for each acknowledgement."""
        found = self.door.ask("XRANGE", self.keys.stream, "-", "+")
        bodies = {parse_entry_id(one): tuple(pairs) for one, pairs in found}
        assert bodies == self.model.bodies

    @invariant()
    def the_group_holds_what_the_model_holds(self) -> None:
        """Invariant 4: the position is the workers' own. What the cut protects stays."""
        (reply,) = self.door.ask("XINFO", "GROUPS", self.keys.stream)
        group = dict(zip(reply[::2], reply[1::2], strict=True))
        assert parse_entry_id(group[b"last-delivered-id"]) == self.model.position
        found = self.door.ask("XPENDING", self.keys.stream, "g", "-", "+", 1_000)
        pending = {parse_entry_id(one): (owner.decode(), number) for one, owner, _, number in found}
        assert pending == {
            one: (held.owner, held.deliveries) for one, held in self.model.pending.items()
        }
        consumers = self.door.ask("XINFO", "CONSUMERS", self.keys.stream, "g")
        assert {reply[1].decode() for reply in consumers} == self.model.consumers

    @invariant()
    def dead_letters_are_whole(self) -> None:
        found = self.door.ask("XRANGE", self.keys.dead_letter, "-", "+")
        letters = [_parse_letter(pairs) for _, pairs in found]
        assert sorted(letters, key=repr) == sorted(self.model.letters, key=repr)

    @invariant()
    def the_ledger_tells_each_act_once(self) -> None:
        """And the totals are the ledger's."""
        acts, removed, offers = [], [], 0
        for event in self._ledger():
            acts += _parse_acts(event) if event.kind != "released" else []
            offers += len(event.entries) if event.kind == "released" else 0
            removed += [event.details["consumer"]] if event.kind == "consumer-removed" else []
        assert sorted(acts, key=repr) == sorted(self.model.acts, key=repr)
        assert removed == self.model.removed
        assert offers == self.model.offers
        kinds = ("requeued", "released", "dead_lettered", "payload_gone")
        totals = self.door.ask("HMGET", self.keys.state, *(f"total:{kind}" for kind in kinds))
        counted = [sum(act.kind == kind.replace("_", "-") for act in acts) for kind in kinds]
        counted[1] = offers
        assert [int(total or 0) for total in totals] == counted

    def teardown(self) -> None:
        derived = [key for key in self.keys.derived()]
        self.door.ask("DEL", self.keys.stream, *derived)

    # -- between both

    def _ms(self, tick: int) -> int:
        return self.base_ms + tick * GRID_MS

    def _join(self, consumer: str) -> None:
        """Make a consumer, as reading does on some versions also when there is nothing."""
        self.door.ask("XGROUP", "CREATECONSUMER", self.keys.stream, "g", consumer)
        self.model.consumers.add(consumer)

    def _age(self, consumer: str, entry_ids: list[EntryId]) -> int:
        """Put a delivery onto the grid, as if it lay back so long; its time."""
        delivered_ms = self._ms(self.deliveries)
        if entry_ids:
            self.deliveries += 1
            ids = [str(one) for one in entry_ids]
            claim: list[Part] = ["XCLAIM", self.keys.stream, "g", consumer, 0, *ids]
            self.door.ask(*claim, "TIME", delivered_ms, "JUSTID")
        return delivered_ms

    def _some_pending(self, data: st.DataObject) -> EntryId:
        return data.draw(st.sampled_from(sorted(self.model.pending)))

    def _idle_since(self, moment_ms: int) -> timedelta:
        seconds, _ = self.door.ask("TIME")
        return timedelta(milliseconds=int(seconds) * 1000 - moment_ms)

    def _lock(self, entry_id: EntryId) -> str:
        return f"lock:{{{self.keys.tag}}}:{entry_id}"

    def _act(self, batch: int = 100) -> recovery.Act:
        return recovery.Act(
            keys=self.keys,
            source=self.keys.stream,
            target=self.keys.stream,
            uid="uid-1",
            field_prefix="_",
            batch=batch,
            actor="replica-1",
            trigger="sweep",
            allows_others=False,
        )

    def _order(self, wanted: Rule, held_before: int | None) -> recovery.Order:
        return recovery.Order(
            owner=wanted.owner,
            reason="it died",
            is_charged=wanted.is_charged,
            charge_from=_moment(wanted.charge_from_ms),
            held_before=None if held_before is None else _moment(self._ms(held_before)),
            stages_first=wanted.stages_first,
            moves=wanted.moves,
        )

    async def _all_batches(
        self, order: recovery.Order, cut: datetime, batch: int
    ) -> list[recovery.Recovered]:
        act = self._act(batch)
        return [one async for one in recovery.recover_owner(self.door.server, act, order, cut=cut)]

    def _draw_plan(
        self, owner: str, after: int, data: st.DataObject, actions: list[Action]
    ) -> tuple[AttemptPlan, OwnerPlan]:
        some = sorted({*self.model.pending, EntryId(1, 1)})
        one = st.builds(
            Settlement,
            entry_id=st.sampled_from(some),
            action=st.sampled_from(actions),
            charges=st.integers(1, 6),
            alone_failures=st.integers(0, 2),
        )
        drawn = data.draw(st.lists(one, max_size=6, unique_by=lambda item: item.entry_id))
        is_stale = data.draw(st.sampled_from([False, False, False, True]))
        kept = frozenset(self.model.chunk)
        present = self.door.ask("HGET", self.keys.state, "chunk") or b""
        assert set(read_ids(present.decode())) == kept
        written = STALE if is_stale else present.decode()
        owned = OwnerPlan(
            owner=owner, cut=instant(self._ms(after)), settlements=tuple(drawn), crowd=None
        )
        return (
            AttemptPlan(
                owners=(owned,),
                waiting=0,
                chunk=Chunk(written=written, under_way=kept),
                kept=kept,
                resolved=frozenset(),
            ),
            owned,
        )

    def _ledger(self) -> Iterator[LedgerEvent]:
        for entry_id, pairs in self.door.ask("XRANGE", self.keys.ledger, "-", "+"):
            named = dict(zip(pairs[::2], pairs[1::2], strict=True))
            yield parse_ledger_event(parse_entry_id(entry_id), named)

    def _take(self, moved: dict[EntryId, Act]) -> dict[EntryId, EntryId]:
        """Take over what the ledger says that the last act made; where each entry went."""
        known = {act.entry_id for act in self.model.acts}
        told = {
            entry.entry_id: (entry.new_id, event.details["reason"])
            for event in self._ledger()
            for entry in event.entries
            if event.kind != "released" and entry.entry_id not in known
        }
        assert told.keys() == moved.keys()
        for entry_id, act in moved.items():
            new_id, reason = told[entry_id]
            assert new_id is not None
            self.model.apply(act, new_id, reason)
        return {one: new for one, (new, _) in told.items() if new is not None}


def _moment(ms: int) -> datetime | None:
    return instant(ms) if ms else None


def _parse_acts(event: LedgerEvent) -> list[Act]:
    return [
        Act(
            kind=event.kind,
            consumer=event.details["consumer"],
            entry_id=entry.entry_id,
            root=entry.root_id,
            retries=entry.retry_count,
            deliveries=entry.deliveries,
        )
        for entry in event.entries
    ]


def _parse_letter(pairs: list[bytes]) -> Letter:
    own, told = tuple(pairs[: -2 * len(LETTER_FIELDS)]), pairs[-2 * len(LETTER_FIELDS) :]
    assert [name.decode() for name in told[::2]] == [f"_{name}" for name in LETTER_FIELDS]
    fields = dict(zip(LETTER_FIELDS, told[1::2], strict=True))
    return Letter(
        pairs=own,
        root=parse_entry_id(fields["original_id"]),
        consumer=fields["consumer"].decode(),
        deliveries=int(fields["delivery_count"]),
        retries=int(fields["retry_count"]),
        reason=fields["reason"].decode(),
    )


def test_recovery_does_what_the_model_says(any_redis: StandaloneServers) -> None:
    """Invariants 1, 3, 4, 5, 9 and rules A1, B2, B3, B5, whatever happens in whatever order."""
    with ExitStack() as ended:
        door = Door(any_redis)
        ended.callback(door.close)
        run_state_machine_as_test(
            partial(RecoveryMachine, door),  # type: ignore[arg-type]  # anything that makes one
            settings=settings(
                max_examples=40,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
