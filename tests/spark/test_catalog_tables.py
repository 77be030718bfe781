"""What a table of Spark's catalog keeps of its options, without a Spark."""

import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_redis_streams import DefaultSource
from pyspark_redis_streams.errors import BadValue, OptionError
from pyspark_redis_streams.spark_versions import arrow_schema
from tests.spark.streams import Streams


def source(**options: str) -> Any:
    return DefaultSource(options=options)


def created(**options: str) -> StructType:
    """The columns that Spark passes with each query of a table with these options."""
    properties = {f"option.{name}".lower(): value for name, value in options.items()}
    given = options | properties | {"provider": "redis_streams", "owner": "me", "team": "it's"}
    found = re.match(r"`stream` STRING COMMENT '([^'\\]*)', `id`", source(**given).schema())
    assert found is not None
    return (
        StructType()
        .add("stream", StringType(), metadata={"comment": found[1]})
        .add("id", StringType())
        .add("ms", LongType())
        .add("seq", LongType())
        .add("ts", TimestampType())
    )


def batch(columns: StructType, **row: Any) -> pa.RecordBatch:
    arrow = arrow_schema(columns)
    arrays = [pa.array([row.get(field.name)], field.type) for field in arrow]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def test_a_table_is_written_and_read_with_its_creation_options(
    streams: Streams,
) -> None:
    columns = created(
        **streams.options, stream=streams.name(), columns="`it's` STRING, f_id INT",
        fieldPrefix="f_", maxLen="100", maxEntriesPerTrigger="5",
    )  # fmt: skip
    columns = columns.add("it's", StringType()).add("f_id", IntegerType())
    row = {"it's": "a", "f_id": 7}
    writer = source().writer(columns, False)
    writer.commit([writer.write(iter([batch(columns, **row)]))])
    assert [fields for _, fields in streams.entries()] == [{b"it's": b"a", b"id": b"7"}]
    reader = source().reader(columns)
    [found] = [r for part in reader.partitions() for b in reader.read(part) for r in b.to_pylist()]
    assert {name: found[name] for name in row} == row
    for name, value in [("id", "5-0"), ("stream", streams.name()), ("ms", 5)]:
        with pytest.raises(BadValue, match=f"column '{name}' is no field"):
            writer.write(iter([batch(columns, **row | {name: value})]))
    assert len(streams.entries()) == 1


def test_options_of_a_table_are_taken_from_nowhere_else() -> None:
    columns = created(stream="orders").add("fields", MapType(StringType(), BinaryType()))
    source().writer(columns, False)
    bare = StructType([StructField(field.name, field.dataType) for field in columns.fields])
    with pytest.raises(OptionError, match="no option names the stream of the rows"):
        source().writer(bare, False)
    for given in ({"stream": "x"}, {"endingId": "5-0"}, {"maxLen": "5"}):
        words = f"option '{next(iter(given))}' is given to a table .* stream 'orders'.* Create a"
        with pytest.raises(OptionError, match=words):
            source(**given).reader(columns)
        with pytest.raises(OptionError, match=words):
            source(**given).writer(columns, False)
    with pytest.raises(OptionError, match=r"option 'keepIds' .* new ID"):
        source().writer(created(stream="orders", keepIds="true"), False)
    several = created(streams="a,b")
    with pytest.raises(OptionError, match="the table is not a single stream"):
        source().writer(several, False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"password": "x"}, "passwordFile"),
        ({"url": "redis://me:secret@host"}, "passwordFile"),
        ({"pageSise": "5"}, "did you mean 'pageSize'"),
        ({"maxLen": "x"}, "option 'maxLen' is 'x'"),
        ({"columns": "stream INT"}, "a base column"),
    ],
)
def test_a_table_is_not_created_with_options_that_cannot_be_kept(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        created(stream="orders", **options)
