"""How many workers a resource should have, and why: one observation after the other.

    Autoscaler.observe   workload, backlog, demands of other groups -> ScalingDecision
    Autoscaler.record_write   the decision was written

Nothing here reads Redis, Kubernetes or a clock: what is decided depends on the observations and
their times alone. Times are seconds on a monotonic clock. The order of a decision:

    demand -> tolerance -> windows and policies -> first and last worker -> bounds -> hindrances
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from pelops.api.group.scaling import ScalingSpec
from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.condition import capitalize
from pelops.domain.quantities import render_seconds
from pelops.domain.workload import WorkloadObservation
from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.behavior import ReplicaHistory, apply_tolerance
from pelops.policy.scaling.decision import NOT_DECIDED, ScalingDecision, decide_fixed
from pelops.policy.scaling.demand import (
    GroupDemand,
    WorkloadDemand,
    measure_demand,
    report_demand,
)
from pelops.policy.scaling.meter import Meter
from pelops.policy.scaling.replica_writes import ReplicaWrites, report_fight
from pelops.policy.status.reasons import Reason

UNREADY_PATIENCE_S: Final = 120.0  # a slow start, an image to pull, a node to be added
_USUAL_GRACE_S: Final = 30.0  # Kubernetes' default of terminationGracePeriodSeconds
_SHARE: Final = 1 / 3  # of the grace period: single entries can take longer than the average


@dataclass(slots=True, kw_only=True)
class Autoscaler:
    """Decides the replicas of one resource from one observation to the next.

    Empty after a start: the first recommendation is then the present count, so no worker is removed
    at once. A replica of the operator that no longer decides for a resource must discard its
    autoscaler. Otherwise its successor's writes would count as foreign.
    """

    meter: Meter = field(default_factory=Meter)
    history: ReplicaHistory = field(default_factory=ReplicaHistory)
    writes: ReplicaWrites = field(default_factory=ReplicaWrites)
    # Fewer workers are ready than wanted, and since when no further one became ready.
    unready_since: float | None = None
    last_ready: int = 0

    def observe(
        self,
        spec: StreamConsumerGroupSpec,
        workload: WorkloadObservation,
        backlog: Backlog | None,
        *,
        now: float,
        name: str = "",
        others: tuple[GroupDemand, ...] = (),
    ) -> ScalingDecision:
        """Choose the replica count from one more observation. Total for valid specs.

        If `backlog` is None, Redis could not be observed and the replicas are held. In modes Manual
        and Disabled, and with a HorizontalPodAutoscaler, the result is that of `decide_fixed`.
        `name` is that of the resource; `others` are the demands of other groups that count.

        If `needs_busy_count`, the caller counts the pods that hold entries and continues with the
        result of `keep_busy_workers`. If `is_change`, it writes `replicas`, then calls
        `record_write`.
        """
        fixed = decide_fixed(spec, workload)
        if fixed is not None or spec.scaling is None:
            self.meter, self.writes = Meter(), ReplicaWrites()
            self._restart()
            return fixed or NOT_DECIDED
        late_change = self.writes.observe(workload, now=now)
        if not workload.exists or self.writes.is_paused:
            self._restart()
            return _leave_unchanged(workload)
        current = self.writes.current(workload.wished or 0, now=now)
        self.history.record_change(late_change, now=now)
        self._note_unready(workload.ready, wanted=current, now=now)
        self.meter.observe(backlog, ready=workload.ready, workers=current, now=now)
        own = measure_demand(spec, backlog, self.meter, name=name, ready=workload.ready, now=now)
        demand = WorkloadDemand(groups=(own, *others), combine=spec.scaling.combine)
        if demand.seen:
            decision = self._decide(spec.scaling, workload, demand, current=current, now=now)
        else:
            decision = self._hold(spec.scaling, demand, current=current, now=now)
        return replace(decision, demand=own.workers)

    def record_write(self, *, before: int, after: int, now: float) -> None:
        """Record that the replicas were written: policies count writes, not decisions.

        `before` is the number that was observed. If that observation was older than the last write,
        and so the same number was written again, the change counts once.
        """
        before = self.writes.current(before, now=now)
        if after != before:
            self.history.record_change(after - before, now=now)
            self.writes.record(before=before, after=after, now=now)

    def _restart(self) -> None:
        self.history, self.unready_since = ReplicaHistory(), None
        self.meter.restart_durations()

    def _note_unready(self, ready: int, *, wanted: int, now: float) -> None:
        if ready >= wanted:
            self.unready_since = None
        elif self.unready_since is None or ready > self.last_ready:
            self.unready_since = now
        self.last_ready = ready

    def _hold(
        self, scaling: ScalingSpec, demand: WorkloadDemand, *, current: int, now: float
    ) -> ScalingDecision:
        """Hold the replicas while no backlog is known, and prevent a shrink right after that."""
        count = len(demand.groups)
        what = "the backlog" if count == 1 else f"the backlog of all {count} groups"
        held = max(scaling.min_replicas, min(current, scaling.max_replicas))
        self.history.recommend(current, current=current, behavior=scaling.behavior, now=now)
        why = demand.groups[0].unknown
        return ScalingDecision(
            replicas=held,
            reason=Reason.BACKLOG_UNKNOWN,
            message=capitalize(f"{why}, so {what} is unknown: the replicas are held at {held:,}"),
            current=current,
        )

    def _decide(
        self,
        scaling: ScalingSpec,
        workload: WorkloadObservation,
        demand: WorkloadDemand,
        *,
        current: int,
        now: float,
    ) -> ScalingDecision:
        behavior, ready, backlog = scaling.behavior, workload.ready, demand.backlog
        least, most = scaling.min_replicas, scaling.max_replicas
        wanted = apply_tolerance(demand.workers(ready=ready), current=current, behavior=behavior)
        if not demand.is_exact:
            wanted = max(wanted, current, demand.in_doubt)

        replicas, limit = self.history.limit(wanted, current=current, behavior=behavior, now=now)
        note = f"held at {replicas:,} by {limit}" if limit else ""

        # The first worker is added at once, whatever behavior allows. The last one is removed only
        # after the cool-down, and only if the backlog is certainly empty.
        if replicas == 0 and not backlog.is_empty:
            replicas, note = 1, ""
        elif replicas == 0 and current > 0:
            cooldown, since = scaling.cooldown_seconds, demand.empty_since
            if since is None or now - since < cooldown:
                replicas, note = 1, f"held at 1 by the cool-down of {render_seconds(cooldown)}"

        # The bounds override all other limits, except that no useless worker is added.
        bounded = max(least, min(replicas, most))
        if bounded < replicas or wanted > bounded == most:
            note = f"limited to {bounded:,} by maxReplicas"
        elif bounded > replicas:
            note = f"raised to {bounded:,} by minReplicas"
        replicas = bounded

        hindrance, useful = None, 0
        if wanted > min(current, ready):
            hindrance, useful = self._find_hindrance(workload, demand, wanted=wanted, now=now)
        if hindrance is not None:
            # Still allowed are fewer workers, the first worker, and minReplicas.
            ceiling = max(1, least, min(max(current, useful), most))
            replicas = min(replicas, ceiling)
            note = f"limited to {replicas:,}, because {hindrance}"

        if hindrance is not None:
            reason = Reason.SCALING_INEFFECTIVE
        elif not demand.is_exact:
            reason = Reason.LAG_UNKNOWN
        elif replicas < wanted:
            reason = Reason.LIMITED
        else:
            reason = Reason.IDLE if replicas == 0 else Reason.SCALED
        clauses = [*report_demand(demand, ready=ready), note]
        return ScalingDecision(
            replicas=replicas,
            reason=reason,
            message=capitalize("; ".join(filter(None, clauses))),
            current=current,
            keep_at_most=_count_most_busy(workload, backlog, most=max(least, min(current, most))),
            only_at_work=_can_finish(workload, demand),
        )

    def _find_hindrance(
        self, workload: WorkloadObservation, demand: WorkloadDemand, *, wanted: int, now: float
    ) -> tuple[str | None, int]:
        """Return why further workers would not help, for users, and how many workers help other
        groups nevertheless. None: they may help.
        """
        if workload.failure is not None:
            return f"pods cannot be created: {workload.failure}", 0
        pods = workload.pods
        if workload.ready == 0 and any(p.waiting_reason == "CrashLoopBackOff" for p in pods):
            return "all workers crash: see the condition WorkloadReady", 0
        if self.unready_since is not None and now - self.unready_since >= UNREADY_PATIENCE_S:
            return (
                f"only {workload.ready} of {workload.wished} workers are ready, and none became "
                f"ready in the last {UNREADY_PATIENCE_S:g} s: see the condition WorkloadReady",
                0,
            )
        useful = demand.workers_without_floods(ready=workload.ready)
        if not demand.floods or wanted <= useful:
            return None, 0
        return demand.floods[0].flood, useful


def _leave_unchanged(workload: WorkloadObservation) -> ScalingDecision:
    """Return why a workload is left alone that is missing, or that others scale."""
    if not workload.exists:
        return ScalingDecision(
            replicas=None,
            reason=Reason.BACKLOG_UNKNOWN,
            message=f"{workload.target} does not exist, so Pelops cannot scale it: create it",
        )
    return ScalingDecision(
        replicas=None, reason=Reason.SCALED_BY_OTHERS, message=report_fight(workload.target)
    )


def _count_most_busy(workload: WorkloadObservation, backlog: Backlog, *, most: int) -> int:
    """Return the most replicas that can be kept for the sake of pods that hold entries.

    Each such pod holds at least one. Only a Deployment can delete idle pods selectively; in other
    workloads idle pods may have to stay because a busy one would be deleted first.
    """
    pending = backlog.held + backlog.waiting
    if workload.target.kind == "Deployment":
        return min(most, pending)
    return most if pending else 0


def _can_finish(workload: WorkloadObservation, demand: WorkloadDemand) -> bool:
    """Whether a terminating pod has the time to finish what it usually holds.

    Then waiting for the pod gains nothing. It would only wait for failed handlers, whose entries
    stay pending with a live worker until recovery requeues them.
    """
    handled_s = demand.handled_s
    if handled_s is None or not demand.recovers:
        return False
    graces = [_USUAL_GRACE_S, *(pod.grace_period_s for pod in workload.pods)]
    return handled_s <= _SHARE * min(graces)


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
