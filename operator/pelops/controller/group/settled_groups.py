"""Settled groups: idle groups of which only a digest is read, instead of a pass.

A group is settled once a pass has found nothing to do, and nothing that would change with time.
Then its digest is read at the same interval, together with the digests of other groups. A pass
follows when the digest has changed. A change in Kubernetes makes a pass due in any case, and passes
continue at a long interval.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from pelops.api.redis import RedisSpec, SecretRef
from pelops.controller.group.group_observer import ObservedGroup, request_observation
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.connections import Connections
from pelops.controller.runtime.gate import Gate, Limits, Place, Progress
from pelops.controller.runtime.queue import is_wanted
from pelops.domain.records.state import OWNERSHIP_LIFETIME
from pelops.errors import PelopsError
from pelops.kube.container_environment import WorkerAccess
from pelops.metrics import GROUP_FACTS
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import ObservationRequest, read_digests

TICK_S: Final = 1.0
EARLY: Final = 0.25  # of the interval: so much earlier a group is read together with others
LATE: Final = 2.5  # intervals after which what was read counts no more
MOST: Final = 50  # groups of one read
LIMITS: Final = Limits(deadline_s=20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledGroup:
    """A group as the last pass found it."""

    redis: RedisSpec
    worker_secret: SecretRef | None
    server: Server
    access: WorkerAccess  # the Secrets of its workers
    request: ObservationRequest
    digest: int
    every_s: float
    read_at: float
    due: float


class SettledGroups:
    """Looks at the groups that are settled, and makes those due that have changed."""

    def __init__(
        self,
        connections: Connections,
        make_due: Callable[[Name], None],
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self._connections = connections
        self._make_due = make_due
        self._clock = clock
        self._settled: dict[Name, SettledGroup] = {}
        self._gate = Gate("settled groups", LIMITS)
        progress.follow("settled groups", self._gate.stalled_s)

    def add(self, name: Name, observed: ObservedGroup, *, every_s: float) -> timedelta | None:
        """Check a group from now on, which a pass has observed; None when it is not settled.

        Returns how long that holds good without a pass: then the ownership record is renewed.
        """
        stream, server, keys = observed.facts.stream, observed.server, observed.facts.keys
        if stream is None or server is None or keys is None or not observed.facts.is_settled:
            return None
        assert stream.ownership is not None
        resource = observed.facts.resource
        self._settled[name] = SettledGroup(
            redis=resource.spec.redis,
            worker_secret=resource.spec.worker_secret_ref,
            server=server,
            access=observed.access,
            request=request_observation(resource, keys),
            digest=stream.digest,
            every_s=every_s,
            read_at=self._clock(),
            due=self._clock() + every_s,
        )
        return stream.ownership.owned_until - stream.server_time - OWNERSHIP_LIFETIME / 2

    def is_settled(self, name: Name) -> bool:
        """Whether a group is settled, as was read not long ago."""
        one = self._settled.get(name)
        return one is not None and self._clock() - one.read_at < LATE * one.every_s

    def drop(self, name: Name) -> None:
        """Stop checking a group: it is observed in passes, or by another replica."""
        self._settled.pop(name, None)

    async def run(self) -> None:
        """Check the groups until cancelled."""
        async with asyncio.TaskGroup() as checks:
            while is_wanted():
                await asyncio.sleep(TICK_S)
                for place, names in self._select_due():
                    checks.create_task(self._check(place, names))

    def _select_due(self) -> Iterator[tuple[Place, list[Name]]]:
        """What is read now: each place with a group that is due, and all that soon will be."""
        now = self._clock()
        early: dict[Place, list[Name]] = defaultdict(list)
        due = set[Place]()
        for name, group in self._settled.items():
            if group.due - EARLY * group.every_s <= now:
                place = Place(name[0], group.server.address)
                early[place].append(name)
                if group.due <= now:
                    due.add(place)
        for place in due:
            names = early[place]
            for name in names:
                group = self._settled[name]
                self._settled[name] = replace(group, due=now + group.every_s)
            for start in range(0, len(names), MOST):
                yield place, names[start : start + MOST]

    async def _check(self, place: Place, names: list[Name]) -> None:
        find = partial(self._find_changed, names)
        try:
            changed = await self._gate.run(place, find, what="/".join(names[0]))
        except PelopsError:
            changed = names  # their passes report it
        for name in changed:
            self.drop(name)
            self._make_due(name)

    async def _find_changed(self, names: list[Name]) -> list[Name]:
        """Those that are not as the last pass found them. Raises PelopsError."""
        settled = [(name, one) for name in names if (one := self._settled.get(name)) is not None]
        changed = [name for name, one in settled if not await self._has_same_server(name[0], one)]
        same = [(name, one) for name, one in settled if name not in changed]
        by_server: dict[Server, list[tuple[Name, SettledGroup]]] = defaultdict(list)
        for name, group in same:
            by_server[group.server].append((name, group))
        for server, groups in by_server.items():
            digests = await read_digests(server, [one.request for _, one in groups])
            for (name, group), digest in zip(groups, digests, strict=True):
                if isinstance(digest, PelopsError) or digest.value != group.digest:
                    changed.append(name)
                elif self._settled.get(name) is not None:
                    self._confirm(name, digest.scanned_at)
        return changed

    def _confirm(self, name: Name, scanned_at: datetime | None) -> None:
        self._settled[name] = replace(self._settled[name], read_at=self._clock())
        if scanned_at is not None:
            GROUP_FACTS["last_scan"].set(scanned_at.timestamp(), *name)

    async def _has_same_server(self, namespace: str, group: SettledGroup) -> bool:
        """Whether its Secrets lead to the same server, for the operator and for workers."""
        connections, redis = self._connections, group.redis
        try:
            if await connections.server(redis, namespace) is not group.server:
                return False
            if group.worker_secret is None and not redis.secret_refs:
                return True
            return (
                await connections.access_of(redis, group.worker_secret, namespace) == group.access
            )
        except PelopsError:
            return False  # its pass reports it, and others of the server are read
