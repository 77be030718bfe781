"""The next write to the workers: their Deployment as it should look, then its replicas."""

from __future__ import annotations

from pelops.controller.group.memory import Memory
from pelops.controller.group.observation import View
from pelops.controller.group.targets import Targets
from pelops.controller.runtime.cache import Cache, Deployment
from pelops.controller.runtime.passes import Part, Step
from pelops.controller.runtime.versions import Name
from pelops.controller.scaling.victims import Fleet, Victims
from pelops.errors import InvalidSpec
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.resources import DEPLOYMENT
from pelops.kube.worker_deployment import (
    build_deployment,
    deployment_name,
    fingerprint_of,
    is_applied,
)
from pelops.policy.scaling.decision import is_automatic


class WorkloadSteps:
    """Finds the next step for the workers of a view whose group is ready."""

    def __init__(self, api: KubeApi, cache: Cache, targets: Targets) -> None:
        self._api = api
        self._cache = cache
        self._targets = targets
        self._victims = Victims(api, cache)

    def next_step(self, view: View, memory: Memory) -> Step | None:
        """The first thing that is not as it should be, or None. Raises InvalidSpec."""
        has_template = view.facts.resource.spec.template is not None
        # What is no longer asked for goes, whatever keeps the new target from being used.
        step = None if has_template else self._remove_former(view)
        if step is not None or view.facts.workload_problem is not None:
            return step
        if has_template:
            step = self._apply_deployment(view, memory)
        return step or self._scale(view)

    def _apply_deployment(self, view: View, memory: Memory) -> Step | None:
        resource, keys = view.facts.resource, view.facts.keys
        if keys is None:
            raise InvalidSpec("the group's keys are not known")
        metadata = resource.metadata
        name = (metadata.namespace, deployment_name(metadata.name))
        known = self._cache.deployments.get(name)
        live = known.manifest if known else None
        look = (metadata.uid, metadata.generation, view.access, _version(live) if live else "")
        if memory.confirmed == look:
            return None
        body = build_deployment(resource, keys, view.access)
        fingerprint = fingerprint_of(body)  # before the replicas, which nobody compares
        if live is not None and (
            is_applied(body, live) or memory.settled == _settled(live, fingerprint)
        ):
            memory.confirmed = look
            return None
        if known is None or known.replicas_owner is None:
            # Nobody else owns the number: leaving it out would reset it to 1.
            body["spec"]["replicas"] = _replicas(view)

        async def write() -> None:
            answer = await self._api.apply(_address(name), body)
            if live is not None and _version(answer) == _version(live):
                memory.settled = _settled(answer, fingerprint)
            self._cache.put(DEPLOYMENT, answer)

        what = f"applying Deployment {name[1]}" if live else f"creating Deployment {name[1]}"
        return Step(part=Part.WORKLOAD, what=what, do=write, reads_secrets=True)

    def _remove_former(self, view: View) -> Step | None:
        """The Deployment of a `template` that the resource no longer has."""
        metadata = view.facts.resource.metadata
        name = (metadata.namespace, deployment_name(metadata.name))
        known = self._cache.deployments.get(name)
        if known is None or not _belongs_to(known, metadata.uid):
            return None
        uid = known.observation.uid

        async def write() -> None:
            await self._api.delete(_address(name), uid=uid)
            self._cache.remove(DEPLOYMENT, name, uid)

        what = f"removing Deployment {name[1]}, for which there is no template any more"
        return Step(part=Part.WORKLOAD, what=what, do=write)

    def _scale(self, view: View) -> Step | None:
        facts = view.facts
        if facts.scaling is None or is_automatic(facts.resource.spec):
            return None  # the scale loop looks more often
        replicas, workload = facts.scaling.replicas, facts.workload
        if replicas is None or not workload.exists or workload.wished == replicas:
            return None

        async def write() -> None:
            await self._name_victims(view, replicas)
            await self._targets.scale(workload.target, replicas)

        what = f"scaling {workload.target} from {workload.wished} to {replicas}"
        return Step(part=Part.WORKLOAD, what=what, do=write)

    async def _name_victims(self, view: View, replicas: int) -> None:
        facts = view.facts
        leaving = (facts.workload.wished or 0) - replicas
        if replicas == 0 or leaving <= 0 or view.server is None or facts.keys is None:
            return
        fleet = Fleet(
            resource=facts.resource, server=view.server, keys=facts.keys, workload=facts.workload
        )
        await self._victims.name_victims(fleet, leaving)


def _belongs_to(deployment: Deployment, uid: str) -> bool:
    return deployment.observation.controller_uid == uid


def _address(name: Name) -> Address:
    return Address(kind=DEPLOYMENT, namespace=name[0], name=name[1])


def _replicas(view: View) -> int:
    facts = view.facts
    if facts.workload.exists and facts.workload.wished is not None:
        return facts.workload.wished
    spec = facts.resource.spec
    if spec.scaling is not None and is_automatic(spec):
        return spec.scaling.min_replicas
    return spec.replicas


def _settled(live: Manifest, fingerprint: str) -> tuple[str, int, str]:
    metadata = live["metadata"]
    return metadata["uid"], metadata.get("generation", 0), fingerprint


def _version(manifest: Manifest) -> str:
    return str(manifest["metadata"]["resourceVersion"])
