"""Timelines of pods: what is true of them, what is reported, and what is decided.

    true        when each process began and ended, on Redis' clock;
    reported    what a kubelet wrote of it: late, in whole seconds, on a clock of its own;
    decided     the cutoff, from what is reported alone.

An entry of a live process was delivered after the process began, so a cutoff that is not later than
the beginning of every live process recovers no entry prematurely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import strategies as st

from pelops.domain.recovery import Cutoff, PodEvidence
from pelops.domain.workload import ContainerObservation, PodObservation
from pelops.policy.recovery.liveness import decide_cutoff
from tests.builders import NOW, pod

SKEW_S = 2.0
FOREVER = 1e9


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
class PodReports:
    """What one kubelet reports its containers."""

    clock: float  # by how much the node's clock is ahead
    lag: float  # until the API server knows
    worker: tuple[Process, ...]
    sidecar: tuple[Process, ...] = ()

    def stamp(self, at: float) -> datetime:
        return moment(at + self.clock).replace(microsecond=0)

    def pod(self, at: float, **more: object) -> PodObservation:
        """The pod as the API server shows it at a time."""
        reported = at - self.lag
        containers = [self.container("worker", self.worker, reported)]
        if self.sidecar:
            containers.append(self.container("sidecar", self.sidecar, reported))
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
        reported = ContainerObservation(name=name, restarts=len(known) - 1)
        if before is not None:
            reported = replace(
                reported, last_finished=self.stamp(before.end), last_exit_code=before.exit_code
            )
        if now.is_alive(at):
            return replace(reported, state="running", started=self.stamp(now.start))
        if now.back_off:
            return replace(
                reported,
                state="waiting",
                waiting_reason="CrashLoopBackOff",
                back_off_s=now.back_off,
                last_finished=self.stamp(now.end),
                last_exit_code=now.exit_code,
            )
        return replace(
            reported, state="terminated", finished=self.stamp(now.end), exit_code=now.exit_code
        )


def moment(at: float) -> datetime:
    return NOW + timedelta(seconds=at)


@st.composite
def processes(draw: st.DrawFn, most: int = 4) -> tuple[Process, ...]:
    """A container that may crash up to `most` - 1 times, and waits 0 to 20 s after each crash."""
    found, begin = [], 0.0
    pauses = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 10.0, 20.0]), max_size=most - 1))
    for pause in pauses:
        end = begin + draw(ms(0.01, 40))
        found.append(Process(start=begin, end=end, back_off=pause))
        begin = end + pause + draw(ms(0.001, 1))
    return (*found, Process(start=begin))


@st.composite
def kubelets(draw: st.DrawFn) -> PodReports:
    sidecar = draw(st.one_of(st.just(()), processes()))
    return PodReports(
        clock=draw(CLOCK), lag=draw(ms(0, 3)), worker=draw(processes()), sidecar=sidecar
    )


def near(reported: PodReports) -> st.SearchStrategy[float]:
    """A time at which the API server may know less than what is true, and any other."""
    events = {at for one in reported.worker for at in (one.start, one.end) if at < FOREVER}
    soon = st.builds(
        lambda at, after: max(0.0, at + after), st.sampled_from(sorted(events)), ms(-1, 5)
    )
    return soon | ms(0, 120)


def decide(evidence: PodEvidence, look: float, *, container: str | None = "worker") -> Cutoff:
    return decide_cutoff(
        evidence,
        server_time=moment(look),
        skew=timedelta(seconds=SKEW_S),
        container=container,
    )


def assert_no_premature_recovery(cutoff: Cutoff, alive: list[Process], look: float) -> None:
    if cutoff.at is None:
        return
    assert cutoff.at <= moment(look)
    for process in alive:
        if process.end > look:
            assert cutoff.at <= moment(process.start), f"{cutoff} robs {process}"
