"""The steps of a scan in one stream of a group.

- Offers: entries that workers have taken from the offers are counted.
- Owners: the consumers with pending entries are listed, and the pods behind them examined.
- Dead: entries that were delivered to dead workers before their cutoff are moved.
- Idle: entries that are idle longer than the processing timeout are moved, page by page.
- Suspects: entries that failed before are tried in isolation, one retry batch at a time.
- Consumers of dead pods are removed once they own no entries.

If the process ends between two steps, nothing is lost: the next scan of any replica continues.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from pelops.api.group.recovery import RecoverySpec, RecoveryStrategy
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.clock import MILLISECOND
from pelops.controller.recovery.findings import Findings
from pelops.controller.recovery.pod_evidence import ConsumerLiveness
from pelops.controller.runtime.cache import Name
from pelops.domain.entry_id import EntryId
from pelops.domain.locks import lock_key
from pelops.domain.naming import GroupKeys
from pelops.domain.quantities import render_count, render_seconds
from pelops.domain.recovery import (
    Action,
    Cutoff,
    Death,
    EntryVerdict,
    LetterReason,
    PendingEntry,
    ScanObservation,
    StreamInScan,
    Suspect,
)
from pelops.errors import RetryBatchChanged
from pelops.policy.recovery.attempts import (
    ONE_READ,
    AttemptPlan,
    Crash,
    OwnerPlan,
    Rules,
    plan_attempts,
)
from pelops.policy.recovery.processing_timeouts import (
    ProcessingTimeouts,
    counts_attempt,
    decide_idle_death,
    decide_process_since,
    decide_processing_timeouts,
    decide_rules,
)
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.consumers import LISTABLE, observe_progress
from pelops.redis_streams.recovery.scan_calls import count_dangling, find_idle, finish_scan
from pelops.redis_streams.recovery.stuck_entries import (
    Recovered,
    RecoveryOrder,
    ScanContext,
    recover_entries,
    recover_owner,
)
from pelops.redis_streams.recovery.suspects import (
    are_delivered,
    offer_entries,
    review_offers,
    settle_suspects,
)


@dataclass(slots=True, kw_only=True)
class Failure:
    """One owner's, while its batches come in."""

    owner: str
    death: Death
    suspects: dict[EntryId, Suspect] = field(default_factory=dict)
    co_failed: datetime | None = None

    def add(self, batch: Recovered) -> None:
        """Keep what was answered; batches that were asked for together may answer it twice."""
        self.suspects.update((one.entry_id, one) for one in batch.suspects)
        if batch.co_failed is not None:
            self.co_failed = max(batch.co_failed, self.co_failed or batch.co_failed)

    def split(self, since: datetime | None) -> tuple[Failure, Failure]:
        """What was delivered before, and the rest. None: all of it was before."""
        before, after = replace(self, suspects={}), replace(self, suspects={})
        for suspect in self.suspects.values():
            part = before if since is None or suspect.delivered < since else after
            part.suspects[suspect.entry_id] = suspect
        return before, after

    def crashes(
        self,
        cutoff: datetime | None = None,
        *,
        is_whole: bool = True,
        is_idle: bool = False,
        unproven_since: datetime | None = None,
        is_outdone: bool = False,
    ) -> Iterator[Crash]:
        """The crash, if there are suspects; without a cutoff it ends with the newest of them.

        `is_whole`: False if the owner may have suspects on other pages. A single suspect then
        counts as one of several. `is_idle`: the process of the owner still runs.
        """
        if not self.suspects:
            return
        end = cutoff or max(one.delivered for one in self.suspects.values()) + MILLISECOND
        yield Crash(
            owner=self.owner,
            cutoff=end,
            death=self.death,
            suspects=tuple(self.suspects.values()),
            co_failed=self.co_failed if is_whole or len(self.suspects) > 1 else end,
            is_idle=is_idle,
            unproven_since=unproven_since,
            is_outdone=is_outdone,
        )


MOST_PAGES: Final = 2_000  # of pending entries in which one scan looks for idle ones
MOST_DRY_PAGES: Final = 20_000  # the same of a dry run, which no other scan continues
AFTER_A_PART: Final = timedelta(seconds=1)
FOLLOWED_FOR: Final = timedelta(milliseconds=250)  # one retry batch after the other, in one scan
BETWEEN_READS: Final = 2 * ONE_READ
ENDLESS: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScan:
    """One scan of a group while it runs."""

    resource: StreamConsumerGroup
    server: Server
    keys: GroupKeys
    observation: ScanObservation
    findings: Findings
    new_records: dict[str, str] = field(default_factory=dict)  # fields of the state to be written

    @property
    def name(self) -> Name:
        """The resource's."""
        return self.resource.metadata.namespace, self.resource.metadata.name


@dataclass(slots=True, kw_only=True)
class StreamScan:
    """The scan of one stream of a group: the stream itself, or its retry stream."""

    server: Server
    context: ScanContext
    recovery: RecoverySpec
    observation: ScanObservation
    stream: StreamInScan  # the one that is scanned
    findings: Findings
    most_pages: int = MOST_PAGES
    liveness: dict[str, ConsumerLiveness] = field(default_factory=dict)  # of the owners
    crashes: list[Crash] = field(default_factory=list)  # who failed, and the suspects left
    _idle: dict[str, Failure] = field(default_factory=dict)
    _rules: Rules = field(init=False)
    _limits: ProcessingTimeouts = field(init=False)

    def __post_init__(self) -> None:
        """Derive the rules from the spec."""
        self._rules = decide_rules(self.recovery)
        self._limits = decide_processing_timeouts(self.recovery)

    @property
    def is_main(self) -> bool:
        """Whether this is the stream itself, not its retry stream."""
        return self.context.source == self.context.keys.stream

    @property
    def delay_before(self) -> datetime | None:
        """What was delivered earlier must stay; None: nothing must."""
        observation = self.observation
        if observation.delay_until is None or observation.now >= observation.delay_until:
            return None
        return observation.delay_before

    async def review_offers(self) -> None:
        """Count the offers that workers took. The others stay offered under Release alone."""
        if self.is_main and self.observation.offers:
            releases = self.recovery.strategy is RecoveryStrategy.RELEASE
            offers = await review_offers(self.server, self.context, withdraws=not releases)
            self.findings.record_offers(offers)

    async def recover_dead(self) -> None:
        """Move what dead owners were delivered before their cutoff."""
        for owner, liveness in self.liveness.items():
            if liveness.cutoff.at is not None:
                await self._recover_owner(owner, liveness, liveness.cutoff.at)

    async def recover_idle(self) -> None:
        """Move entries that are idle beyond the limit of their owner.

        It stops after `most_pages` pages of the main stream. The next scan, of any replica,
        continues there, or at the beginning after a scan that reached the end.
        """
        server, context = self.server, self.context
        began = self.observation.cursor if self.is_main else ""
        cursor = await self._scan_pages(began)
        # What failed with an entry may lie in another part.
        is_whole = self._rules.runs_isolated_first or not (began or cursor)
        for failure in self._idle.values():
            self.crashes += await self._find_idle_crashes(failure, is_whole=is_whole)
        if cursor:
            self._scan_again(AFTER_A_PART)
        if cursor != began:
            await finish_scan(
                server, context.keys, uid=context.uid, target=context.target, cursor=cursor
            )

    async def _find_idle_crashes(self, failure: Failure, *, is_whole: bool) -> list[Crash]:
        """What idled in the process that runs now, apart from what an earlier one may have held."""
        cutoff = self._cutoff_of(failure.owner)
        since = decide_process_since(cutoff, self.observation.master_since)
        earlier, present = failure.split(since)
        present.death = Death.CRASHED
        unproven_since, is_outdone = await self._observe_progress(
            present, is_pod=cutoff is not None
        )
        return [
            *earlier.crashes(is_whole=is_whole),
            *present.crashes(
                is_whole=is_whole,
                is_idle=True,
                unproven_since=unproven_since,
                is_outdone=is_outdone,
            ),
        ]

    async def _observe_progress(
        self, failure: Failure, *, is_pod: bool
    ) -> tuple[datetime | None, bool]:
        """Whether the owner may have hung while it reads on, and whether others work meanwhile.

        Asked only when an entry may be given up for it.
        """
        if not self._rules.may_give_up(failure.suspects.values()):
            return None, False
        # A process outside of pods may have restarted under the same name.
        if not is_pod or self.stream.consumers > LISTABLE:
            return ENDLESS, True
        group = self.context.keys.group
        progress = await observe_progress(self.server, self.stream.name, group, failure.owner)
        is_proven = progress.has_finished(self._limits.alive)
        is_outdone = progress.have_others_finished(self._limits.alive)
        return None if is_proven else progress.asked, is_outdone

    async def find_dangling(self) -> None:
        """Count pending entries whose bodies were deleted.

        They still belong to their workers, which may complete them. A worker that claims one of
        them would silently drop it, so they are reported before.
        """
        group = self.context.keys.group
        dangling = await count_dangling(self.server, self.stream, group)
        if dangling:
            self.findings.dangling += dangling
            self.findings.lowest_dangling = self.stream.lowest_pending

    async def _recover_owner(
        self, owner: str, liveness: ConsumerLiveness, cutoff: datetime
    ) -> None:
        order = self._order(owner, liveness.cutoff.message, liveness.cutoff.death)
        failure = Failure(owner=owner, death=liveness.cutoff.death)
        async for batch in self._recover_all(order, cutoff):
            self._count_batch(owner, liveness.cutoff, batch)
            self.findings.young += batch.count(EntryVerdict.TOO_YOUNG)
            failure.add(batch)
        self.crashes += failure.crashes(cutoff)

    async def _recover_all(
        self, order: RecoveryOrder, cutoff: datetime
    ) -> AsyncIterator[Recovered]:
        """Everything that the owner was delivered before the cutoff, but for what a lock keeps."""
        if self.recovery.locks is None:
            async for batch in recover_owner(self.server, self.context, order, cutoff=cutoff):
                yield batch
            return
        # The locks must be named with the script that moves: first observe the suspects.
        dry = replace(order, recovers=False)
        async for seen in recover_owner(self.server, self.context, dry, cutoff=cutoff):
            ids = [(one.entry_id, timedelta()) for one in seen.suspects]
            yield seen._replace(examined=[])
            if ids:
                yield await self._recover_ids(order, ids, cutoff=cutoff)

    async def _scan_pages(self, began: str) -> str:
        """Scan the pages from a cursor on; where it stopped, empty for the end."""
        cursor, count = "", 0
        group, idle = self.context.keys.group, self._limits.smallest
        pages = find_idle(self.server, self.stream, group, idle=idle, cursor=began)
        async with aclosing(pages):
            async for page, following in pages:
                await self._recover_page(page)
                cursor, count = following, count + 1
                if self.is_main and count >= self.most_pages:
                    break
        return cursor

    async def _recover_page(self, page: Sequence[PendingEntry]) -> None:
        by_owner: dict[str, list[PendingEntry]] = defaultdict(list)
        for entry in page:
            by_owner[entry.owner].append(entry)
        for owner, entries in by_owner.items():
            if owner or self.recovery.copies_entries:
                await self._recover_idle_of(owner, entries)

    async def _recover_idle_of(self, owner: str, entries: Sequence[PendingEntry]) -> None:
        cutoff = self._cutoff_of(owner)
        limit = self._limits.limit(is_unknown=cutoff is None, is_unowned=not owner)
        stuck = [entry for entry in entries if entry.idle >= limit or not owner]
        self.findings.skipped += len(entries) - len(stuck)
        death = decide_idle_death(cutoff)
        order = self._order(owner, explain_idle(limit) if owner else "held by no consumer", death)
        failure = self._idle.setdefault(owner, Failure(owner=owner, death=death))
        # What a dead owner was delivered before its cutoff was decided with it: it has moved, or a
        # lock or the like keeps it, or this is a dry run.
        liveness = self.liveness.get(owner)
        before = None if liveness is None else liveness.cutoff.at
        ids = [(one.entry_id, limit) for one in stuck if before is None or one.delivered >= before]
        size = self.context.batch
        while ids:
            batch = await self._recover_ids(order, ids[:size])
            self._count_batch(owner, None, batch)
            failure.add(batch)
            # Large bodies: as many as one script reads were moved, one at least.
            left = {one for one, verdict in batch.stays if verdict is EntryVerdict.NEXT_BATCH}
            ids = [one for one in ids[:size] if one[0] in left] + ids[size:]

    def _cutoff_of(self, owner: str) -> Cutoff | None:
        """The liveness of the owner's process; None if its name does not belong to a pod."""
        liveness = self.liveness.get(owner)
        return None if liveness is None or liveness.match.is_unknown else liveness.cutoff

    async def _recover_ids(
        self,
        order: RecoveryOrder,
        ids: list[tuple[EntryId, timedelta]],
        *,
        cutoff: datetime | None = None,
    ) -> Recovered:
        locks = self._locks([entry_id for entry_id, _ in ids])
        names = tuple(locks.values())
        batch = await recover_entries(
            self.server, self.context, order, ids, cutoff=cutoff, locks=names
        )
        locked = [locks[one] for one, verdict in batch.stays if verdict is EntryVerdict.LOCKED]
        self.findings.locked += locked
        return batch

    def _order(self, owner: str, reason: str, death: Death) -> RecoveryOrder:
        return RecoveryOrder(
            owner=owner,
            reason=reason,
            counts_attempt=counts_attempt(death),
            count_from=self.observation.master_since,
            delay_before=self.delay_before,
            stages_first=self._rules.retries_nothing,
            wait=self._rules.backoff.after(1),
            recovers=self.recovery.copies_entries,
        )

    def _count_batch(self, owner: str, cutoff: Cutoff | None, batch: Recovered) -> None:
        self.findings.count_batch(owner, cutoff, batch)
        if batch.count(EntryVerdict.WAITING):
            self._scan_again(self._rules.backoff.after(1))

    def _scan_again(self, wait: timedelta) -> None:
        findings = self.findings
        findings.earliest = min(findings.earliest or wait, wait)

    async def settle(self) -> None:
        """Decide about all suspects of the stream together, and do what is to be done now."""
        # What is on offer stays so until it is taken: `review_offers` repeats it.
        crashes = [_without_offers(crash) for crash in self.crashes]
        batch, now = self.observation.retry_batch, self.observation.now
        plan = plan_attempts(crashes, batch, self._rules, now=now)
        following, until = plan.following, monotonic() + FOLLOWED_FOR.total_seconds()
        self.findings.waiting += plan.waiting
        self.findings.under_way += len(plan.kept)
        try:
            for owner in plan.owners:
                plan = await self._settle_owner(plan, owner)
            for owner in following:
                if not await self._is_delivered(plan, until=until):
                    break
                plan = await self._settle_owner(plan, owner)
                self.findings.waiting -= len(owner.settlements)
        except RetryBatchChanged:
            self.findings.waiting += 1  # another replica was faster; the next scan continues

    async def _is_delivered(self, plan: AttemptPlan, *, until: float) -> bool:
        """Wait for the retry batch to be delivered, for a short time; an idle worker reads it at
        once."""
        if not self.recovery.copies_entries:
            return False  # the IDs stay; the next scan observes that a worker claimed them
        while monotonic() < until:
            if await are_delivered(self.server, self.context, plan.kept):
                await asyncio.sleep(BETWEEN_READS.total_seconds())
                return True
            await asyncio.sleep(BETWEEN_READS.total_seconds())
        return False

    async def _settle_owner(self, plan: AttemptPlan, owner: OwnerPlan) -> AttemptPlan:
        releases = self.recovery.strategy is RecoveryStrategy.RELEASE
        dead, rest = _split(owner) if releases else (owner, None)
        if dead is not None and (dead.settlements or dead.co_failed):
            done = await settle_suspects(
                self.server,
                self.context,
                plan,
                dead,
                reason=LetterReason.MAX_RETRIES,
                error=_explain_letters(dead),
                locks=tuple(self._locks([one.entry_id for one in dead.settlements]).values()),
            )
            self.findings.count_settled(dead, done)
            plan = plan.after(done.retry_batch)
        if rest is not None and rest.settlements:
            done = await offer_entries(
                self.server, self.context, plan, rest, reason="offered to claiming workers"
            )
            self.findings.count_offered(rest, done)
            plan = plan.after(done.retry_batch)
        return plan

    def _locks(self, ids: Sequence[EntryId]) -> dict[EntryId, str]:
        locks = self.recovery.locks
        if locks is None:
            return {}
        return {one: lock_key(locks.key_template, self.context.keys, one) for one in ids}


def _without_offers(crash: Crash) -> Crash:
    return replace(crash, suspects=tuple(one for one in crash.suspects if not one.is_on_offer))


def _split(owner: OwnerPlan) -> tuple[OwnerPlan, OwnerPlan]:
    """What becomes dead letters, and what is offered to other workers."""
    dead = tuple(one for one in owner.settlements if one.action is Action.DEAD)
    rest = tuple(one for one in owner.settlements if one.action is not Action.DEAD)
    return replace(owner, settlements=dead), replace(owner, settlements=rest, co_failed=None)


def _explain_letters(owner: OwnerPlan) -> str:
    attempts = max((one.attempts for one in owner.settlements), default=0)
    if owner.is_idle:
        return (
            "not acknowledged within the processing timeout after "
            f"{render_count(attempts, 'delivery', 'deliveries')}, the last time in isolation"
        )
    return (
        f"the worker failed {render_count(attempts, 'time')} while it processed the entry, the "
        "last time in isolation"
    )


def explain_idle(limit: timedelta) -> str:
    """Why entries are recovered whose consumer is not known to have ended."""
    return f"idle for more than {render_seconds(limit.total_seconds())} (processing timeout)"
