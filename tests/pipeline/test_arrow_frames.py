"""What PySpark's words mean for frames of the driver: nulls, joins, groups, types."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pelops.pipeline.archive.footers import SCHEMA
from pelops.pipeline.engine.arrow.parquet_output import FileOfFrames, render_parquet
from pelops.pipeline.engine.arrow.session import ArrowSession
from pelops.pipeline.engine.arrow.values import parse_schema
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.engine.sql import on_driver

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
    reported = rows.select(
        (a & F.lit(False)).alias("and_false"),
        (a | F.lit(True)).alias("or_true"),
        (~a).alias("no"),
        (b == 1).alias("is_1"),
        b.isin(1, 2).alias("in"),
        b.eqNullSafe(F.lit(None)).alias("same"),
        F.coalesce("b", F.lit(7)).alias("or_7"),
    )
    assert tuples(reported) == [
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


@pytest.mark.parametrize("how", ["inner", "left", "full_outer", "left_anti", "left_semi"])
@pytest.mark.parametrize("is_unique", [True, False])
def test_joins_of_many_rows_find_what_each_row_finds_by_itself(how: str, is_unique: bool) -> None:
    chance = random.Random(how)
    ends = [None, -(2**63), -1, 0, 7, 2**63 - 1]

    def row() -> tuple[int | None, int | None]:
        return chance.choice([*ends, 1]), chance.choice([*ends, *range(20)])

    ours = [row() for _ in range(300)]
    theirs = [row() for _ in range(150)]
    if is_unique:
        theirs = list(dict.fromkeys(theirs))
    one = frame("ms bigint, seq bigint, l bigint", *((*key, n) for n, key in enumerate(ours)))
    two = frame("ms bigint, seq bigint, r bigint", *((*key, n) for n, key in enumerate(theirs)))
    wanted: list[tuple[Any, ...]] = []
    for n, key in enumerate(ours):
        found = [r for r, other in enumerate(theirs) if None not in key and other == key]
        if how in ("inner", "left", "full_outer"):
            wanted += [(*key, n, r) for r in found]
            wanted += [] if found or how == "inner" else [(*key, n, None)]
        elif bool(found) == (how == "left_semi"):
            wanted.append((*key, n))
    if how == "full_outer":
        known = {key for key in ours if None not in key}
        wanted += [(*key, None, r) for r, key in enumerate(theirs) if key not in known]
    assert tuples(one.join(two, ["ms", "seq"], how)) == wanted


def test_a_column_with_one_value_is_like_any_other() -> None:
    rows = frame("k string, n bigint", ("a", 1), ("b", 2), ("a", 3)).withColumns(
        {"c": F.lit("x"), "m": F.lit(7), "none": F.lit(None).cast("bigint")}
    )
    assert str(rows.values["c"]) == "x"
    c = F.col("c")
    reported = rows.select(
        "k",
        "c",
        (F.col("m") + F.col("n")).alias("sum"),
        F.concat("c", F.lit("-"), "c").alias("cc"),
        F.concat("c", F.col("none").cast("string")).alias("null"),
        F.when(c == "x", F.lit(1)).otherwise(F.lit(2)).alias("then"),
        F.when(c == "y", F.lit(1)).otherwise(F.col("n")).alias("else"),
        F.coalesce("none", "m").alias("first"),
        c.isin("x", "y").alias("in"),
        F.timestamp_millis(F.col("m")).isNotNull().alias("time"),
    )
    assert tuples(reported) == [
        ("a", "x", 8, "x-x", None, 1, 1, 7, True, True),
        ("b", "x", 9, "x-x", None, 1, 2, 7, True, True),
        ("a", "x", 10, "x-x", None, 1, 3, 7, True, True),
    ]
    assert tuples(rows.where(c == "x").where(F.col("n") > 2)) == [("a", 3, "x", 7, None)]
    assert tuples(rows.where(c == "y")) == []
    assert tuples(rows.groupBy("c").agg(F.sum("n").alias("n"), F.max("m").alias("m"))) == [
        ("x", 6, 7)
    ]
    assert tuples(rows.select("c").union(frame("c string", ("z",)))) == [("x",)] * 3 + [("z",)]
    assert tuples(rows.orderBy("c", F.desc("n")).select("n", "m")) == [(3, 7), (2, 7), (1, 7)]
    other = frame("n bigint", (2,)).withColumn("o", F.lit("here"))
    assert tuples(rows.select("n", "c").join(other, "n", "left")) == [
        (1, "x", None), (2, "x", "here"), (3, "x", None)
    ]  # fmt: skip
    assert tuples(rows.join(other, "n").select("c", "o")) == [("x", "here")]
    assert rows.toArrow()["m"].to_pylist() == [7, 7, 7]


def test_a_condition_that_holds_everywhere_or_nowhere_leaves_the_type_as_it_is() -> None:
    rows = frame("n bigint", (1,), (2,))
    reported = rows.select(
        F.when(F.lit(False), F.lit("a")).alias("never"),
        F.when(F.lit(True), F.lit(1)).otherwise(F.col("n")).alias("always"),
        F.when(F.lit(None).cast("boolean"), F.col("n")).otherwise(F.lit(5)).alias("unknown"),
        F.when(F.col("n") > 1, F.lit("b")).when(F.lit(True), F.lit("c")).alias("last"),
    )
    assert [(one.name, one.dataType.simpleString()) for one in reported.schema.fields] == [
        ("never", "string"), ("always", "bigint"), ("unknown", "bigint"), ("last", "string")
    ]  # fmt: skip
    assert tuples(reported) == [(None, 1, 5, "c"), (None, 1, 5, "b")]


def test_columns_of_one_name_are_refused() -> None:
    one = frame("a bigint, b bigint", (1, 2))
    with pytest.raises(ValueError, match="two columns 'b'"):
        one.join(one, "a")
    with pytest.raises(KeyError, match="no column 'c' among a, b"):
        one.select("c")


def test_groups_report_of_their_rows() -> None:
    rows = frame(
        "k string, n bigint, m bigint", ("a", 3, 1), ("b", None, 2), ("a", 1, 9), ("a", 2, 5)
    )
    reported = rows.groupBy("k").agg(
        F.count("*").alias("rows"),
        F.count("n").alias("known"),
        F.sum("n").alias("sum"),
        F.min("n").alias("least"),
        F.max_by(F.struct("n", "m"), "m").alias("last"),
        F.min_by("n", "m", 2).alias("first"),
        F.count_if(F.col("m") > 4).alias("many"),
        F.percentile(F.col("n"), F.lit(0.25)).alias("p25"),
    )
    assert [row.asDict(recursive=True) for row in reported.collect()] == [
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


def test_a_file_grows_by_frames_and_equal_frames_give_equal_bytes(tmp_path: Path) -> None:
    def parts() -> list[Any]:
        rows = frame("n bigint, c string", *((n, f"c{n}") for n in range(5)))
        constant = rows.withColumn("c", F.lit("x"))
        nothing = rows.withColumn("c", F.lit(None).cast("string"))
        return [constant, rows, nothing, constant.limit(0), constant.limit(2), nothing.limit(3)]

    like = pq.read_schema(io.BytesIO(render_parquet(parts()[0])))
    for name, order in {"a": [0, 1, 2, 3, 4, 5], "b": [1, 0, 2], "c": [2, 0, 1]}.items():
        written = [tmp_path / f"{name}{turn}.parquet" for turn in range(2)]
        for path in written:
            with FileOfFrames(path, like, ["n"]) as file:
                for place in order:
                    file.write(parts()[place])
        assert written[0].read_bytes() == written[1].read_bytes()
        found = pq.ParquetFile(written[0])
        assert found.schema_arrow.equals(like)
        assert found.schema_arrow.metadata == like.metadata
        whole = [row for place in order for row in tuples(parts()[place])]
        assert tuples(SESSION.read.parquet(str(written[0]))) == whole
    with FileOfFrames(tmp_path / "none.parquet", like) as file:
        file.write(parts()[3])
    assert not (tmp_path / "none.parquet").exists()
    with (
        pytest.raises(TypeError, match="are not the columns"),
        FileOfFrames(tmp_path / "wrong.parquet", like) as file,
    ):
        file.write(frame("n bigint", (1,)))
