"""The sentences of an audit about lost entries and entries dropped with their consumers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pelops.clock import EPOCH
from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditEvidence, AuditSummary, AuditVerdict, Certainty, Window
from pelops.pipeline.audit.summary import Identity, SummaryInput, build_group_summary, list_broken
from pelops.policy.audit.classification import Why

WINDOW = Window(
    number=0, from_id=EntryId.MIN, to_id=EntryId(9), from_added=0, to_added=100, at=EPOCH
)


def summary(counts: dict[EntryStatus, int], **changes: Any) -> AuditSummary:
    given: dict[str, Any] = {
        "stream": "orders",
        "group": "workers",
        "window": WINDOW,
        "archived": 100,
        "counts": counts,
        "settled": {},
        "stuck_earlier": 0,
        "open": 0,
        "oldest_stuck_ms": None,
        "recovery_ms": None,
        "retention_margin": None,
        "evidence": AuditEvidence.AOF,
    }
    return build_group_summary(SummaryInput(**(given | changes)))


def test_entries_removed_after_delivery_are_not_reported_as_deleted_before_it() -> None:
    counts = {EntryStatus.ACKNOWLEDGED_PROVEN: 40, EntryStatus.LOST: 60}
    lost = {Why.DROPPED: 30, Why.SKIPPED: 20, Why.LOSS_SEEN: 4}
    (finding,) = summary(counts, lost=lost).findings
    assert finding.count == 60
    # Those of which only a count is known were counted in a gap before the position.
    assert "10 were trimmed or deleted before they were delivered" in finding.sentence
    assert "30 were delivered, and removed without an acknowledgement" in finding.sentence
    assert "20 were skipped without a delivery" in finding.sentence
    (finding,) = summary(counts, lost={Why.DROPPED: 60}).findings
    assert "deleted before they were delivered" not in finding.sentence


def test_what_may_have_gone_with_a_consumer_is_never_balanced() -> None:
    reported = summary({EntryStatus.ACKNOWLEDGED_INFERRED: 100}, dropped=15)
    assert reported.verdict is AuditVerdict.FINDINGS
    assert "with at most 15 entries pending" in reported.findings[0].sentence


def test_what_is_dead_lettered_after_its_window_is_a_finding() -> None:
    reported = summary(
        {EntryStatus.ACKNOWLEDGED_PROVEN: 100}, settled={EntryStatus.DEAD_LETTERED: 2}
    )
    assert reported.verdict is AuditVerdict.FINDINGS
    assert reported.findings[0].kind == "dead-lettered-later"


def test_an_identity_that_does_not_hold_is_a_finding_with_both_numbers() -> None:
    kept = Identity(name="roots", expected=10, found=10, sentence="{found}")
    broken = Identity(
        name="pending", expected=7, found=5, sentence="entries are pending, and {found} are open"
    )
    (finding,) = list_broken([kept, broken])
    assert (finding.kind, finding.count) == ("unbalanced-pending", 2)
    assert finding.sentence == "7 entries are pending, and 5 are open"


def test_one_entry_is_reported_in_the_singular() -> None:
    counts = {status: 1 for status in EntryStatus}
    reported = summary(
        counts,
        archived=0,
        lost={Why.DROPPED: 1},
        settled={EntryStatus.LOST: 1, EntryStatus.INDETERMINATE: 1},
        stuck_earlier=1,
        bodiless_earlier=1,
        retried={EntryStatus.LOST: 1},
        removed_before=1,
    )
    for finding in reported.findings:
        assert finding.count == 1
        assert not re.search(r"\b1 (entries|are|were|have)\b", finding.sentence)
        assert "{" not in finding.sentence
    assert not re.search(r"\b1 (entries|are|were|have)\b", reported.sentence)


def test_several_entries_are_reported_in_the_plural() -> None:
    reported = summary(
        {EntryStatus.STUCK: 2, EntryStatus.LOST: 3}, archived=0, lost={Why.SKIPPED: 3}
    )
    assert [one.sentence for one in reported.findings] == [
        "2 entries are pending for longer than the limit",
        "3 entries are lost: 3 were skipped without a delivery: the group's position was moved "
        "past them, or they were deleted first",
    ]


@pytest.mark.parametrize(
    ("proven", "inferred", "more", "sentence"),
    [
        (100, 0, {}, "100 of 100 entries were acknowledged (proven)."),
        (
            0, 100, {},
            "100 of 100 entries were delivered or passed, and are no longer pending (inferred).",
        ),
        (
            97, 1, {EntryStatus.STUCK: 2},
            "97 of 100 entries were acknowledged (proven), 1 was delivered or passed, and is no "
            "longer pending (inferred), 2 are stuck.",
        ),
        (
            0, 0, {EntryStatus.UNDELIVERED: 100},
            "0 of 100 entries were acknowledged, 100 are not delivered yet.",
        ),
    ],
)  # fmt: skip
def test_entries_that_a_group_only_passed_are_not_said_to_be_acknowledged(
    proven: int, inferred: int, more: dict[EntryStatus, int], sentence: str
) -> None:
    counts = {
        EntryStatus.ACKNOWLEDGED_PROVEN: proven,
        EntryStatus.ACKNOWLEDGED_INFERRED: inferred,
        **more,
    }
    assert summary(counts).sentence == sentence


def test_what_was_settled_counts_for_the_certainty() -> None:
    settled = {EntryStatus.ACKNOWLEDGED_INFERRED: 1}
    assert summary({}, archived=0).certainty is Certainty.PROVEN
    assert summary({}, archived=0, settled=settled).certainty is Certainty.INFERRED
    assert summary({}, archived=0, evidence=AuditEvidence.LEDGER).certainty is Certainty.INFERRED
