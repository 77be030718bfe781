"""What provisioning must create for a consumer group, and which resource may act on it.

The script that applies the plan checks again and refuses what no longer holds, so an outdated plan
does nothing.

With `Retain` there is no finalizer and nothing to wait for. With `Delete` the finalizer keeps the
resource until the group is destroyed in Redis. If that fails for `PATIENCE`, the resource is
deleted nevertheless, and an event reports what stays in Redis.

If two resources use one consumer group, the ownership record in Redis decides which one acts. That
also covers two operators and two spellings of one address.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pelops.api.group.recovery import RecoveryStrategy
from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.condition import Finding
from pelops.domain.entry_id import END_OF_STREAM, EntryId, StartPosition, parse_entry_id
from pelops.domain.records.state import (
    FORMAT_VERSION,
    OWNERSHIP_LIFETIME,
    OwnerRecord,
    OwnershipRecord,
)
from pelops.domain.stream_observation import StreamObservation
from pelops.policy.status.reasons import Reason


class MissingPart(StrEnum):
    """Something that provisioning has to do."""

    GROUP = "group"
    DEAD_LETTERS = "dead-letter stream"
    LEDGER = "ledger"
    RETRY = "retry stream"
    HANDOVER = "offer stream"
    OWNERSHIP = "ownership record"  # absent, about to expire, or in an older format


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningPlan:
    """What to create, possibly nothing. `start` applies to a group without an earlier position."""

    missing: tuple[MissingPart, ...]
    start: StartPosition
    message: str


def plan_provisioning(
    spec: StreamConsumerGroupSpec,
    stream: StreamObservation,
    owner: OwnerRecord,
    *,
    was_created: bool,
) -> ProvisioningPlan:
    """Plan for one group; `was_created`: it existed before. Total for valid specs."""
    parts = {
        MissingPart.GROUP: stream.group is None,
        MissingPart.DEAD_LETTERS: not (stream.dead_letter_exists and stream.owns_dead_letters),
        MissingPart.LEDGER: not stream.ledger_exists,
        MissingPart.RETRY: stream.retry is not None and not stream.retry.exists,
        MissingPart.HANDOVER: not stream.has_offer_stream,
        MissingPart.OWNERSHIP: needs_ownership(stream.ownership, owner, stream.server_time)
        or stream.state.format < FORMAT_VERSION,
    }
    missing = tuple(part for part, is_missing in parts.items() if is_missing)
    start = decide_start(spec.start_from, was_created=was_created)
    where = "the end of the stream" if start == END_OF_STREAM else str(start)
    if MissingPart.GROUP in missing:
        message = f"create the group at {where}"
        if was_created:
            message = (
                "create the group, which was deleted from Redis, again "
                f"{_last_known(stream, where)}"
            )
        return ProvisioningPlan(missing=missing, start=start, message=message)
    return ProvisioningPlan(
        missing=missing,
        start=start,
        message=f"create the {', '.join(missing)}" if missing else "nothing is missing",
    )


def needs_retry_stream(spec: StreamConsumerGroupSpec) -> bool:
    """Whether copies of stuck entries go to the group's retry stream."""
    return spec.recovery.strategy is RecoveryStrategy.RETRY_STREAM


def needs_offer_stream(spec: StreamConsumerGroupSpec) -> bool:
    """Whether stuck entries are offered to workers that claim."""
    return spec.recovery.strategy is RecoveryStrategy.RELEASE


def decide_start(start_from: str, *, was_created: bool) -> StartPosition:
    """Return the last-delivered-id with which to create a group.

    `startFrom` applies only to the first creation. A group that was deleted starts at the position
    in its state, which the script reads. If the state was deleted too, it starts at 0-0: entries
    may be delivered again, and none is skipped.
    """
    if was_created or start_from == "Beginning":
        return EntryId.MIN
    return END_OF_STREAM if start_from == "End" else parse_entry_id(start_from)


def needs_ownership(
    ownership: OwnershipRecord | None, owner: OwnerRecord, server_time: datetime
) -> bool:
    """Whether to write the ownership record: it has another owner, is expired, or will be soon."""
    if (
        ownership is None
        or not ownership.owner.is_same_as(owner)
        or not _is_valid(ownership, server_time)
    ):
        return True
    return ownership.owned_until - server_time < OWNERSHIP_LIFETIME / 2


def decide_conflict(
    ownership: OwnershipRecord | None, owner: OwnerRecord, server_time: datetime
) -> Finding | None:
    """Return None if this resource may act on the group, otherwise the conflict with its owner.

    The oldest resource with a valid ownership record acts. The provisioning script decides in the
    same way; this function has no side effects.
    """
    if (
        ownership is None
        or ownership.owner.is_same_as(owner)
        or not _is_valid(ownership, server_time)
    ):
        return None
    if _comes_before(owner, ownership.owner):
        return None
    other = ownership.owner
    place = f" of cluster {other.cluster}" if other.cluster != owner.cluster else ""
    return Finding(
        reason=Reason.CONFLICT,
        message=(
            f"This group is managed by StreamConsumerGroup {other.namespace}/{other.name}{place}, "
            "which is older, so this resource changes nothing. Delete one of the two resources, "
            "or set spec.group to another group"
        ),
        is_terminal=True,
    )


def _last_known(stream: StreamObservation, otherwise: str) -> str:
    seen = stream.state.seen
    if seen is None or stream.ownership is None:
        return f"at {otherwise}"
    return f"where nothing is skipped, at {seen.last_delivered_id} or before"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class StreamUser:
    """A resource that names the dead-letter stream of another one as its stream."""

    created: datetime
    uid: str
    name: str  # with its namespace


def decide_dead_letters_in_use(
    own: StreamUser, users: Iterable[StreamUser], *, key: str, is_adopted: bool
) -> Finding | None:
    """Return why this resource may not use the dead-letter stream `key`; None if it may.

    The stream of another resource is never adopted. A stream that was adopted before stays in use
    unless an older resource names it.
    """
    first = min(users, default=None)
    if first is None or (is_adopted and own < first):
        return None
    return Finding(
        reason=Reason.DEAD_LETTER_STREAM_IN_USE,
        message=(
            f"The key {key} cannot be the dead-letter stream: it is spec.stream of {first.name}, "
            "whose workers would receive the dead letters. Set spec.deadLetter.stream to another "
            "key, or remove it"
        ),
        is_terminal=True,
    )


def _is_valid(ownership: OwnershipRecord, server_time: datetime) -> bool:
    # A record far in the future was written before the clock went back, and is not valid.
    return server_time < ownership.owned_until <= server_time + 2 * OWNERSHIP_LIFETIME


def _comes_before(one: OwnerRecord, other: OwnerRecord) -> bool:
    if one.cluster and (one.cluster, one.namespace, one.name) == (
        other.cluster,
        other.namespace,
        other.name,
    ):
        # Only one resource can have this name in a cluster, so the younger has replaced the older.
        return one.created >= other.created
    if one.created != other.created:
        return one.created < other.created
    return one.uid < other.uid


PATIENCE = timedelta(seconds=30)


class CleanupAction(StrEnum):
    """The next step of a deletion."""

    DESTROY = "Destroy"  # destroy the group and its own keys, then let go
    LET_GO = "LetGo"  # remove the finalizer


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupDecision:
    """One step, its reason, and a message for users."""

    action: CleanupAction
    reason: Reason
    message: str


def decide_finalizer(*, deletes_group: bool, has_finalizer: bool) -> bool | None:
    """Return True to add the finalizer, False to remove it, None to leave it as it is."""
    return None if deletes_group == has_finalizer else deletes_group


def decide_cleanup(
    *,
    deletes_group: bool,
    deleted_at: datetime,
    failure: str | None,
    now: datetime,
) -> CleanupDecision:
    """Return the next step for a resource with the finalizer that was deleted at `deleted_at`.

    `failure` is why the last attempt to destroy the group failed; None before the first.
    """
    if not deletes_group:
        return CleanupDecision(
            action=CleanupAction.LET_GO,
            reason=Reason.GROUP_REMOVED,
            message="The group stays in Redis. Remove it with XGROUP DESTROY if it is not needed",
        )
    if failure is not None and now - deleted_at >= PATIENCE:
        return CleanupDecision(
            action=CleanupAction.LET_GO,
            reason=Reason.GROUP_NOT_DESTROYED,
            message=(
                f"The group could not be destroyed within {PATIENCE.seconds} s of the deletion and "
                f"stays in Redis (remove it with XGROUP DESTROY): {failure}"
            ),
        )
    return CleanupDecision(
        action=CleanupAction.DESTROY, reason=Reason.GROUP_REMOVED, message="Destroying the group"
    )
