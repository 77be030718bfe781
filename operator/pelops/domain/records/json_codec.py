"""Reads and writes records as JSON: frozen dataclasses whose types say what JSON holds.

    Codec(AuditSummary, "the summary", limit=16384).parse(text)

Reading is strict: it converts no text to a number, and ignores fields of later releases. Of a
repeated name, the last value counts. pydantic does the work and is imported by the first of it, so
a worker, which has no pydantic, can import records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeAlias, TypeVar

from pelops.clock import MILLISECOND, from_ms, to_ms
from pelops.domain.condition import shorten
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.errors import InvalidSpec

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

Record = TypeVar("Record")
_PATH_LIMIT: Final = 128  # characters; names in a document may be hostile
_SUBJECT: Final = re.compile(r"^\w+ should ")


class ValueLimits:
    """Limits of a value, by the names of pydantic: `ge`, `lt`, `max_length`, and others."""

    def __init__(self, **limits: object) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), **self._limits}


def _refuse(value: object) -> None:
    raise ValueError("is only written, and never read")


def _keep(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Stored:
    """The type that JSON holds instead of this one, and the conversions from and to it."""

    kind: Any
    read: Callable[[Any], Any] = _refuse  # a ValueError becomes an error with the field's path
    write: Callable[[Any], Any] = _keep

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        stored = handler.generate_schema(self.kind)
        write = core_schema.plain_serializer_function_ser_schema(self.write, return_schema=stored)
        return core_schema.no_info_after_validator_function(self.read, stored, serialization=write)


# The range of a Redis counter.
Count: TypeAlias = Annotated[int, ValueLimits(strict=True, ge=0, lt=2**63)]
Ratio: TypeAlias = Annotated[
    float, ValueLimits(strict=True, gt=-1e15, lt=1e15, allow_inf_nan=False)
]
Word: TypeAlias = Annotated[str, ValueLimits(max_length=64)]
Text: TypeAlias = Annotated[str, ValueLimits(max_length=4096)]
IdText: TypeAlias = Annotated[str, ValueLimits(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]
Id: TypeAlias = Annotated[EntryId, Stored(IdText, parse_entry_id, str)]
Moment: TypeAlias = Annotated[datetime, Stored(Count, from_ms, to_ms)]  # in milliseconds


def _replace_bytes(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# A name from Redis; in JSON, bytes of it that are not UTF-8 are replaced.
Name: TypeAlias = Annotated[str, Stored(str, str, _replace_bytes)]


def _span(number: float, unit: timedelta) -> timedelta:
    return min(max(number, 0.0), 1e12) * unit


Milliseconds: TypeAlias = Annotated[
    timedelta,
    Stored(Count, lambda ms: _span(ms, MILLISECOND), lambda span: span // MILLISECOND),
]
Seconds: TypeAlias = Annotated[
    timedelta,
    Stored(
        Ratio,
        lambda seconds: _span(seconds, timedelta(seconds=1)),
        lambda span: round(span.total_seconds(), 3),
    ),
]


def names(**by_attribute: str) -> dict[str, Any]:
    """The `__pydantic_config__` of a record whose fields have other names in JSON."""
    return {
        "alias_generator": lambda name: by_attribute.get(name, name),
        "serialize_by_alias": True,
        "json_schema_serialization_defaults_required": True,
    }


def only_version(version: int, what: str) -> Stored:
    """The version of a record as its first field: every other version is refused."""

    def check(found: int) -> int:
        if found != version:
            raise InvalidSpec(
                f"{what} has version {found}, and this version of Pelops reads {version}: use the "
                "same release of operator and pipeline"
            )
        return found

    return Stored(Count, check)


class Codec(Generic[Record]):
    """Parses and renders the records of one type."""

    def __init__(self, kind: type[Record], what: str, *, limit: int) -> None:
        """`what` begins the messages of errors; `limit` is in bytes."""
        self._kind, self._what, self._limit = kind, what, limit

    @cached_property
    def _adapter(self) -> TypeAdapter[Record]:
        from pydantic import TypeAdapter

        return TypeAdapter(self._kind)

    def parse(self, text: str | bytes, what: str | None = None) -> Record:
        """The record in a JSON text. Raises InvalidSpec, which names the field."""
        from pydantic import ValidationError

        what = what or self._what
        # The parser refuses half of a surrogate pair.
        content = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        if len(content) > self._limit:
            raise InvalidSpec(f"{what} is longer than {self._limit} bytes")
        try:
            return self._adapter.validate_json(content, strict=True)
        except ValidationError as error:
            # Without the original, whose text has every fault and the values.
            raise InvalidSpec(f"{what}{_explain(error)}") from None

    def to_object(self, record: Record, *, has_defaults: bool = True) -> Any:
        """The JSON object of a record; `has_defaults` includes fields that have their default."""
        return self._adapter.dump_python(record, mode="json", exclude_defaults=not has_defaults)

    def render(self, record: Record, *, has_defaults: bool = True, **options: Any) -> str:
        """The JSON text of a record. Equal records give equal texts; `options` are of `json`."""
        return json.dumps(self.to_object(record, has_defaults=has_defaults), **options)


def _explain(error: ValidationError) -> str:
    """The first fault and the path of its field, without the value."""
    fault = error.errors(include_url=False, include_input=False)[0]
    steps = [step for step in fault["loc"] if step != "[key]"]
    path = "".join(f".{step}" if str(step).isidentifier() else f"[{step!r}]" for step in steps)
    if fault["type"] == "json_invalid":
        return f" is not valid JSON: {fault['ctx']['error']}"
    if fault["type"] == "value_error":
        text = str(fault["ctx"]["error"])
    elif fault["type"] == "missing":
        text = "is missing"
    elif fault["type"] == "unexpected_keyword_argument":
        text = "is not a known field"
    else:
        text = _SUBJECT.sub("must ", fault["msg"])
    return f": {shorten(path.lstrip('.'), _PATH_LIMIT)}: {text}" if path else f": {text}"
