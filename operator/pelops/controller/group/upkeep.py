"""The routine writes that keep a provisioned group safe: its position, its sticky conditions, its
length."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from pydantic import ValidationError

from pelops.api.group.recovery import RetentionSpec
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.group_observer import (
    GroupMemory,
    GroupPart,
    ObservedGroup,
    names_stream,
)
from pelops.controller.runtime.kind import PlannedAction
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.condition import render_time
from pelops.domain.naming import GroupKeys
from pelops.domain.quantities import render_count, render_seconds
from pelops.domain.records.state import PossibleLoss, StickyCondition
from pelops.domain.stream_observation import StreamObservation
from pelops.kube.client import STREAM_CONSUMER_GROUP, Address, KubeApi, Manifest
from pelops.kube.event_recorder import EventContent
from pelops.policy.group.losses import Holders, find_dropped, find_new_loss, find_vanished, has_left
from pelops.policy.group.position import (
    LastSeen,
    PositionChange,
    choose_newest,
    decide_went_back,
    needs_remembering,
    read_status,
)
from pelops.policy.group.retention import (
    merge_retention,
    needs_expiry,
    needs_retry_trim,
    plan_retention,
)
from pelops.policy.recovery.owners import Owners
from pelops.policy.recovery.retry_stream import needs_return, plan_note
from pelops.policy.status.alarms import ACKNOWLEDGE, report_dropped, report_possible_loss
from pelops.policy.status.reasons import Reason
from pelops.redis_core.server import Server
from pelops.redis_streams.group.maintenance import (
    Returned,
    Trimmed,
    clear_sticky,
    delay_recovery,
    expire_dead_letters,
    note_retry_wait,
    record_dropped,
    record_loss,
    remember_position,
    return_copies,
    trim_retry_stream,
    trim_stream,
)

MANAGER: Final = "pelops-acknowledge"
MOST_TRIMS: Final = 20  # batches of one action: others want their pass too
MOST_EXPIRIES: Final = 20  # the same, of dead letters
MOST_RETURNS: Final = 20  # the same, of copies that go back to the stream
RETURN_AGAIN: Final = timedelta(seconds=30)  # after a try that moved nothing


class UpkeepActions:
    """Finds the next routine action for an observed group that is ready."""

    def __init__(self, api: KubeApi, cache: WorkloadCache, *, identity: str) -> None:
        """`identity` is that of this replica; the ledger names it."""
        self._api = api
        self._cache = cache
        self._identity = identity

    def next_action(self, observed: ObservedGroup, memory: GroupMemory) -> PlannedAction | None:
        """The first action of the upkeep that is missing, or None."""
        stream, server, keys = observed.facts.stream, observed.server, observed.facts.keys
        if stream is None or server is None or keys is None:
            return None
        work = _Upkeep(observed, stream, server, keys)
        return (
            self._acknowledge(work)
            or work.record_vanished(memory)
            or self._record_dropped(work, memory)
            or work.hold(memory)
            or work.record_loss()
            or work.remember()
            or self._return_copies(work, memory)
            or work.note_retry_wait()
            or self._trim(work)
            or work.trim_retry()
            or work.expire(memory)
        )

    def _acknowledge(self, work: _Upkeep) -> PlannedAction | None:
        metadata = work.observed.facts.resource.metadata
        asked = metadata.annotations.get(ACKNOWLEDGE)
        if asked is None:
            return None
        words = {word.strip() for word in asked.split(",")}
        conditions = [condition for condition in StickyCondition if condition.value in words]
        address = Address(
            kind=STREAM_CONSUMER_GROUP, namespace=metadata.namespace, name=metadata.name
        )

        async def write() -> None:
            await clear_sticky(work.server, work.keys, work.observed.owner, conditions)
            # The wish goes with what it asked for, or the next loss would be cleared unseen.
            body: Manifest = {"metadata": {"uid": metadata.uid, "annotations": {ACKNOWLEDGE: None}}}
            answer = await self._api.merge(address, body, manager=MANAGER)
            self._cache.put(STREAM_CONSUMER_GROUP, answer)

        return PlannedAction(part=GroupPart.RESOURCE, what=f"acknowledge {asked}", do=write)

    def _return_copies(self, work: _Upkeep, memory: GroupMemory) -> PlannedAction | None:
        """Move undelivered copies of a former retry stream back to the stream.

        Pending copies stay: a worker completes them, or a scan recovers them.
        """
        spec, keys, now = work.observed.facts.resource.spec, work.keys, work.stream.server_time
        after = memory.return_after
        # A moment far ahead was written before the clock went back.
        is_paused = after is not None and now < after <= now + RETURN_AGAIN
        if is_paused or not needs_return(spec.recovery, work.stream):
            return None
        reason = "spec.recovery no longer uses the retry stream"

        async def write() -> EventContent | None:
            returned, moved, calls = Returned(may_continue=True), 0, 0
            while returned.may_continue and calls < MOST_RETURNS:
                returned = await return_copies(
                    work.server,
                    keys,
                    work.observed.owner,
                    field_prefix=spec.recovery.tuning.field_prefix,
                    max_entry_bytes=spec.recovery.max_entry_bytes,
                    actor=self._identity,
                    reason=reason,
                )
                moved, calls = moved + returned.moved, calls + 1
                if returned.stayed:
                    break
            memory.return_after = now + RETURN_AGAIN if returned.stayed or not moved else None
            if not moved:
                return None
            copies = render_count(moved, "copy", "copies")
            note = f"Moved {copies} from {keys.retry} back to {keys.stream}: {reason}"
            return EventContent(
                type="Normal",
                reason=Reason.REQUEUED,
                action="Requeue",
                note=note,
                occurrence=f"{keys.retry}/{now.timestamp():.3f}",
            )

        what = "move the copies of the former retry stream back to the stream"
        return PlannedAction(part=GroupPart.GROUP, what=what, do=write)

    def _record_dropped(self, work: _Upkeep, memory: GroupMemory) -> PlannedAction | None:
        """Record consumers that were deleted with pending entries."""
        before, stream, facts = memory.holders, work.stream, work.observed.facts

        def is_left(consumer: str) -> bool:
            pods, gone = self._cache.pods_of(facts.workload)
            return before is not None and has_left(Owners(pods, gone).match(consumer), before.at)

        dropped = find_dropped(before, stream, has_left=is_left)
        if dropped is None:
            memory.holders = Holders.of(stream)
            return None

        async def write() -> EventContent | None:
            at_most = await record_dropped(work.server, work.keys, work.observed.owner, dropped)
            memory.holders = Holders.of(stream)
            if at_most is None or dropped.is_quiet:
                return None  # the condition has an Event of its own
            names, observed = sorted(dropped.consumers), render_time(dropped.observed)
            return EventContent(
                type="Warning",
                reason=Reason.PENDING_ENTRIES_DROPPED,
                action="Observe",
                note=report_dropped(at_most, names[0], len(names), observed),
                occurrence=str(dropped.observed),
            )

        what = "record that consumers with pending entries were deleted"
        return PlannedAction(part=GroupPart.GROUP, what=what, do=write)

    def _trim(self, work: _Upkeep) -> PlannedAction | None:
        limits = find_limits(work.observed.facts.resource, self._cache.resources.values())
        plan = plan_retention(limits, work.stream)
        if plan is None:
            return None

        async def write() -> None:
            trimmed, calls = Trimmed(may_continue=True), 0
            while trimmed.may_continue and calls < MOST_TRIMS:
                trimmed = await trim_stream(work.server, work.keys, work.observed.owner, plan)
                calls += 1

        return PlannedAction(
            part=GroupPart.GROUP, what="trim the stream", do=write, is_routine=True
        )


def find_limits(
    resource: StreamConsumerGroup, manifests: Iterable[Manifest]
) -> RetentionSpec | None:
    """The larger limits of all resources on the stream, as far as they name it alike."""
    spec = resource.spec
    if spec.retention is None:
        return None
    others = (
        (manifest.get("spec") or {}).get("retention")
        for manifest in manifests
        if names_stream(manifest, resource, spec.stream)
    )
    limits = (_read_retention(other) for other in others)
    return merge_retention([spec.retention, *(one for one in limits if one is not None)])


def _read_retention(given: object) -> RetentionSpec | None:
    """The limits of another resource; None for one without, or one that is refused for them."""
    try:
        return RetentionSpec.model_validate(given) if given else None
    except ValidationError:
        return None


class _Upkeep:
    """The actions of one observation."""

    def __init__(
        self, observed: ObservedGroup, stream: StreamObservation, server: Server, keys: GroupKeys
    ) -> None:
        self.observed = observed
        self.stream = stream
        self.server = server
        self.keys = keys

    def record_vanished(self, memory: GroupMemory) -> PlannedAction | None:
        """Record the loss if the stream was created again, or has lost its last entries."""
        loss = find_vanished(find_before(self.observed, memory), self.stream)
        if loss is None:
            return None

        async def write() -> None:
            await record_loss(self.server, self.keys, self.observed.owner, loss, first_id=None)

        return PlannedAction(
            part=GroupPart.GROUP, what="record that the stream lost entries", do=write
        )

    def hold(self, memory: GroupMemory) -> PlannedAction | None:
        """A group that went back: what was pending before is not moved for a while."""
        before = memory.last_seen or reported_before(self.observed, memory)
        change = decide_went_back(before, self.stream)
        if change is None or self._is_reported(change):
            memory.last_seen = LastSeen.of(self.stream)
            return None
        recovery = self.observed.facts.resource.spec.recovery
        hold = timedelta(seconds=recovery.processing_timeout_seconds)

        async def write() -> None:
            # The condition has an Event of its own.
            await delay_recovery(self.server, self.keys, self.observed.owner, change, hold=hold)
            memory.last_seen = LastSeen.of(self.stream)

        return PlannedAction(
            part=GroupPart.GROUP,
            what="delay recovery, because the position of the group went back",
            do=write,
        )

    def record_loss(self) -> PlannedAction | None:
        """Entries that were trimmed before they were delivered."""
        loss = find_new_loss(self.stream)
        if loss is None:
            return None

        async def write() -> None:
            # Of a stream that is empty, all entries that were ever added.
            first = self.stream.first_id or self.stream.last_generated_id.after()
            await record_loss(self.server, self.keys, self.observed.owner, loss, first_id=first)

        return PlannedAction(
            part=GroupPart.GROUP,
            what="record that entries were trimmed before their delivery",
            do=write,
        )

    def remember(self) -> PlannedAction | None:
        """Record the position, at which a lost group is created again."""
        if not needs_remembering(self.stream):
            return None

        async def write() -> EventContent | None:
            written = await remember_position(self.server, self.keys, self.observed.owner)
            loss = written and written.possible_loss
            return warn_of_possible_loss(self.keys, loss) if loss else None

        return PlannedAction(
            part=GroupPart.GROUP, what="record the position of the group", do=write, is_routine=True
        )

    def note_retry_wait(self) -> PlannedAction | None:
        """Record since when copies wait in the retry stream, for the alarm about its readers."""
        notes = plan_note(self.stream, may_read=self.observed.facts.may_read)
        if notes is None:
            return None

        async def write() -> None:
            await note_retry_wait(self.server, self.keys, self.observed.owner, forget=not notes)

        what = "record that copies wait in the retry stream"
        return PlannedAction(part=GroupPart.GROUP, what=what, do=write, is_routine=True)

    def trim_retry(self) -> PlannedAction | None:
        """Trim completed copies from the retry stream, which no other group uses."""
        if not needs_retry_trim(self.stream):
            return None

        async def write() -> None:
            await trim_retry_stream(self.server, self.keys, self.observed.owner)

        what = "trim the retry stream"
        return PlannedAction(part=GroupPart.GROUP, what=what, do=write, is_routine=True)

    def expire(self, memory: GroupMemory) -> PlannedAction | None:
        """Now and then: dead letters and records of the ledger that are old enough go."""
        now, resource = self.stream.server_time, self.observed.facts.resource
        created = resource.metadata.creation_timestamp
        if not needs_expiry(self.stream, expired_at=memory.expired_at, created=created):
            return None
        seconds = resource.spec.dead_letter.retention_seconds
        kept = timedelta(seconds=seconds)

        async def write() -> EventContent | None:
            letters, calls, may_continue, last = 0, 0, True, None
            after = memory.expired_to
            while may_continue and calls < MOST_EXPIRIES:
                expired = await expire_dead_letters(
                    self.server, self.keys, self.observed.owner, kept=kept, after=after
                )
                letters, calls = letters + expired.letters, calls + 1
                may_continue, after = expired.may_continue, expired.next_id
                last = expired.last_id or last
            memory.expired_at, memory.expired_to = None if may_continue else now, after
            if not letters:
                return None
            return report_expired(self.keys, letters, seconds, occurrence=str(last))

        return PlannedAction(
            part=GroupPart.GROUP, what="delete expired dead letters", do=write, is_routine=True
        )

    def _is_reported(self, change: PositionChange) -> bool:
        back = self.stream.state.back
        if back is None:
            return False
        return back.after == change.after or (change.seen is not None and back.since >= change.seen)


def warn_of_possible_loss(keys: GroupKeys, loss: PossibleLoss) -> EventContent:
    """The Event for entries that were removed between two observations, and passed."""
    return EventContent(
        type="Warning",
        reason=Reason.POSSIBLE_DATA_LOSS,
        action="Observe",
        note=report_possible_loss(keys.stream, loss),
        occurrence=f"{loss.after}/{loss.before}",
    )


def report_expired(keys: GroupKeys, count: int, seconds: int, *, occurrence: str) -> EventContent:
    """The Event for `count` dead letters that were kept for `seconds`."""
    return EventContent(
        type="Normal",
        reason=Reason.DEAD_LETTERS_EXPIRED,
        action="Expire",
        note=(
            f"Deleted {render_count(count, 'dead letter')} from {keys.dead_letter}: older than "
            f"spec.deadLetter.retentionSeconds ({render_seconds(seconds)})"
        ),
        occurrence=occurrence,
    )


def find_before(observed: ObservedGroup, memory: GroupMemory) -> LastSeen | None:
    """The newest that is known of the group before this observation."""
    if observed.facts.stream is None:
        return None
    return choose_newest(memory.last_seen, reported_before(observed, memory), observed.facts.stream)


def reported_before(observed: ObservedGroup, memory: GroupMemory) -> LastSeen | None:
    """The position in the status, for a replica that has started recently."""
    return None if memory.is_elsewhere else read_status(observed.facts.resource)
