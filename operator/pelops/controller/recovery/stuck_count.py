"""How many entries of a stream are stuck, where nothing may be recovered. Reads and nothing else.

An entry is stuck as in a scan that recovers: its worker died after it was delivered, or it is idle
beyond the processing timeout of its owner. The count is bounded, because stuck entries stay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final

from pelops.controller.recovery.scan import StreamScan
from pelops.domain.entry_id import EntryId
from pelops.domain.locks import lock_key
from pelops.domain.recovery import LivenessReason, PendingEntry
from pelops.policy.recovery.processing_timeouts import decide_processing_timeouts
from pelops.redis_streams.recovery.consumers import ObservedConsumer, list_pending_of
from pelops.redis_streams.recovery.lock_lifetimes import find_existing
from pelops.redis_streams.recovery.scan_calls import find_idle

MOST_COUNTED: Final = 10_000  # entries of one stream
MOST_PAGES: Final = 50  # of pending entries that are read for one owner, or for idle ones
# No process is left that could hold an entry of this consumer.
_ENDED: Final = frozenset({LivenessReason.GONE, LivenessReason.FINISHED, LivenessReason.VANISHED})


async def count_stuck(run: StreamScan, consumers: Sequence[ObservedConsumer]) -> int:
    """Stuck entries of the stream, `MOST_COUNTED` at most. Raises as reads of Redis do.

    `consumers` are those of the stream, after `run.liveness` was read.
    """
    if not run.stream.pending:
        return 0
    pending = {consumer.name: consumer.pending for consumer in consumers}
    cutoffs = {
        owner: liveness.cutoff.at
        for owner, liveness in run.liveness.items()
        if liveness.cutoff.at is not None and pending.get(owner, 1)
    }
    count = 0
    for owner, cutoff in cutoffs.items():
        has_ended = run.liveness[owner].cutoff.reason in _ENDED
        if has_ended and owner in pending and run.recovery.locks is None:
            count += pending[owner]
        elif count < MOST_COUNTED:
            count += await _count(run, _dead(run, owner, cutoff), MOST_COUNTED - count)
    if count < MOST_COUNTED:
        count += await _count(run, _idle(run, cutoffs), MOST_COUNTED - count)
    return min(count, MOST_COUNTED)


async def _count(run: StreamScan, pages: AsyncIterator[list[EntryId]], most: int) -> int:
    count, looked_at = 0, 0
    async for page in pages:
        count, looked_at = count + await _count_unlocked(run, page), looked_at + 1
        if count >= most or looked_at >= MOST_PAGES:
            break
    return count


async def _count_unlocked(run: StreamScan, ids: Sequence[EntryId]) -> int:
    locks = run.recovery.locks
    if locks is None or not ids:
        return len(ids)
    keys = [lock_key(locks.key_template, run.context.keys, one) for one in ids]
    return len(ids) - len(await find_existing(run.server, keys))


async def _dead(run: StreamScan, owner: str, cutoff: datetime) -> AsyncIterator[list[EntryId]]:
    """What the owner was delivered before its cutoff."""
    now, group = run.observation.now, run.context.keys.group
    pages = list_pending_of(run.server, run.stream.name, group, owner)
    async with aclosing(pages):
        async for page in pages:
            yield [entry_id for entry_id, idle in page if now - idle < cutoff]


async def _idle(run: StreamScan, counted: Collection[str]) -> AsyncIterator[list[EntryId]]:
    """What is idle beyond the limit of its owner, but for owners that were counted."""
    limits, group = decide_processing_timeouts(run.recovery), run.context.keys.group

    def is_stuck(entry: PendingEntry) -> bool:
        liveness = run.liveness.get(entry.owner)
        is_unknown = liveness is None or liveness.match.is_unknown
        limit = limits.limit(is_unknown=is_unknown, is_unowned=not entry.owner)
        return entry.owner not in counted and (entry.idle >= limit or not entry.owner)

    pages = find_idle(run.server, run.stream, group, idle=limits.smallest)
    async with aclosing(pages):
        async for page, _ in pages:
            yield [one.entry_id for one in page if is_stuck(one)]
