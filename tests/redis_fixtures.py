"""Real servers for tests, started when the first test asks and shared until the session ends.

A test that shares one either keeps to `key_prefix` or takes an `empty_` fixture, which also
starts again what an earlier test has ended. A test that needs options of its own, or breaks
things beyond repair, starts its own servers with `run_redis`.
"""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from local_cluster.redis_servers import (
    ClusterServers,
    RedisServers,
    SentinelServers,
    ServerOptions,
    StandaloneServers,
    start_cluster,
    start_sentinel,
    start_servers,
    start_standalone,
)
from pelops.redis_core import transport

PLAIN = ServerOptions()
NEWEST = "8.6"
OLDEST = "7.0"
VALKEY = pytest.param("valkey", marks=pytest.mark.full)
# For scripts and adapters, which work with each version; `make test` leaves out what is between
# the newest and the oldest in what it can do.
ALL_VERSIONS = [NEWEST, OLDEST, VALKEY]
# For what does not depend on the server's version: `make test` takes the newest alone.
NEWEST_UNLESS_FULL = [NEWEST, pytest.param(OLDEST, marks=pytest.mark.full), VALKEY]
# The same for tests on `any_redis` that take long.
on_newest_unless_full = pytest.mark.parametrize("any_redis", NEWEST_UNLESS_FULL, indirect=True)


class RunRedis(Protocol):
    """Start servers that end with the test."""

    def __call__(
        self, version: str = ..., topology: str = ..., options: ServerOptions = ...
    ) -> RedisServers: ...


@pytest.fixture
def patient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the adapters of this process wait for a server on a machine that makes no progress.

    A test of how long they wait sets times of its own.
    """
    for name in ("CONNECT_TIMEOUT_S", "ANSWER_TIMEOUT_S"):
        monkeypatch.setattr(transport, name, 30.0)
    for name in ("EXCHANGE_TIMEOUT_S", "HANDSHAKE_TIMEOUT_S"):
        monkeypatch.setattr(transport, name, 60.0)


@pytest.fixture(scope="session")
def redis_86() -> Iterator[StandaloneServers]:
    """The newest Redis from 8.4 on."""
    with start_standalone("8.6") as servers:
        yield servers


@pytest.fixture(scope="session")
def redis_70() -> Iterator[StandaloneServers]:
    """The oldest Redis that is supported."""
    with start_standalone("7.0") as servers:
        yield servers


@pytest.fixture(scope="session")
def valkey() -> Iterator[StandaloneServers]:
    with start_standalone("valkey") as servers:
        yield servers


@pytest.fixture(scope="module", params=ALL_VERSIONS)
def any_redis(request: pytest.FixtureRequest) -> Iterator[StandaloneServers]:
    """Each of the three versions in turn: for scripts and adapters, which work with each version.

    It asks for a password: an operator that knows its port cannot write to it.
    """
    with start_standalone(request.param, options=ServerOptions(password="of-the-door")) as servers:
        yield servers


@pytest.fixture(scope="module", params=NEWEST_UNLESS_FULL)
def servers_of_programs(request: pytest.FixtureRequest) -> Iterator[StandaloneServers]:
    with start_standalone(request.param) as servers:
        yield servers


@pytest.fixture
def program_redis(servers_of_programs: StandaloneServers) -> StandaloneServers:
    """An empty server for programs: the newest, and with the mark `full` each of the three."""
    servers_of_programs.flush()
    return servers_of_programs


@pytest.fixture(
    params=[
        "redis_86",
        pytest.param("redis_70", marks=pytest.mark.full),
        pytest.param("valkey", marks=pytest.mark.full),
    ]
)
def watched_redis(request: pytest.FixtureRequest) -> StandaloneServers:
    """As `program_redis`, for operators, which may go on writing when the test is over."""
    servers: StandaloneServers = request.getfixturevalue(request.param)
    return servers


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[ClusterServers]:
    """Three masters without replicas."""
    with start_cluster("8.6") as servers:
        yield servers


@pytest.fixture(scope="session")
def redis_sentinel() -> Iterator[SentinelServers]:
    with start_sentinel("8.6") as servers:
        yield servers


@pytest.fixture(scope="session")
def redis_tls() -> Iterator[StandaloneServers]:
    """A server that speaks TLS alone, and asks clients for a certificate."""
    with start_standalone("8.6", options=ServerOptions(tls=True, tls_client_auth=True)) as servers:
        yield servers


@pytest.fixture
def empty_redis(any_redis: StandaloneServers) -> StandaloneServers:
    """Each of the three servers in turn, running and empty."""
    any_redis.flush()
    return any_redis


@pytest.fixture
def empty_redis_86(redis_86: StandaloneServers) -> StandaloneServers:
    redis_86.flush()
    return redis_86


@pytest.fixture
def empty_cluster(redis_cluster: ClusterServers) -> ClusterServers:
    """The shared cluster, whole and empty; slots may lie where an earlier test moved them."""
    redis_cluster.flush()
    return redis_cluster


@pytest.fixture
def empty_sentinel(redis_sentinel: SentinelServers) -> SentinelServers:
    """The shared Sentinel servers, settled and empty; any server may be the master."""
    redis_sentinel.flush()
    return redis_sentinel


@pytest.fixture
def key_prefix() -> str:
    """The beginning of names of this test alone, which share one slot of a cluster."""
    return f"{{test-{uuid.uuid4().hex[:12]}}}:"


@pytest.fixture
def run_redis() -> Iterator[RunRedis]:
    """Start servers with options of their own; they end with the test."""
    with ExitStack() as started:

        def run(
            version: str = "8.6",
            topology: str = "standalone",
            options: ServerOptions = PLAIN,
        ) -> RedisServers:
            return started.enter_context(start_servers(version, topology, options=options))

        yield run
