"""Asks Sentinels for the master or a replica, and cluster nodes for the owners of slots."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark_redis_streams.errors import NotPermitted, OptionError
from pyspark_redis_streams.redis.link import Address, Away, Link
from pyspark_redis_streams.redis.servers import ServerSettings


@dataclass(frozen=True, slots=True)
class SlotMap:
    """Which nodes hold which slots; of each range the master comes first."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    nodes: tuple[tuple[Address, ...], ...]

    def nodes_of(self, slot: int) -> tuple[Address, ...]:
        """Master and replicas of a slot. Raises Away when nobody holds it."""
        at = bisect_right(self.starts, slot) - 1
        if at < 0 or slot > self.ends[at]:
            raise Away(f"no node of the cluster holds slot {slot} now")
        return self.nodes[at]

    def masters(self) -> list[Address]:
        return sorted({nodes[0] for nodes in self.nodes})


def read_slots(settings: ServerSettings, known: Sequence[Address]) -> SlotMap:
    """The cluster's own view, from the node that the options name or from one known before.

    Raises Away when none of them answers.
    """
    seeds = [(settings.host, settings.port), *known]
    for position, seed in enumerate(seeds):
        try:
            return _slots_told_by(seed, settings)
        except Away:
            if position == len(seeds) - 1:
                raise
    raise AssertionError("there is always the node that the options name")


def _slots_told_by(seed: Address, settings: ServerSettings) -> SlotMap:
    link = Link(seed, settings)
    try:
        ranges = sorted(link.ask("CLUSTER", "SLOTS"), key=lambda found: found[0])
    finally:
        link.close()
    return SlotMap(
        starts=tuple(found[0] for found in ranges),
        ends=tuple(found[1] for found in ranges),
        nodes=tuple(tuple(_address(node, seed) for node in found[2:]) for found in ranges),
    )


def _address(node: list[Any], seed: Address) -> Address:
    # A node that does not know its own address yet leaves it empty.
    return (node[0].decode() if node[0] else seed[0], node[1])


def sentinel_address(settings: ServerSettings, *, replica: bool) -> Address:
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
        complaints.append(f"{sentinel[0]}:{sentinel[1]} does not know it")
    if all("does not know" in complaint for complaint in complaints):
        raise OptionError(
            f"option 'sentinelMaster' is '{settings.sentinel_master}', a name that no Sentinel of"
            " option 'sentinels' watches"
        )
    raise Away("no Sentinel tells the master: " + "; ".join(complaints))


def _ask_sentinel(link: Link, settings: ServerSettings, *, replica: bool) -> Address | None:
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
            return (usable[0][b"ip"].decode(), int(usable[0][b"port"]))
    return (master[0].decode(), int(master[1]))


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
