"""Reads what a script returns, as NamedTuples whose annotations check and convert each part.

    class Trimmed(NamedTuple):
        verdict: Literal["done"]
        removed: Count
        first: IdIfAny

    load_script("trim_stream", Trimmed | NotDue | Refusal)

The verdict in the first part of a reply selects the NamedTuple, the first one that has it; one
without a verdict takes all other replies. A Literal alone is a verdict without parts. A part is
`Annotated` with the function that reads it, an enumeration, a NamedTuple, or a list of these;
`X | None` may be absent, and a last part `tuple[X, ...]` takes all that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pelops.redis_core.replies.shapes import BadShape, parts_of
from pelops.scripts.parts import Text, read_text

if TYPE_CHECKING:
    from typing_extensions import TypeForm

AnswerT = TypeVar("AnswerT")
_UNIONS: Final = frozenset({Union, UnionType})
Read: TypeAlias = Callable[[Any], Any]  # raises an exception that `reading` knows


class Refusal(NamedTuple):
    """A verdict that the script did nothing, with the names that explain it."""

    verdict: Literal[
        "another-runs", "chunk-changed", "discarded-in-use", "letters-conflict", "letters-not-ours",
        "letters-read", "no-group", "no-permission", "not-owner", "not-started", "position-ahead",
        "removed", "stream-in-use", "too-large", "too-many", "would-duplicate", "wrong-type",
    ]  # fmt: skip
    names: tuple[Text, ...]


class Answers(Generic[AnswerT]):
    """Reads the replies of one script."""

    def __init__(self, form: TypeForm[AnswerT] | Any) -> None:
        self.by_verdict: dict[Any, Read] = {}
        self.other: Read = _read_unknown
        for kind in get_args(form) if get_origin(form) in _UNIONS else (form,):
            read, first = reader_of(kind), kind
            if _is_row(kind):
                first = next(iter(_hints_of(kind)))
            elif get_origin(kind) is Literal:
                read = partial(_read_word, read)
            if get_origin(first) is Literal:
                self.by_verdict = {one.encode(): read for one in get_args(first)} | self.by_verdict
            else:
                self.other = read

    def read(self, reply: Any) -> AnswerT:
        """The reply, checked and converted; raises an exception that `reading` knows."""
        verdict = reply[0] if self.by_verdict and reply else None
        read = self.by_verdict.get(verdict, self.other) if type(verdict) is bytes else self.other
        return read(reply)  # type: ignore[no-any-return]


def _hints_of(kind: Any) -> list[Any]:
    return list(get_type_hints(kind, include_extras=True).values())


def _is_row(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple)


def _read_word(read: Read, reply: Any) -> Any:
    return read(*parts_of(reply))


def _read_unknown(reply: Any) -> Any:
    raise BadShape("its verdict is unknown")


@cache
def reader_of(kind: Any) -> Read:
    """The function that reads a part of this type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return kind.__metadata__[0]  # type: ignore[no-any-return]
    if origin is Literal:
        return {one.encode(): one for one in inner}.__getitem__
    if origin in _UNIONS:
        (read,) = (reader_of(one) for one in inner if one is not NoneType)
        return lambda part: None if part is None else read(part)
    if origin in {list, tuple}:
        read = _rows_reader(inner[0])
        return read if origin is list else lambda parts: tuple(read(parts))
    if issubclass(kind, Enum):
        return lambda part: kind(read_text(part))
    return _row_reader(kind)


def _row_reader(kind: Any) -> Read:
    hints, make = _hints_of(kind), kind._make
    readers = list(map(reader_of, hints))
    ahead = len(hints) - 1

    def read(row: Any) -> Any:
        return make([read(part) for read, part in zip(readers, parts_of(row), strict=True)])

    def read_open(row: Any) -> Any:
        return read([*parts_of(row)[:ahead], row[ahead:]])

    return read_open if get_origin(hints[-1]) is tuple else read


def _rows_reader(kind: Any) -> Read:
    if not _is_row(kind):
        read_part = reader_of(kind)
        return lambda parts: list(map(read_part, parts_of(parts)))
    readers = list(map(reader_of, _hints_of(kind)))
    make = kind._make

    def read(rows: Any) -> Any:
        if not parts_of(rows):
            return []
        if len(rows[0]) != len(readers):
            raise BadShape("a list has an unexpected number of elements")
        # A column at a time, by functions implemented in C: rows are the bulk of answers.
        columns = map(map, readers, zip(*map(parts_of, rows), strict=True))
        return list(map(make, zip(*columns, strict=True)))

    return read
