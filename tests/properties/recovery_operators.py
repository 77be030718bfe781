"""What operators do at a group, each time as the model foretells."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import Action, RetryBatch, read_ids
from pelops.errors import RetryBatchChanged, WouldDuplicate
from pelops.policy.recovery.attempts import AttemptPlan, OwnerPlan, Settlement
from pelops.redis_streams.recovery import stuck_entries as recovery
from pelops.redis_streams.recovery import suspects
from pelops.redis_streams.recovery.consumers import remove_consumer
from pelops.redis_streams.recovery.scan_calls import open_scan
from pelops.scripts.parts import read_moment
from tests.properties.recovery_stage import CONSUMERS, GRID_MS, NAMES, RecoveryStage
from tests.properties.stream_model import Rule

STALE: Final = "9-9 1-1"
LETTER: Final = {"reason": "MaxRetriesExceeded", "error": "it failed"}


class Operators(RecoveryStage):
    """The actions of operators. Each result must be the one that the model predicts."""

    @rule(
        owner=CONSUMERS,
        after=st.integers(-1, 12),
        counts_attempt=st.booleans(),
        stages=st.booleans(),
        recovers=st.booleans(),
        batch=st.sampled_from([1, 2, 3, 100]),
        count_from=st.none() | st.integers(0, 8),
        delay_before=st.none() | st.integers(0, 8),
    )
    def recover_owner(
        self,
        owner: str,
        after: int,
        counts_attempt: bool,
        stages: bool,
        recovers: bool,
        batch: int,
        count_from: int | None,
        delay_before: int | None,
    ) -> None:
        """Rule A1: only what was delivered strictly before the cutoff."""
        cutoff_ms = self._ms(after)
        least_ms = 0 if delay_before is None else self._ms(delay_before)
        wanted = Rule(
            owner=owner,
            is_free=lambda _, held: least_ms <= held.delivered_ms < cutoff_ms,
            counts_attempt=counts_attempt,
            count_from_ms=0 if count_from is None else self._ms(count_from),
            stages_first=stages,
            recovers=recovers,
        )
        order = self._order(wanted, delay_before)
        moved, suspects = self.model.predict(wanted)
        batches = self.adapter.wait(self._all_batches(order, read_moment(cutoff_ms), batch))
        assert {one.entry_id for part in batches for one in part.suspects} == suspects
        assert sum(part.moved + part.gone for part in batches) == len(moved)
        self._take(moved)

    @rule(
        owner=CONSUMERS,
        after=st.integers(-1, 12),
        counts_attempt=st.booleans(),
        locks=st.booleans(),
        data=st.data(),
    )
    def recover_ids(
        self, owner: str, after: int, counts_attempt: bool, locks: bool, data: st.DataObject
    ) -> None:
        """Recover entries that are idle for long enough and not locked; unknown IDs are ignored."""
        ids = data.draw(st.lists(st.sampled_from(self._some_ids(owner)), max_size=8))
        locked = {*ids[::2]} if locks else set()
        for one in locked:
            self.adapter.ask("SET", self._lock(one), "held")
        newest_ms = self._ms(after) - GRID_MS // 2
        wanted = Rule(
            owner=owner,
            is_free=lambda one, held: (
                held.delivered_ms < newest_ms and one in ids and one not in locked
            ),
            counts_attempt=counts_attempt,
            count_from_ms=0,
            stages_first=False,
            recovers=True,
        )
        moved, suspects = self.model.predict(wanted)
        done = self.adapter.wait(
            recovery.recover_entries(
                self.adapter.server,
                self._act(),
                self._order(wanted, None),
                [(one, self._idle_since(newest_ms)) for one in ids],
                locks=[self._lock(one) for one in ids] if locks else [],
            )
        )
        for one in locked:
            self.adapter.ask("DEL", self._lock(one))
        assert {one.entry_id for one in done.suspects} == suspects
        assert done.moved + done.gone == len(moved)
        self._take(moved)

    @rule(
        owner=CONSUMERS, after=st.integers(-1, 12), data=st.data(), batch=st.sampled_from([2, 100])
    )
    def settle(self, owner: str, after: int, data: st.DataObject, batch: int) -> None:
        """A decision on an outdated retry batch is refused, and nothing is written."""
        plan, owned = self._draw_plan(owner, after, data, [*Action])
        items = [(one.entry_id, one.action, one.attempts) for one in owned.settlements]
        moved = self.model.predict_settled(owner, self._ms(after), items)
        act = self._act(batch)
        settle = suspects.settle_suspects(self.adapter.server, act, plan, owned, **LETTER)
        if plan.retry_batch.written == STALE:
            with pytest.raises(RetryBatchChanged):
                self.adapter.wait(settle)
            return
        done = self.adapter.wait(settle)
        assert done.copied + done.dead == len(moved)
        copies = self._take(moved)
        retried = {one for one, action, _ in items if action is Action.RETRY}
        members = [copies[one] for one in moved if one in retried]
        self.model.retry_batch = sorted([*plan.kept, *members])

    @rule(owner=CONSUMERS, after=st.integers(-1, 12), data=st.data())
    def offer_entries(self, owner: str, after: int, data: st.DataObject) -> None:
        """An offer changes nothing in the stream or the group, and a delivery is offered once."""
        plan, owned = self._draw_plan(owner, after, data, [Action.RETRY, Action.FREE])
        offer = suspects.offer_entries(
            self.adapter.server, self._act(), plan, owned, reason="offered"
        )
        if plan.retry_batch.written == STALE:
            with pytest.raises(RetryBatchChanged):
                self.adapter.wait(offer)
            return
        items = [(one.entry_id, Action.FREE, 0) for one in owned.settlements]
        there = [
            one
            for one, _, _ in items
            if (held := self.model.pending.get(one)) is not None
            and held.owner == owner
            and held.delivered_ms < self._ms(after)
            and self.model.offered.get(one) != held.delivered_ms
        ]
        self.model.offered |= {one: self.model.pending[one].delivered_ms for one in there}
        assert self.adapter.wait(offer).copied == len(set(there))
        self.model.offers += len(set(there))
        tried = {one.entry_id for one in owned.settlements if one.action is Action.RETRY}
        self.model.retry_batch = sorted({*plan.kept, *(tried & set(there))})

    @rule(consumer=st.sampled_from([*NAMES, "nobody"]))
    def remove(self, consumer: str) -> None:
        """Invariant 5: a consumer with pending entries is never deleted."""
        owns = bool(self.model.held_by(consumer))
        is_there = consumer in self.model.consumers
        is_gone = self.adapter.wait(remove_consumer(self.adapter.server, self._act(), consumer))
        assert is_gone == (is_there and not owns)
        if is_gone:
            self.model.consumers.discard(consumer)
            self.model.marks.pop(consumer, None)
            self.model.removed.append(consumer)

    @rule(owner=CONSUMERS)
    def recover_beside_another_group(self, owner: str) -> None:
        """Rule B5: no other group is given a copy. The script refuses to write one."""
        self.adapter.ask("XGROUP", "CREATE", self.keys.stream, "other", "0")
        wanted = Rule(
            owner=owner,
            is_free=lambda *_: True,
            counts_attempt=True,
            count_from_ms=0,
            stages_first=False,
            recovers=True,
        )
        with pytest.raises(WouldDuplicate):
            cutoff = read_moment(self._ms(10_000))
            self.adapter.wait(self._all_batches(self._order(wanted, None), cutoff, 100))
        self.adapter.ask("XGROUP", "DESTROY", self.keys.stream, "other")

    @rule()
    def look(self) -> None:
        """Copies that are not resolved are under way, and no others."""
        observation = self.adapter.wait(
            open_scan(
                self.adapter.server, self.keys, uid="uid-1", due=timedelta(), with_retry=False
            )
        )
        assert not hasattr(observation, "scanned_at")
        waiting = {*self.model.pending, *self.model.undelivered()}
        assert observation.retry_batch.under_way == {
            one for one in self.model.retry_batch if one in waiting
        }

    def _some_ids(self, owner: str) -> list[EntryId]:
        """Mostly those that the owner holds, and all others that there are or are not."""
        held = self.model.held_by(owner)
        known = {*self.model.pending, *self.model.bodies, EntryId(1, 1)} - {*held}
        return [*held, *held, *held, *sorted(known)]

    def _idle_since(self, moment_ms: int) -> timedelta:
        seconds, _ = self.adapter.ask("TIME")
        return timedelta(milliseconds=int(seconds) * 1000 - moment_ms)

    def _lock(self, entry_id: EntryId) -> str:
        return f"lock:{{{self.keys.tag}}}:{entry_id}"

    def _order(self, wanted: Rule, delay_before: int | None) -> recovery.RecoveryOrder:
        return recovery.RecoveryOrder(
            owner=wanted.owner,
            reason="it died",
            counts_attempt=wanted.counts_attempt,
            count_from=_moment(wanted.count_from_ms),
            delay_before=None if delay_before is None else _moment(self._ms(delay_before)),
            stages_first=wanted.stages_first,
            recovers=wanted.recovers,
        )

    async def _all_batches(
        self, order: recovery.RecoveryOrder, cutoff: datetime, batch: int
    ) -> list[recovery.Recovered]:
        act = self._act(batch)
        return [
            one
            async for one in recovery.recover_owner(self.adapter.server, act, order, cutoff=cutoff)
        ]

    def _draw_plan(
        self, owner: str, after: int, data: st.DataObject, actions: list[Action]
    ) -> tuple[AttemptPlan, OwnerPlan]:
        one = st.builds(
            Settlement,
            entry_id=st.sampled_from(self._some_ids(owner)),
            action=st.sampled_from(actions),
            attempts=st.integers(1, 6),
            isolated_failures=st.integers(0, 2),
        )
        drawn = data.draw(st.lists(one, max_size=6, unique_by=lambda item: item.entry_id))
        is_stale = data.draw(st.sampled_from([False, False, False, True]))
        kept = frozenset(self.model.retry_batch)
        present = self.adapter.ask("HGET", self.keys.state, "chunk") or b""
        assert set(read_ids(present.decode())) == kept
        written = STALE if is_stale else present.decode()
        owned = OwnerPlan(
            owner=owner,
            cutoff=read_moment(self._ms(after)),
            settlements=tuple(drawn),
            co_failed=None,
        )
        return (
            AttemptPlan(
                owners=(owned,),
                waiting=0,
                retry_batch=RetryBatch(written=written, under_way=kept),
                kept=kept,
                resolved=frozenset(),
            ),
            owned,
        )


def _moment(ms: int) -> datetime | None:
    return read_moment(ms) if ms else None
