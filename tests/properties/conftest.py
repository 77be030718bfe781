"""The operator's adapter to real servers, for properties of scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local_cluster.redis_servers import StandaloneServers
from tests.properties.server_adapter import ServerAdapter, adapter_to


@pytest.fixture(scope="module")
def adapter(any_redis: StandaloneServers) -> Iterator[ServerAdapter]:
    """To each version in turn."""
    with adapter_to(any_redis) as adapter:
        yield adapter


@pytest.fixture(scope="module")
def small_nodes(adapter: ServerAdapter) -> None:
    """Nodes of streams so small that whole ones are trimmed in short examples."""
    adapter.ask("CONFIG", "SET", "stream-node-max-entries", "2")
