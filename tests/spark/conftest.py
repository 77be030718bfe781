"""One Spark session for all tests of the data source, and streams to read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyspark_redis_streams
from local_cluster.redis_servers import RedisServers
from tests.spark.driver import build_session
from tests.spark.streams import Streams

PACKAGES = Path(pyspark_redis_streams.__file__).parent.parent


@pytest.fixture(scope="session")
def spark(java: Path) -> Iterator[SparkSession]:
    """A small local Spark that finds the data source by itself, as an installed one is found."""
    path = os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = build_session()
        yield session
        session.stop()


@pytest.fixture
def streams(redis_86: RedisServers, key_prefix: str) -> Iterator[Streams]:
    """Streams of this test alone on a shared server."""
    with Streams(redis_86, key_prefix) as streams:
        yield streams
