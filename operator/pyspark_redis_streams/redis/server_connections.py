"""Connections to the nodes of a server, one to each node that holds a requested stream.

Sentinels name the master or a replica, and cluster nodes name the owners of hash slots. All
commands sent here are reads, or safe to repeat. So a command without a reply is repeated, on the
node that serves the stream by then.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pelops.redis_core import Node
from pelops.redis_core.errors import InvalidReply, RedisUnavailable
from pelops.redis_core.hash_slots import SLOT_MAP, SlotMap, key_slot
from pelops.redis_core.sentinel_answers import (
    MasterUnknown,
    SentinelAnswers,
    is_replica,
    usable_replicas,
)
from pyspark_redis_streams.errors import NotPermitted, OptionError, ServerError, ServerUnavailable
from pyspark_redis_streams.redis.node_connection import Argument, Away, NodeConnection
from pyspark_redis_streams.redis.servers import ServerSettings

Answer = TypeVar("Answer")

LONGEST_WAIT_S = 5.0
LONGEST_SEARCH_S = 60.0  # of asking one node after the other for the addresses of the others


class ServerConnections:
    """Links to the nodes of one server, cluster or Sentinel group; not for use by two threads."""

    def __init__(self, settings: ServerSettings, *, from_replica: bool = False) -> None:
        self._settings = settings
        self._from_replica = from_replica
        self._sentinels = SentinelAnswers(settings.sentinel_master or "", settings.sentinels)
        self._links: dict[Node, NodeConnection] = {}
        self._slots: SlotMap | None = None
        self._chosen: Node | None = None
        self._known: list[Node] = []  # nodes of a cluster to ask for the slot map

    def execute(self, stream: str, *command: Argument) -> Any:
        """The reply of the node that holds `stream`, after retries. Raises ServerError."""
        return self.persist(lambda: self.link_for(stream).execute(*command))

    def persist(self, action: Callable[[], Answer]) -> Answer:
        """The result of the action, which is retried from its beginning while it raises Away.

        Raises ServerUnavailable after the last retry.
        """
        began = time.monotonic()
        for attempt in range(self._settings.retries + 1):
            try:
                return action()
            except Away as error:
                away = error
            self.forget()
            if attempt < self._settings.retries:
                time.sleep(self._wait_s(attempt))
        raise ServerUnavailable(self._explain_failure(away, time.monotonic() - began)) from away

    def link_for(self, stream: str) -> NodeConnection:
        """A link to the node that holds the stream, by the cached topology. Raises Away."""
        return self._link(self.node_of(stream))

    def node_of(self, stream: str) -> Node:
        """The node that serves the stream. Raises Away."""
        if self._settings.topology == "cluster":
            slot = key_slot(stream)
            nodes = self._slot_map().nodes_of(slot)
            if not nodes:
                raise Away(f"no node of the cluster holds slot {slot} now")
            return nodes[-1] if self._from_replica else nodes[0]
        if self._settings.topology == "sentinel":
            self._chosen = self._chosen or sentinel_address(
                self._sentinels, self._settings, replica=self._from_replica
            )
            return self._chosen
        return Node(self._settings.host, self._settings.port)

    def masters(self) -> Iterator[NodeConnection]:
        """A link to each master, to scan for streams. Raises Away."""
        if self._settings.topology != "cluster":
            yield self.link_for("")
            return
        for node in self._slot_map().masters():
            yield self._link(node)

    def forget(self) -> None:
        """Close all links, and determine the topology again at the next command."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._slots = None
        self._chosen = None

    def __enter__(self) -> ServerConnections:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()

    def _link(self, address: Node) -> NodeConnection:
        link = self._links.get(address)
        if link is None:
            link = NodeConnection(address, self._settings)
            if self._from_replica and self._settings.topology == "cluster":
                link.execute("READONLY")
            if self._settings.topology == "sentinel" and not self._from_replica:
                _require_master(link)
            self._links[address] = link
        return link

    def _slot_map(self) -> SlotMap:
        if self._slots is None:
            self._slots = read_slots(self._settings, self._known)
            self._known = list(self._slots.masters())
        return self._slots

    def _wait_s(self, attempt: int) -> float:
        longest = min(LONGEST_WAIT_S, self._settings.retry_interval_s * 2**attempt)
        # Jitter: tasks that lost the same server must not reconnect at the same moment.
        return float(longest * random.uniform(0.5, 1.0))

    def _explain_failure(self, away: Away, took_s: float) -> str:
        times = self._settings.retries + 1
        return (
            f"{away}; tried {times} times in {took_s:.1f} s. Is the server up and reachable from"
            " here? Options: 'url' or 'host' and 'port', 'tls', 'numRetries', 'retryIntervalMs'"
        )


def _require_master(link: NodeConnection) -> None:
    try:
        info = link.execute("INFO", "replication")
    except NotPermitted:
        return  # the role cannot be read
    if is_replica(info):
        link.close()
        raise Away(f"the server at {link.node} that Sentinel names is not the master yet")


def read_slots(settings: ServerSettings, known: Sequence[Node]) -> SlotMap:
    """The slot map, from the node that the options name or from one known before.

    Raises Away or ServerError, that of the last node, when none of them answers.
    """
    seeds = [Node(settings.host, settings.port), *known]
    until = time.monotonic() + LONGEST_SEARCH_S
    for position, seed in enumerate(seeds):
        try:
            return _slots_reported_by(seed, settings)
        except (Away, ServerError):
            if position == len(seeds) - 1 or time.monotonic() > until:
                raise
    raise AssertionError("there is always the node that the options name")


def _slots_reported_by(seed: Node, settings: ServerSettings) -> SlotMap:
    link = NodeConnection(seed, settings)
    try:
        return SlotMap.parse(link.execute(*SLOT_MAP), seed)
    except RedisUnavailable as error:
        raise Away(str(error)) from error
    except InvalidReply as error:
        raise ServerError(str(error)) from error
    finally:
        link.close()


def sentinel_address(answers: SentinelAnswers, settings: ServerSettings, *, replica: bool) -> Node:
    """The address of the master, or of a replica that is up; the master if there is none.

    Raises Away when no Sentinel answers, OptionError when none monitors a master of this name.
    """
    problems: list[tuple[Node, Exception]] = []
    until = time.monotonic() + LONGEST_SEARCH_S
    for node in answers.order:
        link = NodeConnection(node, settings, is_sentinel=True)
        try:
            return _query_sentinel(link, answers, replica=replica)
        except (Away, ServerError, RedisUnavailable, InvalidReply) as error:
            problems.append((node, error))
        finally:
            link.close()
        if time.monotonic() > until:
            break
    if all(isinstance(error, MasterUnknown) for _, error in problems):
        raise OptionError(
            f"option 'sentinelMaster' is '{settings.sentinel_master}', a name that no Sentinel of"
            " option 'sentinels' watches"
        )
    raise Away(str(answers.failure(problems)))


def _query_sentinel(link: NodeConnection, answers: SentinelAnswers, *, replica: bool) -> Node:
    address = link.execute(*answers.master_command)
    try:
        others = link.execute(*answers.others_command)
    except ServerError:
        others = None  # only the Sentinels of the options are known then
    master = answers.master(link.node, address, others)
    if not replica:
        return master
    return next(iter(usable_replicas(link.execute(*answers.replicas_command))), master)
