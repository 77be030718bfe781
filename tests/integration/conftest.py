"""What tests of scripts, of adapters and of workers begin with."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.domain.endpoint import RedisEndpoint
from pelops.redis_core.server import Server
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.integration.expiring import REPORTING
from tests.integration.redis_adapter import connected, endpoint_of
from tests.integration.sleeping import Sleepers, sleeping_on
from tests.integration.worker_adapter import Behind, behind, grant, opened, worker_endpoint
from tests.redis_fixtures import ALL_VERSIONS
from tests.worker_process import WorkerProcesses


@pytest.fixture(autouse=True)
def patience(patient_client: None) -> None:
    """For every test here."""


@pytest.fixture
async def server(empty_redis: StandaloneServers) -> AsyncIterator[Server]:
    """The operator's connection to each of the three servers, which are empty."""
    async with connected(endpoint_of(empty_redis)) as connection:
        yield connection


@pytest.fixture
async def sleepers(empty_redis: StandaloneServers) -> AsyncIterator[Sleepers]:
    async with sleeping_on(endpoint_of(empty_redis)) as found:
        yield found


@pytest.fixture(scope="module", params=ALL_VERSIONS)
def reporting(request: pytest.FixtureRequest) -> Iterator[StandaloneServers]:
    """A server of each kind that reports keys that expire."""
    with start_standalone(request.param, options=REPORTING) as servers:
        yield servers


@pytest.fixture
async def redis(empty_redis: StandaloneServers) -> AsyncIterator[Behind]:
    """An empty group on each of the three servers, and the rights of a worker."""
    grant(empty_redis)
    async with behind(empty_redis) as seen:
        await seen.create()
        yield seen


@pytest.fixture
async def adapter(redis: Behind, empty_redis: StandaloneServers) -> AsyncIterator[RedisAdapter]:
    """A worker's adapter to it."""
    async with opened(worker_endpoint(empty_redis)) as adapter:
        yield adapter


@pytest.fixture
def endpoint(empty_redis: StandaloneServers) -> RedisEndpoint:
    """The server as a worker reaches it."""
    return worker_endpoint(empty_redis)


@pytest.fixture
def workers(
    program_redis: StandaloneServers, key_prefix: str, tmp_path: Path
) -> Iterator[WorkerProcesses]:
    """Processes on one stream, ended with the test."""
    started = WorkerProcesses(program_redis.url, f"{key_prefix}orders", tmp_path)
    yield started
    started.close()
