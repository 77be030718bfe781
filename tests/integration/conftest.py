"""What the tests of a worker and of its door begin with."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.endpoint import RedisEndpoint
from pelops.worker.server.redis_adapter import RedisDoor
from tests.integration.worker_door import Behind, behind, grant, opened, worker_endpoint
from tests.worker_process import WorkerProcesses


@pytest.fixture
async def redis(empty_redis: StandaloneServers) -> AsyncIterator[Behind]:
    """An empty group on each of the three servers, and the rights of a worker."""
    grant(empty_redis)
    async with behind(empty_redis) as seen:
        await seen.create()
        yield seen


@pytest.fixture
async def door(redis: Behind, empty_redis: StandaloneServers) -> AsyncIterator[RedisDoor]:
    """A worker's door to it."""
    async with opened(worker_endpoint(empty_redis)) as door:
        yield door


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
