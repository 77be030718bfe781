"""The retry stream of a group: whether there is one, what waits in it, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pelops.domain.naming import GroupKeys
from pelops.domain.ownership import OwnerRecord
from pelops.redis_core.scripts import load_script
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan import raise_obstacle, raise_refusal

_NOTE: Final = load_script("note_retry_wait")
_RETURN: Final = load_script("return_copies")
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
    call = _NOTE.call(keys, group=keys.group, uid=owner.uid, notes=not forget)
    raise_refusal(keys, _NOTE.read(await server.run(call)))


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
    call = _RETURN.call(
        keys,
        group=keys.group,
        uid=owner.uid,
        prefix=field_prefix,
        batch=batch,
        max_bytes=MAX_BYTES,
        actor=actor,
        reason=reason,
    )
    answer = _RETURN.read(await server.run(call))
    raise_obstacle(keys.group, keys.stream, answer)
    raise_refusal(keys, answer)
    return Returned(
        moved=answer["moved"], stayed=answer["stayed"], may_continue=bool(answer["more"])
    )
