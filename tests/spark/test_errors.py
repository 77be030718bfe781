"""Errors as users of the data source read them: one sentence, without internal details."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from local_cluster.redis_servers import ClusterServers, ServerOptions
from tests.redis_fixtures import RunRedis
from tests.spark.query import finish
from tests.spark.streams import Streams


def complaint(action: Callable[[], Any]) -> str:
    """The line of an error that speaks to the user."""
    with pytest.raises(PySparkException) as raised:
        action()
    lines = [line for line in str(raised.value).splitlines() if "pyspark_redis_streams" in line]
    inside = [line for line in lines if line.strip().startswith("File")]
    assert len(inside) == 1, "one frame shows where the error comes from, not how it came about"
    [reported] = [line for line in lines if line.startswith("pyspark_redis_streams.errors.")]
    return reported.removeprefix("pyspark_redis_streams.errors.")


def read(spark: SparkSession, streams: Streams, **options: Any) -> Callable[[], Any]:
    reader = spark.read.format("redis_streams").options(**streams.options)
    return lambda: reader.options(**({"stream": streams.name()} | options)).load().collect()


def test_a_misspelt_option(spark: SparkSession, streams: Streams) -> None:
    reported = complaint(read(spark, streams, pageSise=5))
    assert reported == "OptionError: unknown option 'pagesise': did you mean 'pageSize'?"


def test_an_option_of_another_type(spark: SparkSession, streams: Streams) -> None:
    reported = complaint(read(spark, streams, pageSize="many"))
    assert reported.startswith(
        "OptionError: option 'pageSize' is 'many' but must be a whole number"
    )


def test_a_missing_stream(spark: SparkSession, streams: Streams) -> None:
    reported = complaint(read(spark, streams))
    assert reported.startswith(f"StreamMissing: stream '{streams.name()}' does not exist")


@pytest.mark.full
def test_a_name_of_any_length(spark: SparkSession, streams: Streams) -> None:
    reported = complaint(read(spark, streams, stream="A" * 70_000))
    assert reported.startswith("StreamMissing: stream 'AAAA")
    assert reported.endswith("set option 'missingStream' to 'empty'")
    assert len(reported) < 2_100


def test_a_pattern_without_streams(spark: SparkSession, streams: Streams) -> None:
    reader = spark.read.format("redis_streams").options(**streams.options)
    reported = complaint(lambda: reader.option("streamPattern", "nothing-*").load().collect())
    assert reported.startswith("StreamMissing: option 'streamPattern' is 'nothing-*'")


def test_a_missing_group(spark: SparkSession, streams: Streams) -> None:
    streams.fill(1)
    streams.client.xgroup_create(streams.name(), "mail", "0")
    reported = complaint(read(spark, streams, view="pending", group="billing"))
    assert reported.startswith("GroupMissing: option 'group' is 'billing'")
    assert reported.endswith("it has mail")


def test_a_key_of_another_type(spark: SparkSession, streams: Streams) -> None:
    streams.client.set(streams.name(), "x")
    reported = complaint(read(spark, streams))
    assert reported.startswith("NotAStream: XINFO STREAM")


def test_a_column_of_a_base_name(spark: SparkSession, streams: Streams) -> None:
    reader = spark.read.format("redis_streams").options(**streams.options)
    reported = complaint(lambda: reader.schema("id INT").load(streams.name()).collect())
    assert reported.startswith("SchemaError: column 'id' is declared as int")


def test_a_key_of_another_type_is_named(spark: SparkSession, streams: Streams) -> None:
    streams.client.set(streams.name(), "x")
    assert f"XINFO STREAM {streams.name()} at" in complaint(read(spark, streams))


@pytest.mark.full
def test_a_key_of_another_type_that_is_written_to(spark: SparkSession, streams: Streams) -> None:
    streams.client.set(streams.name(), "x")
    frame = spark.range(1).toDF("quantity")
    writer = frame.write.format("redis_streams").options(**streams.options)
    reported = complaint(lambda: writer.mode("append").save(streams.name()))
    assert reported.startswith(f"NotAStream: EVAL {streams.name()} at localhost:")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("qty INTT", "declares 'qty INTT', but there is no type 'INTT': did you mean 'INT'?"),
        ("qty", "option 'columns' has 'qty': write each column as `name TYPE`"),
        ("a STRUCT<b: INT, c: STRING>, qty", "option 'columns' has 'qty'"),
        ("qty INT, qty STRING", "declares 'qty', which is declared already"),
        ("`ts` TIMESTAMP", "declares 'ts', which is a base column already"),
    ],
)
def test_columns_that_cannot_be_read_as_a_declaration(
    spark: SparkSession, streams: Streams, columns: str, words: str
) -> None:
    reported = complaint(read(spark, streams, columns=columns))
    assert reported.startswith("OptionError: option 'columns' ")
    assert words in reported


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("qty INT NOT NULL", "column 'qty' is declared as NOT NULL"),
        ("id STRING, qty INT, qty INT", "column 'qty' is declared twice"),
    ],
)
def test_a_schema_that_entries_cannot_fill(
    spark: SparkSession, streams: Streams, schema: str, words: str
) -> None:
    streams.fill(1)
    reader = spark.read.format("redis_streams").options(**streams.options)
    reported = complaint(lambda: reader.schema(schema).load(streams.name()).collect())
    assert reported.startswith("SchemaError: ")
    assert words in reported


def test_a_text_of_a_longest_length(spark: SparkSession, streams: Streams) -> None:
    reported = complaint(read(spark, streams, columns="qty VARCHAR(5)"))
    assert reported.startswith("SchemaError: column 'qty' is declared as varchar(5)")


def test_columns_and_a_schema(spark: SparkSession, streams: Streams) -> None:
    reader = spark.read.format("redis_streams").options(**streams.options, columns="qty INT")
    reported = complaint(lambda: reader.schema("id STRING").load(streams.name()).collect())
    assert (
        reported == "SchemaError: option 'columns' is given, and a schema as well: give one of them"
    )


def test_a_column_that_is_never_null_may_say_so(spark: SparkSession, streams: Streams) -> None:
    streams.fill(3)
    reader = spark.read.format("redis_streams").options(**streams.options)
    frame = reader.schema("id STRING NOT NULL, ms BIGINT NOT NULL").load(streams.name())
    assert frame.count() == 3


def test_a_streaming_read_that_is_refused_reports_only_why(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    reader = spark.readStream.format("redis_streams").options(**streams.options)
    frame = reader.option("maxEntriesPerTriger", 5).schema("id STRING").load(streams.name())
    writing = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    started: list[StreamingQuery] = []

    def start() -> StreamingQuery:
        started.append(writing.trigger(availableNow=True).start())
        return started[-1]

    reported = complaint(lambda: finish(start))
    assert reported.startswith("OptionError: unknown option 'maxentriespertriger'")
    assert "another exception" not in str(started[-1].exception())


def test_a_bad_value(spark: SparkSession, streams: Streams) -> None:
    streams.add({"qty": "many"}, ids=["5-1"])
    reported = complaint(read(spark, streams, columns="qty INT", mode="FAILFAST"))
    assert reported.startswith(
        f"BadValue: entry 5-1 of stream '{streams.name()}' does not fit column"
    )
    assert reported.endswith("'qty' (int); option 'mode' is FAILFAST")


def test_an_id_that_is_too_large_names_its_own_stream(
    spark: SparkSession, streams: Streams
) -> None:
    both = f"{streams.fill(5, name='a')},{streams.add({'n': 1}, name='b', ids=[f'5-{2**63}'])}"
    reader = spark.read.format("redis_streams").options(**streams.options, streams=both)
    reported = complaint(lambda: reader.schema("seq BIGINT NOT NULL").load().collect())
    assert f"stream '{streams.name('b')}' has IDs whose seq is 2^63 or more" in reported


def test_a_command_that_is_not_permitted(spark: SparkSession, run_redis: RunRedis) -> None:
    with Streams(run_redis(), "") as streams:
        streams.fill(10)
        streams.servers.acl_setuser("reader", "on", ">pass", "~*", "+@read", "-xrange", "+xinfo")
        reported = complaint(read(spark, streams, username="reader", password="pass"))
        assert reported.startswith("NotPermitted: XRANGE orders at localhost:")
        wrong = complaint(read(spark, streams, username="reader", password="wrong"))
        assert "does not let this user in" in wrong
        assert "wrong" not in wrong.replace("WRONGPASS", "").replace("wrong number", "")


def test_a_server_that_is_away(spark: SparkSession, run_redis: RunRedis) -> None:
    servers = run_redis()
    streams = Streams(servers, "")
    servers.stop()
    reported = complaint(read(spark, streams))
    assert reported.startswith("ServerUnavailable: XINFO STREAM")
    assert "tried 4 times" in reported
    assert "'numRetries'" in reported


def load_from(reader: DataFrameReader, port: int) -> None:
    reader.option("port", port).load("nobody-adds-to-this").collect()


@pytest.mark.full
def test_what_the_servers_arrangement_has_against_the_options(
    spark: SparkSession, streams: Streams, redis_cluster: ClusterServers
) -> None:
    reported = complaint(read(spark, streams, topology="cluster"))
    assert reported.endswith("check option 'topology': the server is not part of a cluster")
    assert reported.startswith("ServerError: CLUSTER SLOTS")
    assert "check option 'db'" in complaint(read(spark, streams, db=99))
    ports = [server.port for server in redis_cluster.servers]
    reader = spark.read.format("redis_streams")
    refusals = [complaint(partial(load_from, reader, port)) for port in ports]
    moved = [reported for reported in refusals if "does not exist" not in reported]
    assert len(moved) == len(ports) - 1
    assert all("set option 'topology' to 'cluster'" in reported for reported in moved)


@pytest.mark.full
def test_tls_that_does_not_come_about(
    spark: SparkSession, streams: Streams, run_redis: RunRedis
) -> None:
    missing = complaint(read(spark, streams, tls="true", tlsCaFile="/nowhere/ca.pem"))
    assert missing.startswith("OptionError: option 'tlsCaFile' names '/nowhere/ca.pem'")
    plain = complaint(read(spark, streams, tls="true", numRetries=0, connectTimeoutMs=300))
    assert plain.startswith("ServerUnavailable: XINFO STREAM")
    assert "'tls'" in plain
    secured = Streams(run_redis(options=ServerOptions(tls=True)), "")
    untrusted = complaint(read(spark, secured, tls="true"))
    assert untrusted.startswith("ServerError: the certificate of the server at localhost:")
    assert untrusted.endswith("check the options 'tlsCaFile' and 'tlsVerify'")
