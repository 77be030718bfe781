"""A plain client for each topology: it gives up on an answer soon and never repeats a command."""

from __future__ import annotations

import os
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

ANSWER_S = 5.0  # longer than any wait for entries

# A client that repeats what it does not know to have failed would blur the history.
_ONCE: dict[str, Any] = {"socket_timeout": ANSWER_S, "socket_connect_timeout": 2.0}


def connect(topology: str, url: str | None = None) -> Any:
    """A client by the worker's variables; `url` wins over the one that they name."""
    url = url or os.environ["PELOPS_REDIS_URL"]
    if topology == "sentinel":
        return _connect_by_sentinel()
    if topology == "cluster":
        from redis.cluster import RedisCluster

        return RedisCluster.from_url(url, **_ONCE)
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **_ONCE)


def _connect_by_sentinel() -> Any:
    from redis import sentinel as sentinels

    addresses = os.environ["PELOPS_REDIS_SENTINEL_NODES"].split(",")
    nodes = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in addresses)]
    make: Any = sentinels.Sentinel
    sentinel = make(nodes, socket_timeout=1.0)
    name = os.environ["PELOPS_REDIS_SENTINEL_MASTER"]
    return sentinel.master_for(name, retry=Retry(NoBackoff(), 0), **_ONCE)
