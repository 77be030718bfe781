"""Where one entry is, and everything that happened to it: the answer to `pelops why`.

1. The body of the given ID, or the action that created it, names the root of its chain of copies.
2. One search of the ledgers for the root finds every action, and the last copy.
3. One observation of the last copy finds its owner, its lock and its failures.
4. `decide_state` decides the state.

The ledger is searched before the observation. If the observed entry is neither pending nor
undelivered, it may have been moved in between, and the ledger is searched again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pelops.clock import from_ms
from pelops.domain.entry_id import EntryId
from pelops.domain.records.inspection import (
    Coverage,
    EntryLocation,
    EntryReport,
    FoundEntry,
    HeldEntry,
    HistoryEvent,
    StreamKind,
)
from pelops.domain.records.ledger import LedgerKind
from pelops.errors import PelopsError
from pelops.policy.inspection.entry_state import decide_state
from pelops.redis_streams.inspection.bodies import MIB, Budget, EntryReader, read_backward
from pelops.redis_streams.inspection.group_view import GroupInspection, GroupView, view_group
from pelops.redis_streams.inspection.ledger_search import (
    DEEP_LEDGER_BUDGET,
    LEDGER_BUDGET,
    LedgerAct,
    LedgerFindings,
    find_root,
    is_time,
    read_first_time,
    search_ledgers,
)

SEARCH_BUDGET: Final = Budget(entries=1_000, bytes=32 * MIB)
DEEP_SEARCH_BUDGET: Final = Budget(entries=5_000_000, bytes=4096 * MIB)
MOST_MATCHES: Final = 20
_ROUNDS: Final = 4  # after so many moves in between, the last observation is reported
_PLACES: Final = (
    StreamKind.STREAM,
    StreamKind.RETRY_STREAM,
    StreamKind.DEAD_LETTERS,
    StreamKind.DISCARDED,
)


class NoSuchEntry(PelopsError):
    """A search found no entry."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """The root of an entry's chain of copies, and where the requested ID is."""

    root: EntryId
    place: StreamKind
    entry_id: EntryId
    notes: tuple[str, ...] = ()


async def explain_entry(
    inspection: GroupInspection,
    entry_id: EntryId,
    *,
    is_letter: bool = False,
    deep: bool = False,
    asked: str = "",
) -> EntryReport:
    """Where an entry is and what happened to it. Writes nothing; reads are bounded.

    The ID is that of an entry, a copy, a dead letter or a discarded one. `is_letter` selects the
    dead letter if an entry of the stream has the same ID. `deep` searches more of the ledger.
    Raises NoSuchStream, WrongType, PermissionDenied and RedisUnavailable.
    """
    view = await view_group(inspection)
    entry = await _identify(view, entry_id, is_letter=is_letter)
    budget = DEEP_LEDGER_BUDGET if deep else LEDGER_BUDGET
    server, keys = view.inspection.server, view.inspection.keys
    for _ in range(_ROUNDS):
        findings = await search_ledgers(server, keys, entry.root, budget)
        findings.acts = _connected(findings.acts, entry_id)
        place, last = _last_copy(view, entry, findings.acts)
        location = await view.locate(place, last)
        if _is_held(location):
            break
        again = await search_ledgers(server, keys, entry.root, budget)
        if len(_connected(again.acts, entry_id)) == len(findings.acts):
            break
        view = await view_group(inspection)
    return await _report(view, entry, findings, location, asked=asked or str(entry_id))


async def explain_match(
    inspection: GroupInspection, name: str, value: str, *, deep: bool = False
) -> EntryReport:
    """As `explain_entry`, for the newest entry that has this field with this value.

    Searches the stream, the retry stream and the dead letters, each from its newest entry on.
    Raises NoSuchEntry, which names how much was searched.
    """
    view = await view_group(inspection)
    budget = DEEP_SEARCH_BUDGET if deep else SEARCH_BUDGET
    pair = (name.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape"))
    matches: list[FoundEntry] = []
    coverage: list[Coverage] = []
    for place in _PLACES[:3]:
        entries, covered = await _search(view, place, pair, budget)
        matches += entries
        coverage.append(covered)
    if not matches:
        raise NoSuchEntry(_nothing_found(name, value, coverage))
    by_root: dict[EntryId, FoundEntry] = {}
    for one in sorted(matches, key=lambda each: each.entry_id, reverse=True):
        by_root.setdefault(one.root_id, one)
    newest, *others = by_root.values()
    report = await explain_entry(
        inspection,
        newest.entry_id,
        is_letter=newest.place is StreamKind.DEAD_LETTERS,
        deep=deep,
        asked=f"{name}={value}",
    )
    return replace(
        report,
        coverage=(*coverage, *report.coverage),
        others=tuple(one.entry_id for one in others[: MOST_MATCHES - 1]),
    )


async def _search(
    view: GroupView, place: StreamKind, pair: tuple[bytes, bytes], budget: Budget
) -> tuple[list[FoundEntry], Coverage]:
    """The newest entries of a place that have the pair, and how much was searched."""
    inspection = view.inspection
    key = inspection.key_of(place)
    with_pairs = EntryReader(
        keys=inspection.keys, prefix=inspection.recovery.tuning.field_prefix, with_pairs=True
    )
    matches: list[FoundEntry] = []
    searched, size, last = 0, 0, None
    pages = read_backward(inspection.server, key, budget)
    async with aclosing(pages):
        async for page in pages:
            searched, last = searched + len(page), page[-1].entry_id
            size += sum(raw.bytes for raw in page)
            for raw in page:
                # The cheap check first: most entries do not have the value at all.
                is_here = pair[1] in raw.flat[1::2]
                if is_here and pair in with_pairs.read(place, key, raw).pairs:
                    matches.append(inspection.reader.read(place, key, raw))
            if len(matches) >= MOST_MATCHES:
                break
    is_whole = searched < budget.entries and size < budget.bytes and len(matches) < MOST_MATCHES
    return matches, Coverage(
        what=f"{place} {key}", searched=searched, is_whole=is_whole, until=last
    )


def _nothing_found(name: str, value: str, coverage: Sequence[Coverage]) -> str:
    parts = [
        f"{'all' if part.is_whole else 'the newest'} {part.searched:,} entries of the {part.what}"
        for part in coverage
        if part.searched
    ]
    covered = ", ".join(parts) or "no entry: the streams are empty"
    deeper = "" if all(one.is_whole for one in coverage) else "; --deep searches more"
    return f"no entry has {name}={value}; searched {covered}{deeper}"


async def _identify(view: GroupView, entry_id: EntryId, *, is_letter: bool) -> _Origin:
    inspection = view.inspection
    places = _PLACES[2:] if is_letter else _PLACES
    there = await asyncio.gather(*(inspection.find(place, entry_id) for place in places))
    matches = [one for one in there if one is not None]
    if matches:
        first = matches[0]
        also = [
            f"{match.entry_id} is also an ID in the {match.place}: add --letter to ask for that one"
            for match in matches[1:]
            if match.place in _PLACES[2:] and match.root_id != first.root_id
        ]
        return _Origin(first.root_id, first.place, entry_id, tuple(also))
    root = await find_root(inspection.server, inspection.keys, entry_id)
    place = StreamKind.DEAD_LETTERS if is_letter else StreamKind.STREAM
    if root is None and view.has_retry and not is_letter:
        waits = await view.locate(StreamKind.RETRY_STREAM, entry_id)
        place = StreamKind.RETRY_STREAM if waits.pending is not None else place
    return _Origin(root or entry_id, place if root is None else StreamKind.STREAM, entry_id)


def _last_copy(
    view: GroupView, entry: _Origin, acts: Sequence[LedgerAct]
) -> tuple[StreamKind, EntryId]:
    """Where the last action put the entry; without an action, where it was found."""
    place, last = entry.place, entry.entry_id
    for act in acts:
        if act.entry.entry_id != last:
            continue
        moved = _target(view, act)
        if moved is not None:
            place, last = moved
        elif act.kind == LedgerKind.RELEASED:
            is_retry = act.details.get("stream") == view.inspection.keys.retry
            place = StreamKind.RETRY_STREAM if is_retry else StreamKind.STREAM
    return place, last


def _connected(acts: Sequence[LedgerAct], entry_id: EntryId) -> list[LedgerAct]:
    """The actions connected with this ID by copies: a producer can forge another entry's root."""
    ids, size = {entry_id}, 0
    while len(ids) > size:
        size = len(ids)
        for act in acts:
            joined = {act.entry.entry_id, *([act.entry.new_id] if act.entry.new_id else [])}
            if ids & joined:
                ids |= joined
    return [act for act in acts if act.entry.entry_id in ids]


def _target(view: GroupView, act: LedgerAct) -> tuple[StreamKind, EntryId] | None:
    """Where an action moved the entry; None when it did not."""
    keys, new_id = view.inspection.keys, act.entry.new_id
    if new_id is None:
        return None
    if act.kind in {LedgerKind.DEAD_LETTERED, LedgerKind.PAYLOAD_GONE, LedgerKind.RESTORED}:
        return StreamKind.DEAD_LETTERS, new_id
    if act.kind == LedgerKind.DISCARDED:
        return StreamKind.DISCARDED, new_id
    if act.kind in {LedgerKind.REQUEUED, LedgerKind.REDRIVEN}:
        is_retry = act.details.get("target") == keys.retry
        return (StreamKind.RETRY_STREAM if is_retry else StreamKind.STREAM), new_id
    return None


def _is_held(location: EntryLocation) -> bool:
    """Whether the observation alone shows where the entry is, without the ledger."""
    if location.place in {StreamKind.DEAD_LETTERS, StreamKind.DISCARDED}:
        return location.found is not None
    position = location.position.last_delivered
    waits = location.found is not None and (position is None or location.entry_id > position)
    return location.pending is not None or waits


async def _report(
    view: GroupView,
    entry: _Origin,
    findings: LedgerFindings,
    location: EntryLocation,
    *,
    asked: str,
) -> EntryReport:
    inspection = view.inspection
    finding = decide_state(
        location, inspection.recovery, evidence=findings.evidence, obstacle=view.obstacle
    )
    notes = list(entry.notes)
    began = await read_first_time(inspection.server, inspection.keys)
    added = _time(entry.root)
    if began is not None and added is not None and added < began - timedelta(seconds=1):
        notes.append(
            f"The ledger begins at {began:%Y-%m-%d %H:%M:%S} UTC, after the entry was added: what "
            "happened before is not known. `pelops why --archive` reads the archive of an audit."
        )
    return EntryReport(
        stream=inspection.keys.stream,
        group=inspection.keys.group,
        asked=asked,
        entry_id=location.entry_id,
        root_id=entry.root,
        place=location.place,
        at=location.now,
        finding=finding,
        pending=_held(location),
        entry=location.found,
        attempts=location.attempts,
        events=tuple(sorted(_events(entry, findings, location), key=lambda one: one.at)),
        coverage=tuple(findings.coverage),
        notes=tuple(notes),
    )


def _held(location: EntryLocation) -> HeldEntry | None:
    pending, cutoff = location.pending, location.cutoff
    if pending is None:
        return None
    return HeldEntry(
        consumer=pending.owner,
        idle=pending.idle,
        delivered=pending.delivered,
        deliveries=pending.deliveries,
        liveness=None if cutoff is None else cutoff.reason.value,
        process=None if cutoff is None else cutoff.message,
        lock=location.lock,
    )


def _events(
    entry: _Origin, findings: LedgerFindings, location: EntryLocation
) -> list[HistoryEvent]:
    events = []
    added = _time(entry.root)
    if (added is not None and location.found is not None) or findings.acts:
        at = added or findings.acts[0].at
        events.append(HistoryEvent(at=at, entry_id=entry.root, what="added", source="stream"))
    events += [act.event() for act in findings.acts]
    pending = location.pending
    if pending is not None and pending.owner:
        events.append(
            HistoryEvent(
                at=pending.delivered,
                entry_id=location.entry_id,
                what=f"delivered to {pending.owner}, or its last heartbeat",
                details=f"delivery {pending.deliveries}",
                source="PEL",
            )
        )
    letter = location.found.letter if location.found else None
    if letter is not None and letter.at is not None:
        events.append(
            HistoryEvent(
                at=letter.at,
                entry_id=location.entry_id,
                what=f"the dead letter reports {letter.reason}",
                details=letter.error,
                source="dead letter",
            )
        )
    return events


def _time(entry_id: EntryId) -> datetime | None:
    return from_ms(entry_id.ms) if is_time(entry_id) else None
