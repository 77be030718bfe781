"""How long until the next observation of a group: by its backlog, and by how many others wait."""

from __future__ import annotations

from typing import Final, NamedTuple

from pelops.controller.group.group_observer import RedisObservation
from pelops.controller.runtime.cache import Name
from pelops.controller.scaling.scaled_resources import Scaled
from pelops.domain.entry_id import EntryId
from pelops.policy.scaling.autoscaler import next_observation
from pelops.policy.scaling.backlog import Backlog
from pelops.redis_core.server import Server
from pelops.redis_streams.scaling.idle_streams import Waker

# An observation costs the process somewhat less than a millisecond.
BUSY_PER_S: Final = 400
IDLE_PER_S: Final = 80
MOST_FOR_IDLE: Final = 3  # times as long; then the process may become busy
FREED_S: Final = 2.0  # entries wait for recovery, which may free them without a new entry


class _Positions(NamedTuple):
    """Where the first undelivered entry would appear, in each stream of a group. A position, not
    the end of the stream: between them is nothing.
    """

    server: Server
    streams: dict[str, EntryId]


class IdleGroups:
    """Has the waker watch the streams of idle groups."""

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._watched: dict[Name, _Positions] = {}

    def watch(self, name: Name, redis: RedisObservation) -> bool:
        """Have the next entry wake this group, and return whether that works already. To be called
        at each observation.
        """
        positions = _find_positions(redis)
        if positions is None:
            self.unwatch(name)
            return False
        if self._watched.get(name) == positions and self._waker.is_watched(name):
            return True
        if self._waker.watch(name, positions.server, positions.streams):
            self._watched[name] = positions
        else:
            self._watched.pop(name, None)
        return False  # until the server is asked, one more observation is necessary

    def unwatch(self, name: Name) -> None:
        """End it: the group is observed often, or by others."""
        if self._watched.pop(name, None) is not None:
            self._waker.unwatch(name)


def _find_positions(redis: RedisObservation) -> _Positions | None:
    stream, keys = redis.stream, redis.keys
    if redis.server is None or keys is None or stream is None or stream.group is None:
        return None
    streams = {keys.stream: stream.group.last_delivered_id}
    if stream.retry is not None:
        streams[keys.retry] = stream.retry.last_delivered_id
    return _Positions(redis.server, streams)


class Pace:
    """Spreads observations, so that many groups do not keep the process busy."""

    def __init__(self, idle_groups: IdleGroups) -> None:
        self._idle_groups = idle_groups
        self._busy: set[Name] = set()  # observed often
        self._idle: set[Name] = set()

    def wait_s(
        self,
        scaled: Scaled,
        redis: RedisObservation,
        backlog: Backlog | None,
        *,
        replicas: int,
        least: int,
    ) -> float:
        """Return the seconds until the next observation, before jitter.

        `backlog` is that of all groups whose workers are decided for. `replicas` and `least` are as
        for `next_observation`.
        """
        own = scaled.backlog
        is_idle = backlog is not None and backlog.is_empty and replicas <= least
        is_asleep = own is not None and own.is_empty and replicas == 0
        is_watched = is_asleep and self._idle_groups.watch(scaled.name, redis)
        if not is_asleep:
            self._idle_groups.unwatch(scaled.name)
        scaled.idle_observations = scaled.idle_observations + 1 if is_idle else 0
        wait_s = next_observation(
            backlog,
            replicas=replicas,
            least=least,
            idle_observations=scaled.idle_observations,
            is_watched=is_watched,
        )
        is_seen = backlog is not None and backlog.exists
        stretched_s = self.stretch(scaled.name, wait_s, is_idle=is_idle or not is_seen)
        # Only an observation detects the first entry of a group at zero that is not watched.
        if not is_asleep or is_watched:
            wait_s = stretched_s
        return min(wait_s, FREED_S) if own is not None and own.waiting else wait_s

    def stretch(self, name: Name, wait_s: float, *, is_idle: bool) -> float:
        """Return the wait, longer if many groups are observed as often as this one."""
        joined, left = (self._idle, self._busy) if is_idle else (self._busy, self._idle)
        left.discard(name)
        joined.add(name)
        if is_idle:
            return max(wait_s, min(len(joined) / IDLE_PER_S, MOST_FOR_IDLE * wait_s))
        return max(wait_s, len(joined) / BUSY_PER_S)

    def forget(self, name: Name) -> None:
        """Stop counting and watching a group that is not observed any more."""
        self._idle_groups.unwatch(name)
        self._busy.discard(name)
        self._idle.discard(name)
