"""No groups, however odd, make a shared workload lose its workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pelops.api.group.scaling import ScalingMode
from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.scaling.demand import GroupDemand
from pelops.policy.scaling.replica_writes import ReplicaWrites
from pelops.policy.scaling.sharing import Claim, Role, decide_sharing
from tests.builders import workload
from tests.properties.test_scaling import COUNT, TURNS, Turn, backlogs, lived, scalings
from tests.scaling_cases import auto

WORKERS = st.just(0.0) | st.floats(0, 40)


@st.composite
def demands(draw: st.DrawFn) -> GroupDemand:
    """Any demand of another group, consistent with its backlog or not."""
    backlog = draw(st.none() | backlogs())
    if backlog is None or not backlog.exists:
        return GroupDemand(name="unseen")
    arrivals = draw(WORKERS)
    return GroupDemand(
        name="other",
        backlog=backlog,
        by_backlog=draw(WORKERS),
        by_drain=draw(st.none() | WORKERS),
        by_arrivals=arrivals if arrivals >= 1 else 0.0,
        arrivals=arrivals,
        is_proven=draw(st.booleans()),
        in_doubt=0 if backlog.is_exact else draw(COUNT),
        empty_since=draw(st.floats(0, 1000)) if backlog.is_empty else None,
        flood=draw(st.sampled_from([None, None, "all of it ends as dead letters"])),
        handled_s=draw(st.none() | st.floats(0, 100)),
        recovers=draw(st.booleans()),
    )


OTHERS = st.lists(demands(), min_size=1, max_size=4).map(tuple)
Others = tuple[GroupDemand, ...]


def decide(
    scaling: dict[str, Any],
    life: list[Turn],
    backlog: Backlog | None,
    others: Others,
    *,
    current: int,
) -> ScalingDecision:
    """The decision about workers that are all ready."""
    spec = auto(**scaling)
    autoscaler, now = lived(spec, life)
    seen = workload(wished=current, current=current, ready=current)
    autoscaler.writes = ReplicaWrites()
    return autoscaler.observe(spec, seen, backlog, now=now, name="leader", others=others)


@given(scalings(), TURNS, st.none() | backlogs(), OTHERS, COUNT)
def test_what_is_not_known_of_one_group_ends_no_worker(
    scaling: dict[str, Any],
    life: list[Turn],
    backlog: Backlog | None,
    others: Others,
    current: int,
) -> None:
    """Invariant 6."""
    decision = decide(scaling, life, backlog, others, current=current)
    is_own_known = backlog is not None and backlog.exists and backlog.is_exact
    if is_own_known and all(one.is_exact for one in others):
        return
    assert decision.replicas is not None
    assert decision.replicas >= min(current, scaling["maxReplicas"])


@given(scalings(), TURNS, st.none() | backlogs(), OTHERS, COUNT)
def test_the_last_worker_stays_while_one_group_is_not_idle(
    scaling: dict[str, Any],
    life: list[Turn],
    backlog: Backlog | None,
    others: Others,
    current: int,
) -> None:
    """Invariant 6."""
    decision = decide(scaling, life, backlog, others, current=current)
    if decision.replicas != 0:
        return
    seen = [one.backlog for one in others if one.is_seen]
    seen += [backlog] if backlog is not None and backlog.exists else []
    assert all(one is not None and one.is_empty for one in seen)
    if current > 0:
        assert len(seen) == len(others) + 1, "what is not known is no zero"


@given(scalings(), backlogs(), OTHERS, COUNT)
def test_the_sum_is_never_less_than_the_maximum(
    scaling: dict[str, Any], backlog: Backlog, others: Others, current: int
) -> None:
    most, total = (
        decide({**scaling, "combine": how}, [], backlog, others, current=current).replicas
        for how in ("Max", "Sum")
    )
    assert most is not None and total is not None
    assert total >= most


@given(scalings(), TURNS, backlogs(), OTHERS, COUNT)
def test_the_number_stays_within_the_bounds_of_the_leader(
    scaling: dict[str, Any], life: list[Turn], backlog: Backlog, others: Others, current: int
) -> None:
    decision = decide(scaling, life, backlog, others, current=current)
    assert decision.replicas is not None
    assert scaling["minReplicas"] <= decision.replicas <= scaling["maxReplicas"]


@given(scalings(), backlogs(), OTHERS, COUNT)
def test_the_order_of_the_groups_does_not_matter(
    scaling: dict[str, Any], backlog: Backlog, others: Others, current: int
) -> None:
    first = decide(scaling, [], backlog, others, current=current)
    again = decide(scaling, [], backlog, others[::-1], current=current)
    assert (first.replicas, first.reason) == (again.replicas, again.reason)


CLAIMS = st.lists(
    st.builds(
        Claim,
        name=st.sampled_from("abcdefgh"),
        created=st.sampled_from(["2026-05-04T03:02:01Z", "2026-05-04T03:02:02Z"]),
        is_guest=st.booleans(),
        mode=st.none() | st.sampled_from(ScalingMode),
        is_suspended=st.booleans(),
        is_ending=st.booleans(),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda claim: claim.name,
).map(lambda claims: [replace(one, uid=f"uid-{one.name}") for one in claims])


@given(CLAIMS)
def test_one_leads_and_all_agree_who(claims: list[Claim]) -> None:
    sharings = [decide_sharing(one, claims) for one in claims]
    leading = [
        one for one, sharing in zip(claims, sharings, strict=True) if sharing.role is Role.LEADS
    ]
    deciding = [one for one in claims if one.decides_replicas]
    assert len(leading) == min(1, len(deciding))
    assert {sharing.leader for sharing in sharings} == ({leading[0]} if leading else {None})
    assert all(one.order >= leading[0].order for one in deciding)
