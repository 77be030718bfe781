"""Every entry of a group that went through everything is classified as what it in truth became."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pytest
from pyspark.sql import SparkSession

from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.domain.outcome import EntryStatus
from tests.pipeline.evidence_adapter import FILES
from tests.pipeline.mishaps import MISHAPS, killed, live, open_life
from tests.pipeline.seeing import check_with_files, check_without_files, see
from tests.redis_fixtures import NEWEST_UNLESS_FULL

# `python -m tests.pipeline.tell_truth` does the same with a million.
ENTRIES: Final = int(os.environ.get("PELOPS_TRUTH_ENTRIES", "20000"))
SIZE: Final = 1000  # entries of a round

# What a life without redrives ends in, where nothing is unknown.
EXPECTED = set(EntryStatus) - {
    EntryStatus.INDETERMINATE,
    EntryStatus.REDRIVEN,
    EntryStatus.DISCARDED,
}


@pytest.fixture(params=NEWEST_UNLESS_FULL)
def server_with_files(request: pytest.FixtureRequest) -> Iterator[StandaloneServers]:
    with start_standalone(request.param, options=FILES) as servers:
        yield servers


async def test_only_append_only_files_prove_the_end_of_every_entry(
    spark: SparkSession, server_with_files: StandaloneServers
) -> None:
    async with open_life(server_with_files, seed=7, size=SIZE) as life:
        await live(life, ENTRIES)
        assert set(life.happened) == {one.__name__ for one in (*MISHAPS, killed)}
        assert set(life.driver.main.counts()) == EXPECTED
        for truth in (life.driver.main, life.driver.retry):
            seen = await see(life, truth, server_with_files.server.directory / "appendonlydir")
            check_with_files(spark, seen)
            check_without_files(spark, seen)
