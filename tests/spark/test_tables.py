"""Tables of Spark's catalog that are streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.streams import FIRST_MS, Streams

TABLE = "orders_of_a_test"


class Tables:
    """One table at a time, over a stream of the test."""

    def __init__(self, spark: SparkSession, streams: Streams) -> None:
        self._spark = spark
        self._streams = streams

    def create(self, listed: str = "", *, more: str = "", **options: str) -> None:
        """A table with these options; its stream is that of the test if none is named."""
        given = self._streams.options | options
        if not {"streams", "streamPattern"} & options.keys():
            given.setdefault("stream", self._streams.name())
        pairs = ", ".join(f"{name} '{value}'" for name, value in given.items())
        self.sql(f"CREATE TABLE {TABLE} {listed} USING redis_streams OPTIONS ({pairs}) {more}")

    def sql(self, statement: str) -> list[Any]:
        return self._spark.sql(statement).collect()

    def rows(self, rest: str = "") -> list[Any]:
        return self.sql(f"SELECT * FROM {TABLE} {rest}")


@pytest.fixture
def tables(spark: SparkSession, streams: Streams) -> Iterator[Tables]:
    spark.sql(f"DROP TABLE IF EXISTS {TABLE}")
    yield Tables(spark, streams)
    spark.sql(f"DROP TABLE IF EXISTS {TABLE}")


def test_a_table_is_read(tables: Tables, streams: Streams) -> None:
    streams.fill(30)
    tables.create(
        more="COMMENT 'its orders' TBLPROPERTIES ('owner.team' = 'it''s')",
        pageSize="7", streams=f'["{streams.name()}"]',
    )  # fmt: skip
    assert len(tables.rows()) == 30
    found = tables.sql(f"SELECT count(*) FROM {TABLE} WHERE ms >= {FIRST_MS + 2}")
    assert found == [(10,)]


ONE = f"SELECT id FROM {TABLE} WITH (endingId = '{FIRST_MS}-0')"


@pytest.mark.parametrize(
    "statement",
    [
        ONE,
        f"{ONE} UNION ALL SELECT id FROM {TABLE}",
        f"SELECT id FROM (SELECT id FROM {TABLE}) UNION ALL {ONE}",
        f"INSERT INTO {TABLE} WITH (maxLen = '5') (number) VALUES (1)",
    ],
)
def test_options_of_a_statement_are_refused(
    tables: Tables, streams: Streams, statement: str, request: pytest.FixtureRequest
) -> None:
    if statement.endswith(ONE) and statement != ONE:
        reason = "Spark drops the options of a table's second use before the source gets them"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    streams.fill(4)
    tables.create(columns="number INT")
    with pytest.raises(PySparkException, match="is given to a table of Spark's catalog"):
        tables.sql(statement)
    assert len(streams.entries()) == 4


def test_a_frame_of_a_table_takes_no_options_of_a_read(
    spark: SparkSession, tables: Tables, streams: Streams
) -> None:
    streams.fill(4)
    tables.create(columns="number INT")
    with pytest.raises(PySparkException, match="option 'endingid' is given to a table"):
        spark.read.option("endingId", "5-0").table(TABLE).count()
    assert len(tables.rows()) == 4


def sorted_by_id(entries: list[tuple[bytes, dict[bytes, bytes]]]) -> list[dict[bytes, bytes]]:
    return sorted((fields for _, fields in entries), key=lambda fields: fields[b"id"])


def test_rows_are_inserted_as_entries(tables: Tables, streams: Streams) -> None:
    tables.create(
        columns="order_id STRING, amount DOUBLE, f_id INT", fieldPrefix="f_", maxLen="1000",
    )  # fmt: skip
    tables.sql(f"INSERT INTO {TABLE} (order_id, amount, f_id) VALUES ('a', 1.5, 7), ('b', NULL, 8)")
    wanted = [
        {b"order_id": b"a", b"amount": b"1.5", b"id": b"7"}, {b"order_id": b"b", b"id": b"8"},
    ]  # fmt: skip
    # Tasks write at the same time: rows are entries in any order.
    assert sorted_by_id(streams.entries()) == wanted
    rows = sorted(tables.rows(), key=lambda row: row.f_id)
    assert [(row.order_id, row.amount, row.f_id) for row in rows] == [("a", 1.5, 7), ("b", None, 8)]
    fields = "order_id, amount, f_id"
    tables.sql(f"INSERT INTO {TABLE} ({fields}) SELECT {fields} FROM {TABLE}")
    assert sorted_by_id(streams.entries()[2:]) == wanted
    with pytest.raises(PySparkException, match="a stream is appended to"):
        tables.sql(f"INSERT OVERWRITE {TABLE} SELECT * FROM {TABLE}")
    assert len(streams.entries()) == 4


def test_a_table_of_all_fields_takes_fields(tables: Tables, streams: Streams) -> None:
    streams.add({"a": b"\x00\x01", "b": "x"}, {"c": "y"})
    tables.create()
    tables.sql(f"INSERT INTO {TABLE} (fields) SELECT fields FROM {TABLE}")
    fields = [fields for _, fields in streams.entries()]
    assert fields[2:] == fields[:2] == [{b"a": b"\x00\x01", b"b": b"x"}, {b"c": b"y"}]


@pytest.mark.full
def test_no_row_goes_to_the_stream_of_another_table(
    spark: SparkSession, tables: Tables, streams: Streams
) -> None:
    streams.add({"n": 1})
    tables.create(columns="n INT")
    given = streams.options | {"stream": streams.name("copy"), "columns": "n INT"}
    pairs = ", ".join(f"{name} '{value}'" for name, value in given.items())
    spark.sql("DROP TABLE IF EXISTS copy_of_a_test")
    spark.sql(f"CREATE TABLE copy_of_a_test USING redis_streams OPTIONS ({pairs})")
    try:
        for statement, words in [
            (f"INSERT INTO copy_of_a_test SELECT * FROM {TABLE}", "is no field"),
            (f"INSERT INTO copy_of_a_test (stream, n) SELECT stream, n FROM {TABLE}", "no field"),
        ]:
            with pytest.raises(PySparkException, match=words):
                tables.sql(statement)
        rows = spark.createDataFrame([(None, None, None, None, None, 2)], spark.table(TABLE).schema)
        rows = rows.select(*(rows[name].alias(name, metadata={}) for name in rows.columns))
        with pytest.raises(PySparkException, match="no option names the stream of the rows"):
            rows.writeTo("copy_of_a_test").append()
        assert streams.entries("copy") == []
        assert len(streams.entries()) == 1
        spark.sql(f"INSERT INTO copy_of_a_test (n) SELECT n FROM {TABLE}")
        assert [fields for _, fields in streams.entries("copy")] == [{b"n": b"1"}]
    finally:
        spark.sql("DROP TABLE IF EXISTS copy_of_a_test")


def test_a_table_is_a_stream_of_micro_batches(
    spark: SparkSession, tables: Tables, streams: Streams, tmp_path: Path
) -> None:
    streams.fill(30)
    tables.create(columns="number INT", startingId="earliest", maxLen="1000")
    frame = spark.readStream.table(TABLE)
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.format("memory").queryName("rows_of_a_test").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.table("rows_of_a_test").count() == 30


def test_columns_of_a_table_do_not_bring_its_options_elsewhere(
    spark: SparkSession, tables: Tables, streams: Streams
) -> None:
    tables.create(columns="n INT")
    reader = spark.read.format("redis_streams").schema(spark.table(TABLE).schema)
    with pytest.raises(PySparkException, match="remove the comment of the first column"):
        reader.options(**streams.options).load(streams.name("another")).count()


@pytest.mark.full
def test_another_view_is_a_table_too(tables: Tables, streams: Streams) -> None:
    streams.fill(3)
    streams.client.xgroup_create(streams.name(), "billing", "0")
    tables.create(view="groups")
    assert [(row.group, row.lag) for row in tables.rows()] == [("billing", 3)]


def test_a_table_is_refused_with_what_cannot_be_read(tables: Tables) -> None:
    for options, words in [
        ({"pageSise": "7"}, "did you mean 'pageSize'"),
        ({"password": "x"}, "give the password by option 'passwordFile'"),
        ({"pageSize": "0"}, "option 'pageSize' is '0' but must be"),
        ({"maxLen": "x"}, "option 'maxLen' is 'x' but must be"),
    ]:
        with pytest.raises(PySparkException, match=words):
            tables.create(**options)


def test_a_table_that_lists_its_columns_says_what_to_do(tables: Tables) -> None:
    tables.create("(order_id STRING)")
    with pytest.raises(PySparkException, match="list them in option 'columns'"):
        tables.rows()


def test_a_temporary_view_keeps_its_options_by_itself(
    spark: SparkSession, streams: Streams
) -> None:
    streams.fill(5)
    pairs = ", ".join(f"{name} '{value}'" for name, value in streams.options.items())
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW view_of_a_test USING redis_streams"
        f" OPTIONS (stream '{streams.name()}', {pairs})"
    )
    assert spark.table("view_of_a_test").count() == 5
