"""What this replica knows of the cluster. Every change names the resources it concerns.

The watch fills it; a periodic LIST repairs it, because a watch that was cut loses deletions.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pelops.controller.runtime.budgets import Budgets, find_owning
from pelops.controller.runtime.pods import PodChange, Pods
from pelops.controller.runtime.versions import Name, Versions, name_of, without_managers
from pelops.domain.liveness import GonePod
from pelops.domain.workload import NodeObservation, PodObservation, Target, WorkloadObservation
from pelops.kube.client import Manifest
from pelops.kube.observation import autoscaler_target, observe_deployment, observe_node
from pelops.kube.resources import (
    AUTOSCALER,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NODE,
    POD,
    STREAM_CONSUMER_GROUP,
    Kind,
)
from pelops.kube.selectors import Selector, parse_label_selector, parse_selector
from pelops.kube.worker_deployment import RESOURCE_LABEL, deployment_name, replicas_owner

Identity = tuple[str, str, str, str]
WATCHED = (STREAM_CONSUMER_GROUP, DEPLOYMENT, POD, NODE, AUTOSCALER, DISRUPTION_BUDGET)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A Deployment; the manifest only of those that a resource owns."""

    observation: WorkloadObservation
    selector: Selector
    manifest: Manifest | None
    replicas_owner: str | None


class Cache:
    """Objects by kind and name, and who is concerned by them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` measures how long ago a pod went, in seconds since any beginning."""
        self.clock = clock
        self.resources: dict[Name, Manifest] = {}
        self.deployments: dict[Name, Deployment] = {}
        self.pods = Pods(clock, self._concerned_by_pod, self._is_inhabited)
        self.nodes: dict[str, NodeObservation] = {}
        self.unready_nodes: set[str] = set()
        self.autoscalers: dict[Name, Target] = {}
        self.budgets = Budgets()
        self._versions = Versions(WATCHED)
        self._targets: dict[Identity, set[Name]] = defaultdict(set)
        self._scaled: dict[Identity, set[str]] = defaultdict(set)  # autoscalers by target
        self._foreign: dict[Identity, Selector] = {}  # of targets that are no Deployments

    def put(self, kind: Kind, manifest: Manifest) -> set[Name]:
        """Take in an object unless a newer one is known: the resources that it concerns.

        One that was removed stays away: a LIST or an answer under way may still bring it.
        """
        if not self._versions.take(kind, manifest):
            return set()
        return self._store(kind, name_of(manifest), manifest)

    def listen(self, listener: Callable[[PodChange], None]) -> None:
        """Be told of each change of a pod, in the middle of `put` and `remove`."""
        self.pods.listeners.append(listener)

    def remove(
        self, kind: Kind, name: Name, uid: str | None = None, *, last: Manifest | None = None
    ) -> set[Name]:
        """Forget an object for good, if it still is the one with this uid: who is concerned.

        `last` is its last state, which the event of its deletion brings: how its containers ended.
        """
        if not self._versions.bury(kind, name, uid):
            if kind is POD and last is not None:
                self.pods.complete(name, last)
            return set()
        return self.pods.drop(name, last) if kind is POD else self._drop(kind, name)

    def knows(self, kind: Kind, manifest: Manifest) -> bool:
        """Whether exactly this state of the object is known already."""
        return self._versions.knows(kind, manifest)

    def version(self, kind: Kind, name: Name) -> int:
        """The version in which an object is known; 0 when it is not."""
        return self._versions.version(kind, name)

    def names(self, kind: Kind) -> dict[Name, str]:
        """All names of a kind, with their uids."""
        return self._versions.names(kind)

    def resources_of(self, target: Target) -> set[Name]:
        """The resources whose workers run in this target."""
        return set(self._targets.get(target.identity, ()))

    def workload(self, target: Target) -> WorkloadObservation | None:
        """The Deployment behind a target with its pods, or None when it is not known here."""
        found = self.deployments.get((target.namespace, target.name))
        if found is None or target.kind != "Deployment":
            return None
        return self.with_pods(found.observation, found.selector)

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
        found = self.deployments.get((namespace, workload.target.name))
        if found is not None and workload.target.kind == DEPLOYMENT.kind:
            selector = found.selector
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

    def _store(self, kind: Kind, name: Name, manifest: Manifest) -> set[Name]:
        if kind is STREAM_CONSUMER_GROUP:
            return self._store_resource(name, manifest)
        if kind is DEPLOYMENT:
            return self._store_deployment(name, manifest)
        if kind is POD:
            return self.pods.put(name, manifest)
        if kind is NODE:
            return self._store_node(observe_node(manifest))
        if kind is DISRUPTION_BUDGET:
            return find_owning(self.resources, self.budgets.put(name, manifest))
        return self._store_autoscaler(name, autoscaler_target(manifest))

    def _store_resource(self, name: Name, manifest: Manifest) -> set[Name]:
        self._forget_target(name)
        self.resources[name] = without_managers(manifest)
        target = target_of(manifest)
        if not target.is_nobody:
            self._targets[target.identity].add(name)
        return {name}

    def _store_autoscaler(self, name: Name, target: Target) -> set[Name]:
        concerned = self._drop_autoscaler(name)
        self.autoscalers[name] = target
        self._scaled[target.identity].add(name[1])
        return concerned | self._concerned_by(target)

    def _drop_autoscaler(self, name: Name) -> set[Name]:
        former = self.autoscalers.pop(name, None)
        if former is None:
            return set()
        self._scaled[former.identity].discard(name[1])
        return self._concerned_by(former)

    def _store_deployment(self, name: Name, manifest: Manifest) -> set[Name]:
        labels = manifest["metadata"].get("labels") or {}
        observation = observe_deployment(manifest)
        self.deployments[name] = Deployment(
            observation=observation,
            selector=parse_label_selector(manifest.get("spec", {}).get("selector")),
            manifest=without_managers(manifest) if RESOURCE_LABEL in labels else None,
            replicas_owner=replicas_owner(manifest),
        )
        return self._concerned_by(observation.target)

    def _store_node(self, node: NodeObservation) -> set[Name]:
        self.nodes[node.name] = node
        return self._turn_node(node.name, is_ready=bool(node.is_ready))

    def _turn_node(self, name: str, *, is_ready: bool) -> set[Name]:
        was_ready = name not in self.unready_nodes
        (self.unready_nodes.discard if is_ready else self.unready_nodes.add)(name)
        return set() if was_ready == is_ready else self.pods.concerned_by_node(name)

    def _drop(self, kind: Kind, name: Name) -> set[Name]:
        if kind is STREAM_CONSUMER_GROUP:
            self._forget_target(name)
            self.resources.pop(name, None)
            return {name}
        if kind is DEPLOYMENT:
            return self._concerned_by(self.deployments.pop(name).observation.target)
        if kind is NODE:
            self.nodes.pop(name[1], None)
            return self._turn_node(name[1], is_ready=True)
        if kind is DISRUPTION_BUDGET:
            return find_owning(self.resources, self.budgets.drop(name))
        return self._drop_autoscaler(name)

    def _forget_target(self, name: Name) -> None:
        before = self.resources.get(name)
        if before is None:
            return
        identity = target_of(before).identity
        self._targets[identity].discard(name)
        if not self._targets[identity]:
            self._foreign.pop(identity, None)

    def _learn(self, target: Target, selector: Selector) -> None:
        """Remember what selects the pods of a target that is not watched itself."""
        if self._targets.get(target.identity):
            self._foreign[target.identity] = selector

    def _concerned_by(self, target: Target) -> set[Name]:
        return set(self._targets.get(target.identity, ()))

    def _concerned_by_pod(self, namespace: str, labels: Mapping[str, str]) -> set[Name]:
        owner = labels.get(RESOURCE_LABEL)
        if owner is not None:
            return {(namespace, owner)} & self.resources.keys()
        return {
            name
            for identity, names in self._targets.items()
            if identity[0] == namespace and self._selects(identity, labels)
            for name in names
        }

    def _is_inhabited(self, namespace: str) -> bool:
        return any(names and identity[0] == namespace for identity, names in self._targets.items())

    def _selects(self, identity: Identity, labels: Mapping[str, str]) -> bool:
        namespace, _, kind, name = identity
        found = self.deployments.get((namespace, name)) if kind == DEPLOYMENT.kind else None
        selector = found.selector if found is not None else self._foreign.get(identity)
        return selector is not None and selector.matches(labels)


def target_of(manifest: Manifest) -> Target:
    """The object that runs the workers of a resource: its targetRef, or the Deployment it owns.

    Nobody when it declares neither.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    reference = spec.get("targetRef") or {}
    if not reference and spec.get("template") is None:
        return Target(api_version="", kind="", namespace=metadata["namespace"], name="")
    return Target(
        api_version=reference.get("apiVersion", "apps/v1"),
        kind=reference.get("kind", "Deployment"),
        namespace=metadata["namespace"],
        name=reference.get("name") or deployment_name(metadata["name"]),
    )


def ghosts(before: dict[Name, str], alive: Collection[str]) -> list[tuple[Name, str]]:
    """What was known before a LIST began and whose uid is not in it: gone, and nobody said so."""
    return [(name, uid) for name, uid in before.items() if uid not in alive]
