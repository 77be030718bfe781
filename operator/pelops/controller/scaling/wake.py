"""Groups without workers that have no backlog: the first new entry wakes them."""

from __future__ import annotations

from pelops.controller.group.observation import RedisObservation
from pelops.controller.runtime.cache import Name
from pelops.domain.entry_id import EntryId
from pelops.redis_core.server import Server
from pelops.redis_streams.scaling.wake import Waker

_Nap = tuple[Server, dict[str, EntryId]]


class IdleGroups:
    """Has the waker watch what is idle."""

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._naps: dict[Name, _Nap] = {}

    def watch(self, name: Name, redis: RedisObservation) -> bool:
        """Be woken by the next entry; whether that works already. To be asked at each look."""
        nap = _nap(redis)
        if nap is None:
            self.rouse(name)
            return False
        if self._naps.get(name) == nap and self._waker.is_watched(name):
            return True
        server, streams = nap
        if self._waker.watch(name, server, streams):
            self._naps[name] = nap
        else:
            self._naps.pop(name, None)
        return False  # it takes a moment until the server is asked: look once more before

    def rouse(self, name: Name) -> None:
        """Want to be woken no more: it is looked at often, or by others."""
        if self._naps.pop(name, None) is not None:
            self._waker.unwatch(name)


def _nap(redis: RedisObservation) -> _Nap | None:
    """Where what is undelivered would appear. A position, not the end: between them is nothing."""
    stream, keys = redis.stream, redis.keys
    if redis.server is None or keys is None or stream is None or stream.group is None:
        return None
    streams = {keys.stream: stream.group.last_delivered_id}
    if stream.retry is not None:
        streams[keys.retry] = stream.retry.last_delivered_id
    return redis.server, streams
