"""Who acts, what is planned and when a deletion ends: one answer, whatever the order of events."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import OWNERSHIP_LIFETIME, OwnerRecord, OwnershipRecord
from pelops.domain.stream_observation import StreamObservation
from pelops.policy.group.provisioning import (
    PATIENCE,
    CleanupAction,
    MissingPart,
    decide_cleanup,
    decide_conflict,
    decide_finalizer,
    plan_provisioning,
)
from tests.builders import NOW, group, later, owner, resource, stream
from tests.properties.strategies import OWNER, STREAM, UNTIL

START = st.sampled_from(["Beginning", "End", "7-0"])


def applied(
    seen: StreamObservation, missing: tuple[MissingPart, ...], by: OwnerRecord
) -> StreamObservation:
    """What the provisioning script leaves behind."""
    return replace(
        seen,
        exists=seen.exists or MissingPart.GROUP in missing,
        group=group() if MissingPart.GROUP in missing else seen.group,
        dead_letter_exists=seen.dead_letter_exists or MissingPart.DEAD_LETTERS in missing,
        owns_dead_letters=seen.owns_dead_letters or MissingPart.DEAD_LETTERS in missing,
        ledger_exists=seen.ledger_exists or MissingPart.LEDGER in missing,
        ownership=OwnershipRecord(owner=by, owned_until=NOW + OWNERSHIP_LIFETIME)
        if MissingPart.OWNERSHIP in missing
        else seen.ownership,
    )


@given(STREAM, OWNER, START, st.booleans())
def test_after_a_plan_is_applied_nothing_is_left_to_plan(
    seen: StreamObservation, by: OwnerRecord, start: str, existed: bool
) -> None:
    """Invariant 9."""
    spec = resource(start_from=start).spec
    plan = plan_provisioning(spec, seen, by, was_created=existed)
    after = applied(seen, plan.missing, by)
    assert plan_provisioning(spec, after, by, was_created=True).missing == ()
    assert after.is_provisioned


@given(STREAM, OWNER, START)
def test_a_group_that_is_created_again_skips_no_entry(
    seen: StreamObservation, by: OwnerRecord, start: str
) -> None:
    plan = plan_provisioning(resource(start_from=start).spec, seen, by, was_created=True)
    assert plan.start == EntryId.MIN


@given(STREAM, OWNER, OWNER, UNTIL)
def test_the_owner_of_a_group_never_has_a_conflict(
    seen: StreamObservation, by: OwnerRecord, other: OwnerRecord, until: datetime
) -> None:
    mine = OwnershipRecord(owner=by, owned_until=until)
    assert decide_conflict(mine, by, NOW) is None
    finding = decide_conflict(OwnershipRecord(owner=other, owned_until=until), by, NOW)
    if finding is not None:
        assert f"{other.namespace}/{other.name}" in finding.message
        assert finding.is_terminal


@given(OWNER, OWNER)
def test_of_two_resources_on_one_group_exactly_one_acts(
    one: OwnerRecord, other: OwnerRecord
) -> None:
    if one.uid == other.uid:
        return
    # Two objects of one name never exist together; their creation times show which one does.
    is_successor = one.cluster == other.cluster != "" and (one.namespace, one.name) == (
        other.namespace,
        other.name,
    )
    if is_successor and one.created == other.created:
        return
    held = {one.uid: one, other.uid: other}
    gives_way = [
        mine.uid
        for mine, theirs in ((one, other), (other, one))
        if decide_conflict(
            OwnershipRecord(owner=theirs, owned_until=NOW + OWNERSHIP_LIFETIME), mine, NOW
        )
        is not None
    ]
    assert len(gives_way) == 1
    loser = held[gives_way[0]]
    winner = one if loser is other else other
    if is_successor:
        assert winner.created > loser.created
    else:
        assert (winner.created, winner.uid) <= (loser.created, loser.uid)


@given(OWNER, OWNER, st.integers(-9, 9))
def test_an_expired_or_far_future_ownership_record_does_not_conflict(
    one: OwnerRecord, other: OwnerRecord, holds: int
) -> None:
    left = holds * OWNERSHIP_LIFETIME
    if timedelta(0) < left <= 2 * OWNERSHIP_LIFETIME:
        return
    assert decide_conflict(OwnershipRecord(owner=one, owned_until=NOW + left), other, NOW) is None


@given(UNTIL)
def test_an_own_ownership_record_that_is_not_valid_is_renewed(until: datetime) -> None:
    seen = stream(ownership=OwnershipRecord(owner=owner(), owned_until=until))
    plan = plan_provisioning(resource().spec, seen, owner(), was_created=True)
    binds = NOW < until <= NOW + 2 * OWNERSHIP_LIFETIME
    assert plan.missing == (() if binds else (MissingPart.OWNERSHIP,))


@given(st.lists(st.tuples(st.floats(0, 9), st.booleans()), min_size=30, max_size=60))
def test_a_deletion_ends_within_the_patience_whatever_fails(
    attempts: list[tuple[float, bool]],
) -> None:
    now, failure, ended = NOW, None, None
    for pause_s, succeeds in attempts:
        decision = decide_cleanup(deletes_group=True, deleted_at=NOW, failure=failure, now=now)
        if decision.action is CleanupAction.LET_GO or succeeds:
            ended = now
            break
        assert decision.action is CleanupAction.DESTROY
        failure = "Redis does not answer"
        now += timedelta(seconds=pause_s)
    # Never later than the first turn after the patience is over.
    assert ended is not None or now - NOW < PATIENCE
    assert ended is None or ended - NOW <= PATIENCE + timedelta(seconds=9)


@given(st.integers(0, 100), st.none() | st.text())
def test_a_group_is_never_left_behind_untried(seconds: int, failure: str | None) -> None:
    decision = decide_cleanup(
        deletes_group=True,
        deleted_at=NOW,
        failure=failure,
        now=later(seconds=seconds),
    )
    lets_go = failure is not None and later(seconds=seconds) >= NOW + PATIENCE
    assert (decision.action is CleanupAction.LET_GO) == lets_go


@given(st.booleans(), st.booleans())
def test_a_finalizer_is_settled_after_one_write(deletes_group: bool, has_finalizer: bool) -> None:
    wanted = decide_finalizer(deletes_group=deletes_group, has_finalizer=has_finalizer)
    after = has_finalizer if wanted is None else wanted
    assert after == deletes_group
    assert decide_finalizer(deletes_group=deletes_group, has_finalizer=after) is None
