"""Whom the entries of a stream belong to, and which of these are certainly no more."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.recovery.completion import GroupScan, read_records
from pelops.controller.recovery.pod_evidence import Judgement, LivenessEvidence, LivenessQuestion
from pelops.controller.recovery.scan import Ground
from pelops.controller.runtime.cache import Name
from pelops.controller.workload.cache import WorkloadCache
from pelops.controller.workload.targets import Targets
from pelops.domain.liveness import LivenessReason
from pelops.domain.state import POD
from pelops.domain.workload import Target, WorkloadObservation
from pelops.errors import KubernetesError
from pelops.policy.recovery.pod_end import could_be_dead
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.recovery.consumers import (
    LISTABLE,
    ObservedConsumer,
    list_consumers,
    list_lowest_owners,
)

# Forbidden as well: an API server that starts forbids everything until it has read its roles.
_DOUBTS: Final = (LivenessReason.UNREADABLE, LivenessReason.FORBIDDEN)
LOWEST: Final = 200  # pending entries whose owners are looked at instead


class Judging:
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

    async def judge(
        self, scan: GroupScan, ground: Ground
    ) -> tuple[dict[str, Judgement], list[ObservedConsumer]]:
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
            container=scan.resource.spec.container,
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
