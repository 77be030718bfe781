"""Scans of one stream on a real server, and what they find there."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from pelops.api.group.recovery import LocksSpec, RecoverySpec
from pelops.controller.recovery.findings import Findings
from pelops.controller.recovery.pod_evidence import ConsumerLiveness
from pelops.controller.recovery.scan import StreamScan
from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import Cutoff, Death, LivenessReason, OwnerMatch, Trigger
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import read_fields
from tests.integration.recovering import (
    DEAD,
    KEYS,
    a_context,
    look,
    read_new,
    recorded,
    server_time,
)
from tests.integration.redis_adapter import provision

HOUR: Final = timedelta(hours=1)
MANY: Final = 10**6
LOCKS: Final = LocksSpec(key_template="lock:{$tag}:$id")
COUNTED: Final = ("f", "v", "_original_id", "1-1", "_retry_count", 1)
_ADD_OLD: Final = """
for i = 1, tonumber(ARGV[2]) do
  redis.call('XADD', KEYS[1], string.format('%.0f-1', ARGV[1] + i), unpack(ARGV, 3))
end
"""


def died(at: datetime) -> dict[str, ConsumerLiveness]:
    """The dead consumer's process ended at this moment."""
    cutoff = Cutoff(
        at=at, reason=LivenessReason.GONE, message="its pod is gone", death=Death.CRASHED
    )
    return {DEAD: ConsumerLiveness(cutoff=cutoff, match=OwnerMatch())}


async def a_run(
    server: Server, *, context: dict[str, Any] | None = None, **recovery: Any
) -> StreamScan:
    """A scan that begins, with the group as it is observed now."""
    observation = await look(server)
    return StreamScan(
        server=server,
        context=a_context(**(context or {})),
        recovery=RecoverySpec(**recovery),
        observation=observation,
        stream=observation.stream,
        findings=Findings(trigger=Trigger.SCAN, at=observation.now),
    )


async def scan(
    run: StreamScan, liveness: dict[str, ConsumerLiveness] | None = None, most_pages: int = MANY
) -> Findings:
    """A whole scan of the stream, as the operator does it."""
    run.liveness, run.most_pages = liveness or {}, most_pages
    await run.review_offers()
    await run.recover_dead()
    await run.recover_idle()
    await run.find_dangling()
    await run.settle()
    return run.findings


async def make_idle(
    server: Server,
    ids: Iterable[EntryId],
    *,
    owner: str = DEAD,
    idle: timedelta = HOUR,
    stream: str = KEYS.stream,
) -> None:
    """Have a consumer hold these, for so long already."""
    claim = ("XCLAIM", stream, KEYS.group, owner, 0)
    words = [str(one) for one in ids]
    idle_ms = idle // timedelta(milliseconds=1)
    await server.execute(*claim, *words, "IDLE", idle_ms, "JUSTID", key=stream)


async def add_old(server: Server, number: int, *pairs: str | int | bytes) -> list[EntryId]:
    """Entries that the dead consumer holds; their IDs are old enough to be looked at."""
    await provision(server, KEYS)
    began = int((await server_time(server) - 10 * HOUR).timestamp() * 1000)
    words = pairs or ("f", "v")
    await server.execute("EVAL", _ADD_OLD, 1, KEYS.stream, began, number, *words, key=KEYS.stream)
    return await read_new(server, KEYS, number)


async def cursor(server: Server) -> str:
    """The position from which the next scan continues; empty: the front."""
    (found,) = await read_fields(server, KEYS, ["sweep:cursor"])
    return found or ""


async def write_cursor(server: Server, text: str) -> None:
    await server.execute("HSET", KEYS.state, "sweep:cursor", text, key=KEYS.state)


async def moved(server: Server) -> list[EntryId]:
    """The IDs of requeued entries in the ledger, in that order."""
    return [one.entry_id for one in await recorded(server, "requeued")]
