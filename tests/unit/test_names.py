"""Lookups of names: a silent name server delays only the namespace that asks for it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from pelops.controller.runtime import names
from pelops.controller.runtime.names import LOOKUPS_PER_TENANT, ReplicaEventLoop
from pelops.redis_core.sockets import TENANT

T = TypeVar("T")
ANSWER = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 6379))]


class NameServer:
    """Answers for names that end with .alive, and for others once `silent` is set."""

    def __init__(self) -> None:
        self.silent = threading.Event()
        self.threads = 0

    def lookup(self, host: str, *_: Any) -> list[tuple[Any, ...]]:
        self.threads += 1
        if host.endswith(".alive"):
            return ANSWER
        if host.endswith(".unknown"):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        self.silent.wait(20)
        return ANSWER


@pytest.fixture
def server() -> NameServer:
    return NameServer()


def run(server: NameServer, main: Coroutine[Any, Any, T]) -> T:
    def make() -> ReplicaEventLoop:
        loop = ReplicaEventLoop()
        loop.lookup = server.lookup
        return loop

    try:
        with asyncio.Runner(loop_factory=make) as runner:
            return runner.run(main)
    finally:
        server.silent.set()


async def look(namespace: str, host: str) -> list[Any]:
    TENANT.set(namespace)
    return await asyncio.get_running_loop().getaddrinfo(host, 6379)


def look_for(namespace: str, host: str) -> asyncio.Task[list[Any]]:
    return asyncio.create_task(look(namespace, host))


def test_names_of_a_silent_server_delay_no_other_namespace(server: NameServer) -> None:
    async def scenario() -> None:
        stuck = [look_for("hostile", f"{number}.silent") for number in range(100)]
        await asyncio.sleep(0.1)
        assert server.threads == LOOKUPS_PER_TENANT
        assert await look_for("shop", "redis.alive") == ANSWER
        assert await look_for("", "kubernetes.alive") == ANSWER
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)

    run(server, scenario())


def test_a_lookup_that_takes_too_long_fails(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "LOOKUP_S", 0.2)

    async def scenario() -> None:
        with pytest.raises(
            socket.gaierror, match=r"redis\.silent could not be resolved within 0\.2 s"
        ):
            await look("shop", "redis.silent")

    run(server, scenario())


def test_an_abandoned_lookup_thread_counts_until_it_ends(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "LOOKUP_S", 0.2)

    async def scenario() -> None:
        for _ in range(3):
            stuck = [look_for("hostile", "redis.silent") for _ in range(LOOKUPS_PER_TENANT)]
            await asyncio.wait(stuck)
            for task in stuck:
                assert isinstance(task.exception(), socket.gaierror)
        assert server.threads == LOOKUPS_PER_TENANT
        server.silent.set()
        monkeypatch.setattr(names, "LOOKUP_S", 5.0)
        assert await look_for("hostile", "redis.alive") == ANSWER

    run(server, scenario())


def test_an_unknown_name_raises_the_error_of_the_standard_library(server: NameServer) -> None:
    async def scenario() -> None:
        with pytest.raises(socket.gaierror, match="unknown"):
            await look("shop", "redis.unknown")

    run(server, scenario())
