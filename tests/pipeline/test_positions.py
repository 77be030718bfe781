"""A position that no read has reached makes nothing acknowledged."""

from __future__ import annotations

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditVerdict, Certainty
from pelops.pipeline.archive.redis_reader import GroupSnapshot
from pelops.pipeline.audit.group_share import PreviousGroupState, find_position_doubt
from tests.pipeline.audited import GROUP, Audited

AT = EntryId(1000)
DELETED = EntryId(500)


def look(read: int | None = None, consumers: int = 1, given: int | None = 1000) -> GroupSnapshot:
    return GroupSnapshot(
        position=AT, pending=0, entries_read=read, consumers=consumers, given_ms=given
    )


def doubt(
    found: GroupSnapshot,
    last: GroupSnapshot | None = None,
    *,
    was_missing: bool = False,
    max_deleted: EntryId = DELETED,
    created_at: EntryId | None = None,
) -> str:
    known = PreviousGroupState(group=last, was_missing=was_missing)
    reported = find_position_doubt(found, known, max_deleted=max_deleted, created_at=created_at)
    return reported or ""


def test_a_server_that_knows_how_much_was_read_leaves_no_doubt() -> None:
    assert not doubt(look(read=7, consumers=0, given=None))


def test_a_position_that_no_consumer_can_have_reached_was_set() -> None:
    assert not doubt(look())
    assert "ever given an entry" in doubt(look(consumers=0, given=None))
    assert "since that one was added" in doubt(look(given=999))


def test_without_deletions_a_read_would_have_made_the_count_known() -> None:
    assert "does not know how much" in doubt(look(), max_deleted=EntryId.MIN)
    # One that was unknown before stays so until a read reaches the end.
    assert not doubt(look(), look(), max_deleted=EntryId.MIN)
    assert "does not know" in doubt(look(), look(read=5), max_deleted=EntryId.MIN)


def test_a_group_that_was_created_again_is_always_in_doubt() -> None:
    assert "was created since" in doubt(look(read=7), was_missing=True)
    assert "created again" in doubt(look(consumers=0, given=None), look(read=5, consumers=1))


def test_where_the_ledger_says_that_a_group_began_it_was_set_rightly() -> None:
    nobody = look(consumers=0, given=None)
    assert not doubt(nobody, created_at=AT, was_missing=True)
    assert not doubt(look(), created_at=EntryId(1), max_deleted=EntryId.MIN, was_missing=True)
    # One that began with the first entry was set later.
    assert "does not know" in doubt(look(), created_at=EntryId.MIN, max_deleted=EntryId.MIN)


@pytest.mark.full
def test_a_group_that_never_read_has_acknowledged_nothing(audited: Audited) -> None:
    audited.add(20)
    audited.create_group(at="$")
    summary = audited.audit_one()
    assert audited.counts(summary) == {"indeterminate": 20}
    assert (summary.verdict, summary.certainty) == (AuditVerdict.UNKNOWN, Certainty.UNKNOWN)
    assert summary.sentence == "0 of 20 entries were acknowledged, 20 are indeterminate."
    (finding,) = summary.findings
    assert finding.kind == "indeterminate"
    assert "was set by XGROUP CREATE or SETID" in finding.sentence
    assert [one for one in audited.limits() if "XGROUP CREATE" in one]
    # From there on it is an ordinary group.
    audited.add(5)
    audited.acknowledge(*audited.deliver(5))
    again = audited.audit_one()
    assert (again.verdict, audited.counts(again)) == (
        AuditVerdict.BALANCED, {"acknowledged_inferred": 5},
    )  # fmt: skip


@pytest.mark.full
def test_a_group_made_again_over_what_it_held_has_acknowledged_nothing(audited: Audited) -> None:
    audited.create_group()
    audited.add(20)
    audited.deliver(14)
    audited.client.xgroup_destroy(audited.stream, GROUP)
    audited.create_group(at="$")
    summary = audited.audit_one()
    assert audited.counts(summary) == {"indeterminate": 20}
    assert summary.verdict is AuditVerdict.UNKNOWN


@pytest.mark.full
def test_a_group_made_again_between_two_audits_has_acknowledged_nothing(audited: Audited) -> None:
    audited.create_group()
    audited.add(20)
    audited.acknowledge(*audited.deliver(14)[:4])
    assert audited.audit_one().open == 16
    audited.client.xgroup_destroy(audited.stream, GROUP)
    audited.create_group(at="$")
    audited.add(3)
    summary = audited.audit_one()
    assert {one.kind: one.count for one in summary.findings} == {"indeterminate-later": 16}
    assert audited.counts(summary) == {"undelivered": 3}
    assert (summary.verdict, summary.certainty) == (AuditVerdict.UNKNOWN, Certainty.UNKNOWN)


@pytest.mark.full
def test_a_position_set_past_undelivered_entries_acknowledges_none_of_them(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(10)
    audited.acknowledge(*audited.deliver(10))
    assert audited.audit_one().verdict is AuditVerdict.BALANCED
    audited.add(10)
    audited.client.xgroup_setid(audited.stream, GROUP, "$")
    summary = audited.audit_one()
    assert audited.counts(summary) == {"indeterminate": 10}
    assert summary.counts[EntryStatus.ACKNOWLEDGED_INFERRED] == 0
