"""Streams with many pending entries, made in seconds and checked before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.raw_redis import RawRedis, pack
from pelops.domain.naming import GroupKeys

# Three fields of an order: 200 bytes of names and values.
BODY = ("order_id", "4711-0815-42", "customer", "c-00016180339", "payload", "x" * 152)
PER_SCRIPT = 20_000

# Entries with chosen IDs: so many for each millisecond.
_ADD = """
local first, count, per_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
for i = 0, count - 1 do
  local id = string.format('%.0f-%d', first + math.floor(i / per_ms), i % per_ms + 1)
  redis.call('XADD', KEYS[1], id, unpack(ARGV, 4))
end
"""


def body_bytes(body: Sequence[str] = BODY) -> int:
    """The size of an entry: its names and values."""
    return sum(map(len, body))


def server_ms(raw: RawRedis) -> int:
    """The server's clock."""
    seconds, micros = raw.call("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def add_entries(
    raw: RawRedis,
    stream: str,
    count: int,
    *,
    first_ms: int | None = None,
    per_ms: int = 100,
    body: Sequence[str] = BODY,
) -> None:
    """Add entries, with the server's own IDs or with IDs from `first_ms` on."""
    if first_ms is None:
        one = pack("XADD", stream, "*", *body)
        raw.send_quietly(one * part for part in _parts(count, 1000))
        return
    for start in range(0, count, PER_SCRIPT):
        part = min(PER_SCRIPT, count - start)
        raw.call("EVAL", _ADD, 1, stream, first_ms + start // per_ms, part, per_ms, *body)


def deliver_in_turn(
    raw: RawRedis, keys: GroupKeys, consumers: Sequence[str], count: int, *, each: int
) -> None:
    """Have the consumers read `each` entries in turn until `count` are delivered in all."""
    group, stream = keys.group, keys.stream

    def reads() -> Iterator[bytes]:
        for number, part in enumerate(_parts(count, each)):
            consumer = consumers[number % len(consumers)]
            yield pack(
                "XREADGROUP", "GROUP", group, consumer, "COUNT", part, "STREAMS", stream, ">"
            )

    raw.send_quietly(reads())


def age_entries(
    raw: RawRedis, keys: GroupKeys, owner: str, ids: Sequence[str], idle_ms: int
) -> None:
    """Give entries to an owner as if they had been delivered long ago, the later ones longer.

    In this order: Redis 8.6 keeps the PEL as a list by delivery time. An entry that is older than
    all others is put in at once, any other after a walk through the list.
    """
    delivered_ms = server_ms(raw) - idle_ms
    raw.send_quietly(
        pack("XCLAIM", keys.stream, keys.group, owner, 0, one, "TIME", delivered_ms - n, "JUSTID")
        for n, one in enumerate(ids)
    )


def pending_ids(raw: RawRedis, keys: GroupKeys, owner: str | None = None) -> list[str]:
    """The IDs of pending entries, the smallest first."""
    ids: list[str] = []
    start, count = "-", 10_000
    while True:
        whose = () if owner is None else (owner,)
        page = raw.call("XPENDING", keys.stream, keys.group, start, "+", count, *whose)
        ids += (entry[0].decode() for entry in page)
        if len(page) < count:
            return ids
        start = f"({ids[-1]}"


def count_pending(raw: RawRedis, keys: GroupKeys) -> int:
    """How many entries are pending in all."""
    return int(raw.call("XPENDING", keys.stream, keys.group)[0])


def require(found: int, wanted: int, what: str) -> None:
    """Raise unless a data set or an outcome is what it is said to be."""
    if found != wanted:
        raise RuntimeError(f"{what}: {found:,} instead of {wanted:,}; nothing that follows counts")


def _parts(count: int, size: int) -> Iterator[int]:
    for start in range(0, count, size):
        yield min(size, count - start)
