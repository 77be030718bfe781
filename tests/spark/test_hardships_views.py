"""Views of very many rows, of odd names, and of objects that are being deleted."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.streams import Streams

CONSUMERS, GROUPS = 3000, 500
ODD = "\U0001f600 new\nline %41 : {} / .. \\ * ? [a], ' \" é}"
LONG = "é%" * 100  # 300 bytes
SMALL = f"{2**63 - 1}-{2**63 - 1}"
LARGE = f"{2**64 - 1}-{2**64 - 1}"


def load(
    spark: SparkSession, streams: Streams, view: str, schema: str | None = None, **options: Any
) -> DataFrame:
    reader = spark.read.format("redis_streams").options(**streams.options)
    reader = reader.schema(schema) if schema else reader
    return reader.options(**({"stream": streams.name(), "view": view} | options)).load()


@pytest.mark.full
def test_thousands_of_consumers_and_hundreds_of_groups_have_a_row_each(
    spark: SparkSession, streams: Streams
) -> None:
    streams.fill(CONSUMERS - 100)
    name = streams.name()
    many = streams.client.pipeline(transaction=False)
    many.xgroup_create(name, "mail", id="0")
    for number in range(CONSUMERS):
        many.xreadgroup("mail", f"worker-{number}", {name: ">"}, count=1)
    for number in range(GROUPS - 1):
        many.xgroup_create(name, f"group-{number}", id="$")
    many.execute()
    rows = load(spark, streams, "consumers", group="mail").collect()
    # Those that came too late have nothing pending, and are consumers nevertheless.
    assert len({row.consumer for row in rows}) >= CONSUMERS - 100
    assert sum(row.pending for row in rows) == CONSUMERS - 100
    groups = load(spark, streams, "groups").collect()
    assert len({row.group for row in groups}) == len(groups) == GROUPS
    pending = load(spark, streams, "pending", group="mail", pageSize=1000).collect()
    assert len({row.id for row in pending}) == len(pending) == CONSUMERS - 100


@pytest.mark.parametrize("name", [ODD, LONG])
def test_names_of_any_characters_are_shown_as_they_are(
    spark: SparkSession, streams: Streams, name: str
) -> None:
    stream = streams.add({"a": "1"}, name=name)
    streams.client.xgroup_create(stream, name, id="0")
    streams.client.xgroup_create(stream, "empty", id="0")
    streams.client.xgroup_createconsumer(stream, name, "idle")
    streams.client.xreadgroup(name, name, {stream: ">"})
    options = {"stream": stream, "group": name}
    [pending] = load(spark, streams, "pending", **options).collect()
    assert (pending.stream, pending.group, pending.consumer) == (stream, name, name)
    consumers = load(spark, streams, "consumers", **options).collect()
    assert {row.consumer: row.pending for row in consumers} == {name: 1, "idle": 0}
    assert load(spark, streams, "pending", stream=stream, group="empty").count() == 0
    assert load(spark, streams, "consumers", stream=stream, group="empty").count() == 0
    [entry] = load(spark, streams, "entries", stream=stream).collect()
    assert entry.stream == stream
    [one] = load(spark, streams, "streams", stream=stream).collect()
    assert (one.stream, one.groups) == (stream, 2)


def test_names_that_are_no_text_are_shown_with_escapes(
    spark: SparkSession, streams: Streams
) -> None:
    name = streams.add({"a": "1"})
    streams.client.xgroup_create(name, b"\xff\xfe", id="0")
    client: Any = streams.client
    client.xreadgroup(b"\xff\xfe", b"\xfd", {name: ">"})
    [group] = load(spark, streams, "groups").collect()
    assert (group.group, group.pending) == ("\\xff\\xfe", 1)
    [consumer] = load(spark, streams, "consumers").collect()
    assert (consumer.group, consumer.consumer, consumer.pending) == ("\\xff\\xfe", "\\xfd", 1)


def test_pending_ids_that_no_column_holds_are_null_and_can_be_read(
    spark: SparkSession, streams: Streams
) -> None:
    name = streams.add({"a": "1"}, {"a": "2"}, {"a": "3"}, ids=["0-1", SMALL, LARGE])
    streams.client.xgroup_create(name, "mail", id="0")
    streams.client.xreadgroup("mail", "a", {name: ">"}, count=2)
    few = load(spark, streams, "pending", group="mail").collect()
    assert [(row.id, row.ms, row.seq) for row in few] == [
        ("0-1", 0, 1), (SMALL, 2**63 - 1, 2**63 - 1),
    ]  # fmt: skip
    streams.client.xreadgroup("mail", "a", {name: ">"})
    *_, last = load(spark, streams, "pending", group="mail").collect()
    assert (last.id, last.ms, last.seq) == (LARGE, None, None)
    wide = "id STRING, ms DECIMAL(20, 0), seq DECIMAL(20, 0)"
    rows = load(spark, streams, "pending", wide, group="mail").collect()
    assert [(row.id, f"{row.ms}-{row.seq}") for row in rows] == [
        (entry_id, entry_id) for entry_id in ("0-1", SMALL, LARGE)
    ]
    [stream] = load(spark, streams, "streams").collect()
    assert (stream.first_id, stream.last_id) == ("0-1", LARGE)


def test_an_empty_stream_has_no_entries_and_a_row_of_its_own(
    spark: SparkSession, streams: Streams
) -> None:
    streams.client.xgroup_create(streams.name(), "mail", id="0", mkstream=True)
    assert load(spark, streams, "entries").count() == 0
    assert load(spark, streams, "pending", group="mail").count() == 0
    assert load(spark, streams, "consumers").count() == 0
    [stream] = load(spark, streams, "streams").collect()
    assert (stream.length, stream.entries_added, stream.first_id) == (0, 0, None)
