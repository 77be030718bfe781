"""Commands to the node that holds the group's hash slot, which contains all its keys.

Redirects are followed, and scripts are loaded where they are missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Final

from redis import exceptions
from redis.exceptions import ClusterDownError

from pelops.domain.endpoint import Node, RedisEndpoint
from pelops.errors import (
    AuthenticationFailed,
    InvalidReply,
    NoSuchGroup,
    OutOfMemory,
    PelopsError,
    RedisUnavailable,
)
from pelops.redis_core.errors import translate_reply
from pelops.redis_core.hash_slots import SLOT_MAP, Redirect, SlotMap, key_slot, redirect_of
from pelops.redis_core.sentinel import MasterFinder
from pelops.redis_core.tls import build_ssl_context
from pelops.redis_core.transport import ANSWER_TIMEOUT_S, Command, Locate, Login, NodeChannel, Reply
from pelops.worker.server.refusals import VALID_S, Refusals, is_vague
from pelops.worker.server.script_commands import Parts, with_text
from pelops.worker.server.streamed_connection import Link

_ASK_SLOTS: Final = Command(parts=SLOT_MAP)


class Whereabouts:
    """Locates the master of a hash slot for each new connection, and follows MOVED."""

    def __init__(self, endpoint: RedisEndpoint, slot: int, login: Login) -> None:
        self._seed = endpoint.node
        self._slot = slot
        self._login = login
        self._finder = (
            MasterFinder(endpoint, endpoint.sentinel, login) if endpoint.sentinel else None
        )
        self._members: list[Node] = []  # of a cluster; the one that answered last comes first
        self._is_alone = False  # CLUSTER SLOTS gave no nodes: rely on MOVED
        self._reported: Node | None = None

    async def __call__(self) -> Node:
        """The node to connect to. Raises RedisUnavailable when no known node answers."""
        if self._finder is not None:
            return await self._finder()
        if self._reported is not None:
            node, self._reported = (
                self._reported,
                None,
            )  # used once: if it is wrong, the members are asked
            return node
        return self._seed if self._is_alone else await self._locate_in_cluster()

    def follow(self, redirect: Redirect) -> None:
        """Use the node that MOVED names for the next connection."""
        self._reported = redirect.node

    def aside(self, redirect: Redirect) -> Locate:
        """Locate the node that ASK names. Other commands keep going to the master."""
        return _at(redirect.node)

    async def _locate_in_cluster(self) -> Node:
        problems: list[str] = []
        # The seed comes last: behind a Service it may resolve to a node that no longer exists. The
        # connection timeout covers the whole lookup.
        for node in (*self._members, self._seed):
            try:
                owner = self._learn(node, await self._slots_of(node))
            except PelopsError as error:
                if isinstance(error, AuthenticationFailed) or not self._members:
                    raise  # other members have the same users, or none are known
                problems.append(f"{node}: {error}")
                continue
            return owner or node
        raise RedisUnavailable(f"no node of the cluster answers: {'; '.join(problems)}")

    async def _slots_of(self, node: Node) -> Reply:
        channel = NodeChannel(_at(node), self._login, connections=1)
        try:
            return (await channel.exchange([_ASK_SLOTS]))[0]
        finally:
            await channel.close()

    def _learn(self, answered: Node, slots: Reply) -> Node | None:
        if not isinstance(slots, list) or not slots:
            self._is_alone = not self._members and not isinstance(slots, ClusterDownError)
            return None
        found = SlotMap.parse(slots, answered)
        self._members = list(dict.fromkeys((answered, *found.members())))
        return found.master_of(self._slot)


def _at(node: Node) -> Locate:
    async def locate() -> Node:
        return node

    return locate


_REDIRECTS: Final = 5
_ASKING: Final[Parts] = ("ASKING",)


class Wire:
    """Sends commands to the master of the group's slot.

    It repeats only commands that were refused with NOSCRIPT, MOVED or ASK: these were not executed.
    """

    def __init__(
        self, whereabouts: Whereabouts, login: Login, patience_s: float, refusals: Refusals
    ) -> None:
        self._whereabouts = whereabouts
        self._login = login
        self._patience_s = patience_s
        self._link = Link(whereabouts, login, patience_s)
        self._refusals = refusals
        self._probed: list[Reply] = []  # replies of the probes
        self._probed_s = -math.inf

    @property
    def connections(self) -> int:
        """Number of connections made. When it grows, replies may have been lost."""
        return self._link.connections

    async def connect(self) -> None:
        """Connect now; raises as `Link.exchange`."""
        await self._link.pause()
        await self._link.connect()

    async def close(self) -> None:
        """Close the connection."""
        await self._link.drop()

    async def send(self, commands: Sequence[Parts], *, wait_s: float = 0.0) -> list[Reply]:
        """The replies, with an error for each refused command; raises as `Link.exchange`."""
        await self._link.pause()
        replies = await self._link.exchange(commands, wait_s=wait_s)
        for reply in replies:
            if isinstance(reply, Exception):
                return await self._repair_or_drop(commands, replies, wait_s)
        self._link.served()
        return replies

    def reset_backoff(self) -> None:
        """Skip the backoff after a refusal that was expected."""
        self._link.served()

    async def send_one(self, command: Parts) -> Reply:
        """The reply to one command; raises the error if it was refused."""
        reply = (await self.send([command]))[0]
        if isinstance(reply, PelopsError):
            raise reply
        return reply

    async def _repair_or_drop(
        self, commands: Sequence[Parts], replies: list[Reply], wait_s: float
    ) -> list[Reply]:
        try:
            return await self._repair(commands, replies, wait_s)
        except BaseException:
            await self._link.drop()  # replies are lost: the new connection raises the epoch
            raise

    async def _repair(
        self, commands: Sequence[Parts], replies: list[Reply], wait_s: float
    ) -> list[Reply]:
        sent = list(commands)
        for _ in range(_REDIRECTS):
            refusal = next((reply for reply in replies if _is_elsewhere(reply)), None)
            if refusal is None:
                break
            again = [at for at, reply in enumerate(replies) if type(reply) is type(refusal)]
            if isinstance(refusal, exceptions.NoScriptError):
                for at in again:
                    sent[at] = with_text(commands[at])
            answers = await self._again([sent[at] for at in again], refusal, wait_s)
            for at, reply in zip(again, answers, strict=True):
                replies[at] = reply
        return await self._translate(commands, replies)

    async def _again(self, commands: list[Parts], refusal: Reply, wait_s: float) -> list[Reply]:
        try:
            redirect = redirect_of(refusal, self._link.node)
            if redirect is not None and redirect.is_lasting:
                self._whereabouts.follow(redirect)
                await self._link.drop()
            elif redirect is not None:
                return await self._send_to_target(commands, redirect, wait_s)
            return await self._link.exchange(commands, wait_s=wait_s)
        except PelopsError as error:
            return [error] * len(commands)  # the replies to the other commands are valid

    async def _send_to_target(
        self, commands: list[Parts], redirect: Redirect, wait_s: float
    ) -> list[Reply]:
        """Send these commands to the node that the slot is migrating to."""
        link = Link(self._whereabouts.aside(redirect), self._login, self._patience_s)
        try:
            sent = [each for command in commands for each in (_ASKING, command)]
            return (await link.exchange(sent, wait_s=wait_s))[1::2]
        finally:
            await link.drop()

    async def _translate(self, commands: Sequence[Parts], replies: list[Reply]) -> list[Reply]:
        translated = [
            _translated(reply, command) for reply, command in zip(replies, commands, strict=True)
        ]
        if any(map(is_vague, translated)):
            translated = await self._explained(translated, commands)
        if any(isinstance(reply, exceptions.ReadOnlyError) for reply in replies):
            # After a failover the node is a replica: locate the new master for the next command.
            await self._link.drop()
        if any(map(_needs_backoff, translated)):
            self._link.refused()
        else:
            self._link.served()
        return translated

    async def _explained(self, translated: list[Reply], commands: Sequence[Parts]) -> list[Reply]:
        """The same replies, with the key and command added to each refusal."""
        now_s = time.monotonic()
        if now_s - self._probed_s > VALID_S:
            self._probed_s = now_s
            try:
                probes = self._refusals.probes
                self._probed = await self._link.exchange(probes) if probes else []
            except PelopsError:
                self._probed = []  # the connection ended; the replies remain valid
        return [
            _explained_one(self._refusals.explain(reply, command, self._probed), reply)
            if is_vague(reply)
            else reply
            for reply, command in zip(translated, commands, strict=True)
        ]


def wire_to(endpoint: RedisEndpoint, key: str, *, patience_s: float = ANSWER_TIMEOUT_S) -> Wire:
    """A producer's wire to the master of this key; raises InvalidSpec as `build_ssl_context`."""
    login = Login.of(endpoint, build_ssl_context(endpoint))
    whereabouts = Whereabouts(endpoint, key_slot(key), login)
    return Wire(whereabouts, login, patience_s, Refusals.of_producer(key))


def _is_elsewhere(reply: Reply) -> bool:
    return isinstance(
        reply, (exceptions.NoScriptError, exceptions.AskError)
    )  # MOVED is an AskError


def _needs_backoff(reply: Reply) -> bool:
    """Whether a refused command must be repeated after a backoff."""
    # After OutOfMemory there is none: acknowledgements were executed and free memory.
    asks = isinstance(reply, (RedisUnavailable, NoSuchGroup, InvalidReply))
    return asks and not isinstance(reply, OutOfMemory)


def _explained_one(error: PelopsError, former: PelopsError) -> PelopsError:
    error.__cause__ = former.__cause__
    return error


def _translated(reply: Reply, command: Parts) -> Reply:
    if not isinstance(reply, Exception) or isinstance(reply, PelopsError):
        return reply
    name = str(command[0])
    # Only a script can fail with an unknown error after it has written.
    error = translate_reply(reply, command=name, key=None, writes=name.startswith("EVAL"))
    error.__cause__ = reply
    return error
