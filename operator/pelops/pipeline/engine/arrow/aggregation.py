"""Rows in groups, and what is informed of each group: counts, sums, first and last ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pelops.pipeline.engine.arrow.column import Column, Scope
from pelops.pipeline.engine.arrow.values import Value, flat_keys, positions, sort_positions, spread


def group_rows(rows: Scope, keys: dict[str, pa.Array]) -> Scope:
    """The groups of rows whose keys are alike, in the order of their first rows; null is a key.

    Without keys all rows are one group, also when there are none.
    """
    if not keys:
        return Scope({}, 1, rows, spread(pa.scalar(0, pa.int64()), rows.size))
    codes = spread(pa.scalar(0, pa.int64()), rows.size)
    for key in keys.values():
        for part in flat_keys(key):
            coded = part.dictionary_encode(null_encoding="encode")
            number = max(1, len(coded.dictionary))
            codes = pc.add(pc.multiply(codes, number), coded.indices.cast(pa.int64()))
            # Small again, or the product of all could be too large.
            codes = codes.dictionary_encode().indices.cast(pa.int64())
    first = first_rows(codes)
    columns = {name: key.take(first) for name, key in keys.items()}
    return Scope(columns, len(first), rows, codes)


def first_rows(codes: pa.Array) -> pa.Array:
    """Where each group begins; groups are numbered in the order of their first rows."""
    table = pa.table({"group": codes, "at": positions(len(codes))})
    found = table.group_by("group", use_threads=False).aggregate([("at", "min")])
    places = found["at_min"].combine_chunks()
    return places.take(pc.sort_indices(places))


def aggregate(
    column: Column | None, fold: Callable[[pa.Array, Scope], pa.Array], name: str
) -> Column:
    """A value of each group, by the values of a column in its rows."""

    def evaluate(scope: Scope) -> Value:
        if scope.rows is None:
            raise TypeError(f"{name} reports groups: use it in agg()")
        none = pa.nulls(scope.rows.size)
        return fold(none if column is None else column.array(scope.rows), scope)

    return Column(evaluate, name)


def fold_by(kind: str, absent: Any = None) -> Callable[[pa.Array, Scope], pa.Array]:
    """What pyarrow knows by this name, of each group; `absent` for one without values."""

    def fold(values: pa.Array, scope: Scope) -> pa.Array:
        table = pa.table({"group": scope.groups, "value": values})
        found = table.group_by("group", use_threads=False).aggregate([("value", kind)])
        reported = found[f"value_{kind}"].combine_chunks()
        if scope.rows is not None and not scope.rows.size:
            return pa.array([absent] * scope.size, reported.type)
        return reported.take(pc.sort_indices(found["group"].combine_chunks()))

    return fold


def best_rows(order: pa.Array, scope: Scope, *, is_falling: bool) -> pa.Array:
    """The row of each group that is first in an order; null for one in which all are null."""
    ranked = list(_ranked(order, scope, is_falling=is_falling))
    best: list[int | None] = [None] * scope.size
    for group, row in reversed(ranked):
        best[group] = row
    return pa.array(best, pa.int64())


def best_lists(order: pa.Array, scope: Scope, most: int) -> list[list[int]]:
    """The rows of each group that are first in an order, so many at most."""
    found: list[list[int]] = [[] for _ in range(scope.size)]
    for group, row in _ranked(order, scope, is_falling=False):
        if len(found[group]) < most:
            found[group].append(row)
    return found


def values_of_groups(values: pa.Array, scope: Scope) -> list[list[Any]]:
    """The values of each group in order, without null."""
    found: list[list[Any]] = [[] for _ in range(scope.size)]
    valid = pc.indices_nonzero(pc.is_valid(values))
    groups = scope.groups.take(valid).to_pylist() if scope.groups is not None else []
    for group, value in zip(groups, values.take(valid).to_pylist(), strict=True):
        found[group].append(value)
    return [sorted(one) for one in found]


def _ranked(order: pa.Array, scope: Scope, *, is_falling: bool) -> Iterator[tuple[int, int]]:
    assert scope.groups is not None
    valid = pc.indices_nonzero(pc.is_valid(order)).cast(pa.int64())
    ranks = sort_positions([(order.take(valid), is_falling)], len(valid))
    rows = valid.take(ranks)
    return zip(scope.groups.take(rows).to_pylist(), rows.to_pylist(), strict=True)


def list_array(lists: Sequence[Sequence[int]], values: pa.Array) -> pa.Array:
    """Lists of the values at these places."""
    offsets = [0]
    for one in lists:
        offsets.append(offsets[-1] + len(one))
    flat = [place for one in lists for place in one]
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), values.take(pa.array(flat, pa.int64()))
    )
