"""What one replica remembers of pods between two looks, measured on its own clock.

Since when a pod has been absent, and which starts of containers it has watched. Both are told on
Redis' clock when they are asked for. Losing them makes a decision later, never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.controller.cache import Cache
from pelops.controller.pods import PodChange
from pelops.controller.recent import Recent
from pelops.domain.liveness import FormerPod, GonePod
from pelops.domain.pod_record import PodRecord
from pelops.domain.workload import PodObservation

REMEMBERED: Final = 20_000  # pods


@dataclass(frozen=True, slots=True)
class ClockPair:
    """The same moment on two clocks, to tell the times of one on the other."""

    own: float
    server: datetime

    def translate(self, own: float) -> datetime:
        """A moment of this replica's clock, on Redis'."""
        return self.server - timedelta(seconds=self.own - own)


class Sightings:
    """Listens to the cache for as long as the replica lives."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._absent: Recent[str, float] = Recent(REMEMBERED)  # by uid
        self._starts: Recent[tuple[str, str, datetime], float] = Recent(REMEMBERED)
        cache.listen(self._witness)

    def pair(self, server_time: datetime) -> ClockPair:
        """Redis' time, and this replica's now."""
        return ClockPair(self._cache.clock(), server_time)

    def starts_of(self, pod: PodObservation, clocks: ClockPair) -> Mapping[str, datetime]:
        """When the present process of each container was seen to begin, if that was watched."""
        seen = {
            one.name: self._starts.get((pod.uid, one.name, one.started))
            for one in pod.containers
            if one.started is not None
        }
        return {name: clocks.translate(at) for name, at in seen.items() if at is not None}

    def gone(self, one: GonePod, clocks: ClockPair) -> FormerPod:
        """A pod that was seen to go."""
        return self._former(one.pod, clocks.translate(one.seen_gone))

    def missing(self, pod: PodObservation, clocks: ClockPair) -> FormerPod:
        """A pod that a live look did not find, though nobody told that it went."""
        return self._former(pod, clocks.translate(self._absent_since(pod.uid)))

    def found(self, pod: PodObservation) -> None:
        """A live look found it, so it was never absent."""
        self._absent.pop(pod.uid, None)

    def remembered(self, record: PodRecord, clocks: ClockPair) -> FormerPod:
        """A pod that only the group's state knows."""
        return FormerPod(
            name=record.name,
            uid=record.uid,
            absent_since=clocks.translate(self._absent_since(record.uid)),
            grace_s=record.grace_s,
            node=self._cache.node(record.node) if record.node else None,
            are_all_nodes_ready=self._cache.are_all_nodes_ready(),
        )

    def _former(self, pod: PodObservation, absent_since: datetime) -> FormerPod:
        return FormerPod(
            name=pod.name,
            uid=pod.uid,
            absent_since=absent_since,
            last=pod,
            grace_s=pod.grace_period_s,
            node=self._cache.node(pod.node) if pod.node is not None else None,
            are_all_nodes_ready=self._cache.are_all_nodes_ready(),
        )

    def _absent_since(self, uid: str) -> float:
        return self._absent.setdefault(uid, self._cache.clock())

    def _witness(self, change: PodChange) -> None:
        before, after = change.before, change.after
        if before is None or after is None:
            return  # what ran already at the first sight was not seen to begin
        known = {(one.name, one.started) for one in before.containers}
        for one in after.containers:
            if one.started is not None and (one.name, one.started) not in known:
                self._starts[after.uid, one.name, one.started] = self._cache.clock()
