"""Reads entries of a stream with their bodies, limited in number and bytes.

No command returns the size of an entry without its body. So the first page has one entry, and pages
grow while entries are small, to keep a reply near `PAGE_BYTES`. An entry larger than `MOST_ENTRY`
is listed without its fields.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.records.dead_letter import parse_letter, read_redrive_marks
from pelops.domain.records.inspection import FoundEntry, LetterDetails, StreamKind
from pelops.domain.records.ledger import LETTER_FIELDS
from pelops.errors import InvalidReply, InvalidSpec, PelopsError
from pelops.redis_core.replies.shapes import BadShape, reading
from pelops.redis_core.replies.wire import ReplyLimit
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Command, Reply

MIB: Final = 1024 * 1024
PAGE_BYTES: Final = 512 * 1024
MOST_ENTRY: Final = 8 * MIB  # a larger entry is listed but not read
_MOST_IN_PAGE: Final = 500
_SHOWN: Final = 2_000  # characters of a dead letter's error


@dataclass(frozen=True, slots=True)
class RawEntry:
    """An entry as a stream holds it."""

    entry_id: EntryId
    flat: Sequence[bytes]  # alternating names and values
    is_unread: bool = False  # it is too large to be read

    @property
    def bytes(self) -> int:
        """The bytes of its names and values."""
        return sum(map(len, self.flat))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of a search."""

    entries: int
    bytes: int


async def read_entry(
    server: Server, key: str, entry_id: EntryId, *, most: int = MOST_ENTRY
) -> RawEntry | None:
    """One entry; None when the stream does not hold it, or does not exist.

    An entry larger than `most` bytes is returned without its fields. Raises as every read does.
    """
    bounds = (str(entry_id), str(entry_id))
    try:
        entries = await _read_range(server, "XRANGE", key, *bounds, 1, most=most)
    except InvalidReply:
        return RawEntry(entry_id, (), is_unread=True)
    return entries[0] if entries else None


async def read_forward(
    server: Server, key: str, first: str, budget: Budget, *, last: str = "+"
) -> AsyncGenerator[list[RawEntry], None]:
    """Pages from `first` (an ID, `(ID` or `-`), the oldest entry first."""
    async for page in _read_pages(server, "XRANGE", key, (first, last), budget):
        yield page


async def read_backward(
    server: Server, key: str, budget: Budget
) -> AsyncGenerator[list[RawEntry], None]:
    """Pages from the end of a stream, the newest entry first."""
    async for page in _read_pages(server, "XREVRANGE", key, ("+", "-"), budget):
        yield page


async def _read_pages(
    server: Server, command: str, key: str, bounds: tuple[str, str], budget: Budget
) -> AsyncGenerator[list[RawEntry], None]:
    """Stops silently when the budget is used up; the caller compares the total with the budget."""
    start, end = bounds
    left, bytes_left, count, largest = budget.entries, budget.bytes, 1, 1
    previous: EntryId | None = None
    while left > 0 and bytes_left > 0:
        page = await _read_range(server, command, key, start, end, min(count, left))
        if not page:
            return
        first = page[0].entry_id
        with reading(command):
            if previous is not None and (
                first <= previous if command == "XRANGE" else first >= previous
            ):
                raise BadShape("a page does not continue where the page before it ended")
        previous = page[-1].entry_id
        yield page
        if len(page) < min(count, left):
            return
        left -= len(page)
        bytes_left -= sum(one.bytes for one in page)
        largest = max(largest, *(one.bytes for one in page))
        count = max(1, min(2 * count, PAGE_BYTES // largest, _MOST_IN_PAGE))
        start = f"({previous}"


async def _read_range(
    server: Server,
    command: str,
    key: str,
    start: str,
    end: str,
    count: int,
    *,
    most: int = MOST_ENTRY,
) -> list[RawEntry]:
    words = (command, key, start, end, "COUNT", count)
    limit = ReplyLimit(most + 2 * PAGE_BYTES, 1_000_000)
    (reply,) = await server.execute_many([Command(parts=words, key=key, limit=limit)])
    if isinstance(reply, PelopsError):
        raise reply
    with reading(command):
        return [_read_raw(one) for one in reply or ()]


def _read_raw(found: Reply) -> RawEntry:
    entry_id, flat = found
    if not isinstance(flat, list) or len(flat) % 2 or not all(isinstance(x, bytes) for x in flat):
        raise BadShape("an entry is not a list of fields and values")
    return RawEntry(parse_entry_id(entry_id), flat)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryReader:
    """Parses the pairs that Pelops adds at the end of entries, with the resource's field prefix."""

    keys: GroupKeys
    prefix: str = "_"
    with_pairs: bool = False  # payloads were requested

    def read(self, place: StreamKind, stream: str, raw: RawEntry) -> FoundEntry:
        """The entry, with the values of its fields only if they were requested."""
        letter, kept = None, len(raw.flat)
        if place in {StreamKind.DEAD_LETTERS, StreamKind.DISCARDED}:
            letter, root, failures, kept = self._read_letter(raw)
        else:
            root, failures, kept = self._read_copy_marks(raw)
        redrive, returned = read_redrive_marks(raw.flat[:kept], self.prefix.encode())
        kept = kept - 4 if redrive else kept
        pairs = tuple(zip(raw.flat[:kept:2], raw.flat[1:kept:2], strict=True))
        return FoundEntry(
            place=place,
            stream=stream,
            entry_id=raw.entry_id,
            root_id=root,
            bytes=None if raw.is_unread else raw.bytes,
            retry_count=failures,
            redrive=redrive,
            returned=returned,
            letter=letter,
            pairs=pairs if self.with_pairs else (),
        )

    def _read_letter(self, raw: RawEntry) -> tuple[LetterDetails | None, EntryId, int, int]:
        """A dead letter's record, its root, failed attempts, and the number of elements before it.

        No record for an entry that is not a dead letter of this group.
        """
        known = parse_letter(raw.entry_id, raw.flat, self.keys)
        if known is None:
            return None, raw.entry_id, 0, len(raw.flat)
        kept = len(raw.flat) - 2 * len(LETTER_FIELDS)
        texts = (value[:512].decode("utf-8", "replace") for value in raw.flat[kept + 1 :: 2])
        named = dict(zip(LETTER_FIELDS, texts, strict=True))
        details = LetterDetails(
            reason=known.reason[:_SHOWN],
            error=known.error[:_SHOWN],
            consumer=named["consumer"],
            deliveries=_number(named["delivery_count"]),
            at=known.dead_lettered,
        )
        return details, known.root_id or raw.entry_id, _number(named["retry_count"]), kept

    def _read_copy_marks(self, raw: RawEntry) -> tuple[EntryId, int, int]:
        """The root, failed attempts, and the number of elements before them (include/entry.lua)."""
        flat, count = raw.flat, len(raw.flat)
        names = (f"{self.prefix}original_id".encode(), f"{self.prefix}retry_count".encode())
        if count >= 4 and (flat[-4], flat[-2]) == names and len(flat[-1]) <= 6:
            root = _id(flat[-3][:64].decode("utf-8", "replace"))
            if flat[-1].isdigit() and root is not None and root < raw.entry_id:
                return root, int(flat[-1]), count - 4
        return raw.entry_id, 0, count


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else 0


def _id(text: str) -> EntryId | None:
    try:
        return parse_entry_id(text) if "-" in text else None
    except InvalidSpec:
        return None
