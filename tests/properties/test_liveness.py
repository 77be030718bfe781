"""No timeline of a pod, however unlucky, lets a live process be robbed.

    what is true       when each process began and ended, on Redis' clock
    what is told       what a kubelet wrote of it: late, in whole seconds, on a clock of its own
    what is decided    the cut, from what is told alone

An entry of a live process was delivered after the process began, so a cut that is not later than
the beginning of every live process robs nobody. An entry that was read again before a failover may
have been delivered at any time: then there must be no cut at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from pelops.domain.liveness import Cut, FormerPod, LivenessReason, PodEvidence
from pelops.domain.workload import ContainerObservation, NodeObservation, PodObservation
from pelops.policy.ends import has_ended
from pelops.policy.liveness import decide_cut
from tests.builders import NOW, pod

SKEW_S = 2.0
FOREVER = 1e9
NOTICED_S = 55.0  # how long a node that is cut off counts as Ready at most


def ms(low: float, high: float) -> st.SearchStrategy[float]:
    """Seconds, to the millisecond."""
    return st.integers(round(low * 1000), round(high * 1000)).map(lambda n: n / 1000)


CLOCK = ms(-SKEW_S, SKEW_S)


@dataclass(frozen=True)
class Process:
    """One process of a container, on Redis' clock."""

    start: float
    end: float = FOREVER
    exit_code: int = 1
    back_off: float = 0.0  # how long the kubelet pauses after its end, by its own account

    def is_alive(self, at: float) -> bool:
        return self.start <= at < self.end


@dataclass(frozen=True)
class Told:
    """What one kubelet tells of its containers."""

    clock: float  # by how much the node's clock is ahead
    lag: float  # until the API server knows
    worker: tuple[Process, ...]
    sidecar: tuple[Process, ...] = ()

    def stamp(self, at: float) -> datetime:
        return moment(at + self.clock).replace(microsecond=0)

    def pod(self, at: float, **more: object) -> PodObservation:
        """The pod as the API server shows it at a time."""
        told = at - self.lag
        containers = [self.container("worker", self.worker, told)]
        if self.sidecar:
            containers.append(self.container("sidecar", self.sidecar, told))
        begun = min(one.start for one in self.worker)
        usual = pod(containers=tuple(containers), created=self.stamp(begun - 0.5))
        return replace(usual, **more)  # type: ignore[arg-type]

    def container(
        self, name: str, processes: tuple[Process, ...], at: float
    ) -> ContainerObservation:
        known = [one for one in processes if one.start <= at]
        if not known:
            return ContainerObservation(name=name, state="waiting")
        now, before = known[-1], (known[-2] if len(known) > 1 else None)
        told = ContainerObservation(name=name, restarts=len(known) - 1)
        if before is not None:
            told = replace(
                told, last_finished=self.stamp(before.end), last_exit_code=before.exit_code
            )
        if now.is_alive(at):
            return replace(told, state="running", started=self.stamp(now.start))
        if now.back_off:
            return replace(
                told,
                state="waiting",
                waiting_reason="CrashLoopBackOff",
                back_off_s=now.back_off,
                last_finished=self.stamp(now.end),
                last_exit_code=now.exit_code,
            )
        return replace(
            told, state="terminated", finished=self.stamp(now.end), exit_code=now.exit_code
        )


def moment(at: float) -> datetime:
    return NOW + timedelta(seconds=at)


@st.composite
def processes(draw: st.DrawFn, most: int = 4) -> tuple[Process, ...]:
    """A container that may crash now and then; the first time it is started again at once."""
    found, begin = [], 0.0
    pauses = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 10.0, 20.0]), max_size=most - 1))
    for pause in pauses:
        end = begin + draw(ms(0.01, 40))
        found.append(Process(start=begin, end=end, back_off=pause))
        begin = end + pause + draw(ms(0.001, 1))
    return (*found, Process(start=begin))


@st.composite
def kubelets(draw: st.DrawFn) -> Told:
    sidecar = draw(st.one_of(st.just(()), processes()))
    return Told(clock=draw(CLOCK), lag=draw(ms(0, 3)), worker=draw(processes()), sidecar=sidecar)


def near(told: Told) -> st.SearchStrategy[float]:
    """A time at which the API server may know less than what is true, and any other."""
    events = {at for one in told.worker for at in (one.start, one.end) if at < FOREVER}
    soon = st.builds(
        lambda at, after: max(0.0, at + after), st.sampled_from(sorted(events)), ms(-1, 5)
    )
    return soon | ms(0, 120)


def decide(evidence: PodEvidence, look: float, *, container: str | None = "worker") -> Cut:
    return decide_cut(
        evidence,
        server_time=moment(look),
        skew=timedelta(seconds=SKEW_S),
        container=container,
    )


def assert_robs_nobody(cut: Cut, alive: list[Process], look: float) -> None:
    if cut.at is None:
        return
    assert cut.at <= moment(look)
    for process in alive:
        if process.end > look:
            assert cut.at <= moment(process.start), f"{cut} robs {process}"


@settings(max_examples=500)
@given(kubelets(), st.data())
def test_a_container_that_restarts_is_never_robbed_whatever_its_sidecar_does(
    told: Told, data: st.DataObject
) -> None:
    look = data.draw(near(told), label="look")
    seen: dict[str, datetime] = {}
    live = told.pod(look)
    if data.draw(st.booleans(), label="the start was watched"):
        begun = [one.start for one in told.worker if one.start <= look - told.lag]
        seen = {"worker": moment(begun[-1] + told.lag)} if begun else {}
    evidence = PodEvidence(consumer="w-1", live=live, first_seen=seen)
    named = "worker" if not told.sidecar or data.draw(st.booleans(), label="named") else None
    assert_robs_nobody(decide(evidence, look, container=named), list(told.worker), look)


@settings(max_examples=200)
@given(kubelets(), ms(0, 0.2), st.data())
def test_a_worker_that_writes_when_it_began_is_never_robbed(
    told: Told, until_first_read: float, data: st.DataObject
) -> None:
    look = data.draw(near(told), label="look")
    begun = [one for one in told.worker if one.start + until_first_read <= look]
    boot = moment(begun[-1].start + until_first_read) if begun else None
    evidence = PodEvidence(consumer="w-1", live=told.pod(look), boot=boot)
    cut = decide(evidence, look)
    readers = [replace(one, start=one.start + until_first_read) for one in told.worker]
    assert_robs_nobody(cut, readers, look)
    if cut.reason is LivenessReason.BOOTED:
        assert cut.at == boot


@settings(max_examples=200)
@given(kubelets(), ms(0, 5), st.data())
def test_what_was_read_again_before_a_failover_is_never_moved(
    told: Told, seen_after: float, data: st.DataObject
) -> None:
    look, failover = data.draw(near(told), label="look"), data.draw(near(told), label="failover")
    evidence = PodEvidence(consumer="w-1", live=told.pod(look))
    cut = decide_cut(
        evidence,
        server_time=moment(look),
        skew=timedelta(seconds=SKEW_S),
        master_since=moment(failover + seen_after),
        container="worker",
    )
    assert_robs_nobody(cut, list(told.worker), look)
    holders = [one for one in told.worker if one.start <= failover < one.end and one.end > look]
    if failover <= look and holders:
        assert cut.at is None


@dataclass
class Removal:
    """How a pod went: what is left of it, and what is true."""

    told: Told
    at: float  # when the object was removed
    last: PodObservation | None  # as it was seen last
    processes: list[Process] = field(default_factory=list)
    cut_off: tuple[float, float] = (FOREVER, FOREVER)  # when its node could not be reached

    def node(self, look: float) -> NodeObservation:
        """The node as the API server shows it."""
        begin, end = self.cut_off
        unready_from = begin + NOTICED_S
        if unready_from < end:
            if look >= end:
                return NodeObservation(name="n1", is_ready=True, ready_since=self.told.stamp(end))
            return NodeObservation(name="n1", is_ready=look < unready_from)
        return NodeObservation(name="n1", is_ready=True)


@st.composite
def removals(draw: st.DrawFn) -> Removal:
    """A pod that went: asked to end, forced, collected, or cut off with its node."""
    told = draw(kubelets())
    asked, hears, grace = draw(near(told)), draw(ms(0, 1)), draw(st.sampled_from([0.5, 5.0, 30.0]))
    how = draw(st.sampled_from(["graceful", "forced", "cut off", "collected", "failed"]))
    cut_off = (FOREVER, FOREVER)
    if how in ("cut off", "collected", "failed"):
        begin = asked + draw(ms(-30, 0.5))
        cut_off = (begin, begin + draw(st.one_of(ms(0, 200), st.just(FOREVER))))
    heard = asked + hears
    if cut_off[0] <= heard < cut_off[1]:
        heard = cut_off[1] + hears
    ended = heard + draw(ms(0, grace))
    true = [replace(one, end=min(one.end, ended)) for one in told.worker if one.start < heard] or [
        Process(start=0, end=ended)
    ]
    sidecar = [replace(one, end=min(one.end, ended)) for one in told.sidecar if one.start < heard]
    # What the API server heard before the cut.
    after = replace(
        told, worker=tuple(replace(one, back_off=0.0) for one in true), sidecar=tuple(sidecar)
    )
    if how == "graceful":
        removed = max(ended, asked) + told.lag + draw(ms(0.01, 2))
        asked_at = told.stamp(asked - told.clock)
        last = after.pod(FOREVER / 2, phase="Failed", is_deleting=True, deletion_requested=asked_at)
        if draw(st.booleans()):
            # The last events were lost.
            earlier = draw(ms(0, 120))
            last = last if earlier > removed else told.pod(min(earlier, asked))
    else:
        removed = asked
        known = min(asked, cut_off[0])
        # Others may write a phase as well; only the collector's is known by its mark.
        runs = any(one.state == "running" for one in told.pod(known).containers)
        is_written = how == "collected" or (how == "failed" and runs)
        last = told.pod(
            known,
            phase="Failed" if is_written else "Running",
            is_deleting=True,
            is_collected=how == "collected",
            deletion_requested=moment(asked).replace(microsecond=0),
        )
    last = replace(last, grace_period_s=grace)
    return Removal(
        told=told,
        at=removed,
        last=draw(st.sampled_from([last, last, None])),
        processes=true,
        cut_off=cut_off,
    )


def former(removal: Removal, look: float, *, noticed: float) -> FormerPod:
    grace = removal.last.grace_period_s if removal.last else 30.0
    return FormerPod(
        name="w-1",
        uid="pod-1",
        absent_since=moment(removal.at + noticed),
        last=removal.last,
        grace_s=grace,
        node=removal.node(look),
    )


def looks(removal: Removal, noticed: float) -> st.SearchStrategy[float]:
    """When a replica looks that noticed the removal: soon, late, or when the node came back."""
    since = removal.at + noticed
    end = removal.cut_off[1]
    back = end if end < FOREVER else since
    late = st.sampled_from([since + 60.5, since + 65, since + 90, max(since, back)])
    return st.builds(lambda at, after: at + after, late, ms(0, 30)) | ms(since, since + 400)


@settings(max_examples=500)
@given(removals(), ms(0, 5), st.data())
def test_a_pod_that_is_gone_is_never_robbed(
    removal: Removal, noticed: float, data: st.DataObject
) -> None:
    look = data.draw(looks(removal, noticed), label="look")
    evidence = PodEvidence(
        consumer="w-1", live=None, formers=(former(removal, look, noticed=noticed),)
    )
    assert_robs_nobody(decide(evidence, look), removal.processes, look)


@settings(max_examples=500)
@given(removals(), kubelets(), ms(0, 5), ms(0, 30), st.data())
def test_neither_a_pod_nor_its_successor_of_the_same_name_is_robbed(
    removal: Removal, told: Told, noticed: float, until_next: float, data: st.DataObject
) -> None:
    begin = removal.at + until_next
    next_one = replace(
        told,
        worker=tuple(
            replace(one, start=one.start + begin, end=one.end + begin) for one in told.worker
        ),
        sidecar=tuple(
            replace(one, start=one.start + begin, end=one.end + begin) for one in told.sidecar
        ),
    )
    look = data.draw(looks(removal, noticed), label="look")
    is_there = look >= begin
    live = next_one.pod(look, uid="pod-2") if is_there else None
    evidence = PodEvidence(
        consumer="w-1", live=live, formers=(former(removal, look, noticed=noticed),)
    )
    alive = removal.processes + [one for one in next_one.worker if one.start <= look]
    cut = decide(evidence, look)
    assert_robs_nobody(cut, alive, look)
    if removal.last is not None and has_ended(removal.last) and live is not None:
        # And what the former one held is free, but for what was delivered just before.
        assert cut.at is not None
        assert cut.at >= min(live.created or NOW, moment(look)) - timedelta(seconds=SKEW_S)


@settings(max_examples=200)
@given(CLOCK, ms(0, 3), ms(1, 60), ms(0, 30), ms(0.01, 2), ms(0, 5))
def test_all_that_a_pod_held_is_free_when_it_was_deleted_as_usual(
    clock: float, lag: float, asked: float, takes: float, removal: float, noticed: float
) -> None:
    worker = (Process(start=0, end=asked + takes, exit_code=143),)
    told = Told(clock=clock, lag=lag, worker=worker)
    last = told.pod(FOREVER / 2, phase="Succeeded", is_deleting=True)
    look = asked + takes + lag + removal + noticed
    gone = FormerPod(name="w-1", uid="pod-1", absent_since=moment(look - noticed), last=last)
    cut = decide(PodEvidence(consumer="w-1", live=None, formers=(gone,)), look)
    assert cut.at == moment(look)


@settings(max_examples=200)
@given(CLOCK, ms(0, 3), ms(0.5, 60), st.sampled_from([10.0, 20.0, 300.0]), ms(0, 9))
def test_all_that_a_container_held_is_free_while_it_waits_in_a_crash_loop(
    clock: float, lag: float, end: float, pause: float, later: float
) -> None:
    worker = (Process(start=0, end=end, back_off=pause), Process(start=end + pause))
    told = Told(clock=clock, lag=lag, worker=worker)
    look = end + lag + 0.001 + min(later, pause - lag - 0.1)
    cut = decide(PodEvidence(consumer="w-1", live=told.pod(look)), look)
    assert cut.at is not None
    assert cut.at >= moment(end)


@settings(max_examples=200)
@given(CLOCK, ms(0, 3), ms(0.5, 60), st.sampled_from([0.0, 10.0, 300.0]), ms(4, 60))
def test_all_but_the_last_seconds_is_free_after_a_restart(
    clock: float, lag: float, end: float, pause: float, later: float
) -> None:
    worker = (Process(start=0, end=end, back_off=pause), Process(start=end + pause))
    told = Told(clock=clock, lag=lag, worker=worker)
    look = end + pause + later
    cut = decide(PodEvidence(consumer="w-1", live=told.pod(look)), look)
    assert cut.at is not None
    late = timedelta() if pause else timedelta(seconds=2 * SKEW_S + 1)
    assert cut.at >= moment(end) - late
