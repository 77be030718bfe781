"""The scans of a replica: when a group is due, who owns its entries, and how a scan is reported.

    ScanLoop   which group is next, and what calls it earlier
    Scanner    one scan, from its opening to its report; `scan.py` has what happens between
    Judging    the consumers with pending entries, and the processes behind them
    Closing    the report, written for all replicas, and Events

Every replica may scan every group. The time of the last scan is shared in Redis, so that normally
one of them does it; a lost or doubled scan changes nothing, since every script checks again. The
replica that ranks first does it, and the others come seldom, and find that it was done, or do it.
Each rests while nothing of the group is pending.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from pelops.api.group.recovery import RecoveryStrategy
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.schema.base import ObjectMeta
from pelops.controller.group.group_observer import GroupObserver
from pelops.controller.recovery.dry_runs import DryRuns
from pelops.controller.recovery.findings import Findings
from pelops.controller.recovery.pod_evidence import Judgement, LivenessEvidence, LivenessQuestion
from pelops.controller.recovery.scan import (
    MOST_DRY_PAGES,
    MOST_PAGES,
    Ground,
    StreamScan,
    review,
    settle,
)
from pelops.controller.recovery.stuck_count import count_stuck
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.gate import Gate, Limits, Place, Progress
from pelops.controller.runtime.kind import place_of
from pelops.controller.runtime.leases import Members, follow_standing
from pelops.controller.runtime.queue import KeyedQueue, is_wanted
from pelops.controller.workload.sharing import SharedWorkloads
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.entry_id import EntryId
from pelops.domain.locks import lock_slot_problem
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import LivenessReason, ScanObservation, StreamInScan, Trigger
from pelops.domain.state import BOOT, POD, OwnerRecord, render_report
from pelops.domain.workload import Target, WorkloadObservation
from pelops.errors import (
    DeadlineExceeded,
    InvalidReply,
    InvalidSpec,
    KubernetesError,
    NoSuchGroup,
    NotOurs,
    OutcomeUnknown,
    PelopsError,
    RedisError,
    RedisUnavailable,
    SlotMigrating,
    UnknownRefusal,
)
from pelops.kube.client import Manifest
from pelops.kube.event_recorder import EventContent
from pelops.metrics import RECOVERY_LATENCY, SCAN_SECONDS, SCANS
from pelops.policy.group.provisioning import needs_offer_stream, needs_retry_stream
from pelops.policy.recovery.liveness import could_be_dead
from pelops.policy.recovery.scan_interval import (
    QUIET,
    Standstill,
    Unfinished,
    count_standstill,
    decide_due,
    decide_wait,
    may_rest,
    next_scan,
)
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.reasons import Reason
from pelops.redis_core.server import Server, Topology
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.recovery.consumers import (
    LISTABLE,
    ObservedConsumer,
    list_consumers,
    list_lowest_owners,
    remove_consumer,
)
from pelops.redis_streams.recovery.keyspace_events import read_lifetimes
from pelops.redis_streams.recovery.scan_calls import NotDue, finish_scan, open_scan, read_fields
from pelops.redis_streams.recovery.stuck_entries import ScanContext

log = logging.getLogger(__name__)


SOONEST_LOCK: Final = timedelta(milliseconds=50)
LOCKS_ASKED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScan:
    """One scan of a group while it goes on."""

    resource: StreamConsumerGroup
    server: Server
    keys: GroupKeys
    observation: ScanObservation
    findings: Findings
    learnt: dict[str, str] = field(default_factory=dict)  # fields of the state to be written

    @property
    def name(self) -> Name:
        """The resource's."""
        return self.resource.metadata.namespace, self.resource.metadata.name


# So often it is written that a scan was completed; it costs Redis as much as an idle group's scan.
NOTED_EVERY: Final = timedelta(seconds=30)


class ScanCloser:
    """Ends scans. Remembers where it stopped forgetting suspects that are done with, and when it
    noted last that a scan was completed.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._cursors: dict[Name, str] = {}
        self._noted: dict[Name, datetime] = {}

    def forget(self, name: Name) -> None:
        """Drop what is remembered of a resource."""
        self._cursors.pop(name, None)
        self._noted.pop(name, None)

    async def close(self, scan: GroupScan) -> None:
        """Write the report if it is news. Raises as `finish_scan`."""
        observation, keys = scan.observation, scan.keys
        report = _render(scan.findings)
        tries_cursor = self._cursors.get(scan.name, "0")
        resolved = "" if observation.retry_batch.under_way else observation.retry_batch.written
        is_news = report != observation.report or scan.learnt or resolved
        noted = self._noted.get(scan.name)
        is_noted = noted is not None and timedelta() <= observation.now - noted < NOTED_EVERY
        done = observation.now if scan.findings.is_complete and not is_noted else None
        if not is_news and not scan.findings.moved and tries_cursor == "0" and done is None:
            return
        with_retry = needs_retry_stream(scan.resource.spec)
        target = keys.retry if with_retry else keys.stream
        streams = (keys.stream, *(() if observation.retry is None else (keys.retry,)))
        self._cursors[scan.name] = await finish_scan(
            scan.server,
            keys,
            uid=scan.resource.metadata.uid,
            target=target,
            others=tuple(stream for stream in streams if stream != target),
            report=report,
            done=done,
            resolved=resolved,
            tries_cursor=tries_cursor,
            learnt=scan.learnt,
        )
        if done is not None:
            self._noted[scan.name] = done

    async def report(self, metadata: ObjectMeta, findings: Findings) -> None:
        """Measure what a scan did and tell people, once, however far it came. Does not raise."""
        findings.measure(metadata.namespace, metadata.name)
        for happening in findings.happenings():
            await self._reporter.report(metadata, happening)


def _render(findings: Findings) -> str:
    return json.dumps(render_report(findings.report()), sort_keys=True)


async def read_records(ground: Ground, owners: list[str]) -> dict[str, str]:
    """What the state knows of these consumers, and what they say of themselves."""
    found: dict[str, str] = {}
    for kind in (POD, BOOT):
        names = [f"{kind}{owner}" for owner in owners]
        of_workers = kind == BOOT
        values = await read_fields(ground.server, ground.act.keys, names, of_workers=of_workers)
        found |= {
            name: value for name, value in zip(names, values, strict=True) if value is not None
        }
    return found


async def until_unlocked(scan: GroupScan, longest: timedelta) -> timedelta:
    """When the first of the locks that kept entries runs out, as far as Redis knows now."""
    left = await read_lifetimes(scan.server, scan.findings.locked[:LOCKS_ASKED])
    return min([longest, *(one + SOONEST_LOCK for one in left)])


def find_unusable_locks(scan: GroupScan) -> str | None:
    """Why nobody can tell whether locks exist; None when it can be told."""
    locks = scan.resource.spec.recovery.locks
    if locks is None or scan.server.kind.topology is not Topology.CLUSTER:
        return None
    return lock_slot_problem(locks.key_template, scan.keys)


# Forbidden as well: an API server that starts forbids everything until it has read its roles.
_DOUBTS: Final = (LivenessReason.UNREADABLE, LivenessReason.FORBIDDEN)
LOWEST: Final = 200  # pending entries whose owners are looked at instead


# What is known of the processes behind consumers, and these consumers, unless there are too many.
Judged: TypeAlias = tuple[dict[str, Judgement], list[ObservedConsumer]]


class OwnerLookup:
    """Asks Redis for owners, and the cluster for what became of them."""

    def __init__(
        self, evidence: LivenessEvidence, targets: Targets, cache: WorkloadCache, *, skew: timedelta
    ) -> None:
        """`skew` is the greatest between a node's clock and a Redis', unless it is measured."""
        self._evidence = evidence
        self._targets = targets
        self._cache = cache
        self._skew = skew
        self._workloads: dict[Name, WorkloadObservation] = {}  # as last seen

    def forget(self, name: Name) -> None:
        """Drop what is remembered of a resource."""
        self._workloads.pop(name, None)

    async def judge(self, scan: GroupScan, ground: Ground) -> Judged:
        """What is known of the processes behind the group's consumers."""
        stream, workload = ground.stream, await self._observe_workload(scan)
        if stream.consumers == 0:
            return {}, []
        consumers: list[ObservedConsumer] = []
        if stream.consumers <= LISTABLE:
            consumers = await list_consumers(ground.server, stream.name, scan.keys.group)
            owners = [consumer.name for consumer in consumers]
        else:
            # Of too many to list: who owns the lowest pending entries, which wait longest. Of the
            # dead, the names that we inject; owners of idle entries come with these.
            owing = await list_lowest_owners(
                ground.server, stream.name, scan.keys.group, count=LOWEST
            )
            owners = list(dict.fromkeys([*owing, *self._likely_names(workload)]))
            scan.findings.is_partial = True
        owing = [consumer.name for consumer in consumers if consumer.pending] or owners
        records = await read_records(ground, owing)
        question = LivenessQuestion(
            workload=workload,
            consumers=owners,
            records=records,
            server_time=scan.observation.now,
            skew=self._skew,
            container=scan.resource.spec.container_name,
            master_since=scan.observation.master_since,
            server=ground.server.address,
        )
        judgements = await self._evidence.judge(question)
        for owner in owing:
            _learn(scan, owner, judgements[owner])
        return judgements, consumers

    async def _observe_workload(self, scan: GroupScan) -> WorkloadObservation:
        try:
            workload, _ = await self._targets.observe(scan.resource)
        except KubernetesError:
            # What it was at the last look still says whose pods are whose.
            workload = self._workloads.get(scan.name) or _no_workload(scan.resource)
        self._workloads[scan.name] = workload
        return workload

    def _likely_names(self, workload: WorkloadObservation) -> list[str]:
        """How workers that may be dead are called, when there are too many consumers to list."""
        pods, gone = self._cache.pods_of(workload)
        suspects = [pod for pod in pods if could_be_dead(pod)] + [one.pod for one in gone]
        return [name for pod in suspects for name in (f"{pod.name}:{pod.uid}", pod.name)]


def _learn(scan: GroupScan, owner: str, judgement: Judgement) -> None:
    if judgement.match.is_unknown:
        scan.findings.unmatched.append(owner)
    if judgement.record is not None:
        scan.learnt[f"{POD}{owner}"] = judgement.record
    findings, cutoff = scan.findings, judgement.cutoff
    findings.has_doubts |= cutoff.reason in _DOUBTS
    findings.await_end(cutoff, scan.observation.now)
    if cutoff.reason is LivenessReason.FORBIDDEN and findings.problem is None:
        findings.problem = (Reason.FORBIDDEN, cutoff.message)


def is_gone(judgement: Judgement) -> bool:
    """Whether the consumer's pod is no more, and no other one goes on under its name."""
    return judgement.cutoff.reason in (LivenessReason.GONE, LivenessReason.VANISHED)


def _no_workload(resource: StreamConsumerGroup) -> WorkloadObservation:
    target = Target(
        api_version="", kind="", namespace=resource.metadata.namespace, name=resource.metadata.name
    )
    return WorkloadObservation(target=target, exists=False)


class ScanSchedule:
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


# What ends by itself, or is another's to tell: no word about it in the report.
_PASSING: Final = (NotOurs, NoSuchGroup, OutcomeUnknown, RedisUnavailable)
# Of these, what goes on until somebody changes something.
_LASTING: Final = (SlotMigrating, InvalidReply, UnknownRefusal)
AFTER_FAILURE: Final = timedelta(seconds=2)
RECHECK: Final = timedelta(seconds=30)  # what has nothing to be scanned for may come to have it
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
    make_due: Callable[[Name], None]  # the status of this resource is worth a pass
    is_settled: Callable[[Name], bool]  # nothing of a group is pending, as was read or reported


class Scanner:
    """Scans one group at a time, when asked."""

    def __init__(self, parts: ScanAdapters, clock: Callable[[], float]) -> None:
        self._parts = parts
        self._clock = clock
        self._judging = OwnerLookup(parts.evidence, parts.targets, parts.cache, skew=parts.skew)
        self._closing = ScanCloser(parts.reporter)
        self._pacing = ScanSchedule()
        self._shared = SharedWorkloads(parts.cache)
        self.dry_runs = DryRuns(parts.reporter, parts.make_due)
        self.is_settled = parts.is_settled

    async def scan(
        self, name: Name, trigger: Trigger, *, since: float | None = None
    ) -> timedelta | None:
        """Scan now; how long until the next look, or None when there is nothing to scan.

        `since` is when the death that triggers it was heard of, on the clock given.
        """
        resource = self._find(name)
        is_dry = resource is not None and resource.spec.recovery.dry_run
        if not is_dry:
            self.dry_runs.forget(name)
        if resource is None:
            self._closing.forget(name)
            self._judging.forget(name)
            self._pacing.forget(name)
            return None
        began = self._clock()
        findings = Findings(trigger=trigger)
        outcome, wait = await self._attempt(resource, findings)
        # What was done before a scan failed is done, and no other one will report it.
        if not is_dry:
            await self._closing.report(resource.metadata, findings)
        SCANS.labels(trigger.value, outcome).inc()
        if outcome == DONE:
            SCAN_SECONDS.observe(self._clock() - began)
        if since is not None and findings.moved and not is_dry:
            RECOVERY_LATENCY.observe(self._clock() - since)
        return wait

    async def report_failure(self, name: Name, error: PelopsError) -> None:
        """Report by an Event, once per generation, that a scan was cut off. Raises InvalidSpec."""
        manifest = self._parts.cache.resources.get(name)
        if manifest is None:
            return
        SCANS.labels(Trigger.SCAN.value, "error").inc()
        finding = diagnose(error)
        await self._parts.reporter.report(
            ObjectMeta.model_validate(manifest["metadata"]),
            EventContent(
                type="Warning",
                reason=finding.reason,
                action="Scan",
                note=finding.message,
                occurrence=f"scan/{manifest['metadata'].get('generation')}",
            ),
        )

    async def _attempt(
        self, resource: StreamConsumerGroup, findings: Findings
    ) -> tuple[str, timedelta]:
        """What came of the scan, and how long until the next one; a failure is no error here."""
        where = {"resource": resource.metadata.key}
        try:
            return await self._scan(resource, findings)
        except (NotOurs, NoSuchGroup) as error:
            # Provisioning comes first, or another resource acts.
            log.debug("not scanned: %s", error, extra=where)
            return "not-ready", RECHECK
        except PelopsError as error:
            log.info("Could not scan the group: %s", error, extra=where)
            await self._report_failure(resource, findings, error)
            wait = AFTER_FAILURE * random.uniform(0.8, 1.5)
            return "failed", self._pacing.come_back(_name(resource), wait)

    async def _report_failure(
        self, resource: StreamConsumerGroup, findings: Findings, error: PelopsError
    ) -> None:
        """Report what a scan failed with before or after its streams, if Redis takes the report.

        The pass of the resource reports what is wrong with its spec, its Secret or the API server.
        """
        if _is_passing(error) or not isinstance(error, RedisError):
            return
        finding = diagnose(error)
        findings.fail(finding.reason, finding.message)
        findings.is_counted = False
        if resource.spec.recovery.dry_run:
            await self.dry_runs.record(resource, findings.dry_run())
            return
        with contextlib.suppress(PelopsError):
            server, keys = await self._parts.observer.connect(resource)
            uid, report = resource.metadata.uid, _render(findings)
            await finish_scan(server, keys, uid=uid, target=keys.stream, report=report)

    def _find(self, name: Name) -> StreamConsumerGroup | None:
        manifest = self._parts.cache.resources.get(name)
        if manifest is None:
            return None
        try:
            resource = StreamConsumerGroup.parse(manifest)
        except InvalidSpec:
            return None
        spec = resource.spec
        # Without recovery there is nothing that a dry run could try.
        is_idle = spec.suspend or (spec.recovery.dry_run and not spec.recovery.is_enabled)
        return None if is_idle or resource.metadata.is_being_deleted else resource

    async def _scan(
        self, resource: StreamConsumerGroup, findings: Findings
    ) -> tuple[str, timedelta]:
        recovery = resource.spec.recovery
        interval = timedelta(seconds=recovery.scan_period_seconds)
        if recovery.dry_run:
            return await self._scan_dry(resource, findings, interval)
        rank = self._parts.members.rank(self._shared.key(_name(resource)))
        server, keys = await self._parts.observer.connect(resource)
        has_former_retry = await self._parts.observer.has_former_retry(resource, server, keys)
        observation = await open_scan(
            server,
            keys,
            uid=resource.metadata.uid,
            due=self._pacing.due(_name(resource), interval, findings.trigger, rank=rank),
            with_retry=has_former_retry or needs_retry_stream(resource.spec),
            is_retry_former=has_former_retry,
            is_first=rank == 0,
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
        await self._scan_streams(scan)
        await self._closing.close(scan)
        usual = self._pacing.until_next(
            interval, scanned_at=observation.now, now=observation.now, rank=rank
        )
        unlocked = await until_unlocked(scan, usual)
        findings.earliest = min(findings.earliest or unlocked, unlocked)
        left = findings.unfinished(observation.retry_batch.written)
        outcome = DONE if findings.is_complete else "failed"
        return outcome, self._pacing.after(scan.name, left, usual, rank=rank)

    async def _scan_dry(
        self, resource: StreamConsumerGroup, findings: Findings, interval: timedelta
    ) -> tuple[str, timedelta]:
        """A scan through a server that writes nothing. Only the replica that writes the numbers of
        the status makes it, since nothing in Redis says that another one has.
        """
        name, observer = _name(resource), self._parts.observer
        wait = interval * random.uniform(0.9, 1.1)
        if self._parts.members.rank(self._shared.key(name)) > 0:
            self.dry_runs.forget(name)
            return "not-due", wait
        (redis,) = await observer.observe_redis([resource])
        stream, server, keys = redis.stream, redis.server, redis.keys
        has_group = stream is not None and stream.group is not None
        if redis.problem or stream is None or server is None or keys is None or not has_group:
            return "not-ready", AFTER_FAILURE
        findings.problem = await _find_refusal(
            server, keys, observer.owner_of(resource), resource, is_complete=stream.is_provisioned
        )
        if findings.problem is None:
            has_retry = stream.retry is not None and stream.retry.exists
            observation = await open_scan(
                server,
                keys,
                uid=resource.metadata.uid,
                due=timedelta(),
                with_retry=has_retry,
                is_retry_former=redis.has_former_retry,
            )
            if isinstance(observation, NotDue):
                return "not-due", wait
            scan = GroupScan(
                resource=resource,
                server=server,
                keys=keys,
                observation=replace(observation, cursor=""),  # nobody else goes on with it
                findings=findings,
            )
            await self._scan_streams(scan)
        await self.dry_runs.record(resource, findings.dry_run())
        return DONE, wait

    async def _scan_streams(self, scan: GroupScan) -> None:
        findings, counts_only = scan.findings, not scan.resource.spec.recovery.is_enabled
        for stream in (scan.observation.stream, scan.observation.retry):
            if stream is None:
                continue
            if counts_only or _must_stay(scan, stream):
                await self._count_stream(scan, stream)
            else:
                await self._scan_stream(scan, stream)
        unheard = None if counts_only else self._parts.hears(scan.name)
        if unheard is not None and findings.problem is None:
            findings.problem = (Reason.KEYSPACE_NOTIFICATIONS_UNAVAILABLE, unheard)

    async def _scan_stream(self, scan: GroupScan, stream: StreamInScan) -> None:
        """One stream; what keeps it from being scanned is reported, and does not stop the other
        one."""
        ground = self._ground(scan, stream)
        problem = find_unusable_locks(scan)
        if problem is not None:
            scan.findings.fail(Reason.LOCK_IN_ANOTHER_SLOT, problem)
            scan.findings.is_counted = False  # what is locked is not stuck
            return
        judged: Judged | None = None
        try:
            await review(ground)
            judged = judgements, consumers = await self._judging.judge(scan, ground)
            most_pages = MOST_DRY_PAGES if scan.server.is_dry else MOST_PAGES
            work = StreamScan(ground, judgements, most_pages=most_pages)
            if stream.pending:
                await work.recover_dead()
                await work.recover_idle()
                await work.find_dangling()
            await settle(ground, work.crashes)
            await self._remove_consumers(ground, judgements, consumers)
        except PelopsError as error:
            if _is_passing(error):
                raise
            finding = diagnose(error)
            scan.findings.fail(finding.reason, finding.message)
            if not scan.server.is_dry:
                await self._count_rest(ground, judged)

    async def _count_rest(self, ground: Ground, judged: Judged | None) -> None:
        """Count what is stuck in a stream that could not be scanned to its end, if it can be."""
        findings = ground.findings
        if judged is None:
            findings.is_counted = False
            return
        try:
            findings.counted += await count_stuck(ground, *judged)
        except PelopsError:
            findings.is_counted = False

    async def _count_stream(self, scan: GroupScan, stream: StreamInScan) -> None:
        """Count the stuck entries of a stream of which nothing may be recovered: only reads."""
        ground = self._ground(scan, stream)
        if find_unusable_locks(scan) is not None:
            scan.findings.is_counted = False
            return
        judgements, consumers = await self._judging.judge(scan, ground)
        scan.findings.counted += await count_stuck(ground, judgements, consumers)

    def _ground(self, scan: GroupScan, stream: StreamInScan) -> Ground:
        recovery, keys = scan.resource.spec.recovery, scan.keys
        with_retry = needs_retry_stream(scan.resource.spec)
        has_former_retry = scan.observation.retry is not None and not with_retry
        if has_former_retry and stream.name == keys.retry:
            # Whatever the strategy is by now, what is stuck there can only be copied.
            recovery = recovery.model_copy(update={"strategy": RecoveryStrategy.REQUEUE})
        act = ScanContext(
            keys=keys,
            source=stream.name,
            target=keys.retry if with_retry else keys.stream,
            uid=scan.resource.metadata.uid,
            field_prefix=recovery.tuning.field_prefix,
            batch=recovery.tuning.batch_size,
            max_entry_bytes=recovery.max_entry_bytes,
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


async def _find_refusal(
    server: Server,
    keys: GroupKeys,
    owner: OwnerRecord,
    resource: StreamConsumerGroup,
    *,
    is_complete: bool,
) -> tuple[str, str] | None:
    """Why a group that exists could not be adopted, as a reason and a message; None when it could.

    Raises RedisUnavailable.
    """
    if is_complete:
        return None
    try:
        await provision_group(
            server,
            keys,
            start=EntryId.MIN,
            owner=owner,
            with_retry=needs_retry_stream(resource.spec),
            with_offers=needs_offer_stream(resource.spec),
        )
    except RedisUnavailable:
        raise
    except PelopsError as error:
        finding = diagnose(error)
        return finding.reason, finding.message
    return None


def _is_passing(error: PelopsError) -> bool:
    return isinstance(error, _PASSING) and not isinstance(error, _LASTING)


def _name(resource: StreamConsumerGroup) -> Name:
    return resource.metadata.namespace, resource.metadata.name


# Scans are short, but for one that recovers a million entries. What it did before its deadline is
# done, and the next one continues.
LIMITS: Final = Limits(deadline_s=300.0, most=512, per_namespace=16, per_endpoint=8)
STEP_S = 0.2  # how long a replica leaves a death to those of lower rank
START_UP_S = 2.0
TAKEN_OVER_S = 0.005  # for each group that is taken over
AFTER_BREAK = timedelta(seconds=30)
AFTER_CUT = timedelta(seconds=1)


def _has_conditions(manifest: Manifest) -> bool:
    return bool((manifest.get("status") or {}).get("conditions"))


class ScanLoop:
    """Gives each group a scan when it is due, many groups at once, one group never twice at once.

    It goes on through an outage of the API server: the cache is what it knows then.
    """

    def __init__(
        self,
        scanner: Scanner,
        cache: WorkloadCache,
        members: Members,
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self._scanner = scanner
        self._cache = cache
        self._members = members
        self._shared = SharedWorkloads(cache)
        self._clock = clock
        self._queue: KeyedQueue[Name] = KeyedQueue(clock)
        self._gate = Gate("scan", LIMITS)
        progress.follow("scan", self._gate.stalled_s, self._queue.overdue_s)
        self._triggers: dict[Name, tuple[Trigger, float]] = {}  # why earlier, and since when
        self._known: dict[Name, int | None] = {}  # generations
        # When a group was scanned last by this replica, and how long it was to wait then.
        self._scanned: dict[Name, tuple[float, timedelta]] = {}

    def wake(self, name: Name, trigger: Trigger) -> None:
        """Scan this group now: at once where this replica ranks first, else shortly after."""
        if name not in self._triggers or self._triggers[name][0] is Trigger.START_UP:
            self._triggers[name] = (trigger, self._clock())
        self._queue.add(name, delay_s=self._rank(name) * STEP_S)

    def notice(self, name: Name) -> None:
        """A resource was added or changed: scan it soon if it, or its spec, is new here."""
        manifest = self._cache.resources.get(name)
        if manifest is None:
            return
        generation = manifest["metadata"].get("generation")
        if name not in self._known or self._known[name] != generation:
            self._known[name] = generation
            # The first scans it, and that of a new resource once its group is ready.
            is_new, is_first = not _has_conditions(manifest), self._rank(name) == 0
            if is_new or not is_first:
                wait = RECHECK * random.uniform(0.8, 1.2) * (1 if is_first else QUIET)
                self._queue.add(name, delay_s=wait.total_seconds())
                return
            self._triggers.setdefault(name, (Trigger.START_UP, self._clock()))
            self._queue.add(name, delay_s=random.uniform(0, START_UP_S))

    async def run(self) -> None:
        """Serve until cancelled."""
        for name in list(self._cache.resources):
            self.notice(name)
        async with asyncio.TaskGroup() as scans:
            scans.create_task(self._follow_members())
            while is_wanted():
                name = await self._queue.take()
                scans.create_task(self._serve(name))
                await asyncio.sleep(0)  # thousands may be due at once

    async def _follow_members(self) -> None:
        """Take over at once what this replica is the first to scan after a change of the replicas.

        A scan that is not due is found so.
        """
        async for _ in follow_standing(self._members):
            ours = [name for name in self._cache.resources if not self._rank(name)]
            for name in ours:
                self._queue.add(name, delay_s=random.uniform(0, TAKEN_OVER_S * len(ours)))

    def _rank(self, name: Name) -> int:
        return self._members.rank(self._shared.key(name))

    async def _serve(self, name: Name) -> None:
        wait: timedelta | None = None
        try:
            wait = await self._turn(name)
        finally:
            self._queue.done(name, again_s=None if wait is None else wait.total_seconds())

    async def _turn(self, name: Name) -> timedelta | None:
        manifest = self._cache.resources.get(name)
        if manifest is None:
            self._triggers.pop(name, None)
            self._known.pop(name, None)
            self._scanned.pop(name, None)
            return None
        if (rest := self._rest(name)) is not None:
            return rest
        place, key = place_of(name, manifest), "/".join(name)
        try:
            wait = await self._gate.run(place, partial(self._scan, name), what=key)
        except PelopsError as error:
            with contextlib.suppress(PelopsError):
                report = partial(self._scanner.report_failure, name, error)
                await self._gate.run(Place(name[0], "events"), report, what=key)
            return AFTER_CUT if isinstance(error, DeadlineExceeded) else AFTER_BREAK
        wait = RECHECK if wait is None else wait
        self._scanned[name] = (self._clock(), wait)
        return wait

    def _rest(self, name: Name) -> timedelta | None:
        """Until the next turn of a group at which a scan would find nothing; None: scan it."""
        at, wait = self._scanned.get(name, (0.0, timedelta()))
        is_recent = may_rest(timedelta(seconds=self._clock() - at), wait)
        is_quiet = is_recent and name not in self._triggers and self._scanner.is_settled(name)
        return wait if is_quiet else None

    async def _scan(self, name: Name) -> timedelta | None:
        # What was heard while the scan waited for its place counts too.
        trigger, since = self._triggers.pop(name, (Trigger.SCAN, None))
        died = since if trigger is Trigger.POD_DEATH else None
        return await self._scanner.scan(name, trigger, since=died)
