"""Reads an untrusted JSON object field by field. Errors name the field."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

from pelops.errors import InvalidSpec

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonFields:
    """A JSON object, and its path in the document. Every method raises InvalidSpec."""

    content: Mapping[str, Any] = field(repr=False)
    at: str = ""  # path of the object, the prefix of its fields' names in errors

    def number(self, name: str) -> int:
        """A whole number from 0 to 2^63 - 1, the range of a Redis counter."""
        value = self.content.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise InvalidSpec(f"{self.at}{name} is not a count")
        return value

    def text(self, name: str, limit: int = 4096) -> str:
        """A text of at most `limit` characters."""
        value = self.content.get(name)
        if not isinstance(value, str) or len(value) > limit:
            raise InvalidSpec(f"{self.at}{name} is not a text, or too long")
        return value

    def ratio(self, name: str) -> float | None:
        """A number whose absolute value is below 1e15; None when it is absent or null."""
        value = self.content.get(name)
        if value is None:
            return None
        # Written as `not ... <` so that NaN fails too.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
            raise InvalidSpec(f"{self.at}{name} is not a number")
        return float(value)

    def word(self, name: str, words: type[Word]) -> Word:
        """One of the words of an enumeration."""
        try:
            return words(self.text(name))
        except ValueError as error:
            raise InvalidSpec(f"{self.at}{name} is none of {', '.join(words)}") from error

    def inner(self, name: str) -> JsonFields:
        """An object inside this one."""
        value = self.content.get(name)
        if not isinstance(value, Mapping):
            raise InvalidSpec(f"{self.at}{name} is not an object")
        return JsonFields(content=value, at=f"{self.at}{name}.")


def load_json_object(text: str | bytes, what: str, *, limit: int) -> JsonFields:
    """The JSON object in a text of at most `limit` characters or bytes. Raises InvalidSpec."""
    if len(text) > limit:
        raise InvalidSpec(f"{what} is longer than {limit} bytes")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSpec(f"{what} is not valid JSON") from error
    if not isinstance(content, Mapping):
        raise InvalidSpec(f"{what} is not a JSON object")
    return JsonFields(content=content)


PACKED: Final = "pelops.dev/packed"  # the only field of a part that is kept compressed


def unpack(part: Any) -> Any:
    """A part of a cached object, with all compressed parts in it unpacked."""
    if isinstance(part, Mapping):
        packed = part.get(PACKED)
        if isinstance(packed, bytes):  # bytes never come from the API server
            return json.loads(zlib.decompress(packed))
        return {key: unpack(value) for key, value in part.items()}
    return part


def part_of(template: Mapping[str, Any] | None, field: str) -> Any:
    """One field of a cached pod template, unpacked; None when it does not exist."""
    found = template or {}
    return unpack(found).get(field) if PACKED in found else unpack(found.get(field))
