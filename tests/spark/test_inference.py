"""Columns that are inferred from entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_redis_streams import DefaultSource
from pyspark_redis_streams.errors import OptionError, StreamMissing
from tests.spark.streams import Streams

BASE = "`stream` STRING, `id` STRING, `ms` BIGINT, `seq` BIGINT, `ts` TIMESTAMP, "


def inferred(streams: Streams, name: str = "orders", **options: str) -> str:
    """The columns of fields."""
    if "streamPattern" not in options:
        options.setdefault("stream", streams.name(name))
    source = DefaultSource(options=streams.options | {"inferSchema": "true"} | options)
    schema = source.schema()
    assert schema.startswith(BASE)
    return schema.removeprefix(BASE)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-5", "+7"], "BIGINT"),
        (["1", "2.5", "1e3"], "DOUBLE"),
        (["true", "false", "TRUE"], "BOOLEAN"),
        (["2026-02-28T12:00:00Z", "2026-02-28 12:00:00.5+01:00"], "TIMESTAMP"),
        (["2026-02-28T12:00:00"], "STRING"),
        (["2026-02-28"], "STRING"),
        (["1", "x"], "STRING"),
        (["1", ""], "STRING"),
        (["1", "true"], "BOOLEAN"),
        (["5", "2026-02-28T12:00:00Z"], "STRING"),
        (["9223372036854775807"], "BIGINT"),
        (["9223372036854775808", "1"], "STRING"),
        (["9223372036854775808.5"], "DOUBLE"),
        ([b"\xff", "a"], "BINARY"),
    ],
)
def test_a_type_fits_every_value(streams: Streams, values: list[Any], kind: str) -> None:
    streams.add(*({"a": value} for value in values))
    assert inferred(streams) == f"`a` {kind}"


def test_fields_are_columns_in_their_order(spark: SparkSession, streams: Streams) -> None:
    streams.add({"b": 1, "a": "x"}, {"a": "y", "c`d": "true", b"\xff": "1"})
    reader = spark.read.format("redis_streams").options(**streams.options, inferSchema="true")
    frame = reader.load(streams.name())
    assert frame.columns[5:8] == ["b", "a", "c`d"]
    rows = frame.select("b", "a", "`c``d`").collect()
    assert [tuple(row) for row in rows] == [(1, "x", None), (None, "y", True)]


def test_both_ends_of_each_stream_are_looked_at(streams: Streams) -> None:
    streams.fill(1000)
    streams.add({"late": "1"})
    streams.add({"other": "true"}, name="orders-2")
    pattern = f"{streams.prefix}*"
    assert inferred(streams, streamPattern=pattern) == (
        "`number` BIGINT, `tenant` STRING, `late` BIGINT, `other` BOOLEAN"
    )


def test_large_entries_end_a_sample(streams: Streams) -> None:
    streams.add(*({f"f{n // 10}": "x" * 200_000} for n in range(60)))
    assert inferred(streams) == "`f0` STRING, `f5` STRING"


def test_a_value_that_does_not_fit_follows_the_mode(spark: SparkSession, streams: Streams) -> None:
    streams.fill(1000)
    entry_id = f"{1_700_000_000_000 + 50}-0"
    entries = streams.entries()
    streams.client.delete(streams.name())
    fields = [{b"number": b"many"} if at == 500 else old for at, (_, old) in enumerate(entries)]
    streams.add(*fields, ids=[old.decode() for old, _ in entries])
    reader = spark.read.format("redis_streams").options(**streams.options, inferSchema="true")
    assert reader.load(streams.name()).where("number IS NULL").count() == 1
    with pytest.raises(PySparkException, match=f"entry {entry_id} .* does not fit"):
        reader.option("mode", "FAILFAST").load(streams.name()).collect()


def test_an_inferred_field_named_like_a_base_column_is_refused(
    streams: Streams,
) -> None:
    streams.add({"id": "mine", "a": "1"})
    words = "option 'inferSchema' declares 'id', which is a base column .* 'fieldPrefix'"
    with pytest.raises(OptionError, match=words):
        inferred(streams)
    assert inferred(streams, fieldPrefix="f_") == "`f_id` STRING, `f_a` BIGINT"


def test_names_that_differ_in_case_are_two_columns_as_in_declared_columns(
    spark: SparkSession, streams: Streams
) -> None:
    streams.add({"city": "a", "City": "b"})
    frames = [
        spark.read.format("redis_streams").options(**streams.options, **option).load(streams.name())
        for option in [{"columns": "city STRING, City STRING"}, {"inferSchema": "true"}]
    ]
    assert frames[0].columns == frames[1].columns
    assert [row[5:] for row in frames[1].collect()] == [("a", "b")]


def test_without_entries_columns_must_be_declared(streams: Streams) -> None:
    with pytest.raises(StreamMissing, match="does not exist"):
        inferred(streams)
    words = "no entry to infer columns from: declare them by option 'columns'"
    with pytest.raises(OptionError, match=words):
        inferred(streams, missingStream="empty")
    streams.client.xtrim(streams.add({"a": 1}), maxlen=0)
    with pytest.raises(OptionError, match=words):
        inferred(streams)


def test_a_schema_as_well_is_refused(spark: SparkSession, streams: Streams) -> None:
    streams.add({"a": "1"})
    reader = spark.read.format("redis_streams").options(**streams.options, inferSchema="true")
    with pytest.raises(PySparkException, match="option 'inferSchema' is given, and a schema as"):
        reader.schema("a INT").load(streams.name()).count()


def test_a_query_infers_its_columns(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.fill(30)
    options = streams.options | {"inferSchema": "true", "startingId": "earliest"}
    frame = spark.readStream.format("redis_streams").options(**options).load(streams.name())
    assert frame.dtypes[5:] == [("number", "bigint"), ("tenant", "string")]
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.format("memory").queryName("inferred_of_a_test").trigger(availableNow=True)
    query.start().awaitTermination()
    assert spark.sql("SELECT sum(number) FROM inferred_of_a_test").first() == (435,)


def test_a_table_keeps_the_columns_that_it_was_created_with(
    spark: SparkSession, streams: Streams
) -> None:
    streams.fill(3)
    given = streams.options | {"stream": streams.name(), "inferSchema": "true"}
    pairs = ", ".join(f"{name} '{value}'" for name, value in given.items())
    spark.sql("DROP TABLE IF EXISTS inferred_of_a_test")
    try:
        spark.sql(f"CREATE TABLE inferred_of_a_test USING redis_streams OPTIONS ({pairs})")
        streams.add({"later": "1"})
        frame = spark.table("inferred_of_a_test")
        assert frame.columns[5:] == ["number", "tenant"]
        assert frame.count() == 4
    finally:
        spark.sql("DROP TABLE IF EXISTS inferred_of_a_test")
