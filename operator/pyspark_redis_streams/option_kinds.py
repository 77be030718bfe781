"""Kinds of options: each turns a text into a value, or says what it wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One sort of option value: how it is called in the documentation, and how it is read."""

    name: str
    read: Callable[[str], Any]  # raises ValueError with the rest of a sentence: "must be ..."


def _read_text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _read_flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false")
    return lowered == "true"


def _read_names(text: str) -> tuple[str, ...]:
    stripped = text.strip()
    if stripped.startswith("["):
        names = _read_json_names(stripped)
    else:
        names = [name.strip() for name in stripped.split(",")]
    if not names or not all(names):
        raise ValueError("must be names separated by commas, or a JSON list of names")
    return tuple(dict.fromkeys(names))


def _read_json_names(text: str) -> list[str]:
    try:
        names = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"looks like a JSON list but is none ({error})") from error
    if not all(isinstance(name, str) for name in names):
        raise ValueError("must be a JSON list of strings")
    return list(names)


def _read_moment(text: str) -> int:
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit() and int(stripped) < 2**64:
        return int(stripped)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError as error:
        raise ValueError("must be milliseconds since 1970 or an ISO 8601 time") from error
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, int(aware.timestamp() * 1000))  # no ID is older than 1970


def whole(smallest: int, largest: int | None = None) -> Kind:
    """A whole number within bounds, both included."""
    wanted = f"must be a whole number of at least {smallest}"
    wanted = wanted if largest is None else f"{wanted} and at most {largest}"

    def read(text: str) -> int:
        try:
            number = int(text.strip())
        except ValueError as error:
            raise ValueError(wanted) from error
        if number < smallest or (largest is not None and number > largest):
            raise ValueError(wanted)
        return number

    return Kind(name="whole number", read=read)


def choice(*allowed: str) -> Kind:
    """One of these words, in any case; answered as written here."""
    by_lowered = {word.lower(): word for word in allowed}

    def read(text: str) -> str:
        word = by_lowered.get(text.strip().lower())
        if word is None:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return word

    return Kind(name=" \\| ".join(allowed), read=read)


def choices(*allowed: str) -> Kind:
    """Some of these words, separated by commas."""
    single = choice(*allowed)

    def read(text: str) -> tuple[str, ...]:
        try:
            return tuple(dict.fromkeys(single.read(word) for word in text.split(",")))
        except ValueError as error:
            raise ValueError(
                f"must be some of {', '.join(allowed)}, separated by commas"
            ) from error

    return Kind(name="some of " + ", ".join(allowed), read=read)


TEXT = Kind(name="text", read=_read_text)
FLAG = Kind(name="true \\| false", read=_read_flag)
NAMES = Kind(name="names", read=_read_names)
MOMENT = Kind(name="time", read=_read_moment)
PORT = whole(1, 65535)
