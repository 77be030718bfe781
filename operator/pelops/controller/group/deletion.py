"""The end of a resource: the group goes or stays, and deletion never hangs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.meta import ObjectMeta
from pelops.controller.group.memory import Hold, Memory
from pelops.controller.group.observation import Observer
from pelops.controller.group.steps import FINALIZER, remove_finalizer
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.events import Reporter
from pelops.domain.naming import GroupKeys
from pelops.errors import Conflict, NotFound, PelopsError
from pelops.kube.client import KubeApi
from pelops.kube.events import Happening
from pelops.policy.group.provisioning import CleanupAction, CleanupDecision, decide_cleanup
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.group.provisioning import DestroyVerdict, destroy_group

log = logging.getLogger(__name__)

AGAIN_S = 0.5  # the resource changed under our hands; the watch brings the new one


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
        note, is_loss = decision.message, False
        if decision.action is CleanupAction.DESTROY:
            try:
                note, is_loss = await self._destroy(resource, memory.held)
            except PelopsError as error:
                memory.cleanup_failure = str(error)
                log.warning("cannot destroy the group of %s: %s", resource.metadata.key, error)
                return memory.retry_s()
        if note:
            await self._reporter.tell(
                resource.metadata, _happening(decision, note, is_loss=is_loss)
            )
        return await self._let_go(resource.metadata)

    async def give_up(self, metadata: ObjectMeta, problem: str) -> float | None:
        """Let go of a resource whose spec cannot be read: nobody can tell what to destroy."""
        if FINALIZER not in metadata.finalizers:
            return None
        note = f"The group stays in Redis, for the spec cannot be read: {problem}"
        happening = Happening(type="Warning", reason=Reason.LEFT_BEHIND, action="Delete", note=note)
        await self._reporter.tell(metadata, happening)
        return await self._let_go(metadata)

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

    async def _destroy(self, resource: StreamConsumerGroup, held: Hold | None) -> tuple[str, bool]:
        """Destroy the group unless it is another's: what became of it, empty when it was gone, and
        whether entries went with it that nobody acknowledged.
        """
        try:
            server, keys = await self._observer.connect(resource)
        except NotFound:
            # With a whole namespace, the Secret often goes first; the connection is still there.
            if held is None or held.redis != resource.spec.redis:
                raise
            server, keys = held.server, held.keys
        destroyed = await destroy_group(server, keys, self._observer.owner_of(resource))
        if destroyed.verdict is DestroyVerdict.DESTROYED:
            return tell_destroyed(keys, destroyed.copies), destroyed.copies > 0
        if destroyed.verdict is DestroyVerdict.ABSENT:
            return "", False  # most often another replica was faster, and tells
        return f"Left group {keys.group} alone: this resource does not act on it", False

    async def _let_go(self, metadata: ObjectMeta) -> float | None:
        """Remove the finalizer: seconds until another try, or None when it is done."""
        try:
            await remove_finalizer(self._api, self._cache, metadata)
        except NotFound:
            return None
        except Conflict:
            return AGAIN_S
        return None


def tell_destroyed(keys: GroupKeys, copies: int) -> str:
    """What went with the group, and what stays."""
    note = f"Destroyed group {keys.group}; its stream and dead letters stay"
    if not copies:
        return note
    return (
        f"{note}. At least {copies} copies of stuck entries in its retry stream {keys.retry} were "
        "not acknowledged and went with it; as long as the stream holds the originals, a new "
        "group with startFrom: Beginning delivers them"
    )


def _happening(decision: CleanupDecision, note: str, *, is_loss: bool) -> Happening:
    left_behind = decision.reason is Reason.LEFT_BEHIND
    return Happening(
        type="Warning" if left_behind or is_loss else "Normal",
        reason=Reason.LEFT_BEHIND if left_behind else Reason.GROUP_REMOVED,
        action="Delete",
        note=note,
    )
