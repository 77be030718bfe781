"""The small views show what Redis' own commands show."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from local_cluster.redis_servers import RedisServers
from tests.spark.streams import Streams


@pytest.fixture
def anywhere(program_redis: RedisServers, key_prefix: str) -> Any:
    with Streams(program_redis, key_prefix) as streams:
        yield streams


def load(spark: SparkSession, streams: Streams, view: str, **options: Any) -> DataFrame:
    reader = spark.read.format("redis_streams").options(**streams.options)
    return reader.options(view=view, stream=streams.name(), **options).load()


def deliver(streams: Streams, consumer: str, number: int, group: str = "billing") -> None:
    streams.client.xreadgroup(group, consumer, {streams.name(): ">"}, count=number)


@pytest.fixture
def filled(anywhere: Streams) -> Streams:
    anywhere.fill(50)
    anywhere.client.xgroup_create(anywhere.name(), "billing", "0")
    anywhere.client.xgroup_create(anywhere.name(), "mail", "$")
    deliver(anywhere, "one", 20)
    deliver(anywhere, "two", 5)
    anywhere.client.xack(anywhere.name(), "billing", *anywhere.ids()[:3])
    return anywhere


def test_pending_entries(spark: SparkSession, filled: Streams) -> None:
    rows = load(spark, filled, "pending", group="billing", pageSize=4).collect()
    assert [row.id for row in rows] == filled.ids()[3:25]
    assert [row.consumer for row in rows] == ["one"] * 17 + ["two"] * 5
    assert {(row.stream, row.group, row.delivery_count) for row in rows} == {
        (filled.name(), "billing", 1)
    }
    assert [f"{row.ms}-{row.seq}" for row in rows] == [row.id for row in rows]
    of_two = load(spark, filled, "pending", group="billing", consumer="two")
    assert of_two.count() == 5
    assert load(spark, filled, "pending", group="billing", minIdleMs=3_600_000).count() == 0


def test_groups(spark: SparkSession, filled: Streams) -> None:
    rows = {row.group: row for row in load(spark, filled, "groups").collect()}
    assert set(rows) == {"billing", "mail"}
    billing = rows["billing"]
    assert (billing.consumers, billing.pending, billing.entries_read, billing.lag) == (
        2,
        22,
        25,
        25,
    )
    assert billing.last_delivered_id == filled.ids()[24]
    assert load(spark, filled, "groups", group="mail").count() == 1


def test_consumers(spark: SparkSession, filled: Streams) -> None:
    rows = {row.consumer: row for row in load(spark, filled, "consumers").collect()}
    assert {name: row.pending for name, row in rows.items()} == {"one": 17, "two": 5}
    assert all(row.idle_ms >= 0 for row in rows.values())


def test_streams(spark: SparkSession, filled: Streams) -> None:
    ids = filled.ids()
    filled.client.xdel(filled.name(), ids[10])
    filled.client.xtrim(filled.name(), maxlen=30, approximate=False)
    [row] = load(spark, filled, "streams").collect()
    assert row.asDict() == {
        "stream": filled.name(),
        "length": 30,
        "entries_added": 50,
        "last_generated_id": ids[-1],
        "max_deleted_entry_id": ids[10],
        "first_id": ids[20],
        "last_id": ids[-1],
        "groups": 2,
    }


def test_a_schema_may_leave_columns_out(spark: SparkSession, filled: Streams) -> None:
    reader = spark.read.format("redis_streams").options(**filled.options)
    frame = reader.options(view="groups", stream=filled.name()).schema("lag BIGINT, `group` STRING")
    assert sorted(tuple(row) for row in frame.load().collect()) == [(0, "mail"), (25, "billing")]


def test_a_stream_of_large_entries_and_many_consumers_has_all_its_views(
    spark: SparkSession, streams: Streams
) -> None:
    streams.add(*[{"a": b"v" * 2**21}] * 3)
    ids = streams.ids()
    streams.client.xgroup_create(streams.name(), "billing", "0")
    pipeline = streams.client.pipeline(transaction=False)
    names = {f"{number}-{'n' * 100}" for number in range(10_000)}
    for name in names:
        pipeline.xgroup_createconsumer(streams.name(), "billing", name)
    pipeline.execute()
    [row] = load(spark, streams, "streams").collect()
    assert (row.first_id, row.last_id) == (ids[0], ids[-1])
    rows = load(spark, streams, "consumers").collect()
    assert {row.consumer for row in rows} == names
    entries = load(spark, streams, "entries", columns="a STRING").selectExpr("id", "length(a)")
    assert [tuple(row) for row in entries.collect()] == [(one, 2**21) for one in ids]
