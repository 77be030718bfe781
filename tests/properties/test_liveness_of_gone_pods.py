"""However a pod goes, neither it nor a successor of its name is recovered prematurely while it
lives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.recovery import FormerPod, PodEvidence
from pelops.domain.workload import NodeObservation, PodObservation
from pelops.policy.recovery.liveness import has_ended
from tests.builders import NOW
from tests.properties.pod_timelines import (
    CLOCK,
    FOREVER,
    SKEW_S,
    PodReports,
    Process,
    assert_no_premature_recovery,
    decide,
    kubelets,
    moment,
    ms,
    near,
)

NOTICED_S = 55.0  # how long a node that is cut off counts as Ready at most


@dataclass
class Removal:
    """How a pod ended: the objects that are left, and what happened."""

    reported: PodReports
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
                return NodeObservation(
                    name="n1", is_ready=True, ready_since=self.reported.stamp(end)
                )
            return NodeObservation(name="n1", is_ready=look < unready_from)
        return NodeObservation(name="n1", is_ready=True)


@st.composite
def removals(draw: st.DrawFn) -> Removal:
    """A pod that went: asked to end, forced, collected, or cut off with its node."""
    reported = draw(kubelets())
    asked, hears, grace = (
        draw(near(reported)),
        draw(ms(0, 1)),
        draw(st.sampled_from([0.5, 5.0, 30.0])),
    )
    how = draw(st.sampled_from(["graceful", "forced", "cut off", "collected", "failed"]))
    cut_off = (FOREVER, FOREVER)
    if how in ("cut off", "collected", "failed"):
        begin = asked + draw(ms(-30, 0.5))
        cut_off = (begin, begin + draw(st.one_of(ms(0, 200), st.just(FOREVER))))
    heard = asked + hears
    if cut_off[0] <= heard < cut_off[1]:
        heard = cut_off[1] + hears
    ended = heard + draw(ms(0, grace))
    true = [
        replace(one, end=min(one.end, ended)) for one in reported.worker if one.start < heard
    ] or [Process(start=0, end=ended)]
    sidecar = [
        replace(one, end=min(one.end, ended)) for one in reported.sidecar if one.start < heard
    ]
    # What the API server heard before the cutoff.
    after = replace(
        reported, worker=tuple(replace(one, back_off=0.0) for one in true), sidecar=tuple(sidecar)
    )
    if how == "graceful":
        removed = max(ended, asked) + reported.lag + draw(ms(0.01, 2))
        asked_at = reported.stamp(asked - reported.clock)
        last = after.pod(FOREVER / 2, phase="Failed", is_deleting=True, deletion_requested=asked_at)
        if draw(st.booleans()):
            # The last events were lost.
            earlier = draw(ms(0, 120))
            last = last if earlier > removed else reported.pod(min(earlier, asked))
    else:
        removed = asked
        known = min(asked, cut_off[0])
        # Others may write a phase as well; only the collector's is known by its mark.
        runs = any(one.state == "running" for one in reported.pod(known).containers)
        is_written = how == "collected" or (how == "failed" and runs)
        last = reported.pod(
            known,
            phase="Failed" if is_written else "Running",
            is_deleting=True,
            is_collected=how == "collected",
            deletion_requested=moment(asked).replace(microsecond=0),
        )
    last = replace(last, grace_period_s=grace)
    return Removal(
        reported=reported,
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
    """When a replica that noticed the removal observes: soon, late, or after the node is back."""
    since = removal.at + noticed
    end = removal.cut_off[1]
    back = end if end < FOREVER else since
    late = st.sampled_from([since + 60.5, since + 65, since + 90, max(since, back)])
    return st.builds(lambda at, after: at + after, late, ms(0, 30)) | ms(since, since + 400)


@given(removals(), ms(0, 5), st.data())
def test_a_pod_that_is_gone_is_never_recovered_prematurely(
    removal: Removal, noticed: float, data: st.DataObject
) -> None:
    look = data.draw(looks(removal, noticed), label="look")
    evidence = PodEvidence(
        consumer="w-1", live=None, formers=(former(removal, look, noticed=noticed),)
    )
    assert_no_premature_recovery(decide(evidence, look), removal.processes, look)


@given(removals(), kubelets(), ms(0, 5), ms(0, 30), st.data())
def test_neither_a_pod_nor_its_namesake_is_recovered_prematurely(
    removal: Removal, reported: PodReports, noticed: float, until_next: float, data: st.DataObject
) -> None:
    begin = removal.at + until_next
    next_one = replace(
        reported,
        worker=tuple(
            replace(one, start=one.start + begin, end=one.end + begin) for one in reported.worker
        ),
        sidecar=tuple(
            replace(one, start=one.start + begin, end=one.end + begin) for one in reported.sidecar
        ),
    )
    look = data.draw(looks(removal, noticed), label="look")
    is_there = look >= begin
    live = next_one.pod(look, uid="pod-2") if is_there else None
    evidence = PodEvidence(
        consumer="w-1", live=live, formers=(former(removal, look, noticed=noticed),)
    )
    alive = removal.processes + [one for one in next_one.worker if one.start <= look]
    cutoff = decide(evidence, look)
    assert_no_premature_recovery(cutoff, alive, look)
    if removal.last is not None and has_ended(removal.last) and live is not None:
        # And what the former one held is free, except what was delivered shortly before.
        assert cutoff.at is not None
        assert cutoff.at >= min(live.created or NOW, moment(look)) - timedelta(seconds=SKEW_S)


@given(CLOCK, ms(0, 3), ms(1, 60), ms(0, 30), ms(0.01, 2), ms(0, 5))
def test_all_entries_of_a_normally_deleted_pod_are_stuck(
    clock: float, lag: float, asked: float, takes: float, removal: float, noticed: float
) -> None:
    worker = (Process(start=0, end=asked + takes, exit_code=143),)
    reported = PodReports(clock=clock, lag=lag, worker=worker)
    last = reported.pod(FOREVER / 2, phase="Succeeded", is_deleting=True)
    look = asked + takes + lag + removal + noticed
    gone = FormerPod(name="w-1", uid="pod-1", absent_since=moment(look - noticed), last=last)
    cutoff = decide(PodEvidence(consumer="w-1", live=None, formers=(gone,)), look)
    assert cutoff.at == moment(look)
