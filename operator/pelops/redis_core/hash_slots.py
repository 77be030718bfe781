"""The slot map of a cluster, and the redirects in replies. No I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from redis.exceptions import AskError, MovedError

from pelops.domain.endpoint import Node
from pelops.domain.naming import SLOTS, hash_tag, key_slot, own_hash_tag
from pelops.errors import InvalidReply, RedisUnavailable
from pelops.redis_core.replies.wire import is_host_or_own, is_slot

__all__ = ["SLOT_MAP", "Redirect", "SlotMap", "hash_tag", "key_slot", "own_hash_tag", "redirect_of"]

SLOT_MAP: Final = ("CLUSTER", "SLOTS")  # the command whose reply `SlotMap.parse` reads
MOST_NODES: Final = 1000  # of a cluster; Redis itself advises against more
_MOST_OF_A_RANGE: Final = 100  # a master and its replicas
_UNNAMED: Final = (None, b"", b"?")  # returned by a node that does not know its own name


@dataclass(frozen=True, slots=True)
class SlotMap:
    """The nodes of each range of slots: the master first, then its replicas."""

    starts: tuple[int, ...] = ()  # ascending
    ends: tuple[int, ...] = ()  # inclusive
    nodes: tuple[tuple[Node, ...], ...] = ()

    @classmethod
    def parse(cls, reply: Any, answered: Node) -> SlotMap:
        """The map from a reply to CLUSTER SLOTS of the node `answered`; empty without slots.

        A node without a name is at the host of `answered`. Raises RedisUnavailable for an error
        reply, and InvalidReply for a malformed one.
        """
        if isinstance(reply, Exception):
            raise RedisUnavailable(f"{answered} did not return the hash slots of its cluster")
        try:
            ranges = _parse_ranges(reply, answered)
        except (TypeError, ValueError, AttributeError):
            raise InvalidReply(
                f"Redis at {answered} returned an invalid reply to CLUSTER SLOTS"
            ) from None
        return cls(*zip(*ranges, strict=True)) if ranges else cls()

    def nodes_of(self, slot: int) -> tuple[Node, ...]:
        """The master and the replicas of a slot; empty if no node serves it."""
        at = bisect_right(self.starts, slot) - 1
        return self.nodes[at] if at >= 0 and slot <= self.ends[at] else ()

    def master_of(self, slot: int) -> Node | None:
        """The master of a slot, if there is one."""
        nodes = self.nodes_of(slot)
        return nodes[0] if nodes else None

    def masters(self) -> tuple[Node, ...]:
        """Every master once, in the order of their slots."""
        return tuple(dict.fromkeys(nodes[0] for nodes in self.nodes))

    def members(self) -> Iterator[Node]:
        """Masters and replicas; a node may come more than once."""
        for nodes in self.nodes:
            yield from nodes


@dataclass(frozen=True, slots=True)
class Redirect:
    """The command was not executed, and must be sent to another node."""

    node: Node
    slot: int
    is_lasting: bool  # True: MOVED; False: ASK, for one attempt and only after ASKING


def redirect_of(reply: Any, answered: Node) -> Redirect | None:
    """The redirect in a reply of the node `answered`; None if it is neither MOVED nor ASK."""
    if not isinstance(reply, AskError):  # MovedError is a subclass
        return None
    host = answered.host if reply.host in ("", "?") else reply.host
    return Redirect(Node(host, reply.port), reply.slot_id, isinstance(reply, MovedError))


_Range: TypeAlias = tuple[int, int, tuple[Node, ...]]


def _parse_ranges(reply: Any, answered: Node) -> list[_Range]:
    if type(reply) is not list or len(reply) > SLOTS:
        raise ValueError("no list of ranges")
    nodes: set[Node] = set()
    ranges = []
    for found in reply:
        ranges.append(_parse_range(found, answered))
        nodes.update(ranges[-1][2])
        if len(nodes) > MOST_NODES:
            raise ValueError("too many nodes")
    return sorted(ranges, key=lambda one: one[:2])


def _parse_range(found: Any, answered: Node) -> _Range:
    if type(found) is not list or not 3 <= len(found) <= 2 + _MOST_OF_A_RANGE:
        raise ValueError("no range of slots")
    first, last, *nodes = found
    if not (is_slot(first) and is_slot(last) and first <= last):
        raise ValueError("no range of slots")
    return first, last, tuple(_parse_node(node, answered) for node in nodes)


def _parse_node(node: Any, answered: Node) -> Node:
    if type(node) is not list or len(node) < 2:
        raise ValueError("no node")
    host, port = node[:2]
    if type(port) is not int or not 0 <= port <= 65_535:
        raise ValueError("no port")
    if host in _UNNAMED:
        return Node(answered.host, port)
    named = host.decode("ascii")
    if not is_host_or_own(named):
        raise ValueError("no host")
    return Node(named, port)
