"""One look at everything that concerns a resource: its Secret, its group, its workers.

Whatever cannot be seen becomes a problem within the facts; only an API server that does not answer
is raised, because without it nothing can be told to anybody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.redis import RedisSpec, SecretRef
from pelops.controller.group.retry_streams import FormerRetryStreams
from pelops.controller.group.targets import Targets
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.secrets import Secrets
from pelops.controller.runtime.versions import Name
from pelops.domain.condition import Finding
from pelops.domain.endpoint import RedisEndpoint, build_endpoint
from pelops.domain.naming import GroupKeys, check_slots, derive_keys
from pelops.domain.observation import StreamObservation
from pelops.domain.ownership import OwnerRecord
from pelops.domain.workload import WorkloadObservation
from pelops.errors import (
    AuthenticationFailed,
    Forbidden,
    InvalidSpec,
    NotFound,
    PelopsError,
    PermissionDenied,
    RedisUnavailable,
)
from pelops.kube.worker_environment import WorkerAccess
from pelops.policy.group.conflicts import Claim, decide_target_owner
from pelops.policy.group.provisioning import (
    decide_conflict,
    needs_handover_stream,
    needs_retry_stream,
)
from pelops.policy.scaling.decision import decide_fixed, keep_hands_off
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.facts import Facts
from pelops.policy.status.reasons import Reason
from pelops.redis_core.pool import ServerPool
from pelops.redis_core.server import Server, Topology
from pelops.redis_streams.group.observation import Look, observe_groups


def explain(error: PelopsError, redis: RedisSpec, namespace: str) -> Finding:
    """What keeps a Redis that a resource names from being looked at. Total."""
    reference = redis.secret_ref
    if reference is not None and isinstance(error, NotFound):
        return Finding(
            reason=Reason.SECRET_MISSING,
            message=(
                f"Secret {namespace}/{reference.name} does not exist; create it "
                "with the key url, and username and password if Redis wants them. Pelops goes on "
                "by itself when it is there"
            ),
        )
    return diagnose(error)


def find_name_taken(resource: StreamConsumerGroup, workload: WorkloadObservation) -> Finding | None:
    """Why a `template` makes no Deployment when somebody else has one of that name."""
    if not workload.exists or workload.controller_uid == resource.metadata.uid:
        return None
    return Finding(
        reason=Reason.NAME_TAKEN,
        message=(
            f"{workload.target} exists and belongs to somebody else; delete or rename it, or name "
            "it in spec.targetRef instead of spec.template"
        ),
        is_terminal=True,
    )


log = logging.getLogger(__name__)

_MENDABLE = (AuthenticationFailed, InvalidSpec, PermissionDenied, RedisUnavailable)
OUTAGE_FRESH_S = 10.0  # how long a Secret is believed while its Redis cannot be reached
FRESH_S = 2.0  # a Secret that was read so recently may decide what is written


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The facts of one turn, and the ways to act on them."""

    facts: Facts
    owner: OwnerRecord
    server: Server | None
    access: WorkerAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisView:
    """A group as it was found in Redis, or why it could not be looked at."""

    keys: GroupKeys | None = None
    server: Server | None = None
    stream: StreamObservation | None = None
    problem: Finding | None = None  # also when another resource acts on the group
    has_former_retry: bool = False  # a retry stream that the resource no longer asks for


class Observer:
    """Looks at resources through the doors."""

    def __init__(
        self, cache: Cache, pool: ServerPool, secrets: Secrets, targets: Targets, *, cluster: str
    ) -> None:
        self._cache = cache
        self._pool = pool
        self._secrets = secrets
        self._targets = targets
        self._cluster = cluster  # identity of this Kubernetes cluster; empty when unknown
        self._former = FormerRetryStreams(time.monotonic)

    async def observe(self, resource: StreamConsumerGroup) -> View:
        """Everything that is known now. Raises KubernetesUnavailable."""
        owner = self.owner_of(resource)
        (redis,) = await self.observe_redis([resource], with_consumers=True)
        workload, problem = await self.observe_workload(resource)
        facts = Facts(
            resource=resource,
            workload=workload,
            scaling=decide_fixed(resource.spec, workload)
            or keep_hands_off(resource.spec, redis_problem=redis.problem, workload_problem=problem),
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
            access = await self.access_of(spec.redis, spec.worker_secret_ref, owner.namespace)
        return View(facts=facts, owner=owner, server=redis.server, access=access)

    def owner_of(self, resource: StreamConsumerGroup) -> OwnerRecord:
        """How this resource introduces itself to Redis."""
        metadata = resource.metadata
        return OwnerRecord(
            uid=metadata.uid,
            cluster=self._cluster,
            namespace=metadata.namespace,
            name=metadata.name,
            created=metadata.creation_timestamp or datetime.now(UTC),
        )

    async def connect(self, resource: StreamConsumerGroup) -> tuple[Server, GroupKeys]:
        """The server and the keys of a resource. Raises PelopsError with the cause."""
        spec = resource.spec
        stream = spec.dead_letter.stream
        keys = derive_keys(spec.stream, resource.group_name, dead_letter=stream)
        server = await self._server(spec.redis, resource.metadata.namespace)
        if server.kind.topology is Topology.CLUSTER:
            check_slots(keys)
        return server, keys

    async def has_former_retry(
        self, resource: StreamConsumerGroup, server: Server, keys: GroupKeys
    ) -> bool:
        """Whether there is a retry stream that the resource no longer asks for. Does not raise."""
        return await self._former.is_left(resource, server, keys)

    async def reach(self, redis: RedisSpec, namespace: str) -> Server:
        """The server that a resource of another kind names. Raises PelopsError with the cause."""
        try:
            return await self._server(redis, namespace)
        except PelopsError as error:
            self._forget_mendable_secret(redis, namespace, error)
            raise

    async def _server(self, redis: RedisSpec, namespace: str) -> Server:
        return await self._pool.server(await self._endpoint(redis, namespace))

    async def observe_redis(
        self,
        resources: Sequence[StreamConsumerGroup],
        *,
        deep: Collection[str] = (),
        with_consumers: bool = False,
    ) -> list[RedisView]:
        """What Redis shows of the groups of these resources, in their order.

        Those of one server are looked at together, in a few round trips. `deep` has the uids of
        those whose undelivered entries are counted though the server's number may be right.
        """
        views = await asyncio.gather(*(self._reach(resource) for resource in resources))
        asked: dict[Server, dict[str, Look]] = defaultdict(dict)
        for resource, view in zip(resources, views, strict=True):
            uid = resource.metadata.uid
            if view.server is not None and view.keys is not None:
                look = _look(resource, view, view.keys, is_deep=uid in deep)
                asked[view.server][uid] = replace(look, with_consumers=with_consumers)
        seen = await asyncio.gather(*(_look_together(*one) for one in asked.items()))
        answers = {uid: answer for part in seen for uid, answer in part.items()}
        return [
            self._judge(resource, view, answers.get(resource.metadata.uid))
            for resource, view in zip(resources, views, strict=True)
        ]

    async def _reach(self, resource: StreamConsumerGroup) -> RedisView:
        try:
            server, keys = await self.connect(resource)
        except PelopsError as error:
            return self._fail(resource, RedisView(), error)
        has_former_retry = await self.has_former_retry(resource, server, keys)
        return RedisView(server=server, keys=keys, has_former_retry=has_former_retry)

    def _judge(
        self,
        resource: StreamConsumerGroup,
        view: RedisView,
        stream: StreamObservation | PelopsError | None,
    ) -> RedisView:
        if stream is None:
            return view
        if isinstance(stream, PelopsError):
            return self._fail(resource, view, stream)
        conflict = decide_conflict(stream.hold, self.owner_of(resource), stream.server_time)
        return replace(view, stream=stream, problem=conflict)

    def _fail(
        self, resource: StreamConsumerGroup, view: RedisView, error: PelopsError
    ) -> RedisView:
        redis, namespace = resource.spec.redis, resource.metadata.namespace
        self._forget_mendable_secret(redis, namespace, error)
        return replace(view, problem=explain(error, redis, namespace))

    async def _endpoint(self, redis: RedisSpec, namespace: str) -> RedisEndpoint:
        secret: Mapping[str, bytes] = {}
        if redis.secret_ref is not None:
            secret = await self._secrets.read(namespace, redis.secret_ref.name)
        return build_endpoint(
            url=redis.url,
            secret=secret,
            sentinel_master=redis.sentinel.master_name if redis.sentinel else None,
            sentinel_nodes=redis.sentinel.nodes if redis.sentinel else (),
        )

    def forget_stale_secrets(self, resource: StreamConsumerGroup) -> bool:
        """Read the resource's Secrets anew at the next look; False when they are fresh already."""
        spec = resource.spec
        references = (spec.redis.secret_ref, spec.worker_secret_ref)
        return self.forget_stale(references, resource.metadata.namespace)

    def forget_stale(self, references: Iterable[SecretRef | None], namespace: str) -> bool:
        """Read these Secrets anew at the next look; False when all of them are fresh."""
        named = [reference for reference in references if reference is not None]
        stale = [one for one in named if self._secrets.age(namespace, one.name) > FRESH_S]
        for reference in stale:
            self._secrets.forget(namespace, reference.name)
        return bool(stale)

    def _forget_mendable_secret(self, redis: RedisSpec, namespace: str, error: PelopsError) -> None:
        """Read the Secret anew when another content of it might mend this failure."""
        reference = redis.secret_ref
        if reference is None or not isinstance(error, _MENDABLE):
            return
        # An outage is seldom the Secret's fault: not all resources need to ask for all of it.
        is_outage = isinstance(error, RedisUnavailable)
        if not is_outage or self._secrets.age(namespace, reference.name) > OUTAGE_FRESH_S:
            self._secrets.forget(namespace, reference.name)

    async def access_of(
        self, redis: RedisSpec, own_secret: SecretRef | None, namespace: str
    ) -> WorkerAccess:
        """Which Secrets workers or jobs use, `own_secret` first. One that is missing is empty."""
        own = redis.secret_ref.name if redis.secret_ref else None
        name = own_secret.name if own_secret else own
        keys = await self._secret_keys(namespace, name)
        own_keys = keys if name == own else await self._secret_keys(namespace, own)
        # A Secret's url may hold credentials, which spec.redis.url cannot.
        url_secret = name if "url" in keys else own if "url" in own_keys else None
        return WorkerAccess(url=redis.url, url_secret=url_secret, secret=name, secret_keys=keys)

    async def _secret_keys(self, namespace: str, name: str | None) -> frozenset[str]:
        if name is None:
            return frozenset()
        try:
            return frozenset(await self._secrets.read(namespace, name))
        except (NotFound, Forbidden):
            return frozenset()

    async def observe_workload(
        self, resource: StreamConsumerGroup
    ) -> tuple[WorkloadObservation, Finding | None]:
        """The workers, and why this resource may not run them. Raises KubernetesUnavailable."""
        workload, problem = await self._targets.observe(resource)
        if problem is None and resource.spec.template is not None:
            problem = find_name_taken(resource, workload)
        return workload, problem or self._target_conflict(resource, workload)

    def _target_conflict(
        self, resource: StreamConsumerGroup, workload: WorkloadObservation
    ) -> Finding | None:
        names = self._cache.resources_of(workload.target)
        claims = [self._claim(name) for name in names if name in self._cache.resources]
        own = [claim for claim in claims if claim.uid == resource.metadata.uid]
        # A resource that was deleted meanwhile claims nothing.
        return decide_target_owner(own[0], claims, target=str(workload.target)) if own else None

    def _claim(self, name: Name) -> Claim:
        manifest = self._cache.resources[name]
        metadata = manifest["metadata"]
        return Claim(
            is_guest=not manifest["spec"].get("template"),
            created=metadata["creationTimestamp"],
            uid=metadata["uid"],
            namespace=name[0],
            name=name[1],
        )


def _look(
    resource: StreamConsumerGroup, view: RedisView, keys: GroupKeys, *, is_deep: bool
) -> Look:
    spec = resource.spec
    return Look(
        keys,
        with_retry=needs_retry_stream(spec) or view.has_former_retry,
        with_handover=needs_handover_stream(spec),
        is_retry_former=view.has_former_retry,
        is_deep=is_deep,
    )


async def _look_together(
    server: Server, looks: Mapping[str, Look]
) -> dict[str, StreamObservation | PelopsError]:
    answers = await observe_groups(server, looks.values())
    return {uid: answers[look] for uid, look in looks.items()}


def _version(server: Server | None) -> str | None:
    if server is None or server.kind.version is None:
        return None
    number = ".".join(map(str, server.kind.version))
    return f"Valkey {number}" if server.kind.flavour == "valkey" else number
