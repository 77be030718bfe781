"""What follows from a decision: who goes, the write, and telling people of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.kind import FIRST_RETRY_S, LONGEST_RETRY_S, LONGEST_TERMINAL_RETRY_S
from pelops.controller.scaling.scaled import Scaled
from pelops.controller.scaling.victims import Fleet, Victims
from pelops.controller.workload.targets import Targets
from pelops.domain.backoff import backoff_s
from pelops.domain.workload import WorkloadObservation
from pelops.errors import KubernetesUnavailable, NotFound, PelopsError
from pelops.kube.events import Happening
from pelops.metrics import SCALE_WRITES
from pelops.policy.scaling.decision import (
    ScalingDecision,
    remember_write,
    report_failure,
    spare_busy,
)
from pelops.policy.scaling.other_writers import record_try
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.reasons import Reason

log = logging.getLogger(__name__)

TOGETHER: Final = 32  # writes under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where a decision is carried out."""

    workload: WorkloadObservation
    fleet: Fleet | None  # None: nobody can be asked which workers are busy
    is_current: Callable[[], bool]  # whether nobody has asked for anything else meanwhile
    left_s: Callable[[], float]  # how long this replica may write, unless its Lease is renewed


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
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
        self, scaled: Scaled, decision: ScalingDecision, scene: Scene
    ) -> ScalingDecision:
        """Write the replicas if they differ: the decision as it turned out."""
        if decision.replicas is None or not scene.workload.exists:
            return decision
        decision = await self._spare_busy(decision, scene)
        move = Move(before=decision.current, after=decision.replicas or 0)
        if not decision.is_change:
            scaled.failures, scaled.problem = 0, None
            return decision
        if scaled.problem is not None and self._clock() < scaled.write_after:
            return report_failure(decision, scaled.problem)
        try:
            is_written = await self._write(scene, move)
        except NotFound:
            return decision  # it went just now: the next look tells
        except PelopsError as error:
            if isinstance(error, KubernetesUnavailable):
                _remember_try(scaled, move)
            return self._note_failure(scaled, decision, error)
        if is_written:
            await self._close(scaled, scene, move, decision)
        return decision

    async def _spare_busy(self, decision: ScalingDecision, scene: Scene) -> ScalingDecision:
        if not (decision.is_change and decision.wants_busy):
            return decision
        busy = None
        if scene.fleet is not None:
            only_at_work = decision.only_at_work
            busy = await self._victims.count_busy(scene.fleet, only_at_work=only_at_work)
        return spare_busy(decision, scene.workload, busy)

    async def _write(self, scene: Scene, move: Move) -> bool:
        """Whether it was written: what nobody wants any more is not. Raises KubernetesError."""
        async with self._room:
            if scene.fleet is not None and 0 < move.after < move.before:
                await self._victims.name_victims(scene.fleet, move.before - move.after)
            if not scene.is_current():
                return False
            await _finish(self._targets.scale(scene.workload.target, move.after), scene.left_s)
        return True

    def _note_failure(
        self, scaled: Scaled, decision: ScalingDecision, error: PelopsError
    ) -> ScalingDecision:
        problem = diagnose(error)
        level = logging.DEBUG if scaled.problem == problem else logging.WARNING
        log.log(level, "scaling failed: %s", error, extra={"resource": "/".join(scaled.name)})
        longest = LONGEST_TERMINAL_RETRY_S if problem.is_terminal else LONGEST_RETRY_S
        scaled.failures += 1
        wait = backoff_s(scaled.failures, first_s=FIRST_RETRY_S, longest_s=longest)
        scaled.problem = problem
        scaled.write_after = self._clock() + wait
        return report_failure(decision, problem)

    async def _close(
        self, scaled: Scaled, scene: Scene, move: Move, decision: ScalingDecision
    ) -> None:
        """Remember a write, and tell people when the direction is another one than before."""
        scaled.failures, scaled.problem = 0, None
        scaled.memory = remember_write(
            scaled.memory, before=move.before, after=move.after, now=self._clock()
        )
        is_up = move.direction > 0
        SCALE_WRITES.labels("up" if is_up else "down").inc()
        step = f"{scene.workload.target} from {move.before} to {move.after}"
        log.info("scaled %s", step, extra={"resource": "/".join(scaled.name)})
        if move.direction == scaled.direction:
            return
        scaled.direction = move.direction
        happening = Happening(
            type="Normal",
            reason=Reason.SCALED_UP if is_up else Reason.SCALED_DOWN,
            action="Scale",
            note=f"{step}: {decision.message}",
            occurrence=datetime.now(UTC).isoformat(),
        )
        await self._reporter.report(scaled.resource.metadata, happening)


async def _finish(write: Coroutine[Any, Any, None], left_s: Callable[[], float]) -> None:
    """Wait for a write, and give it up once another replica may be the one to write.

    After a pause of this process that is so before anything else is sent.
    """
    writing = asyncio.create_task(write)
    try:
        while not writing.done():
            if (wait_s := left_s()) <= 0:
                raise KubernetesUnavailable("the Lease of this replica ran out during the write")
            await asyncio.wait({writing}, timeout=wait_s)
        writing.result()
    finally:
        writing.cancel()


def _remember_try(scaled: Scaled, move: Move) -> None:
    """The answer was lost: if the write happened, it was ours and nobody else's."""
    others = record_try(scaled.memory.others, before=move.before, after=move.after)
    scaled.memory = replace(scaled.memory, others=others)
