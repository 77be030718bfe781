"""The order in which to ask Sentinels, and the meaning of their answers. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pelops.domain.endpoint import Node
from pelops.errors import InvalidReply, RedisError, RedisUnavailable
from pelops.redis_core.errors import common_kind
from pelops.redis_core.replies.wire import is_host_or_own

_MOST_DESCRIBED: Final = 1000  # Sentinels or replicas in one answer
_MOST: Final = 32  # Sentinels to keep: a hostile one may name any number


class MasterUnknown(RedisUnavailable):
    """A Sentinel does not monitor a master of this name."""


class SentinelAnswers:
    """The Sentinels of one master, including those that other Sentinels have named.

    The caller asks them one after the other, in the order of `order`, until `master` accepts an
    answer.
    """

    def __init__(self, master_name: str, nodes: Sequence[Node]) -> None:
        self.master_name = master_name
        self._nodes = list(nodes)
        self.master_command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", master_name)
        self.others_command = ("SENTINEL", "SENTINELS", master_name)
        self.replicas_command = ("SENTINEL", "REPLICAS", master_name)

    @property
    def order(self) -> tuple[Node, ...]:
        """The Sentinels to ask; the one that answered last time comes first."""
        return tuple(self._nodes)

    def master(self, asked: Node, address: Any, others: Any = None) -> Node:
        """The master from the answer of one Sentinel to `master_command`.

        `others` is its answer to `others_command`, which may be an error, such as a missing right.
        Raises MasterUnknown when it monitors no such master, InvalidReply for an invalid address.
        """
        if address is None:
            raise MasterUnknown(f"does not know the master {self.master_name}")
        found = _parse_node(address)
        if found is None:
            raise InvalidReply(f"returned an invalid address of {self.master_name}")
        if asked in self._nodes:  # several are asked at once, and another may have answered
            self._nodes.remove(asked)
        self._nodes.insert(0, asked)
        self._nodes += [node for node in _members(others) if node not in self._nodes]
        del self._nodes[_MOST:]
        return found

    def failure(self, problems: Sequence[tuple[Node, Exception]]) -> RedisError:
        """The error when no Sentinel answered; `problems` has the error of each that was asked.

        RedisUnavailable, or the kind of error that all of them have in common: a forbidden address,
        forbidden credentials, or an invalid reply.
        """
        reported = "; ".join(f"{node}: {problem}" for node, problem in problems)
        kind = common_kind(problem for _, problem in problems)
        return kind(
            f"no Sentinel returned the address of the master {self.master_name}: {reported}"
        )


def usable_replicas(reply: Any) -> tuple[Node, ...]:
    """The replicas from an answer to `replicas_command` that are up and linked to their master."""
    return tuple(
        node
        for facts, node in _described(reply)
        if facts.get(b"flags") == b"slave" and facts.get(b"master-link-status") == b"ok"
    )


def is_replica(info: Any) -> bool:
    """Whether a reply to INFO replication is from a replica; False also when INFO is forbidden.

    A Sentinel may name a server that is not the master yet.
    """
    return isinstance(info, bytes) and b"role:slave" in info


def _members(reply: Any) -> Iterable[Node]:
    return (node for _, node in _described(reply))


def _described(reply: Any) -> Iterable[tuple[dict[bytes, Any], Node]]:
    for flat in reply[:_MOST_DESCRIBED] if isinstance(reply, list) else ():
        if isinstance(flat, list) and all(isinstance(part, bytes) for part in flat):
            facts = dict(zip(flat[::2], flat[1::2], strict=False))
            node = _parse_node([facts.get(b"ip"), facts.get(b"port")])
            if node is not None:
                yield facts, node


def _parse_node(address: Any) -> Node | None:
    try:
        host, port = address
        found = Node(host.decode("ascii"), int(port) if len(port) <= 5 else 0)
    except (TypeError, ValueError, AttributeError):
        return None
    is_named = found.host not in ("", "?") and is_host_or_own(found.host)
    return found if is_named and 0 < found.port <= 65_535 else None
