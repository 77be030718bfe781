"""StreamRedrives in one replica: when they run, their passes, and their end.

The replica that ranks first works on a redrive, part by part (`RedriveRun`). A pass between two
parts writes the status. Another replica takes over if the first ends, or if nothing has changed for
a while. The redrives of one group run one after the other, the oldest first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.redrive.stream_redrive import (
    RedriveDestination,
    StreamRedrive,
)
from pelops.controller.group.group_observer import connect_group
from pelops.controller.redrive.redrive_index import RedriveIndex
from pelops.controller.redrive.redrive_run import RedriveRun
from pelops.controller.redrive.redrive_selection import build_selection, read_plan
from pelops.controller.redrive.redrive_status import (
    compare_redrives,
    measure_redrive,
    read_origin,
    render_redrive_status,
    report_progress,
)
from pelops.controller.runtime.cache import (
    Name,
)
from pelops.controller.runtime.connections import explain_unreachable
from pelops.controller.runtime.kind import (
    Difference,
    ManagedKind,
    Memory,
    Pass,
    PassIntervals,
    PlannedAction,
    Services,
    Status,
    StatusDecision,
)
from pelops.domain.condition import Finding
from pelops.domain.naming import GroupKeys
from pelops.domain.records.dead_letter import LetterAction
from pelops.errors import (
    AnotherRedriveRuns,
    InvalidSpec,
    NotFound,
    OutcomeUnknown,
    PelopsError,
    RedisError,
    RedisUnavailable,
    WouldDuplicate,
)
from pelops.kube.client import (
    STREAM_REDRIVE,
    Address,
    Manifest,
)
from pelops.kube.event_recorder import EventContent
from pelops.metrics import REDRIVES_SERVED, forget_redrive
from pelops.policy.redrive.redrive_conditions import (
    decide_redrive_conditions,
    find_changed_origin,
    find_group_problem,
    find_suspension,
    report_duplicates,
    report_group_invalid,
    report_group_missing,
)
from pelops.policy.redrive.redrive_facts import Origin, RedriveFacts, Verdict, find_ending
from pelops.policy.redrive.selection import Selection, read_planned
from pelops.policy.status.diagnosis import diagnose
from pelops.redis_streams.redrive.moves import RedriveContext, finish_redrive

log = logging.getLogger(__name__)

REQUESTED_BY: Final = "pelops.dev/requested-by"
TAKE_OVER_S: Final = 30.0  # without a change; then a replica of lower rank works on it as well
WORK: Final = "work"  # the parts that actions belong to
KEEPING: Final = "keeping"
_MOST_REQUESTER: Final = 256  # characters


@dataclass(slots=True)
class RedriveMemory(Memory):
    """What one replica keeps about a redrive between passes."""

    uid: str = ""
    run: RedriveRun | None = None
    origin: Origin | None = None  # where it has started
    problem: Finding | None = None  # of the last part
    waits_for: str | None = None  # the redrive that Redis knows as the running one
    verdict: Verdict | None = None  # of a spec that can never run
    is_paused: bool = False  # released in Redis, so that another may run
    is_cleaned: bool = False  # its records in Redis were removed
    is_reported: bool = True  # the last part is in the status, if it changed anything
    next_at: float = float("-inf")  # when the next part is worth a try
    marker: str = ""  # what changes while some replica works on it
    marked_at: float = 0.0

    def begin(self, uid: str) -> None:
        """Forget another redrive of the same name."""
        if self.uid != uid:
            self.uid, self.run, self.problem, self.waits_for = uid, None, None, None
            self.origin = None
            self.verdict, self.is_paused, self.is_cleaned = None, False, False
            self.is_reported, self.next_at, self.marker = True, float("-inf"), ""

    def unchanged_s(self, marker: str, now_s: float) -> float:
        """For how long this has been the marker."""
        if marker != self.marker:
            self.marker, self.marked_at = marker, now_s
        return now_s - self.marked_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRedrive:
    """The facts of one pass, and the group that they are about."""

    facts: RedriveFacts
    memory: RedriveMemory
    group: StreamConsumerGroup | None = None
    works: bool = True  # this replica works on it, and knows best how far it is

    def with_problem(self, error: PelopsError) -> ObservedRedrive:
        """The same, with the failure of a part of the work."""
        memory, waits_for, problem = self.memory, None, None
        if isinstance(error, AnotherRedriveRuns):
            waits_for = error.redrive.partition("/")[0]
        elif isinstance(error, WouldDuplicate):
            problem = report_duplicates(str(error))
        elif self.group is not None and isinstance(error, (RedisError, NotFound)):
            namespace = self.facts.redrive.metadata.namespace
            problem = explain_unreachable(error, self.group.spec.redis, namespace)
        else:
            problem = diagnose(error)
        memory.waits_for, memory.problem = waits_for, problem
        facts = replace(self.facts, waits_for=waits_for, problem=problem)
        return replace(self, facts=facts)


RedrivePass = Pass[StreamRedrive, RedriveMemory]


class RedriveKind(ManagedKind[StreamRedrive, ObservedRedrive, RedriveMemory]):
    """Redrives: the movement of dead letters that people ask for."""

    api = STREAM_REDRIVE

    def __init__(self, services: Services) -> None:
        super().__init__(services.clock, defaultdict(RedriveMemory))
        self._api, self._cache, self._clock = services.api, services.cache, services.clock
        self._settings, self._connections = services.settings, services.connections
        self._index = RedriveIndex(services.cache)
        self._searches = asyncio.Lock()

    # --- a pass

    def parse(self, manifest: Manifest) -> StreamRedrive:
        return StreamRedrive.parse(manifest)

    async def observe(self, current: RedrivePass) -> ObservedRedrive:
        redrive, memory = current.resource, current.memory
        memory.begin(redrive.metadata.uid)
        works = current.rank == 0 or self._is_left_alone(current)
        if not works:
            memory.run = None
        run = memory.run
        facts = RedriveFacts(
            redrive=redrive,
            phase=run.phase if run else None,
            counts=run.counts if run else None,
            origin=memory.origin,
            verdict=memory.verdict or (run.verdict if run else None),
        )
        if find_ending(redrive) is not None or facts.verdict is not None:
            group, _ = self._parse_group(redrive)
            return ObservedRedrive(facts=facts, memory=memory, group=group, works=works)
        group, problem = self._parse_group(redrive)
        facts = replace(
            facts,
            waits_for=self._index.find_first(redrive) or memory.waits_for,
            problem=problem or memory.problem or (run.problem if run else None),
        )
        return ObservedRedrive(facts=facts, memory=memory, group=group, works=works)

    def actions(
        self, observation: ObservedRedrive, current: RedrivePass
    ) -> Iterator[PlannedAction]:
        action = self._next_action(observation, current)
        if action is not None:
            yield action

    def _next_action(
        self, observation: ObservedRedrive, current: RedrivePass
    ) -> PlannedAction | None:
        redrive, memory, group = current.resource, current.memory, observation.group
        if find_ending(redrive) is not None:
            return self._clean_up(observation, current) or self._expire(redrive, current.name)
        if observation.facts.verdict is not None or not observation.works:
            return None  # the status shows an end first
        spec = redrive.spec
        if spec.suspend or spec.needs_approval or self._index.find_first(redrive) is not None:
            return self._pause(memory)
        if group is None or find_group_problem(redrive, group) is not None:
            return self._pause(memory)
        if not memory.is_reported:
            memory.is_reported = True
            self.queue.add(current.name, delay_s=max(0.0, memory.next_at - self._clock()))
            return None
        if self._clock() < memory.next_at:
            self.queue.add(current.name, delay_s=memory.next_at - self._clock())
            return None
        return self._work(redrive, group, memory)

    def add_problem(
        self, observation: ObservedRedrive, part: str | None, error: PelopsError
    ) -> ObservedRedrive:
        if part != WORK:
            log.info("Could not complete the end of a redrive in Redis: %s", error)
            return observation
        return observation.with_problem(error)

    def decide_status(
        self, observation: ObservedRedrive, current: RedrivePass, now: datetime
    ) -> StatusDecision:
        facts = observation.facts
        if not observation.works and find_ending(facts.redrive) is None:
            return StatusDecision(status=current.previous.status, conditions=())
        conditions = decide_redrive_conditions(facts)
        return StatusDecision(
            status=render_redrive_status(facts, conditions, current.previous, now),
            conditions=conditions,
            problem=None if find_ending(facts.redrive) else facts.problem,
        )

    def intervals(self, known: int) -> PassIntervals:
        settings = self._settings
        return PassIntervals(observe_s=settings.observe_s, status_s=settings.status_s)

    # --- the end of a resource

    async def release(self, name: Name, manifest: Manifest | None) -> float | None:
        """Remove the records of a deleted redrive from Redis. Dead letters stay where they are.

        Every replica that worked on it tries it. If none succeeds, another redrive of the group can
        run after five minutes.
        """
        memory = self.memories.get(name)
        if memory is None or memory.run is None:
            return None
        if manifest is not None and manifest["metadata"]["uid"] == memory.uid:
            return None
        run, memory.run = memory.run, None
        try:
            await run.finish(forget=True)
        except PelopsError as error:
            log.info("Could not delete the records of the redrive in Redis: %s", error)
        return None

    def forget(self, name: Name) -> None:
        forget_redrive(*name)

    # --- how it is reported

    def compare(self, wished: Status, live: Mapping[str, Any]) -> Difference:
        return compare_redrives(wished, live)

    def measure(self, observation: ObservedRedrive, decision: StatusDecision) -> None:
        metadata = observation.facts.redrive.metadata
        measure_redrive((metadata.namespace, metadata.name), decision.status)

    def list_events(self, before: Status, after: Status) -> Iterable[EventContent]:
        yield from super().list_events(before, after)
        yield from report_progress(before, after)

    def serve(self, is_served: bool) -> None:
        REDRIVES_SERVED.set(is_served)

    # --- actions

    def _work(
        self, redrive: StreamRedrive, group: StreamConsumerGroup, memory: RedriveMemory
    ) -> PlannedAction:
        async def write() -> None:
            namespace, redis = redrive.metadata.namespace, group.spec.redis
            try:
                await self._advance(redrive, group, memory)
            except PelopsError as error:
                self._connections.forget_mendable_secret(redis, namespace, error)
                await self._let_others_run(memory, error)
                raise
            memory.problem, memory.waits_for = None, None

        what = f"do a part of the {redrive.spec.action}"
        return PlannedAction(part=WORK, what=what, do=write, is_routine=True)

    async def _advance(
        self, redrive: StreamRedrive, group: StreamConsumerGroup, memory: RedriveMemory
    ) -> None:
        """A part of the work, on the group as it is declared now. Raises PelopsError."""
        server, keys = await connect_group(self._connections, group)
        server = server.dry if redrive.spec.is_dry_run else server
        context = self._context(redrive, group, keys)
        here = Origin(server=server.address, stream=context.source, group_uid=context.owner_uid)
        memory.origin = memory.origin or read_origin(redrive) or here
        changed = find_changed_origin(redrive, memory.origin, here)
        if changed is not None:
            memory.verdict = Verdict(is_failure=True, finding=changed)
            return
        if memory.run is None:
            try:
                selection = build_selection(redrive.spec.selection)
            except InvalidSpec as error:
                memory.verdict = Verdict(is_failure=True, finding=diagnose(error))
                return
            selection = await self._add_plan(redrive, keys, selection)
            memory.run = RedriveRun(server, context, selection, self._clock, self._searches)
            memory.run.recall(redrive)
        run = memory.run
        run.follow(server, context)
        memory.is_paused = False
        suspended = find_suspension(group)
        await run.advance(redrive, refusal=suspended.message if suspended else "")
        memory.is_reported = False
        memory.next_at = self._clock() + run.wait_s

    async def _add_plan(
        self, redrive: StreamRedrive, keys: GroupKeys, selection: Selection
    ) -> Selection:
        plan = redrive.spec.selection.plan_ref if redrive.spec.selection else None
        if plan is None:
            return selection
        lines = await read_plan(self._api, redrive.metadata.namespace, plan)
        planned = read_planned(lines, stream=keys.stream, group=keys.group)
        return replace(selection, planned=planned)

    async def _let_others_run(self, memory: RedriveMemory, error: PelopsError) -> None:
        """Let younger redrives of the group run when this one cannot."""
        if memory.run is None or isinstance(error, (RedisUnavailable, OutcomeUnknown)):
            return
        try:
            await memory.run.finish(forget=False)
        except PelopsError as another:
            log.info("Could not let another redrive of the group run: %s", another)

    def _context(
        self, redrive: StreamRedrive, group: StreamConsumerGroup, keys: GroupKeys
    ) -> RedriveContext:
        spec, metadata = redrive.spec, redrive.metadata
        return RedriveContext(
            keys=keys,
            owner_uid=group.metadata.uid,
            uid=metadata.uid,
            name=metadata.name,
            action=LetterAction(spec.action.value),
            to_retry_stream=spec.destination is RedriveDestination.RETRY_STREAM,
            field_prefix=group.spec.recovery.tuning.field_prefix,
            actor=self._settings.identity,
            requested_by=metadata.annotations.get(REQUESTED_BY, "")[:_MOST_REQUESTER],
            max_entry_bytes=group.spec.recovery.max_entry_bytes,
        )

    def _pause(self, memory: RedriveMemory) -> PlannedAction | None:
        """Let others run while this one may not."""
        run = memory.run
        memory.next_at = float("-inf")
        if run is None or memory.is_paused:
            return None

        async def write() -> None:
            await run.finish(forget=False)
            memory.is_paused = True

        return PlannedAction(part=KEEPING, what="pause the redrive", do=write, is_routine=True)

    def _clean_up(self, observation: ObservedRedrive, current: RedrivePass) -> PlannedAction | None:
        """Remove the records of a redrive that has ended, so that the next one may run."""
        redrive, memory, group = current.resource, current.memory, observation.group
        is_needed = not memory.is_cleaned and not redrive.spec.is_dry_run and not current.rank
        if not is_needed or group is None:
            memory.run = None
            return None

        async def write() -> None:
            server, keys = await connect_group(self._connections, group)
            await finish_redrive(server, self._context(redrive, group, keys), forget=True)
            memory.run, memory.is_cleaned = None, True

        return PlannedAction(
            part=KEEPING, what="remove the records of the redrive", do=write, is_routine=True
        )

    def _expire(self, redrive: StreamRedrive, name: Name) -> PlannedAction | None:
        """Delete a resource that has ended for as long as it says."""
        seconds, status = redrive.spec.ttl_seconds_after_finished, redrive.status
        if seconds is None or status is None or status.completion_time is None:
            return None
        end = status.completion_time
        wait = end + timedelta(seconds=seconds) - datetime.now(end.tzinfo)
        if wait > timedelta():
            self.queue.add(name, delay_s=wait.total_seconds())
            return None
        address = Address(kind=STREAM_REDRIVE, namespace=name[0], name=name[1])

        async def write() -> None:
            await self._api.delete(address, uid=redrive.metadata.uid)
            self._cache.remove_deleted(
                STREAM_REDRIVE, name, redrive.metadata.uid, writer=STREAM_REDRIVE
            )

        return PlannedAction(part=KEEPING, what="delete the finished StreamRedrive", do=write)

    # --- who works on it

    def _is_left_alone(self, current: RedrivePass) -> bool:
        """Whether the replica that should work on it does not."""
        return current.memory.unchanged_s(_marker(current.resource), self._clock()) >= TAKE_OVER_S

    def _parse_group(
        self, redrive: StreamRedrive
    ) -> tuple[StreamConsumerGroup | None, Finding | None]:
        manifest = self._index.group(redrive)
        if manifest is None:
            return None, report_group_missing(redrive)
        try:
            group = StreamConsumerGroup.parse(manifest)
        except InvalidSpec as error:
            return None, report_group_invalid(redrive, str(error))
        return group, find_group_problem(redrive, group)


def _marker(redrive: StreamRedrive) -> str:
    """What changes while a replica works on a redrive."""
    status = redrive.status
    if status is None:
        return ""
    reason = next((one.reason for one in status.conditions or () if one.type == "Ready"), "")
    return f"{reason}/{status.last_id}/{status.moved}/{status.acknowledged}"
