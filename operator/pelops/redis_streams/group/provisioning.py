"""Creating, adopting, releasing and destroying consumer groups. Everything here repeats safely."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Final

from pelops.domain.entry_id import EntryId, StartPosition, parse_entry_id
from pelops.domain.ledger import CreationReason, GroupCreation
from pelops.domain.naming import GroupKeys
from pelops.domain.ownership import HOLD, GroupHold, OwnerRecord
from pelops.domain.state import Loss
from pelops.redis_core.errors import permission_denied
from pelops.redis_core.scripts import Need, ScriptCall, load_script
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Part, Reply
from pelops.redis_streams.group.observation import EPOCH, parse_hold, wrong_type

_PROVISION: Final = load_script("provision_group", writes=True)
_DESTROY: Final = load_script("destroy_group", writes=True)
_RELEASE: Final = load_script("release_group", writes=True)
_MILLISECOND: Final = timedelta(milliseconds=1)


class ProvisionVerdict(StrEnum):
    """What became of an attempt to provision a group."""

    CREATED = "created"  # it was missing; `position` and `why` tell where it begins
    ADOPTED = "adopted"  # the group was there; the resource acts on it from now on
    SETTLED = "settled"  # all was there already
    CONFLICT = "conflict"  # another resource acts; nothing was written


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioned:
    """A group that is provisioned, or belongs to someone else."""

    verdict: ProvisionVerdict
    hold: GroupHold | None  # who acts; None only for a conflict with a damaged record
    creation: GroupCreation | None = None  # None unless it was created


class DestroyVerdict(StrEnum):
    """What became of an attempt to destroy a group."""

    DESTROYED = "destroyed"
    ABSENT = "absent"  # neither group nor record: nothing to do
    NOT_OWNER = "not-owner"  # another resource acts, or none is known to: left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Destroyed:
    """The end of a group, or why it was left."""

    verdict: DestroyVerdict
    hold: GroupHold | None = None  # whose group it is, when it is not ours
    copies: int = 0  # not acknowledged, at least, that went with the retry stream


async def provision_group(  # noqa: PLR0913 - what one group needs, and for whom
    server: Server,
    keys: GroupKeys,
    *,
    start: StartPosition,
    owner: OwnerRecord,
    hold: timedelta = HOLD,
    existed: bool = False,
    newest: EntryId | None = None,
    loss: Loss | None = None,
    with_retry: bool = False,
    with_handover: bool = False,
) -> Provisioned:
    """Make the group, its empty dead-letter stream and its ledger, and say that `owner` acts on it.

    An existing group stays untouched, and `start` counts for a group on which nobody acted before:
    one that was lost, as its state says or `existed` does, begins where it skips nothing that it
    owed. `newest` is its last-delivered-id at the newest observation, for the count of repeats, and
    `loss` what went with its stream: recorded in the same script, if the group is missing and no
    other replica has recorded it. The retry and the hand-over stream are made when asked for, with
    the group at their beginning. Call it again before `hold` runs out: a settled group is then
    written to once per third of it at most.
    Raises WrongType and PermissionDenied before anything was written.
    """
    further = (keys.retry,) * with_retry + (keys.handover,) * with_handover
    call = ScriptCall(
        script=_PROVISION,
        keys=(keys.stream, keys.dead_letter, keys.ledger, keys.state, keys.started, *further),
        args=(
            *(keys.group, str(start), hold // _MILLISECOND, owner.uid, owner.cluster),
            *(owner.namespace, owner.name, _milliseconds(owner), int(existed)),
            "" if newest is None else str(newest),
            *(() if loss is None else render_vanished(loss)),
        ),
        needs=partial(_provision_needs, keys, further),
    )
    verdict, *details = await server.run(call)
    _raise_refusal(keys, verdict, details)
    if verdict == b"conflict":
        return Provisioned(verdict=ProvisionVerdict.CONFLICT, hold=parse_hold(details))
    until = EPOCH + int(details[0]) * _MILLISECOND
    return Provisioned(
        verdict=ProvisionVerdict(verdict.decode()),
        hold=GroupHold(owner=owner, held_until=until),
        creation=_read_creation(*details[1:]) if verdict == b"created" else None,
    )


async def destroy_group(server: Server, keys: GroupKeys, owner: OwnerRecord) -> Destroyed:
    """Destroy the group and our own keys, if `owner` acts on it; never the stream or dead letters.

    Raises PermissionDenied before anything was written.
    """
    call = ScriptCall(
        script=_DESTROY,
        keys=(
            *(keys.stream, keys.state, keys.started),
            *(keys.retry, keys.handover, keys.ledger, keys.audit),
        ),
        args=(keys.group, owner.uid),
        needs=partial(_destroy_needs, keys),
    )
    verdict, *details = await server.run(call)
    _raise_refusal(keys, verdict, details)
    if verdict == b"destroyed":
        return Destroyed(verdict=DestroyVerdict.DESTROYED, copies=details[0])
    return Destroyed(verdict=DestroyVerdict(verdict.decode()), hold=parse_hold(details))


async def release_group(server: Server, keys: GroupKeys, owner: OwnerRecord) -> bool:
    """Stop acting on the group and leave it as it is; False when `owner` did not act on it."""
    call = ScriptCall(
        script=_RELEASE,
        keys=(keys.state,),
        args=(owner.uid,),
        needs=partial(_release_needs, keys),
    )
    return bool(await server.run(call) == b"released")


def render_vanished(loss: Loss) -> tuple[Part, ...]:
    """A loss of any cause but trimming, as scripts take it."""
    observed = "" if loss.observed is None else (loss.observed - EPOCH) // _MILLISECOND
    return (
        *(str(loss.position), str(loss.after or loss.position), str(loss.before or "")),
        *(loss.cause.value, loss.undelivered, loss.pending, observed),
    )


def _release_needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (
        Need("type", keys.state),
        Need("hmget", keys.state, ("owner:uid",)),
        Need("hdel", keys.state, ("owner:uid",)),
    )


def _read_creation(position: bytes, why: bytes, repeats: bytes) -> GroupCreation:
    return GroupCreation(
        position=parse_entry_id(position),
        why=CreationReason(why.decode()),
        repeats=int(repeats) if repeats.isdigit() else None,
    )


def _provision_needs(keys: GroupKeys, further: tuple[str, ...]) -> tuple[Need, ...]:
    named = (keys.stream, keys.dead_letter, keys.ledger, keys.state, keys.started)
    return (
        *(Need("type", key) for key in (*named, *further)),
        Need("time"),
        Need("hmget", keys.state, ("owner:uid",)),
        Need("xpending", keys.stream, (keys.group, "-", "+", 1)),
        *(
            Need("xgroup|create", key, (keys.group, "0", "MKSTREAM"))
            for key in (keys.stream, *further)
        ),
        Need("xinfo|stream", keys.stream),
        Need("xrange", keys.stream, ("-", "+")),
        *(Need("xadd", key, ("*", "f", "v")) for key in (keys.dead_letter, keys.ledger)),
        Need("xdel", keys.dead_letter, ("0-1",)),
        Need("hdel", keys.state, ("f",)),
        *(Need("hset", key, ("f", "v")) for key in (keys.state, keys.started)),
    )


def _destroy_needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (
        *(Need("type", key) for key in (keys.stream, keys.state)),
        Need("hmget", keys.state, ("owner:uid",)),
        *(Need("xpending", key, (keys.group, "-", "+", 1)) for key in (keys.stream, keys.retry)),
        Need("xinfo|stream", keys.retry),
        Need("xinfo|groups", keys.retry),
        Need("xrange", keys.retry, ("-", "+")),
        Need("xgroup|destroy", keys.stream, (keys.group,)),
        *(Need("unlink", key) for key in (keys.state, keys.started, keys.retry)),
        *(Need("unlink", key) for key in (keys.handover, keys.ledger, keys.audit)),
    )


def _raise_refusal(keys: GroupKeys, verdict: bytes, details: list[Reply]) -> None:
    if verdict == b"wrong-type":
        key, found = details[0].decode(), details[1].decode()
        raise wrong_type(key, found, "hash" if key in (keys.state, keys.started) else "stream")
    if verdict == b"no-permission":
        raise permission_denied(details[0].decode().lower(), details[1].decode())


def _milliseconds(owner: OwnerRecord) -> int:
    return (owner.created - EPOCH) // _MILLISECOND
