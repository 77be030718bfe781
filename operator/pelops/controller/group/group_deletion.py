"""The deletion of a resource: its group is destroyed or stays. A deletion never hangs."""

from __future__ import annotations

from datetime import datetime

from pelops.api.group.stream_consumer_group import StreamConsumerGroup, StreamConsumerGroupSpec
from pelops.controller.group.group_observer import GroupMemory, GroupObserver, OwnedGroup
from pelops.domain.naming import GroupKeys
from pelops.domain.quantities import render_count
from pelops.errors import NotFound
from pelops.kube.event_recorder import EventContent
from pelops.policy.group.provisioning import CleanupAction, CleanupDecision, decide_cleanup
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.group.lifecycle import DestroyVerdict, destroy_group

FINALIZER = "pelops.dev/group"


class GroupDeletion:
    """Cleans up after resources that are being deleted and have the finalizer."""

    def __init__(self, observer: GroupObserver) -> None:
        self._observer = observer

    async def clean_up(
        self, resource: StreamConsumerGroup, memory: GroupMemory, now: datetime
    ) -> EventContent | None:
        """Destroy the group if the resource asks for it. Returns an Event; None if it was absent.

        Raises PelopsError if it failed.
        """
        decision = decide_cleanup(
            deletes_group=_deletes_group(resource.spec),
            deleted_at=resource.metadata.deletion_timestamp or now,
            failure=memory.cleanup_failure,
            now=now,
        )
        note, is_loss = decision.message, False
        if decision.action is CleanupAction.DESTROY:
            note, is_loss = await self._destroy(resource, memory.owned)
        return report_removed(decision, note, is_loss=is_loss) if note else None

    async def _destroy(
        self, resource: StreamConsumerGroup, owned: OwnedGroup | None
    ) -> tuple[str, bool]:
        """Destroy the group, unless another resource manages it.

        Returns the note for the Event, empty if the group was absent, and whether unacknowledged
        entries were deleted.
        """
        try:
            server, keys = await self._observer.connect(resource)
        except NotFound:
            # With a namespace, the Secret is often deleted first. The connection is left.
            if owned is None or owned.redis != resource.spec.redis:
                raise
            server, keys = owned.server, owned.keys
        destroyed = await destroy_group(server, keys, self._observer.owner_of(resource))
        if destroyed.verdict is DestroyVerdict.DESTROYED:
            return describe_destroyed(keys, destroyed.copies), destroyed.copies > 0
        if destroyed.verdict is DestroyVerdict.ABSENT:
            return "", False  # usually another replica was faster, and reports it
        return f"Did not destroy group {keys.group}: another StreamConsumerGroup manages it", False


def _deletes_group(spec: StreamConsumerGroupSpec) -> bool:
    is_asked_for = spec.deletion_policy == "Delete"
    return is_asked_for and not spec.suspend and not spec.recovery.dry_run


def report_abandoned(problem: str) -> EventContent:
    """The Event for a deleted resource with an invalid spec: its group is not known."""
    note = (
        "The group stays in Redis (remove it with XGROUP DESTROY), because the spec cannot be "
        f"parsed: {problem}"
    )
    return EventContent(
        type="Warning", reason=Reason.GROUP_NOT_DESTROYED, action="Delete", note=note
    )


def describe_destroyed(keys: GroupKeys, copies: int) -> str:
    """What went with the group, and what stays."""
    note = f"Destroyed group {keys.group}; its stream and its dead letters stay in Redis"
    if not copies:
        return note
    return (
        f"{note}. Its retry stream {keys.retry} was deleted with at least "
        f"{render_count(copies, 'copy', 'copies')} of stuck entries that were not acknowledged. "
        "While the stream contains the originals, a new group with startFrom: Beginning "
        "delivers them again"
    )


def report_removed(decision: CleanupDecision, note: str, *, is_loss: bool) -> EventContent:
    """The Event for a resource that was deleted."""
    is_left = decision.reason is Reason.GROUP_NOT_DESTROYED
    return EventContent(
        type="Warning" if is_left or is_loss else "Normal",
        reason=decision.reason,
        action="Delete",
        note=note,
    )
