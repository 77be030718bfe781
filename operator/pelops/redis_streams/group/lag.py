"""Telling a server that lost count how many entries a group was given."""

from __future__ import annotations

from typing import Final

from pelops.domain.naming import GroupKeys
from pelops.redis_core.scripts import load_script
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan import raise_refusal

_REPAIR: Final = load_script("repair_lag")


async def repair_lag(server: Server, keys: GroupKeys, uid: str, *, of_retry: bool = False) -> bool:
    """Have the server report the group's true lag again; whether anything was written.

    For a group whose observation says `is_lag_repairable`; of its retry stream when asked for.
    All is counted again at one instant, and where no certain number results nothing is written.
    Neither the position nor what is pending changes. Repeats safely.
    Raises NotOurs unless the resource with this uid acts on the group, NoSuchGroup, WrongType and
    PermissionDenied before anything was written.
    """
    source = {"source": keys.retry if of_retry else keys.stream}
    answer = _REPAIR.read(await server.run(_REPAIR.call(keys, source, group=keys.group, uid=uid)))
    raise_refusal(keys, answer)
    return answer.verdict == "repaired"
