"""What a user of Spark sees when something is wrong: one sentence, and nothing of the inside."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.redis_fixtures import RunRedis
from tests.spark.streams import Streams


def complaint(action: Callable[[], Any]) -> str:
    """The line of an error that speaks to the user."""
    with pytest.raises(PySparkException) as raised:
        action()
    lines = [line for line in str(raised.value).splitlines() if "pyspark_redis_streams" in line]
    inside = [line for line in lines if line.strip().startswith("File")]
    assert len(inside) == 1, "one frame shows where the error comes from, not how it came about"
    [told] = [line for line in lines if line.startswith("pyspark_redis_streams.errors.")]
    return told.removeprefix("pyspark_redis_streams.errors.")


def read(spark: SparkSession, streams: Streams, **options: Any) -> Callable[[], Any]:
    reader = spark.read.format("redis_streams").options(**streams.options)
    return lambda: reader.options(**({"stream": streams.name()} | options)).load().collect()


def test_a_misspelt_option(spark: SparkSession, streams: Streams) -> None:
    told = complaint(read(spark, streams, pageSise=5))
    assert told == "OptionError: unknown option 'pagesise': did you mean 'pageSize'?"


def test_an_option_of_another_type(spark: SparkSession, streams: Streams) -> None:
    told = complaint(read(spark, streams, pageSize="many"))
    assert told.startswith("OptionError: option 'pageSize' is 'many' but must be a whole number")


def test_a_missing_stream(spark: SparkSession, streams: Streams) -> None:
    told = complaint(read(spark, streams))
    assert told.startswith(f"StreamMissing: stream '{streams.name()}' does not exist")


def test_a_pattern_without_streams(spark: SparkSession, streams: Streams) -> None:
    reader = spark.read.format("redis_streams").options(**streams.options)
    told = complaint(lambda: reader.option("streamPattern", "nothing-*").load().collect())
    assert told.startswith("StreamMissing: option 'streamPattern' is 'nothing-*'")


def test_a_missing_group(spark: SparkSession, streams: Streams) -> None:
    streams.fill(1)
    streams.client.xgroup_create(streams.name(), "mail", "0")
    told = complaint(read(spark, streams, view="pending", group="billing"))
    assert told.startswith("GroupMissing: option 'group' is 'billing'")
    assert told.endswith("it has mail")


def test_a_key_of_another_type(spark: SparkSession, streams: Streams) -> None:
    streams.client.set(streams.name(), "x")
    told = complaint(read(spark, streams))
    assert told.startswith("NotAStream: XINFO STREAM")


def test_a_column_of_a_base_name(spark: SparkSession, streams: Streams) -> None:
    reader = spark.read.format("redis_streams").options(**streams.options)
    told = complaint(lambda: reader.schema("id INT").load(streams.name()).collect())
    assert told.startswith("SchemaError: column 'id' is declared as int")


def test_a_bad_value(spark: SparkSession, streams: Streams) -> None:
    streams.add({"qty": "many"}, ids=["5-1"])
    told = complaint(read(spark, streams, columns="qty INT", mode="FAILFAST"))
    assert told.startswith(f"BadValue: entry 5-1 of stream '{streams.name()}' does not fit column")


def test_a_command_that_is_not_permitted(spark: SparkSession, run_redis: RunRedis) -> None:
    with Streams(run_redis(), "") as streams:
        streams.fill(10)
        streams.servers.acl_setuser("reader", "on", ">pass", "~*", "+@read", "-xrange", "+xinfo")
        told = complaint(read(spark, streams, username="reader", password="pass"))
        assert told.startswith("NotPermitted: XRANGE orders at localhost:")
        wrong = complaint(read(spark, streams, username="reader", password="wrong"))
        assert "does not let this user in" in wrong
        assert "wrong" not in wrong.replace("WRONGPASS", "").replace("wrong number", "")


def test_a_server_that_is_away(spark: SparkSession, run_redis: RunRedis) -> None:
    servers = run_redis()
    streams = Streams(servers, "")
    servers.stop()
    told = complaint(read(spark, streams))
    assert told.startswith("ServerUnavailable: XINFO STREAM")
    assert "tried 4 times" in told
    assert "'numRetries'" in told


def test_pushdown_without_sparks_setting(spark: SparkSession, streams: Streams) -> None:
    streams.fill(1)
    with pytest.raises(PySparkException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        read(spark, streams, pushdown="true")()
