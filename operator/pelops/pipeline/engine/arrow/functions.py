"""Functions of columns, in the words of `pyspark.sql.functions`."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pelops.pipeline.engine.arrow.aggregation import (
    aggregate,
    best_lists,
    best_rows,
    fold_by,
    list_array,
    values_of_groups,
)
from pelops.pipeline.engine.arrow.column import (
    Column,
    Scope,
    When,
    as_column,
    by_python,
    named,
    texts,
)
from pelops.pipeline.engine.arrow.values import (
    MOMENT,
    Value,
    align,
    cast,
    choose,
    is_all_null,
    parse_return,
    to_python,
)

Given = Column | str
_ELEMENT = "element"


def col(name: str) -> Column:
    """A column by its name."""
    return named(name)


column = col


def lit(value: Any) -> Column:
    """The same value in every row."""
    return as_column(value)


def when(condition: Column, value: Any) -> Column:
    """A value where the condition holds; see `otherwise`."""
    return When([(condition, as_column(value))])


def coalesce(*columns: Given) -> Column:
    """The first value that is not null."""
    given = [named(one) for one in columns]

    def evaluate(scope: Scope) -> Value:
        found = align([one.array(scope) for one in given])
        reported = found[-1]
        for one in reversed(found[:-1]):
            reported = choose(pc.is_valid(one), one, reported)
        return reported

    return Column(evaluate)


def struct(*columns: Given) -> Column:
    """The values of columns together, under their names."""
    given = [named(one) for one in columns]

    def evaluate(scope: Scope) -> Value:
        names = [one.name or f"col{place}" for place, one in enumerate(given, 1)]
        return pa.StructArray.from_arrays([one.array(scope) for one in given], names=names)

    return Column(evaluate)


def array(*columns: Given) -> Column:
    """The values of columns as a list."""
    given = [named(one) for one in columns]

    def evaluate(scope: Scope) -> Value:
        parts = align([one.array(scope) for one in given])
        size = scope.size
        lists = [[place * size + row for place in range(len(parts))] for row in range(size)]
        return list_array(lists, pa.concat_arrays(parts))

    return Column(evaluate)


def concat_ws(separator: str, *columns: Given) -> Column:
    """Texts put together; those that are null are left out."""
    given = [named(one) for one in columns]

    def evaluate(scope: Scope) -> Value:
        parts = [cast(one.array(scope), pa.string()) for one in given]
        # Arrow leaves out a row in which all are null: there the first is an empty text.
        is_null = reduce(pc.and_, (pc.is_null(part) for part in parts))
        parts[0] = pc.if_else(is_null, pa.scalar(""), parts[0])
        return pc.binary_join_element_wise(*parts, separator, null_handling="skip")

    return Column(evaluate)


def concat(*columns: Given) -> Column:
    """Texts put together; null where one is."""
    given = [named(one) for one in columns]

    def evaluate(scope: Scope) -> Value:
        parts = [one.evaluate(scope) for one in given]
        if any(is_all_null(part) for part in parts):
            return pa.scalar(None, pa.string())
        reported = [cast(part, pa.string()) for part in parts]
        return pc.binary_join_element_wise(*reported, "", null_handling="emit_null")

    return Column(evaluate)


def timestamp_millis(value: Given) -> Column:
    """The moment that so many milliseconds since 1970 are; null where the calendar ends before.

    Every row is worked out, also one that a condition leaves out because it is too far away.
    """
    given = named(value)

    def evaluate(scope: Scope) -> Value:
        ms = cast(given.evaluate(scope), pa.int64())
        far = 2**63 // 1000 - 1
        reachable = pc.and_(pc.greater_equal(ms, -far), pc.less_equal(ms, far))
        return pc.if_else(reachable, ms, None).cast(pa.timestamp("ms", "UTC")).cast(MOMENT)

    return Column(evaluate)


def least(*columns: Given) -> Column:
    """The smallest value that is not null."""
    given = [named(one) for one in columns]
    return Column(lambda scope: pc.min_element_wise(*align([one.evaluate(scope) for one in given])))


def floor(value: Given) -> Column:
    """The whole number at or below."""
    given = named(value)
    return Column(lambda scope: pc.floor(given.evaluate(scope)).cast(pa.int64()))


def shiftleft(value: Given, bits: int) -> Column:
    """A number times a power of two; bits that leave it are lost."""
    given = named(value)

    def evaluate(scope: Scope) -> Value:
        found = given.evaluate(scope)
        return pc.shift_left(found, pa.scalar(bits, found.type))

    return Column(evaluate)


def substring(value: Given, first: int, length: int) -> Column:
    """A part of a text or of bytes; the first sign is at 1."""
    given = named(value)

    def evaluate(scope: Scope) -> Value:
        found = given.array(scope)
        cut = pc.binary_slice if pa.types.is_binary(found.type) else pc.utf8_slice_codeunits
        return cut(found, first - 1, first - 1 + length)

    return Column(evaluate)


def octet_length(value: Given) -> Column:
    """How many bytes a value has."""
    given = named(value)
    return Column(lambda scope: pc.binary_length(given.array(scope)))


def length(value: Given) -> Column:
    """How many signs a text has."""
    given = named(value)
    return Column(lambda scope: pc.utf8_length(given.array(scope)))


def lower(value: Given) -> Column:
    """A text in small letters."""
    given = named(value)
    return Column(lambda scope: pc.utf8_lower(given.array(scope)))


def regexp_extract(value: Given, pattern: str, group: int) -> Column:
    """What a group of an expression has found; the empty text where it found nothing."""
    found = re.compile(pattern)

    def extract(text: str) -> str:
        match = found.search(text)
        return (match.group(group) or "") if match else ""

    return by_python(named(value), extract, pa.string())


def make_valid_utf8(value: Given) -> Column:
    """A text in which bytes that are no UTF-8 have become U+FFFD."""
    given = named(value)
    return Column(lambda scope: pa.array(texts(given.array(scope)), pa.string()))


def to_json(value: Given) -> Column:
    """A struct as an object of JSON, without what is null."""
    given = named(value)

    def evaluate(scope: Scope) -> Value:
        rows = given.array(scope).to_pylist()
        reported = ({name: part for name, part in row.items() if part is not None} for row in rows)
        dumped = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in reported]
        return pa.array(dumped, pa.string())

    return Column(evaluate)


def size(value: Given) -> Column:
    """How long a list is."""
    given = named(value)
    return Column(lambda scope: pc.list_value_length(given.array(scope)))


def try_element_at(value: Given, place: Column) -> Column:
    """An element of a list: the first is 1, the last -1; null where there is none."""
    given = named(value)

    def evaluate(scope: Scope) -> Value:
        found = given.array(scope)
        at = place.evaluate(scope).as_py()
        lengths = pc.list_value_length(found).to_pylist()
        starts = _starts(found)
        places = [
            None if n is None or abs(at) > n else start + (at - 1 if at > 0 else n + at)
            for start, n in zip(starts, lengths, strict=True)
        ]
        return found.flatten().take(pa.array(places, pa.int64()))

    return Column(evaluate)


def slice(value: Given, first: Any, length: Any) -> Column:  # noqa: A001
    """A part of a list from an element on, of which the first is 1."""
    given, begin, number = named(value), as_column(first), as_column(length)

    def evaluate(scope: Scope) -> Value:
        found = given.array(scope)
        sizes = [n or 0 for n in pc.list_value_length(found).to_pylist()]
        begins = begin.array(scope).to_pylist()
        numbers = number.array(scope).to_pylist()
        lists = [
            range(start + at - 1, start + builtins.min(at - 1 + wished, n))
            for start, n, at, wished in zip(_starts(found), sizes, begins, numbers, strict=True)
        ]
        return list_array(lists, found.flatten())

    return Column(evaluate)


def transform(value: Given, action: Callable[[Column], Column]) -> Column:
    """A list with something else in place of each element."""
    given = named(value)
    changed = action(named(_ELEMENT))

    def evaluate(scope: Scope) -> Value:
        found = given.array(scope)
        elements = found.flatten()
        reported = changed.array(Scope({_ELEMENT: elements}, len(elements)))
        lengths = [n or 0 for n in pc.list_value_length(found).to_pylist()]
        offsets = pa.array(accumulate(lengths, initial=0), pa.int32())
        return pa.ListArray.from_arrays(offsets, reported)

    return Column(evaluate)


def filter(value: Given, wanted: Callable[[Column], Column]) -> Column:  # noqa: A001
    """A list without the elements for which the condition does not hold."""
    given = named(value)
    condition = wanted(named(_ELEMENT))

    def evaluate(scope: Scope) -> Value:
        found = given.array(scope)
        elements = found.flatten()
        kept = condition.array(Scope({_ELEMENT: elements}, len(elements))).fill_null(False)
        is_kept, begin, lists = kept.to_pylist(), 0, []
        for n in pc.list_value_length(found).to_pylist():
            places = range(begin, begin + (n or 0))
            lists.append([place for place in places if is_kept[place]])
            begin = places.stop
        return list_array(lists, elements)

    return Column(evaluate)


def array_position(value: Given, wanted: Any) -> Column:
    """Where a value stands in a list: 1 is the first place, and 0 none."""
    given, sought = named(value), as_column(wanted)

    def evaluate(scope: Scope) -> Value:
        pairs = zip(given.array(scope).to_pylist(), sought.array(scope).to_pylist(), strict=True)
        reported = [one.index(what) + 1 if what in one else 0 for one, what in pairs]
        return pa.array(reported, pa.int64())

    return Column(evaluate)


def explode(value: Given) -> Column:
    """A row for each element of a list."""
    found = named(value).alias("col")
    found.explodes = True
    return found


def udf(action: Callable[..., Any], kind: str, **_: Any) -> Callable[..., Column]:
    """A function of Python of the values of one row."""
    wanted = parse_return(kind)

    def apply(*columns: Given) -> Column:
        given = [named(one) for one in columns]

        def evaluate(scope: Scope) -> Value:
            values = [to_python(one.array(scope)) for one in given]
            return pa.array([action(*row) for row in zip(*values, strict=True)], wanted)

        return Column(evaluate, is_costly=True)

    return apply


def arrow_udf(action: Callable[..., Any], kind: str) -> Callable[..., Column]:
    """A function of Python of arrays."""
    wanted = parse_return(kind)

    def apply(*columns: Given) -> Column:
        given = [named(one) for one in columns]

        def evaluate(scope: Scope) -> Value:
            return cast(action(*(one.array(scope) for one in given)), wanted)

        return Column(evaluate, is_costly=True)

    return apply


def broadcast(frame: Any) -> Any:
    """The frame as it is: all of it is at hand."""
    return frame


def desc(value: Given) -> Column:
    """A key of an order in which the largest comes first."""
    return named(value).desc()


def asc(value: Given) -> Column:
    """A key of an order in which the smallest comes first."""
    return named(value).asc()


def count(value: Given) -> Column:
    """How many values are not null; of `*` how many rows."""
    if isinstance(value, str) and value == "*":
        return _numbered(lit(1), "count")
    return _numbered(named(value), "count")


def count_if(condition: Column) -> Column:
    """In how many rows a condition holds."""
    return _numbered(when(condition, lit(1)), "count_if")


def countDistinct(value: Given) -> Column:  # noqa: N802
    """How many different values there are."""
    return aggregate(named(value), fold_by("count_distinct", 0), "count_distinct")


count_distinct = countDistinct
approx_count_distinct = countDistinct


def sum(value: Given) -> Column:  # noqa: A001
    """All values together; null without any."""
    return aggregate(named(value), fold_by("sum"), "sum")


def min(value: Given) -> Column:  # noqa: A001
    """The smallest value; null without any."""
    return _extreme(named(value), is_falling=False)


def max(value: Given) -> Column:  # noqa: A001
    """The largest value; null without any."""
    return _extreme(named(value), is_falling=True)


def max_by(value: Given, order: Given) -> Column:
    """The value of the row that is last in an order."""
    return _value_by(named(value), named(order), is_falling=True)


def min_by(value: Given, order: Given, most: int | None = None) -> Column:
    """The value of the row that is first in an order; of so many rows a list of them."""
    if most is None:
        return _value_by(named(value), named(order), is_falling=False)
    reported, ranked = named(value), named(order)

    def evaluate(scope: Scope) -> Value:
        rows = _rows(scope)
        return list_array(best_lists(ranked.array(rows), scope, most), reported.array(rows))

    return Column(evaluate)


def first(value: Given, ignorenulls: bool = False) -> Column:
    """The value of the first row."""
    given = named(value)

    def evaluate(scope: Scope) -> Value:
        rows = _rows(scope)
        found = given.array(rows)
        order = pa.array(range(rows.size), pa.int64())
        if ignorenulls:
            order = pc.if_else(pc.is_valid(found), order, None)
        return found.take(best_rows(order, scope, is_falling=False))

    return Column(evaluate)


def percentile(value: Given, share: Column) -> Column:
    """What a share of the values lies at or below, between two values in proportion."""
    given = named(value)

    def evaluate(scope: Scope) -> Value:
        wished = share.evaluate(scope).as_py()
        lists = values_of_groups(given.array(_rows(scope)), scope)
        return pa.array([_percentile(one, wished) for one in lists], pa.float64())

    return Column(evaluate)


def _percentile(values: list[Any], share: float) -> float | None:
    if not values:
        return None
    place = (len(values) - 1) * share
    below = int(place)
    if below == place:
        return float(values[below])
    return (below + 1 - place) * float(values[below]) + (place - below) * float(values[below + 1])


def _numbered(value: Column, name: str) -> Column:
    return aggregate(value, fold_by("count", 0), name)


def _extreme(value: Column, *, is_falling: bool) -> Column:
    def evaluate(scope: Scope) -> Value:
        found = value.array(_rows(scope))
        return found.take(best_rows(found, scope, is_falling=is_falling))

    return Column(evaluate, "max" if is_falling else "min")


def _value_by(value: Column, order: Column, *, is_falling: bool) -> Column:
    def evaluate(scope: Scope) -> Value:
        rows = _rows(scope)
        best = best_rows(order.array(rows), scope, is_falling=is_falling)
        return value.array(rows).take(best)

    return Column(evaluate)


def _rows(scope: Scope) -> Scope:
    if scope.rows is None:
        raise TypeError("this reports groups: use it in agg()")
    return scope.rows


def _starts(found: pa.Array) -> Iterator[int]:
    """Where the elements of each list begin among those of all."""
    lengths = [n or 0 for n in pc.list_value_length(found).to_pylist()]
    return accumulate(lengths[:-1], initial=0) if lengths else iter(())
