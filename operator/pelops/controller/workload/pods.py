"""The pods that this replica knows: those that are and those that were. Reports each change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pelops.domain.recovery import GonePod
from pelops.domain.workload import PodObservation, keep_request
from pelops.kube.client import Manifest
from pelops.kube.worker_deployment import RESOURCE_LABEL
from pelops.kube.workload_observation import Selector, observe_pod
from pelops.policy.recovery.liveness import is_end

MOST: Final = 10_000
KEPT_S: Final = 3600.0


class GonePods:
    """The pods that went last, 10,000 at most and for an hour."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._where: dict[str, str] = {}  # namespace by uid, the first that went first
        self._gone: dict[str, dict[str, GonePod]] = defaultdict(dict)  # by namespace and uid

    def add(self, namespace: str, pod: PodObservation, labels: Mapping[str, str]) -> None:
        """Remember a pod; a later account of one that is known replaces its state alone."""
        known = self.find(namespace, pod.uid)
        seen_gone = known.seen_gone if known is not None else self._clock()
        self._gone[namespace][pod.uid] = GonePod(pod=pod, labels=labels, seen_gone=seen_gone)
        self._where[pod.uid] = namespace
        self._prune()

    def find(self, namespace: str, uid: str) -> GonePod | None:
        """The pod with this uid."""
        found = self._gone.get(namespace)
        return found.get(uid) if found is not None else None

    def select(self, namespace: str, selector: Selector) -> tuple[GonePod, ...]:
        """The pods with matching labels, in the order in which they went."""
        self._prune()
        near = self._gone.get(namespace, {})
        return tuple(one for one in near.values() if selector.matches(one.labels))

    def __len__(self) -> int:
        return len(self._where)

    def _prune(self) -> None:
        oldest = self._clock() - KEPT_S
        while self._where:
            uid, namespace = next(iter(self._where.items()))
            if len(self._where) <= MOST and self._gone[namespace][uid].seen_gone >= oldest:
                return
            del self._where[uid]
            del self._gone[namespace][uid]
            if not self._gone[namespace]:
                del self._gone[namespace]


Name = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, with the labels that assign it to a workload."""

    labels: Mapping[str, str]
    observation: PodObservation


@dataclass(frozen=True, slots=True, kw_only=True)
class PodChange:
    """A pod that came, changed or went."""

    before: PodObservation | None  # None: it was not known
    after: PodObservation | None  # None: it was deleted
    concerned: frozenset[Name]  # the resources whose worker it is

    @property
    def is_end(self) -> bool:
        """Whether a process ended, so that a scan is worth its price now."""
        if self.before is None or self.after is None:
            return self.after is None
        return is_end(self.before, self.after)


class Pods:
    """Pods by namespace and name. A change is reported once, to all listeners."""

    def __init__(
        self,
        clock: Callable[[], float],
        concerned: Callable[[str, Mapping[str, str]], set[Name]],
        has_resources: Callable[[str], bool],
    ) -> None:
        """`concerned` returns the resources whose worker a pod with these labels is.

        `has_resources` returns whether a namespace has resources.
        """
        self._concerned = concerned
        self._has_resources = has_resources
        self._live: dict[str, dict[Name, Pod]] = defaultdict(dict)  # by namespace
        self._owned: dict[Name, dict[Name, Pod]] = defaultdict(dict)  # by their resource
        self.gone = GonePods(clock)
        self.listeners: list[Callable[[PodChange], None]] = []

    def put(self, name: Name, manifest: Manifest) -> set[Name]:
        """Take in a pod: who is concerned, if anything changed."""
        pod = _pod(manifest)
        before = self._live[name[0]].get(name)
        concerned: set[Name] = set()
        if before is not None and before.observation.uid != pod.observation.uid:
            # Its deletion was not reported: the known state is the last one.
            concerned = self.drop(name)
            before = None
        if before is not None:
            pod = _keep_request(pod, before)
            if before.labels != pod.labels:
                concerned = self._remove(name)
        self._keep(name, pod)
        if before == pod:
            return set()
        return concerned | self._report(name, before, pod.observation, pod.labels)

    def drop(self, name: Name, last: Manifest | None = None) -> set[Name]:
        """Forget a pod that went, except for its end: who is concerned."""
        before = self._live[name[0]][name]
        self._remove(name)
        pod = _keep_request(_pod(last), before) if last is not None else before
        # The labels of a pod that was known stay: they say whose worker it was.
        self._record_end(name[0], Pod(before.labels, pod.observation))
        return self._report(name, before, None, before.labels)

    def complete(self, name: Name, last: Manifest) -> None:
        """Store the end of a pod that was not known, or whose deletion was detected before."""
        pod = _pod(last)
        self._record_end(name[0], pod)
        self._report(name, pod, None, pod.labels)

    def _record_end(self, namespace: str, pod: Pod) -> None:
        if self._has_resources(namespace):
            self.gone.add(namespace, pod.observation, pod.labels)

    def get(self, name: Name) -> PodObservation | None:
        """The pod of this name, of any workload."""
        found = self._live.get(name[0], {}).get(name)
        return found.observation if found is not None else None

    def select(self, namespace: str, selector: Selector) -> list[PodObservation]:
        """The pods with matching labels."""
        owner = selector.required_value(RESOURCE_LABEL)
        near = self._live[namespace] if owner is None else self._owned[namespace, owner]
        return [pod.observation for pod in near.values() if selector.matches(pod.labels)]

    def concerned_by_node(self, node: str) -> set[Name]:
        """The resources that have pods on a node."""
        return {
            concerned
            for namespace, pods in self._live.items()
            for pod in pods.values()
            if pod.observation.node == node
            for concerned in self._concerned(namespace, pod.labels)
        }

    def _keep(self, name: Name, pod: Pod) -> None:
        self._live[name[0]][name] = pod
        if RESOURCE_LABEL in pod.labels:
            self._owned[name[0], pod.labels[RESOURCE_LABEL]][name] = pod

    def _remove(self, name: Name) -> set[Name]:
        labels = self._live[name[0]].pop(name).labels
        if RESOURCE_LABEL in labels:
            self._owned[name[0], labels[RESOURCE_LABEL]].pop(name, None)
        return self._concerned(name[0], labels)

    def _report(
        self,
        name: Name,
        before: Pod | None,
        after: PodObservation | None,
        labels: Mapping[str, str],
    ) -> set[Name]:
        concerned = self._concerned(name[0], labels)
        change = PodChange(
            before=before.observation if before is not None else None,
            after=after,
            concerned=frozenset(concerned),
        )
        _call(self.listeners, change)
        return concerned


def _call(listeners: Iterable[Callable[[PodChange], None]], change: PodChange) -> None:
    for listener in listeners:
        listener(change)


def _pod(manifest: Manifest) -> Pod:
    return Pod(manifest["metadata"].get("labels") or {}, observe_pod(manifest))


def _keep_request(pod: Pod, before: Pod) -> Pod:
    return Pod(pod.labels, keep_request(pod.observation, before.observation))
