"""Streams for the tests of the data source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local_cluster.redis_servers import RedisServers
from tests.spark.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.query import Query


@pytest.fixture
def streams(redis_86: RedisServers, key_prefix: str) -> Iterator[Streams]:
    """Streams of this test alone on a shared server."""
    with Streams(redis_86, key_prefix) as streams:
        yield streams


@pytest.fixture
def query(spark: SparkSession, streams: Streams, tmp_path: Path) -> Query:
    """A query on a stream of this test, run as often as the test likes."""
    # Here, since some tests need no Spark.
    from tests.spark.query import Query

    return Query(spark, streams, tmp_path)
