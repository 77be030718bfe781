"""What a replica knows of the workers of groups: Deployments, pods, nodes, autoscalers, budgets.

It follows those objects in the cache of the replica, and finds the groups that a change concerns.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pelops.controller.runtime.cache import (
    Cache,
    Concern,
    Name,
    ObjectChange,
    keep_nothing,
)
from pelops.controller.workload.pods import PodChange, Pods
from pelops.domain.recovery import GonePod
from pelops.domain.workload import NodeObservation, PodObservation, Target, WorkloadObservation
from pelops.kube.client import (
    AUTOSCALER,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NODE,
    POD,
    STREAM_CONSUMER_GROUP,
    Kind,
    Manifest,
)
from pelops.kube.disruption_budget import DisruptionBudget, observe_budget
from pelops.kube.trimmed import pack
from pelops.kube.worker_deployment import RESOURCE_LABEL, deployment_name, replicas_owner
from pelops.kube.workload_observation import (
    Selector,
    autoscaler_target,
    observe_deployment,
    observe_node,
    parse_label_selector,
    parse_selector,
)

Identity = tuple[str, str, str, str]
MOST_SHARING: Final = 100  # resources of one workload that are counted; else all would cost all
Owner = tuple[str, str | None]  # namespace and resource; None: any resource there


class Budgets:
    """PodDisruptionBudgets by name, and by the resource whose workers alone they may select."""

    def __init__(self) -> None:
        self._known: dict[Name, DisruptionBudget] = {}
        self._near: dict[Owner, dict[Name, DisruptionBudget]] = defaultdict(dict)

    def get(self, name: Name) -> DisruptionBudget | None:
        """The budget of this name."""
        return self._known.get(name)

    def put(self, name: Name, manifest: Manifest) -> set[Owner]:
        """Take in a budget: whose workers it is about, if more than its status has changed."""
        budget, before = observe_budget(manifest), self._known.get(name)
        if budget == before:
            return set()
        concerned = self.drop(name)
        self._known[name] = budget
        self._near[name[0], budget.resource][name] = budget
        return concerned | {(name[0], budget.resource)}

    def drop(self, name: Name) -> set[Owner]:
        """Forget a budget: whose workers it was about."""
        before = self._known.pop(name, None)
        if before is None:
            return set()
        owner = (name[0], before.resource)
        self._near[owner].pop(name)
        if not self._near[owner]:
            del self._near[owner]
        return {owner}

    def find_other(
        self, namespace: str, resource: str, labels: Mapping[str, str], *, besides: str
    ) -> str | None:
        """The name of a budget that counts for these workers and is not controlled by `besides`."""
        names = (
            name
            for owner in ((namespace, resource), (namespace, None))
            for (_, name), budget in self._near.get(owner, {}).items()
            if budget.controller_uid != besides and budget.selects(labels)
        )
        return min(names, default=None)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A Deployment; the manifest only of those that a resource owns."""

    observation: WorkloadObservation
    selector: Selector
    manifest: Manifest | None
    replicas_owner: str | None

    def is_as(self, other: Deployment) -> bool:
        """Whether this is a newer version whose changes the operator does not read.

        False for the event of an own write: then groups that share the Deployment become due.
        """
        mine, theirs = _without_version(self.manifest), _without_version(other.manifest)
        is_newer = self.manifest is None or self.manifest != other.manifest
        return is_newer and replace(self, manifest=mine) == replace(other, manifest=theirs)


def _without_version(manifest: Manifest | None) -> Manifest | None:
    if manifest is None:
        return None
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "resourceVersion"}
    return {**manifest, "metadata": metadata}


class WorkloadCache:
    """Groups and their workers, by kind and name."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, objects: Cache | None = None
    ) -> None:
        """`clock` measures how long ago a pod went, in seconds since any beginning.

        `objects` is the cache of the replica; without one a cache of its own.
        """
        self.clock = clock
        self.objects = Cache() if objects is None else objects
        self.deployments: dict[Name, Deployment] = {}
        self.pods = Pods(clock, self._concerned_by_pod, self._has_resources)
        self.nodes: dict[str, NodeObservation] = {}
        self.unready_nodes: set[str] = set()
        self.autoscalers: dict[Name, Target] = {}
        self.budgets = Budgets()
        self._targets: dict[Identity, set[Name]] = defaultdict(set)
        self._scaled: dict[Identity, set[str]] = defaultdict(set)  # autoscalers by target
        self._foreign: dict[Identity, Selector] = {}  # of targets of other kinds than Deployment
        self._sharing: dict[Identity, int] = {}  # the last change of the resources with this target
        self._changes = itertools.count(1)
        self.objects.follow(
            STREAM_CONSUMER_GROUP,
            Concern(kind=STREAM_CONSUMER_GROUP, find=self._change_resource),
            Concern(kind=DEPLOYMENT, find=self._change_deployment, keep=keep_nothing),
            Concern(
                kind=POD, find=self._change_pod, keep=keep_nothing, end_late=self.pods.complete
            ),
            # A namespaced install may not read nodes: less is reported, nothing else changes.
            Concern(kind=NODE, find=self._change_node, keep=keep_nothing, is_optional=True),
            Concern(kind=AUTOSCALER, find=self._change_autoscaler, keep=keep_nothing),
            Concern(kind=DISRUPTION_BUDGET, find=self._change_budget, keep=keep_nothing),
        )

    @property
    def resources(self) -> Mapping[Name, Manifest]:
        """All StreamConsumerGroups, by name."""
        return self.objects.objects(STREAM_CONSUMER_GROUP)

    def put(self, kind: Kind, manifest: Manifest) -> set[Name]:
        """Take in what a write answered: the groups that it concerns, which are not made due."""
        return self.objects.put_answer(kind, manifest, writer=STREAM_CONSUMER_GROUP)

    def remove(
        self, kind: Kind, name: Name, uid: str | None = None, *, last: Manifest | None = None
    ) -> set[Name]:
        """Forget what a write deleted, if it still has this uid: the groups that it concerns."""
        return self.objects.remove_deleted(kind, name, uid, last=last, writer=STREAM_CONSUMER_GROUP)

    def listen(self, listener: Callable[[PodChange], None]) -> None:
        """Call the listener for each change of a pod, within `put` and `remove`."""
        self.pods.listeners.append(listener)

    def version(self, kind: Kind, name: Name) -> int:
        """The version in which an object is known; 0 when it is not."""
        return self.objects.version(kind, name)

    def resources_of(self, target: Target) -> set[Name]:
        """The resources whose workers run in this target."""
        return set(self._targets.get(target.identity, ()))

    def sharing_version(self, target: Target) -> int:
        """Another number after each change of the resources with this target, status left out."""
        return self._sharing.get(target.identity, 0)

    def workload(self, target: Target) -> WorkloadObservation | None:
        """The Deployment behind a target with its pods, or None when it is not known here."""
        deployment = self.deployments.get((target.namespace, target.name))
        if deployment is None or target.kind != "Deployment":
            return None
        return self.with_pods(deployment.observation, deployment.selector)

    def with_pods(
        self, workload: WorkloadObservation, selector: Selector | None = None
    ) -> WorkloadObservation:
        """The workload with its pods, its unready nodes and its autoscaler filled in."""
        if selector is None:
            selector = parse_selector(workload.selector)
            self._learn(workload.target, selector)
        pods = self.pods.select(workload.target.namespace, selector)
        nodes = frozenset(pod.node for pod in pods if pod.node in self.unready_nodes and pod.node)
        return replace(
            workload,
            pods=tuple(sorted(pods, key=lambda pod: pod.name)),
            unready_nodes=nodes,
            autoscaler=self._autoscaler_of(workload.target),
        )

    def pods_of(
        self, workload: WorkloadObservation
    ) -> tuple[list[PodObservation], tuple[GonePod, ...]]:
        """The pods of a workload that are, and those that were. Neither without a selector."""
        namespace = workload.target.namespace
        deployment = self.deployments.get((namespace, workload.target.name))
        if deployment is not None and workload.target.kind == DEPLOYMENT.kind:
            selector = deployment.selector
        else:
            selector = parse_selector(workload.selector)
        return self.pods.select(namespace, selector), self.pods.gone.select(namespace, selector)

    def node(self, name: str) -> NodeObservation | None:
        """What is known of a node; None when nodes cannot be seen at all."""
        if not self.nodes:
            return None
        return self.nodes.get(name) or NodeObservation(name=name, is_ready=None, exists=False)

    def are_all_nodes_ready(self) -> bool:
        """Whether every node reports; False when nodes cannot be seen at all."""
        return bool(self.nodes) and all(node.is_ready for node in self.nodes.values())

    def _autoscaler_of(self, target: Target) -> str | None:
        return min(self._scaled.get(target.identity, ()), default=None)

    def _change_resource(self, change: ObjectChange) -> set[Name]:
        name, touched = change.name, set[Identity]()
        for manifest, is_now in ((change.before, False), (change.after, True)):
            if manifest is None or (target := target_of(manifest)).is_undeclared:
                continue
            touched.add(target.identity)
            if is_now:
                self._targets[target.identity].add(name)
            else:
                self._forget_target(name, target.identity)
        if _spec_version(change.before) != _spec_version(change.after):
            for identity in touched:
                self._change_sharing(identity, name)
        return {name}

    def _change_sharing(self, identity: Identity, name: Name) -> None:
        """Make the resources due that share a target with a changed one: the leader may differ.

        Announced here, since `put_answer` makes no resources of the writer's kind due.
        """
        names = self._targets.get(identity)
        if not names:
            self._sharing.pop(identity, None)
            return
        self._sharing[identity] = next(self._changes)
        others = names - {name}
        if 0 < len(others) < MOST_SHARING:
            self.objects.announce(STREAM_CONSUMER_GROUP, {STREAM_CONSUMER_GROUP: others})

    def _change_deployment(self, change: ObjectChange) -> set[Name]:
        manifest = change.after
        if manifest is None:
            return self.resources_of(self.deployments.pop(change.name).observation.target)
        labels = manifest["metadata"].get("labels") or {}
        before, observation = self.deployments.get(change.name), observe_deployment(manifest)
        known = self.deployments[change.name] = Deployment(
            observation=observation,
            selector=parse_label_selector(manifest.get("spec", {}).get("selector")),
            manifest=pack(manifest) if RESOURCE_LABEL in labels else None,
            replicas_owner=replicas_owner(manifest),
        )
        is_news = before is None or not known.is_as(before)
        return self.resources_of(observation.target) if is_news else set()

    def _change_pod(self, change: ObjectChange) -> set[Name]:
        if change.after is None:
            return self.pods.drop(change.name, change.last)
        return self.pods.put(change.name, change.after)

    def _change_node(self, change: ObjectChange) -> set[Name]:
        name = change.name[1]
        if change.after is None:
            self.nodes.pop(name, None)
            return self._set_node_ready(name, is_ready=True)
        node = self.nodes[name] = observe_node(change.after)
        return self._set_node_ready(name, is_ready=bool(node.is_ready))

    def _set_node_ready(self, name: str, *, is_ready: bool) -> set[Name]:
        was_ready = name not in self.unready_nodes
        (self.unready_nodes.discard if is_ready else self.unready_nodes.add)(name)
        return set() if was_ready == is_ready else self.pods.concerned_by_node(name)

    def _change_autoscaler(self, change: ObjectChange) -> set[Name]:
        name, concerned = change.name, set[Name]()
        former = self.autoscalers.pop(name, None)
        if former is not None:
            self._scaled[former.identity].discard(name[1])
            concerned |= self.resources_of(former)
        if change.after is not None:
            target = self.autoscalers[name] = autoscaler_target(change.after)
            self._scaled[target.identity].add(name[1])
            concerned |= self.resources_of(target)
        return concerned

    def _change_budget(self, change: ObjectChange) -> set[Name]:
        """The resources with workers of their own that the budget counts for."""
        if change.after is None:
            owners = self.budgets.drop(change.name)
        else:
            owners = self.budgets.put(change.name, change.after)
        resources = self.resources
        spaces = {namespace for namespace, name in owners if name is None}
        return {
            name
            for name in (resources if spaces else resources.keys() & owners)
            if (name in owners or name[0] in spaces)
            and (resources[name].get("spec") or {}).get("template")
        }

    def _forget_target(self, name: Name, identity: Identity) -> None:
        self._targets[identity].discard(name)
        if not self._targets[identity]:
            self._foreign.pop(identity, None)

    def _learn(self, target: Target, selector: Selector) -> None:
        """Remember what selects the pods of a target that is not watched itself."""
        if self._targets.get(target.identity):
            self._foreign[target.identity] = selector

    def _concerned_by_pod(self, namespace: str, labels: Mapping[str, str]) -> set[Name]:
        owner = labels.get(RESOURCE_LABEL)
        if owner is not None:
            # Others may name the Deployment that a template made.
            own = (namespace, "apps", DEPLOYMENT.kind, deployment_name(owner))
            return ({(namespace, owner)} & self.resources.keys()) | self._targets.get(own, set())
        return {
            name
            for identity, names in self._targets.items()
            if identity[0] == namespace and self._selects(identity, labels)
            for name in names
        }

    def _has_resources(self, namespace: str) -> bool:
        return any(names and identity[0] == namespace for identity, names in self._targets.items())

    def _selects(self, identity: Identity, labels: Mapping[str, str]) -> bool:
        namespace, _, kind, name = identity
        deployment = self.deployments.get((namespace, name)) if kind == DEPLOYMENT.kind else None
        selector = deployment.selector if deployment is not None else self._foreign.get(identity)
        return selector is not None and selector.matches(labels)


def _spec_version(manifest: Manifest | None) -> tuple[object, ...] | None:
    """A value that changes with the spec, the target or a deletion, and not with the status."""
    if manifest is None:
        return None
    metadata, identity = manifest["metadata"], target_of(manifest).identity
    asked = (metadata.get("generation"), metadata.get("deletionTimestamp"))
    return metadata["uid"], *asked, identity


def target_of(manifest: Manifest) -> Target:
    """The object that runs the workers of a resource: its targetRef, or the Deployment it owns.

    A target without a name if it declares neither. The spec need not be valid: the target of an
    invalid resource determines the ranks as well.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    given = spec.get("targetRef")
    reference = given if isinstance(given, Mapping) else {}
    if not reference and spec.get("template") is None:
        return Target(api_version="", kind="", namespace=metadata["namespace"], name="")
    return Target(
        api_version=str(reference.get("apiVersion", "apps/v1")),
        kind=str(reference.get("kind", "Deployment")),
        namespace=metadata["namespace"],
        name=str(reference.get("name") or deployment_name(metadata["name"])),
    )
