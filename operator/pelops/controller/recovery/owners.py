"""The owners of the pending entries of a group, and whether their processes still run."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.recovery.pod_evidence import (
    ConsumerLiveness,
    LivenessEvidence,
    LivenessQuestion,
)
from pelops.controller.recovery.scan import GroupScan, StreamScan
from pelops.controller.runtime.cache import Name
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.records.state import BOOT, POD
from pelops.domain.recovery import LivenessReason
from pelops.domain.workload import Target, WorkloadObservation
from pelops.errors import KubernetesError
from pelops.policy.recovery.liveness import could_be_dead
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.recovery.consumers import (
    LISTABLE,
    ObservedConsumer,
    list_consumers,
    list_lowest_owners,
)
from pelops.redis_streams.recovery.scan_calls import read_fields

# FORBIDDEN too: an API server that starts refuses all requests until it has read its roles.
_UNCONFIRMED: Final = (LivenessReason.UNREADABLE, LivenessReason.FORBIDDEN)
LOWEST: Final = 200  # pending entries whose owners are checked if there are too many consumers


async def read_records(run: StreamScan, owners: list[str]) -> dict[str, str]:
    """The records of these consumers: by the operator, and by the workers themselves."""
    records: dict[str, str] = {}
    for kind in (POD, BOOT):
        names = [f"{kind}{owner}" for owner in owners]
        of_workers = kind == BOOT
        values = await read_fields(run.server, run.context.keys, names, of_workers=of_workers)
        records |= {
            name: value for name, value in zip(names, values, strict=True) if value is not None
        }
    return records


class OwnerLookup:
    """Reads the owners from Redis, and the state of their pods from the cluster."""

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

    async def check_owners(self, scan: GroupScan, run: StreamScan) -> list[ObservedConsumer]:
        """Find out whether the owners of the stream still run, and write it to `run.liveness`.

        Return the consumers of the stream, or none if there are too many to list.
        """
        stream, workload = run.stream, await self._observe_workload(scan)
        if stream.consumers == 0:
            return []
        consumers: list[ObservedConsumer] = []
        if stream.consumers <= LISTABLE:
            consumers = await list_consumers(run.server, stream.name, scan.keys.group)
            owners = [consumer.name for consumer in consumers]
        else:
            # The owners of the lowest pending entries, which have waited longest, and the consumer
            # names that Pelops gives to pods that may be dead. Idle entries name their owners.
            with_pending = await list_lowest_owners(
                run.server, stream.name, scan.keys.group, count=LOWEST
            )
            owners = list(dict.fromkeys([*with_pending, *self._likely_names(workload)]))
            scan.findings.is_partial = True
        with_pending = [consumer.name for consumer in consumers if consumer.pending] or owners
        records = await read_records(run, with_pending)
        question = LivenessQuestion(
            workload=workload,
            consumers=owners,
            records=records,
            server_time=scan.observation.now,
            skew=self._skew,
            container=scan.resource.spec.container_name,
            master_since=scan.observation.master_since,
            server=run.server.address,
        )
        run.liveness = await self._evidence.find_liveness(question)
        for owner in with_pending:
            _record_liveness(scan, owner, run.liveness[owner])
        return consumers

    async def _observe_workload(self, scan: GroupScan) -> WorkloadObservation:
        try:
            workload, _ = await self._targets.observe(scan.resource)
        except KubernetesError:
            # The workload as it was observed last still shows which pods belong to it.
            workload = self._workloads.get(scan.name) or _no_workload(scan.resource)
        self._workloads[scan.name] = workload
        return workload

    def _likely_names(self, workload: WorkloadObservation) -> list[str]:
        """The consumer names of pods that may be dead."""
        pods, gone = self._cache.pods_of(workload)
        suspects = [pod for pod in pods if could_be_dead(pod)] + [one.pod for one in gone]
        return [name for pod in suspects for name in (f"{pod.name}:{pod.uid}", pod.name)]


def _record_liveness(scan: GroupScan, owner: str, liveness: ConsumerLiveness) -> None:
    if liveness.match.is_unknown:
        scan.findings.unmatched.append(owner)
    if liveness.record is not None:
        scan.new_records[f"{POD}{owner}"] = liveness.record
    findings, cutoff = scan.findings, liveness.cutoff
    findings.has_unconfirmed_ends |= cutoff.reason in _UNCONFIRMED
    findings.await_end(cutoff, scan.observation.now)
    if cutoff.reason is LivenessReason.FORBIDDEN and findings.problem is None:
        findings.problem = (Reason.FORBIDDEN, cutoff.message)


def is_gone(liveness: ConsumerLiveness) -> bool:
    """Whether the consumer's pod no longer exists, and no other pod uses its name."""
    return liveness.cutoff.reason in (LivenessReason.GONE, LivenessReason.VANISHED)


def _no_workload(resource: StreamConsumerGroup) -> WorkloadObservation:
    target = Target(
        api_version="", kind="", namespace=resource.metadata.namespace, name=resource.metadata.name
    )
    return WorkloadObservation(target=target, exists=False)
