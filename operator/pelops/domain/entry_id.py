"""The ID of a stream's entry: milliseconds and a sequence number, ordered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from pelops.errors import InvalidEntryId

LARGEST_PART: Final = 2**64 - 1  # both halves are unsigned 64 bit numbers
_DIGITS: Final = frozenset("0123456789")


@dataclass(frozen=True, slots=True, order=True)
class EntryId:
    """One entry's ID. Compares as Redis does: by milliseconds, then by sequence number."""

    ms: int
    seq: int = 0

    MIN: ClassVar[EntryId]  # before every entry: a group created here reads the whole stream
    MAX: ClassVar[EntryId]

    def __post_init__(self) -> None:
        if not (0 <= self.ms <= LARGEST_PART and 0 <= self.seq <= LARGEST_PART):
            raise InvalidEntryId(
                f"'{self.ms}-{self.seq}' is not an entry ID: it is out of range; both numbers must "
                f"lie between 0 and {LARGEST_PART}"
            )

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    def before(self) -> EntryId:
        """The greatest ID that is smaller than this one; `MIN` has none before it and is itself."""
        if self.seq > 0:
            return EntryId(self.ms, self.seq - 1)
        if self.ms > 0:
            return EntryId(self.ms - 1, LARGEST_PART)
        return self

    def after(self) -> EntryId:
        """The smallest ID that is greater than this one; `MAX` has none after it and is itself."""
        if self.seq < LARGEST_PART:
            return EntryId(self.ms, self.seq + 1)
        return EntryId(self.ms + 1, 0) if self.ms < LARGEST_PART else self


EntryId.MIN = EntryId(0, 0)
EntryId.MAX = EntryId(LARGEST_PART, LARGEST_PART)

EndOfStream: TypeAlias = Literal["$"]
END_OF_STREAM: Final[EndOfStream] = "$"
StartPosition: TypeAlias = EntryId | EndOfStream  # where a group that is created begins to read


def parse_entry_id(text: str | bytes, *, missing_seq: int = 0) -> EntryId:
    """Parse `ms-seq`, or `ms` alone, whose sequence number is then `missing_seq`.

    Raises InvalidEntryId for anything else, including signs, spaces and numbers above 64 bits.
    """
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    ms, dash, seq = shown.partition("-")
    if not _is_number(ms) or (dash and not _is_number(seq)):
        raise InvalidEntryId(f"{shown!r} is not an entry ID; write it as 1526919030474-0")
    return EntryId(int(ms), int(seq) if dash else missing_seq)


def render_entry_id(entry_id: EntryId) -> str:
    """The ID as Redis writes it."""
    return str(entry_id)


def _is_number(text: str) -> bool:
    # 20 digits hold 2**64 - 1; the limit bounds the cost of converting untrusted text.
    return 0 < len(text) <= 20 and _DIGITS.issuperset(text)
