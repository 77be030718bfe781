"""What goes with a resource: its group is destroyed or stays, and deletion never hangs."""

from __future__ import annotations

from datetime import datetime

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.memory import GroupMemory, OwnedGroup
from pelops.controller.group.observation import GroupObserver
from pelops.domain.naming import GroupKeys
from pelops.errors import NotFound
from pelops.kube.events import Happening
from pelops.policy.group.provisioning import CleanupAction, CleanupDecision, decide_cleanup
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.group.provisioning import DestroyVerdict, destroy_group


class GroupDeletion:
    """Cleans up after resources that are being deleted and have the finalizer."""

    def __init__(self, observer: GroupObserver) -> None:
        self._observer = observer

    async def clean_up(
        self, resource: StreamConsumerGroup, memory: GroupMemory, now: datetime
    ) -> Happening | None:
        """Destroy the group if that is asked for: what is reported, None when it was gone.

        Raises PelopsError when it did not work.
        """
        decision = decide_cleanup(
            deletes_group=resource.spec.deletion_policy == "Delete" and not resource.spec.suspend,
            deleted_at=resource.metadata.deletion_timestamp or now,
            failure=memory.cleanup_failure,
            now=now,
        )
        note, is_loss = decision.message, False
        if decision.action is CleanupAction.DESTROY:
            note, is_loss = await self._destroy(resource, memory.owned)
        return _happening(decision, note, is_loss=is_loss) if note else None

    async def _destroy(
        self, resource: StreamConsumerGroup, owned: OwnedGroup | None
    ) -> tuple[str, bool]:
        """Destroy the group unless it is another's: what became of it, empty when it was gone, and
        whether entries went with it that nobody acknowledged.
        """
        try:
            server, keys = await self._observer.connect(resource)
        except NotFound:
            # With a whole namespace, the Secret often goes first; the connection is still there.
            if owned is None or owned.redis != resource.spec.redis:
                raise
            server, keys = owned.server, owned.keys
        destroyed = await destroy_group(server, keys, self._observer.owner_of(resource))
        if destroyed.verdict is DestroyVerdict.DESTROYED:
            return describe_destroyed(keys, destroyed.copies), destroyed.copies > 0
        if destroyed.verdict is DestroyVerdict.ABSENT:
            return "", False  # most often another replica was faster, and reports it
        return f"Left group {keys.group} alone: this resource does not act on it", False


def report_abandoned(problem: str) -> Happening:
    """A resource goes whose spec cannot be read: nobody can say what to destroy."""
    note = f"The group stays in Redis, for the spec cannot be read: {problem}"
    return Happening(type="Warning", reason=Reason.LEFT_BEHIND, action="Delete", note=note)


def describe_destroyed(keys: GroupKeys, copies: int) -> str:
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
