"""What kind of server an endpoint leads to: asked, not configured."""

from __future__ import annotations

from typing import Final

from redis import exceptions

from pelops.domain.endpoint import Node, RedisEndpoint
from pelops.errors import InvalidSpec
from pelops.redis_core.cluster import ASK_SLOTS, ClusterRouter, Router, SingleRouter
from pelops.redis_core.errors import translate_reply
from pelops.redis_core.sentinel import MasterFinder
from pelops.redis_core.server import Flavour, Server, ServerKind, Topology
from pelops.redis_core.tls import build_ssl_context
from pelops.redis_core.transport import Command, Locate, Login, NodeChannel, Reply

_INFO: Final = Command(parts=("INFO",))


async def connect_server(endpoint: RedisEndpoint) -> Server:
    """A server that answered, with its topology, flavour and version.

    An endpoint whose CLUSTER commands are absent or forbidden is used as it is: a proxy knows the
    way. Raises what the adapter's calls raise, and InvalidSpec for what the resource must change.
    """
    login = Login.of(endpoint, build_ssl_context(endpoint))
    channel = NodeChannel(_locator(endpoint, login), login)
    try:
        info, slots = await channel.exchange([_INFO, ASK_SLOTS])
        kind = _judge(endpoint, _parse_info(info), slots)
    except BaseException:
        await channel.close()
        raise
    if kind.topology != Topology.CLUSTER:
        return Server(endpoint, kind, SingleRouter(channel))
    await channel.close()
    return Server(endpoint, kind, _cluster_router(endpoint.node, login))


def _locator(endpoint: RedisEndpoint, login: Login) -> Locate:
    if endpoint.sentinel is not None:
        return MasterFinder(endpoint, endpoint.sentinel, login)
    return _fixed(endpoint.node)


def _fixed(node: Node) -> Locate:
    async def locate() -> Node:
        return node

    return locate


def _cluster_router(seed: Node, login: Login) -> Router:
    return ClusterRouter(seed, lambda node: NodeChannel(_fixed(node), login))


def _judge(endpoint: RedisEndpoint, info: dict[str, str], slots: Reply) -> ServerKind:
    if info.get("redis_mode") == "sentinel":
        raise InvalidSpec(
            "the Redis URL names a Sentinel; put its address into spec.redis.sentinel.nodes"
        )
    valkey, redis = info.get("valkey_version"), info.get("redis_version")
    flavour = Flavour.VALKEY if valkey else Flavour.REDIS if redis else Flavour.UNKNOWN
    return ServerKind(
        topology=_judge_topology(endpoint, slots),
        flavour=flavour,
        version=_parse_version(valkey or redis),
        evicts_any_key=info.get("maxmemory_policy", "").startswith("allkeys-"),
    )


def _judge_topology(endpoint: RedisEndpoint, slots: Reply) -> Topology:
    if endpoint.sentinel is not None:
        return Topology.SENTINEL
    if isinstance(slots, exceptions.ClusterDownError):
        raise translate_reply(slots, command="CLUSTER SLOTS", key=None, writes=False)
    # An empty list: a proxy, or a cluster node that has met nobody yet.
    return Topology.CLUSTER if isinstance(slots, list) and slots else Topology.STANDALONE


def _parse_info(info: Reply) -> dict[str, str]:
    if not isinstance(info, bytes):
        return {}  # forbidden, or unknown to a proxy: nothing depends on it
    lines = info.decode("utf-8", "replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


def _parse_version(text: str | None) -> tuple[int, int, int] | None:
    numbers = (text or "").split(".")[:3]
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1]), int(numbers[2])
