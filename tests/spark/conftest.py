"""Streams for the tests of the data source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local_cluster.redis_servers import RedisServers
from tests.spark.streams import Streams


@pytest.fixture
def streams(redis_86: RedisServers, key_prefix: str) -> Iterator[Streams]:
    """Streams of this test alone on a shared server."""
    with Streams(redis_86, key_prefix) as streams:
        yield streams
