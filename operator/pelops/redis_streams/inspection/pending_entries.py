"""The pending entries of each consumer, and why they are not recovered: `pelops pending`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.records.inspection import (
    Coverage,
    EntryLocation,
    PendingLine,
    PendingReport,
    StreamKind,
)
from pelops.domain.recovery import Cutoff, LivenessReason, PendingEntry, no_cutoff
from pelops.policy.inspection.entry_state import decide_state
from pelops.redis_core.replies.shapes import reading
from pelops.redis_core.transport import Command
from pelops.redis_streams.inspection.group_view import (
    GroupInspection,
    GroupView,
    locate_many,
    read_pending,
    view_group,
)
from pelops.redis_streams.recovery.consumers import LISTABLE, ObservedConsumer, list_consumers
from pelops.redis_streams.recovery.scan_calls import encode_name

MOST_LINES: Final = 100

_Wanted = list[
    tuple[StreamKind, PendingEntry, int]
]  # place, entry, and number of entries of its line


async def list_by_consumer(inspection: GroupInspection) -> PendingReport:
    """A line for each consumer with pending entries, the most entries first; `MOST_LINES` at most.

    Each line has the state of the consumer's lowest pending ID. Raises as `explain_entry`.
    """
    view = await view_group(inspection)
    wanted: _Wanted = []
    coverage: list[Coverage] = []
    for place, consumers in _streams(view):
        key = view.inspection.key_of(place)
        if consumers > LISTABLE:
            coverage.append(
                Coverage(what=f"consumers of {key}: too many to list", searched=0, is_whole=False)
            )
            wanted += [(place, one, 1) for one in await _lowest(view, place)]
            continue
        listed = await list_consumers(view.inspection.server, key, view.inspection.keys.group)
        owning = sorted((one for one in listed if one.pending), key=lambda one: -one.pending)
        shown = owning[:MOST_LINES]
        coverage.append(
            Coverage(
                what=f"consumers of {key} with pending entries",
                searched=len(shown),
                is_whole=len(shown) == len(owning),
            )
        )
        wanted += await _lowest_of(view, place, shown)
    return await _report(view, wanted, coverage)


async def list_by_age(inspection: GroupInspection) -> PendingReport:
    """A line for each of the `MOST_LINES` lowest pending IDs of each stream of the group."""
    view = await view_group(inspection)
    wanted: _Wanted = []
    coverage: list[Coverage] = []
    for place, _ in _streams(view):
        lowest = await _lowest(view, place)
        wanted += [(place, one, 1) for one in lowest]
        coverage.append(
            Coverage(
                what=f"pending entries of {view.inspection.key_of(place)}",
                searched=len(lowest),
                is_whole=len(lowest) < MOST_LINES,
                until=lowest[-1].entry_id if lowest else None,
            )
        )
    return await _report(view, wanted, coverage)


def _streams(view: GroupView) -> Sequence[tuple[StreamKind, int]]:
    """The streams in which the group has pending entries, and the number of its consumers there.

    For the retry stream the number shows only whether there are too many to list.
    """
    seen = view.observation
    places = []
    if seen.group is not None and seen.group.pending:
        places.append((StreamKind.STREAM, seen.group.consumers))
    if seen.retry is not None and seen.retry.exists and seen.retry.pending:
        places.append(
            (StreamKind.RETRY_STREAM, 0 if seen.retry.holding is not None else LISTABLE + 1)
        )
    return places


async def _lowest(view: GroupView, place: StreamKind) -> list[PendingEntry]:
    inspection = view.inspection
    key = inspection.key_of(place)
    asked = ("XPENDING", key, inspection.keys.group, "-", "+", MOST_LINES)
    reply = await inspection.server.execute(*asked, key=key)
    with reading("XPENDING"):
        return [read_pending(line, view.now) for line in reply]


async def _lowest_of(
    view: GroupView, place: StreamKind, consumers: Sequence[ObservedConsumer]
) -> _Wanted:
    inspection = view.inspection
    key, group = inspection.key_of(place), inspection.keys.group
    commands = [
        Command(parts=("XPENDING", key, group, "-", "+", 1, encode_name(consumer.name)), key=key)
        for consumer in consumers
    ]
    replies = await inspection.server.execute_many(commands)
    entries: _Wanted = []
    for consumer, reply in zip(consumers, replies, strict=True):
        if isinstance(reply, Exception):
            raise reply
        with reading("XPENDING"):
            entries += [
                (place, read_pending(line, view.now), consumer.pending) for line in reply[:1]
            ]
    return entries


async def _report(view: GroupView, wanted: _Wanted, coverage: Sequence[Coverage]) -> PendingReport:
    seen, keys = view.observation, view.inspection.keys
    owners = list(dict.fromkeys(one.owner for _, one, _ in wanted if one.owner))
    cutoffs = dict(await view.find_cutoffs(owners)) if owners else {}
    ids: list[tuple[StreamKind, EntryId]] = [(place, one.entry_id) for place, one, _ in wanted]
    located = await locate_many(view, ids, cutoffs)
    lines = [
        _line(view, place, location, location.pending, count)
        for (place, _, count), location in zip(wanted, located, strict=True)
        if location.pending is not None  # acknowledged or moved since
    ]
    pending = (seen.group.pending if seen.group else 0) + (seen.retry.pending if seen.retry else 0)
    return PendingReport(
        stream=keys.stream,
        group=keys.group,
        pending=pending,
        lines=tuple(lines),
        coverage=tuple(coverage),
        notes=(f"Recovery is blocked: {view.obstacle}.",) if view.obstacle else (),
    )


_NO_OWNER: Final = no_cutoff(LivenessReason.UNKNOWN, "no consumer holds it")


def _line(
    view: GroupView, place: StreamKind, location: EntryLocation, pending: PendingEntry, count: int
) -> PendingLine:
    cutoff: Cutoff = location.cutoff or _NO_OWNER
    return PendingLine(
        stream=view.inspection.key_of(place),
        consumer=pending.owner,
        entries=count,
        entry_id=pending.entry_id,
        idle=pending.idle,
        deliveries=pending.deliveries,
        liveness=cutoff.reason.value,
        process=cutoff.message,
        finding=decide_state(location, view.inspection.recovery, obstacle=view.obstacle),
    )
