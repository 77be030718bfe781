"""Streams with many entries of any age, and what is left of them after a trim."""

from datetime import timedelta

from pelops.domain.entry_id import parse_entry_id
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.records.ledger import LETTER_FIELDS, LedgerEvent, LedgerKind, parse_ledger_event
from pelops.redis_core.server import Server
from tests.integration.redis_adapter import an_owner

KEYS = derive_keys("orders:events", "processing")
OWNER = an_owner()
DAY = timedelta(days=1)


async def fill(server: Server, key: str, count: int, *, first: int = 1, ms: int = 0) -> None:
    """Entries `first`-0 to `count`-0, or `ms`-1 and so on when a time is given."""
    script = (
        "for i = tonumber(ARGV[2]), tonumber(ARGV[1]) do redis.call('XADD', KEYS[1],"
        " ARGV[3] == '0' and i .. '-0' or ARGV[3] .. '-' .. i, 'f', 'v') end"
    )
    await server.execute("EVAL", script, 1, key, count, first, ms, key=key, writes=True)


def letter_pairs(keys: GroupKeys, *, prefix: str = "_") -> list[str]:
    """The pairs of a dead letter of a group, after one pair of the user's own."""
    named = {"stream": keys.stream, "group": keys.group}
    marks = [part for name in LETTER_FIELDS for part in (prefix + name, named.get(name, "1"))]
    return ["f", "v", *marks]


async def fill_with(server: Server, key: str, pairs: list[str], count: int, *, ms: int) -> None:
    """The same entry so often, as `ms`-1 and so on."""
    for number in range(1, count + 1):
        await server.execute("XADD", key, f"{ms}-{number}", *pairs, key=key, writes=True)


async def fill_letters(server: Server, count: int, *, ms: int, keys: GroupKeys = KEYS) -> None:
    """Dead letters of a group."""
    await fill_with(server, keys.dead_letter, letter_pairs(keys), count, ms=ms)


async def first_and_length(server: Server, key: str = KEYS.stream) -> tuple[str, int]:
    entries = await server.execute("XRANGE", key, "-", "+", "COUNT", 1, key=key)
    length = await server.execute("XLEN", key, key=key)
    return (entries[0][0].decode() if entries else "", length)


async def events(server: Server, kind: LedgerKind, keys: GroupKeys = KEYS) -> list[LedgerEvent]:
    entries = await server.execute("XRANGE", keys.ledger, "-", "+", key=keys.ledger)
    found = [
        parse_ledger_event(parse_entry_id(entry_id), dict(zip(ps[::2], ps[1::2], strict=True)))
        for entry_id, ps in entries
    ]
    return [event for event in found if event.kind == kind]
