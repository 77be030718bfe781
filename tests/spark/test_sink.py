"""Writes append each row once, whatever runs twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructType

from local_cluster.redis_servers import ClusterServers
from pyspark_redis_streams.errors import BadValue, SchemaError, ServerError
from pyspark_redis_streams.options.parsed import parse_write_options
from pyspark_redis_streams.sink import BatchWriter, append_all
from tests.spark.dying import dying_source
from tests.spark.query import finish
from tests.spark.streams import Streams


def write(frame: DataFrame, streams: Streams, **options: Any) -> None:
    writer = frame.write.format("redis_streams").mode("append").options(**streams.options)
    if "stream" not in frame.columns:
        options.setdefault("stream", streams.name())
    writer.options(**options).save()


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Rows reach a writer while their task still reads."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def calls(streams: Streams) -> int:
    """How often the script was run on this server."""
    return int(streams.client.info("commandstats").get("cmdstat_eval", {"calls": 0})["calls"])


def contents(streams: Streams, name: str = "orders") -> list[dict[bytes, bytes]]:
    return [fields for _, fields in streams.entries(name)]


def numbers(streams: Streams, name: str = "orders") -> list[int]:
    return sorted(int(fields[b"number"]) for fields in contents(streams, name))


def test_columns_become_fields_and_null_is_no_field(spark: SparkSession, streams: Streams) -> None:
    frame = spark.sql(
        "SELECT 7 AS qty, 1.5D AS price, true AS paid, CAST(NULL AS STRING) AS note,"
        " X'FF00' AS raw, timestamp'2026-01-01 00:00:00' AS at, date'2026-02-28' AS day,"
        " named_struct('a', 1, 'b', array('x')) AS json, map('k', 2) AS more"
    )
    write(frame, streams)
    assert contents(streams) == [
        {
            b"qty": b"7",
            b"price": b"1.5",
            b"paid": b"true",
            b"raw": b"\xff\x00",
            b"at": b"2026-01-01 00:00:00.000000Z",
            b"day": b"2026-02-28",
            b"json": b'{"a": 1, "b": ["x"]}',
            b"more": b'{"k": 2}',
        }
    ]
    columns = "qty INT, at TIMESTAMP, json STRUCT<a: INT, b: ARRAY<STRING>>, more MAP<STRING, INT>"
    reader = spark.read.format("redis_streams").options(**streams.options).schema(columns)
    assert (
        reader.load(streams.name()).collect() == frame.select("qty", "at", "json", "more").collect()
    )


def test_what_was_read_binary_can_be_written(spark: SparkSession, streams: Streams) -> None:
    streams.add({"a": b"\xff", "b": ""}, {"c": "1"})
    reader = spark.read.format("redis_streams").options(**streams.options, binary="true")
    frame = reader.load(streams.name())
    write(frame.select("fields"), streams, stream=streams.name("copy"))
    written = [dict(fields) for fields in contents(streams, "copy")]
    assert written == [{b"a": b"\xff", b"b": b""}, {b"c": b"1"}]


def test_rows_may_name_their_stream(spark: SparkSession, streams: Streams) -> None:
    frame = spark.range(1000).selectExpr(
        f"concat('{streams.name()}', '-', id % 2) AS stream", "id AS number"
    )
    write(frame, streams)
    assert numbers(streams, "orders-0") == list(range(0, 1000, 2))
    assert numbers(streams, "orders-1") == list(range(1, 1000, 2))


@pytest.mark.full
def test_a_task_that_dies_amid_its_rows_appends_none_twice(
    spark: SparkSession, streams: Streams, tmp_path: Path, small_batches: None
) -> None:
    streams.fill(20_000)
    spark.dataSource.register(dying_source(tmp_path / "died", after=9))
    reader = spark.read.format("dying_redis_streams").options(**streams.options)
    reader = reader.options(batchRows=1000, minPartitions=2).schema("number BIGINT")
    before = calls(streams)
    # Wide rows, so that they do not wait in the buffers between Spark and its Python workers.
    frame = reader.load(streams.name()).selectExpr("number", "repeat('x', 3000) AS filling")
    write(frame, streams, stream=streams.name("copy"), entriesPerCall=100)
    assert (tmp_path / "died").exists()
    assert calls(streams) - before > 200, "the task had not appended anything when it died"
    assert numbers(streams, "copy") == list(range(20_000))


def test_an_attempt_that_ended_early_is_completed(streams: Streams) -> None:
    options = parse_write_options(streams.options | {"stream": streams.name()})
    schema = StructType().add("number", LongType())
    batches = [pa.record_batch({"number": range(i, i + 250)}) for i in range(0, 1000, 250)]

    def dies() -> Iterator[pa.RecordBatch]:
        yield from batches[:2]
        raise RuntimeError("the task dies here")

    with pytest.raises(RuntimeError, match="dies here"):
        append_all(dies(), schema, options, "tuesday")
    assert numbers(streams) == list(range(400))
    done = append_all(iter(batches), schema, options, "tuesday")
    assert (done.entries, done.repeated) == (1000, 400)
    assert numbers(streams) == list(range(1000))


def test_a_named_write_is_done_once(spark: SparkSession, streams: Streams) -> None:
    frame = spark.range(500, numPartitions=2).selectExpr("id AS number")
    for _ in range(2):
        write(frame, streams, writeId="tuesday")
    assert numbers(streams) == list(range(500))
    write(frame, streams, writeId="wednesday")
    assert len(numbers(streams)) == 1000


def test_other_rows_under_the_same_name_are_refused(spark: SparkSession, streams: Streams) -> None:
    write(spark.range(500, numPartitions=1).selectExpr("id AS number"), streams, writeId="tuesday")
    other = spark.range(1, 501, numPartitions=1).selectExpr("id AS number")
    with pytest.raises(PySparkException, match="a repeated task wrote other rows"):
        write(other, streams, writeId="tuesday")
    assert numbers(streams) == list(range(500))


def test_tokens_expire(spark: SparkSession, streams: Streams) -> None:
    write(spark.range(5).selectExpr("id AS number"), streams, tokenTtlSeconds=100, writeId="x")
    [token] = [key for key in streams.client.scan_iter() if key.endswith(b":appended:x")]
    assert 0 < streams.client.ttl(token) <= 100


def test_a_stream_is_kept_short(spark: SparkSession, streams: Streams) -> None:
    write(spark.range(5000, numPartitions=1).selectExpr("id AS number"), streams, maxLen=1000)
    assert 1000 <= streams.client.xlen(streams.name()) < 1400


def test_a_micro_batch_that_is_run_again_appends_nothing(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    streams.fill(3000)
    options = streams.options | {"startingId": "earliest", "maxEntriesPerTrigger": "1000"}
    reader = spark.readStream.format("redis_streams").options(**options)
    frame = reader.schema("number BIGINT").load(streams.name())

    def run() -> None:
        writer = frame.writeStream.format("redis_streams").options(**streams.options)
        writer = writer.option("stream", streams.name("copy"))
        writer = writer.option("checkpointLocation", str(tmp_path))
        finish(writer.trigger(availableNow=True).start)

    run()
    # As if the driver had died after the last micro-batch was written, before it was noted.
    for name in ("2", ".2.crc"):
        (tmp_path / "commits" / name).unlink(missing_ok=True)
    run()
    assert numbers(streams, "copy") == list(range(3000))


def test_tokens_lie_in_the_streams_slot(spark: SparkSession, empty_cluster: ClusterServers) -> None:
    port = empty_cluster.masters()[0].port
    frame = spark.range(100).selectExpr("concat('s', id % 10) AS stream", "id AS number")
    writer = frame.write.format("redis_streams").mode("append")
    writer.options(topology="cluster", host="127.0.0.1", port=port).save()
    total = sum(int(empty_cluster.cli("XLEN", f"s{number}")) for number in range(10))
    assert total == 100


@pytest.mark.parametrize(
    ("mode", "options", "words"),
    [
        ("overwrite", {}, "a stream is appended to"),
        ("append", {"maxLenn": "5"}, "did you mean 'maxLen'?"),
        ("append", {"startingId": "5"}, "is for read and readStream only"),
        ("append", {"maxLen": "5", "minId": "5-0"}, "exclude each other"),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: SparkSession, streams: Streams, mode: str, options: dict[str, str], words: str
) -> None:
    writer = spark.range(5).write.format("redis_streams").mode(mode).options(**streams.options)
    with pytest.raises(PySparkException) as refused:
        writer.options(**options).save(streams.name())
    assert words in str(refused.value)


def test_a_row_without_values_is_refused(spark: SparkSession, streams: Streams) -> None:
    with pytest.raises(PySparkException, match="an entry needs a field"):
        write(spark.sql("SELECT CAST(NULL AS STRING) AS a"), streams)


def columns(*names: str) -> StructType:
    schema = StructType()
    for name in names:
        schema.add(name, StringType())
    return schema


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (("id", "a"), "'id'"),
        (("stream", "id", "ms", "seq", "ts", "a"), "'id', 'ms', 'seq', 'ts'"),
        (("a", "ms"), "'ms'"),
        (("seq", "a"), "'seq'"),
        (("ts", "a"), "'ts'"),
    ],
)
def test_ids_are_not_written_as_fields(names: tuple[str, ...], refused: str) -> None:
    options = parse_write_options({"stream": "orders"})
    words = (
        rf"^column '\w+' comes from the ID .* leave out {refused}\. .*'keepIds' .* 'fieldPrefix'"
    )
    with pytest.raises(SchemaError, match=words):
        BatchWriter(columns(*names), options, overwrite=False)
    BatchWriter(columns("a", *(f"f_{name}" for name in names)), options, overwrite=False)
    with pytest.raises(SchemaError, match=r"option 'keepIds' .* no column 'id'"):
        BatchWriter(
            columns("a"), parse_write_options({"stream": "x", "keepIds": "true"}), overwrite=False
        )


@pytest.mark.full
def test_an_archive_is_written_under_its_own_ids_once(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    streams.add({"a": "1"}, {"b": b"\xff"}, {"a": "3"}, ids=["5-1", "5-2", "10-0"])
    reader = spark.read.format("redis_streams").options(**streams.options, binary="true")
    reader.load(streams.name()).write.parquet(str(tmp_path / "archive"))
    frame = spark.read.parquet(str(tmp_path / "archive"))
    frame = frame.repartition(1).sortWithinPartitions("ms", "seq")
    for _ in range(2):
        write(frame, streams, stream=streams.name("copy"), keepIds="true", writeId="replay")
    assert streams.entries("copy") == streams.entries()
    with pytest.raises(PySparkException, match=r"has later entries already.* nothing"):
        write(frame, streams, stream=streams.name("copy"), keepIds="true")
    assert streams.entries("copy") == streams.entries()


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["9-0", "10-0", "10-0"], "10-0 .* does not follow 10-0"),
        (["10-0", "9-0"], r"9-0 .* does not follow 10-0.*sortWithinPartitions"),
        (["0-0"], "0-0 .* does not follow 0-0"),
        (["5-0", None], "null in column 'id'"),
        (["five"], "'five' is not an entry ID"),
    ],
)
def test_ids_that_redis_would_refuse_are_refused_before_their_call(
    streams: Streams, ids: list[str | None], words: str
) -> None:
    options = parse_write_options(streams.options | {"stream": streams.name(), "keepIds": "true"})
    batch = pa.record_batch({"id": pa.array(ids, pa.string()), "a": ["x"] * len(ids)})
    with pytest.raises(BadValue, match=words):
        append_all(iter([batch]), columns("id", "a"), options, "replay")
    assert streams.entries() == []


def test_a_call_below_the_end_of_a_stream_appends_nothing(streams: Streams) -> None:
    streams.add({"a": "1"}, ids=["7-0"])
    options = parse_write_options(streams.options | {"stream": streams.name(), "keepIds": "true"})
    batch = pa.record_batch({"id": ["6-0", "8-0"], "a": ["x", "y"]})
    with pytest.raises(ServerError, match="has later entries already"):
        append_all(iter([batch]), columns("id", "a"), options, "replay")
    assert streams.ids() == ["7-0"]
