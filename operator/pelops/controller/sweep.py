"""One sweep of one group: who died, what is stuck with them, and what becomes of it.

    owners      consumers with pending entries; the pods behind them are asked about
    dead        everything they were delivered before the cut moves now
    idle        what has been idle past the limit moves, whoever owns it
    suspects    what failed before is separated, one chunk at a time
    consumers   of dead pods go once they own nothing

Nothing here is needed twice and nothing is lost when the process dies between two lines: the next
sweep, of any replica, finds what is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pelops.api.recovery import RecoverySpec, RecoveryStrategy
from pelops.controller.evidence import Judgement
from pelops.controller.findings import Findings
from pelops.domain.entry_id import EntryId
from pelops.domain.liveness import Death, LivenessReason
from pelops.domain.locks import lock_key
from pelops.domain.recovery import (
    Action,
    LetterReason,
    PendingEntry,
    StreamSight,
    SweepSight,
    Verdict,
)
from pelops.errors import ChunkChanged
from pelops.policy.attempts import AttemptPlan, Crash, OwnerPlan, plan_attempts
from pelops.policy.recovery import (
    IdleLimits,
    decide_idle_limits,
    decide_rules,
    is_charged,
)
from pelops.redis_streams.acting import Act
from pelops.redis_streams.recovery import Order, Recovered, recover_entries, recover_owner
from pelops.redis_streams.server import Server
from pelops.redis_streams.suspects import Reasons, Settled, hand_over, settle_suspects
from pelops.redis_streams.sweeping import count_dangling, find_idle

_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a sweep stands on: the group, what the resource asks for, and what was seen of it."""

    server: Server
    act: Act
    recovery: RecoverySpec
    sight: SweepSight
    stream: StreamSight  # the one that is swept
    findings: Findings
    offers_again: bool = True  # what was offered to other workers, and nobody took

    @property
    def held_before(self) -> datetime | None:
        """What was delivered earlier must stay; None: nothing must."""
        sight = self.sight
        if sight.hold_until is None or sight.now >= sight.hold_until:
            return None
        return sight.hold_before


class StreamSweep:
    """The sweep of one stream of a group: the stream itself, or its retry stream."""

    def __init__(self, ground: Ground, judgements: dict[str, Judgement]) -> None:
        self._ground = ground
        self._judgements = judgements
        self._rules = decide_rules(ground.recovery)
        self._limits: IdleLimits = decide_idle_limits(ground.recovery)
        self._crashes: list[Crash] = []

    @property
    def crashes(self) -> list[Crash]:
        """Who failed, and the suspects that they left."""
        return self._crashes

    async def recover_dead(self) -> None:
        """Move what dead owners were delivered before their cut."""
        for owner, judgement in self._judgements.items():
            if judgement.cut.at is not None:
                await self._recover_owner(owner, judgement, judgement.cut.at)

    async def recover_idle(self) -> None:
        """Move what has been idle past the limit of its owner."""
        ground = self._ground
        pages = find_idle(
            ground.server, ground.stream, ground.act.keys.group, idle=self._limits.smallest
        )
        async for found, _ in pages:
            by_owner: dict[str, list[PendingEntry]] = defaultdict(list)
            for entry in found:
                by_owner[entry.owner].append(entry)
            for owner, entries in by_owner.items():
                if owner or ground.recovery.strategy is RecoveryStrategy.REQUEUE:
                    await self._recover_idle_of(owner, entries)

    async def look_for_dangling(self) -> None:
        """Note entries that lost their bodies while a worker holds them.

        They are that worker's still, and it may finish them. But a worker that claims would drop
        them without a word, so they are told of before.
        """
        ground = self._ground
        group = ground.act.keys.group
        dangling = await count_dangling(ground.server, ground.stream, group)
        if dangling:
            ground.findings.dangling += dangling
            ground.findings.lowest_dangling = ground.stream.lowest_pending

    async def _recover_owner(self, owner: str, judgement: Judgement, cut: datetime) -> None:
        order = self._order(owner, judgement.cut.message, judgement.cut.death)
        batches = [batch async for batch in self._move_all(order, cut)]
        for batch in batches:
            self._ground.findings.take(owner, judgement.cut, batch)
            self._ground.findings.young += batch.count(Verdict.TOO_YOUNG)
            self._note_waits(batch)
        self._keep_suspects(owner, batches, cut, judgement.cut.death)

    async def _move_all(self, order: Order, cut: datetime) -> AsyncIterator[Recovered]:
        """Everything that the owner was delivered before the cut, but for what a lock keeps."""
        ground = self._ground
        if ground.recovery.locks is None:
            async for batch in recover_owner(ground.server, ground.act, order, cut=cut):
                yield batch
            return
        # The locks must be named with the script that moves: first see what there is.
        look = replace(order, moves=False)
        async for seen in recover_owner(ground.server, ground.act, look, cut=cut):
            ids = [(one.entry_id, timedelta()) for one in seen.suspects]
            yield replace(seen, suspects=())
            if ids:
                yield await self._recover_ids(order, ids, cut=cut)

    async def _recover_idle_of(self, owner: str, entries: Sequence[PendingEntry]) -> None:
        judgement = self._judgements.get(owner)
        is_unknown = judgement is None or judgement.match.is_unknown
        limit = self._limits.limit(is_unknown=is_unknown, is_unowned=not owner)
        stuck = [entry for entry in entries if entry.idle >= limit or not owner]
        self._ground.findings.skipped += len(entries) - len(stuck)
        known = {one.entry_id for crash in self._crashes for one in crash.suspects}
        stuck = [entry for entry in stuck if entry.entry_id not in known]
        death = _death_of_idle(judgement)
        order = self._order(owner, f"idle for more than {limit.total_seconds():g} s", death)
        size = self._ground.act.batch
        batches = []
        for start in range(0, len(stuck), size):
            ids = [(entry.entry_id, limit) for entry in stuck[start : start + size]]
            batch = await self._recover_ids(order, ids)
            self._ground.findings.take(owner, None, batch)
            self._note_waits(batch)
            batches.append(batch)
        newest = max((s.delivered for b in batches for s in b.suspects), default=None)
        if newest is not None:
            self._keep_suspects(owner, batches, newest + _TICK, death)

    async def _recover_ids(
        self,
        order: Order,
        ids: list[tuple[EntryId, timedelta]],
        *,
        cut: datetime | None = None,
    ) -> Recovered:
        ground, locks = self._ground, self._ground.recovery.locks
        names = (
            [lock_key(locks.key_template, ground.act.keys, entry_id) for entry_id, _ in ids]
            if locks
            else []
        )
        batch = await recover_entries(ground.server, ground.act, order, ids, cut=cut, locks=names)
        locked = [
            name
            for name, (entry_id, _) in zip(names, ids, strict=False)
            if (entry_id, Verdict.LOCKED) in batch.stays
        ]
        ground.findings.locked += locked
        return batch

    def _order(self, owner: str, reason: str, death: Death) -> Order:
        ground = self._ground
        return Order(
            owner=owner,
            reason=reason,
            is_charged=is_charged(death),
            charge_from=ground.sight.master_since,
            held_before=ground.held_before,
            stages_first=self._rules.max_retries == 0,
            wait=self._rules.backoff.after(1),
            moves=ground.recovery.strategy is RecoveryStrategy.REQUEUE,
        )

    def _note_waits(self, batch: Recovered) -> None:
        """What waits for its first backoff: the next sweep comes when it is over."""
        if any(verdict is Verdict.WAITING for _, verdict in batch.stays):
            self._ground.findings.earliest = self._rules.backoff.after(1)

    def _keep_suspects(
        self, owner: str, batches: Sequence[Recovered], cut: datetime, death: Death
    ) -> None:
        # Batches that were asked for together may have answered the same entries.
        suspects = {one.entry_id: one for batch in batches for one in batch.suspects}
        if suspects:
            crowds = [batch.crowd for batch in batches if batch.crowd is not None]
            self._crashes.append(
                Crash(
                    owner=owner,
                    cut=cut,
                    death=death,
                    suspects=tuple(suspects.values()),
                    crowd=max(crowds, default=None),
                )
            )


def _death_of_idle(judgement: Judgement | None) -> Death:
    """How the owner of idle entries failed: charged always, but an end may explain it better.

    A worker that lives has failed on its own; one that was killed may just have held them.
    """
    if judgement is None or judgement.match.is_unknown:
        return Death.CRASHED
    is_alive = judgement.cut.reason is LivenessReason.ALIVE
    return Death.KILLED if judgement.cut.death is Death.KILLED and not is_alive else Death.CRASHED


async def settle(ground: Ground, crashes: Sequence[Crash]) -> None:
    """Decide about all suspects of a group together, and do what is to be done now."""
    rules = decide_rules(ground.recovery)
    if not ground.offers_again:
        crashes = [_without_offered(crash) for crash in crashes]
    plan = plan_attempts(crashes, ground.sight.chunk, rules, now=ground.sight.now)
    ground.findings.waiting += plan.waiting
    ground.findings.under_way += len(plan.kept)
    try:
        for owner in plan.owners:
            plan = await _settle_owner(ground, plan, owner)
    except ChunkChanged:
        ground.findings.waiting += 1  # another replica was faster; the next look sees what is left


def _without_offered(crash: Crash) -> Crash:
    return replace(crash, suspects=tuple(one for one in crash.suspects if not one.was_offered))


async def _settle_owner(ground: Ground, plan: AttemptPlan, owner: OwnerPlan) -> AttemptPlan:
    releases = ground.recovery.strategy is RecoveryStrategy.RELEASE
    dead, rest = _split(owner) if releases else (owner, None)
    if dead is not None and (dead.settlements or dead.crowd):
        reasons = _reasons(ground, dead)
        done = await settle_suspects(ground.server, ground.act, plan, dead, reasons=reasons)
        _count(ground, dead, done)
        plan = plan.after(done.chunk)
    if rest is not None and rest.settlements:
        done = await hand_over(
            ground.server, ground.act, plan, rest, reason="offered to workers that claim"
        )
        ground.findings.released += done.copied
        plan = plan.after(done.chunk)
    return plan


def _split(owner: OwnerPlan) -> tuple[OwnerPlan, OwnerPlan]:
    """What becomes dead letters, and what is offered to other workers."""
    dead = tuple(one for one in owner.settlements if one.action is Action.DEAD)
    rest = tuple(one for one in owner.settlements if one.action is not Action.DEAD)
    return replace(owner, settlements=dead), replace(owner, settlements=rest, crowd=None)


def _reasons(ground: Ground, owner: OwnerPlan) -> Reasons:
    locks = ground.recovery.locks
    names = (
        tuple(
            lock_key(locks.key_template, ground.act.keys, one.entry_id) for one in owner.settlements
        )
        if locks
        else ()
    )
    charges = max((one.charges for one in owner.settlements), default=0)
    return Reasons(
        reason=LetterReason.MAX_RETRIES,
        error=f"its worker failed {charges} times while it held the entry, at last alone",
        locks=names,
    )


def _count(ground: Ground, owner: OwnerPlan, done: Settled) -> None:
    ground.findings.settle(owner, done)
