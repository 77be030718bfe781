"""How many workers a resource should have, why, and when scaling leaves them to another writer.

Facts in, decision out: nothing here reads Redis, Kubernetes or a clock. Times are seconds on a
monotonic clock.

Others may write the replicas as well. One foreign write is taken for a `kubectl scale` and is
corrected. A second within ten minutes is a fight, and Pelops then leaves the replicas alone for
`PAUSE_AFTER_OTHERS_S`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from pelops.api.group.scaling import ScalingMode, ScalingSpec
from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.condition import Finding, capitalize
from pelops.domain.quantities import render_seconds
from pelops.domain.workload import Target, WorkloadObservation
from pelops.policy.scaling.behavior import (
    Allowed,
    ScalingHistory,
    apply_behavior,
    apply_tolerance,
    recommend,
    record_change,
)
from pelops.policy.scaling.demand import Doubt, Shortage, find_hindrance, watch_shortage
from pelops.policy.scaling.measurement import Backlog, Meter
from pelops.policy.scaling.sharing import (
    Contribution,
    Demands,
    Part,
    Role,
    Watched,
    contribute,
    explain_part,
    report_demands,
    watch_group,
)
from pelops.policy.status.reasons import Reason

STALE_S: Final = 5.0  # how long an observation may still show the number before a write
FIGHT_S: Final = 600.0  # two foreign writes within this time are a fight
PAUSE_AFTER_OTHERS_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The number of replicas before a write of Pelops."""

    replicas: int
    at: float  # of the write


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A write whose answer was lost: it may have happened, or may still happen."""

    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What is remembered of writes to the replicas, by Pelops and by others."""

    written: int | None = None  # the last write of Pelops
    left: tuple[Left, ...] = ()  # what an old observation may still show
    tried: Tried | None = None
    uid: str | None = None  # of the workload: with another uid it is a new workload
    moves: tuple[float, ...] = ()  # times of foreign writes
    paused_until: float | None = None

    @property
    def is_paused(self) -> bool:
        """Whether Pelops leaves the replicas to another writer."""
        return self.paused_until is not None


def watch_others(others: Others, workload: WorkloadObservation, *, now: float) -> Others:
    """Return what is remembered after one more observation of the workload. Total."""
    if others.uid != workload.uid:
        others = replace(others, uid=workload.uid, written=None, left=(), tried=None)
    if others.paused_until is not None:
        return others if now < others.paused_until else Others(uid=workload.uid)
    current = workload.wished or 0
    if others.written is None or settle(others, current, now=now) == others.written:
        return others
    if others.tried is not None and current == others.tried.after:
        return replace(others, written=current, tried=None)
    recent = (*(at for at in others.moves if at > now - FIGHT_S), now)
    until = now + PAUSE_AFTER_OTHERS_S if len(recent) > 1 else None
    return replace(others, written=None, left=(), tried=None, moves=recent, paused_until=until)


def settle(others: Others, current: int, *, now: float) -> int:
    """Return the actual replicas: the last write, if the observation is older than it."""
    if others.written is None:
        return current
    is_old = any(one.replicas == current and now - one.at < STALE_S for one in others.left)
    return others.written if is_old else current


def record_write(others: Others, *, before: int, after: int, now: float) -> Others:
    """Return what is remembered after Pelops wrote the replicas."""
    left = (*(one for one in others.left if now - one.at < STALE_S), Left(replicas=before, at=now))
    return replace(others, written=after, left=left, tried=None)


def record_try(others: Others, *, before: int, after: int) -> Others:
    """Remember a write whose answer was lost: if `after` is observed, Pelops wrote it."""
    return replace(others, tried=Tried(before=before, after=after))


def late_change(before: Others, after: Others) -> int:
    """Return by how much a write whose answer was lost changed the replicas, once observed."""
    tried = before.tried
    if tried is None or after.tried is not None or after.written != tried.after:
        return 0
    return tried.after - tried.before


def report_fight(target: Target) -> str:
    """Return a message: why the replicas are not changed, and what to do."""
    return (
        f"Another controller or user changed the replicas of {target} twice within "
        f"{FIGHT_S / 60:g} minutes after Pelops had set them: Pelops does not change them for "
        f"{PAUSE_AFTER_OTHERS_S / 60:g} minutes. Stop the other controller or user (an autoscaler, "
        "spec.replicas in Git, a script), or set spec.scaling.mode: Disabled"
    )


_USUAL_GRACE_S: Final = 30.0  # Kubernetes' default of terminationGracePeriodSeconds
_SHARE: Final = 1 / 3  # of the grace period: single entries can take longer than the average


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInputs:
    """The inputs of one decision, apart from the backlog."""

    scaling: ScalingSpec
    workload: WorkloadObservation
    current: int  # replicas of the workload's spec
    now: float
    recovers: bool = True  # entries of a worker that ended are given to another one

    def clamp(self, replicas: int) -> int:
        """Limit the number to minReplicas and maxReplicas."""
        return max(self.scaling.min_replicas, min(replicas, self.scaling.max_replicas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The replica count while limits are applied; `note` is the last limit that changed it."""

    replicas: int
    wanted: int
    note: str = ""
    is_ineffective: bool = False


def follow_behavior(allowed: Allowed, wanted: int) -> Course:
    """Start with the count that stabilization windows and scaling policies allow."""
    note = f"held at {allowed.replicas:,} by {allowed.by}" if allowed.by else ""
    return Course(replicas=allowed.replicas, wanted=wanted, note=note)


def keep_last(
    course: Course, inputs: ScalingInputs, backlog: Backlog, empty_since: float | None
) -> Course:
    """Add the first worker at once, whatever behavior allows; remove the last one only after the
    cool-down, and only if the backlog is certainly empty.
    """
    if course.replicas > 0:
        return course
    if not backlog.is_empty:
        return replace(course, replicas=1, note="")
    cooldown = inputs.scaling.cooldown_seconds
    is_over = empty_since is not None and inputs.now - empty_since >= cooldown
    if inputs.current == 0 or is_over:
        return course
    return replace(
        course, replicas=1, note=f"held at 1 by the cool-down of {render_seconds(cooldown)}"
    )


def clamp(course: Course, inputs: ScalingInputs) -> Course:
    """Apply minReplicas and maxReplicas, which override all other limits."""
    clamped = inputs.clamp(course.replicas)
    if clamped < course.replicas or course.wanted > clamped == inputs.scaling.max_replicas:
        return replace(course, replicas=clamped, note=f"limited to {clamped:,} by maxReplicas")
    if clamped > course.replicas:
        return replace(course, replicas=clamped, note=f"raised to {clamped:,} by minReplicas")
    return course


def stop_growth(
    course: Course, inputs: ScalingInputs, hindrance: str, *, others: int = 0
) -> Course:
    """Allow no more workers than there are, because more would not help.

    Still allowed are fewer workers, the first worker, minReplicas, and the number `others` that
    groups without this hindrance ask for.
    """
    least = max(1, inputs.clamp(max(inputs.current, others)))
    note = f"limited to {min(course.replicas, least):,}, because {hindrance}"
    return replace(course, replicas=min(course.replicas, least), note=note, is_ineffective=True)


def find_busy_most(inputs: ScalingInputs, backlog: Backlog) -> int:
    """Return the most replicas that can be kept for the sake of pods that hold entries.

    Each such pod holds at least one. Only a Deployment can delete idle pods selectively; in other
    workloads idle pods may have to stay because a busy one would be deleted first.
    """
    pending, most = backlog.held + backlog.waiting, inputs.clamp(inputs.current)
    if inputs.workload.target.kind == "Deployment":
        return min(most, pending)
    return most if pending else 0


def can_finish(inputs: ScalingInputs, handled_s: float | None) -> bool:
    """Whether a terminating pod has the time to finish what it usually holds. `handled_s` is how
    long a worker holds an entry on average; None: not known.

    Then waiting for the pod gains nothing. It would only wait for failed handlers, whose entries
    stay pending with a live worker until recovery requeues them.
    """
    if handled_s is None or not inputs.recovers:
        return False
    graces = [_USUAL_GRACE_S, *(pod.grace_period_s for pod in inputs.workload.pods)]
    return handled_s <= _SHARE * min(graces)


def judge_course(course: Course, *, is_exact: bool) -> Reason:
    """Return the reason of the condition: the most serious one that applies."""
    if course.is_ineffective:
        return Reason.SCALING_INEFFECTIVE
    if not is_exact:
        return Reason.LAG_UNKNOWN
    if course.replicas < course.wanted:
        return Reason.LIMITED
    return Reason.IDLE if course.replicas == 0 else Reason.SCALED


_ACTIVE: Final = frozenset(
    {
        Reason.MANUAL,
        Reason.SCALED_BY_AUTOSCALER,
        Reason.SCALED,
        Reason.IDLE,
        Reason.LIMITED,
        Reason.LAG_UNKNOWN,
        Reason.FOLLOWING,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """A replica count, or None to leave the replicas alone."""

    replicas: int | None
    reason: Reason  # of the condition ScalingActive
    message: str  # for users, with the numbers that decided
    current: int = 0  # replicas of the workload's spec, including the last write
    keep_at_most: int = 0  # most replicas to keep for workers that hold entries
    only_at_work: bool = False  # count only busy ones: others have finished what they hold
    demand: float | None = None  # of this group alone, before rounding; None: not known

    @property
    def is_change(self) -> bool:
        """Whether `replicas` has to be written."""
        return self.replicas is not None and self.replicas != self.current

    @property
    def wants_busy(self) -> bool:
        """Whether to count the busy pods, and call `keep_busy_workers`, before writing."""
        return self.replicas is not None and self.keep_at_most > self.replicas

    @property
    def is_active(self) -> bool:
        """Whether the condition ScalingActive is True."""
        return self.reason in _ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingMemory:
    """What one replica of the operator keeps of a resource between two observations.

    Empty after a start: the first recommendation is then the present count, so no worker is removed
    at once. All times are seconds on a monotonic clock.
    """

    meter: Meter = field(default_factory=Meter)
    history: ScalingHistory = field(default_factory=ScalingHistory)
    others: Others = field(default_factory=Others)
    shortage: Shortage | None = None
    doubt: Doubt | None = None
    empty_since: float | None = None

    @property
    def watched(self) -> Watched:
        """What is remembered of the group itself, independent of what scales the workers."""
        return Watched(meter=self.meter, doubt=self.doubt, empty_since=self.empty_since)

    def with_watched(self, watched: Watched) -> ScalingMemory:
        """Return a copy with this state of the group."""
        return replace(
            self, meter=watched.meter, doubt=watched.doubt, empty_since=watched.empty_since
        )


NOT_DECIDED: Final = ScalingDecision(
    replicas=None,
    reason=Reason.BACKLOG_UNKNOWN,
    message="The backlog of the group has not been observed yet: the replicas are not changed",
)


_SUSPENDED: Final = ScalingDecision(
    replicas=None,
    reason=Reason.SUSPENDED,
    message="spec.suspend is true: the replicas are not changed",
)


def decide_fixed(
    spec: StreamConsumerGroupSpec, workload: WorkloadObservation, part: Part | None = None
) -> ScalingDecision | None:
    """Return the decision if it does not depend on Redis; None if the backlog decides. Total.

    A HorizontalPodAutoscaler on the same target always wins, as two writers of one number would
    fight. `part` is the role of this resource among those with the same workers; None: there are
    no others.
    """
    if workload.autoscaler is not None:
        return ScalingDecision(
            replicas=None,
            reason=Reason.SCALED_BY_AUTOSCALER,
            message=(
                f"HorizontalPodAutoscaler {workload.autoscaler} scales {workload.target}: Pelops "
                "does not change its replicas"
            ),
        )
    if part is not None and part.role is not Role.LEADS:
        return _SUSPENDED if spec.suspend else _report_part(part, workload.target)
    if _says_number(spec):
        return ScalingDecision(
            replicas=spec.replicas,
            reason=Reason.MANUAL,
            message=f"spec.replicas sets the number of workers: {spec.replicas}",
            current=workload.wished or 0,
        )
    if spec.scaling is not None and spec.scaling.mode is ScalingMode.AUTO:
        return None
    if spec.scaling is not None and spec.scaling.mode is ScalingMode.FOLLOW:
        return _report_part(Part(role=Role.FOLLOWS), workload.target)
    return _report_part(Part(role=Role.UNCOUNTED), workload.target)


def _report_part(part: Part, target: Target) -> ScalingDecision:
    found = explain_part(part, str(target))
    return ScalingDecision(replicas=None, reason=Reason(found.reason), message=found.message)


def _says_number(spec: StreamConsumerGroupSpec) -> bool:
    if spec.scaling is None:
        return spec.template is not None
    return spec.scaling.mode is ScalingMode.MANUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGroups:
    """The other groups whose demand a decision counts."""

    name: str = ""  # of the resource that leads
    others: tuple[Contribution, ...] = ()


UNSHARED: Final = OtherGroups()


def decide_replicas(
    spec: StreamConsumerGroupSpec,
    workload: WorkloadObservation,
    backlog: Backlog | None,
    memory: ScalingMemory,
    *,
    now: float,
    sharing: OtherGroups = UNSHARED,
) -> tuple[ScalingDecision, ScalingMemory]:
    """Choose the replica count from the backlog, and what to remember. Total for valid specs.

    If `backlog` is None, Redis could not be observed and the replicas are held. `now` is in seconds
    on a monotonic clock. In modes Manual and Disabled, and with a HorizontalPodAutoscaler, the
    result is that of `decide_fixed`. `sharing` has the other groups that count.

    If `wants_busy`, the caller counts the pods that hold entries and continues with the result of
    `keep_busy_workers`. If `is_change`, it writes `replicas`, then calls `remember_write`. A
    replica that no longer ranks first for a resource must discard its memory of it. Otherwise its
    successor's writes would count as foreign.
    """
    fixed = decide_fixed(spec, workload)
    if fixed is not None or spec.scaling is None:
        return fixed or NOT_DECIDED, ScalingMemory()
    others = watch_others(memory.others, workload, now=now)
    if not workload.exists or others.is_paused:
        return _leave(workload), ScalingMemory(meter=memory.meter, others=others)
    current = settle(others, workload.wished or 0, now=now)
    shortage = watch_shortage(memory.shortage, workload, wished=current, now=now)
    history = record_change(memory.history, late_change(memory.others, others), now=now)
    memory = replace(memory, others=others, shortage=shortage, history=history)
    watched = watch_group(memory.watched, backlog, workload, workers=current, now=now)
    memory = memory.with_watched(watched)
    own = contribute(spec, backlog, watched, ready=workload.ready, now=now)
    groups = (replace(own, name=sharing.name), *sharing.others)
    demands = Demands(groups=groups, combine=spec.scaling.combine)
    inputs = ScalingInputs(
        scaling=spec.scaling,
        workload=workload,
        current=current,
        now=now,
        recovers=demands.recovers,
    )
    if not demands.seen:
        return _hold(inputs, demands, memory)
    decision, memory = _follow(inputs, demands, memory)
    return replace(decision, demand=own.workers), memory


def keep_busy_workers(
    decision: ScalingDecision, workload: WorkloadObservation, busy: int | None
) -> ScalingDecision:
    """Return the decision changed so that no pod that holds entries is deleted. Total.

    It never adds workers. `busy` is the number of such pods; None: not known, keep as many as may
    hold entries.
    """
    if decision.replicas is None or not decision.wants_busy:
        return decision
    kept = decision.keep_at_most if busy is None else min(busy, decision.keep_at_most)
    if kept <= decision.replicas:
        return decision
    who = "it is unknown which workers have pending entries" if busy is None else _report_busy(busy)
    message = f"{decision.message}; held at {kept:,}, because {who}"
    reason = Reason.SCALED if decision.reason is Reason.IDLE else decision.reason
    return replace(decision, replicas=kept, reason=reason, message=message, keep_at_most=0)


def _report_busy(busy: int) -> str:
    return "1 worker has pending entries" if busy == 1 else f"{busy:,} workers have pending entries"


def remember_write(memory: ScalingMemory, *, before: int, after: int, now: float) -> ScalingMemory:
    """Return the memory after the replicas were written: policies count writes, not decisions.

    `before` is the number that was observed. If that observation was older than the last write, and
    so the same number was written again, the change counts once.
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
            reason=Reason.BACKLOG_UNKNOWN,
            message=f"{workload.target} does not exist, so Pelops cannot scale it: create it",
        )
    return ScalingDecision(
        replicas=None,
        reason=Reason.SCALED_BY_OTHERS,
        message=report_fight(workload.target),
    )


def _hold(
    inputs: ScalingInputs, demands: Demands, memory: ScalingMemory
) -> tuple[ScalingDecision, ScalingMemory]:
    """Hold the replicas while no backlog is known, and do not shrink right after it is again."""
    first, is_single = demands.groups[0], len(demands.groups) == 1
    why = first.unknown
    what = "the backlog" if is_single else f"the backlog of all {len(demands.groups)} groups"
    held = inputs.clamp(inputs.current)
    history = recommend(
        memory.history,
        inputs.current,
        current=inputs.current,
        behavior=inputs.scaling.behavior,
        now=inputs.now,
    )
    decision = ScalingDecision(
        replicas=held,
        reason=Reason.BACKLOG_UNKNOWN,
        message=_sentence(f"{why}, so {what} is unknown: the replicas are held at {held:,}"),
        current=inputs.current,
    )
    return decision, replace(memory, history=history)


def _follow(
    inputs: ScalingInputs, demands: Demands, memory: ScalingMemory
) -> tuple[ScalingDecision, ScalingMemory]:
    behavior, current, now = inputs.scaling.behavior, inputs.current, inputs.now
    backlog, ready = demands.backlog, inputs.workload.ready
    wanted = apply_tolerance(demands.demand(ready=ready), current=current, behavior=behavior)
    if not demands.is_exact:
        wanted = max(wanted, current, demands.in_doubt)
    history = recommend(memory.history, wanted, current=current, behavior=behavior, now=now)
    allowed = apply_behavior(history, current=current, behavior=behavior, now=now)
    course = follow_behavior(allowed, wanted)
    course = keep_last(course, inputs, backlog, demands.empty_since)
    course = clamp(course, inputs)
    course = _stop_growth(course, inputs, demands, memory.shortage)
    decision = ScalingDecision(
        replicas=course.replicas,
        reason=judge_course(course, is_exact=demands.is_exact),
        message=_sentence(*report_demands(demands, ready=ready), course.note),
        current=current,
        keep_at_most=find_busy_most(inputs, backlog),
        only_at_work=can_finish(inputs, demands.handled_s),
    )
    return decision, replace(memory, history=history)


def _sentence(*clauses: str) -> str:
    return capitalize("; ".join(filter(None, clauses)))


def _stop_growth(
    course: Course, inputs: ScalingInputs, demands: Demands, shortage: Shortage | None
) -> Course:
    """Limit growth if more workers would not help any group, or only groups without a flood."""
    ready = inputs.workload.ready
    if course.wanted <= min(inputs.current, ready):
        return course
    hindrance = find_hindrance(inputs.workload, shortage, now=inputs.now)
    if hindrance is not None:
        return stop_growth(course, inputs, hindrance)
    others = demands.unflooded(ready=ready)
    if not demands.floods or course.wanted <= others:
        return course
    flood = demands.floods[0].flood or ""
    return stop_growth(course, inputs, flood, others=others)


BUSY_S: Final = 1.0  # the backlog is not empty, or more than minReplicas run
IDLE_AT_ZERO_S: Final = 2.0  # no worker runs, and new entries do not trigger a pass
WATCHED_AT_ZERO_S: Final = 20.0  # no worker runs, and the first new entry triggers a pass
LONGEST_IDLE_S: Final = 5.0  # minReplicas run, and no entries arrive
UNSEEN_S: Final = 2.0  # Redis did not answer


def next_observation(
    backlog: Backlog | None, *, replicas: int, least: int, idle_observations: int, is_watched: bool
) -> float:
    """Return the seconds until the next observation, before jitter.

    `replicas` is the observed or last written number, `least` is minReplicas. `idle_observations`
    counts consecutive observations without work; the caller resets it to 0 after one with work.
    `is_watched`: the first new entry triggers a pass. If `backlog` is None, Redis could not be
    observed.
    """
    if backlog is None:
        return UNSEEN_S
    if not backlog.is_empty or replicas > least:
        return BUSY_S
    if replicas == 0:
        return WATCHED_AT_ZERO_S if is_watched else IDLE_AT_ZERO_S
    return min(LONGEST_IDLE_S, 2.0 + 0.5 * max(0, idle_observations))


def is_automatic(spec: StreamConsumerGroupSpec) -> bool:
    """Whether the backlog decides the number of workers."""
    return spec.scaling is not None and spec.scaling.mode is ScalingMode.AUTO


def is_measured(spec: StreamConsumerGroupSpec) -> bool:
    """Whether the backlog counts for the number of workers, here or in the resource that leads."""
    mode = None if spec.scaling is None else spec.scaling.mode
    return mode is ScalingMode.AUTO or (mode is ScalingMode.FOLLOW and not spec.recovery.dry_run)


def decide_unchanged(
    spec: StreamConsumerGroupSpec,
    *,
    redis_problem: Finding | None,
    workload_problem: Finding | None,
) -> ScalingDecision | None:
    """Return why the replicas are not changed, whatever the backlog; None if they may be.

    Every replica of the operator reaches the same result. One reason is that another resource acts
    on the group. An unreachable Redis is not: `decide_replicas` then holds the number.
    """
    if spec.suspend:
        return _SUSPENDED
    if redis_problem is not None and redis_problem.reason == Reason.CONFLICT:
        return _leave_to(redis_problem)
    return None if workload_problem is None else _leave_to(workload_problem)


def _leave_to(problem: Finding) -> ScalingDecision:
    return ScalingDecision(replicas=None, reason=Reason(problem.reason), message=problem.message)


def report_dry(decision: ScalingDecision, workload: WorkloadObservation) -> ScalingDecision:
    """Return the decision in a dry run: what is wanted, and that it is not written."""
    wanted = decision.replicas
    if wanted is None or wanted == workload.wished or not workload.exists:
        return decision
    return replace(
        decision,
        message=(
            f"spec.recovery.dryRun is true: {workload.target} is not scaled to {wanted:,}. "
            f"{decision.message}"
        ),
    )


def report_failure(decision: ScalingDecision, problem: Finding) -> ScalingDecision:
    """Return the decision after its write failed: what is wanted, and why it was not written."""
    return ScalingDecision(
        replicas=decision.replicas,
        reason=Reason(problem.reason),
        message=f"{problem.message}. {decision.message}",
    )
