"""A stream with a group to audit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local_cluster.redis_servers import RedisServers, start_standalone
from pelops.pipeline.session import LazySession
from tests.cached_parts import PartMissing
from tests.pipeline.audited import Audited
from tests.pipeline.evidence_adapter import FILES
from tests.pipeline.s3_parts import provide_server
from tests.pipeline.s3_store import S3Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Its steps compare what an audit reports.
pytest.register_assert_rewrite("tests.pipeline.stories")


class SessionOfTests(LazySession):
    """The session that all tests share, from the moment when one of them needs it."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__()
        self._request = request

    def get(self, entries: int | None = None) -> SparkSession:
        if self._found is None:
            self._found = self._request.getfixturevalue("spark")
        return super().get(entries)


@pytest.fixture(scope="module")
def store(spark_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Store]:
    """A server of S3; skips where it, or what s3a:// needs, cannot be had."""
    try:
        program = provide_server()
    except PartMissing as error:
        pytest.skip(f"no S3 to test on: {error}")
    with S3Store(program, tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture
def lazy_spark(request: pytest.FixtureRequest) -> LazySession:
    """A session that is opened only for what needs one."""
    return SessionOfTests(request)


@pytest.fixture
def audited(
    lazy_spark: LazySession, redis_86: RedisServers, key_prefix: str, tmp_path: Path
) -> Iterator[Audited]:
    """A stream, a group and an archive of this test alone."""
    with Audited(lazy_spark, redis_86, key_prefix, tmp_path / "archive") as audited:
        yield audited


@pytest.fixture
def witnessed(lazy_spark: LazySession, key_prefix: str, tmp_path: Path) -> Iterator[Audited]:
    """As `audited`, on a server of its own, whose append-only files the audits read."""
    with (
        start_standalone("8.6", options=FILES) as servers,
        Audited(lazy_spark, servers, key_prefix, tmp_path / "archive") as audited,
    ):
        directory = servers.server.directory / "appendonlydir"
        audited.settings = audited.settings.model_copy(update={"aof_path": str(directory)})
        yield audited
