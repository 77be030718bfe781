"""What PySpark's words mean for frames of the driver: nulls, joins, groups, types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pelops.pipeline.archive.footers import SCHEMA
from pelops.pipeline.engine.arrow.session import ArrowSession
from pelops.pipeline.engine.arrow.types import parse_schema
from pelops.pipeline.engine.arrow.writing import render_parquet
from pelops.pipeline.engine.functions import functions as F  # noqa: N812
from pelops.pipeline.engine.functions import on_driver

SESSION = ArrowSession(None)


@pytest.fixture(autouse=True)
def driver() -> Iterator[None]:
    with on_driver():
        yield


def frame(schema: str, *rows: tuple[Any, ...]) -> Any:
    return SESSION.createDataFrame(rows, schema)


def tuples(found: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in found.collect()]


def test_null_is_neither_true_nor_false() -> None:
    rows = frame("a boolean, b bigint", (True, 1), (False, None), (None, 3))
    a, b = F.col("a"), F.col("b")
    told = rows.select(
        (a & F.lit(False)).alias("and_false"),
        (a | F.lit(True)).alias("or_true"),
        (~a).alias("no"),
        (b == 1).alias("is_1"),
        b.isin(1, 2).alias("in"),
        b.eqNullSafe(F.lit(None)).alias("same"),
        F.coalesce("b", F.lit(7)).alias("or_7"),
    )
    assert tuples(told) == [
        (False, True, False, True, True, False, 1),
        (False, True, True, None, None, True, 7),
        (False, True, None, False, False, False, 3),
    ]
    assert tuples(rows.where(b > 1)) == [(None, 3)]


def test_the_first_condition_that_holds_decides_and_costly_values_are_worked_out_where_needed() -> (
    None
):
    asked: list[int] = []

    def double(number: int) -> int:
        asked.append(number)
        return number * 2

    ask = F.udf(double, "BIGINT", useArrow=False)
    rows = frame("n bigint", (1,), (5,), (9,), (None,))
    chosen = F.when(F.col("n") < 4, F.lit(0)).when(F.col("n") < 8, ask("n"))
    assert tuples(rows.select(chosen.alias("x"))) == [(0,), (10,), (None,), (None,)]
    assert asked == [5]


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("inner", [(1, 2, "a", "x"), (1, 2, "a", "y")]),
        ("left", [(1, 2, "a", "x"), (1, 2, "a", "y"), (1, None, "b", None), (3, 4, "c", None)]),
        (
            "full_outer",
            [
                (1, 2, "a", "x"), (1, 2, "a", "y"), (1, None, "b", None), (3, 4, "c", None),
                (1, None, None, "n"), (9, 9, None, "z"),
            ],
        ),
        ("left_anti", [(1, None, "b"), (3, 4, "c")]),
        ("left_semi", [(1, 2, "a")]),
    ],
)  # fmt: skip
def test_rows_are_joined_and_null_is_like_nothing(how: str, wanted: list[Any]) -> None:
    one = frame("ms bigint, seq bigint, l string", (1, 2, "a"), (1, None, "b"), (3, 4, "c"))
    two = frame(
        "ms bigint, seq bigint, r string", (1, 2, "x"), (1, 2, "y"), (1, None, "n"), (9, 9, "z")
    )
    assert tuples(one.join(two, ["ms", "seq"], how)) == wanted


def test_columns_of_one_name_are_refused() -> None:
    one = frame("a bigint, b bigint", (1, 2))
    with pytest.raises(ValueError, match="two columns 'b'"):
        one.join(one, "a")
    with pytest.raises(KeyError, match="no column 'c' among a, b"):
        one.select("c")


def test_groups_tell_of_their_rows() -> None:
    rows = frame(
        "k string, n bigint, m bigint", ("a", 3, 1), ("b", None, 2), ("a", 1, 9), ("a", 2, 5)
    )
    told = rows.groupBy("k").agg(
        F.count("*").alias("rows"),
        F.count("n").alias("known"),
        F.sum("n").alias("sum"),
        F.min("n").alias("least"),
        F.max_by(F.struct("n", "m"), "m").alias("last"),
        F.min_by("n", "m", 2).alias("first"),
        F.count_if(F.col("m") > 4).alias("many"),
        F.percentile(F.col("n"), F.lit(0.25)).alias("p25"),
    )
    assert [row.asDict(recursive=True) for row in told.collect()] == [
        {
            "k": "a", "rows": 3, "known": 3, "sum": 6, "least": 1, "last": {"n": 1, "m": 9},
            "first": [3, 2], "many": 2, "p25": 1.5,
        },
        {
            "k": "b", "rows": 1, "known": 0, "sum": None, "least": None,
            "last": {"n": None, "m": 2}, "first": [None], "many": 0, "p25": None,
        },
    ]  # fmt: skip
    none = rows.where(F.lit(False)).agg(F.count("*").alias("n"), F.max("m").alias("m"))
    assert tuples(none) == [(0, None)]
    assert tuples(rows.groupBy().count()) == [(4,)]


def test_structs_are_compared_and_sorted_field_by_field_and_null_comes_first() -> None:
    rows = frame("ms bigint, seq bigint", (2, 1), (1, 9), (2, 0), (None, 5))
    place = F.struct("ms", "seq")
    assert tuples(rows.orderBy(place)) == [(None, 5), (1, 9), (2, 0), (2, 1)]
    assert tuples(rows.orderBy(F.desc("ms"), "seq")) == [(2, 0), (2, 1), (1, 9), (None, 5)]
    before = place < F.struct(F.lit(2), F.lit(1))
    assert tuples(rows.where(before)) == [(1, 9), (2, 0)]


def test_texts_that_are_all_null_stay_rows() -> None:
    rows = frame("a string, b bigint", ("x", 1), (None, 2), (None, None))
    joined = rows.select(F.concat_ws("-", "a", "b").alias("t"))
    assert tuples(joined) == [("x-1",), ("2",), ("",)]


def test_a_type_that_no_column_can_have_is_refused_before_it_is_written() -> None:
    with pytest.raises(TypeError, match="column 'x' has no type"):
        render_parquet(frame("a bigint", (1,)).withColumn("x", F.lit(None)))
    with pytest.raises(TypeError, match="no type holds all of"):
        frame("a bigint", (1,)).select((F.col("a") == "1").alias("x"))


def test_files_have_the_types_of_spark_and_its_note_of_them(tmp_path: Path) -> None:
    schema = "a bigint, b int, c string, d boolean, e array<struct<name: binary, value: binary>>"
    rows = frame(schema, (1, 2, "x", True, [{"name": b"n", "value": None}]), (None,) * 5)
    file = tmp_path / "part-00000.parquet"
    file.write_bytes(render_parquet(rows))
    assert file.read_bytes() == render_parquet(rows)
    found = pq.read_table(file)
    assert found.schema.equals(parse_schema(schema))
    noted = found.schema.metadata[SCHEMA.encode()].decode()
    for part in ('"name":"a"', '"type":"long"', '"type":"integer"', '"elementType"', '"binary"'):
        assert part in noted
    assert tuples(SESSION.read.parquet(str(file))) == tuples(rows)
    assert found.column("a").to_pylist() == pa.array([1, None]).to_pylist()
