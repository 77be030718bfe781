"""Entries become columns: types, repeated and missing fields, and values that do not fit."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_redis_streams.columns.batches import BatchBuilder
from pyspark_redis_streams.errors import BadValue, SchemaError
from pyspark_redis_streams.options.option import Use
from pyspark_redis_streams.options.parsed import parse_read_options

Entry = list[Any]

HASH_OF_A_1 = -6838077682868812752  # by the documented recipe, done by hand


def schema(**columns: DataType) -> StructType:
    built = StructType()
    for name, kind in columns.items():
        built.add(name, kind)
    return built


def entry(*pairs: tuple[bytes, bytes], id: bytes = b"5-1") -> Entry:  # noqa: A002
    return [id, [part for pair in pairs for part in pair]]


def build(wanted: StructType, *entries: Entry, **given: str) -> list[dict[str, Any]]:
    """The rows of one page, by a builder that Spark would accept the batch of."""
    options = parse_read_options({"stream": "orders"} | given, Use.READ)
    builder = BatchBuilder(wanted, options)
    builder.add("orders", list(entries))
    batch = builder.finish()
    assert batch.schema.equals(to_arrow_schema(wanted, timezone="UTC"))
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (StringType(), "é".encode(), "é"),
        (StringType(), b"", ""),
        (BinaryType(), b"\xff\x00", b"\xff\x00"),
        (IntegerType(), b"-12", -12),
        (IntegerType(), b"+5", 5),
        (LongType(), b"+9223372036854775807", 2**63 - 1),
        (DoubleType(), b"+5", 5.0),
        (DoubleType(), b"+.5e1", 5.0),
        (DecimalType(10, 2), b"+12.34", Decimal("12.34")),
        (TimestampType(), b"+1700000000123", datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)),
        (ByteType(), b"127", 127),
        (LongType(), b"9223372036854775807", 2**63 - 1),
        (DoubleType(), b"1.5e3", 1500.0),
        (BooleanType(), b"true", True),
        (BooleanType(), b"0", False),
        (DecimalType(10, 2), b"12.34", Decimal("12.34")),
        (DateType(), b"2026-02-28", date(2026, 2, 28)),
        (TimestampType(), b"1700000000123", datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)),
        (TimestampType(), b"2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        (TimestampType(), b"2026-01-01T02:00:00+02:00", datetime(2026, 1, 1, tzinfo=UTC)),
        (TimestampType(), b"2026-01-01 00:00:00", datetime(2026, 1, 1, tzinfo=UTC)),
        (TimestampNTZType(), b"2026-01-01 00:00:00", datetime(2026, 1, 1)),  # noqa: DTZ001
        (ArrayType(LongType()), b"[1, null]", [1, None]),
        (MapType(StringType(), DoubleType()), b'{"a": 1.5}', [("a", 1.5)]),
        (StructType().add("a", "integer").add("b", "string"), b'{"a": 1, "c": 2}',
         {"a": 1, "b": None}),
        (StructType().add("d", "decimal(10,2)"), b'{"d": 0.10}', {"d": Decimal("0.10")}),
        (StructType().add("s", "string"), b'{"s": {"x": [1]}}', {"s": '{"x":[1]}'}),
        (StructType().add("b", "binary"), b'{"b": "/wA="}', {"b": b"\xff\x00"}),
        (StructType().add("t", "timestamp"), b'{"t": 1700000000123}',
         {"t": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)}),
    ],
)  # fmt: skip
def test_a_value_is_read_as_its_type(kind: DataType, text: bytes, value: object) -> None:
    rows = build(schema(x=kind), entry((b"x", text)), entry((b"y", b"other")))
    assert [row["x"] for row in rows] == [value, None]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (StringType(), b"\xff"),
        (IntegerType(), b""),
        (IntegerType(), b" 12"),
        (IntegerType(), b"0x10"),
        (LongType(), b"-0X1f"),
        (IntegerType(), b"+-5"),
        (IntegerType(), b"++5"),
        (IntegerType(), b"+"),
        (DoubleType(), b"0x10"),
        (DecimalType(10, 2), b"0x10"),
        (TimestampType(), b"0x10"),
        (IntegerType(), b"1.5"),
        (ByteType(), b"128"),
        (DoubleType(), b"1,5"),
        (BooleanType(), b"yes"),
        (DecimalType(4, 2), b"123.45"),
        (DateType(), b"28.02.2026"),
        (TimestampType(), b"yesterday"),
        (TimestampType(), b"99999999999999999"),
        (StructType().add("a", "integer"), b"{"),
        (StructType().add("a", "integer"), b'{"a": "1"}'),
        (StructType().add("a", "integer"), b'{"a": 2147483648}'),
        (StructType().add("a", "double"), b'{"a": NaN}'),
        (ArrayType(LongType()), b'{"a": 1}'),
    ],
)
def test_a_bad_value_follows_the_mode(kind: DataType, text: bytes) -> None:
    entries = [entry((b"x", text)), *[entry((b"y", b"fine")) for _ in range(3)]]
    wanted = schema(x=kind, y=StringType(), _corrupt_record=StringType())
    rows = build(wanted, *entries)
    assert [row["y"] for row in rows] == [None, "fine", "fine", "fine"]
    assert rows[0]["x"] is None
    shown = {"x": text.decode("utf-8", "backslashreplace")}
    assert json.loads(rows[0]["_corrupt_record"]) == shown
    assert [row["_corrupt_record"] for row in rows[1:]] == [None] * 3
    assert len(build(wanted, *entries, mode="DROPMALFORMED")) == 3
    with pytest.raises(BadValue, match="entry 5-1 of stream 'orders' does not fit column 'x'"):
        build(wanted, *entries, mode="FAILFAST")


def test_base_columns_come_from_the_id() -> None:
    wanted = schema(
        id=StringType(), ms=LongType(), seq=LongType(), ts=TimestampType(), stream=StringType()
    )
    [row] = build(wanted, entry(id=b"1700000000123-7"))
    assert row == {
        "id": "1700000000123-7",
        "ms": 1_700_000_000_123,
        "seq": 7,
        "ts": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        "stream": "orders",
    }


def test_id_parts_beyond_bigint_are_null_and_exact_as_decimal() -> None:
    largest = 2**64 - 1
    entries = [entry(id=b"%d-%d" % parts) for parts in ((5, largest), (2**63, 1), (2**63 - 1, 2))]
    wanted = schema(id=StringType(), ms=LongType(), seq=LongType())
    assert build(wanted, *entries) == [
        {"id": f"5-{largest}", "ms": 5, "seq": None},
        {"id": f"{2**63}-1", "ms": None, "seq": 1},
        {"id": f"{2**63 - 1}-2", "ms": 2**63 - 1, "seq": 2},
    ]
    exact = schema(ms=DecimalType(20, 0), seq=DecimalType(20, 0))
    assert build(exact, entries[0]) == [{"ms": Decimal(5), "seq": Decimal(largest)}]


def test_a_not_null_bigint_is_too_narrow_for_some_ids() -> None:
    wanted = StructType().add("seq", LongType(), nullable=False)
    with pytest.raises(BadValue, match=r"declare it as DECIMAL\(20, 0\)"):
        build(wanted, entry(id=b"5-18446744073709551615"))


def test_an_id_beyond_the_calendar_has_no_time() -> None:
    assert build(schema(ts=TimestampType()), entry(id=b"18446744073709551615-0")) == [{"ts": None}]


@pytest.mark.parametrize(("rule", "value"), [("last", "2"), ("first", "1")])
def test_a_repeated_field_has_the_value_that_the_option_says(rule: str, value: str) -> None:
    twice = entry((b"a", b"1"), (b"b", b"x"), (b"a", b"2"))
    other = entry((b"b", b"y"))
    for page in ([twice, twice], [twice, other]):
        assert build(schema(a=StringType()), *page, duplicateFields=rule)[0] == {"a": value}
        raw = schema(fields=MapType(StringType(), BinaryType()))
        [row, *_] = build(raw, *page, duplicateFields=rule)
        assert dict(row["fields"]) == {"a": value.encode(), "b": b"x"}


def test_repeated_fields_are_kept_on_request() -> None:
    pair = StructType().add("name", "string").add("value", "binary")
    twice = entry((b"a", b"1"), (b"a", b"2"))
    [row] = build(schema(fields=ArrayType(pair)), twice, duplicateFields="keep")
    assert row["fields"] == [{"name": "a", "value": b"1"}, {"name": "a", "value": b"2"}]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "FAILFAST", "DROPMALFORMED"])
def test_a_field_name_that_is_not_utf_8_is_shown_with_escapes(mode: str) -> None:
    odd = entry((b"a", b"1"), (b"\xff", b"2"), (rb"\xff", b"3"), ("é".encode(), b"4"))
    raw = schema(id=StringType(), fields=MapType(StringType(), BinaryType()))
    rows = build(raw, entry((b"a", b"1")), odd, entry((b"b", b"3")), mode=mode)
    assert [row["fields"] for row in rows] == [
        [("a", b"1")],
        [("a", b"1"), (r"\\xff", b"2"), (r"\xff", b"3"), ("é", b"4")],
        [("b", b"3")],
    ]
    pair = StructType().add("name", "string").add("value", "binary")
    twice = entry((b"\xff", b"1"), (b"\xff", b"2"))
    [row] = build(schema(fields=ArrayType(pair)), twice, duplicateFields="keep", mode=mode)
    assert row["fields"] == [{"name": r"\xff", "value": b"1"}, {"name": r"\xff", "value": b"2"}]


def test_a_map_value_that_is_not_utf_8_follows_the_mode() -> None:
    odd = entry((b"a", b"1"), (b"b", b"x\xff"))
    wanted = schema(fields=MapType(StringType(), StringType()), _corrupt_record=StringType())
    rows = build(wanted, odd, entry((b"c", b"2")))
    assert [row["fields"] for row in rows] == [[("a", "1"), ("b", "x\ufffd")], [("c", "2")]]
    assert json.loads(rows[0]["_corrupt_record"]) == {"a": "1", "b": r"x\xff"}
    with pytest.raises(BadValue, match="does not fit column 'fields'"):
        build(wanted, odd, mode="FAILFAST")


def test_trailing_fields_are_read_where_an_entry_ends_with_all_of_them() -> None:
    wanted = schema(of=StringType(), a=StringType())
    entries = [
        entry((b"a", b"1"), (b"of", b"x"), (b"n", b"1")),
        entry((b"of", b"x"), (b"a", b"2"), (b"of", b"y"), (b"n", b"1")),
        entry((b"of", b"x"), (b"n", b"1"), (b"a", b"3")),
        entry((b"n", b"1"), (b"of", b"x")),
        entry((b"of", b"x"), (b"a", b"4"), (b"n", b"1")),
        entry((b"n", b"1")),
        entry((b"of", b"z"), (b"n", b"1")),
    ]
    for duplicates in ("first", "last"):
        rows = build(wanted, *entries, trailingFields="of,n", duplicateFields=duplicates)
        assert [row["of"] for row in rows] == ["x", "y", None, None, None, None, "z"]
        assert [row["a"] for row in rows] == ["1", "2", "3", None, "4", None, None]
    [row] = build(wanted, entry((b"of", b"x"), (b"a", b"1")), trailingFields='["of", "n"]')
    assert row == {"of": None, "a": "1"}


def test_a_prefix_reads_fields_named_as_base_columns() -> None:
    wanted = schema(id=StringType(), f_id=StringType())
    [row] = build(wanted, entry((b"id", b"mine")), fieldPrefix="f_")
    assert row == {"id": "5-1", "f_id": "mine"}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (schema(id=IntegerType()), "column 'id' is declared as int"),
        (schema(ts=StringType()), "must be timestamp"),
    ],
)
def test_a_base_column_has_its_own_type(wanted: StructType, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        build(wanted, entry())


def test_computed_columns_need_no_payload() -> None:
    wanted = schema(hash=LongType(), bytes=LongType())
    longer, plain = entry((b"a", b"1"), (b"b", b"22")), entry((b"a", b"1"))
    rows = build(wanted, longer, plain, plain, computed="hash,bytes")
    assert [row["bytes"] for row in rows] == [5, 2, 2]
    assert rows[1]["hash"] == rows[2]["hash"] != rows[0]["hash"]


def test_the_hash_is_the_same_everywhere() -> None:
    [row] = build(schema(hash=LongType()), entry((b"a", b"1")), computed="hash")
    assert row["hash"] == HASH_OF_A_1


texts = st.binary(max_size=6)
pages = st.lists(
    st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), texts), max_size=4),
    min_size=1, max_size=20,
)  # fmt: skip


@given(pages)
def test_any_mixture_of_layouts_gives_what_a_dictionary_would(
    page: list[list[tuple[bytes, bytes]]],
) -> None:
    entries = [entry(*pairs) for pairs in page]
    wanted = schema(a=BinaryType(), c=BinaryType(), fields=MapType(BinaryType(), BinaryType()))
    for row, pairs in zip(build(wanted, *entries), page, strict=True):
        assert row["a"] == dict(pairs).get(b"a")
        assert row["c"] == dict(pairs).get(b"c")
        assert dict(row["fields"]) == dict(pairs)
