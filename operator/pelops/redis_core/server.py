"""One Redis of any topology: run scripts, or execute single commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, Protocol, Self

from redis import exceptions

from pelops.domain.endpoint import RedisEndpoint
from pelops.errors import OutcomeUnknown, PelopsError, PermissionDenied, RedisUnavailable
from pelops.redis_core.cluster import Router
from pelops.redis_core.commands import Need, Part
from pelops.redis_core.errors import permission_denied, translate_reply
from pelops.redis_core.transport import Command, Reply

_COMMANDS_PER_EXCHANGE: Final = 100
# Called for each call of a script with its name, its outcome (ok, refused, unavailable or unknown),
# and its duration in seconds.
OnScript = Callable[[str, str, float], None]


class RunnableScript(Protocol):
    """One call of a Lua script. All its keys are in one slot; the first decides the node."""

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> tuple[Part, ...]: ...

    def by_sha(self) -> Command:
        """The command that runs the cached script."""

    def by_text(self) -> Command:
        """The command that sends the text, which the server then caches."""

    def dry(self) -> Self:
        """The same call as a dry run, which writes nothing."""

    def needs(self) -> list[Need]:
        """The rights without which the script cannot run."""

    def find_denied(self) -> Command:
        """A command that returns the position of the first denied one of `needs`, from 1; or 0."""


class Topology(StrEnum):
    """How the endpoint's servers are arranged."""

    STANDALONE = "standalone"  # also a proxy, whatever is behind it
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Flavour(StrEnum):
    """The server product."""

    REDIS = "redis"
    VALKEY = "valkey"
    UNKNOWN = "unknown"  # INFO is forbidden, or names no version


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKind:
    """The properties of a server, as detected at connection."""

    topology: Topology
    flavour: Flavour = Flavour.UNKNOWN
    version: tuple[int, int, int] | None = None  # in the product's own numbering
    evicts_any_key: bool = False  # maxmemory-policy allkeys-*: dead letters can vanish

    def __str__(self) -> str:
        version = ".".join(map(str, self.version)) if self.version else "of unknown version"
        return f"{self.flavour} {version} ({self.topology})"


class Server:
    """A connected Redis. Made by `ServerPool.server`; safe to share among tasks.

    Only commands that a node refused with NOSCRIPT, MOVED or ASK are sent again automatically.
    """

    def __init__(
        self,
        endpoint: RedisEndpoint,
        kind: ServerKind,
        router: Router,
        on_script: OnScript | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.kind = kind
        self._on_script = on_script
        self.is_misjudged = False  # the topology has changed and must be detected again
        self._router = router

    @property
    def is_dry(self) -> bool:
        """Whether it is for dry runs: nothing is ever written through it."""
        return False

    @cached_property
    def dry(self) -> Server:
        """The same server for dry runs, in which scripts decide and answer but write nothing."""
        return self if self.is_dry else DryServer(self)

    @property
    def address(self) -> str:
        """The server's address, without credentials."""
        return self.endpoint.address

    async def execute(self, *parts: Part, key: str | None = None, writes: bool = False) -> Reply:
        """The reply to one command in RESP2 types; raises what errors.py translates to."""
        command = Command(parts=parts, key=key, writes=writes)
        return _raise_error((await self.execute_many([command]))[0])

    async def execute_many(self, commands: Sequence[Command]) -> list[Reply | PelopsError]:
        """The replies to many commands in one round trip, an error in place of a reply."""
        replies = await self._exchange_whole(commands)
        return [
            _translate(reply, command.name, command)
            for reply, command in zip(replies, commands, strict=True)
        ]

    async def run(self, call: RunnableScript) -> Reply:
        """The reply of one script; raises as `execute`."""
        return _raise_error((await self.run_many([call]))[0])

    async def run_many(self, calls: Sequence[RunnableScript]) -> list[Reply | PelopsError]:
        """The replies of many scripts in a few round trips, an error in place of a reply."""
        answers: list[Reply | PelopsError] = []
        for start in range(0, len(calls), _COMMANDS_PER_EXCHANGE):
            chunk = calls[start : start + _COMMANDS_PER_EXCHANGE]
            began = time.monotonic()
            replies = await self._run_chunk(chunk)
            if self._on_script is not None:
                seconds = (time.monotonic() - began) / len(chunk)
                for call, reply in zip(chunk, replies, strict=True):
                    self._on_script(call.name, _name_outcome(reply), seconds)
            answers += replies
        return answers

    async def close(self) -> None:
        """End every connection; commands in flight end with an unknown outcome."""
        await self._router.close()

    async def _run_chunk(self, calls: Sequence[RunnableScript]) -> list[Reply | PelopsError]:
        commands = [call.by_sha() for call in calls]
        replies = await self._exchange_whole(commands)
        unknown = [
            index
            for index, reply in enumerate(replies)
            if isinstance(reply, exceptions.NoScriptError)
        ]
        if unknown:
            again = await self._exchange_whole([calls[index].by_text() for index in unknown])
            for index, reply in zip(unknown, again, strict=True):
                replies[index] = reply
        answers = [
            _translate(reply, calls[index].name, commands[index])
            for index, reply in enumerate(replies)
        ]
        return [
            await self._name_denied(answer, call)
            for answer, call in zip(answers, calls, strict=True)
        ]

    async def _name_denied(
        self, answer: Reply | PelopsError, call: RunnableScript
    ) -> Reply | PelopsError:
        if not isinstance(answer, PermissionDenied) or answer.command is not None:
            return answer
        needs = call.needs()
        place = (await self._exchange_whole([call.find_denied()]))[0]
        if not isinstance(place, int) or not 0 < place <= len(needs):
            return answer
        need = needs[place - 1]
        named = permission_denied(need.command, need.named_key)
        named.__cause__ = answer.__cause__
        return named

    async def _exchange_whole(self, commands: Sequence[Command]) -> list[Reply | PelopsError]:
        try:
            replies = await self._router.exchange(commands)
        except PelopsError as error:
            return [error] * len(commands)
        if any(isinstance(reply, exceptions.MovedError) for reply in replies):
            self.is_misjudged = True
        return replies


class DryServer(Server):
    """A server through which nothing is written: each script runs as its dry run.

    Only here a dry run differs from a real one; callers decide as usual.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server.endpoint, server.kind, server._router)
        self._server = server

    @property
    def is_dry(self) -> bool:
        return True

    async def execute_many(self, commands: Sequence[Command]) -> list[Reply | PelopsError]:
        """As `Server.execute_many`; raises ValueError for a command that writes."""
        if any(command.writes for command in commands):
            raise ValueError("a dry run writes nothing")
        return await self._server.execute_many(commands)

    async def run_many(self, calls: Sequence[RunnableScript]) -> list[Reply | PelopsError]:
        return await self._server.run_many([call.dry() for call in calls])

    async def close(self) -> None:
        await self._server.close()


def _name_outcome(answer: Reply | PelopsError) -> str:
    if isinstance(answer, OutcomeUnknown):
        return "unknown"
    if isinstance(answer, RedisUnavailable):
        return "unavailable"
    return "refused" if isinstance(answer, PelopsError) else "ok"


def _translate(reply: Reply, name: str, command: Command) -> Reply | PelopsError:
    if not isinstance(reply, Exception) or isinstance(reply, PelopsError):
        return reply
    error = translate_reply(reply, command=name, key=command.key, writes=command.writes)
    error.__cause__ = reply
    return error


def _raise_error(reply: Reply | PelopsError) -> Reply:
    if isinstance(reply, PelopsError):
        try:
            raise reply
        finally:
            del reply  # its traceback refers to this frame, which would be a reference cycle
    return reply
