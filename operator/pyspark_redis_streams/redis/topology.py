"""Asks Sentinels for the master or a replica, and cluster nodes for the owners of slots."""

from __future__ import annotations

from collections.abc import Sequence

from pelops.redis_core.endpoint import Node
from pelops.redis_core.errors import RedisUnavailable
from pelops.redis_core.slots import SLOT_MAP, SlotMap
from pyspark_redis_streams.errors import NotPermitted, OptionError
from pyspark_redis_streams.redis.link import Away, Link
from pyspark_redis_streams.redis.servers import ServerSettings


def read_slots(settings: ServerSettings, known: Sequence[Node]) -> SlotMap:
    """The cluster's own view, from the node that the options name or from one known before.

    Raises Away when none of them answers.
    """
    seeds = [Node(settings.host, settings.port), *known]
    for position, seed in enumerate(seeds):
        try:
            return _slots_told_by(seed, settings)
        except Away:
            if position == len(seeds) - 1:
                raise
    raise AssertionError("there is always the node that the options name")


def _slots_told_by(seed: Node, settings: ServerSettings) -> SlotMap:
    link = Link(seed, settings)
    try:
        return SlotMap.parse(link.ask(*SLOT_MAP), seed)
    except RedisUnavailable as error:
        raise Away(str(error)) from error
    finally:
        link.close()


def sentinel_address(settings: ServerSettings, *, replica: bool) -> Node:
    """Where the master is, or a replica of it that is up; the master if there is none.

    Raises Away when no Sentinel answers, OptionError when none knows the master's name.
    """
    complaints = []
    for sentinel in settings.sentinels:
        link = Link(sentinel, settings, is_sentinel=True)
        try:
            found = _ask_sentinel(link, settings, replica=replica)
        except (Away, NotPermitted) as error:
            complaints.append(str(error))
            continue
        finally:
            link.close()
        if found is not None:
            return found
        complaints.append(f"{sentinel} does not know it")
    if all("does not know" in complaint for complaint in complaints):
        raise OptionError(
            f"option 'sentinelMaster' is '{settings.sentinel_master}', a name that no Sentinel of"
            " option 'sentinels' watches"
        )
    raise Away("no Sentinel tells the master: " + "; ".join(complaints))


def _ask_sentinel(link: Link, settings: ServerSettings, *, replica: bool) -> Node | None:
    name = settings.sentinel_master or ""
    master = link.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
    if master is None:
        return None
    if replica:
        usable = [
            found
            for found in map(_pairs, link.ask("SENTINEL", "REPLICAS", name))
            if found[b"flags"] == b"slave" and found.get(b"master-link-status") == b"ok"
        ]
        if usable:
            return Node(usable[0][b"ip"].decode(), int(usable[0][b"port"]))
    return Node(master[0].decode(), int(master[1]))


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
