"""What one scan reports: each fact once, and nothing that did not happen."""

from datetime import timedelta

import pytest

from pelops.controller.recovery.findings import MOST_EVENTS, Findings, OwnerTally
from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import EntryVerdict, LivenessReason, Offers, Trigger, no_cutoff
from pelops.policy.recovery.scan_interval import Unfinished
from tests.builders import NOW, later


def findings_of(**by_owner: OwnerTally) -> Findings:
    """A scan that did this with the entries of these owners."""
    return Findings(trigger=Trigger.SCAN, at=NOW, by_owner=by_owner)


def test_a_scan_that_did_nothing_reports_nothing() -> None:
    assert Findings(trigger=Trigger.SCAN).list_events() == []
    assert findings_of(worker=OwnerTally(why="gone")).list_events() == []


def test_dangling_pending_entries_of_live_workers_are_reported() -> None:
    """C2: a worker that claims would drop such entries without a word."""
    findings = Findings(trigger=Trigger.SCAN, dangling=2, lowest_dangling=EntryId(5, 1))
    (reported,) = findings.list_events()
    assert (reported.type, reported.reason, reported.occurrence) == (
        "Warning",
        "PendingEntryDeleted",
        "5-1",
    )
    assert "5-1" in reported.note


def test_acknowledged_and_dangling_deleted_entries_get_different_reasons() -> None:
    findings = findings_of(worker=OwnerTally(gone=1, at=NOW))
    findings.dangling, findings.lowest_dangling = 1, EntryId(5, 1)
    acknowledged, missing = findings.list_events()
    assert (acknowledged.reason, missing.reason) == ("PayloadGone", "PendingEntryDeleted")
    assert "Acknowledged" in acknowledged.note and "worker" in acknowledged.note
    assert "Acknowledged" not in missing.note


def test_the_same_bodies_are_reported_once() -> None:
    one, again = (
        Findings(trigger=Trigger.SCAN, dangling=count, lowest_dangling=EntryId(5, 1))
        for count in (1, 7)
    )
    assert one.list_events() == again.list_events()


def test_each_outcome_of_an_owners_entries_has_its_own_reason() -> None:
    tally = OwnerTally(requeued=1, dead=2, gone=3, why="it is gone", first=EntryId(7, 0))
    reported = findings_of(worker=tally).list_events()
    assert [(one.type, one.reason) for one in reported] == [
        ("Normal", "Requeued"),
        ("Warning", "DeadLettered"),
        ("Warning", "PayloadGone"),
    ]
    assert reported[0].note == "Requeued 1 entry of consumer worker: it is gone"
    assert {one.occurrence for one in reported} == {"7-0"}


@pytest.mark.parametrize(
    ("tally", "wanted"),
    [
        (OwnerTally(first=EntryId(7, 0), at=NOW), "7-0"),
        (OwnerTally(at=NOW), str(NOW)),
        (OwnerTally(), ""),
    ],
)
def test_occurrences_differ_by_the_first_entry_or_the_time(tally: OwnerTally, wanted: str) -> None:
    assert tally.occurrence == wanted


@pytest.mark.parametrize(
    ("worst", "reported"),
    [
        (OwnerTally(requeued=1), ("Normal", "Requeued")),
        (OwnerTally(dead=1), ("Warning", "DeadLettered")),
    ],
)
def test_many_owners_share_one_event(worst: OwnerTally, reported: tuple[str, str]) -> None:
    owners = {f"worker-{n}": OwnerTally(requeued=2) for n in range(MOST_EVENTS)}
    (one,) = findings_of(**owners, other=worst).list_events()
    assert (one.type, one.reason) == reported
    assert f"{MOST_EVENTS + 1} consumers" in one.note


def test_what_was_offered_is_reported() -> None:
    (reported,) = Findings(trigger=Trigger.SCAN, at=NOW, offered=2).list_events()
    assert (reported.type, reported.reason, reported.occurrence) == ("Normal", "Released", str(NOW))
    assert "2 entries" in reported.note


def test_consumers_that_were_removed_are_reported_in_one_event() -> None:
    findings = Findings(trigger=Trigger.SCAN, removed=[f"pod-{n}" for n in range(7)])
    (reported,) = findings.list_events()
    assert (reported.type, reported.reason) == ("Normal", "ConsumerRemoved")
    assert "pod-0, pod-1, pod-2, pod-3, pod-4 and 2 more" in reported.note


def test_what_a_scan_leaves_says_when_to_come_again() -> None:
    findings = findings_of(worker=OwnerTally(requeued=2))
    findings.offered, findings.waiting, findings.under_way, findings.young = 1, 4, 5, 6
    findings.earliest, findings.has_unconfirmed_ends = timedelta(seconds=7), True
    assert findings.unfinished("1-1") == Unfinished(
        retry_batch="1-1",
        waiting=4,
        under_way=5,
        young=6,
        moved=3,
        earliest=timedelta(seconds=7),
        has_unconfirmed_ends=True,
    )


def test_the_next_scan_is_due_when_the_first_end_can_be_proven() -> None:
    findings, soon = Findings(trigger=Trigger.SCAN), NOW + timedelta(seconds=7)
    for again_at in (None, NOW - timedelta(seconds=1), soon + timedelta(seconds=1), soon):
        findings.await_end(no_cutoff(LivenessReason.MAYBE_ALIVE, "", again_at=again_at), NOW)
    assert findings.earliest == timedelta(seconds=7)


def test_claimed_and_waiting_offers_are_counted_without_an_event() -> None:
    findings = Findings(trigger=Trigger.SCAN, at=NOW, offered=2)
    findings.record_offers(Offers(now=NOW, taken={"scan": 3}, untaken=5, oldest=NOW, due=NOW))
    assert [one.reason for one in findings.list_events()] == ["Released"]
    assert (findings.report().offered, findings.report().is_not_taken) == (7, False)


def test_offers_that_wait_for_too_long_are_reported() -> None:
    findings = Findings(trigger=Trigger.SCAN, at=NOW)
    findings.record_offers(
        Offers(now=later(seconds=30), untaken=5, oldest=NOW, due=later(seconds=31))
    )
    assert findings.report().is_not_taken
    assert findings.earliest == timedelta(seconds=1)


def test_stuck_is_what_a_scan_left_where_it_is() -> None:
    findings = findings_of()
    assert findings.report().stuck == 0
    findings.waiting, findings.offered = 2, 3
    findings.offers = Offers(now=NOW, untaken=4)
    stays = {
        EntryVerdict.HELD: 1,
        EntryVerdict.TOO_LARGE: 1,
        EntryVerdict.LOCKED: 9,
        EntryVerdict.TOO_YOUNG: 9,
        EntryVerdict.NOT_PENDING: 9,
    }
    findings.verdicts.update(stays)
    findings.counted = 5
    assert findings.report().stuck == 2 + 3 + 4 + 2 + 5
    findings.is_counted = False
    assert findings.report().stuck is None
