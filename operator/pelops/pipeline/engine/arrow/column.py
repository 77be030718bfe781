"""Expressions over columns, in the words of `pyspark.sql.Column`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pelops.pipeline.engine.arrow.values import (
    MOMENT,
    Value,
    align,
    cast,
    choose,
    common_type,
    compare,
    field_of,
    is_scalar,
    parse_type,
    spread,
    to_python,
)


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression is worked out of: columns; of groups their keys, and the rows in them."""

    columns: Mapping[str, Value]  # arrays; a scalar is the same value in every row
    size: int
    rows: Scope | None = None  # of groups
    groups: pa.Array | None = None  # to which group each of these rows belongs

    def take(self, places: pa.Array) -> Scope:
        """Some of the rows."""
        reported = {
            n: one if is_scalar(one) else one.take(places) for n, one in self.columns.items()
        }
        return Scope(reported, len(places))

    def array(self, name: str) -> pa.Array:
        """A column by its name, or a field of one, with a value for every row."""
        return spread(self.find(name), self.size)

    def find(self, name: str) -> Value:
        """A column by its name, or a field of one by both their names."""
        found = self.columns.get(name)
        if found is not None:
            return found
        head, dot, rest = name.partition(".")
        if dot and head in self.columns:
            return field_of(self.columns[head], rest)
        raise KeyError(f"there is no column {name!r} among {', '.join(self.columns)}")


class Column:
    """A value for every row, worked out when a frame asks for it."""

    def __init__(
        self, evaluate: Callable[[Scope], Value], name: str = "", *, is_costly: bool = False
    ) -> None:
        self.evaluate = evaluate
        self.name = name
        self.is_costly = is_costly  # not to be worked out for rows that do not need it
        self.is_falling = False  # as a key of an order
        self.explodes = False  # a row becomes as many as its list is long

    def array(self, scope: Scope) -> pa.Array:
        """A value for every row."""
        return spread(self.evaluate(scope), scope.size)

    def alias(self, name: str) -> Column:
        found = Column(self.evaluate, name, is_costly=self.is_costly)
        found.explodes = self.explodes
        return found

    def cast(self, kind: str) -> Column:
        wanted = parse_type(kind)
        return Column(lambda scope: cast(self.evaluate(scope), wanted), self.name)

    def try_cast(self, kind: str) -> Column:
        """The value in another type; null where a text names none of that type."""
        wanted = parse_type(kind)
        return Column(lambda scope: _try_cast(self.evaluate(scope), wanted), self.name)

    def desc(self) -> Column:
        found = self.alias(self.name)
        found.is_falling = True
        return found

    def asc(self) -> Column:
        return self.alias(self.name)

    def isNull(self) -> Column:  # noqa: N802
        return Column(lambda scope: pc.is_null(self.evaluate(scope)))

    def isNotNull(self) -> Column:  # noqa: N802
        return Column(lambda scope: pc.is_valid(self.evaluate(scope)))

    def isin(self, *values: Any) -> Column:
        given = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        listed = list(given)

        def evaluate(scope: Scope) -> Value:
            found = self.evaluate(scope)
            wanted = pa.array([_plain(one) for one in listed], found.type)
            # Of null nobody can tell.
            known: Value = pc.is_in(found, value_set=wanted)
            return pc.if_else(pc.is_valid(found), known, pa.scalar(None, pa.bool_()))

        return Column(evaluate)

    def eqNullSafe(self, other: Any) -> Column:  # noqa: N802
        right = as_column(other)

        def evaluate(scope: Scope) -> Value:
            one, two = align([self.evaluate(scope), right.evaluate(scope)])
            same = pc.fill_null(compare("equal", one, two), False)
            return pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(two)))

        return Column(evaluate)

    def between(self, low: Any, high: Any) -> Column:
        found: Column = (self >= low) & (self <= high)
        return found

    def rlike(self, pattern: str) -> Column:
        found = re.compile(pattern)
        return by_python(self, lambda text: found.search(text) is not None, pa.bool_())

    def startswith(self, prefix: str) -> Column:
        return Column(lambda scope: pc.starts_with(self.evaluate(scope), prefix))

    def endswith(self, suffix: str) -> Column:
        return Column(lambda scope: pc.ends_with(self.evaluate(scope), suffix))

    def when(self, condition: Column, value: Any) -> Column:
        raise TypeError("when() can only follow functions.when()")

    def otherwise(self, value: Any) -> Column:
        raise TypeError("otherwise() can only follow functions.when()")

    def bitwiseXOR(self, other: Any) -> Column:  # noqa: N802
        return _binary(pc.bit_wise_xor, self, other)

    def bitwiseOR(self, other: Any) -> Column:  # noqa: N802
        return _binary(pc.bit_wise_or, self, other)

    def __getitem__(self, key: Any) -> Column:
        def evaluate(scope: Scope) -> Value:
            found = self.evaluate(scope)
            if pa.types.is_map(found.type):
                wanted = key.evaluate(scope) if isinstance(key, Column) else pa.scalar(key)
                wanted = cast(wanted, found.type.key_type)
                return pc.map_lookup(found, query_key=wanted, occurrence="first")
            return field_of(found, key)

        return Column(evaluate)

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return _compare("equal", self, other)

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return _compare("not_equal", self, other)

    def __lt__(self, other: Any) -> Column:
        return _compare("less", self, other)

    def __le__(self, other: Any) -> Column:
        return _compare("less_equal", self, other)

    def __gt__(self, other: Any) -> Column:
        return _compare("greater", self, other)

    def __ge__(self, other: Any) -> Column:
        return _compare("greater_equal", self, other)

    def __and__(self, other: Any) -> Column:
        return _binary(pc.and_kleene, self, other)

    def __rand__(self, other: Any) -> Column:
        return _binary(pc.and_kleene, as_column(other), self)

    def __or__(self, other: Any) -> Column:
        return _binary(pc.or_kleene, self, other)

    def __ror__(self, other: Any) -> Column:
        return _binary(pc.or_kleene, as_column(other), self)

    def __invert__(self) -> Column:
        return Column(lambda scope: pc.invert(self.evaluate(scope)))

    def __add__(self, other: Any) -> Column:
        return _binary(pc.add_checked, self, other)

    def __radd__(self, other: Any) -> Column:
        return _binary(pc.add_checked, as_column(other), self)

    def __sub__(self, other: Any) -> Column:
        return _binary(pc.subtract_checked, self, other)

    def __rsub__(self, other: Any) -> Column:
        return _binary(pc.subtract_checked, as_column(other), self)

    def __mul__(self, other: Any) -> Column:
        return _binary(pc.multiply_checked, self, other)

    def __rmul__(self, other: Any) -> Column:
        return _binary(pc.multiply_checked, as_column(other), self)

    def __truediv__(self, other: Any) -> Column:
        return _binary(
            lambda one, two: pc.divide(cast(one, pa.float64()), cast(two, pa.float64())),
            self,
            other,
        )

    def __neg__(self) -> Column:
        return Column(lambda scope: pc.negate_checked(self.evaluate(scope)))

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise ValueError("a column is neither true nor false: use & for and, | for or, ~ for not")


class When(Column):
    """The value of the first condition that holds."""

    def __init__(
        self, branches: Sequence[tuple[Column, Column]], default: Column | None = None
    ) -> None:
        super().__init__(self._decide)
        self._branches = list(branches)
        self._default = default

    def when(self, condition: Column, value: Any) -> Column:
        return When([*self._branches, (condition, as_column(value))], self._default)

    def otherwise(self, value: Any) -> Column:
        return When(self._branches, as_column(value))

    def _decide(self, scope: Scope) -> Value:
        branches, default, unused = self._settle(scope)
        found: Value = pa.scalar(None) if default is None else default.evaluate(scope)
        if unused:
            # They decide no value, but may decide the type.
            none = scope.take(pa.array([], pa.int64()))
            kinds = {value.evaluate(none).type for value in unused}
            found = cast(found, common_type(kinds | {found.type}))
        masks = _first_that_hold([holds for holds, _ in branches])
        for (_, value), mask in zip(reversed(branches), reversed(masks), strict=True):
            reported = _where(value, mask, scope) if value.is_costly else value.evaluate(scope)
            found = choose(mask, reported, found)
        return found

    def _settle(
        self, scope: Scope
    ) -> tuple[list[tuple[pa.Array, Column]], Column | None, list[Column]]:
        """The conditions that differ from row to row; what is left then; and values of no row."""
        if scope.rows is not None:
            arrays = [(condition.array(scope), value) for condition, value in self._branches]
            return arrays, self._default, []
        branches: list[tuple[pa.Array, Column]] = []
        unused: list[Column] = []
        for place, (condition, value) in enumerate(self._branches):
            holds = condition.evaluate(scope)
            if not is_scalar(holds):
                branches.append((holds, value))
            elif not holds.as_py():
                unused.append(value)
            else:
                unused += [later for _, later in self._branches[place + 1 :]]
                unused += [] if self._default is None else [self._default]
                return branches, value, unused
        return branches, self._default, unused


def _first_that_hold(conditions: Sequence[pa.Array]) -> list[pa.Array]:
    """For each condition the rows in which it is the first that holds."""
    masks: list[pa.Array] = []
    left: Value = pa.scalar(True)
    for condition in conditions:
        holds = pc.fill_null(condition, False)
        masks.append(pc.and_(left, holds))
        left = pc.and_(left, pc.invert(holds))
    return masks


def as_column(value: Any) -> Column:
    """A column as it is, and all else as a value that is the same in every row."""
    if isinstance(value, Column):
        return value
    found = scalar(value)
    return Column(lambda _: found)


def named(value: Column | str) -> Column:
    """A column as it is; a text is the name of one."""
    if isinstance(value, Column):
        return value
    name = value[1:-1] if value.startswith("`") else value
    # Of a field of a struct the last part is the name.
    shown = value[1:-1] if value.startswith("`") else value.rpartition(".")[2]
    return Column(lambda scope: scope.find(name), shown)


def scalar(value: Any) -> pa.Scalar:
    """A value of Python in the type that Spark takes it for."""
    value = _plain(value)
    if isinstance(value, bool) or value is None:
        return pa.scalar(value)
    if isinstance(value, int):
        return pa.scalar(value, pa.int32() if -(2**31) <= value < 2**31 else pa.int64())
    if isinstance(value, datetime):
        return pa.scalar(value, MOMENT)
    return pa.scalar(value)


def _plain(value: Any) -> Any:
    """A member of an enumeration as the text that it is."""
    return str(value) if isinstance(value, str) else value


def _binary(action: Callable[[Any, Any], Value], one: Column, other: Any) -> Column:
    right = as_column(other)

    def evaluate(scope: Scope) -> Value:
        return action(*align([one.evaluate(scope), right.evaluate(scope)]))

    return Column(evaluate)


def _compare(name: str, one: Column, other: Any) -> Column:
    right = as_column(other)
    return Column(lambda scope: compare(name, one.evaluate(scope), right.evaluate(scope)))


def _where(value: Column, mask: pa.Array, scope: Scope) -> pa.Array:
    """A value that is costly, worked out for the rows of the mask only; null in the others."""
    chosen = pc.indices_nonzero(mask)
    reported = value.array(scope.take(chosen))
    places: list[int | None] = [None] * scope.size
    for at, row in enumerate(chosen.to_pylist()):
        places[row] = at
    return reported.take(pa.array(places, pa.int64()))


def by_python(column: Column, action: Callable[[Any], Any], kind: pa.DataType) -> Column:
    """A function of Python of each value that is not null."""

    def evaluate(scope: Scope) -> Value:
        found = column.evaluate(scope)
        if is_scalar(found):
            return pa.scalar(None if not found.is_valid else action(found.as_py()), kind)
        if found.null_count == len(found):
            return pa.nulls(len(found), kind)
        reported = (None if one is None else action(one) for one in texts(found))
        return pa.array(list(reported), kind)

    return Column(evaluate)


def texts(array: pa.Array) -> Sequence[Any]:
    """Values of Python; texts that are no UTF-8 with a sign for each byte that is none."""
    if pa.types.is_string(array.type):
        raw = array.cast(pa.binary()).to_pylist()
        return [None if one is None else one.decode("utf-8", "replace") for one in raw]
    return list(to_python(array))


_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_BLANKS: Final = "".join(map(chr, range(33)))


def _try_cast(value: Value, kind: pa.DataType) -> Value:
    if not pa.types.is_string(value.type):
        return cast(value, kind)
    if not pa.types.is_integer(kind):
        raise TypeError(f"no text is tried as {kind}")
    most = 2 ** (kind.bit_width - 1)

    def number(text: str) -> int | None:
        bare = text.strip(_BLANKS)
        if not _WHOLE.fullmatch(bare) or len(bare) > 20:
            return None
        found = int(bare)
        return found if -most <= found < most else None

    return by_python(Column(lambda _: value), number, kind).evaluate(Scope({}, 0))
