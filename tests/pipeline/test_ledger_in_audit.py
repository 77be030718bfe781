"""What the operator's ledger adds to an audit: ends of entries, chains of copies, losses."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pelops.clock import EPOCH
from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditEvidence, AuditSummary, AuditVerdict, Window
from pelops.domain.records.ledger import LedgerEvent, LedgerKind
from pelops.pipeline.archive.ledger import GroupHistory
from pelops.pipeline.audit.gone_entries import Gone, account_for_gone
from pelops.pipeline.context import open_run
from pelops.pipeline.run import find_targets, run_archive
from tests.pipeline.audited import FIRST_MS, Audited
from tests.pipeline.histories import history_of

WINDOW = Window(
    number=1, from_id=EntryId(10), to_id=EntryId(20), from_added=10, to_added=20, at=EPOCH
)


@pytest.mark.full
def test_ledger_events_end_entries_and_copies_count_for_their_root(
    audited: Audited,
) -> None:
    audited.create_group()
    ids = audited.add(6)
    audited.deliver(6)
    audited.acknowledge(*ids)
    copy = f"{FIRST_MS + 50}-0"
    audited.client.execute_command(
        "XADD", audited.stream, copy, "number", 0, "_original_id", ids[0], "_retry_count", 1
    )
    audited.record("bookmark", "entries_added", 7, "last_generated", copy)
    audited.record("requeued", "consumer", "a", ids[0], f"{copy} {ids[0]} 1 1 40")
    audited.record("dead-lettered", "reason", "Poison", ids[1], f"9-9 {ids[1]} 3 4 70")
    summary = audited.audit_one()
    assert summary.evidence is AuditEvidence.LEDGER
    assert audited.counts(summary) == {
        "acknowledged_inferred": 4,
        "requeued": 1,
        "dead_lettered": 1,
        "undelivered": 1,
    }
    assert summary.recovery is not None
    assert summary.recovery.p99 == timedelta(milliseconds=70)
    assert audited.report().roots == {
        "acknowledged_inferred": 4,
        "dead_lettered": 1,
        "undelivered": 1,
    }

    audited.acknowledge(*audited.deliver(1))
    audited.audit_one()
    (root,) = audited.rows("roots", 1)
    assert (root["seq"], root["status"]) == (0, "acknowledged_inferred")


@pytest.mark.full
def test_acts_that_workers_report_end_entries_and_say_nothing_else(audited: Audited) -> None:
    """Who may work for a group can write into the workers' ledger whatever it likes."""
    audited.create_group()
    ids = audited.add(4)
    audited.deliver(4)
    audited.acknowledge(*ids[:3])
    audited.record("bookmark", "entries_added", 4, "last_generated", ids[-1])
    add = ("XADD", audited.keys.worker_ledger, "*", "stream", audited.stream, "kind")
    ask = audited.client.execute_command
    ask(*add, "dead-lettered", "reason", "Poison", "actor", "a", ids[0], f"9-9 {ids[0]} 3 4 70")
    ask(*add, "payload-gone", "reason", "PayloadGone", "actor", "a", ids[1], f"9-8 {ids[1]} 0 1 7")
    ask(*add, "requeued", "consumer", "a", ids[2], f"{ids[3]} {ids[2]} 1 1 40")
    ask(*add, "data-loss", "at_least", "100", "at_most", "100", "after", "0-0", "before", "9-9")
    ask(*add, "trimmed", "count", "4", "below", ids[-1], "first_id_after", "")
    ask(*add, "group-created", "position", ids[-1], "why", "first", "added", "4")
    summary = audited.audit_one()
    assert audited.counts(summary) == {
        "acknowledged_inferred": 1,
        "dead_lettered": 1,
        "payload_gone": 1,
        "in_flight": 1,
    }


@pytest.mark.full
def test_delivery_counts_beyond_the_largest_end_no_audit(audited: Audited) -> None:
    """An older operator wrote 2^63 for the count that XNACK FATAL and XCLAIM RETRYCOUNT set."""
    audited.create_group()
    ids = audited.add(4)
    audited.deliver(4)
    audited.acknowledge(*ids[:2])
    named = (audited.keys.group, "a")
    audited.client.xclaim(
        audited.stream, *named, 0, list(ids[2:]), retrycount=2**63 - 1, justid=True
    )
    audited.client.xreadgroup(*named, {audited.stream: ids[2]})  # one more wraps to a negative one
    copy = f"{FIRST_MS + 50}-0"
    audited.client.execute_command(
        "XADD", audited.stream, copy, "number", 0, "_original_id", ids[0], "_retry_count", 1
    )
    audited.record("bookmark", "entries_added", 5, "last_generated", copy)
    audited.record("requeued", "consumer", "a", ids[0], f"{copy} {ids[0]} 1 {2**63} 40")
    add = ("XADD", audited.keys.worker_ledger, "*", "stream", audited.stream, "kind")
    words = f"9-9 {ids[1]} {10**19 - 1} {10**19 - 1} 70"
    audited.client.execute_command(*add, "dead-lettered", ids[1], words)
    summary = audited.audit_one()
    assert audited.counts(summary) == {
        "requeued": 1,
        "dead_lettered": 1,
        "in_flight": 2,
        "undelivered": 1,
    }


def audit_after_a_trim(audited: Audited, *checkpoint: str) -> AuditSummary:
    """An audit of eight entries: four were archived before their delivery, and then trimmed."""
    audited.create_group()
    ids = audited.add(8)
    audited.acknowledge(*audited.deliver(4))
    run = open_run(audited.spark, audited.settings)
    try:
        assert run_archive(run, find_targets(run)) == 8
    finally:
        run.watch.close()
    audited.acknowledge(*audited.deliver(4))
    counters = ("entries_added", 8, "last_generated", ids[7], "last_delivered", ids[7])
    audited.record("bookmark", *counters, *checkpoint)
    audited.client.xtrim(audited.stream, maxlen=0, approximate=False)
    return audited.audit()[0]


@pytest.mark.full
def test_what_was_trimmed_where_the_operator_observed_was_acknowledged(audited: Audited) -> None:
    summary = audit_after_a_trim(audited, "watched_from", "0-0")
    assert audited.counts(summary) == {"acknowledged_inferred": 8}
    assert any("after 0-0 and up to" in one for one in audited.limits())


@pytest.mark.full
def test_entries_trimmed_while_not_observed_are_indeterminate(audited: Audited) -> None:
    summary = audit_after_a_trim(audited, "watched_from", f"{FIRST_MS}-5")
    assert audited.counts(summary) == {"acknowledged_inferred": 6, "indeterminate": 2}
    assert summary.verdict is not AuditVerdict.BALANCED


@pytest.mark.full
def test_a_checkpoint_of_an_operator_that_did_not_watch_proves_nothing(audited: Audited) -> None:
    summary = audit_after_a_trim(audited)
    assert audited.counts(summary) == {"acknowledged_inferred": 4, "indeterminate": 4}
    assert any("last audit: no entries" in one for one in audited.limits())


def test_a_possible_loss_is_not_counted_as_one() -> None:
    reported = {"at_least": "0", "at_most": "4", "after": "12-0", "before": "17-0"}
    reported["cause"] = "trimmed"
    found = account_for_gone(
        Gone(missing=5, removed=15),
        WINDOW,
        history((LedgerKind.DATA_LOSS, reported)),
        "orders",
    )
    assert found == {EntryStatus.INDETERMINATE: 5}


def history(*events: tuple[LedgerKind, dict[str, str]]) -> GroupHistory:
    return history_of(*(LedgerEvent(entry_id=EntryId(1), kind=k, details=d) for k, d in events))


def test_entries_removed_without_a_ledger_event_are_indeterminate() -> None:
    gone = Gone(missing=5, removed=15)
    assert account_for_gone(gone, WINDOW, history(), "orders") == {EntryStatus.INDETERMINATE: 5}


def test_what_the_operator_saw_lost_is_lost_and_the_rest_stays_open() -> None:
    reported = {"at_least": "2", "at_most": "4", "after": "12-0", "before": "17-0"}
    again = {**reported, "at_least": "3"}
    found = account_for_gone(
        Gone(missing=5, removed=15),
        WINDOW,
        history((LedgerKind.DATA_LOSS, reported), (LedgerKind.DATA_LOSS, again)),
        "orders",
    )
    assert found == {EntryStatus.LOST: 3, EntryStatus.INDETERMINATE: 2}


def test_archived_entries_of_a_loss_are_not_counted_as_missing() -> None:
    reported = {"at_least": "3", "at_most": "3", "after": "12-0", "before": "17-0"}
    gone = Gone(missing=5, removed=15, seen=2)
    found = account_for_gone(gone, WINDOW, history((LedgerKind.DATA_LOSS, reported)), "orders")
    assert found == {EntryStatus.LOST: 1, EntryStatus.INDETERMINATE: 4}


def test_what_only_the_operator_trimmed_was_acknowledged() -> None:
    reported = {"stream": "orders", "count": "15", "first_id_after": "16-0"}
    gone, trims = Gone(missing=5, removed=15), (LedgerKind.TRIMMED, reported)
    found = account_for_gone(gone, WINDOW, history(trims), "orders")
    assert found == {EntryStatus.ACKNOWLEDGED_INFERRED: 5}
    of_copies = (LedgerKind.TRIMMED, {**reported, "stream": "{orders}:workers:retry"})
    found = account_for_gone(gone, WINDOW, history(of_copies), "orders")
    assert found == {EntryStatus.INDETERMINATE: 5}
