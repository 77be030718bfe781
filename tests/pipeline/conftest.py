"""One Spark session for all tests of the pipeline, and a stream with a group to audit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyspark_redis_streams
from local_cluster.redis_servers import RedisServers
from tests.pipeline.audited import Audited
from tests.spark.driver import build_session

PACKAGES = Path(pyspark_redis_streams.__file__).parent.parent


@pytest.fixture(scope="session")
def spark(java: Path) -> Iterator[SparkSession]:
    """The same Spark as that of the data source's tests: of both there is one in a process."""
    path = os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = build_session()
        yield session
        session.stop()


@pytest.fixture
def audited(
    spark: SparkSession, redis_86: RedisServers, key_prefix: str, tmp_path: Path
) -> Iterator[Audited]:
    """A stream, a group and an archive of this test alone."""
    with Audited(spark, redis_86, key_prefix, tmp_path / "archive") as audited:
        yield audited
