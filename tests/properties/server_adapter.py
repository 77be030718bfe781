"""The operator's adapter to one server, for rules and examples, which are not coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from local_cluster.redis_servers import RedisServers
from pelops.redis_core.commands import Part
from pelops.redis_core.server import Server
from tests.integration.redis_adapter import connected, endpoint_of

Answer = TypeVar("Answer")


class ServerAdapter:
    """A connection, and a loop that waits for its answers."""

    def __init__(self, server: Server, runner: asyncio.Runner) -> None:
        self.server = server
        self._runner = runner

    def wait(self, answer: Coroutine[Any, Any, Answer]) -> Answer:
        """The answer of a coroutine."""
        return self._runner.run(answer)

    def ask(self, *words: Part) -> Any:
        """The reply to a command."""
        return self.wait(self.server.execute(*words))


@contextmanager
def adapter_to(servers: RedisServers) -> Iterator[ServerAdapter]:
    """An adapter to these servers, disconnected at the end."""
    with asyncio.Runner() as runner:
        connection = connected(endpoint_of(servers))
        server = runner.run(connection.__aenter__())
        try:
            yield ServerAdapter(server, runner)
        finally:
            runner.run(connection.__aexit__(None, None, None))
