"""The write of the replicas after a decision to scale, and its Events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final

from pelops.controller.group.group_observer import RedisObservation
from pelops.controller.group.victims import Victims, find_workers
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.kind import FIRST_RETRY_S, LONGEST_RETRY_S, LONGEST_TERMINAL_RETRY_S
from pelops.controller.scaling.scaled_resources import Scaled, ScaledResources
from pelops.controller.workload.targets import Targets
from pelops.domain.backoff import backoff_s
from pelops.domain.workload import Target, WorkloadObservation
from pelops.errors import KubernetesUnavailable, NotFound, PelopsError
from pelops.kube.event_recorder import EventContent
from pelops.metrics import SCALE_WRITES
from pelops.policy.scaling.decision import ScalingDecision, keep_busy_workers, report_failure
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.reasons import Reason

log = logging.getLogger(__name__)

TOGETHER: Final = 32  # writes under way


class ScaleWrites:
    """Brings replicas to what was decided."""

    def __init__(
        self,
        resources: ScaledResources,
        targets: Targets,
        victims: Victims,
        reporter: Reporter,
        clock: Callable[[], float],
    ) -> None:
        self._resources = resources
        self._targets = targets
        self._victims = victims
        self._reporter = reporter
        self._clock = clock
        self._room = asyncio.Semaphore(TOGETHER)

    async def carry_out(
        self,
        scaled: Scaled,
        decision: ScalingDecision,
        workload: WorkloadObservation,
        redis: RedisObservation,
    ) -> ScalingDecision:
        """Write the replicas if they differ, and return the decision as it turned out.

        `redis` is the observation that was decided by: it shows where to read which workers are
        busy.
        """
        if decision.replicas is None or not workload.exists:
            return decision
        workers = find_workers(scaled.resource, redis, workload)
        if decision.is_change and decision.needs_busy_count:
            busy = None
            if workers is not None:
                only_at_work = decision.only_at_work
                busy = await self._victims.count_busy(workers, only_at_work=only_at_work)
            decision = keep_busy_workers(decision, busy)
        before, after = decision.current, decision.replicas or 0
        if not decision.is_change:
            scaled.failures, scaled.problem = 0, None
            return decision
        if scaled.problem is not None and self._clock() < scaled.write_after:
            return report_failure(decision, scaled.problem)
        try:
            async with self._room:
                if not self._resources.is_current(scaled):
                    return decision
                if workers is not None and 0 < after < before:
                    await self._victims.name_victims(workers, before - after)
                    if not self._resources.is_current(scaled):
                        return decision
                write = self._targets.scale(workload.target, after)
                await _finish(write, self._resources.left_s)
        except NotFound:
            return decision  # it was deleted: the next observation shows it
        except PelopsError as error:
            if isinstance(error, KubernetesUnavailable):
                scaled.autoscaler.writes.record_unanswered(before=before, after=after)
            return self._note_failure(scaled, decision, error)
        scaled.failures, scaled.problem = 0, None
        scaled.autoscaler.record_write(before=before, after=after, now=self._clock())
        await self._report(scaled, workload.target, before, decision)
        return decision

    async def _report(
        self, scaled: Scaled, target: Target, before: int, decision: ScalingDecision
    ) -> None:
        """Count and log a write, and create an Event if the direction has changed."""
        direction = 1 if (decision.replicas or 0) > before else -1
        SCALE_WRITES.labels("up" if direction > 0 else "down").inc()
        event = report_scaled(target, before, decision, occurrence=datetime.now(UTC).isoformat())
        log.info("%s", event.note, extra={"resource": "/".join(scaled.name)})
        if direction != scaled.direction:
            scaled.direction = direction
            await self._reporter.report(scaled.resource.metadata, event)

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


def report_scaled(
    target: Target, before: int, decision: ScalingDecision, *, occurrence: str
) -> EventContent:
    """The Event for a number of replicas that was written; `before` is the number until then."""
    after = decision.replicas or 0
    return EventContent(
        type="Normal",
        reason=Reason.SCALED_UP if after > before else Reason.SCALED_DOWN,
        action="Scale",
        note=f"Scaled {target} from {before:,} to {after:,} replicas. {decision.message}",
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
