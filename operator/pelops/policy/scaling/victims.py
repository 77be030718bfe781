"""Which pods a scale-in should delete: those with the fewest entries, then the youngest.

A ReplicaSet chooses the pods that it deletes. The annotation pod-deletion-cost is one of its last
criteria, so costs are set only where they decide:

    no node  <  phase Pending  <  not ready  <  lower deletion cost  <  ready more recently ...

https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost, and
ActivePodsWithRanks in
https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/controller/controller_utils.go
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from types import MappingProxyType
from typing import Final

from pelops.domain.workload import PodObservation
from pelops.policy.recovery.owners import Owners

# A consumer that asks for more has finished its entries; one that has not asked for so long is
# still processing them. (XINFO CONSUMERS, field idle: time since the last attempt to interact.)
AT_WORK_S: Final = 10.0
MOST_WRITES: Final = 50  # for one scale-in
LOWEST: Final = -(2**31)
HIGHEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPending:
    """How many entries one worker pod holds."""

    pod: str  # name
    uid: str
    pending: int
    at_work: int = 0  # of these, held by consumers that are busy
    created: datetime | None = None
    cost: int | None = None  # its annotation controller.kubernetes.io/pod-deletion-cost


_ENDED: Final = frozenset({"Succeeded", "Failed"})
_PHASES: Final = {"Pending": 0, "Unknown": 1}


def is_active(pod: PodObservation) -> bool:
    """Whether a ReplicaSet counts the pod among its replicas."""
    return not pod.is_deleting and pod.phase not in _ENDED


def list_holdings(
    pods: Iterable[PodObservation],
    owners: Owners,
    pending: Mapping[str, int],
    at_work: Mapping[str, int] = MappingProxyType({}),
) -> tuple[PodPending, ...]:
    """Count the entries that each of these pods holds.

    `pending` counts entries by consumer, `at_work` only those of busy consumers. A consumer whose
    name matches several pods counts for each of them.
    """
    held, busy = _by_pod(owners, pending), _by_pod(owners, at_work)
    return tuple(
        PodPending(
            pod=pod.name,
            uid=pod.uid,
            pending=held[pod.uid],
            at_work=busy[pod.uid],
            created=pod.created,
            cost=pod.deletion_cost,
        )
        for pod in pods
    )


def _by_pod(owners: Owners, pending: Mapping[str, int]) -> Counter[str]:
    held: Counter[str] = Counter()
    for consumer, count in pending.items():
        for pod in owners.match(consumer).pods if count else ():
            held[pod.uid] += count
    return held


def count_unknown(owners: Owners, pending: Mapping[str, int]) -> int:
    """Count the consumers with entries whose pod is unknown, but may be one of the workload."""
    matches = (owners.match(consumer) for consumer, count in pending.items() if count)
    return sum(match.is_unknown and not match.is_strangers for match in matches)


def count_kept(
    holdings: Sequence[PodPending], *, unknown: int = 0, by_ordinal: bool = False
) -> int:
    """Return the fewest replicas with which no pod that holds entries is deleted.

    `unknown`: how many more of these pods may hold entries; it is not known which.
    `by_ordinal`: the highest ordinals are deleted first, whatever they hold (a StatefulSet).
    """
    if not by_ordinal:
        return min(sum(one.pending > 0 for one in holdings) + unknown, len(holdings))
    if unknown:
        return len(holdings)
    first = min((_ordinal(one.pod) for one in holdings), default=0)
    return max((_ordinal(one.pod) - first + 1 for one in holdings if one.pending), default=0)


def find_contested(
    pods: Iterable[PodObservation], leaving: int
) -> tuple[tuple[PodObservation, ...], int]:
    """Return the pods among which deletion costs decide, and how many of them are deleted.

    Pods without a node, pending or not ready are deleted before all others, and need no cost.
    """
    active = sorted((pod for pod in pods if is_active(pod)), key=_precedence)
    for _, alike in groupby(active, key=_precedence):
        equals = tuple(alike)
        if leaving < len(equals):
            return equals, max(leaving, 0)
        leaving -= len(equals)
    return (), 0


def rank(holdings: Iterable[PodPending], leaving: int) -> dict[str, int]:
    """Return the deletion costs to write, by pod, so that the right `leaving` of these are deleted.

    At most 50, and at most as many as leave or as stay, whichever is less (unless costs at an end
    of the value range are in use). Pods that have a suitable cost already, for example from an
    earlier scale-in, are not written to. If 50 writes are not enough, those that hold most are
    kept.
    """
    ordered = sorted(holdings, key=_reluctance)
    count = len(ordered)
    if not 0 < leaving < count:
        return {}
    split = leaving
    if min(leaving, count - leaving) > MOST_WRITES:
        idle = sum(one.pending == 0 for one in ordered)
        split = max(idle, count - MOST_WRITES)
    return dict(islice(_separate(ordered[:split], ordered[split:]).items(), MOST_WRITES))


def _separate(leaving: Sequence[PodPending], staying: Sequence[PodPending]) -> dict[str, int]:
    """Return the fewest changes that put each cost in `leaving` below each cost in `staying`."""
    bound = _cheapest_bound(sorted(map(_cost, leaving)), sorted(map(_cost, staying)))
    kept = {one.pod: bound for one in reversed(staying) if _cost(one) < bound}
    gone = {one.pod: bound - 1 for one in leaving if _cost(one) >= bound}
    return kept | gone


def _cheapest_bound(leaving: list[int], staying: list[int]) -> int:
    """Return the cost below which pods leave that requires the fewest changes."""

    def changes(bound: int) -> int:
        return len(leaving) - bisect_left(leaving, bound) + bisect_left(staying, bound)

    bounds = {0, 1, *leaving, *staying, *(cost + 1 for cost in (*leaving, *staying))}
    usable = (bound for bound in bounds if LOWEST < bound <= HIGHEST)
    return min(usable, key=lambda bound: (changes(bound), abs(bound), bound))


def _reluctance(candidate: PodPending) -> tuple[int, int, float, str]:
    """Return a sort key: pods that should be deleted first come first."""
    age = -candidate.created.timestamp() if candidate.created is not None else 0.0
    return candidate.at_work, candidate.pending, age, candidate.pod


def _cost(candidate: PodPending) -> int:
    return candidate.cost or 0


def _precedence(pod: PodObservation) -> tuple[bool, int, bool]:
    return pod.node is not None, _PHASES.get(pod.phase, 2), pod.is_ready


def _ordinal(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
