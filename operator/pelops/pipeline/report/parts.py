"""What all parts of the report have in common: their form in JSON, and the types of fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
)

from pelops.clock import MILLISECOND, from_ms, to_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    AuditSummary,
    build_summary,
)
from pelops.errors import PelopsError


def _read_with(kind: type, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a validator that accepts objects of a kind, and parses them from JSON values."""

    def validate(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        try:
            return read(value)
        except (PelopsError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from error

    return validate


def _without_zeros(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {status: count for status, count in value.items() if count != 0}


Count = Annotated[int, Field(ge=0, strict=True)]
Milliseconds = Annotated[int, Field(strict=True)]
IdText = Annotated[str, Field(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]
Id = Annotated[
    EntryId,
    PlainValidator(_read_with(EntryId, lambda text: parse_entry_id(str(text)))),
    PlainSerializer(str, return_type=IdText),
]
Moment = Annotated[
    datetime,
    BeforeValidator(_read_with(datetime, from_ms)),
    PlainSerializer(to_ms, return_type=Milliseconds),
]
Step = Annotated[
    timedelta,
    BeforeValidator(_read_with(timedelta, lambda ms: ms * MILLISECOND)),
    PlainSerializer(lambda span: span // MILLISECOND, return_type=Milliseconds),
]
Span = Annotated[
    timedelta,
    PlainSerializer(lambda span: round(span / timedelta(seconds=1), 3), return_type=float),
]
Counts = Annotated[
    dict[EntryStatus, Annotated[int, Field(ge=1, strict=True)]],
    Field(description="Entries by status; statuses without entries are left out."),
    BeforeValidator(_without_zeros),
]


# One group in one window; the same object as the operator reads from Redis.
Summary = Annotated[AuditSummary, AfterValidator(build_summary)]


class ReportPart(BaseModel):
    """A part of the report. Fields of later releases are ignored."""

    model_config = ConfigDict(
        frozen=True,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )

    def model_dump_json(self, *, indent: int | None = None, **options: Any) -> str:
        """Return the JSON of this part. Equal parts give equal texts.

        Names and payloads may hold half of a surrogate pair, which only an escape can express.
        """
        content = self.model_dump(**options)
        return json.dumps(content, indent=indent, sort_keys=True, allow_nan=False)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Read what `model_dump_json` wrote. Raises ValueError for anything else."""
        return cls.model_validate(json.loads(json_data), **options)
