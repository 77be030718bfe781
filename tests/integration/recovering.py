"""Stuck entries on a real server, the orders that move them, and what became of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.records.ledger import LedgerEntry, LedgerEvent, parse_ledger_event
from pelops.domain.recovery import Action, RetryBatch, ScanObservation
from pelops.policy.recovery.attempts import AttemptPlan, OwnerPlan, Settlement
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import open_scan
from pelops.redis_streams.recovery.stuck_entries import (
    Recovered,
    RecoveryOrder,
    ScanContext,
    recover_owner,
)
from pelops.scripts.parts import read_moment
from tests.integration.redis_adapter import provision

KEYS: Final = derive_keys("orders:events", "processing")
DEAD: Final = "dead"  # the consumer whose process has died
LETTER: Final = {"reason": "MaxRetriesExceeded", "error": "its worker failed 4 times"}
_ADD: Final = """
local ids = {}
for i = 1, tonumber(ARGV[1]) do
  ids[i] = redis.call('XADD', KEYS[1], '*', 'n', i, 'f', ARGV[2])
end
return ids
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A pending entry."""

    owner: str
    idle_ms: int
    deliveries: int


def a_context(keys: GroupKeys = KEYS, **changes: Any) -> ScanContext:
    """What a scan of the stream does with copies on the stream itself."""
    reported: dict[str, Any] = {
        "keys": keys,
        "source": keys.stream,
        "target": keys.stream,
        "uid": "uid-1",
        "field_prefix": "_",
        "batch": 100,
        "actor": "replica-1",
        "trigger": "scan",
        "allows_others": False,
    }
    return ScanContext(**(reported | changes))


def an_order(**changes: Any) -> RecoveryOrder:
    """The process of the dead consumer has crashed."""
    reported: dict[str, Any] = {"owner": DEAD, "reason": "it died", "counts_attempt": True}
    return RecoveryOrder(**(reported | changes))


async def add_many(server: Server, keys: GroupKeys, number: int, value: bytes = b"v") -> None:
    await server.execute("EVAL", _ADD, 1, keys.stream, number, value, key=keys.stream)


async def read_new(
    server: Server, keys: GroupKeys, number: int, consumer: str = DEAD, stream: str | None = None
) -> list[EntryId]:
    """Have a consumer read new entries; what it was given."""
    source = stream or keys.stream
    read = ("XREADGROUP", "GROUP", keys.group, consumer, "COUNT", number, "STREAMS")
    reply = await server.execute(*read, source, ">", key=source)
    return [parse_entry_id(one) for _, found in reply or [] for one, _ in found]


async def strand(
    server: Server, number: int, keys: GroupKeys = KEYS, value: bytes = b"v"
) -> list[EntryId]:
    """Have the dead consumer hold so many entries; their IDs."""
    await provision(server, keys)
    await add_many(server, keys, number, value)
    # The adapter takes no larger replies: the operator reads no bodies.
    at_once = max(1, 8_000_000 // (len(value) + 1))
    pages = [min(at_once, number - start) for start in range(0, number, at_once)]
    return [one for page in pages for one in await read_new(server, keys, page)]


async def server_time(server: Server, keys: GroupKeys = KEYS) -> datetime:
    seconds, micros = await server.execute("TIME", key=keys.stream)
    return read_moment(int(seconds) * 1000 + int(micros) // 1000)


async def recover_all(
    server: Server,
    context: ScanContext | None = None,
    order: RecoveryOrder | None = None,
    cutoff: datetime | None = None,
) -> list[Recovered]:
    """All batches of the dead consumer; without a cutoff every delivery lies before it."""
    used = context or a_context()
    moment = cutoff or await server_time(server, used.keys) + timedelta(minutes=1)
    return [one async for one in recover_owner(server, used, order or an_order(), cutoff=moment)]


async def look(server: Server, keys: GroupKeys = KEYS, **changes: Any) -> ScanObservation:
    """What a scan begins with."""
    reported: dict[str, Any] = {"uid": "uid-1", "due": timedelta(), "with_retry": False}
    observation = await open_scan(server, keys, **(reported | changes))
    assert isinstance(observation, ScanObservation)
    return observation


def a_plan(
    *settlements: Settlement,
    cutoff: datetime,
    written: str = "",
    kept: frozenset[EntryId] = frozenset(),
    co_failed: datetime | None = None,
) -> tuple[AttemptPlan, OwnerPlan]:
    """What was decided about the dead consumer."""
    owner = OwnerPlan(owner=DEAD, cutoff=cutoff, settlements=settlements, co_failed=co_failed)
    plan = AttemptPlan(
        owners=(owner,),
        waiting=0,
        retry_batch=RetryBatch(written=written, under_way=kept),
        kept=kept,
        resolved=frozenset(),
    )
    return plan, owner


def settlement(entry_id: EntryId, action: Action = Action.RETRY, attempts: int = 2) -> Settlement:
    return Settlement(entry_id=entry_id, action=action, attempts=attempts, isolated_failures=1)


async def pending(
    server: Server, keys: GroupKeys = KEYS, stream: str | None = None
) -> dict[EntryId, Held]:
    """All pending entries."""
    source = stream or keys.stream
    reply = await server.execute("XPENDING", source, keys.group, "-", "+", 100_000, key=source)
    return {
        parse_entry_id(one): Held(owner=owner.decode(), idle_ms=idle, deliveries=number)
        for one, owner, idle, number in reply
    }


async def bodies(server: Server, key: str, only: str = "") -> dict[EntryId, list[bytes]]:
    """What a stream holds."""
    found = await server.execute("XRANGE", key, only or "-", only or "+", key=key)
    return {parse_entry_id(one): pairs for one, pairs in found}


async def ledger(server: Server, keys: GroupKeys = KEYS) -> list[LedgerEvent]:
    return [
        parse_ledger_event(one, dict(zip(pairs[::2], pairs[1::2], strict=True)))
        for one, pairs in (await bodies(server, keys.ledger)).items()
    ]


async def recorded(server: Server, kind: str, keys: GroupKeys = KEYS) -> list[LedgerEntry]:
    """The entries in the ledger's events of one kind."""
    return [
        entry
        for event in await ledger(server, keys)
        if event.kind == kind
        for entry in event.entries
    ]


async def targets(server: Server, kind: str, keys: GroupKeys = KEYS) -> set[str | None]:
    """The streams that have the new IDs, according to the ledger."""
    events = await ledger(server, keys)
    return {event.details.get("target") for event in events if event.kind == kind}


async def totals(server: Server, keys: GroupKeys = KEYS) -> dict[str, int]:
    """What the state has counted."""
    names = ("requeued", "released", "dead_lettered", "payload_gone")
    words = [f"total:{name}" for name in names]
    reply = await server.execute("HMGET", keys.state, *words, key=keys.state)
    return {name: int(value or 0) for name, value in zip(names, reply, strict=True)}


async def snapshot(server: Server, keys: GroupKeys = KEYS) -> dict[str, object]:
    """Everything that recovery might change."""
    held = {one: entry.owner for one, entry in (await pending(server, keys)).items()}
    streams = (keys.stream, keys.dead_letter, keys.ledger)
    found = {key: await bodies(server, key) for key in streams}
    state = await server.execute("HGETALL", keys.state, key=keys.state)
    groups = await server.execute("XINFO", "GROUPS", keys.stream, key=keys.stream)
    return {**found, "pending": held, "state": sorted(state), "groups": groups}
