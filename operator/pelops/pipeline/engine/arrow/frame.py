"""Tables, in the words of `pyspark.sql.DataFrame`; each is computed when it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pelops.pipeline.engine.arrow import functions
from pelops.pipeline.engine.arrow.aggregation import group_rows
from pelops.pipeline.engine.arrow.column import Column, Scope, as_column, named
from pelops.pipeline.engine.arrow.values import (
    Value,
    align,
    choose,
    is_scalar,
    plain,
    positions,
    sort_positions,
    spark_schema,
    spread,
    to_python,
)

Given = Column | str
_INNER: Final = ("inner",)
_LEFT: Final = ("left", "left_outer", "leftouter")
_FULL: Final = ("full", "full_outer", "fullouter", "outer")
_ANTI: Final = ("left_anti", "leftanti", "anti")
_SEMI: Final = ("left_semi", "leftsemi", "semi")


class Frame:
    """Rows of named columns; one that is the same in every row is kept as one value."""

    def __init__(self, columns: Mapping[str, Value], size: int) -> None:
        self._scope = Scope(columns, size)

    @classmethod
    def of(cls, table: pa.Table) -> Frame:
        """The rows of an Arrow table."""
        columns = {name: plain(table[name]) for name in table.column_names}
        return cls(columns, table.num_rows)

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        columns = self._arrays()
        fields = [pa.field(name, one.type) for name, one in columns.items()]
        return pa.table(list(columns.values()), schema=pa.schema(fields))

    @property
    def values(self) -> Mapping[str, Value]:
        """The columns: arrays, or a scalar for one that is the same in every row."""
        return self._scope.columns

    def toArrow(self) -> pa.Table:  # noqa: N802
        return self.table

    @property
    def columns(self) -> list[str]:
        return list(self._scope.columns)

    @property
    def schema(self) -> Any:
        """The columns as Spark names them."""
        return spark_schema(self.table.schema)

    def __getitem__(self, name: str) -> Column:
        return named(name)

    def select(self, *columns: Any) -> Frame:
        given = list(columns[0]) if len(columns) == 1 and isinstance(columns[0], list) else columns
        reported: dict[str, Value] = {}
        parents: pa.Array | None = None
        for one in given:
            if isinstance(one, str) and one.endswith("*"):
                self._put_all(reported, one)
                continue
            column = named(one)
            found = self._work_out(column)
            if column.explodes:
                parents = pc.list_parent_indices(found).cast(pa.int64())
                found = found.flatten()
            _put(reported, column.name, found)
        if parents is None:
            return Frame(reported, self._scope.size)
        exploded = {
            name: one if is_scalar(one) or named(given[place]).explodes else one.take(parents)
            for place, (name, one) in enumerate(reported.items())
        }
        return Frame(exploded, len(parents))

    def _work_out(self, column: Column) -> Value:
        """The values of a column; what is nested, as an array in any case."""
        found = column.evaluate(self._scope)
        return spread(found, self._scope.size) if pa.types.is_nested(found.type) else found

    def _arrays(self) -> dict[str, pa.Array]:
        return {name: spread(one, self._scope.size) for name, one in self._scope.columns.items()}

    def _put_all(self, reported: dict[str, Value], star: str) -> None:
        if star == "*":
            for name, one in self._scope.columns.items():
                _put(reported, name, one)
            return
        kind = self._scope.find(star[:-2])
        for place in range(kind.type.num_fields):
            name = kind.type.field(place).name
            _put(reported, name, pc.struct_field(kind, name))

    def where(self, condition: Given) -> Frame:
        holds = pc.fill_null(named(condition).array(self._scope), False)
        if pc.all(holds).as_py():
            return self
        return self._take(pc.indices_nonzero(holds))

    filter = where

    def withColumn(self, name: str, value: Column) -> Frame:  # noqa: N802
        return self.withColumns({name: value})

    def withColumns(self, values: Mapping[str, Column]) -> Frame:  # noqa: N802
        reported = {name: self._work_out(as_column(one)) for name, one in values.items()}
        return Frame({**self._scope.columns, **reported}, self._scope.size)

    def withColumnRenamed(self, name: str, new: str) -> Frame:  # noqa: N802
        return self.withColumnsRenamed({name: new})

    def withColumnsRenamed(self, names: Mapping[str, str]) -> Frame:  # noqa: N802
        reported: dict[str, Value] = {}
        for name, one in self._scope.columns.items():
            _put(reported, names.get(name, name), one)
        return Frame(reported, self._scope.size)

    def drop(self, *names: str) -> Frame:
        left = {name: one for name, one in self._scope.columns.items() if name not in names}
        return Frame(left, self._scope.size)

    def join(self, other: Frame, on: Any = None, how: str = "inner") -> Frame:
        """Rows of both that are alike in the columns of these names."""
        names = [on] if isinstance(on, str) else list(on or ())
        if not names or not all(isinstance(name, str) for name in names):
            raise TypeError("frames are joined by the names of columns only")
        return _join(self._scope, other._scope, names, how)

    def unionAll(self, other: Frame) -> Frame:  # noqa: N802
        if len(self.columns) != len(other.columns):
            raise ValueError(f"{self.columns} and {other.columns} are not as many columns")
        pairs = zip(self._arrays().items(), other._arrays().values(), strict=True)
        reported = {name: pa.concat_arrays(align([one, two])) for (name, one), two in pairs}
        return Frame(reported, self._scope.size + other._scope.size)

    union = unionAll

    def unionByName(self, other: Frame, allowMissingColumns: bool = False) -> Frame:  # noqa: N802, N803
        missing = set(self.columns) ^ set(other.columns)
        if missing and not allowMissingColumns:
            raise ValueError(f"only one of both frames has {', '.join(sorted(missing))}")
        names = [*self.columns, *(name for name in other.columns if name not in self.columns)]
        return self._with_all(names).select(*names).unionAll(other._with_all(names).select(*names))

    def _with_all(self, names: Sequence[str]) -> Frame:
        absent = {name: functions.lit(None) for name in names if name not in self.columns}
        return self.withColumns(absent) if absent else self

    def groupBy(self, *keys: Any) -> Groups:  # noqa: N802
        given = list(keys[0]) if len(keys) == 1 and isinstance(keys[0], list) else keys
        reported: dict[str, pa.Array] = {}
        for key in map(named, given):
            _put(reported, key.name, key.array(self._scope))
        return Groups(group_rows(self._scope, reported))

    groupby = groupBy

    def agg(self, *columns: Column) -> Frame:
        return self.groupBy().agg(*columns)

    def orderBy(self, *keys: Any) -> Frame:  # noqa: N802
        given = [named(one) for one in keys]
        ranked = [(one.array(self._scope), one.is_falling) for one in given]
        return self._take(sort_positions(ranked, self._scope.size))

    sort = orderBy
    sortWithinPartitions = orderBy  # noqa: N815

    def limit(self, most: int) -> Frame:
        return self._take(positions(min(most, self._scope.size)))

    def distinct(self) -> Frame:
        return self.dropDuplicates()

    def dropDuplicates(self, names: Sequence[str] | None = None) -> Frame:  # noqa: N802
        firsts = self.groupBy(*(names or self.columns)).agg(
            *(functions.first(name).alias(f"__{name}") for name in self.columns)
        )
        return firsts.select(*(functions.col(f"__{name}").alias(name) for name in self.columns))

    def coalesce(self, _: int) -> Frame:
        return self

    def repartition(self, *_: Any) -> Frame:
        return self

    def persist(self, *_: Any) -> Frame:
        return self

    cache = unpersist = persist

    def alias(self, _: str) -> Frame:
        return self

    def count(self) -> int:
        return self._scope.size

    def collect(self) -> list[Any]:
        return list(self.toLocalIterator())

    def first(self) -> Any:
        return next(iter(self.limit(1).collect()), None)

    def head(self, most: int | None = None) -> Any:
        return self.first() if most is None else self.limit(most).collect()

    def take(self, most: int) -> list[Any]:
        return self.limit(most).collect()

    def toLocalIterator(self) -> Iterator[Any]:  # noqa: N802
        from pyspark.sql import Row

        make = Row(*self.columns)
        values = [to_python(one) for one in self._arrays().values()]
        if not values:
            return iter(())
        return (make(*row) for row in zip(*values, strict=True))

    @property
    def sparkSession(self) -> Any:  # noqa: N802
        """What makes more frames of this kind."""
        from pelops.pipeline.engine.arrow.session import ArrowSession

        return ArrowSession(None)

    def _take(self, places: pa.Array) -> Frame:
        found = self._scope.take(places)
        return Frame(found.columns, found.size)


class Groups:
    """Rows in groups."""

    def __init__(self, groups: Scope) -> None:
        self._groups = groups

    def agg(self, *columns: Column) -> Frame:
        reported = dict(self._groups.columns)
        for place, one in enumerate(columns):
            # What has no name of its own is found by its place.
            name = one.name if one.name not in reported else f"{one.name}#{place}"
            _put(reported, name, one.array(self._groups))
        return Frame(reported, self._groups.size)

    def count(self) -> Frame:
        return self.agg(functions.count("*").alias("count"))


def _put(reported: dict[str, Value], name: str, values: Value) -> None:
    if not name:
        raise ValueError("a column has no name: give it one with alias()")
    if name in reported:
        raise ValueError(f"there would be two columns {name!r}")
    reported[name] = values


def _join(left: Scope, right: Scope, names: Sequence[str], how: str) -> Frame:
    if how not in _INNER + _LEFT + _FULL + _ANTI + _SEMI:
        raise TypeError(f"{how!r} is not a supported join")
    if how not in _FULL:
        right = _in_range(left, right, names[0])
    ours, theirs = _keys(left, right, names)
    if how in _ANTI or how in _SEMI:
        wanted = pc.is_valid(ours) if how in _SEMI else pc.is_null(ours)
        found = left.take(pc.indices_nonzero(wanted))
        return Frame(found.columns, found.size)
    one, two = _pairs(ours, theirs, how)
    reported: dict[str, Value] = {}
    for name in names:
        found, other = align([left.array(name).take(one), right.array(name).take(two)])
        reported[name] = choose(pc.is_valid(one), found, other) if how in _FULL else found
    for scope, places in ((left, one), (right, two)):
        for name, values in scope.columns.items():
            if name in names:
                continue
            is_constant = is_scalar(values) and not places.null_count
            _put(reported, name, values if is_constant else scope.array(name).take(places))
    return Frame(reported, len(one))


def _in_range(left: Scope, right: Scope, name: str) -> Scope:
    """The rows of the right that can be like one of the left: of a large side, a part is looked at.

    Null is like nothing.
    """
    ours, theirs = left.array(name), right.array(name)
    if not (pa.types.is_integer(ours.type) and pa.types.is_integer(theirs.type)):
        return right
    ends = pc.min_max(ours)
    near = pc.and_(pc.greater_equal(theirs, ends["min"]), pc.less_equal(theirs, ends["max"]))
    near = pc.fill_null(near, False)
    return right if pc.all(near).as_py() else right.take(pc.indices_nonzero(near))


def _keys(left: Scope, right: Scope, names: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """A number for each row of both, the same for rows that are alike; null for one that is like
    no row of the right, since it is not there or a part is null.
    """
    ours, theirs = _coded(*align([left.array(names[0]), right.array(names[0])]))
    for name in names[1:]:
        one, two = _coded(*align([left.array(name), right.array(name)]))
        # Small again, or the product of all could be too large.
        number = pa.scalar(right.size, pa.int64())
        likely = pc.and_(pc.is_valid(ours), pc.is_valid(one))
        found, theirs = _coded(
            pc.add(pc.multiply(ours.filter(likely), number), one.filter(likely)),
            pc.add(pc.multiply(theirs, number), two),
        )
        ours = pc.replace_with_mask(pa.nulls(left.size, pa.int64()), likely, found)
    return ours, theirs


def _coded(one: pa.Array, two: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Values as their places among the different ones of the second array."""
    if pa.types.is_null(one.type):
        return pa.nulls(len(one), pa.int64()), pa.nulls(len(two), pa.int64())
    reported = two.dictionary_encode()
    found = pc.index_in(one, value_set=reported.dictionary)
    return found.cast(pa.int64()), reported.indices.cast(pa.int64())


def _pairs(ours: pa.Array, theirs: pa.Array, how: str) -> tuple[pa.Array, pa.Array]:
    """The rows that go together, in the order of ours; null for none."""
    reported = theirs.drop_null()
    if len(reported) != pc.count_distinct(reported).as_py():
        pairs = _match(ours.to_pylist(), theirs.to_pylist(), how in _INNER)
        one = pa.array((pair[0] for pair in pairs), pa.int64())
        two = pa.array((pair[1] for pair in pairs), pa.int64())
    else:
        places = pc.indices_nonzero(pc.is_valid(theirs)).cast(pa.int64())
        two = places.take(pc.index_in(ours, value_set=reported))
        two = pc.if_else(pc.is_valid(ours), two, None)
        one = positions(len(ours))
        if how in _INNER:
            matched = pc.is_valid(two)
            one, two = one.filter(matched), two.filter(matched)
    if how in _FULL:
        is_reported = pc.and_(pc.is_valid(theirs), pc.is_in(theirs, value_set=ours.drop_null()))
        alone = pc.indices_nonzero(pc.invert(is_reported)).cast(pa.int64())
        one = pa.concat_arrays([one, pa.nulls(len(alone), pa.int64())])
        two = pa.concat_arrays([two, alone])
    return one, two


def _match(
    ours: Sequence[Any], theirs: Sequence[Any], is_inner: bool
) -> list[tuple[int, int | None]]:
    places: dict[Any, list[int]] = {}
    for row, key in enumerate(theirs):
        if key is not None:
            places.setdefault(key, []).append(row)
    pairs: list[tuple[int, int | None]] = []
    for row, key in enumerate(ours):
        matches = places.get(key, ())
        if matches:
            pairs += [(row, other) for other in matches]
        elif not is_inner:
            pairs.append((row, None))
    return pairs
