"""Dead letters as they are read from a dead-letter stream, and the actions of a redrive.

A dead letter is an entry: the producer's pairs, then the two pairs of `REDRIVE_MARKS` if it was
redriven before, then those of `LETTER_FIELDS`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from pelops.clock import from_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.records.ledger import LETTER_FIELDS, LedgerKind
from pelops.errors import InvalidSpec

# The last pairs before `_original_id` and `_retry_count`, or before `LETTER_FIELDS`.
REDRIVE_MARKS: Final = ("redrive", "returned")  # "<name>/<uid>", and how often it was redriven
MOST_RETURNED: Final = 999_999
_REDRIVE: Final = re.compile(rb"(?=.{3,318}\Z)[a-z0-9.-]+/[0-9a-zA-Z-]+", re.DOTALL)
_RETURNED: Final = re.compile(rb"[0-9]{1,6}")

Pairs = tuple[tuple[bytes, bytes], ...]


class LetterAction(StrEnum):
    """What a StreamRedrive does with the dead letters that it selects: `spec.action`."""

    REDRIVE = "Redrive"  # from the dead-letter stream back to the stream, or to the retry stream
    DISCARD = "Discard"  # from the dead-letter stream to the stream of discarded dead letters
    RESTORE = "Restore"  # from the stream of discarded dead letters to the dead-letter stream

    @property
    def kind(self) -> LedgerKind:
        """The kind of the ledger event that records the action."""
        return _KINDS[self]


_KINDS: Final = {
    LetterAction.REDRIVE: LedgerKind.REDRIVEN,
    LetterAction.DISCARD: LedgerKind.DISCARDED,
    LetterAction.RESTORE: LedgerKind.RESTORED,
}


class SkipReason(StrEnum):
    """Why a selected dead letter stays where it is. The value is what the script returns."""

    VANISHED = "vanished"  # deleted, expired or moved by another client after it was selected
    FOREIGN = "foreign"  # not a dead letter of this group
    NO_BODY = "no-body"  # the entry was deleted before it became a dead letter (`PayloadGone`)
    TOO_LARGE = "too-large"  # more bytes than spec.recovery.maxEntryBytes
    TOO_WIDE = "too-wide"  # more pairs than recovery can copy again
    DAMAGED = "damaged"  # its original ID is invalid, or is not in the past
    REFUSED = "refused"  # Redis did not accept the copy


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter of this group."""

    entry_id: EntryId  # in the dead-letter stream
    root_id: EntryId | None  # of the first entry in the chain of copies; None: damaged
    reason: str
    error: str
    dead_lettered: datetime  # from its field; from its ID where the field is damaged
    redrive: str  # "<name>/<uid>" of the StreamRedrive that last moved it; empty: none did
    returned: int  # how often it was redriven before
    pairs: Pairs  # the producer's own, in order

    @property
    def has_body(self) -> bool:
        """False when the entry was deleted before it became a dead letter."""
        return bool(self.pairs)


def parse_letter(entry_id: EntryId, flat: Sequence[bytes], keys: GroupKeys) -> DeadLetter | None:
    """The dead letter that an entry holds; `flat` alternates between names and values.

    None for an entry that is not a dead letter of this group, by the same rules as the scripts.
    """
    keep = len(flat) - 2 * len(LETTER_FIELDS)
    if keep < 0:
        return None
    first = LETTER_FIELDS[0].encode()
    prefix = flat[keep].removesuffix(first)
    if flat[keep::2] != [prefix + name.encode() for name in LETTER_FIELDS]:
        return None
    known = dict(zip(LETTER_FIELDS, flat[keep + 1 :: 2], strict=True))
    streams = {keys.stream.encode(), keys.retry.encode()}
    if known["group"] != keys.group.encode() or known["stream"] not in streams:
        return None
    redrive, returned = read_redrive_marks(flat[:keep], prefix)
    own = flat[: keep - 4] if redrive else flat[:keep]
    return DeadLetter(
        entry_id=entry_id,
        root_id=_read_id(known["original_id"]),
        reason=known["reason"].decode("utf-8", "replace"),
        error=known["error"].decode("utf-8", "replace"),
        dead_lettered=_read_time(known["dead_lettered_ms"]) or from_ms(entry_id.ms),
        redrive=redrive,
        returned=returned,
        pairs=tuple(zip(own[::2], own[1::2], strict=True)),
    )


def read_redrive_marks(flat: Sequence[bytes], prefix: bytes) -> tuple[str, int]:
    """The redrive that moved an entry, and how often it was redriven; empty and 0 for none.

    `flat` alternates between names and values, and ends with the marks.
    """
    names = [prefix + name.encode() for name in REDRIVE_MARKS]
    if len(flat) < 4 or [flat[-4], flat[-2]] != names:
        return "", 0
    redrive, returned = flat[-3], flat[-1]
    if not _REDRIVE.fullmatch(redrive) or not _RETURNED.fullmatch(returned):
        return "", 0
    return redrive.decode(), int(returned)


def _read_id(text: bytes) -> EntryId | None:
    try:
        return parse_entry_id(text) if b"-" in text else None
    except InvalidSpec:
        return None


def _read_time(text: bytes) -> datetime | None:
    return from_ms(int(text)) if text.isdigit() and len(text) <= 15 else None
