"""Queries whose servers restart, fail over and forget, and streams that change under them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from local_cluster.redis_servers import SentinelServers, ServerOptions, StandaloneServers
from tests.redis_fixtures import RunRedis
from tests.spark.interrupting import interrupted_source
from tests.spark.query import Query
from tests.spark.streams import FIRST_MS, Streams

pytestmark = pytest.mark.full

PATIENT = {"numRetries": "40", "retryIntervalMs": "100"}
ODD = "\U0001f600 new\nline %41 : {} / .. \\ * ? [a], ' \" é}"
LONG = "é%" * 100  # 300 bytes


class Running:
    """A query that runs until it is stopped, whose rows are counted as they come."""

    def __init__(self, spark: SparkSession, folder: Path, **options: str) -> None:
        reader = spark.readStream.format("redis_streams").options(startingId="earliest", **options)
        writer = reader.schema("id STRING").load("orders").writeStream.format("parquet")
        writer = writer.option("path", str(folder / "out"))
        self.query: StreamingQuery = writer.option("checkpointLocation", str(folder / "c")).start()
        self._spark = spark
        self._out = str(folder / "out")

    def ids(self) -> list[str]:
        self.query.processAllAvailable()
        frame = self._spark.read.schema("id STRING").parquet(self._out)
        return sorted(row.id for row in frame.collect())


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(**options: str) -> Running:
        started.append(Running(spark, tmp_path, **options))
        return started[-1]

    yield begin
    for one in started:
        one.query.stop()


@pytest.mark.parametrize("kept", ["always", None])
def test_a_query_survives_a_restart_unless_its_stream_was_lost(
    run_redis: RunRedis, run: Callable[..., Running], kept: str | None
) -> None:
    servers = run_redis(options=ServerOptions(append_only=kept))
    assert isinstance(servers, StandaloneServers)
    with Streams(servers, "") as streams:
        streams.fill(50)
        running = run(port=str(streams.port), **PATIENT)
        assert len(running.ids()) == 50
        servers.server.kill()
        servers.server.start()
        streams.fill(20, first_ms=FIRST_MS + 1000)
        if kept:
            assert running.ids() == sorted(streams.ids())
        else:
            with pytest.raises(
                StreamingQueryException, match=r"went back|no longer exists|created again"
            ):
                running.ids()


def test_a_query_outlives_a_failover(
    empty_sentinel: SentinelServers, run: Callable[..., Running]
) -> None:
    nodes = ",".join(f"{host}:{port}" for host, port in empty_sentinel.sentinel_nodes)
    sentinel = {"topology": "sentinel", "sentinels": nodes,
                "sentinelMaster": empty_sentinel.sentinel_master or ""}  # fmt: skip
    streams = Streams(empty_sentinel, "")
    streams.fill(50)
    running = run(**sentinel, **PATIENT)
    assert len(running.ids()) == 50
    streams.client.wait(2, 10_000)
    streams.client.close()
    empty_sentinel.failover()
    with Streams(empty_sentinel, "") as streams:
        streams.fill(20, first_ms=FIRST_MS + 1000)
        assert running.ids() == sorted(streams.ids())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("XTRIM", "MAXLEN", "5"), "it was trimmed"),
        (("UNLINK",), "no longer exists"),
    ],
)
def test_what_goes_between_planning_and_reading_ends_the_query(
    spark: SparkSession, streams: Streams, tmp_path: Path, command: tuple[str, ...], words: str
) -> None:
    name, *rest = command
    happening = [name, streams.name(), *rest]
    source = interrupted_source(tmp_path, streams.port, planned=happening)
    spark.dataSource.register(source)
    streams.fill(50)

    def start(**options: str) -> StreamingQuery:
        given = streams.options | {"startingId": "earliest"} | options
        reader = spark.readStream.format("interrupted_redis_streams").options(**given)
        writer = reader.schema("id STRING").load(streams.name()).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match=words):
        start().awaitTermination()
    again = start(failOnDataLoss="false", missingStream="empty")
    again.awaitTermination()
    assert sum(one.numInputRows for one in again.recentProgress) == (5 if rest else 0)


def test_entries_trimmed_before_the_first_micro_batch_runs_again_are_reported(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    streams.fill(50)
    running = begin_and_fail(spark, streams, tmp_path, startingId="earliest")
    with pytest.raises(StreamingQueryException, match="unknown command"):
        running.processAllAvailable()
    streams.client.xtrim(streams.name(), maxlen=6, approximate=False)
    again = begin_and_fail(spark, streams, tmp_path, startingId="earliest")
    with pytest.raises(
        StreamingQueryException, match="45 entries were trimmed before they were read"
    ):
        again.processAllAvailable()


def test_a_query_from_latest_that_failed_first_restarts_where_it_began(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    streams.fill(50)
    running = begin_and_fail(spark, streams, tmp_path)
    with pytest.raises(StreamingQueryException, match="unknown command"):
        running.processAllAvailable()
    assert len(streams.ids()) == 51, "an entry came between the beginning and the first look"
    # The latest entry is another one now: from there on the query would miss eleven.
    streams.fill(10, first_ms=FIRST_MS + 2000)
    again = begin_and_fail(spark, streams, tmp_path)
    try:
        again.processAllAvailable()
        assert sum(one.numInputRows for one in again.recentProgress) == 11
        streams.fill(10, first_ms=FIRST_MS + 3000)
        again.processAllAvailable()
        assert sum(one.numInputRows for one in again.recentProgress) == 21
    finally:
        again.stop()


def begin_and_fail(
    spark: SparkSession, streams: Streams, folder: Path, **options: str
) -> StreamingQuery:
    """A query whose first micro-batch fails once, when it is planned and noted."""
    add = ["XADD", streams.name(), f"{FIRST_MS + 1000}-0", "number", "50"]
    source = interrupted_source(folder, streams.port, planned=["NO-SUCH"], begun=add)
    spark.dataSource.register(source)
    reader = spark.readStream.format("interrupted_redis_streams").options(**streams.options)
    frame = reader.options(**options).schema("id STRING").load(streams.name())
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "c"))
    return writer.start()


def test_a_stream_created_again_with_more_entries_ends_the_query(
    query: Query, streams: Streams
) -> None:
    streams.fill(50)
    query.run()
    streams.client.delete(streams.name())
    # By its counters alone it has gone on: 90 entries, the last one later than any before.
    streams.fill(90, first_ms=FIRST_MS + 1000)
    with pytest.raises(
        StreamingQueryException, match=r"created again: it has 90 entries .* only 40"
    ):
        query.run()
    assert query.run(failOnDataLoss="false") == [90]
    assert query.run() == []


def test_streams_of_any_name_are_gone_on_with(query: Query, streams: Streams) -> None:
    names = [streams.fill(10, name=ODD), streams.fill(20, name=LONG)]
    assert query.run(streams=json.dumps(names)) == [30]
    streams.fill(5, name=ODD, first_ms=FIRST_MS + 1000)
    assert query.run(streams=json.dumps(names)) == [5]
    assert {name: place["added"] for name, place in query.offset().items()} == {
        names[0]: 15,
        names[1]: 20,
    }


def test_ids_at_every_end_are_read_once(query: Query, streams: Streams) -> None:
    largest = f"{2**64 - 1}-{2**64 - 1}"
    ids = ["0-1", "0-2", f"5-{2**64 - 1}", f"{2**63 - 1}-{2**63}", f"{2**63}-0"]
    streams.add(*[{"a": "1"}] * 5, ids=ids)
    assert sum(query.run(maxEntriesPerTrigger=2)) == 5
    streams.add({"a": "1"}, ids=[largest])
    assert query.run() == [1]
    assert query.run() == []
    assert query.ids() == sorted([*ids, largest])


def test_an_empty_stream_is_waited_for(query: Query, streams: Streams) -> None:
    streams.client.xgroup_create(streams.name(), "mail", mkstream=True)
    assert query.run() == []
    streams.fill(5)
    assert query.run() == [5]


def test_a_stream_that_is_not_there_yet_is_read_from_its_beginning(
    query: Query, streams: Streams
) -> None:
    assert query.run(missingStream="empty") == []
    streams.fill(5)
    assert query.run(missingStream="empty") == [5]
