"""Entries added and removed before the first archive: proven by evidence, or unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pelops.clock import EPOCH
from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditSummary, AuditVerdict, Certainty, Window
from pelops.pipeline.archive.redis_reader import GroupSnapshot
from pelops.pipeline.audit.gone_entries import count_undelivered
from pelops.pipeline.audit.group_share import GroupShare, Removed, close_balance
from tests.pipeline.audited import Audited
from tests.pipeline.hardships import be_patient


def live_before_the_first_audit(audited: Audited) -> None:
    """Of 100: 85 acknowledged, 4 deleted while pending, 5 before they were delivered."""
    audited.create_group()
    ids = audited.add(100)
    audited.acknowledge(*audited.deliver(90)[:85])
    audited.client.xdel(audited.stream, *ids[85:89], *ids[90:95])
    pairs = [part for one in ids[85:89] for part in (one, f"9-9 {one} 0 1 40")]
    # As the operator does: acknowledgement and record are one transaction.
    pipeline = audited.client.pipeline(transaction=True)
    words = ("kind", "payload-gone", "stream", audited.stream, "consumer", "a")
    pipeline.execute_command("XADD", audited.keys.ledger, "*", *words, *pairs)
    pipeline.xack(audited.stream, "workers", *ids[85:89])
    pipeline.execute()
    audited.record("bookmark", "entries_added", 100, "last_generated", ids[-1])
    audited.acknowledge(ids[89], *audited.deliver(10))


def kinds(summary: AuditSummary) -> dict[str, int]:
    return {one.kind: one.count for one in summary.findings}


def test_a_first_audit_does_not_hide_what_was_deleted_before_it(audited: Audited) -> None:
    live_before_the_first_audit(audited)
    summary = audited.audit_one()
    assert audited.counts(summary) == {"acknowledged_inferred": 91, "payload_gone": 4}
    assert summary.produced == 95
    # Only an append-only file shows that the other five were never delivered.
    assert kinds(summary) == {"payload-gone": 4, "removed-before-archive": 5}
    assert (summary.verdict, summary.certainty) == (AuditVerdict.FINDINGS, Certainty.UNKNOWN)
    assert [one for one in audited.limits() if "5 entries were added and removed before" in one]


@pytest.mark.full
def test_append_only_files_prove_how_entries_deleted_before_the_audit_ended(
    witnessed: Audited,
) -> None:
    live_before_the_first_audit(witnessed)
    summary = witnessed.audit_one()
    assert witnessed.counts(summary) == {
        "acknowledged_proven": 91, "payload_gone": 4, "lost": 5,
    }  # fmt: skip
    assert summary.produced == 100
    assert kinds(summary) == {"payload-gone": 4, "lost": 5}
    assert summary.certainty is Certainty.PROVEN


@pytest.mark.full
def test_entries_gone_before_a_group_was_set_back_are_not_lost(
    witnessed: Audited,
) -> None:
    ids = witnessed.add(10)
    witnessed.create_group(at=ids[-1])
    witnessed.client.xdel(witnessed.stream, *witnessed.add(1))
    witnessed.client.xtrim(witnessed.stream, minid=ids[4], approximate=False)
    witnessed.client.xgroup_setid(witnessed.stream, "workers", id="0")
    summary = witnessed.audit_one()
    assert witnessed.counts(summary) == {"undelivered": 6, "lost": 1}
    assert witnessed.state().gone_before == 4


@pytest.mark.full
def test_a_group_s_counters_prove_what_was_deleted_before_it_was_delivered(
    audited: Audited,
) -> None:
    be_patient(audited)
    audited.create_group()
    ids = audited.add(30)
    audited.acknowledge(*audited.deliver(20))
    audited.client.xdel(audited.stream, *ids[22:27])
    first = audited.audit_one()
    assert audited.counts(first) == {"acknowledged_inferred": 20, "undelivered": 5, "lost": 5}
    assert kinds(first) == {"lost": 5}
    audited.acknowledge(*audited.deliver(5))
    # The same in a later window, which begins at the group's position, or after it.
    for _ in range(2):
        ids = audited.add(10)
        audited.client.xdel(audited.stream, *ids[3:6])
        later = audited.audit_one()
        assert later.counts[EntryStatus.LOST] == 3
        assert later.counts[EntryStatus.INDETERMINATE] == 0
    assert later.lost_earlier == 0


@pytest.mark.full
def test_a_group_s_counters_prove_what_was_trimmed_before_it_was_delivered(
    audited: Audited,
) -> None:
    be_patient(audited)
    audited.create_group()
    ids = audited.add(30)
    audited.acknowledge(*audited.deliver(10))
    audited.client.xtrim(audited.stream, minid=ids[18], approximate=False)
    summary = audited.audit_one()
    assert audited.counts(summary) == {"undelivered": 12, "lost": 8}
    # The first ten were delivered; how they ended is unknown.
    assert kinds(summary) == {"lost": 8, "removed-before-archive": 10}


def test_numbers_that_contradict_each_other_prove_nothing() -> None:
    def count(
        read: int | None, *, at: int = 15, known: int = 3, missing: int = 9, counts: bool = True
    ) -> int:
        look = GroupSnapshot(position=EntryId(at), pending=0, entries_read=read)
        return count_undelivered(look, WINDOW, counts_trimmed=counts, known=known, missing=missing)

    assert count(15) == 2
    assert count(None) == count(15, counts=False) == count(21) == count(20, at=20) == 0
    assert count(15, known=6) == count(15, missing=1) == 0
    # Before the window all of it lies ahead.
    assert count(8, at=9) == 7
    assert count(11, at=9) == 0


@pytest.mark.full
def test_a_long_trimmed_stream_is_no_alarm_and_not_balanced_either(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(40)
    audited.acknowledge(*audited.deliver(40))
    audited.client.xtrim(audited.stream, minid=ids[30], approximate=False)
    summary = audited.audit_one()
    assert (summary.verdict, summary.certainty) == (AuditVerdict.UNKNOWN, Certainty.UNKNOWN)
    assert audited.counts(summary) == {"acknowledged_inferred": 10}
    assert kinds(summary) == {"removed-before-archive": 30}
    assert summary.sentence == (
        "10 of 10 entries were delivered or passed, and are no longer pending (inferred). "
        "30 entries were added and removed before the first archive; their outcome is unknown."
    )
    audited.add(1)
    audited.acknowledge(*audited.deliver(1))
    assert audited.audit_one().verdict is AuditVerdict.BALANCED


@pytest.mark.full
def test_what_only_the_operator_trimmed_before_the_first_audit_was_acknowledged(
    audited: Audited,
) -> None:
    audited.create_group()
    ids = audited.add(40)
    audited.acknowledge(*audited.deliver(40))
    audited.client.xtrim(audited.stream, minid=ids[30], approximate=False)
    audited.record("trimmed", "count", 30, "below", ids[30], "first_id_after", ids[30])
    summary = audited.audit_one()
    assert audited.counts(summary) == {"acknowledged_inferred": 40}
    assert (summary.produced, summary.verdict) == (40, AuditVerdict.BALANCED)
    assert summary.window.from_id == EntryId.MIN


WINDOW = Window(
    number=0, from_id=EntryId(9), to_id=EntryId(20), from_added=10, to_added=20, at=EPOCH
)


def test_what_was_removed_before_the_group_was_created_is_not_its_own() -> None:
    trimmed = Removed(entries=10, max_deleted=EntryId.MIN)
    assert trimmed.after(None, WINDOW.from_id) == 10
    assert trimmed.after(EntryId(8), WINDOW.from_id) == 10
    assert trimmed.after(EntryId(9), WINDOW.from_id) == 0
    assert Removed(entries=10, max_deleted=EntryId(15)).after(EntryId(9), WINDOW.from_id) == 10


def test_a_balance_holds_what_is_reported_and_nothing_that_is_not() -> None:
    owed = GroupShare(window=WINDOW, archived=10, removed=10)
    balance = close_balance(owed, 20, unaccounted=7)
    assert balance.unknown_before == 7
    assert balance.window == replace(WINDOW, from_id=EntryId.MIN, from_added=7)
    all_unknown = close_balance(owed, 20, unaccounted=12)
    # Two of these went between the look at the counters and the archive.
    assert (all_unknown.unknown_before, all_unknown.window) == (10, WINDOW)
