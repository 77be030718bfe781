"""The write of the replicas after a decision to scale, and its Events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pelops.controller.group.victims import Fleet, Victims
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.kind import FIRST_RETRY_S, LONGEST_RETRY_S, LONGEST_TERMINAL_RETRY_S
from pelops.controller.scaling.scaled_resources import Scaled
from pelops.controller.workload.targets import Targets
from pelops.domain.backoff import backoff_s
from pelops.domain.workload import Target, WorkloadObservation
from pelops.errors import KubernetesUnavailable, NotFound, PelopsError
from pelops.kube.event_recorder import EventContent
from pelops.metrics import SCALE_WRITES
from pelops.policy.scaling.decision import (
    ScalingDecision,
    keep_busy_workers,
    record_try,
    remember_write,
    report_failure,
)
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.reasons import Reason

log = logging.getLogger(__name__)

TOGETHER: Final = 32  # writes under way


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteContext:
    """The workload that a decision is written to."""

    workload: WorkloadObservation
    fleet: Fleet | None  # None: it cannot be known which workers are busy
    is_current: Callable[[], bool]  # whether the spec is still the one of the decision
    left_s: Callable[[], float]  # how long this replica may write, unless its Lease is renewed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChange:
    """From how many replicas to how many."""

    before: int
    after: int

    @property
    def direction(self) -> int:
        """1 up, -1 down."""
        return 1 if self.after > self.before else -1


class ScaleWrites:
    """Brings replicas to what was decided."""

    def __init__(
        self,
        targets: Targets,
        victims: Victims,
        reporter: Reporter,
        clock: Callable[[], float],
    ) -> None:
        self._targets = targets
        self._victims = victims
        self._reporter = reporter
        self._clock = clock
        self._room = asyncio.Semaphore(TOGETHER)

    async def carry_out(
        self, scaled: Scaled, decision: ScalingDecision, context: WriteContext
    ) -> ScalingDecision:
        """Write the replicas if they differ: the decision as it turned out."""
        if decision.replicas is None or not context.workload.exists:
            return decision
        decision = await self._spare_busy(decision, context)
        change = ReplicaChange(before=decision.current, after=decision.replicas or 0)
        if not decision.is_change:
            scaled.failures, scaled.problem = 0, None
            return decision
        if scaled.problem is not None and self._clock() < scaled.write_after:
            return report_failure(decision, scaled.problem)
        try:
            is_written = await self._write(context, change)
        except NotFound:
            return decision  # it was deleted: the next observation shows it
        except PelopsError as error:
            if isinstance(error, KubernetesUnavailable):
                _remember_try(scaled, change)
            return self._note_failure(scaled, decision, error)
        if is_written:
            await self._close(scaled, context, change, decision)
        return decision

    async def _spare_busy(
        self, decision: ScalingDecision, context: WriteContext
    ) -> ScalingDecision:
        if not (decision.is_change and decision.wants_busy):
            return decision
        busy = None
        if context.fleet is not None:
            only_at_work = decision.only_at_work
            busy = await self._victims.count_busy(context.fleet, only_at_work=only_at_work)
        return keep_busy_workers(decision, context.workload, busy)

    async def _write(self, context: WriteContext, change: ReplicaChange) -> bool:
        """Whether it was written: not if the decision is outdated. Raises KubernetesError."""
        async with self._room:
            if not context.is_current():
                return False
            if context.fleet is not None and 0 < change.after < change.before:
                await self._victims.name_victims(context.fleet, change.before - change.after)
            if not context.is_current():
                return False
            await _finish(
                self._targets.scale(context.workload.target, change.after), context.left_s
            )
        return True

    def _note_failure(
        self, scaled: Scaled, decision: ScalingDecision, error: PelopsError
    ) -> ScalingDecision:
        problem = diagnose(error)
        level = logging.DEBUG if scaled.problem == problem else logging.WARNING
        log.log(level, "Could not scale: %s", error, extra={"resource": "/".join(scaled.name)})
        longest = LONGEST_TERMINAL_RETRY_S if problem.is_terminal else LONGEST_RETRY_S
        scaled.failures += 1
        wait = backoff_s(scaled.failures, first_s=FIRST_RETRY_S, longest_s=longest)
        scaled.problem = problem
        scaled.write_after = self._clock() + wait
        return report_failure(decision, problem)

    async def _close(
        self,
        scaled: Scaled,
        context: WriteContext,
        change: ReplicaChange,
        decision: ScalingDecision,
    ) -> None:
        """Record a write, and create an Event if the direction has changed."""
        scaled.failures, scaled.problem = 0, None
        scaled.memory = remember_write(
            scaled.memory, before=change.before, after=change.after, now=self._clock()
        )
        SCALE_WRITES.labels("up" if change.direction > 0 else "down").inc()
        event = report_scaled(
            context.workload.target, change, decision, occurrence=datetime.now(UTC).isoformat()
        )
        log.info("%s", event.note, extra={"resource": "/".join(scaled.name)})
        if change.direction == scaled.direction:
            return
        scaled.direction = change.direction
        await self._reporter.report(scaled.resource.metadata, event)


def report_scaled(
    target: Target, change: ReplicaChange, decision: ScalingDecision, *, occurrence: str
) -> EventContent:
    """The Event for a number of replicas that was written."""
    return EventContent(
        type="Normal",
        reason=Reason.SCALED_UP if change.direction > 0 else Reason.SCALED_DOWN,
        action="Scale",
        note=(
            f"Scaled {target} from {change.before:,} to {change.after:,} replicas. "
            f"{decision.message}"
        ),
        occurrence=occurrence,
    )


async def _finish(write: Coroutine[Any, Any, None], left_s: Callable[[], float]) -> None:
    """Wait for a write, and give it up once another replica may be the one to write.

    After a pause of this process that is so before anything else is sent.
    """
    writing = asyncio.create_task(write)
    try:
        while not writing.done():
            if (wait_s := left_s()) <= 0:
                raise KubernetesUnavailable(
                    "the Lease of this operator replica expired during the write"
                )
            await asyncio.wait({writing}, timeout=wait_s)
        writing.result()
    finally:
        writing.cancel()


def _remember_try(scaled: Scaled, change: ReplicaChange) -> None:
    """Record a write without an answer: if it happened, it is not another client's."""
    others = record_try(scaled.memory.others, before=change.before, after=change.after)
    scaled.memory = replace(scaled.memory, others=others)
