"""Pods that are no more, as they were seen last: without them nobody could tell that they ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from pelops.domain.liveness import GonePod
from pelops.domain.workload import PodObservation
from pelops.kube.selectors import Selector

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
