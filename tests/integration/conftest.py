"""What the tests of a worker's door begin with."""

from collections.abc import AsyncIterator

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.worker.server.redis_door import RedisDoor
from tests.integration.worker_door import Behind, behind, grant, opened, worker_endpoint


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
