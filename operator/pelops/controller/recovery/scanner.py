"""One scan of a group, from its opening to its report.

`scan.py` has what happens to each stream, `owners.py` who owns its entries, and `scan_report.py`
how the scan is reported.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from pelops.api.group.recovery import RecoveryStrategy
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.schema.base import ObjectMeta
from pelops.clock import with_jitter
from pelops.controller.group.group_observer import GroupObserver
from pelops.controller.recovery.dry_runs import DryRuns
from pelops.controller.recovery.findings import Findings
from pelops.controller.recovery.owners import OwnerLookup, is_gone
from pelops.controller.recovery.pod_evidence import LivenessEvidence
from pelops.controller.recovery.scan import (
    MOST_DRY_PAGES,
    MOST_PAGES,
    GroupScan,
    StreamScan,
)
from pelops.controller.recovery.scan_report import ScanCloser, render_findings
from pelops.controller.recovery.scan_schedule import ScanSchedule
from pelops.controller.recovery.stuck_count import count_stuck
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.leases import Members
from pelops.controller.workload.sharing import SharedWorkloads
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.entry_id import EntryId
from pelops.domain.locks import lock_slot_problem
from pelops.domain.naming import GroupKeys
from pelops.domain.records.state import OwnerRecord
from pelops.domain.recovery import StreamInScan, Trigger
from pelops.errors import (
    InvalidReply,
    InvalidSpec,
    NoSuchGroup,
    NotOurs,
    OutcomeUnknown,
    PelopsError,
    RedisError,
    RedisUnavailable,
    SlotMigrating,
    UnknownRefusal,
)
from pelops.kube.event_recorder import EventContent
from pelops.metrics import RECOVERY_LATENCY, SCAN_SECONDS, SCANS
from pelops.policy.group.provisioning import needs_offer_stream, needs_retry_stream
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.reasons import Reason
from pelops.redis_core.server import Server, Topology
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.recovery.consumers import ObservedConsumer, remove_consumer
from pelops.redis_streams.recovery.lock_lifetimes import read_lifetimes
from pelops.redis_streams.recovery.scan_calls import NotDue, finish_scan, open_scan
from pelops.redis_streams.recovery.stuck_entries import ScanContext

log = logging.getLogger(__name__)

SOONEST_LOCK: Final = timedelta(milliseconds=50)
LOCKS_ASKED: Final = 20
# Errors that end by themselves, or that the pass of the resource reports: not in the scan's report.
_PASSING: Final = (NotOurs, NoSuchGroup, OutcomeUnknown, RedisUnavailable)
# Of these, the ones that last until a user changes something.
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
    listening_problem: Callable[[Name], str | None]  # why no expiry of a lock is reported
    identity: str
    make_due: Callable[[Name], None]  # the status of this resource is worth a pass
    is_settled: Callable[[Name], bool]  # nothing of a group is pending, as was read or reported


class Scanner:
    """Scans one group at a time, when asked."""

    def __init__(self, parts: ScanAdapters, clock: Callable[[], float]) -> None:
        self._parts = parts
        self._clock = clock
        self._owners = OwnerLookup(parts.evidence, parts.targets, parts.cache, skew=parts.skew)
        self._closer = ScanCloser(parts.reporter)
        self._schedule = ScanSchedule()
        self._shared = SharedWorkloads(parts.cache)
        self.dry_runs = DryRuns(parts.reporter, parts.make_due)
        self.is_settled = parts.is_settled

    async def scan(
        self, name: Name, trigger: Trigger, *, since: float | None = None
    ) -> timedelta | None:
        """Scan now; how long until the next scan, or None when there is nothing to scan.

        `since` is when the death that triggers it was noticed, on the clock given.
        """
        resource = self._find(name)
        is_dry = resource is not None and resource.spec.recovery.dry_run
        if not is_dry:
            self.dry_runs.forget(name)
        if resource is None:
            self._closer.forget(name)
            self._owners.forget(name)
            self._schedule.forget(name)
            return None
        began = self._clock()
        findings = Findings(trigger=trigger)
        outcome, wait = await self._attempt(resource, findings)
        # What was done before a scan failed is done, and no other one will report it.
        if not is_dry:
            await self._closer.report(resource.metadata, findings)
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
        """The outcome of the scan, and the wait until the next one. Handles PelopsError."""
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
            return "failed", self._schedule.plan_early(_name(resource), wait)

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
            uid, report = resource.metadata.uid, render_findings(findings)
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
            due=self._schedule.due(_name(resource), interval, findings.trigger, rank=rank),
            with_retry=has_former_retry or needs_retry_stream(resource.spec),
            is_retry_former=has_former_retry,
            is_first=rank == 0,
        )
        if isinstance(observation, NotDue):
            wait = self._schedule.until_next(
                interval, scanned_at=observation.scanned_at, now=observation.now, rank=rank
            )
            return "not-due", wait
        findings.at = observation.now
        scan = GroupScan(
            resource=resource, server=server, keys=keys, observation=observation, findings=findings
        )
        await self._scan_streams(scan)
        await self._closer.close(scan)
        usual = self._schedule.until_next(
            interval, scanned_at=observation.now, now=observation.now, rank=rank
        )
        unlocked = await until_unlocked(scan, usual)
        findings.earliest = min(findings.earliest or unlocked, unlocked)
        left = findings.unfinished(observation.retry_batch.written)
        outcome = DONE if findings.is_complete else "failed"
        return outcome, self._schedule.after(scan.name, left, usual, rank=rank)

    async def _scan_dry(
        self, resource: StreamConsumerGroup, findings: Findings, interval: timedelta
    ) -> tuple[str, timedelta]:
        """A scan through a server that refuses writes.

        Only the replica that writes the numbers of the status makes it: Redis does not record it.
        """
        name, observer = _name(resource), self._parts.observer
        wait = with_jitter(interval, 0.1)
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
                observation=replace(observation, cursor=""),  # no other scan continues it
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
            if counts_only or _only_counts(scan, stream):
                await self._count_stream(scan, stream)
            else:
                await self._scan_stream(scan, stream)
        unheard = None if counts_only else self._parts.listening_problem(scan.name)
        if unheard is not None and findings.problem is None:
            findings.problem = (Reason.KEYSPACE_NOTIFICATIONS_UNAVAILABLE, unheard)

    async def _scan_stream(self, scan: GroupScan, stream: StreamInScan) -> None:
        """Scan one stream. What prevents it is reported, and does not stop the other stream."""
        run = self._begin(scan, stream)
        problem = find_unusable_locks(scan)
        if problem is not None:
            scan.findings.fail(Reason.LOCK_IN_ANOTHER_SLOT, problem)
            scan.findings.is_counted = False  # what is locked is not stuck
            return
        consumers: list[ObservedConsumer] | None = None
        try:
            await run.review_offers()
            consumers = await self._owners.check_owners(scan, run)
            if stream.pending:
                await run.recover_dead()
                await run.recover_idle()
                await run.find_dangling()
            await run.settle()
            await self._remove_consumers(run, consumers)
        except PelopsError as error:
            if _is_passing(error):
                raise
            finding = diagnose(error)
            scan.findings.fail(finding.reason, finding.message)
            if not scan.server.is_dry:
                await self._count_rest(run, consumers)

    async def _count_rest(self, run: StreamScan, consumers: list[ObservedConsumer] | None) -> None:
        """Count what is stuck in a stream that could not be scanned to its end, if it can be."""
        findings = run.findings
        if consumers is None:
            findings.is_counted = False
            return
        try:
            findings.counted += await count_stuck(run, consumers)
        except PelopsError:
            findings.is_counted = False

    async def _count_stream(self, scan: GroupScan, stream: StreamInScan) -> None:
        """Count the stuck entries of a stream of which nothing may be recovered: only reads."""
        run = self._begin(scan, stream)
        if find_unusable_locks(scan) is not None:
            scan.findings.is_counted = False
            return
        consumers = await self._owners.check_owners(scan, run)
        scan.findings.counted += await count_stuck(run, consumers)

    def _begin(self, scan: GroupScan, stream: StreamInScan) -> StreamScan:
        recovery, keys = scan.resource.spec.recovery, scan.keys
        with_retry = needs_retry_stream(scan.resource.spec)
        has_former_retry = scan.observation.retry is not None and not with_retry
        if has_former_retry and stream.name == keys.retry:
            # Whatever the strategy is by now, what is stuck there can only be copied.
            recovery = recovery.model_copy(update={"strategy": RecoveryStrategy.REQUEUE})
        context = ScanContext(
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
        return StreamScan(
            server=scan.server,
            context=context,
            recovery=recovery,
            observation=scan.observation,
            stream=stream,
            findings=scan.findings,
            most_pages=MOST_DRY_PAGES if scan.server.is_dry else MOST_PAGES,
        )

    async def _remove_consumers(self, run: StreamScan, consumers: list[ObservedConsumer]) -> None:
        """Remove the consumers of deleted pods. The script checks that they own no entries."""
        for consumer in consumers:
            liveness = run.liveness.get(consumer.name)
            has_left = liveness is not None and is_gone(liveness)
            if has_left and await remove_consumer(run.server, run.context, consumer.name):
                run.findings.removed.append(consumer.name)


def _only_counts(scan: GroupScan, stream: StreamInScan) -> bool:
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


async def until_unlocked(scan: GroupScan, longest: timedelta) -> timedelta:
    """When the first of the locks that kept entries runs out, as far as Redis knows now."""
    left = await read_lifetimes(scan.server, scan.findings.locked[:LOCKS_ASKED])
    return min([longest, *(one + SOONEST_LOCK for one in left)])


def find_unusable_locks(scan: GroupScan) -> str | None:
    """Why it cannot be known whether locks exist; None when it can be."""
    locks = scan.resource.spec.recovery.locks
    if locks is None or scan.server.kind.topology is not Topology.CLUSTER:
        return None
    return lock_slot_problem(locks.key_template, scan.keys)
