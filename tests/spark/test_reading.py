"""Batch reads through Spark: the right entries, once, in tasks of the asked size."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.spark.query import finish
from tests.spark.streams import FIRST_MS, Streams


def load(
    spark: SparkSession, server: Streams, schema: str | None = None, **options: Any
) -> DataFrame:
    reader = spark.read.format("redis_streams").options(**server.options)
    if not {"stream", "streams", "streamPattern"} & options.keys():
        options["stream"] = server.name()
    return (reader.schema(schema) if schema else reader).options(**options).load()


def ids(frame: DataFrame) -> list[str]:
    return sorted(row.id for row in frame.select("id").collect())


def test_a_read_without_schema_has_base_columns_and_the_fields_as_texts(
    spark: SparkSession, streams: Streams
) -> None:
    streams.add({"a": b"\xff", "b": "x"}, ids=["5-1"])
    [row] = load(spark, streams).collect()
    assert row.asDict() == {
        "stream": streams.name(),
        "id": "5-1",
        "ms": 5,
        "seq": 1,
        "ts": datetime(1970, 1, 1, 0, 0, 0, 5000),  # noqa: DTZ001
        "fields": {"a": "\ufffd", "b": "x"},
    }
    [row] = load(spark, streams, binary="true").collect()
    assert row.fields == {"a": bytearray(b"\xff"), "b": bytearray(b"x")}


def test_fields_are_declared_by_option_or_by_schema(spark: SparkSession, streams: Streams) -> None:
    streams.add({"qty": "7", "price": "1.5"}, ids=["5-1"])
    by_option = load(spark, streams, columns="qty INT, price DOUBLE")
    assert by_option.columns == ["stream", "id", "ms", "seq", "ts", "qty", "price"]
    [row] = by_option.select("qty", "price").collect()
    [same] = load(spark, streams, "qty INT, price DOUBLE").collect()
    assert row == same == (7, 1.5)


def test_load_may_name_the_stream(spark: SparkSession, streams: Streams) -> None:
    streams.fill(3)
    reader = spark.read.format("redis_streams").options(**streams.options)
    assert reader.load(streams.name()).count() == 3


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, range(100)),
        ({"startingId": "earliest", "endingId": "latest"}, range(100)),
        ({"startingId": "latest"}, range(0)),
        ({"startingId": f"{FIRST_MS + 2}-5"}, range(25, 100)),
        ({"startingId": f"({FIRST_MS + 2}-5"}, range(26, 100)),
        ({"startingId": f"({FIRST_MS + 2}"}, range(30, 100)),
        ({"endingId": f"{FIRST_MS + 2}-5"}, range(26)),
        ({"endingId": f"({FIRST_MS + 2}-5"}, range(25)),
        ({"endingId": f"{FIRST_MS + 2}"}, range(30)),
        ({"startingTimestamp": FIRST_MS + 2}, range(20, 100)),
        ({"endingTimestamp": FIRST_MS + 2}, range(20)),
        ({"startingTimestamp": "2023-11-14T22:13:20.002Z"}, range(20, 100)),
        ({"startingId": f"{FIRST_MS + 99}-0"}, range(0)),
        ({"startingId": "7-0", "endingId": "5-0"}, range(0)),
    ],
)
def test_a_read_goes_from_its_start_to_its_end(
    spark: SparkSession, streams: Streams, options: dict[str, Any], numbers: range
) -> None:
    streams.fill(100)
    found = load(spark, streams, "number INT", **options).collect()
    assert [row.number for row in found] == list(numbers)


def test_starts_may_differ_by_stream(spark: SparkSession, streams: Streams) -> None:
    one, other = streams.fill(30, name="one"), streams.fill(30, name="other")
    frame = load(
        spark, streams, "stream STRING, number INT", streams=f"{one},{other}",
        startingId=f'{{"{one}": "{FIRST_MS + 2}-0"}}',
    )  # fmt: skip
    counts = {row.stream: row["count"] for row in frame.groupBy("stream").count().collect()}
    assert counts == {one: 10, other: 30}


def test_streams_are_found_by_pattern(spark: SparkSession, streams: Streams) -> None:
    for number in range(12):
        streams.fill(5, name=f"shard-{number}")
    streams.fill(5, name="else")
    streams.client.set(streams.name("shard-no-stream"), "x")
    pattern = streams.name("shard-").replace("{", "\\{") + "*"
    frame = load(spark, streams, streamPattern=pattern)
    assert frame.count() == 60
    assert frame.select("stream").distinct().count() == 12
    assert frame.rdd.getNumPartitions() == 1


@pytest.mark.parametrize(
    ("options", "tasks"),
    [({}, 1), ({"minPartitions": 4}, 4), ({"entriesPerPartition": 1000}, 5)],
)
def test_tasks_are_as_many_as_asked_and_of_about_one_size(
    spark: SparkSession, streams: Streams, options: dict[str, Any], tasks: int
) -> None:
    streams.fill(5000)
    frame = load(spark, streams, pageSize=300, **options)
    sizes = frame.groupBy(sf.spark_partition_id()).count().collect()
    assert len(sizes) == tasks
    assert max(row["count"] for row in sizes) < 1.3 * 5000 / tasks
    assert ids(frame) == sorted(streams.ids())


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_batches_have_no_more_rows_than_asked(
    spark: SparkSession, streams: Streams, rows: int
) -> None:
    streams.fill(50)
    assert ids(load(spark, streams, batchRows=rows)) == sorted(streams.ids())


def test_extreme_ids_and_odd_fields_are_read(spark: SparkSession, streams: Streams) -> None:
    largest = "18446744073709551615-18446744073709551615"
    streams.add(
        {"a": ""}, {"": "x"}, {"a": "y" * 1_000_000}, {f"f{i}": "z" for i in range(10_000)},
        {"a": "last"}, ids=["0-1", "0-2", "1-0", "9999999999999-0", largest],
    )  # fmt: skip
    frame = load(spark, streams, "id STRING, seq DECIMAL(20, 0), a STRING, f9999 STRING")
    rows = {row.id: row for row in frame.collect()}
    assert rows["0-1"].a == ""
    assert rows["0-2"].a is None
    assert len(rows["1-0"].a) == 1_000_000
    assert rows["9999999999999-0"].f9999 == "z"
    assert rows[largest].seq == 2**64 - 1
    assert len(rows) == 5


def test_nothing_to_read_is_no_error(spark: SparkSession, streams: Streams) -> None:
    assert load(spark, streams, stream=streams.name("none"), missingStream="empty").count() == 0
    pattern = streams.name("none*").replace("{", "\\{")
    assert load(spark, streams, streamPattern=pattern, missingStream="empty").count() == 0


@pytest.fixture
def pushing(spark: SparkSession) -> Any:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.full
def test_a_frame_is_whole_for_every_use_whatever_another_use_filters(
    pushing: SparkSession, streams: Streams
) -> None:
    streams.fill(100)
    frame = load(pushing, streams, "ms BIGINT, number INT")
    narrow, other = (frame.where(f"ms = {FIRST_MS + ms}") for ms in (5, 6))
    assert narrow.count() == 10
    assert frame.count() == 100
    assert narrow.unionAll(other).count() == 20
    assert narrow.unionAll(frame).count() == 110
    assert frame.join(narrow, "number", "left_anti").count() == 90
    assert narrow.cache().count() == 10
    assert frame.count() == 100
    frame.createOrReplaceTempView("entries_of_a_test")
    found = pushing.sql(
        f"SELECT (SELECT count(*) FROM entries_of_a_test WHERE ms < {FIRST_MS + 3}) AS some,"
        " (SELECT count(*) FROM entries_of_a_test) AS every"
    ).first()
    assert found == (30, 100)


def test_each_stream_begins_at_its_own_time(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        streams.fill(30, name=name)
    names = [streams.name(name) for name in ("a", "b", "c")]
    second = datetime.fromtimestamp(FIRST_MS / 1000, UTC).replace(microsecond=2000)
    times = {names[0]: FIRST_MS + 1, names[1]: second.isoformat()}
    given = {"streams": json.dumps(names), "startingOffsetsByTimestamp": json.dumps(times)}
    reader = spark.read.format("redis_streams").options(**streams.options, **given)
    counts = reader.load().groupBy("stream").count().collect()
    assert dict(counts) == dict(zip(names, (20, 10, 30), strict=True))
    # Without a time, a query begins behind what there is.
    frame = spark.readStream.format("redis_streams").options(**streams.options, **given).load()
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.format("memory").queryName("times_of_a_test")
    finish(writer.trigger(availableNow=True).start)
    counts = spark.table("times_of_a_test").groupBy("stream").count().collect()
    assert dict(counts) == {names[0]: 20, names[1]: 10}
    with pytest.raises(PySparkException, match="startingOffsetsByTimestamp' names stream 'x'"):
        reader.option("startingOffsetsByTimestamp", '{"x": 5}').load().count()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata", "+05:00"])
def test_times_of_options_and_of_filters_agree(
    spark: SparkSession, streams: Streams, zone: str
) -> None:
    hour = 3_600_000
    for at in range(24):
        streams.fill(1, first_ms=FIRST_MS + at * hour)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        given = {"startingTimestamp": "2023-11-15 08:00", "endingTimestamp": "2023-11-15 11:00"}
        frame = load(spark, streams, "ms BIGINT, ts TIMESTAMP", timeZone=zone, **given)
        condition = "ts >= '2023-11-15 08:00' AND ts < '2023-11-15 11:00'"
        filtered = load(spark, streams, "ms BIGINT, ts TIMESTAMP").where(condition)
        assert frame.collect() == filtered.collect() != []
        with pytest.raises(PySparkException, match="names no time zone: write it with one"):
            load(spark, streams, **given).count()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_ids_beyond_a_bigint_are_read(spark: SparkSession, streams: Streams) -> None:
    largest = 2**64 - 1
    streams.add({"a": "1"}, {"a": "2"}, ids=[f"5-{largest}", f"{largest}-7"])
    rows = load(spark, streams).select("id", "ms", "seq", "ts").collect()
    assert [row[:3] for row in rows] == [(f"5-{largest}", 5, None), (f"{largest}-7", None, 7)]
    assert rows[1].ts is None
    assert load(spark, streams).where("ms >= 5").count() == 1
    streams.client.xgroup_create(streams.name(), "group", id="0")
    streams.client.xreadgroup("group", "one", {streams.name(): ">"})
    pending = load(spark, streams, view="pending", group="group").collect()
    assert [(row.id, row.ms, row.seq) for row in pending] == [row[:3] for row in rows]


@pytest.mark.parametrize("kind", ["int", "bigint", "double", "decimal(10,2)"])
def test_signs_and_prefixes_are_read_as_cast_reads_them(
    spark: SparkSession, streams: Streams, kind: str
) -> None:
    texts = [
        "5",
        "+5",
        "-5",
        "0x10",
        "0X1F",
        "+0x10",
        "+-5",
        "--5",
        "+",
        "",
        "05",
        "x",
        "5x",
        "1e1",
    ]
    streams.add(*({"n": text} for text in texts))
    found = load(spark, streams, f"t_n {kind}", fieldPrefix="t_").collect()
    cast = spark.createDataFrame([(text,) for text in texts], "n string")
    expected = cast.selectExpr(f"try_cast(n AS {kind}) AS t_n").collect()
    assert found == expected


def test_a_moment_is_that_of_the_id(spark: SparkSession, streams: Streams) -> None:
    streams.fill(1)
    [row] = load(spark, streams).select(sf.unix_millis("ts").alias("ms")).collect()
    assert row.ms == FIRST_MS
    assert datetime.fromtimestamp(FIRST_MS / 1000, UTC).year == 2023
