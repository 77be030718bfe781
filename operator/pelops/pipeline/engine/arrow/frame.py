"""Tables, in the words of `pyspark.sql.DataFrame`; each is computed when it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pelops.pipeline.engine.arrow import functions
from pelops.pipeline.engine.arrow.column import Column, Scope, as_column, named
from pelops.pipeline.engine.arrow.grouping import group_rows
from pelops.pipeline.engine.arrow.types import plain, spark_schema
from pelops.pipeline.engine.arrow.values import align, choose, positions, sort_positions, to_python

Given = Column | str
_INNER: Final = ("inner",)
_LEFT: Final = ("left", "left_outer", "leftouter")
_FULL: Final = ("full", "full_outer", "fullouter", "outer")
_ANTI: Final = ("left_anti", "leftanti", "anti")
_SEMI: Final = ("left_semi", "leftsemi", "semi")


class Frame:
    """Rows of named columns."""

    def __init__(self, columns: Mapping[str, pa.Array], size: int) -> None:
        self._scope = Scope(columns, size)

    @classmethod
    def of(cls, table: pa.Table) -> Frame:
        """The rows of an Arrow table."""
        columns = {name: plain(table[name]) for name in table.column_names}
        return cls(columns, table.num_rows)

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        columns = self._scope.columns
        fields = [pa.field(name, one.type) for name, one in columns.items()]
        return pa.table(list(columns.values()), schema=pa.schema(fields))

    def toArrow(self) -> pa.Table:  # noqa: N802
        return self.table

    @property
    def columns(self) -> list[str]:
        return list(self._scope.columns)

    @property
    def schema(self) -> Any:
        """The columns as Spark names them."""
        return spark_schema(self.table.schema)

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        return [(field.name, field.dataType.simpleString()) for field in self.schema.fields]

    def __getitem__(self, name: str) -> Column:
        return named(name)

    def select(self, *columns: Any) -> Frame:
        given = list(columns[0]) if len(columns) == 1 and isinstance(columns[0], list) else columns
        told: dict[str, pa.Array] = {}
        parents: pa.Array | None = None
        for one in given:
            if isinstance(one, str) and one.endswith("*"):
                self._put_all(told, one)
                continue
            column = named(one)
            found = column.array(self._scope)
            if column.explodes:
                parents = pc.list_parent_indices(found).cast(pa.int64())
                found = found.flatten()
            _put(told, column.name, found)
        if parents is None:
            return Frame(told, self._scope.size)
        exploded = {
            name: one if named(given[place]).explodes else one.take(parents)
            for place, (name, one) in enumerate(told.items())
        }
        return Frame(exploded, len(parents))

    def _put_all(self, told: dict[str, pa.Array], star: str) -> None:
        if star == "*":
            for name, one in self._scope.columns.items():
                _put(told, name, one)
            return
        kind = self._scope.find(star[:-2])
        for place in range(kind.type.num_fields):
            name = kind.type.field(place).name
            _put(told, name, pc.struct_field(kind, name))

    def where(self, condition: Given) -> Frame:
        holds = pc.fill_null(named(condition).array(self._scope), False)
        if pc.all(holds).as_py():
            return self
        return self._take(pc.indices_nonzero(holds))

    filter = where

    def withColumn(self, name: str, value: Column) -> Frame:  # noqa: N802
        return self.withColumns({name: value})

    def withColumns(self, values: Mapping[str, Column]) -> Frame:  # noqa: N802
        told = {name: as_column(one).array(self._scope) for name, one in values.items()}
        return Frame({**self._scope.columns, **told}, self._scope.size)

    def withColumnRenamed(self, name: str, new: str) -> Frame:  # noqa: N802
        return self.withColumnsRenamed({name: new})

    def withColumnsRenamed(self, names: Mapping[str, str]) -> Frame:  # noqa: N802
        told: dict[str, pa.Array] = {}
        for name, one in self._scope.columns.items():
            _put(told, names.get(name, name), one)
        return Frame(told, self._scope.size)

    def drop(self, *names: str) -> Frame:
        left = {name: one for name, one in self._scope.columns.items() if name not in names}
        return Frame(left, self._scope.size)

    def join(self, other: Frame, on: Any = None, how: str = "inner") -> Frame:
        """Rows of both that are alike in the columns of these names."""
        names = [on] if isinstance(on, str) else list(on or ())
        if not names or not all(isinstance(name, str) for name in names):
            raise TypeError("frames are joined by the names of columns only")
        return _join(self._scope, other._scope, names, how)

    def crossJoin(self, other: Frame) -> Frame:  # noqa: N802
        one = self.withColumn("__all", functions.lit(0))
        return one.join(other.withColumn("__all", functions.lit(0)), "__all").drop("__all")

    def unionAll(self, other: Frame) -> Frame:  # noqa: N802
        if len(self.columns) != len(other.columns):
            raise ValueError(f"{self.columns} and {other.columns} are not as many columns")
        pairs = zip(self._scope.columns.items(), other._scope.columns.values(), strict=True)
        told = {name: pa.concat_arrays(align([one, two])) for (name, one), two in pairs}
        return Frame(told, self._scope.size + other._scope.size)

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
        told: dict[str, pa.Array] = {}
        for key in map(named, given):
            _put(told, key.name, key.array(self._scope))
        return Groups(group_rows(self._scope, told))

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

    def isEmpty(self) -> bool:  # noqa: N802
        return not self._scope.size

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
        values = [to_python(one) for one in self._scope.columns.values()]
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
        told = dict(self._groups.columns)
        for place, one in enumerate(columns):
            # What has no name of its own is found by its place.
            name = one.name if one.name not in told else f"{one.name}#{place}"
            _put(told, name, one.array(self._groups))
        return Frame(told, self._groups.size)

    def count(self) -> Frame:
        return self.agg(functions.count("*").alias("count"))


def _put(told: dict[str, pa.Array], name: str, values: pa.Array) -> None:
    if not name:
        raise ValueError("a column has no name: give it one with alias()")
    if name in told:
        raise ValueError(f"there would be two columns {name!r}")
    told[name] = values


def _join(left: Scope, right: Scope, names: Sequence[str], how: str) -> Frame:
    ours, theirs = _keys(left, right, names)
    if how in _ANTI or how in _SEMI:
        known, wanted = set(theirs) - {None}, how in _SEMI
        chosen = [row for row, key in enumerate(ours) if (key in known) == wanted]
        found = left.take(pa.array(chosen, pa.int64()))
        return Frame(found.columns, found.size)
    if how not in _INNER + _LEFT + _FULL:
        raise TypeError(f"{how!r} is no join that is known")
    pairs = _match(ours, theirs, how)
    one = pa.array((pair[0] for pair in pairs), pa.int64())
    two = pa.array((pair[1] for pair in pairs), pa.int64())
    told: dict[str, pa.Array] = {}
    for name in names:
        found, other = align([left.find(name).take(one), right.find(name).take(two)])
        told[name] = choose(pc.is_valid(one), found, other) if how in _FULL else found
    for scope, places in ((left, one), (right, two)):
        for name, values in scope.columns.items():
            if name not in names:
                _put(told, name, values.take(places))
    return Frame(told, len(pairs))


def _keys(left: Scope, right: Scope, names: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """A key for each row of both; None for one that is like no other, since a part is null."""
    pairs = [align([left.find(name), right.find(name)]) for name in names]
    return _rows([one for one, _ in pairs]), _rows([two for _, two in pairs])


def _rows(columns: Sequence[pa.Array]) -> list[Any]:
    if len(columns) == 1:
        return list(columns[0].to_pylist())
    has_null = any(one.null_count for one in columns)
    keys = zip(*(one.to_pylist() for one in columns), strict=True)
    return [None if has_null and None in key else key for key in keys]


def _match(
    ours: Sequence[Any], theirs: Sequence[Any], how: str
) -> list[tuple[int | None, int | None]]:
    """The rows that go together, in the order of ours."""
    places: dict[Any, list[int]] = {}
    for row, key in enumerate(theirs):
        if key is not None:
            places.setdefault(key, []).append(row)
    keeps = how not in _INNER
    pairs: list[tuple[int | None, int | None]] = []
    for row, key in enumerate(ours):
        matches = places.get(key, ())
        if matches:
            pairs += [(row, other) for other in matches]
        elif keeps:
            pairs.append((row, None))
    if how in _FULL:
        known = set(ours)
        alone = (row for row, key in enumerate(theirs) if key is None or key not in known)
        pairs += [(None, row) for row in alone]
    return pairs
