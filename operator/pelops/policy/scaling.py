"""How many workers a resource should have, and why.

Facts in, decision out: nothing here reads Redis, Kubernetes or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from pelops.api.recovery import RecoveryStrategy
from pelops.api.scaling import ScalingMode
from pelops.api.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.scaling import Backlog
from pelops.domain.workload import WorkloadObservation
from pelops.policy.behavior import (
    History,
    apply_behavior,
    apply_tolerance,
    recommend,
    record_change,
)
from pelops.policy.course import (
    Sight,
    can_finish,
    clamp,
    find_busy_most,
    follow_behavior,
    judge_course,
    keep_last,
    stop_growth,
    tell_course,
)
from pelops.policy.demand import judge_demand
from pelops.policy.doubt import Doubt, wanted_in_doubt, watch_doubt
from pelops.policy.effect import Shortage, find_hindrance, watch_shortage
from pelops.policy.others import Others, late_change, record_write, settle, tell_fight, watch_others
from pelops.policy.rates import Meter, measure
from pelops.policy.reasons import Reason

_ACTIVE: Final = frozenset(
    {
        Reason.MANUAL,
        Reason.SCALED_BY_AUTOSCALER,
        Reason.SCALED,
        Reason.IDLE,
        Reason.LIMITED,
        Reason.LAG_UNKNOWN,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """A replica count, or None to leave the replicas alone."""

    replicas: int | None
    reason: Reason  # of the condition ScalingActive
    message: str  # for people: names the numbers that decided
    current: int = 0  # replicas that are asked for now, the last write included
    keep_at_most: int = 0  # so many workers may hold entries that they would lose
    only_at_work: bool = False  # those that ask for more are done with what they hold

    @property
    def is_change(self) -> bool:
        """Whether `replicas` has to be written."""
        return self.replicas is not None and self.replicas != self.current

    @property
    def wants_busy(self) -> bool:
        """Whether to count the pods that hold entries, and ask `spare_busy`, before writing."""
        return self.replicas is not None and self.keep_at_most > self.replicas

    @property
    def is_active(self) -> bool:
        """Whether the condition ScalingActive is True."""
        return self.reason in _ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingMemory:
    """What one replica of the operator remembers of a resource between two looks.

    Empty after a start: the first recommendation is then the present count, so nothing shrinks at
    once. All times are seconds on a clock that never jumps.
    """

    meter: Meter = field(default_factory=Meter)
    history: History = field(default_factory=History)
    others: Others = field(default_factory=Others)
    shortage: Shortage | None = None
    doubt: Doubt | None = None
    nothing_owed_since: float | None = None


NOT_DECIDED: Final = ScalingDecision(
    replicas=None,
    reason=Reason.HOLDING,
    message="what the group owes was not looked at yet; the replicas are left as they are",
)


def decide_fixed(
    spec: StreamConsumerGroupSpec, workload: WorkloadObservation
) -> ScalingDecision | None:
    """The decision that needs no look at Redis; None when what is owed decides. Total.

    A HorizontalPodAutoscaler on the same target always wins: two owners of one number fight.
    """
    if workload.autoscaler is not None:
        return ScalingDecision(
            replicas=None,
            reason=Reason.SCALED_BY_AUTOSCALER,
            message=(
                f"HorizontalPodAutoscaler {workload.autoscaler} scales {workload.target}; its "
                "replicas are left to it"
            ),
        )
    if _says_number(spec):
        return ScalingDecision(
            replicas=spec.replicas,
            reason=Reason.MANUAL,
            message=f"{spec.replicas} wanted by spec.replicas",
            current=workload.wished or 0,
        )
    if spec.scaling is not None and spec.scaling.mode is ScalingMode.AUTO:
        return None
    return ScalingDecision(
        replicas=None,
        reason=Reason.SCALING_OFF,
        message="automatic scaling is off: the replicas are left alone",
    )


def _says_number(spec: StreamConsumerGroupSpec) -> bool:
    if spec.scaling is None:
        return spec.template is not None
    return spec.scaling.mode is ScalingMode.MANUAL


def decide_replicas(
    spec: StreamConsumerGroupSpec,
    workload: WorkloadObservation,
    backlog: Backlog | None,
    memory: ScalingMemory,
    *,
    now: float,
) -> tuple[ScalingDecision, ScalingMemory]:
    """Choose the replica count from what is owed, and what to remember. Total for valid specs.

    `backlog` None: Redis could not be seen, and the replicas are held. `now` is in seconds on a
    clock that never jumps. In modes Manual and Off, and beside a HorizontalPodAutoscaler, the
    answer is that of `decide_fixed`. With `wants_busy` the caller counts the pods that hold entries
    and goes on with what `spare_busy` answers; with `is_change` it writes `replicas`, then calls
    `remember_write`. Who no longer ranks first for a resource forgets the memory of it: else its
    successor's writes would look like a stranger's.
    """
    fixed = decide_fixed(spec, workload)
    if fixed is not None or spec.scaling is None:
        return fixed or NOT_DECIDED, ScalingMemory()
    others = watch_others(memory.others, workload, now=now)
    if not workload.exists or others.keeps_hands_off:
        return _leave(workload), ScalingMemory(meter=memory.meter, others=others)
    current = settle(others, workload.wished or 0, now=now)
    shortage = watch_shortage(memory.shortage, workload, wished=current, now=now)
    history = record_change(memory.history, late_change(memory.others, others), now=now)
    memory = replace(memory, others=others, shortage=shortage, history=history)
    sight = Sight(
        scaling=spec.scaling,
        workload=workload,
        current=current,
        now=now,
        recovers=spec.recovery.strategy != RecoveryStrategy.OFF,
    )
    if backlog is None or not backlog.exists:
        return _hold(sight, backlog, memory)
    return _follow(sight, backlog, _look(memory, backlog, workload.ready, now=now))


def spare_busy(
    decision: ScalingDecision, workload: WorkloadObservation, busy: int | None
) -> ScalingDecision:
    """The decision that takes no worker from the pods that hold entries. Total; never grows.

    `busy` is their number; None: it could not be told, and the replicas stay.
    """
    if decision.replicas is None or not decision.wants_busy:
        return decision
    kept = decision.keep_at_most if busy is None else min(busy, decision.keep_at_most)
    if kept <= decision.replicas:
        return decision
    who = "it is not known which workers hold entries" if busy is None else _tell_busy(busy)
    message = f"{decision.message}; kept at {kept:,}: {who}"
    reason = Reason.SCALED if decision.reason is Reason.IDLE else decision.reason
    return replace(decision, replicas=kept, reason=reason, message=message, keep_at_most=0)


def _tell_busy(busy: int) -> str:
    return "1 worker holds entries" if busy == 1 else f"{busy:,} workers hold entries"


def remember_write(memory: ScalingMemory, *, before: int, after: int, now: float) -> ScalingMemory:
    """The memory after the replicas were written: policies count changes, not wishes.

    `before` is the number that was seen; a look that was older than the last write, and the same
    write again that came of it, count once.
    """
    before = settle(memory.others, before, now=now)
    if after == before:
        return memory
    return replace(
        memory,
        history=record_change(memory.history, after - before, now=now),
        others=record_write(memory.others, before=before, after=after, now=now),
    )


def _leave(workload: WorkloadObservation) -> ScalingDecision:
    if not workload.exists:
        return ScalingDecision(
            replicas=None,
            reason=Reason.HOLDING,
            message=f"{workload.target} does not exist: there is nothing to scale",
        )
    return ScalingDecision(
        replicas=None,
        reason=Reason.SCALED_BY_OTHERS,
        message=tell_fight(workload.target),
    )


def _hold(
    sight: Sight, backlog: Backlog | None, memory: ScalingMemory
) -> tuple[ScalingDecision, ScalingMemory]:
    """What is not seen shrinks nothing, nor right after it is seen again."""
    why = "Redis cannot be looked at" if backlog is None else "the group does not exist"
    held = sight.clamp(sight.current)
    history = recommend(
        memory.history,
        sight.current,
        current=sight.current,
        behavior=sight.scaling.behavior,
        now=sight.now,
    )
    decision = ScalingDecision(
        replicas=held,
        reason=Reason.HOLDING,
        message=f"{why}: what is owed is not known, and {held:,} are kept",
        current=sight.current,
    )
    return decision, replace(memory, history=history, nothing_owed_since=None)


def _look(memory: ScalingMemory, backlog: Backlog, ready: int, *, now: float) -> ScalingMemory:
    """The memory after one more look at the group.

    Workers may be so fast that no look ever finds anything owed: what came and went meanwhile
    breaks the silence as well.
    """
    last = memory.meter.last
    is_silent = last is None or last.added == backlog.added
    since = memory.nothing_owed_since if is_silent else None
    if not backlog.is_nothing_owed:
        since = None
    elif since is None:
        since = now
    return replace(
        memory, meter=measure(memory.meter, backlog, ready=ready), nothing_owed_since=since
    )


def _follow(
    sight: Sight, backlog: Backlog, memory: ScalingMemory
) -> tuple[ScalingDecision, ScalingMemory]:
    behavior, current, now = sight.scaling.behavior, sight.current, sight.now
    rates = memory.meter.rates
    ready = sight.workload.ready
    demand = judge_demand(sight.scaling, backlog, rates, ready=ready)
    wanted = apply_tolerance(demand.highest, current=current, behavior=behavior)
    doubt = watch_doubt(memory.doubt, backlog, workers=current, ready=ready, now=now)
    if not backlog.is_exact:
        wanted = max(wanted, current, wanted_in_doubt(doubt, now=now))
    history = recommend(memory.history, wanted, current=current, behavior=behavior, now=now)
    allowed = apply_behavior(history, current=current, behavior=behavior, now=now)
    hindrance = find_hindrance(sight.workload, memory.meter, memory.shortage, now=now)
    course = follow_behavior(allowed, wanted)
    course = keep_last(course, sight, backlog, memory.nothing_owed_since)
    course = clamp(course, sight)
    if hindrance is not None and wanted > min(current, ready):
        course = stop_growth(course, sight, hindrance)
    decision = ScalingDecision(
        replicas=course.replicas,
        reason=judge_course(course, backlog),
        message=tell_course(course, backlog, demand),
        current=current,
        keep_at_most=find_busy_most(sight, backlog),
        only_at_work=can_finish(sight, memory.meter.handling.mean_s),
    )
    return decision, replace(memory, history=history, doubt=doubt)
