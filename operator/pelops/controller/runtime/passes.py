"""Passes: the reconciliation of one resource, for any kind.

A pass observes, and does the actions that are missing. If it did one, the next pass begins at once
with a new observation. If none is missing, the status is written if it differs.

There is no leader: all replicas detect a difference, and normally the first in rank writes. Each
action is safe to repeat. If the process ends after one, the next pass of any replica continues.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Generic

from pelops.api.schema.base import ObjectMeta
from pelops.clock import with_jitter
from pelops.controller.runtime.cache import Name, name_of
from pelops.controller.runtime.events import Reporter, list_transitions
from pelops.controller.runtime.gate import Gate, Place
from pelops.controller.runtime.kind import (
    Difference,
    ManagedKind,
    Memory,
    MemoryT,
    ObservationT,
    Pass,
    PlannedAction,
    PreviousStatus,
    ResourceT,
    Services,
    Status,
    StatusDecision,
    place_of,
    previous_status,
    render_heading,
)
from pelops.controller.runtime.queue import is_wanted
from pelops.controller.runtime.standby import Standby, version_of
from pelops.domain.backoff import backoff_s
from pelops.domain.condition import Condition
from pelops.errors import (
    Conflict,
    DeadlineExceeded,
    InternalError,
    InvalidSpec,
    KubernetesUnavailable,
    NotFound,
    PelopsError,
)
from pelops.kube.client import Address, Kind, Manifest
from pelops.kube.trimmed import check_kept, is_kept
from pelops.metrics import (
    CONDITIONS,
    OTHER_REASON,
    QUEUE_DEPTH,
    RECONCILE_SECONDS,
    RECONCILES,
    STATUS_WRITES_LIMITED,
)
from pelops.policy.membership import LONG_STEP
from pelops.policy.status.conditions import refused
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.reasons import Reason

log = logging.getLogger(__name__)

STATUS: Final = "status"  # the name of a difference of the status
_KNOWN: Final = frozenset(Reason)
_OUTCOMES: Final = ("done", "failed", "timeout", "error")
for _outcome in _OUTCOMES:
    RECONCILES.labels(_outcome)
LIMITED_S: Final = 10.0  # the next pass when the write budget is used up
AFTER_ERROR_S: Final = (1.0, 5.0)
REPORT_S: Final = 10.0  # for the status of a resource whose pass was cut off
# Each write to an object that was too large to be kept is slow, and all watches receive the object.
# So only one such write runs at a time, with growing pauses after failures.
LARGE_TAKEN_S: Final = (0.5, 3.0)  # the pause while another one is written
FIRST_LARGE_S: Final = 15.0
LONGEST_LARGE_S: Final = 600.0


class Reconciler(Generic[ResourceT, ObservationT, MemoryT]):
    """Reconciles the resources of one kind."""

    def __init__(
        self,
        kind: ManagedKind[ResourceT, ObservationT, MemoryT],
        services: Services,
        standby: Standby,
    ) -> None:
        self._kind = kind
        self._services = services
        self._standby = standby
        self._clock = services.clock
        self._resources = services.cache.objects(kind.api)
        self._reporter = Reporter(services.api, kind.api, identity=services.settings.identity)
        self._is_writing_large = False

    async def reconcile(self, name: Name) -> float | None:
        """One pass: seconds until the next, or None if the resource no longer exists.

        Raises:
            KubernetesError: the API server could not be used; repeat.
        """
        kind, manifest = self._kind, self._resources.get(name)
        wait = await kind.release(name, manifest)
        if wait is not None:
            return wait
        if manifest is None:
            kind.memories.pop(name, None)
            kind.forget(name)
            CONDITIONS.forget(kind.api.kind, *name)
            return None
        if kind.finalizer is None and manifest["metadata"].get("deletionTimestamp"):
            return None  # the API server completes it, and collects what it owns
        memory = kind.memories[name]
        try:
            check_kept(manifest)
            resource = kind.parse(manifest)
        except InvalidSpec as error:
            return await self._refuse(manifest, error, memory)
        rank = self._services.members.rank(kind.rank_key(name))
        current = Pass(resource=resource, manifest=manifest, memory=memory, rank=rank)
        if resource.metadata.is_being_deleted:
            return await self._complete_deletion(current)
        return await self._proceed(current)

    async def _proceed(self, current: Pass[ResourceT, MemoryT]) -> float:
        observation = await self._kind.observe(current)
        missing = await self._do_missing(observation, current)
        if missing is None:
            return 0.0
        observation, turn_s = missing
        return await self._report(observation, current, turn_s=turn_s)

    async def _do_missing(
        self, observation: ObservationT, current: Pass[ResourceT, MemoryT]
    ) -> tuple[ObservationT, float | None] | None:
        """Do the actions that are missing, as far as it is the turn of this replica.

        None when one was done: the next pass observes the result. Otherwise the observation, with
        the problem that ended this, and the seconds for which an action is still left to other
        replicas: 0 when it failed here, None when none is missing.
        """
        kind, connections, has_acted = self._kind, self._services.connections, False
        try:
            for action in kind.actions(observation, current):
                current.memory.keep_only(STATUS, action.what)
                turn_s = current.wait_s(action.what)
                if turn_s > 0:
                    return None if has_acted else (observation, turn_s)
                if connections.forget_stale_secrets(action.secrets, current.name[0]):
                    # A replica that still has the old Secret would undo what the others wrote.
                    return None
                error = await self._apply(action, current)
                if error is not None:
                    return kind.add_problem(observation, action.part, error), 0.0
                has_acted = True
        except InvalidSpec as error:
            observation = kind.add_problem(observation, None, error)
        current.memory.keep_only(STATUS)
        return None if has_acted else (observation, None)

    async def _apply(
        self, action: PlannedAction, current: Pass[ResourceT, MemoryT]
    ) -> PelopsError | None:
        """Do the action, and report it; the error when it failed.

        Raises KubernetesUnavailable: then nothing can be reported either.
        """
        memory, metadata = current.memory, current.resource.metadata
        try:
            event = await action.do()
        except KubernetesUnavailable:
            raise
        except PelopsError as error:
            level = logging.WARNING if memory.is_news(str(error)) else logging.DEBUG
            log.log(level, "Could not %s: %s", action.what, error, extra={"resource": metadata.key})
            return error
        level = logging.DEBUG if action.is_routine else logging.INFO
        log.log(level, "Completed: %s", action.what, extra={"resource": metadata.key})
        if event is not None:
            await self._reporter.report(metadata, event)
        memory.failures = 0
        memory.failure = None
        memory.keep_only(STATUS)
        return None

    async def _report(
        self, observation: ObservationT, current: Pass[ResourceT, MemoryT], *, turn_s: float | None
    ) -> float:
        """Write the status if it is worth it: seconds until the next pass.

        `turn_s` is how long an action that is missing is still left to others; None: none is.
        """
        kind, memory = self._kind, current.memory
        decision = kind.decide_status(observation, current, datetime.now(UTC))
        if decision.is_left_to_newer:
            memory.differing.pop(STATUS, None)
            self._show(current.name, current.manifest.get("status") or {})
            return memory.retry_s(is_terminal=False)
        stands_by = self._standby.stands_by(current.name)
        if stands_by:
            self._standby.give_up(current.name)
        else:
            kind.measure(observation, decision)
            self._show(current.name, decision.status)
        intervals, problem = kind.intervals(len(self._resources)), decision.problem
        if stands_by and turn_s != 0:  # 0: this replica did the action, and it failed
            again_s = turn_s or self._standby.rest_s()
        elif turn_s is not None or problem is not None:
            again_s = memory.retry_s(is_terminal=problem is not None and problem.is_terminal)
        else:
            memory.failures = 0
            again_s = intervals.observe_s
        wait_s = await self._write_status(current, decision, numbers_s=intervals.status_s)
        if wait_s is None and not stands_by and turn_s is None and problem is None:
            rest_s = kind.rest_s(observation, current, decision)
            again_s = again_s if rest_s is None else min(rest_s, self._standby.rest_s())
        again_s = with_jitter(again_s)
        return again_s if wait_s is None else min(again_s, wait_s)

    async def _write_status(
        self, current: Pass[ResourceT, MemoryT], decision: StatusDecision, *, numbers_s: float
    ) -> float | None:
        """Write the status if it differs and it is this replica's: seconds until that, if not yet.

        Numbers that move are written every `numbers_s` at most.
        """
        wished, live, memory = decision.status, current.manifest.get("status") or {}, current.memory
        difference = self._kind.compare(wished, live)
        if difference is Difference.FACTS:
            wait_s = current.wait_s(STATUS, step=LONG_STEP)
        elif difference is Difference.NUMBERS and current.rank == 0:
            wait_s = memory.numbers_written + numbers_s - self._clock()
        else:
            memory.differing.pop(STATUS, None)
            return None
        if wait_s > 0:
            return wait_s
        is_flip, now = difference is Difference.FACTS, self._clock()
        if not memory.budget.take(now) or (is_flip and not memory.flips.take(now)):
            STATUS_WRITES_LIMITED.add(*current.name)
            return LIMITED_S
        if not await self._put_status(current.manifest, wished, current.rank):
            return LONG_STEP.total_seconds()
        memory.differing.pop(STATUS, None)
        memory.numbers_written = self._clock()
        for event in self._kind.list_events(live, wished):
            await self._reporter.report(current.resource.metadata, event)
        return None

    async def _put_status(self, manifest: Manifest, wished: Status, rank: int) -> bool:
        """Write the status. False if the resource is deleted, or another replica was faster.

        The first in rank writes in any case. The others write only over the version that they have
        seen: while their watch is late, they do not know that the first has written.
        """
        metadata, api = manifest["metadata"], self._kind.api
        address = Address(
            kind=api,
            namespace=metadata["namespace"],
            name=metadata["name"],
            subresource="status",
        )
        body: Manifest = {
            "apiVersion": api.api_version,
            "kind": api.kind,
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "status": wished,
        }
        if rank > 0:
            body["metadata"]["resourceVersion"] = version_of(manifest)
        try:
            answer = await self._services.api.apply(address, body)
        except NotFound:
            return False  # the watch will report the deletion
        except Conflict:
            if rank > 0:
                return False
            raise
        self._services.cache.put_answer(api, answer, writer=api)
        self._kind.memories[name_of(answer)].written = version_of(answer)
        return True

    async def _refuse(self, manifest: Manifest, error: InvalidSpec, memory: Memory) -> float | None:
        """Report that the spec cannot be read; nothing else is done."""
        metadata = ObjectMeta.model_validate(manifest["metadata"])
        conditions = refused(diagnose(error))
        wished = render_refusal(conditions, previous_status(manifest), datetime.now(UTC))
        before = manifest.get("status") or {}
        name = metadata.namespace, metadata.name
        self._show(name, wished)
        self._measure_failure(name)
        if wished != before:
            rank = self._services.members.rank(self._kind.rank_key(name))
            wait_s = await self._write_refusal(manifest, wished, memory, rank)
            if wait_s is not None:
                return wait_s
            memory.differing.pop(STATUS, None)
            for transition in list_transitions(before, wished, ()):
                await self._reporter.report(metadata, transition)
        if not metadata.is_being_deleted:
            return memory.retry_s(is_terminal=True)
        finalizer = self._kind.finalizer
        if finalizer is None or not finalizer.is_on(metadata):
            return None
        event = self._kind.abandon(str(error))
        if event is not None:
            await self._reporter.report(metadata, event)
        return await finalizer.try_remove(metadata)

    async def _write_refusal(
        self, manifest: Manifest, wished: Status, memory: Memory, rank: int
    ) -> float | None:
        """Write the status of a resource that is refused: seconds until another try, or None.

        That of a large one is written by the first in rank alone, however long it takes.
        """
        if is_kept(manifest):
            wait = memory.wait(STATUS, rank, datetime.now(UTC), step=LONG_STEP)
            if wait > timedelta(0):
                return wait.total_seconds()
            is_written = await self._put_status(manifest, wished, rank)
            return None if is_written else LONG_STEP.total_seconds()
        if rank > 0:
            return random.uniform(*LARGE_TAKEN_S)  # by then this replica may rank first
        now = self._clock()
        if now < memory.large_again_at:
            return memory.large_again_at - now
        if self._is_writing_large:
            return random.uniform(*LARGE_TAKEN_S)
        # Until it has succeeded it counts as a failure: a write that is cut off reports nothing.
        memory.large_writes += 1
        pause_s = backoff_s(memory.large_writes, first_s=FIRST_LARGE_S, longest_s=LONGEST_LARGE_S)
        memory.large_again_at = now + with_jitter(pause_s)
        self._is_writing_large = True
        try:
            await self._put_status(manifest, wished, rank)
        finally:
            self._is_writing_large = False
        memory.large_writes, memory.large_again_at = 0, now + FIRST_LARGE_S
        return None

    async def report_failure(self, name: Name, error: PelopsError) -> None:
        """Show in the status why a pass was cut off. Only the first in rank does. Raises
        KubernetesError.
        """
        kind, manifest = self._kind, self._resources.get(name)
        if manifest is None or not is_kept(manifest):
            return  # of one that is not kept, what was cut off is this very write
        metadata, memory = ObjectMeta.model_validate(manifest["metadata"]), kind.memories[name]
        before = manifest.get("status") or {}
        now = datetime.now(UTC)
        wished = render_refusal(refused(diagnose(error)), previous_status(manifest), now)
        self._show(name, wished)
        self._measure_failure(name)
        is_first = self._services.members.rank(kind.rank_key(name)) == 0
        if not is_first or wished == before or not memory.budget.take(self._clock()):
            return
        await self._put_status(manifest, wished, 0)
        for event in list_transitions(before, wished, ()):
            await self._reporter.report(metadata, event)

    def _show(self, name: Name, status: Status) -> None:
        """Set the metric of the conditions."""
        if self._standby.stands_by(name):
            return
        namespace, resource = name
        # The reason of a waiting container, or one stored in Redis, may be any word.
        conditions = [
            (one["type"], one["status"], one["reason"] if one["reason"] in _KNOWN else OTHER_REASON)
            for one in status.get("conditions") or ()
        ]
        CONDITIONS.show(self._kind.api.kind, namespace, resource, conditions)
        STATUS_WRITES_LIMITED.begin(*name)

    def _measure_failure(self, name: Name) -> None:
        if not self._standby.stands_by(name):
            self._kind.measure_failure(name)

    async def _complete_deletion(self, current: Pass[ResourceT, MemoryT]) -> float | None:
        """Clean up and remove the finalizer: seconds until another try, or None when it is done."""
        finalizer, metadata, memory = (
            self._kind.finalizer,
            current.resource.metadata,
            current.memory,
        )
        if finalizer is None or not finalizer.is_on(metadata):
            return None
        try:
            event = await self._kind.clean_up(current, datetime.now(UTC))
        except PelopsError as error:
            memory.cleanup_failure = str(error)
            log.warning(
                "Could not clean up before the deletion of the resource: %s",
                error,
                extra={"resource": metadata.key},
            )
            return memory.retry_s()
        if event is not None:
            await self._reporter.report(metadata, event)
        return await finalizer.try_remove(metadata)


def render_refusal(
    conditions: Sequence[Condition], previous: PreviousStatus, now: datetime
) -> Status:
    """The status of a resource with an invalid spec: the other fields are kept."""
    kept = {key: value for key, value in previous.status.items() if key != "conditions"}
    return {**kept, **render_heading(conditions, previous, now)}


class ReconcileLoop(Generic[ResourceT, ObservationT, MemoryT]):
    """Makes passes for the keys of the kind's queue: many at once, but one at a time per key."""

    def __init__(
        self, kind: ManagedKind[ResourceT, ObservationT, MemoryT], services: Services
    ) -> None:
        self._kind = kind
        self._standby = Standby(kind, services)
        self._reconciler = Reconciler(kind, services, self._standby)
        self._resources = services.cache.objects(kind.api)
        loop = f"reconcile {kind.api.plural}"
        self._gate = Gate(loop, kind.limits)
        services.progress.follow(loop, self._gate.stalled_s, kind.queue.overdue_s)
        QUEUE_DEPTH.labels(kind.api.plural).set_function(self._count_waiting)

    def handle_change(self, changed: Kind, names: set[Name]) -> None:
        """Make resources due that a change of objects of a kind concerns."""
        for name in names:
            self._standby.handle_change(changed, name)

    async def run(self) -> None:
        """Serve until cancelled, all resources first."""
        async with asyncio.TaskGroup() as passes:
            passes.create_task(self._standby.follow_members())
            while is_wanted():
                name = await self._kind.queue.take()
                passes.create_task(self._serve(name))
                await asyncio.sleep(0)  # thousands may be due at once

    def _count_waiting(self) -> int:
        """Resources that are due and wait, in the queue or for a place in the gate."""
        return self._kind.queue.count_due() + self._gate.waiting

    async def _serve(self, name: Name) -> None:
        queue, again_s = self._kind.queue, None
        try:
            if self._gate.has_waiting(name[0]) and self._standby.stands_by(name):
                again_s = LONG_STEP.total_seconds()  # its own resources come first
            else:
                again_s = await self._reconcile(name)
        finally:
            queue.done(name, again_s=again_s)
        self._kind.count(len(self._resources))

    async def _reconcile(self, name: Name) -> float | None:
        """One pass, with all errors handled: seconds until the next, or None."""
        key = "/".join(name)
        try:
            place = place_of(name, self._resources.get(name))
            again_s = await self._gate.run(place, partial(self._pass, name), what=key)
        except (DeadlineExceeded, InternalError) as error:
            # A bug, or a server that is too slow, must not end the passes of other resources.
            RECONCILES.labels("timeout" if isinstance(error, DeadlineExceeded) else "error").inc()
            await self._report_failure(name, error)
            return with_jitter(self._kind.memories[name].break_s(), 0.4)
        except PelopsError as error:
            log.warning("Could not reconcile: %s", error, extra={"resource": key})
            RECONCILES.labels("failed").inc()
            return random.uniform(*AFTER_ERROR_S)
        RECONCILES.labels("done").inc()
        if name in self._kind.memories:
            self._kind.memories[name].breaks = 0
        return again_s

    async def _pass(self, name: Name) -> float | None:
        with RECONCILE_SECONDS.time():
            return await self._reconciler.reconcile(name)

    async def _report_failure(self, name: Name, error: PelopsError) -> None:
        place, key = Place(name[0], "status"), "/".join(name)
        report = partial(self._reconciler.report_failure, name, error)
        try:
            await self._gate.run(place, report, what=key, deadline_s=REPORT_S)
        except PelopsError as problem:
            log.warning("Could not write the status: %s", problem, extra={"resource": key})
