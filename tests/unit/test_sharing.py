"""Who leads the scaling of a workload that several resources name, and what all ask for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

import pytest

from pelops.api.group.scaling import ScalingMode
from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.backlog import Backlog, merge_known
from pelops.policy.scaling.decision import ScalingDecision, decide_fixed
from pelops.policy.scaling.demand import GroupDemand, measure_demand, show_demand
from pelops.policy.scaling.meter import Meter
from pelops.policy.scaling.sharing import Claim, Role, decide_sharing, explain_sharing
from pelops.policy.status.reasons import Reason
from tests.builders import NOW, resource, workload
from tests.scaling_cases import SECOND, auto, demand_of, handling, knowing, owing, wanting

FIRST, SECOND_ONE = "2026-05-04T03:02:01Z", "2026-05-04T03:02:02Z"
TARGET = "Deployment shop/workers"


def claim(name: str, mode: str | None = "Auto", **changes: Any) -> Claim:
    """The claim of a resource of this name; by default the older of two."""
    usual = Claim(name=name, uid=f"uid-{name}", created=FIRST)
    return replace(usual, mode=None if mode is None else ScalingMode(mode), **changes)


class Led(NamedTuple):
    role: Role  # of the first
    leader: str | None
    claims: tuple[Claim, ...]


class Explained(NamedTuple):
    reason: Reason
    words: str  # a part of the message
    claims: tuple[Claim, ...]


ROLES: dict[str, Led] = {
    "alone": Led(Role.LEADS, "a", (claim("a"),)),
    "alone in mode Manual": Led(Role.LEADS, "a", (claim("a", "Manual"),)),
    "the older of two that decide": Led(
        Role.LEADS, "b", (claim("b"), claim("a", created=SECOND_ONE))
    ),
    "the younger of two that decide": Led(
        Role.CONTENDS, "b", (claim("a", created=SECOND_ONE), claim("b", "Manual"))
    ),
    "of one age, by uid": Led(Role.CONTENDS, "a", (claim("b"), claim("a"))),
    "with the template, though younger": Led(
        Role.LEADS, "b", (claim("b", created=SECOND_ONE, is_guest=False), claim("a"))
    ),
    "with a template and no scaling: spec.replicas": Led(
        Role.LEADS, "b", (claim("b", None, created=SECOND_ONE, is_guest=False), claim("a"))
    ),
    "with a template that follows": Led(
        Role.FOLLOWS, "a", (claim("b", "Follow", is_guest=False), claim("a", created=SECOND_ONE))
    ),
    "one that follows nobody": Led(
        Role.FOLLOWS, None, (claim("a", "Follow"), claim("b", "Disabled"))
    ),
    "an older one that is being deleted leads no more": Led(
        Role.LEADS, "b", (claim("b", created=SECOND_ONE), claim("a", is_ending=True))
    ),
    "an older one that is suspended leads": Led(
        Role.CONTENDS, "a", (claim("b", created=SECOND_ONE), claim("a", is_suspended=True))
    ),
    "without scaling": Led(Role.UNCOUNTED, "b", (claim("a", None), claim("b"))),
    "switched off": Led(Role.UNCOUNTED, "b", (claim("a", "Disabled"), claim("b"))),
}


@pytest.mark.parametrize("case", ROLES.values(), ids=ROLES)
def test_who_leads(case: Led) -> None:
    sharing = decide_sharing(case.claims[0], case.claims)
    assert sharing.role is case.role
    assert (sharing.leader.name if sharing.leader else None) == case.leader


EXPLAINED: dict[str, Explained] = {
    "conflict": Explained(
        Reason.CONFLICT,
        "a leads the scaling of Deployment shop/workers, because it is older",
        (claim("b", created=SECOND_ONE), claim("a")),
    ),
    "conflict with the template": Explained(
        Reason.CONFLICT,
        "because it has the spec.template of the workers",
        (claim("b"), claim("a", is_guest=False)),
    ),
    "no leader": Explained(
        Reason.LEADER_MISSING, "Set spec.scaling.mode: Auto in one", (claim("a", "Follow"),)
    ),
    "followed": Explained(
        Reason.FOLLOWING,
        "a leads the scaling of Deployment shop/workers, and counts the demand of this group",
        (claim("b", "Follow"), claim("a")),
    ),
    "a fixed number": Explained(
        Reason.FOLLOWING, "replicas", (claim("b", "Follow"), claim("a", "Manual"))
    ),
    "a suspended leader": Explained(
        Reason.SUSPENDED,
        "a leads the scaling of Deployment shop/workers and is suspended",
        (claim("b", "Follow"), claim("a", is_suspended=True)),
    ),
    "a leader in a dry run": Explained(
        Reason.FOLLOWING,
        "counts the demand of this group. Its spec.recovery.dryRun is true, so the replicas are "
        "not changed",
        (claim("b", "Follow"), claim("a", is_dry=True)),
    ),
    "in a dry run": Explained(
        Reason.FOLLOWING,
        "the demand of this group does not count while spec.recovery.dryRun is true",
        (claim("b", "Follow", is_dry=True), claim("a")),
    ),
    "not counted": Explained(
        Reason.SCALING_DISABLED, "does not count", (claim("b", None), claim("a"))
    ),
    "nobody decides": Explained(Reason.SCALING_DISABLED, "does not change", (claim("b", None),)),
}


@pytest.mark.parametrize("case", EXPLAINED.values(), ids=EXPLAINED)
def test_who_decides_instead_is_named(case: Explained) -> None:
    found = explain_sharing(decide_sharing(case.claims[0], case.claims), TARGET)
    assert found.reason == case.reason
    assert case.words in found.message


def test_of_too_many_resources_on_one_workload_the_oldest_are_counted() -> None:
    own, leader = claim("young", "Follow", created=SECOND_ONE), claim("leader", is_suspended=False)
    counted = [leader, claim("old", "Follow")]
    sharing = decide_sharing(own, counted)
    assert (sharing.role, sharing.is_counted) == (Role.FOLLOWS, False)
    found = explain_sharing(sharing, TARGET)
    assert found.reason == Reason.LEADER_MISSING
    assert "too many resources have this workload" in found.message
    assert sorted([own, *counted], key=lambda one: one.rank) == [leader, counted[1], own]


def test_a_resource_in_conflict_writes_no_number_in_any_mode() -> None:
    sharing = decide_sharing(
        claim("b", created=SECOND_ONE), [claim("a"), claim("b", created=SECOND_ONE)]
    )
    for mode in ("Auto", "Manual"):
        spec = resource(scaling={"mode": mode}, replicas=5).spec
        decision = decide_fixed(spec, workload(), sharing)
        assert decision is not None
        assert (decision.replicas, decision.reason) == (None, Reason.CONFLICT)


def test_a_follower_without_others_reports_a_missing_leader() -> None:
    decision = decide_fixed(resource(scaling={"mode": "Follow"}).spec, workload())
    assert decision is not None
    assert (decision.replicas, decision.reason) == (None, Reason.LEADER_MISSING)
    assert not decision.is_active


def test_suspending_one_that_follows_says_so() -> None:
    sharing = decide_sharing(claim("b", "Follow"), [claim("a"), claim("b", "Follow")])
    spec = resource(scaling={"mode": "Follow"}, suspend=True).spec
    decision = decide_fixed(spec, workload(), sharing)
    assert decision is not None and decision.reason is Reason.SUSPENDED


def other(name: str = "mailing", backlog: Backlog | None = None, **known: Any) -> GroupDemand:
    """The demand of a group that follows: 100 entries each, all workers ready."""
    seen = owing() if backlog is None else backlog
    meter = replace(known.pop("meter", Meter()), **known)
    return replace(demand_of(seen, meter), name=name)


def unseen(name: str = "mailing", why: str = "Redis cannot be observed") -> GroupDemand:
    return GroupDemand(name=name, unknown=why)


def shared(
    backlog: Backlog | None,
    *others: GroupDemand,
    current: int,
    scaling: dict[str, Any] | None = None,
    **more: Any,
) -> ScalingDecision:
    """The decision of the resource `orders` beside these."""
    seen = workload(wished=current, current=current, ready=more.pop("ready", current))
    memory = wanting(0, **more)
    spec = auto(maxReplicas=100, **(scaling or {}))
    return memory.observe(spec, seen, backlog, now=SECOND, name="orders", others=others)


def test_the_sum_is_rounded_once_and_the_maximum_may_be_too_little() -> None:
    own, mailing = owing(undelivered=120), other(backlog=owing(undelivered=120))
    total = shared(own, mailing, current=0)
    assert (total.replicas, total.reason) == (3, Reason.SCALED)
    assert "3 workers wanted by the sum of orders 1.2, mailing 1.2" in total.message
    assert "of 2 groups" in total.message
    most = shared(own, mailing, current=0, scaling={"combine": "Max"})
    assert most.replicas == 2
    assert "2 workers wanted by the greatest of orders 1.2, mailing 1.2" in most.message


def test_a_demand_keeps_its_own_number_per_worker() -> None:
    mailing = demand_of(owing(undelivered=25), ready=0, backlogPerReplica=10)
    assert mailing.workers == 2.5
    assert shared(owing(undelivered=50), mailing, current=0).replicas == 3


def test_arrivals_of_many_small_streams_add_up_to_workers() -> None:
    meter = knowing(arrivals=17, per_replica=50)  # 0.4 of a worker, at 85 % of what it can do
    small = [other(f"s{n}", meter=meter) for n in range(9)]
    assert {one.highest for one in small} == {0.0}
    found = shared(owing(), *small, current=4, meter=meter)
    assert found.replicas == 4
    assert shared(owing(), *small, current=4, meter=meter, scaling={"combine": "Max"}).replicas == 1


def test_arrivals_that_are_not_even_one_worker_keep_none_awake() -> None:
    meter = knowing(arrivals=4, per_replica=50)
    idle = other(meter=meter, empty_since=SECOND - 600)
    found = shared(owing(), idle, current=1, meter=meter, empty_since=SECOND - 600)
    assert (found.replicas, found.reason) == (0, Reason.IDLE)


def test_rates_that_were_never_proven_add_no_worker_together_either() -> None:
    guess = knowing(arrivals=170, per_replica=50, is_proven=False)  # 4 workers
    proven = knowing(arrivals=170, per_replica=50)
    assert shared(owing(), other(meter=guess), current=4, meter=guess).replicas == 4
    assert shared(owing(), other(meter=proven), current=4, meter=proven).replicas == 8


def test_an_unreachable_group_prevents_scale_down_but_not_scale_up() -> None:
    held = shared(owing(), unseen(), current=3)
    assert (held.replicas, held.reason) == (3, Reason.LAG_UNKNOWN)
    assert "the backlog of mailing is unknown (Redis cannot be observed)" in held.message
    assert shared(owing(undelivered=900), unseen(), current=3).replicas == 9


def test_a_leader_whose_redis_is_gone_still_scales_for_the_others() -> None:
    mailing = other(backlog=owing(undelivered=900))
    assert shared(None, mailing, current=3).replicas == 9
    assert shared(None, other(), current=3).replicas == 3


def test_an_unknown_backlog_of_all_groups_holds_the_replicas() -> None:
    held = shared(None, unseen(), current=3)
    assert (held.replicas, held.reason) == (3, Reason.BACKLOG_UNKNOWN)
    assert "the backlog of all 2 groups is unknown: the replicas are held at 3" in held.message


def test_a_known_backlog_wakes_workers_and_an_unknown_one_does_not() -> None:
    assert shared(owing(), unseen(), current=0).replicas == 0
    assert shared(owing(undelivered=1), unseen(), current=0).replicas == 1
    assert shared(owing(), other(backlog=owing(held=1)), current=0).replicas == 1


def test_the_last_worker_stays_for_the_cooldown_of_every_group() -> None:
    long_ago, lately = SECOND - 600, SECOND - 10
    recent = other(empty_since=lately)
    assert shared(owing(), recent, current=1, empty_since=long_ago).replicas == 1
    settled = other(empty_since=long_ago)
    assert shared(owing(), settled, current=1, empty_since=long_ago).replicas == 0
    assert shared(owing(), settled, unseen(), current=1, empty_since=long_ago).replicas == 1


def test_dead_letters_of_one_group_do_not_stop_growth_for_others() -> None:
    flooding = Meter(finished=100, dead_lettered=90)
    flood = other("poisoned", owing(undelivered=5_000), meter=flooding)
    alone = shared(owing(), flood, current=3)
    assert (alone.replicas, alone.reason) == (3, Reason.SCALING_INEFFECTIVE)
    helped = shared(owing(undelivered=900), flood, current=3)
    assert (helped.replicas, helped.reason) == (9, Reason.SCALING_INEFFECTIVE)


def test_pods_are_kept_that_cannot_finish_what_they_hold_of_one_group() -> None:
    quick, slow = Meter(handling=handling(0.1)), Meter(handling=handling(60))
    held = owing(held=2)
    assert shared(held, other(backlog=held, meter=quick), current=5, meter=quick).only_at_work
    found = shared(held, other(backlog=held, meter=slow), current=5, meter=quick)
    assert (found.only_at_work, found.keep_at_most) == (False, 4)
    # One that holds nothing now has no say.
    assert shared(held, other(meter=slow), current=5, meter=quick).only_at_work


def test_the_decision_contains_the_demand_of_the_group() -> None:
    found = shared(owing(undelivered=120), other(backlog=owing(undelivered=900)), current=0)
    assert found.demand == 1.2
    assert shared(None, other(), current=0).demand is None


def test_a_group_that_is_watched_remembers_since_when_it_is_empty() -> None:
    meter = Meter()

    def empty_since(backlog: Backlog | None, now: float) -> float | None:
        meter.observe(backlog, ready=2, workers=2, now=now)
        return meter.empty_since

    assert empty_since(owing(), 10.0) == 10.0
    assert empty_since(owing(), 20.0) == 10.0
    later = owing(added=1_005, at=NOW + timedelta(seconds=1))
    assert empty_since(later, 30.0) == 30.0, "entries were added and finished"
    assert empty_since(None, 40.0) is None


def test_a_demand_below_one_worker_counts_beside_others() -> None:
    demand = demand_of(owing(), knowing(arrivals=17, per_replica=50), ready=1)
    assert (demand.highest, demand.unrounded, demand.proven) == (0.0, 0.4, 0.4)
    unproven = knowing(arrivals=17, per_replica=50, is_proven=False)
    guessed = demand_of(owing(), unproven, ready=1)
    assert (guessed.unrounded, guessed.proven) == (0.4, 0.0)


def test_an_idle_group_beside_an_unknown_one_is_unknown() -> None:
    assert merge_known([owing(), None]) is None
    busy = merge_known([owing(undelivered=3), None])
    assert busy is not None and busy.undelivered == 3
    both = merge_known([owing(undelivered=3), owing(held=4)])
    assert both is not None and (both.undelivered, both.held) == (3, 4)


def test_demands_are_shown_with_two_decimals_at_most() -> None:
    assert [show_demand(one) for one in (0.0, 1.2, 3.0, 2.346, 100.0)] == [
        *("0", "1.2", "3"),
        *("2.35", "100"),
    ]


# --- Two streams on one fleet for some minutes: the number settles where both are served


PER_WORKER = 50.0  # entries a second, of all streams together
MINUTES = 15
SETTLED_S = 600


class Fleet:
    """Workers that share their time between streams by what waits there."""

    def __init__(self, arrivals: list[float], combine: str) -> None:
        self.arrivals = arrivals
        self.spec = auto(maxReplicas=40, combine=combine)
        self.waiting = [0.0] * len(arrivals)
        self.meters = [Meter() for _ in arrivals]
        self.autoscaler = Autoscaler()
        self.replicas = 0
        self.random = Random(1)

    def look(self, second: int) -> list[Backlog]:
        """What is seen a second later."""
        self.waiting = [w + a for w, a in zip(self.waiting, self.arrivals, strict=True)]
        capacity, total = PER_WORKER * self.replicas, sum(self.waiting)
        done = min(capacity, total)
        seen = []
        for number, arrivals in enumerate(self.arrivals):
            share = done * self.waiting[number] / total if total else 0.0
            self.waiting[number] -= share
            busy = share / capacity if capacity else 0.0
            is_full = done >= capacity
            drawn = [is_full or self.random.random() < busy for _ in range(self.replicas)]
            seen.append(
                owing(
                    at=NOW + timedelta(seconds=second),
                    undelivered=int(self.waiting[number]),
                    held=2 * sum(drawn),
                    holding=sum(drawn),
                    added=1_000 + int(arrivals * second),
                )
            )
        return seen

    def decide(self, second: int) -> None:
        """Scale by what is seen."""
        own, *rest = self.look(second)
        size, now = self.replicas, float(second)
        shown = workload(wished=size, current=size, ready=size)
        others = []
        for number, backlog in enumerate(rest, start=1):
            meter, name = self.meters[number], f"s{number}"
            meter.observe(backlog, ready=size, workers=size, now=now)
            others.append(measure_demand(auto(), backlog, meter, name=name, ready=size, now=now))
        decision = self.autoscaler.observe(
            self.spec, shown, own, now=now, name="s0", others=tuple(others)
        )
        if decision.is_change and decision.replicas is not None:
            self.replicas = decision.replicas
            self.autoscaler.record_write(before=size, after=self.replicas, now=now)


@pytest.mark.parametrize("arrivals", [[200.0], [100.0, 100.0], [50.0, 150.0], [20.0] * 10], ids=str)
def test_the_sum_settles_at_what_all_streams_need_together(arrivals: list[float]) -> None:
    fleet = Fleet(arrivals, "Sum")
    sizes = []
    for second in range(MINUTES * 60):
        fleet.decide(second)
        sizes.append(fleet.replicas)
    # 200 entries a second are the work of four workers, and no worker is busy all the time.
    assert set(sizes[SETTLED_S:]) == {5}
    assert sum(fleet.waiting) == 0
