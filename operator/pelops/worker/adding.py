"""What a producer is given: entries, and how they are to be added."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pelops.worker.uncaught import WrongSettings

Part: TypeAlias = str | bytes | int  # of a command
Value: TypeAlias = str | bytes | int | float
Fields: TypeAlias = Mapping[str, Value] | Mapping[bytes, Value] | Sequence[tuple[Part, Value]]

PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adding:
    """How one producer adds. Raises WrongSettings for limits that cannot be."""

    # About so many entries stay; older ones are deleted, whether or not they were handled. None:
    # all stay, or as the operator's retention says, which looks at what was handled.
    max_length: int | None = None
    max_age_s: float | None = None  # the same by age and this machine's clock
    name: str = "pelops"  # producers of one name share their keys
    patience_s: float = PATIENCE_S  # how long an entry is tried again
    trace: bool = True  # whether the current span's context is added as fields

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_age_s is not None:
            raise WrongSettings("max_length and max_age_s exclude each other")
        if self.max_length is not None and not self.max_length >= 1:
            raise WrongSettings(f"max_length is {self.max_length}; it must be at least 1")
        if self.max_age_s is not None and not 0 < self.max_age_s < float("inf"):
            raise WrongSettings(f"max_age_s is {self.max_age_s}; it must be more than 0")

    def limit(self) -> list[Part]:
        """The words of XADD that delete old entries, now."""
        if self.max_length is not None:
            return ["MAXLEN", "~", self.max_length]
        if self.max_age_s is not None:
            return ["MINID", "~", f"{max(int((time.time() - self.max_age_s) * 1000), 0)}-0"]
        return []


@dataclass(slots=True)
class Order:
    """One entry on its way."""

    pairs: list[Part]
    key: Part | None
    until_s: float  # how long it is tried again
    added: asyncio.Future[str]
    by_key: bool = False  # as it was sent last
    is_doubtful: bool = False  # it may be there already

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        return sum(len(part) if isinstance(part, str | bytes) else 8 for part in self.pairs)


def own_error(error: Exception) -> Exception:
    """An error for one order: several must not share the place where it was raised."""
    try:
        copy = type(error)(*error.args)
    except TypeError:
        return error
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error
    return copy


def check_key(key: Part | None) -> Part | None:
    """The key, if it can be one; raises ValueError."""
    if key is not None and (not isinstance(key, str | bytes) or not key):
        raise ValueError("a key is text or bytes, and not empty")
    return key


def flatten(fields: Any) -> list[Part]:
    """Fields and values in turn; raises TypeError for what Redis cannot hold."""
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    flat: list[Part] = [part for name, value in pairs for part in (name, value)]
    for part in flat:
        if isinstance(part, bool) or not isinstance(part, str | bytes | int | float):
            # Not the value: it may be what nobody is to read in a log.
            raise TypeError(f"a field is text, bytes or a number, not {type(part).__name__}")
    return flat
