"""The end of a resource: the group goes or stays, and deletion never hangs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from pelops.api.stream_consumer_group import StreamConsumerGroup
from pelops.controller.cache import Cache
from pelops.controller.memory import Memory
from pelops.controller.observe import Observer
from pelops.controller.reporter import Reporter
from pelops.controller.steps import FINALIZER, write_finalizer
from pelops.errors import NotFound, PelopsError
from pelops.kube.client import KubeApi
from pelops.kube.events import Happening
from pelops.policy.cleanup import CleanupAction, CleanupDecision, decide_cleanup
from pelops.redis_streams.groups import destroy_group

log = logging.getLogger(__name__)


class Deletion:
    """Takes resources to their end."""

    def __init__(self, api: KubeApi, cache: Cache, observer: Observer, reporter: Reporter) -> None:
        self._api = api
        self._cache = cache
        self._observer = observer
        self._reporter = reporter

    async def proceed(self, resource: StreamConsumerGroup, memory: Memory) -> float | None:
        """One step of the deletion: seconds until the next, or None when nothing is left to do."""
        now = datetime.now(UTC)
        decision = self._decide(resource, memory, now)
        if decision.action is CleanupAction.NOTHING:
            return None
        if decision.action is CleanupAction.DESTROY:
            try:
                await self._destroy(resource)
            except PelopsError as error:
                memory.cleanup_failure = str(error)
                log.warning("cannot destroy the group of %s: %s", resource.metadata.key, error)
                return memory.retry_s()
        await self._report(resource, decision)
        await self._let_go(resource)
        return None

    def _decide(
        self, resource: StreamConsumerGroup, memory: Memory, now: datetime
    ) -> CleanupDecision:
        return decide_cleanup(
            has_finalizer=FINALIZER in resource.metadata.finalizers,
            deletes_group=resource.spec.deletion_policy == "Delete" and not resource.spec.suspend,
            deleted_at=resource.metadata.deletion_timestamp or now,
            failure=memory.cleanup_failure,
            now=now,
        )

    async def _destroy(self, resource: StreamConsumerGroup) -> None:
        server, keys = await self._observer.connect(resource)
        await destroy_group(server, keys, self._observer.owner_of(resource))

    async def _let_go(self, resource: StreamConsumerGroup) -> None:
        try:
            await write_finalizer(self._api, self._cache, resource, present=False)
        except NotFound:
            return

    async def _report(self, resource: StreamConsumerGroup, decision: CleanupDecision) -> None:
        left_behind = decision.action is CleanupAction.LET_GO and decision.reason == "LeftBehind"
        note = decision.message
        if decision.action is CleanupAction.DESTROY:
            note = f"Destroyed group {resource.group_name}; its stream and dead letters stay"
        happening = Happening(
            type="Warning" if left_behind else "Normal",
            reason=decision.reason if left_behind else "GroupRemoved",
            action="Delete",
            note=note,
        )
        await self._reporter.tell(resource, happening)
