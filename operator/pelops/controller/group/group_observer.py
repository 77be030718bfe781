"""Everything that a replica knows of a group: one observation, and its memory between passes.

`GroupObserver` reads the Secret, the group and its workers. What cannot be read becomes a problem
within the facts; only an API server that does not answer is raised, because without it nothing can
be reported. `GroupMemories` keeps what the next pass compares with. Losing it costs time only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.redis import RedisSpec
from pelops.controller.runtime.cache import Name, Recent
from pelops.controller.runtime.connections import Connections, explain_unreachable
from pelops.controller.runtime.kind import Memory
from pelops.controller.workload.sharing import SharedWorkloads
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.condition import Finding
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys, check_slots, derive_keys
from pelops.domain.records.state import OwnerRecord
from pelops.domain.stream_observation import StreamObservation
from pelops.domain.workload import WorkloadObservation
from pelops.errors import PelopsError
from pelops.kube.client import Manifest
from pelops.kube.container_environment import WorkerAccess
from pelops.kube.pod_security import PodSecurity
from pelops.policy.group.losses import Holders, find_vanished
from pelops.policy.group.position import LastSeen, decide_went_back
from pelops.policy.group.provisioning import (
    StreamUser,
    decide_conflict,
    decide_dead_letters_in_use,
    needs_offer_stream,
    needs_retry_stream,
)
from pelops.policy.scaling.decision import decide_fixed, decide_unchanged
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.facts import Facts
from pelops.policy.status.reasons import Reason
from pelops.redis_core.server import Server, Topology
from pelops.redis_streams.group.group_observation import ObservationRequest, observe_groups
from pelops.redis_streams.group.maintenance import has_retry_stream

log = logging.getLogger(__name__)


KNOWN_S: Final = 30.0  # that there is a former retry stream counts for so long
ABSENT_S: Final = 600.0  # that there is none: only another generation could have left one
REMEMBERED: Final = 10_000  # answers


class GroupPart(StrEnum):
    """What an action belongs to: its failure is reported in that condition."""

    RESOURCE = "resource"
    GROUP = "group"
    WORKLOAD = "workload"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGroup:
    """The facts of one pass, and the ways to act on them."""

    facts: Facts
    owner: OwnerRecord
    server: Server | None
    access: WorkerAccess
    level: PodSecurity = PodSecurity.RESTRICTED  # of the pods of a template

    def with_problem(self, part: GroupPart, error: PelopsError) -> ObservedGroup:
        """The same, with the failure of an action on this part."""
        problem = diagnose(error)
        changes: dict[str, Any] = (
            {"workload_problem": problem}
            if part is GroupPart.WORKLOAD
            else {"redis_problem": problem}
        )
        return replace(self, facts=replace(self.facts, **changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisObservation:
    """A group as it was found in Redis, or why it could not be observed."""

    keys: GroupKeys | None = None
    server: Server | None = None
    stream: StreamObservation | None = None
    problem: Finding | None = None  # also when another resource acts on the group
    has_former_retry: bool = False  # a retry stream that the resource no longer asks for


@dataclass(frozen=True, slots=True)
class _Answer:
    generation: int
    key: str
    exists: bool
    until: float


class FormerRetryStreams:
    """Which groups still have a retry stream that their resource no longer asks for.

    No script is given the key before it is known to exist: an absent one stops every script while a
    cluster migrates its slot. So every replica asks for it separately, and seldom. What Redis
    answered is remembered for a while.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: Recent[str, _Answer] = Recent(REMEMBERED)

    async def is_left(self, resource: StreamConsumerGroup, server: Server, keys: GroupKeys) -> bool:
        """Whether the resource asks for no retry stream and there is one. Does not raise.

        When Redis does not answer, the last answer counts.
        """
        if needs_retry_stream(resource.spec):
            return False
        metadata = resource.metadata
        known = self._answers.get(metadata.uid)
        if known is not None and known.key != keys.retry:
            known = None
        if (
            known is not None
            and known.generation == metadata.generation
            and self._clock() < known.until
        ):
            return known.exists
        try:
            exists = await has_retry_stream(server, keys)
        except PelopsError as error:
            where = {"resource": metadata.key}
            log.debug("Could not check whether %s exists: %s", keys.retry, error, extra=where)
            return known is not None and known.exists
        until = self._clock() + (KNOWN_S if exists else ABSENT_S)
        self._answers[metadata.uid] = _Answer(metadata.generation, keys.retry, exists, until)
        return exists


async def connect_group(
    connections: Connections, resource: StreamConsumerGroup
) -> tuple[Server, GroupKeys]:
    """The server and the keys of a resource. Raises PelopsError with the cause.

    For a dry run, the server refuses all writes.
    """
    spec = resource.spec
    stream = spec.dead_letter.stream
    keys = derive_keys(spec.stream, resource.group_name, dead_letter=stream)
    server = await connections.server(spec.redis, resource.metadata.namespace)
    if server.kind.topology is Topology.CLUSTER:
        check_slots(keys)
    return (server.dry if spec.recovery.dry_run else server), keys


class GroupObserver:
    """Observes groups and their workers."""

    def __init__(
        self, cache: WorkloadCache, connections: Connections, targets: Targets, *, cluster: str
    ) -> None:
        self._cache = cache
        self._connections = connections
        self._targets = targets
        self._cluster = cluster  # identity of this Kubernetes cluster; empty when unknown
        self._former = FormerRetryStreams(time.monotonic)
        self._shared = SharedWorkloads(cache)

    async def observe(self, resource: StreamConsumerGroup) -> ObservedGroup:
        """Everything that is known now. Raises KubernetesUnavailable."""
        owner = self.owner_of(resource)
        (redis,) = await self.observe_redis([resource], with_consumers=True)
        workload, problem = await self.observe_workload(resource)
        sharing = self._shared.sharing((owner.namespace, owner.name))
        facts = Facts(
            resource=resource,
            workload=workload,
            sharing=sharing,
            scaling=decide_fixed(resource.spec, workload, sharing)
            or decide_unchanged(
                resource.spec, redis_problem=redis.problem, workload_problem=problem
            ),
            keys=redis.keys,
            stream=redis.stream,
            server_version=_version(redis.server),
            topology=redis.server.kind.topology.value.capitalize() if redis.server else None,
            evicts_any_key=redis.server is not None and redis.server.kind.evicts_any_key,
            redis_problem=redis.problem,
            workload_problem=problem,
        )
        access = WorkerAccess()
        if redis.problem is None:
            spec = resource.spec
            access = await self._connections.access_of(
                spec.redis, spec.worker_secret_ref, owner.namespace
            )
        return ObservedGroup(facts=facts, owner=owner, server=redis.server, access=access)

    def owner_of(self, resource: StreamConsumerGroup) -> OwnerRecord:
        """The owner record of this resource, as Redis stores it."""
        metadata = resource.metadata
        return OwnerRecord(
            uid=metadata.uid,
            cluster=self._cluster,
            namespace=metadata.namespace,
            name=metadata.name,
            created=metadata.creation_timestamp or datetime.now(UTC),
        )

    async def connect(self, resource: StreamConsumerGroup) -> tuple[Server, GroupKeys]:
        """The server and the keys of a resource. Raises PelopsError with the cause.

        For a dry run, the server refuses all writes.
        """
        return await connect_group(self._connections, resource)

    async def has_former_retry(
        self, resource: StreamConsumerGroup, server: Server, keys: GroupKeys
    ) -> bool:
        """Whether there is a retry stream that the resource no longer asks for. Does not raise."""
        return await self._former.is_left(resource, server, keys)

    async def observe_redis(
        self,
        resources: Sequence[StreamConsumerGroup],
        *,
        deep: Collection[str] = (),
        with_consumers: bool = False,
    ) -> list[RedisObservation]:
        """What Redis shows of the groups of these resources, in their order.

        Those of one server are observed together, in a few round trips. `deep` has the uids of
        those whose undelivered entries are counted though the server's number may be right.
        """
        views = await asyncio.gather(*(self._reach(resource) for resource in resources))
        asked: dict[Server, dict[str, ObservationRequest]] = defaultdict(dict)
        for resource, view in zip(resources, views, strict=True):
            uid = resource.metadata.uid
            if view.server is not None and view.keys is not None:
                asked[view.server][uid] = request_observation(
                    resource,
                    view.keys,
                    has_former_retry=view.has_former_retry,
                    is_deep=uid in deep,
                    with_consumers=with_consumers,
                )
        seen = await asyncio.gather(*(_observe_together(*one) for one in asked.items()))
        answers = {uid: answer for part in seen for uid, answer in part.items()}
        return [
            self._find_problem(resource, view, answers.get(resource.metadata.uid))
            for resource, view in zip(resources, views, strict=True)
        ]

    async def _reach(self, resource: StreamConsumerGroup) -> RedisObservation:
        try:
            server, keys = await self.connect(resource)
        except PelopsError as error:
            return self._fail(resource, RedisObservation(), error)
        has_former_retry = await self.has_former_retry(resource, server, keys)
        return RedisObservation(server=server, keys=keys, has_former_retry=has_former_retry)

    def _find_problem(
        self,
        resource: StreamConsumerGroup,
        view: RedisObservation,
        stream: StreamObservation | PelopsError | None,
    ) -> RedisObservation:
        if stream is None:
            return view
        if isinstance(stream, PelopsError):
            return self._fail(resource, view, stream)
        conflict = decide_conflict(stream.ownership, self.owner_of(resource), stream.server_time)
        problem = conflict or self._find_letters_in_use(resource, stream)
        return replace(view, stream=stream, problem=problem)

    def _find_letters_in_use(
        self, resource: StreamConsumerGroup, stream: StreamObservation
    ) -> Finding | None:
        """Another resource that names the dead-letter stream as its stream, in the same words.

        Looked for only where it may matter; other groups than those of resources are an alarm.
        """
        key = resource.spec.dead_letter.stream
        if key is None or (stream.owns_dead_letters and not stream.dead_letter_groups):
            return None
        users = (
            _stream_user(manifest)
            for manifest in self._cache.resources.values()
            if names_stream(manifest, resource, key)
        )
        own = StreamUser(
            created=resource.metadata.creation_timestamp or datetime.now(UTC),
            uid=resource.metadata.uid,
            name=resource.metadata.key,
        )
        return decide_dead_letters_in_use(own, users, key=key, is_adopted=stream.owns_dead_letters)

    def _fail(
        self, resource: StreamConsumerGroup, view: RedisObservation, error: PelopsError
    ) -> RedisObservation:
        redis, namespace = resource.spec.redis, resource.metadata.namespace
        self._connections.forget_mendable_secret(redis, namespace, error)
        return replace(view, problem=explain_unreachable(error, redis, namespace))

    async def observe_workload(
        self, resource: StreamConsumerGroup
    ) -> tuple[WorkloadObservation, Finding | None]:
        """The workers, and why this resource may not run them. Raises KubernetesUnavailable."""
        workload, problem = await self._targets.observe(resource)
        if problem is None and resource.spec.template is not None:
            problem = find_name_taken(resource, workload)
        return workload, problem


def names_stream(manifest: Manifest, resource: StreamConsumerGroup, stream: str) -> bool:
    """Whether a resource names this stream, at the Redis of another one, in the same words."""
    spec, ours = manifest.get("spec") or {}, resource.spec
    redis = spec.get("redis") or {}
    secret = ours.redis.secret_ref
    is_same_secret = (redis.get("secretRef") or {}).get("name") == (secret.name if secret else None)
    is_same_place = (
        secret is None or manifest["metadata"].get("namespace") == resource.metadata.namespace
    )
    is_same_address = redis.get("url") == ours.redis.url and _has_same_sentinels(redis, ours.redis)
    is_same_redis = is_same_address and is_same_secret and is_same_place
    return bool(spec.get("stream") == stream and is_same_redis)


def _has_same_sentinels(redis: Mapping[str, Any], ours: RedisSpec) -> bool:
    theirs = redis.get("sentinel") or {}
    own = ours.sentinel
    if own is None:
        return not theirs
    is_same_master = theirs.get("masterName") == own.master_name
    return is_same_master and set(theirs.get("nodes") or ()) == set(own.nodes)


def _stream_user(manifest: Manifest) -> StreamUser:
    metadata = manifest["metadata"]
    return StreamUser(
        created=datetime.fromisoformat(metadata["creationTimestamp"]),
        uid=metadata["uid"],
        name=f"{metadata['namespace']}/{metadata['name']}",
    )


def request_observation(
    resource: StreamConsumerGroup,
    keys: GroupKeys,
    *,
    has_former_retry: bool = False,
    is_deep: bool = False,
    with_consumers: bool = True,
) -> ObservationRequest:
    """The request for an observation of a group, with or without consumers and dead letters."""
    spec = resource.spec
    return ObservationRequest(
        keys,
        with_retry=needs_retry_stream(spec) or has_former_retry,
        with_offers=needs_offer_stream(spec),
        is_retry_former=has_former_retry,
        is_deep=is_deep,
        with_consumers=with_consumers,
        with_letters=with_consumers,
    )


async def _observe_together(
    server: Server, requests: Mapping[str, ObservationRequest]
) -> dict[str, StreamObservation | PelopsError]:
    answers = await observe_groups(server, requests.values())
    return {uid: answers[request] for uid, request in requests.items()}


def _version(server: Server | None) -> str | None:
    if server is None or server.kind.version is None:
        return None
    number = ".".join(map(str, server.kind.version))
    return f"Valkey {number}" if server.kind.flavour == "valkey" else number


def find_name_taken(resource: StreamConsumerGroup, workload: WorkloadObservation) -> Finding | None:
    """The problem if another controller has a Deployment with the name for the `template`."""
    if not workload.exists or workload.controller_uid == resource.metadata.uid:
        return None
    return Finding(
        reason=Reason.NAME_TAKEN,
        message=(
            f"{workload.target} exists, but was not created by Pelops for this resource: delete or "
            "rename it, or name it in spec.targetRef instead of spec.template"
        ),
        is_terminal=True,
    )


@dataclass(frozen=True, slots=True)
class OwnedGroup:
    """A group that a resource acts on, and the way to it."""

    server: Server
    keys: GroupKeys
    owner: OwnerRecord
    redis: RedisSpec  # the Redis in the spec at that time


@dataclass(slots=True)
class GroupMemory(Memory):
    """One group's memory."""

    # The uid, generation, and content of an apply that changed nothing: it is not repeated.
    unchanged_apply: tuple[str, int, str] | None = None
    # The input for a Deployment that needed no apply: it is not built again.
    confirmed: tuple[str, int, WorkerAccess, PodSecurity, str] | None = None
    # The same for the PodDisruptionBudget, and when an apply is tried again after a refusal.
    unchanged_budget_apply: tuple[str, int, str] | None = None
    budget_refused_until: float = float("-inf")
    owned: OwnedGroup | None = (
        None  # the group that this resource acts on, released after its deletion
    )
    is_leaving: bool = False  # the resource is deleted; the next pass releases the group
    expired_at: datetime | None = None  # the last search for old dead letters, on Redis' clock
    expired_to: EntryId | None = None  # the position at which that search continues
    last_seen: LastSeen | None = None  # the position of the group at the last observation
    # The next attempt to move copies of a former retry stream, on Redis' clock.
    return_after: datetime | None = None
    # The group of the last observation: uid of the resource, server, stream, and group. Another
    # group is not compared with it.
    seen_of: tuple[str, ...] | None = None
    holders: Holders | None = None  # the consumers with pending entries at that time
    is_elsewhere: bool = False  # the group has changed: the status may describe the former one

    def switch_to(self, group: tuple[str, ...]) -> None:
        """Forget the position of another group: the resource names this one now."""
        if self.seen_of != group:
            self.is_elsewhere = self.seen_of is not None
            self.last_seen, self.holders, self.seen_of = None, None, group
            self.expired_to = None

    def note(self, group: tuple[str, ...], stream: StreamObservation) -> None:
        """Keep a newer observation of the same group.

        An observation of a loss, or of a position that went back, is left to the pass that records
        it. So is the first observation, which is compared with the status.
        """
        before = self.last_seen
        if before is None or self.seen_of != group or stream.group is None:
            return
        if before.at is not None and before.at > stream.server_time:
            return
        if decide_went_back(before, stream) is None and find_vanished(before, stream) is None:
            self.last_seen = LastSeen.of(stream)


def identify(resource: StreamConsumerGroup, server: Server, keys: GroupKeys) -> tuple[str, ...]:
    """Name the group that a resource acts on, wherever it is."""
    return resource.metadata.uid, server.address, keys.stream, keys.group


class GroupMemories(defaultdict[Name, GroupMemory]):
    """Memories by resource."""

    def __init__(self) -> None:
        super().__init__(GroupMemory)

    def note(self, resource: StreamConsumerGroup, redis: RedisObservation) -> None:
        """Keep an observation that another loop of this replica made, if it is newer."""
        memory = self.get((resource.metadata.namespace, resource.metadata.name))
        stream, server, keys = redis.stream, redis.server, redis.keys
        if memory is None or stream is None or server is None or keys is None:
            return
        memory.note(identify(resource, server, keys), stream)
