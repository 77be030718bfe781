"""A stream with a group to audit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from local_cluster.redis_servers import RedisServers
from tests.pipeline.audited import Audited


@pytest.fixture
def audited(
    spark: SparkSession, redis_86: RedisServers, key_prefix: str, tmp_path: Path
) -> Iterator[Audited]:
    """A stream, a group and an archive of this test alone."""
    with Audited(spark, redis_86, key_prefix, tmp_path / "archive") as audited:
        yield audited
