"""Scans groups: when one is due, what it begins with, and how its end is reported.

Every replica scans every group. The time of the last scan is shared in Redis, so that normally
one of them does it; a lost or doubled scan changes nothing, since every script looks again.

The replica that ranks first does it; the others come later, and find that it was done.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.api.group.recovery import RecoveryStrategy, RequeueTo
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.observation import GroupObserver
from pelops.controller.recovery.completion import (
    Closing,
    GroupScan,
    find_unusable_locks,
    until_unlocked,
)
from pelops.controller.recovery.findings import Findings
from pelops.controller.recovery.owners import Judging, is_gone
from pelops.controller.recovery.pod_evidence import Judgement, LivenessEvidence
from pelops.controller.recovery.scan import Ground, StreamScan, review, settle
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.membership import Members
from pelops.controller.workload.cache import WorkloadCache
from pelops.controller.workload.targets import Targets
from pelops.domain.recovery import StreamInScan, Trigger
from pelops.errors import (
    InvalidSpec,
    NoSuchGroup,
    NotOurs,
    OutcomeUnknown,
    PelopsError,
    RedisUnavailable,
    SlotMigrating,
)
from pelops.metrics import RECOVERY_LATENCY, SCAN_SECONDS, SCANS
from pelops.policy.group.provisioning import needs_retry_stream
from pelops.policy.recovery.scan_interval import (
    Standstill,
    Unfinished,
    count_standstill,
    decide_due,
    decide_wait,
    next_scan,
)
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.recovery.actions import ScanContext
from pelops.redis_streams.recovery.consumers import ObservedConsumer, remove_consumer
from pelops.redis_streams.recovery.scan import NotDue, open_scan


class Pacing:
    """Remembers which groups are looked at earlier than their interval says, and why."""

    def __init__(self) -> None:
        self._early: dict[Name, timedelta] = {}
        self._standstills: dict[Name, Standstill] = {}

    def forget(self, name: Name) -> None:
        """Drop what is remembered of a resource."""
        self._early.pop(name, None)
        self._standstills.pop(name, None)

    def due(self, name: Name, interval: timedelta, trigger: Trigger, *, rank: int) -> timedelta:
        """How recent a scan must be to be enough. What this replica wanted early is its own."""
        early = self._early.pop(name, None)
        if early is not None and rank == 0:
            return timedelta()
        return decide_due(min(interval, early or interval), is_timer=trigger is Trigger.SCAN)

    def come_back(self, name: Name, wait: timedelta) -> timedelta:
        """Look again before the interval is over: the scan that just began is not enough then."""
        self._early[name] = wait
        return wait

    def until_next(
        self, interval: timedelta, *, scanned_at: datetime, now: datetime, rank: int
    ) -> timedelta:
        """By the interval alone."""
        return next_scan(
            interval, scanned_at=scanned_at, now=now, rank=rank, jitter=random.random()
        )

    def after(self, name: Name, left: Unfinished, usual: timedelta, *, rank: int) -> timedelta:
        """When to scan again after a scan that left this, `usual` at most."""
        standstill = count_standstill(self._standstills.pop(name, None), left)
        if standstill is not None:
            self._standstills[name] = standstill
        wait = decide_wait(left, standstill, usual, rank=rank)
        return usual if wait >= usual else self.come_back(name, wait)


log = logging.getLogger(__name__)

# What ends by itself, or is another's to tell: no word about it in the report.
_PASSING: Final = (NotOurs, NoSuchGroup, OutcomeUnknown, RedisUnavailable)
AFTER_FAILURE: Final = timedelta(seconds=2)
DONE: Final = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanAdapters:
    """What scans work with."""

    cache: WorkloadCache
    observer: GroupObserver
    members: Members
    evidence: LivenessEvidence
    targets: Targets
    skew: timedelta  # the greatest between a node's clock and a Redis', unless it is measured
    reporter: Reporter
    hears: Callable[[Name], str | None]  # why the expiry of locks cannot be heard, if so
    identity: str


class Scanner:
    """Scans one group at a time, when asked."""

    def __init__(self, parts: ScanAdapters, clock: Callable[[], float]) -> None:
        self._parts = parts
        self._clock = clock
        self._judging = Judging(parts.evidence, parts.targets, parts.cache, skew=parts.skew)
        self._closing = Closing(parts.reporter)
        self._pacing = Pacing()

    async def scan(
        self, name: Name, trigger: Trigger, *, since: float | None = None
    ) -> timedelta | None:
        """Scan now; how long until the next look, or None when there is nothing to scan.

        `since` is when the death that triggers it was heard of, on the clock given.
        """
        resource = self._find(name)
        if resource is None:
            self._closing.forget(name)
            self._judging.forget(name)
            self._pacing.forget(name)
            return None
        began = self._clock()
        findings = Findings(trigger=trigger)
        outcome, wait = await self._attempt(resource, findings)
        # What was done before a scan failed is done, and no other one will report it.
        await self._closing.report(resource.metadata, findings)
        SCANS.labels(trigger.value, outcome).inc()
        if outcome == DONE:
            SCAN_SECONDS.observe(self._clock() - began)
        if since is not None and findings.moved:
            RECOVERY_LATENCY.observe(self._clock() - since)
        return wait

    async def _attempt(
        self, resource: StreamConsumerGroup, findings: Findings
    ) -> tuple[str, timedelta]:
        """What came of the scan, and how long until the next one; a failure is no error here."""
        where = {"resource": resource.metadata.key}
        try:
            return await self._scan(resource, findings)
        except (NotOurs, NoSuchGroup) as error:
            # Provisioning comes first, or another resource acts.
            log.debug("not swept: %s", error, extra=where)
            return "not-ready", AFTER_FAILURE
        except PelopsError as error:
            log.info("the sweep failed: %s", error, extra=where)
            wait = AFTER_FAILURE * random.uniform(0.8, 1.5)
            return "failed", self._pacing.come_back(_name(resource), wait)

    def _find(self, name: Name) -> StreamConsumerGroup | None:
        manifest = self._parts.cache.resources.get(name)
        if manifest is None:
            return None
        try:
            resource = StreamConsumerGroup.parse(manifest)
        except InvalidSpec:
            return None
        spec = resource.spec
        is_off = spec.suspend or spec.recovery.strategy is RecoveryStrategy.OFF
        return None if is_off or resource.metadata.is_being_deleted else resource

    async def _scan(
        self, resource: StreamConsumerGroup, findings: Findings
    ) -> tuple[str, timedelta]:
        recovery = resource.spec.recovery
        interval = timedelta(seconds=recovery.scan_interval_seconds)
        rank = self._parts.members.rank(resource.metadata.key)
        server, keys = await self._parts.observer.connect(resource)
        has_former_retry = await self._parts.observer.has_former_retry(resource, server, keys)
        observation = await open_scan(
            server,
            keys,
            uid=resource.metadata.uid,
            due=self._pacing.due(_name(resource), interval, findings.trigger, rank=rank),
            with_retry=has_former_retry or needs_retry_stream(resource.spec),
            is_retry_former=has_former_retry,
        )
        if isinstance(observation, NotDue):
            wait = self._pacing.until_next(
                interval, scanned_at=observation.scanned_at, now=observation.now, rank=rank
            )
            return "not-due", wait
        findings.at = observation.now
        scan = GroupScan(
            resource=resource, server=server, keys=keys, observation=observation, findings=findings
        )
        for stream in (observation.stream, observation.retry):
            if stream is not None and not _must_stay(scan, stream):
                await self._scan_stream(scan, stream)
        unheard = self._parts.hears(scan.name)
        if unheard is not None and findings.problem is None:
            findings.problem = (Reason.EXPIRY_EVENTS_UNSEEN, unheard)
        await self._closing.close(scan)
        usual = self._pacing.until_next(
            interval, scanned_at=observation.now, now=observation.now, rank=rank
        )
        unlocked = await until_unlocked(scan, usual)
        findings.earliest = min(findings.earliest or unlocked, unlocked)
        left = findings.unfinished(observation.retry_batch.written)
        return DONE, self._pacing.after(scan.name, left, usual, rank=rank)

    async def _scan_stream(self, scan: GroupScan, stream: StreamInScan) -> None:
        """One stream; what keeps it from being scanned is reported, and does not stop the other
        one."""
        ground = self._ground(scan, stream)
        problem = find_unusable_locks(scan)
        if problem is not None:
            scan.findings.problem = (Reason.LOCKS_UNUSABLE, problem)
            return
        try:
            await review(ground)
            judgements, consumers = await self._judging.judge(scan, ground)
            work = StreamScan(ground, judgements)
            if stream.pending:
                await work.recover_dead()
                await work.recover_idle()
                await work.find_dangling()
            await settle(ground, work.crashes)
            await self._remove_consumers(ground, judgements, consumers)
        except PelopsError as error:
            if isinstance(error, _PASSING) and not isinstance(error, SlotMigrating):
                raise
            finding = diagnose(error)
            scan.findings.problem = (finding.reason, finding.message)

    def _ground(self, scan: GroupScan, stream: StreamInScan) -> Ground:
        recovery, keys = scan.resource.spec.recovery, scan.keys
        with_retry = needs_retry_stream(scan.resource.spec)
        has_former_retry = scan.observation.retry is not None and not with_retry
        if has_former_retry and stream.name == keys.retry:
            # Whatever the strategy is by now, what is stuck there can only be copied.
            copied = {"strategy": RecoveryStrategy.REQUEUE, "requeue_to": RequeueTo.STREAM}
            recovery = recovery.model_copy(update=copied)
        act = ScanContext(
            keys=keys,
            source=stream.name,
            target=keys.retry if with_retry else keys.stream,
            uid=scan.resource.metadata.uid,
            field_prefix=recovery.field_prefix,
            batch=recovery.batch_size,
            actor=self._parts.identity,
            trigger=scan.findings.trigger.value,
            allows_others=with_retry,
            former_retry=keys.retry if has_former_retry else "",
        )
        return Ground(
            server=scan.server,
            act=act,
            recovery=recovery,
            observation=scan.observation,
            stream=stream,
            findings=scan.findings,
        )

    async def _remove_consumers(
        self,
        ground: Ground,
        judgements: Mapping[str, Judgement],
        consumers: list[ObservedConsumer],
    ) -> None:
        """End the consumers of pods that are gone; the script makes sure that they own nothing."""
        for consumer in consumers:
            judgement = judgements.get(consumer.name)
            has_left = judgement is not None and is_gone(judgement)
            if has_left and await remove_consumer(ground.server, ground.act, consumer.name):
                ground.findings.removed.append(consumer.name)


def _must_stay(scan: GroupScan, stream: StreamInScan) -> bool:
    """Whether nothing of this stream may be moved: a former retry stream, and other groups would
    be given the copies. An alarm reports it.
    """
    is_retry = stream is scan.observation.retry
    is_former = is_retry and not needs_retry_stream(scan.resource.spec)
    return is_former and scan.observation.stream.groups > 1


def _name(resource: StreamConsumerGroup) -> Name:
    return resource.metadata.namespace, resource.metadata.name
