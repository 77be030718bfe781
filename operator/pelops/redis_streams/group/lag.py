"""Telling a server that lost count how many entries a group was given."""

from __future__ import annotations

from functools import partial
from typing import Final

from pelops.domain.naming import GroupKeys
from pelops.redis_core.scripts import Need, ScriptCall, load_script
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan import raise_refusal

_REPAIR: Final = load_script("repair_lag", writes=True)


async def repair_lag(server: Server, keys: GroupKeys, uid: str, *, of_retry: bool = False) -> bool:
    """Have the server report the group's true lag again; whether anything was written.

    For a group whose observation says `is_lag_repairable`; of its retry stream when asked for.
    All is counted again at one instant, and where no certain number results nothing is written.
    Neither the position nor what is pending changes. Repeats safely.
    Raises NotOurs unless the resource with this uid acts on the group, NoSuchGroup, WrongType and
    PermissionDenied before anything was written.
    """
    stream = keys.retry if of_retry else keys.stream
    call = ScriptCall(
        script=_REPAIR,
        keys=(stream, keys.state),
        args=(keys.group, uid),
        needs=partial(_needs, keys, stream),
    )
    verdict, *details = await server.run(call)
    raise_refusal(keys, verdict, details)
    return bool(verdict == b"repaired")


def _needs(keys: GroupKeys, stream: str) -> tuple[Need, ...]:
    return (
        *(Need("type", key) for key in (stream, keys.state)),
        Need("hmget", keys.state, ("owner:uid",)),
        Need("xinfo|stream", stream),
        Need("xinfo|groups", stream),
        Need("xpending", stream, (keys.group, "-", "+", 1)),
        Need("xrange", stream, ("-", "+")),
        Need("xgroup|setid", stream, (keys.group, "0-1", "ENTRIESREAD", 1)),
    )
