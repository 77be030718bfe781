"""The retry stream of a group: whether there is one, what waits in it, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from pelops.domain.naming import GroupKeys
from pelops.domain.ownership import OwnerRecord
from pelops.errors import PositionAhead, WouldDuplicate
from pelops.redis_core.scripts import Need, ScriptCall, load_script
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan import raise_refusal

_NOTE: Final = load_script("note_retry_wait", writes=True)
_RETURN: Final = load_script("return_copies", writes=True)
BATCH: Final = 50  # copies moved in one call
MAX_BYTES: Final = 256 * 1024  # of bodies that one call reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What a call has moved back to the stream."""

    moved: int = 0
    stayed: int = 0  # the server did not take the copy
    may_continue: bool = False  # more copies are left


async def has_retry_stream(server: Server, keys: GroupKeys) -> bool:
    """Whether the key of the retry stream holds a stream. One command, of one key."""
    return bool(await server.execute("TYPE", keys.retry, key=keys.retry) == b"stream")


async def note_retry_wait(
    server: Server, keys: GroupKeys, owner: OwnerRecord, *, forget: bool
) -> None:
    """Write down which copy waits first in the retry stream, or forget what was written.

    Repeats safely: a copy that was noted before keeps its first note.
    Raises NotOurs, NoSuchGroup, WrongType and PermissionDenied before anything was written.
    """
    call = ScriptCall(
        script=_NOTE,
        keys=(keys.stream, keys.retry, keys.state),
        args=(keys.group, owner.uid, int(not forget)),
        needs=partial(_note_needs, keys),
    )
    verdict, *details = await server.run(call)
    raise_refusal(keys, verdict, details)


async def return_copies(  # noqa: PLR0913 - what the ledger says of it
    server: Server,
    keys: GroupKeys,
    owner: OwnerRecord,
    *,
    field_prefix: str,
    actor: str,
    reason: str,
    batch: int = BATCH,
) -> Returned:
    """Move copies that were not delivered from the retry stream to the end of the stream.

    Pending entries of the retry stream stay where they are. Repeats safely.
    Raises NotOurs, NoSuchGroup, WouldDuplicate, PositionAhead, WrongType and PermissionDenied
    before anything was written.
    """
    call = ScriptCall(
        script=_RETURN,
        keys=(keys.retry, keys.stream, keys.ledger, keys.state),
        args=(keys.group, owner.uid, field_prefix, batch, MAX_BYTES, actor, reason),
        needs=partial(_return_needs, keys),
    )
    verdict, *details = await server.run(call)
    if verdict == b"would-duplicate":
        raise WouldDuplicate(
            f"the stream {keys.stream} has {details[0].decode()} consumer groups, and each would "
            "be given the copy of a stuck entry"
        )
    if verdict == b"position-ahead":
        raise PositionAhead(
            f"the group {keys.group} stands at {details[0].decode()}, beyond the end of "
            f"{keys.stream}"
        )
    raise_refusal(keys, verdict, details)
    moved, stayed, more = details
    return Returned(moved=moved, stayed=stayed, may_continue=bool(more))


def _note_needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (
        *(Need("type", key) for key in (keys.stream, keys.retry, keys.state)),
        Need("time"),
        Need("hmget", keys.state, ("f",)),
        *(Need("xinfo|groups", key) for key in (keys.stream, keys.retry)),
        Need("xinfo|stream", keys.retry),
        *(Need("xpending", key, (keys.group, "-", "+", 1)) for key in (keys.stream, keys.retry)),
        Need("xrange", keys.retry, ("-", "+")),
        Need("hset", keys.state, ("f", "v")),
        Need("hdel", keys.state, ("f",)),
    )


def _return_needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (
        *(Need("type", key) for key in (keys.retry, keys.stream, keys.ledger, keys.state)),
        *(Need(command, keys.state, ("f",)) for command in ("hget", "hmget")),
        *(Need("xinfo|groups", key) for key in (keys.stream, keys.retry)),
        Need("xinfo|stream", keys.stream),
        Need("xpending", keys.retry, (keys.group, "-", "+", 1)),
        Need("xrange", keys.retry, ("-", "+")),
        *(Need("xadd", key, ("*", "f", "v")) for key in (keys.stream, keys.ledger)),
        Need("xdel", keys.retry, ("0-1",)),
        Need("hset", keys.state, ("f", "v")),
        Need("hincrby", keys.state, ("f", 1)),
        Need("hdel", keys.state, ("f",)),
    )
