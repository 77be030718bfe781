"""A group as an inspection observes it, and everything that Redis has about one entry ID."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from pelops.api.group.recovery import RecoverySpec, RecoveryStrategy
from pelops.clock import MILLISECOND, from_time
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.locks import lock_key, lock_slot_problem
from pelops.domain.naming import GroupKeys
from pelops.domain.records.inspection import EntryLocation, FoundEntry, StreamKind, StreamPosition
from pelops.domain.records.ledger import bound_deliveries
from pelops.domain.records.state import BOOT, POD, RETRY_BATCH, TRY
from pelops.domain.recovery import Cutoff, LivenessReason, PendingEntry, RetryBatch, no_cutoff
from pelops.domain.stream_observation import StreamObservation
from pelops.errors import NoSuchGroup, NoSuchStream, PelopsError
from pelops.redis_core.replies.shapes import reading
from pelops.redis_core.server import Server, Topology
from pelops.redis_core.transport import Command, Reply
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.maintenance import has_retry_stream
from pelops.redis_streams.inspection.bodies import MIB, MOST_ENTRY, EntryReader, read_entry
from pelops.redis_streams.recovery.lock_lifetimes import find_existing
from pelops.redis_streams.recovery.scan_calls import decode_name, read_fields

BATCH_READ: Final = 50  # members of a retry batch that are looked up
_MOST_ATTEMPTS: Final = 999_999


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerQuestion:
    """Consumers for whose processes cutoffs are requested."""

    consumers: Sequence[str]
    records: Mapping[str, str]  # fields `pod:` of the state and `boot:` of the worker state
    server_time: datetime  # read before the question
    master_since: datetime | None
    server: str  # address


FindCutoffs = Callable[[OwnerQuestion], Awaitable[Mapping[str, Cutoff]]]


async def find_without_cluster(question: OwnerQuestion) -> Mapping[str, Cutoff]:
    """Find no cutoff: there is no access to a Kubernetes cluster."""
    return {
        name: no_cutoff(LivenessReason.UNKNOWN, "the Kubernetes cluster was not asked")
        for name in question.consumers
    }


@dataclass(frozen=True, kw_only=True)
class GroupInspection:
    """The group to inspect: its server, keys and recovery rules, and how to find cutoffs."""

    server: Server
    keys: GroupKeys
    recovery: RecoverySpec = field(default_factory=RecoverySpec)
    find_cutoffs: FindCutoffs = find_without_cluster
    obstacle: str = ""  # why the operator does not act on the group; empty: it does
    with_payload: bool = False

    @property
    def reader(self) -> EntryReader:
        """A reader for entries of this group."""
        return EntryReader(
            keys=self.keys,
            prefix=self.recovery.tuning.field_prefix,
            with_pairs=self.with_payload,
        )

    def key_of(self, place: StreamKind) -> str:
        """The key of a place."""
        keys = self.keys
        return {
            StreamKind.STREAM: keys.stream,
            StreamKind.RETRY_STREAM: keys.retry,
            StreamKind.DEAD_LETTERS: keys.dead_letter,
            StreamKind.DISCARDED: keys.discarded,
        }[place]

    async def find(
        self, place: StreamKind, entry_id: EntryId, *, most: int = MOST_ENTRY
    ) -> FoundEntry | None:
        """The entry with this ID in a place; None when it is not there."""
        key = self.key_of(place)
        raw = await read_entry(self.server, key, entry_id, most=most)
        return None if raw is None else self.reader.read(place, key, raw)


class GroupView:
    """One observation of a group, and the entries that are located with it."""

    def __init__(
        self, inspection: GroupInspection, observation: StreamObservation, batch: RetryBatch
    ) -> None:
        self.inspection = inspection
        self.observation = observation
        self.batch = batch

    @property
    def now(self) -> datetime:
        """The server's time of the observation."""
        return self.observation.server_time

    @property
    def obstacle(self) -> str:
        """Why recovery is blocked in this group; empty if it is not."""
        report = self.observation.state.report
        problem = f"{report.reason}: {report.message}" if report.reason else ""
        return (self.inspection.obstacle or problem).rstrip(".")

    @property
    def has_retry(self) -> bool:
        """Whether the group has a retry stream."""
        return self.observation.retry is not None and self.observation.retry.exists

    def position(self, place: StreamKind) -> StreamPosition:
        """The positions of a stream and of the group on it."""
        seen = self.observation
        if place is StreamKind.RETRY_STREAM:
            # Acknowledged copies are deleted there, and its last ID is not observed.
            return StreamPosition(
                last_delivered=seen.retry.last_delivered_id if seen.retry else None,
                last_generated=EntryId.MAX,
                first=seen.retry.first_id if seen.retry else None,
                highest_deleted=EntryId.MAX,
                has_removed=True,
            )
        return StreamPosition(
            last_delivered=seen.group.last_delivered_id if seen.group else None,
            last_generated=seen.last_generated_id,
            first=seen.first_id,
            highest_deleted=seen.max_deleted_id,
            has_removed=seen.entries_added is None or seen.entries_added > seen.length,
        )

    async def locate(
        self,
        place: StreamKind,
        entry_id: EntryId,
        *,
        cutoffs: Mapping[str, Cutoff] | None = None,
        most: int = MOST_ENTRY,
    ) -> EntryLocation:
        """Everything that Redis and the Kubernetes cluster have about an ID now.

        `cutoffs` are known cutoffs by owner; a missing one is determined by `find_cutoffs`.
        """
        inspection = self.inspection
        pending, tried = await self._read_pending(place, entry_id)
        entry = await inspection.find(place, entry_id, most=most)
        attempts, isolated, offered = tried
        state = self.observation.state
        location = EntryLocation(
            entry_id=entry_id,
            now=self.now,
            place=place,
            found=entry,
            position=self.position(place),
            pending=pending,
            attempts=min(max(attempts, entry.retry_count if entry else 0), _MOST_ATTEMPTS),
            isolated_failures=isolated,
            retry_batch=self.batch,
            delay_until=state.back.delay_until if state.back else None,
            delay_before=state.back.since if state.back else None,
            master_since=state.master_since,
        )
        if pending is None:
            return location
        # A heartbeat or another delivery since ends an offer.
        is_on_offer = offered > 0 and abs(pending.delivered.timestamp() * 1000 - offered) < 5
        known = dict(cutoffs or {})
        if pending.owner and pending.owner not in known:
            known |= await self.find_cutoffs([pending.owner])
        return replace(
            location,
            cutoff=known.get(pending.owner),
            is_started=await self._read_started(pending.owner, entry_id),
            is_on_offer=is_on_offer,
            lock=await self._find_lock(entry_id),
        )

    async def find_cutoffs(self, owners: Sequence[str]) -> Mapping[str, Cutoff]:
        """The cutoffs of these consumers, from evidence about their processes."""
        inspection = self.inspection
        records: dict[str, str] = {}
        for kind in (POD, BOOT):
            names = [f"{kind}{owner}" for owner in owners]
            values = await read_fields(
                inspection.server, inspection.keys, names, of_workers=kind == BOOT
            )
            records |= {
                name: value for name, value in zip(names, values, strict=True) if value is not None
            }
        return await inspection.find_cutoffs(
            OwnerQuestion(
                consumers=owners,
                records=records,
                server_time=self.now,
                master_since=self.observation.state.master_since,
                server=inspection.server.address,
            )
        )

    async def _read_pending(
        self, place: StreamKind, entry_id: EntryId
    ) -> tuple[PendingEntry | None, tuple[int, int, int]]:
        """The pending entry, and its recorded failures as `_read_attempts` returns them."""
        inspection, keys = self.inspection, self.inspection.keys
        if place not in {StreamKind.STREAM, StreamKind.RETRY_STREAM}:
            return None, (0, 0, 0)
        key = inspection.key_of(place)
        asked = ("XPENDING", key, keys.group, str(entry_id), str(entry_id), 1)
        pending, time, tried = await inspection.server.execute_many(
            [
                Command(parts=asked, key=key),
                Command(parts=("TIME",), key=keys.state),
                Command(parts=("HMGET", keys.state, f"{TRY}{entry_id}"), key=keys.state),
            ]
        )
        for reply in (pending, time, tried):
            if isinstance(reply, PelopsError) and not isinstance(
                reply, (NoSuchGroup, NoSuchStream)
            ):
                raise reply
        with reading("XPENDING"):
            tries = _read_attempts(tried[0] if isinstance(tried, list) else None)
            if isinstance(pending, PelopsError) or not pending:
                return None, tries
            assert isinstance(time, list)
            return read_pending(pending[0], from_time(*time)), tries

    async def _read_started(self, owner: str, entry_id: EntryId) -> bool | None:
        """Whether the worker recorded the entry as started; None when it has no record."""
        keys = self.inspection.keys
        name = owner.encode("utf-8", "surrogateescape")
        reply = await self.inspection.server.execute("HMGET", keys.started, name, key=keys.started)
        text = reply[0]
        return None if text is None else str(entry_id).encode() in text.split()

    async def _find_lock(self, entry_id: EntryId) -> str | None:
        """The key of the entry's lock; None when the lock does not exist."""
        inspection, locks = self.inspection, self.inspection.recovery.locks
        if locks is None:
            return None
        is_cluster = inspection.server.kind.topology is Topology.CLUSTER
        if is_cluster and lock_slot_problem(locks.key_template, inspection.keys) is not None:
            return None
        key = lock_key(locks.key_template, inspection.keys, entry_id)
        return key if await find_existing(inspection.server, [key]) else None


async def view_group(inspection: GroupInspection) -> GroupView:
    """Observe the group. Writes nothing.

    Raises NoSuchStream when the stream does not exist, and as every read does.
    """
    inspection = replace(inspection, server=inspection.server.dry)
    server, keys = inspection.server, inspection.keys
    has_retry = await has_retry_stream(server, keys)
    observation = await observe_group(server, keys, with_retry=has_retry)
    if not observation.exists:
        raise NoSuchStream(f"the stream {keys.stream} does not exist")
    view = GroupView(inspection, observation, _NO_BATCH)
    return GroupView(inspection, observation, await _read_batch(view))


_NO_BATCH: Final = RetryBatch(written="", under_way=frozenset())


async def _read_batch(view: GroupView) -> RetryBatch:
    """The retry batch; `under_way` covers only its first `BATCH_READ` members."""
    keys, server = view.inspection.keys, view.inspection.server
    (written,) = await server.execute("HMGET", keys.state, RETRY_BATCH, key=keys.state)
    text = (written or b"")[: 4 * MIB].decode("ascii", "replace")
    batch = RetryBatch(written=text, under_way=frozenset())
    members = sorted(batch.members)[:BATCH_READ]
    if not members:
        return batch
    places = [StreamKind.STREAM, *([StreamKind.RETRY_STREAM] if view.has_retry else [])]
    strategy = view.inspection.recovery.strategy
    is_retry = view.has_retry and strategy is RecoveryStrategy.RETRY_STREAM
    copies_to = StreamKind.RETRY_STREAM if is_retry else StreamKind.STREAM
    under_way, undelivered = set(), set()
    for place in places:
        key, position = view.inspection.key_of(place), view.position(place).last_delivered
        commands = [
            Command(parts=("XPENDING", key, keys.group, str(one), str(one), 1), key=key)
            for one in members
        ]
        for member, reply in zip(members, await server.execute_many(commands), strict=True):
            if isinstance(reply, list) and reply:
                under_way.add(member)
            elif place is copies_to and position is not None and member > position:
                undelivered.add(member)
    return replace(
        batch,
        under_way=frozenset(under_way | undelivered),
        undelivered=frozenset(undelivered),
    )


def read_pending(line: Reply, now: datetime) -> PendingEntry:
    """The pending entry of one line of XPENDING."""
    entry_id, owner, idle_ms, deliveries = line
    return PendingEntry(
        entry_id=parse_entry_id(entry_id),
        owner=decode_name(owner),
        idle=idle_ms * MILLISECOND,
        delivered=now - max(idle_ms, 0) * MILLISECOND,
        deliveries=bound_deliveries(deliveries),
    )


def _read_attempts(text: bytes | None) -> tuple[int, int, int]:
    """Failed attempts, isolated failures, and the time of its open offer in ms, else 0."""
    words = (text or b"").split()
    is_open = words[3:] == [b"offered"]
    are_numbers = all(word.isdigit() and len(word) <= 15 for word in words[:3])
    if len(words) != 3 + is_open or not are_numbers:
        return 0, 0, 0
    attempts, isolated, offered = map(int, words[:3])
    return attempts, isolated, offered if is_open else 0


async def locate_many(
    view: GroupView, wanted: Sequence[tuple[StreamKind, EntryId]], cutoffs: Mapping[str, Cutoff]
) -> list[EntryLocation]:
    """As `GroupView.locate`, for many IDs, a few at a time. Bodies above 1 MiB are not read."""
    turns = asyncio.Semaphore(8)

    async def locate(place: StreamKind, entry_id: EntryId) -> EntryLocation:
        async with turns:
            return await view.locate(place, entry_id, cutoffs=cutoffs, most=MIB)

    return list(await asyncio.gather(*(locate(*each) for each in wanted)))
