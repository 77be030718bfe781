"""The next write that brings what is toward what is asked: one at a time, then a fresh look.

Each step repeats safely. If the process dies after one, the next look of any replica finds the
rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from pelops.api.stream_consumer_group import StreamConsumerGroup
from pelops.controller.cache import Cache
from pelops.controller.memory import Memory
from pelops.controller.observe import View
from pelops.controller.targets import Targets
from pelops.errors import InvalidSpec
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.resources import DEPLOYMENT, STREAM_CONSUMER_GROUP
from pelops.kube.workloads import build_deployment, is_applied
from pelops.policy.cleanup import decide_finalizer
from pelops.policy.provisioning import plan_provisioning
from pelops.redis_streams.groups import provision_group

FINALIZER = "pelops.dev/group"
FINALIZER_MANAGER = "pelops-finalizer"


class Part(StrEnum):
    """What a step belongs to: its failure is told in that condition."""

    RESOURCE = "resource"
    GROUP = "group"
    WORKLOAD = "workload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One write, not yet done."""

    part: Part
    what: str  # for the log
    reason: str  # of the event
    do: Callable[[], Awaitable[None]]


class Steps:
    """Finds the next step for a view."""

    def __init__(self, api: KubeApi, cache: Cache, targets: Targets) -> None:
        self._api = api
        self._cache = cache
        self._targets = targets

    def next_step(self, view: View, memory: Memory) -> Step | None:
        """The first thing that is not as it should be, or None. Raises InvalidSpec."""
        facts = view.facts
        if facts.resource.spec.suspend or facts.redis_problem is not None:
            return None
        return (
            self._finalizer(view)
            or self._group(view)
            or (self._workload(view, memory) if facts.is_group_ready else None)
        )

    def _finalizer(self, view: View) -> Step | None:
        resource = view.facts.resource
        wanted = decide_finalizer(
            deletes_group=resource.spec.deletion_policy == "Delete",
            has_finalizer=FINALIZER in resource.metadata.finalizers,
        )
        if wanted is None:
            return None

        async def write() -> None:
            await write_finalizer(self._api, self._cache, resource, present=wanted)

        what = "adding the finalizer" if wanted else "removing the finalizer"
        return Step(part=Part.RESOURCE, what=what, reason="Finalizer", do=write)

    def _group(self, view: View) -> Step | None:
        facts, server = view.facts, view.server
        if facts.stream is None or facts.keys is None or server is None:
            return None
        plan = plan_provisioning(
            facts.resource.spec, facts.stream, view.owner, was_created=was_created(view)
        )
        if not plan.lacks:
            return None
        keys = facts.keys

        async def write() -> None:
            await provision_group(server, keys, start=plan.start, owner=view.owner)

        return Step(part=Part.GROUP, what=plan.message, reason=plan.reason, do=write)

    def _workload(self, view: View, memory: Memory) -> Step | None:
        facts = view.facts
        if facts.workload_problem is not None:
            return None
        if facts.resource.spec.template is not None:
            step = self._deployment(view, memory)
            if step is not None:
                return step
        return self._scale(view)

    def _deployment(self, view: View, memory: Memory) -> Step | None:
        resource, keys = view.facts.resource, view.facts.keys
        if keys is None:
            raise InvalidSpec("the group's keys are not known")
        body = build_deployment(resource, keys, view.access)
        name = (resource.metadata.namespace, body["metadata"]["name"])
        known = self._cache.deployments.get(name)
        live = known.manifest if known else None
        fingerprint = hashlib.blake2b(json.dumps(body, sort_keys=True).encode()).hexdigest()
        if live is not None and (
            is_applied(body, live) or memory.settled == _settled(live, fingerprint)
        ):
            return None
        if known is None or known.replicas_owner is None:
            # Nobody else owns the number: leaving it out would reset it to 1.
            body["spec"]["replicas"] = _replicas(view)

        async def write() -> None:
            address = Address(kind=DEPLOYMENT, namespace=name[0], name=name[1])
            answer = await self._api.apply(address, body)
            if live is not None and _version(answer) == _version(live):
                memory.settled = _settled(answer, fingerprint)
            self._cache.put(DEPLOYMENT, answer)

        what = "restoring the Deployment" if live else "creating the Deployment"
        return Step(part=Part.WORKLOAD, what=what, reason="Applied", do=write)

    def _scale(self, view: View) -> Step | None:
        facts = view.facts
        replicas, workload = facts.scaling.replicas, facts.workload
        if replicas is None or not workload.exists or workload.wished == replicas:
            return None

        async def write() -> None:
            await self._targets.scale(workload.target, replicas)

        what = f"scaling {workload.target} from {workload.wished} to {replicas}"
        return Step(part=Part.WORKLOAD, what=what, reason="Scaled", do=write)


async def write_finalizer(
    api: KubeApi, cache: Cache, resource: StreamConsumerGroup, *, present: bool
) -> None:
    """Own the finalizer or give it up, by a field manager that owns nothing else. Repeats safely.

    The uid keeps an apply from bringing a deleted resource back.
    """
    metadata = resource.metadata
    body: Manifest = {
        "apiVersion": STREAM_CONSUMER_GROUP.api_version,
        "kind": STREAM_CONSUMER_GROUP.kind,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
            "finalizers": [FINALIZER] if present else [],
        },
    }
    address = Address(kind=STREAM_CONSUMER_GROUP, namespace=metadata.namespace, name=metadata.name)
    answer = await api.apply(address, body, manager=FINALIZER_MANAGER)
    cache.put(STREAM_CONSUMER_GROUP, answer)


def was_created(view: View) -> bool:
    """Whether the group existed before, as the resource's status remembers."""
    status = view.facts.resource.status
    return bool(status and status.group and status.group.last_delivered_id)


def _replicas(view: View) -> int:
    facts = view.facts
    if facts.workload.exists and facts.workload.wished is not None:
        return facts.workload.wished
    if facts.scaling.replicas is not None:
        return facts.scaling.replicas
    return facts.resource.spec.replicas


def _settled(manifest: Manifest, fingerprint: str) -> tuple[str, int, str]:
    metadata = manifest["metadata"]
    return metadata["uid"], metadata.get("generation", 0), fingerprint


def _version(manifest: Manifest) -> str:
    return str(manifest["metadata"]["resourceVersion"])
