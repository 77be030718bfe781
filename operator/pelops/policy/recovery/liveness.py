"""Which entries belong to processes that have certainly ended, and how these processes ended.

Pod evidence is a cutoff, not a verdict: a time on the Redis server's clock. No process that could
hold an entry delivered before it is alive. In doubt there is no cutoff, and only idle time decides.
`t0` is Redis' TIME from before the live read, S the greatest skew between a node's clock and
Redis'::

    the pod                                              the cutoff
    deleted, and a kubelet reported all containers ended t0
    in a final phase, every container reported as ended  t0
    a container runs again                               its start - S, or its last end + 1 s + S
    a container waits in a long enough crash loop        its end + 1 s + S
    a container ended and is not started yet             its end - S
    the earlier pod of the same name has ended           its own start - S
    deleted, and no kubelet reported the end             t0 once its node must have stopped it

The second is added because Kubernetes truncates times to whole seconds. Without a container's name
the smallest cutoff of all containers counts, and every one of them must have restarted.

Usually a kubelet reports the end of a pod before the pod object is removed. A pod that was deleted
by force, or while the operator did not watch, may still run. It counts as dead when its node has
had the time to stop it: a Ready kubelet has stopped every pod that the API server has deleted.

S is measured from the Leases that kubelets renew. The start of a container is a time on the node's
clock, and deliveries are times on Redis' clock. If the node's clock is ahead, the start seems later
than it was. An entry that the new process received then seems older than the process, and would be
recovered from a live worker. So the cutoff must be earlier by at least as much as the clock is
ahead::

    node's clock   ------ renewTime ------------------------
    Redis' clock   --------- renewed ---- read -------------      renewed is not known, but
                             |<- age  ->|                         0 <= age <= a lease period

    ahead = renewTime - renewed = renewTime - read + age

So every sample `renewTime - read` is a lower bound, whatever delays it. While the kubelet renews on
time, one lease period more is an upper bound. The greatest sample is the closest. A sample that is
not above zero proves nothing: then the default applies, and the cluster's time synchronization must
keep clocks within it. A clock that is behind only makes the cutoff earlier than necessary: entries
are recovered later, never prematurely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pelops.domain.recovery import Cutoff, Death, FormerPod, LivenessReason, PodEvidence, no_cutoff
from pelops.domain.workload import ContainerObservation, NodeObservation, PodObservation

SECOND: Final = timedelta(seconds=1)  # the resolution of times in the Kubernetes API
FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
PLANNED_EXITS: Final = frozenset({0, 143})  # 128 + SIGTERM


def has_ended(pod: PodObservation) -> bool:
    """Whether a kubelet reported that no container of this pod runs or will run.

    The phase alone is not enough, as other clients may write it. Nor are container states alone:
    a container that ended may have been started again before the kubelet reported it.
    """
    is_final = pod.phase in FINAL_PHASES and not pod.is_collected
    return is_final and are_all_terminated(pod)


def could_be_dead(pod: PodObservation) -> bool:
    """Whether a process of this pod may have ended, so that a live read is worth its cost."""
    return pod.phase in FINAL_PHASES or any(map(ended_once, pod.containers))


def is_end(before: PodObservation, after: PodObservation) -> bool:
    """Whether a process ended between two states of one pod, or the pod reached a final phase."""
    if after.phase in FINAL_PHASES and before.phase not in FINAL_PHASES:
        return True
    known = {one.name: one for one in before.containers}
    return any(_ended(known.get(one.name), one) for one in after.containers)


def are_all_terminated(pod: PodObservation) -> bool:
    """Whether every container was reported as ended; they may be started again."""
    return bool(pod.containers) and all(one.state == "terminated" for one in pod.containers)


def ended_once(container: ContainerObservation) -> bool:
    """Whether a process of this container ended, this one or an earlier one."""
    return container.state == "terminated" or container.has_restarted


def decide_death(
    pod: PodObservation, readers: Sequence[ContainerObservation], *, skew: timedelta
) -> Death:
    """Return how the last processes of these containers ended."""
    if pod.is_disrupted:
        return Death.PLANNED
    if pod.deletion_requested is not None and all(
        _ended_after(one, pod.deletion_requested, skew) for one in readers
    ):
        return Death.PLANNED
    return worst([_death_of_container(one) for one in readers])


def worst(deaths: Sequence[Death]) -> Death:
    """Return the most serious of these: a crash, then an unexplained end, then a planned one."""
    if Death.CRASHED in deaths:
        return Death.CRASHED
    return Death.PLANNED if deaths and set(deaths) == {Death.PLANNED} else Death.KILLED


def _ended(before: ContainerObservation | None, after: ContainerObservation) -> bool:
    if before is None:
        return False
    if after.restarts > before.restarts:
        return True
    is_running = after.state in ("running", "unknown")
    return not is_running and before.state != after.state and ended_once(after)


def _ended_after(container: ContainerObservation, requested: datetime, skew: timedelta) -> bool:
    if container.state != "terminated" or container.finished is None:
        return True
    # The times come from two clocks: allow for their skew if the exit code is a planned one.
    slack = SECOND + (skew if container.exit_code in PLANNED_EXITS else timedelta())
    return container.finished + slack >= requested


def _death_of_container(container: ContainerObservation) -> Death:
    has_ended_now = container.state == "terminated"
    code = container.exit_code if has_ended_now else container.last_exit_code
    reason = container.reason if has_ended_now else container.last_reason
    if code is None or (code == 137 and reason != "OOMKilled"):
        return Death.KILLED
    return Death.CRASHED


# A partitioned node still counts as Ready for 50 s (node-monitor-grace-period), and 5 s until the
# next check. Only a node that is Ready after that has certainly received the deletion.
REPORTS_WITHIN: Final = timedelta(seconds=60)


def is_absent_long(former: FormerPod, server_time: datetime) -> bool:
    """Whether a pod has been absent for so long that the state of its node decides."""
    return server_time - former.absent_since >= _patience(former)


def is_proven(former: FormerPod, server_time: datetime, *, skew: timedelta) -> bool:
    """Whether no process of a former pod can be alive."""
    return (former.last is not None and has_ended(former.last)) or _has_vanished(
        former, server_time, skew
    )


def _has_vanished(former: FormerPod, server_time: datetime, skew: timedelta) -> bool:
    """Whether the node must have stopped the pod's containers since the pod was deleted."""
    if not is_absent_long(former, server_time):
        return False
    node = former.node
    if node is None:
        return former.are_all_nodes_ready
    if not node.exists or node.is_out_of_service:
        return True
    # A node that was not Ready receives the deletion only when it is Ready again.
    since = node.ready_since
    is_steady = since is None or server_time - since >= _patience(former) + skew
    return node.is_ready is True and is_steady


def _patience(former: FormerPod) -> timedelta:
    return timedelta(seconds=former.grace_s) + REPORTS_WITHIN


def report_unproven_end(former: FormerPod, server_time: datetime) -> Cutoff:
    """Return the result for a deleted pod whose end is not proven: no cutoff, and why."""
    node = former.node
    where = f"its node {node.name}" if node is not None else "every node"
    wait = _patience(former)
    return no_cutoff(
        LivenessReason.MAYBE_ALIVE,
        f"pod {former.name} is deleted, but the end of its containers was not reported; it counts "
        f"as dead {wait.total_seconds():g} s after its deletion, if {where} has been Ready for as "
        "long, or is deleted or out of service",
        again_at=None if is_absent_long(former, server_time) else former.absent_since + wait,
    )


BACK_OFF: Final = timedelta(seconds=10)  # a kubelet's pause in a crash loop, if none is reported


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    server_time: datetime
    skew: timedelta
    master_since: datetime | None
    container: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """The cutoff of one container, before clock skew and a change of master are checked."""

    at: datetime
    bound: datetime  # no live process of this container started before it
    stamp: datetime  # the time as the node's clock recorded it
    reason: LivenessReason
    message: str


def decide_cutoff(
    evidence: PodEvidence,
    *,
    server_time: datetime,
    skew: timedelta,
    master_since: datetime | None = None,
    container: str | None = None,
) -> Cutoff:
    """Decide a consumer's cutoff from the pods of its name (recovery protocol, Rule A). Total.

    `server_time` is Redis' TIME from before the live read. `master_since` is when the current
    master was first observed (None: no change is known). `container` is the one that reads (None:
    any of them).
    """
    moment = _Moment(
        server_time=server_time, skew=skew, master_since=master_since, container=container
    )
    for former in evidence.formers:
        if not is_proven(former, server_time, skew=skew):
            return report_unproven_end(former, server_time)
    if evidence.live is not None:
        return _decide_live(evidence, evidence.live, moment)
    if not evidence.formers:
        return no_cutoff(
            LivenessReason.NEVER_SEEN,
            f"{evidence.consumer} matches a pod that was never observed: only the processing "
            "timeout applies",
        )
    return _decide_gone(evidence.formers, moment)


def combine(cuts: Sequence[Cutoff]) -> Cutoff:
    """Combine the cutoffs of a consumer's pods or containers: none if any has none, else the least.

    Raises ValueError when there are no cutoffs to combine.
    """
    known = [(cutoff.at, cutoff) for cutoff in cuts if cutoff.at is not None]
    if len(known) < len(cuts):
        return next(cutoff for cutoff in cuts if cutoff.at is None)
    _, smallest = min(known, key=lambda one: one[0])
    return replace(smallest, death=worst([cutoff.death for cutoff in cuts]))


def _decide_gone(formers: Sequence[FormerPod], moment: _Moment) -> Cutoff:
    name = formers[-1].name
    death = _death_of_latest(formers, moment)
    if all(former.last is not None and has_ended(former.last) for former in formers):
        reason, message = (
            LivenessReason.GONE,
            f"pod {name} was deleted after its containers had ended",
        )
    else:
        reason = LivenessReason.VANISHED
        message = f"pod {name} was deleted, and its node had enough time to stop its containers"
    return Cutoff(at=moment.server_time, reason=reason, message=message, death=death)


def _decide_live(evidence: PodEvidence, pod: PodObservation, moment: _Moment) -> Cutoff:
    if has_ended(pod):
        return Cutoff(
            at=moment.server_time,
            reason=LivenessReason.FINISHED,
            message=f"pod {pod.name} is {pod.phase} and its containers have ended",
            death=_death(pod, moment),
        )
    obstacle = _obstacle(pod, evidence.node)
    if obstacle is not None:
        return obstacle
    readers = _readers(pod, moment)
    if not readers:
        named = f"container {moment.container}" if moment.container else "container with a status"
        return no_cutoff(LivenessReason.NO_CONTAINER, f"pod {pod.name} has no {named}")
    cutoff = combine([_decide_container(evidence, pod, one, moment) for one in readers])
    if not evidence.is_succession and not all(ended_once(one) for one in readers):
        return cutoff
    restarted = any(map(ended_once, readers))
    death = _death(pod, moment) if restarted else _death_of_latest(evidence.formers, moment)
    return replace(_boot_or(cutoff, evidence, moment), death=death)


def _obstacle(pod: PodObservation, node: NodeObservation | None) -> Cutoff | None:
    """Return why there is no cutoff while a container may run; None if nothing prevents one."""
    if are_all_terminated(pod):
        return None
    if pod.phase in FINAL_PHASES:
        return no_cutoff(
            LivenessReason.NOT_REPORTED,
            f"pod {pod.name} is {pod.phase}, but the end of its containers was not reported",
        )
    if pod.is_deleting:
        return no_cutoff(LivenessReason.ENDING, f"pod {pod.name} is terminating")
    if node is not None and (node.is_ready is False or not node.exists):
        return no_cutoff(
            LivenessReason.NODE_LOST, f"node {node.name} of pod {pod.name} is not Ready"
        )
    return None


def _decide_container(
    evidence: PodEvidence, pod: PodObservation, container: ContainerObservation, moment: _Moment
) -> Cutoff:
    if not ended_once(container) and not evidence.is_succession:
        return no_cutoff(
            LivenessReason.ALIVE, f"pod {pod.name} is alive: container {container.name} never ended"
        )
    candidate = _find_cutoff(evidence, pod, container, moment.skew)
    if candidate is None:
        return no_cutoff(
            LivenessReason.NOT_REPORTED,
            f"the status of pod {pod.name} has no start or end time of container {container.name}",
        )
    if candidate.stamp > moment.server_time + moment.skew:
        return no_cutoff(
            LivenessReason.CLOCK_SKEW,
            f"the clock of the node of pod {pod.name} is ahead of the clock of Redis by more than"
            f" {moment.skew.total_seconds():g} s",
        )
    if moment.master_since is not None and candidate.bound < moment.master_since:
        # The former master recorded what this process was given: the record may be lost.
        return no_cutoff(
            LivenessReason.MASTER_CHANGED,
            f"container {container.name} of pod {pod.name} may have started before Redis changed "
            "masters",
        )
    at = min(candidate.at, moment.server_time)
    return Cutoff(at=at, reason=candidate.reason, message=candidate.message)


def _find_cutoff(
    evidence: PodEvidence, pod: PodObservation, container: ContainerObservation, skew: timedelta
) -> _Finding | None:
    if container.state == "running":
        return _find_running(evidence, pod, container, skew)
    ended = container.finished if container.state == "terminated" else container.last_finished
    if ended is not None:
        return _find_ended(pod, container, ended, skew)
    if ended_once(container) or pod.created is None:
        return None
    return _Finding(
        at=pod.created - skew,
        bound=pod.created - skew,
        stamp=pod.created,
        reason=LivenessReason.REPLACED,
        message=f"the earlier pod with the name {pod.name} has ended",
    )


def _find_running(
    evidence: PodEvidence, pod: PodObservation, container: ContainerObservation, skew: timedelta
) -> _Finding | None:
    if container.started is None:
        return None
    # The start cannot be later than its observation, whatever the node's clock shows.
    start = min(container.started, evidence.first_seen.get(container.name, container.started))
    ended, at = container.last_finished, start - skew
    if ended is not None and container.started - ended > 2 * (skew + SECOND):
        at = min(at, ended + SECOND + skew)
    reason, message = LivenessReason.REPLACED, f"the earlier pod with the name {pod.name} has ended"
    if container.has_restarted:
        reason = LivenessReason.RESTARTED
        message = f"container {container.name} of pod {pod.name} was restarted"
    return _Finding(
        at=at, bound=start - skew, stamp=container.started, reason=reason, message=message
    )


def _find_ended(
    pod: PodObservation, container: ContainerObservation, ended: datetime, skew: timedelta
) -> _Finding:
    pause = (
        timedelta(seconds=container.back_off_s) if container.back_off_s is not None else BACK_OFF
    )
    loops = container.state == "waiting" and container.waiting_reason == LivenessReason.CRASH_LOOP
    # In a shorter pause the next process might start before the cutoff.
    is_long = 2 * (skew + SECOND) < pause
    reason = LivenessReason.CRASH_LOOP if loops else LivenessReason.CONTAINER_ENDED
    return _Finding(
        at=ended + SECOND + skew if loops and is_long else ended - skew,
        bound=ended - skew,
        stamp=ended,
        reason=reason,
        message=f"container {container.name} of pod {pod.name} has ended",
    )


def _boot_or(cutoff: Cutoff, evidence: PodEvidence, moment: _Moment) -> Cutoff:
    """Return the cutoff, or the later one from the worker's boot record."""
    boot = evidence.boot
    earliest = max((at for at in (cutoff.at, moment.master_since) if at is not None), default=boot)
    if boot is None or earliest is None or not earliest <= boot <= moment.server_time:
        return cutoff
    return Cutoff(
        at=boot,
        reason=LivenessReason.BOOTED,
        message=f"the process of consumer {evidence.consumer} was restarted",
    )


def _readers(pod: PodObservation, moment: _Moment) -> list[ContainerObservation]:
    named = moment.container
    return [one for one in pod.containers if named is None or one.name == named]


def _death(pod: PodObservation, moment: _Moment) -> Death:
    return decide_death(pod, _readers(pod, moment) or pod.containers, skew=moment.skew)


def _death_of_latest(formers: Sequence[FormerPod], moment: _Moment) -> Death:
    # The entries of earlier pods were recovered long ago.
    last = max(formers, key=lambda former: former.absent_since, default=None)
    return _death(last.last, moment) if last is not None and last.last else Death.KILLED


LEASE_PERIOD: Final = timedelta(seconds=10)  # a kubelet renews after a quarter of its lease of 40 s
KEPT: Final = timedelta(hours=1)  # a clock that was corrected is trusted after this


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSample:
    """One reading of a node's Lease."""

    renewed: datetime  # renewTime, on the node's clock
    read: datetime  # Redis' time when the Lease had been read, so after the renewal

    @property
    def ahead(self) -> timedelta:
        """How far ahead of Redis the node's clock is at least; negative proves nothing."""
        return self.renewed - self.read


def remember_sample(samples: Iterable[ClockSample], latest: ClockSample) -> tuple[ClockSample, ...]:
    """Keep the samples that can still decide: at most an hour old, and not exceeded by a later one.

    Their `ahead` decreases from the first to the last.
    """
    known = (sample for sample in samples if _is_kept(sample, latest.read))
    return (*(sample for sample in known if sample.ahead > latest.ahead), latest)


def decide_allowance(
    samples: Iterable[ClockSample], now: datetime, *, default: timedelta
) -> timedelta:
    """Return how much earlier a cutoff from this node's clock must be; `now` is Redis' time.

    That is the default, unless a sample of the last hour proves that the clock is ahead. Then it is
    the sum of that lead, a lease period and the default.
    """
    proven = max(
        (sample.ahead for sample in samples if _is_kept(sample, now)), default=timedelta(0)
    )
    return default if proven <= timedelta(0) else proven + LEASE_PERIOD + default


def _is_kept(sample: ClockSample, now: datetime) -> bool:
    # Redis' own clock may go back at a failover: a sample from the far future counts as old.
    return abs(now - sample.read) <= KEPT
