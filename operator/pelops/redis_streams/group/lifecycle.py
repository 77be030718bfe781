"""Provisions, adopts, releases and destroys a consumer group. Every call repeats safely."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from pelops.clock import MILLISECOND, to_ms
from pelops.domain.entry_id import EntryId, StartPosition
from pelops.domain.naming import GroupKeys
from pelops.domain.records.ledger import CreationReason, GroupCreation
from pelops.domain.records.state import OWNERSHIP_LIFETIME, Loss, OwnerRecord, OwnershipRecord
from pelops.errors import DeadLetterStreamInUse, NotOurs, PelopsError, StreamInUse
from pelops.redis_core.commands import Part
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import parse_ownership
from pelops.redis_streams.recovery.scan_calls import refused
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import load_script
from pelops.scripts.parts import Count, Id, Moment, NumberIfAny, Raw


class _Created(NamedTuple):
    verdict: Literal["created"]
    held_until: Moment
    position: Id
    why: CreationReason
    repeats: NumberIfAny  # a word if it is not known


class _Ownership(NamedTuple):
    verdict: Literal["adopted", "settled"]
    held_until: Moment


class _Foreign(NamedTuple):
    """Another resource acts on the group, or no record exists."""

    verdict: Literal["conflict"]
    record: tuple[Raw | None, ...]


class _Destroyed(NamedTuple):
    verdict: Literal["destroyed"]
    copies: Count  # of the retry stream, at least, that were not acknowledged


_PROVISION: Final = load_script("provision_group", _Created | _Ownership | _Foreign | Refusal)
_DESTROY: Final = load_script("destroy_group", Literal["absent"] | _Destroyed | _Foreign | Refusal)
_RELEASE: Final = load_script("release_group", Literal["released", "not-owner"])
_LOST: Final = (
    *("lost_position", "lost_after", "lost_before", "lost_cause"),
    *("lost_undelivered", "lost_pending", "lost_observed_ms"),
)


class ProvisionVerdict(StrEnum):
    """The result of an attempt to provision a group."""

    CREATED = "created"  # it was missing; `creation` has its position and the reason
    ADOPTED = "adopted"  # the group existed; the resource acts on it from now on
    SETTLED = "settled"  # everything existed already
    CONFLICT = "conflict"  # another resource acts on the group; nothing was written


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioned:
    """The result of `provision_group`."""

    verdict: ProvisionVerdict
    hold: OwnershipRecord | None  # None only for a conflict with a damaged record
    creation: GroupCreation | None = None  # None unless it was created


class DestroyVerdict(StrEnum):
    """The result of an attempt to destroy a group."""

    DESTROYED = "destroyed"
    ABSENT = "absent"  # neither group nor record exists
    NOT_OWNER = "not-owner"  # another resource acts on it, or no record exists: nothing changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Destroyed:
    """The result of `destroy_group`."""

    verdict: DestroyVerdict
    hold: OwnershipRecord | None = None  # of the resource that acts on the group, if another does
    copies: int = 0  # lower bound of unacknowledged copies deleted with the retry stream


async def provision_group(
    server: Server,
    keys: GroupKeys,
    *,
    start: StartPosition,
    owner: OwnerRecord,
    hold: timedelta = OWNERSHIP_LIFETIME,
    existed: bool = False,
    newest: EntryId | None = None,
    loss: Loss | None = None,
    with_retry: bool = False,
    with_offers: bool = False,
) -> Provisioned:
    """Create the group, its dead-letter stream and its ledger, and record `owner` as its owner.

    An existing group is not changed. `start` applies only to a group on which no resource acted
    before. A group that was lost, by its state or by `existed`, is created at a position that
    skips none of its backlog. `newest` is its last-delivered-id at the newest observation, for the
    count of repeated deliveries.

    `loss` is what was lost with the stream. The same script records it, if the group is missing and
    no other replica has recorded it. The retry and the offer stream are created on request, with
    the group at their beginning. Call this again before `hold` expires; a settled group is written
    at most once per third of `hold`.

    An existing dead-letter stream or derived key is adopted if it is empty, is recorded as this
    group's, or holds only what Pelops writes there for this group.

    Raises, before anything was written: DeadLetterStreamInUse, StreamInUse, WrongType,
    PermissionDenied. NotOurs, if another resource uses this dead-letter stream, or if the group
    was destroyed because this resource was deleted.
    """
    call = _PROVISION.call(
        keys,
        {"further": (keys.retry,) * with_retry + (keys.offer_stream,) * with_offers},
        group=keys.group,
        start=str(start),
        hold_ms=hold // MILLISECOND,
        uid=owner.uid,
        cluster=owner.cluster,
        namespace=owner.namespace,
        name=owner.name,
        created_ms=to_ms(owner.created),
        existed=existed,
        newest=None if newest is None else str(newest),
        **_render_vanished(loss),
    )
    answer = _PROVISION.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise _refused(keys, owner, answer)
    if isinstance(answer, _Foreign):
        theirs = parse_ownership(answer.record)
        return Provisioned(verdict=ProvisionVerdict.CONFLICT, hold=theirs)
    return Provisioned(
        verdict=ProvisionVerdict(answer.verdict),
        hold=OwnershipRecord(owner=owner, owned_until=answer.held_until),
        creation=GroupCreation(position=answer.position, why=answer.why, repeats=answer.repeats)
        if isinstance(answer, _Created)
        else None,
    )


async def destroy_group(server: Server, keys: GroupKeys, owner: OwnerRecord) -> Destroyed:
    """Destroy the group and its derived keys, if `owner` acts on it. Keeps stream and dead letters.

    Raises PermissionDenied before anything was written.
    """
    call = _DESTROY.call(keys, group=keys.group, uid=owner.uid)
    answer = _DESTROY.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    if isinstance(answer, _Foreign):
        hold = parse_ownership(answer.record)
        return Destroyed(verdict=DestroyVerdict.NOT_OWNER, hold=hold)
    if isinstance(answer, _Destroyed):
        return Destroyed(verdict=DestroyVerdict.DESTROYED, copies=answer.copies)
    return Destroyed(verdict=DestroyVerdict.ABSENT)


async def release_group(server: Server, keys: GroupKeys, owner: OwnerRecord) -> bool:
    """Stop acting on the group without changing it; False when `owner` did not act on it."""
    answer = _RELEASE.read(await server.run(_RELEASE.call(keys, uid=owner.uid)))
    return answer == "released"


def key_in_use(keys: GroupKeys, key: str, why: str, example: str) -> StreamInUse:
    """The error for a key with contents that Pelops did not write."""
    holds = {
        "groups": f"consumer group {example} reads it",
        "fields": f"it has the field {example}, which Pelops did not write",
    }.get(why, "it contains entries that Pelops did not write for this group")
    if key == keys.dead_letter:
        return DeadLetterStreamInUse(
            f"the key {key} cannot be the dead-letter stream of group {keys.group}: {holds}"
        )
    return StreamInUse(
        f"the key {key}, which Pelops needs for group {keys.group} of {keys.stream}, is in use: "
        f"{holds}"
    )


def _render_vanished(loss: Loss | None) -> dict[str, Part | None]:
    """A loss of another cause than trimming, as arguments of the script."""
    if loss is None:
        return dict.fromkeys(_LOST)
    observed = None if loss.observed is None else to_ms(loss.observed)
    before = None if loss.before is None else str(loss.before)
    return {
        "lost_position": str(loss.position),
        "lost_after": str(loss.after or loss.position),
        "lost_before": before,
        "lost_cause": loss.cause.value,
        "lost_undelivered": loss.undelivered,
        "lost_pending": loss.pending,
        "lost_observed_ms": observed,
    }


def _refused(keys: GroupKeys, owner: OwnerRecord, refusal: Refusal) -> PelopsError:
    match (refusal.verdict, *refusal.names):
        case ("removed",):
            return NotOurs(
                f"group {keys.group} was destroyed because StreamConsumerGroup {owner.namespace}/"
                f"{owner.name} was deleted: it is not created again"
            )
        case "stream-in-use", key, why, example:
            return key_in_use(keys, key, why, example)
        case "letters-conflict", key, namespace, name, cluster, stream, group:
            place = f" of cluster {cluster}" if cluster else ""
            return NotOurs(
                f"StreamConsumerGroup {namespace}/{name}{place} (group {group} of {stream}) uses "
                f"the dead-letter stream {key}: set spec.deadLetter.stream to another key, or "
                "remove it"
            )
    return refused(keys, refusal)
