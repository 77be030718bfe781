"""Streaming reads: how far a micro-batch goes, and that what is lost is reported."""

import json
from pathlib import Path
from threading import Event

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_redis_streams.lag import LagListener, lag_of
from tests.spark.query import Query
from tests.spark.streams import FIRST_MS, Streams


def test_a_query_goes_on_where_it_has_ended(query: Query, streams: Streams) -> None:
    streams.fill(50)
    assert query.run() == [50]
    assert query.run() == []
    streams.fill(7, first_ms=FIRST_MS + 1000)
    assert query.run() == [7]
    assert query.ids() == sorted(streams.ids())


def test_micro_batches_have_exactly_as_many_entries_as_allowed(
    query: Query, streams: Streams
) -> None:
    streams.fill(2500)
    streams.client.xdel(streams.name(), *streams.ids()[100:150])
    assert query.run(maxEntriesPerTrigger=1000) == [1000, 1000, 450]
    assert query.ids() == sorted(streams.ids())


@pytest.mark.full
def test_a_query_reads_large_entries(query: Query, streams: Streams) -> None:
    streams.add(*[{"a": b"v" * 2**21}] * 3)
    assert sum(query.run(maxEntriesPerTrigger=2)) == 3
    assert query.ids() == sorted(streams.ids())


@pytest.mark.full
def test_estimated_micro_batches_miss_nothing(query: Query, streams: Streams) -> None:
    streams.fill(2500)
    sizes = query.run(maxEntriesPerTrigger=1000, limitMode="estimate")
    assert sum(sizes) == 2500
    assert max(sizes) < 1500
    assert query.ids() == sorted(streams.ids())


def test_streams_share_a_micro_batch_by_what_they_have(query: Query, streams: Streams) -> None:
    names = streams.fill(900, name="big"), streams.fill(100, name="small")
    assert query.run(streams=",".join(names), maxEntriesPerTrigger=500) == [500, 500]
    assert query.ids() == sorted(streams.ids("big") + streams.ids("small"))
    assert {name: place["added"] for name, place in query.offset().items()} == {
        names[0]: 900,
        names[1]: 100,
    }


@pytest.mark.full
def test_a_stream_that_appears_is_read_from_its_beginning(query: Query, streams: Streams) -> None:
    pattern = streams.name("shard-*").replace("{", "\\{")
    streams.fill(10, name="shard-1")
    assert query.run(streamPattern=pattern) == [10]
    streams.fill(20, name="shard-2", first_ms=FIRST_MS + 1000)
    assert query.run(streamPattern=pattern) == [20]


def test_latest_begins_with_what_comes(query: Query, streams: Streams) -> None:
    streams.fill(10)
    assert query.run(startingId="latest") == []
    streams.fill(5, first_ms=FIRST_MS + 1000)
    assert query.run(startingId="latest") == [5]


@pytest.mark.full
def test_a_start_amid_a_stream_knows_its_rank(query: Query, streams: Streams) -> None:
    streams.fill(50)
    streams.client.xtrim(streams.name(), maxlen=45, approximate=False)
    assert query.run(startingId=f"{FIRST_MS + 2}-0") == [30]
    # Ten more entries come and twelve old ones go, so that every unread one is left.
    streams.fill(10, first_ms=FIRST_MS + 1000)
    streams.client.xtrim(streams.name(), maxlen=10, approximate=False)
    assert query.run() == [10]


def test_lost_entries_end_the_query_and_are_counted(query: Query, streams: Streams) -> None:
    streams.fill(50)
    query.run()
    streams.fill(500, first_ms=FIRST_MS + 1000)
    streams.client.xtrim(streams.name(), maxlen=300, approximate=False)
    with pytest.raises(
        StreamingQueryException, match="200 entries were trimmed before they were read"
    ):
        query.run()
    assert query.run(failOnDataLoss="false") == [300]
    assert query.run() == []


@pytest.mark.full
def test_trimming_what_was_read_is_no_loss(query: Query, streams: Streams) -> None:
    streams.fill(50)
    query.run()
    streams.client.xtrim(streams.name(), maxlen=0, approximate=False)
    assert query.run() == []
    streams.fill(20, first_ms=FIRST_MS + 1000)
    assert query.run() == [20]


@pytest.mark.full
@pytest.mark.parametrize("anew", [0, 5])
def test_a_stream_that_was_deleted_or_created_again_ends_the_query(
    query: Query, streams: Streams, anew: int
) -> None:
    streams.fill(50)
    query.run()
    streams.client.delete(streams.name())
    streams.fill(anew, first_ms=FIRST_MS + 1000)
    with pytest.raises(StreamingQueryException, match="went back" if anew else "no longer exists"):
        query.run()
    assert query.run(failOnDataLoss="false") == ([anew] if anew else [])


@pytest.mark.full
def test_the_lag_comes_from_the_offsets(query: Query, streams: Streams) -> None:
    streams.fill(100)
    ended = query.finish(maxEntriesPerTrigger=40)
    sources = [progress.sources[0] for progress in ended.recentProgress]
    name = streams.name()
    lags = [
        json.loads(s.latestOffset)[name]["added"] - json.loads(s.endOffset)[name]["added"]
        for s in sources
    ]
    assert lags[:3] == [60, 20, 0]
    assert [lag_of(progress) for progress in ended.recentProgress[:3]] == [
        {name: 60}, {name: 20}, {name: 0}
    ]  # fmt: skip


def test_a_listener_receives_the_lag_of_each_stream(
    spark: SparkSession, query: Query, streams: Streams
) -> None:
    one, other = streams.fill(60, name="one"), streams.fill(20, name="other")
    reported: list[tuple[str, dict[str, int]]] = []
    has_reported_all = Event()

    def report(name: str, lag: dict[str, int]) -> None:
        reported.append((name, lag))
        if not sum(lag.values()):
            has_reported_all.set()

    listener = LagListener(report)
    spark.streams.addListener(listener)
    try:
        ended = query.finish(streams=f"{one},{other}", maxEntriesPerTrigger=40)
        assert has_reported_all.wait(timeout=60)
    finally:
        spark.streams.removeListener(listener)
    assert reported[:2] == [
        (str(ended.id), {one: 30, other: 10}), (str(ended.id), {one: 0, other: 0})
    ]  # fmt: skip


def test_a_progress_of_another_source_has_no_lag() -> None:
    for shown in ("None", "null", "17", '{"orders": {"0": 5}}', None):
        assert lag_of({"sources": [{"latestOffset": shown}]}) == {}


@pytest.mark.full
def test_the_progress_group_shows_what_is_done(query: Query, streams: Streams) -> None:
    streams.fill(100)
    query.run(progressGroup="spark", maxEntriesPerTrigger=40)
    [group] = streams.client.xinfo_groups(streams.name())
    assert (group["name"], group["entries-read"], group["lag"]) == (b"spark", 100, 0)
    streams.fill(30, first_ms=FIRST_MS + 1000)
    assert streams.client.xinfo_groups(streams.name())[0]["lag"] == 30
    query.run(progressGroup="spark")
    assert streams.client.xinfo_groups(streams.name())[0]["lag"] == 0


@pytest.mark.full
def test_a_group_that_others_read_with_is_left_alone(query: Query, streams: Streams) -> None:
    streams.fill(100)
    streams.client.xgroup_create(streams.name(), "billing", "0")
    streams.client.xreadgroup("billing", "one", {streams.name(): ">"}, count=3)
    before = streams.client.xinfo_groups(streams.name())
    with pytest.raises(StreamingQueryException, match="name a group without consumers"):
        query.run(progressGroup="billing")
    assert streams.client.xinfo_groups(streams.name()) == before


@pytest.mark.full
def test_a_query_may_wait_for_more(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.fill(5)
    options = streams.options | {"startingId": "earliest", "minEntriesPerTrigger": "20"}
    reader = spark.readStream.format("redis_streams").options(**options)
    writer = reader.schema("id STRING").load(streams.name()).writeStream.format("noop")
    running = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        running.processAllAvailable()
        assert not any(progress.numInputRows for progress in running.recentProgress)
        streams.fill(20, first_ms=FIRST_MS + 1000)
        running.processAllAvailable()
        rows = [progress.numInputRows for progress in running.recentProgress]
        assert sum(rows) == 25
    finally:
        running.stop()
