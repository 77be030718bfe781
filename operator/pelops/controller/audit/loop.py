"""Audits in one replica, put together: what it knows of them, their queue and their turns."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from pelops.controller.audit.access import AuditAccess
from pelops.controller.audit.cache import AUDIT_KINDS, AuditCache
from pelops.controller.audit.observation import AuditObserver
from pelops.controller.audit.reconcile import AuditDoors, AuditReconciler
from pelops.controller.audit.spark import SparkJobs
from pelops.controller.audit.steps import AuditSteps
from pelops.controller.group.observation import Observer
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.loop import ReconcileLoop, Resync
from pelops.controller.runtime.membership import Members
from pelops.controller.runtime.passes import Pace
from pelops.controller.runtime.queue import KeyedQueue
from pelops.controller.runtime.settings import Settings
from pelops.controller.runtime.versions import Name
from pelops.controller.runtime.watch import Watch
from pelops.kube.client import KubeApi, Manifest
from pelops.kube.resources import STREAM_AUDIT, Kind

WORKERS: Final = 8  # audits are few, and their turns mostly wait


class Audits:
    """Watches and reconciles StreamAudits."""

    def __init__(self, groups: Cache, tell: Callable[[Name], None], clock: Callable[[], float]):
        """`tell` hears of a StreamConsumerGroup of which an audit says something else now."""
        self._groups = groups
        self._tell = tell
        self._clock = clock
        self._queue: KeyedQueue[Name] = KeyedQueue(clock)
        self._asked: dict[Name, object] = {}  # of groups that audits name: what was asked last
        self.cache = AuditCache(self._tell_groups)
        self._access: AuditAccess | None = None
        self._watch: Watch | None = None

    async def prepare(self, api: KubeApi, settings: Settings) -> None:
        """Fill the cache, unless audits may not be listed yet. Raises KubernetesError otherwise."""
        if self._access is None or self._watch is None:
            resync = Resync(api, self.cache, self._concern, settings.namespaces)
            self._access = AuditAccess(resync, every_s=settings.resync_s)
            self._watch = Watch(
                api, resync, self.hear, self._clock, refused=lambda _: self._doubt()
            )
        await self._access.look()

    def problem(self) -> str:
        """The watches of audits that are silent; empty also while audits may not be listed."""
        if self._watch is None or self._access is None or not self._access.granted.is_set():
            return ""
        return self._watch.problem()

    def hear(self, kind: Kind, manifest: Manifest, is_gone: bool) -> None:
        """Take in an event about one of `AUDIT_KINDS`."""
        if is_gone:
            metadata = manifest["metadata"]
            name = (metadata["namespace"], metadata["name"])
            concerned = self.cache.remove(kind, name, metadata["uid"])
        else:
            concerned = self.cache.put(kind, manifest)
        self._concern(kind, concerned)

    def hear_group(self, name: Name) -> None:
        """A StreamConsumerGroup changed: audits that name it follow, unless only its status did."""
        audits = self.cache.auditing(name)
        if not audits:
            self._asked.pop(name, None)
            return
        metadata = (self._groups.resources.get(name) or {}).get("metadata", {})
        asked = (metadata.get("uid"), metadata.get("generation"))
        if self._asked.get(name) != asked:
            self._asked[name] = asked
            for audit in audits:
                self._queue.add(audit)

    def loops(
        self, api: KubeApi, settings: Settings, members: Members, observer: Observer
    ) -> tuple[Coroutine[Any, Any, None], ...]:
        """Everything that runs until cancelled, once `prepare` has ended well."""
        assert self._access is not None
        spark = SparkJobs(api, image=settings.audit_image)
        doors = AuditDoors(
            api=api,
            audits=self.cache,
            members=members,
            observer=observer,
            look=AuditObserver(self.cache, self._groups, observer, spark),
            steps=AuditSteps(api, self.cache, spark, image=settings.audit_image),
            reporter=Reporter(api, identity=settings.identity, kind=STREAM_AUDIT),
        )
        pace = Pace(observe_s=settings.observe_s, status_s=settings.status_s)
        reconciler = AuditReconciler(doors, pace, self._clock)
        turns = ReconcileLoop(reconciler, self._queue, workers=WORKERS)
        return turns.run(), self._access.run(), self._follow()

    async def _follow(self) -> None:
        """Watch audits from the time on when they may be listed.

        By a watch of its own: that audits are refused is no failure of the replica.
        """
        assert self._access is not None and self._watch is not None
        await self._access.granted.wait()
        await self._watch.run(AUDIT_KINDS)

    def _doubt(self) -> None:
        assert self._access is not None
        self._access.doubt()

    def _concern(self, _: Kind, names: set[Name]) -> None:
        for name in names:
            self._queue.add(name)

    def _tell_groups(self, names: set[Name]) -> None:
        for name in names:
            self._tell(name)
