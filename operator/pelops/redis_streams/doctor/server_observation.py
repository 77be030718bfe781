"""Facts about a Redis server, its nodes and the rights of its user, for `pelops doctor`.

Each fact is read separately. A fact that cannot be read is `Unanswered`, with the error's message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from pelops.clock import from_time
from pelops.domain.endpoint import Node, RedisEndpoint
from pelops.domain.naming import GroupKeys
from pelops.domain.stream_observation import ConsumerObservation
from pelops.errors import NoSuchStream, PelopsError, RedisUnavailable
from pelops.policy.doctor.check import Fact, Unanswered
from pelops.policy.doctor.facts import (
    DeniedCommand,
    GroupFacts,
    RedisNodeFacts,
    ResourceFacts,
    ServerFacts,
    ServerKindFacts,
)
from pelops.redis_core.commands import text_of
from pelops.redis_core.masters import Masters
from pelops.redis_core.pool import connect_server, parse_info
from pelops.redis_core.replies.shapes import reading
from pelops.redis_core.server import Server, Topology
from pelops.redis_core.transport import Command
from pelops.redis_streams.access import Feature, UserRole, role_needs
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.recovery.consumers import LISTABLE, list_consumers
from pelops.scripts.calls import find_denied

T = TypeVar("T")

CONNECT_S: Final = 10.0
ANSWER_S: Final = 30.0  # for all commands of one fact
SAMPLES: Final = 3  # of the clock; the one with the shortest round trip counts
MOST_GROUPS: Final = 1_000  # names that are kept
_INFO: Final = Command(parts=("INFO",))
_SETTINGS: Final = ("save", "min-replicas-to-write", "client-output-buffer-limit")
_CONFIG: Final = tuple(Command(parts=("CONFIG", "GET", name)) for name in _SETTINGS)
_TYPES: Final = frozenset({"string", "list", "set", "zset", "hash", "stream"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerClock:
    """A reading of the clock of Redis."""

    redis: datetime
    ahead: timedelta  # clock of Redis minus clock of this process
    uncertainty: timedelta


async def answer(reading_it: Awaitable[T]) -> Fact[T]:
    """The fact, or why it could not be observed."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await reading_it
    except TimeoutError:
        return Unanswered(f"Redis did not answer within {ANSWER_S:g} s")
    except PelopsError as error:
        return Unanswered(str(error))


async def connect(endpoint: RedisEndpoint) -> Fact[Server]:
    """A connected server, or why there is none."""
    try:
        async with asyncio.timeout(CONNECT_S):
            return await connect_server(endpoint)
    except TimeoutError:
        return Unanswered(f"Redis at {endpoint.address} did not answer within {CONNECT_S:g} s")
    except PelopsError as error:
        return Unanswered(str(error))


def kind_of(server: Server) -> ServerKindFacts:
    """The kind of the connected server."""
    kind = server.kind
    return ServerKindFacts(
        flavour=kind.flavour.value, version=kind.version, topology=kind.topology.value
    )


async def observe_server(
    server: Fact[Server], keys: GroupKeys | None, features: Collection[Feature]
) -> ServerFacts:
    """Facts about the server; `keys` is None if no group was named."""
    if isinstance(server, Unanswered):
        denied = None if keys is None else server
        return ServerFacts(kind=server, nodes=server, denied=denied)
    stream = None if keys is None else keys.stream
    return ServerFacts(
        kind=kind_of(server),
        nodes=await answer(_observe_nodes(server, stream)),
        denied=None if keys is None else await answer(list_denied(server, keys, features)),
        acl_command="" if keys is None else _acl_command(keys, features),
    )


async def _observe_nodes(server: Server, stream: str | None) -> tuple[RedisNodeFacts, ...]:
    masters = Masters(server)
    nodes = await masters.find() if stream is None else {await masters.locate(stream)}
    return tuple([await _observe_node(masters, node) for node in sorted(nodes)])


async def _observe_node(masters: Masters, node: Node) -> RedisNodeFacts:
    channel = masters.channel(node)
    try:
        replies = await channel.exchange([_INFO])
        info = parse_info(replies[0])
        config = await channel.exchange(_CONFIG)
    except PelopsError as error:
        failed = Unanswered(str(error))
        return RedisNodeFacts(address=str(node), info=failed, config=failed)
    finally:
        await channel.close()
    return RedisNodeFacts(
        address=str(node),
        info=info if info else Unanswered("INFO is refused to this user"),
        config=_read_config(config),
    )


def _read_config(replies: list[object]) -> Fact[Mapping[str, str]]:
    found: dict[str, str] = {}
    for name, reply in zip(_SETTINGS, replies, strict=True):
        if isinstance(reply, list) and len(reply) == 2 and isinstance(reply[1], bytes):
            found[name] = reply[1].decode("utf-8", "replace")
    return found or Unanswered("CONFIG GET is refused to this user")


async def list_denied(
    server: Server, keys: GroupKeys, features: Collection[Feature]
) -> tuple[DeniedCommand, ...]:
    """Every command that the operator needs and the ACL forbids to this user. Runs none of them.

    A script does the check, like ACL DRYRUN, because a script needs no right beyond EVAL.
    """
    wanted = set(features)
    if server.kind.topology == Topology.CLUSTER:
        wanted.add(Feature.CLUSTER)
    needs = role_needs(UserRole.OPERATOR, keys, wanted)
    denied: list[DeniedCommand] = []
    while needs:
        question = find_denied(needs, near=keys.stream)
        place = (await server.execute_many([question]))[0]
        if isinstance(place, PelopsError):
            raise place
        with reading("find_denied.lua"):
            at = int(place)
            if not 0 <= at <= len(needs):
                raise ValueError("no place")
        if at == 0:
            break
        need = needs[at - 1]
        denied.append(DeniedCommand(command=need.command, key=need.named_key))
        needs = needs[at:]
    return tuple(denied)


def _acl_command(keys: GroupKeys, features: Collection[Feature]) -> str:
    names = "".join(f" --feature {one.value}" for one in sorted(features))
    return f"pelops acl --stream {keys.stream} --group {keys.group}{names}"


async def observe_group_facts(
    server: Fact[Server], keys: GroupKeys, resource: ResourceFacts | None
) -> GroupFacts:
    """Facts about the keys of one group."""
    if isinstance(server, Unanswered):
        return GroupFacts(
            keys=keys,
            topology=server,
            types=server,
            stream=server,
            groups=server,
            resource=resource,
        )
    return GroupFacts(
        keys=keys,
        topology=server.kind.topology.value,
        types=await answer(_read_types(server, keys)),
        stream=await answer(observe_group(server, keys)),
        groups=await answer(_list_groups(server, keys)),
        resource=resource,
    )


async def _read_types(server: Server, keys: GroupKeys) -> dict[str, str]:
    names = list(dict.fromkeys(keys.by_name().values()))
    replies = await server.execute_many([Command(parts=("TYPE", one), key=one) for one in names])
    types = {}
    for name, reply in zip(names, replies, strict=True):
        if isinstance(reply, PelopsError):
            raise reply
        shown = text_of(reply)
        if shown != "none":
            types[name] = shown if shown in _TYPES else "key of another type"
    return types


async def _list_groups(server: Server, keys: GroupKeys) -> tuple[str, ...]:
    return tuple(await _count_consumers(server, keys))


async def _count_consumers(server: Server, keys: GroupKeys) -> dict[str, int]:
    """The number of consumers of each group of the stream, by group name."""
    try:
        reply = await server.execute("XINFO", "GROUPS", keys.stream, key=keys.stream)
    except NoSuchStream:
        return {}
    with reading("XINFO GROUPS"):
        rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in reply[:MOST_GROUPS]]
        return {row[b"name"].decode("utf-8", "surrogateescape"): row[b"consumers"] for row in rows}


async def observe_consumers(server: Server, keys: GroupKeys) -> tuple[ConsumerObservation, ...]:
    """The consumers of the group. Raises RedisError, also if there are too many to list."""
    count = (await _count_consumers(server, keys)).get(keys.group, 0)
    if count > LISTABLE:
        raise RedisUnavailable(f"the group has more than {LISTABLE} consumers")
    consumers = await list_consumers(server, keys.stream, keys.group) if count else []
    return tuple(
        ConsumerObservation(name=one.name, pending=one.pending, idle=one.idle) for one in consumers
    )


async def read_clock(server: Server) -> ServerClock:
    """The clock of Redis compared with that of this process. Raises RedisError."""
    samples = [await _sample_clock(server) for _ in range(SAMPLES)]
    return min(samples, key=lambda one: one.uncertainty)


async def _sample_clock(server: Server) -> ServerClock:
    began = time.time()
    reply = await server.execute("TIME")
    ended = time.time()
    with reading("TIME"):
        seconds, microseconds = (int(part) for part in reply)
        redis = from_time(seconds, microseconds)
    middle = datetime.fromtimestamp((began + ended) / 2, UTC)
    return ServerClock(
        redis=redis,
        ahead=redis - middle,
        uncertainty=timedelta(seconds=max(0.0, ended - began) / 2),
    )


async def close(server: Fact[Server]) -> None:
    """End the connections, if there are any."""
    if not isinstance(server, Unanswered):
        with suppress(PelopsError):
            await server.close()
