"""Dead letters of a group, and redrives of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pelops.api.group.recovery import DEFAULT_MAX_ENTRY_BYTES
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.records.dead_letter import LetterAction
from pelops.domain.records.ledger import LETTER_FIELDS
from pelops.redis_core.server import Server
from pelops.redis_streams.redrive.moves import (
    MoveResult,
    RedriveContext,
    Stop,
    move_letters,
    read_letters,
    start_redrive,
)
from tests.integration.redis_adapter import an_owner

KEYS = derive_keys("orders:events", "processing")
OWNER = an_owner()
Flat = Sequence[str | bytes]


def a_redrive(keys: GroupKeys = KEYS, **changed: Any) -> RedriveContext:
    """A redrive of all dead letters back to the stream."""
    usual = RedriveContext(
        keys=keys,
        owner_uid=OWNER.uid,
        uid="11d0-a",
        name="after-fix",
        action=LetterAction.REDRIVE,
        to_retry_stream=False,
        field_prefix="_",
        actor="replica-1",
        requested_by="jane",
        max_entry_bytes=DEFAULT_MAX_ENTRY_BYTES,
    )
    return replace(usual, **changed)


def letter_of(
    keys: GroupKeys, own: Flat, root: str = "5-0", *, prefix: str = "_", **named: str
) -> list[str | bytes]:
    """Names and values of a dead letter whose entry had these pairs of its own."""
    known = {
        "original_id": root,
        "stream": keys.stream,
        "group": keys.group,
        "consumer": "web-1",
        "delivery_count": "4",
        "retry_count": "3",
        "reason": "MaxRetriesExceeded",
        "error": "",
        "delivered_ms": "1760000000000",
        "dead_lettered_ms": "1760000001000",
    } | named
    return [*own, *(part for name in LETTER_FIELDS for part in (prefix + name, known[name]))]


async def add_letter(
    server: Server,
    keys: GroupKeys,
    own: Flat = ("f", "v"),
    root: str = "5-0",
    entry_id: str = "*",
    **named: str,
) -> EntryId:
    """Add a dead letter; its ID."""
    pairs = letter_of(keys, own, root, **named)
    found = await server.execute("XADD", keys.dead_letter, entry_id, *pairs, key=keys.dead_letter)
    return parse_entry_id(found)


async def entries_of(server: Server, key: str) -> list[tuple[str, list[bytes]]]:
    """Every entry of a stream, with names and values in turn."""
    found = await server.execute("XRANGE", key, "-", "+", key=key)
    return [(entry_id.decode(), flat) for entry_id, flat in found]


async def move_all(
    server: Server, context: RedriveContext, *, count: int = 300, **bounds: int
) -> MoveResult:
    """Start a redrive and move dead letters page by page, until a call stops for a reason."""
    progress = await start_redrive(server, context)
    moved, skipped = 0, dict[Any, int]()
    while True:
        after = progress.cursor
        page = await read_letters(server, context, after=after, until=progress.until, count=count)
        ids = [letter.entry_id for letter in page.letters]
        result = await move_letters(
            server, context, ids, after=after, through=page.through, **bounds
        )
        moved += result.moved
        for why, number in result.skipped.items():
            skipped[why] = skipped.get(why, 0) + number
        progress = result.progress
        if result.stop is not Stop.DONE or progress.is_at_end:
            return replace(result, moved=moved, skipped=skipped)


async def state_of(server: Server, keys: GroupKeys = KEYS) -> Mapping[str, str]:
    """The fields of a group's state that redrives have written."""
    script = "return redis.call('HGETALL', KEYS[1])"
    flat = await server.execute("EVAL", script, 1, keys.state, key=keys.state)
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    return {
        name.decode(): value.decode()
        for name, value in fields.items()
        if name.startswith(b"redrive:")
    }
