"""What became of every entry: audits of a real stream without an operator."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pelops.domain.entry_id import parse_entry_id
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditEvidence, AuditVerdict
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.settings import ArchivedPayload, UserTable
from tests.pipeline.audited import FIRST_MS, GROUP, Audited


def test_every_entry_of_a_window_has_one_status(audited: Audited) -> None:
    audited.create_group()
    audited.add(100)
    read = audited.deliver(60)
    audited.acknowledge(*read[:50])
    audited.let_idle(read[50])
    summary = audited.audit_one()
    assert summary.produced == summary.archived == 100
    assert audited.counts(summary) == {
        "acknowledged_inferred": 50,
        "in_flight": 9,
        "stuck": 1,
        "undelivered": 40,
    }
    assert summary.verdict is AuditVerdict.FINDINGS
    assert summary.evidence is AuditEvidence.NONE
    assert summary.open == 50
    rows = {(row["ms"], row["seq"]): row for row in audited.rows("exceptions")}
    assert len(rows) == 50
    stuck = tuple(int(part) for part in read[50].split("-"))
    assert rows[stuck[0], stuck[1]]["status"] == "stuck"
    limits = audited.limits()
    assert any("Without the operator's ledger" in sentence for sentence in limits)


@pytest.mark.full
def test_no_entry_is_stuck_for_longer_than_it_exists(audited: Audited) -> None:
    """XCLAIM can name a delivery in 1970."""
    audited.create_group()
    (entry_id,) = audited.add(1)
    audited.deliver(1)
    audited.client.xclaim(audited.stream, audited.keys.group, "a", 0, [entry_id], time=0)
    stuck = audited.audit_one().oldest_stuck
    seconds, _ = audited.client.time()
    assert stuck is not None
    assert timedelta() < stuck <= timedelta(seconds=seconds + 1 - FIRST_MS / 1000)


@pytest.mark.full
def test_the_limits_of_a_group_name_its_first_audited_window(audited: Audited) -> None:
    audited.create_group()
    audited.add(3)
    audited.audit_one()
    audited.client.xgroup_create(audited.stream, "later", id="0")
    for number in (1, 2):
        audited.add(1)
        audited.audit(targets=(audited.target(GROUP), audited.target("later")))
        assert audited.state(number, group="later").audited_from == 1
        limits = audited.limits(number, group="later")
        assert [one for one in limits if "audited from window 1 on" in one]
        assert audited.state(number).audited_from == 0


@pytest.mark.full
def test_tables_that_a_window_without_keys_cannot_be_compared_with_are_named(
    audited: Audited, tmp_path: Path
) -> None:
    audited.create_group()
    audited.add(3)
    audited.archive_only()
    sent = tmp_path / "sent.csv"
    sent.write_text("key\no-1\n")
    audited.audit(business_key="number", sent=UserTable(path=str(sent), format="csv", key="key"))
    limits = audited.limits()
    assert [one for one in limits if "planned the window without a business key" in one]
    assert not [one for one in audited.limits(1) if "business key," in one]


@pytest.mark.full
def test_a_stream_that_was_created_again_is_a_finding(audited: Audited) -> None:
    audited.create_group()
    audited.add(20)
    audited.audit_one()
    audited.client.delete(audited.stream)
    audited.create_group()
    audited.count = 5
    audited.add(3)
    summary = audited.audit_one()
    assert summary.verdict is AuditVerdict.FAILING
    assert summary.findings[0].kind == "epoch-break"
    assert summary.produced == summary.archived == 3
    audited.count = 100
    audited.add(4)
    assert audited.audit_one().produced == 4


@pytest.mark.full
def test_groups_of_one_stream_share_an_archive_and_nothing_else(audited: Audited) -> None:
    audited.create_group()
    audited.client.xgroup_create(audited.stream, "other", id="0")
    audited.add(10)
    audited.acknowledge(*audited.deliver(10))
    both = (audited.settings.targets[0], audited.target("other"))
    ours, other = audited.audit(targets=both)
    assert (ours.group, audited.counts(ours)) == (GROUP, {"acknowledged_inferred": 10})
    assert (other.group, audited.counts(other)) == ("other", {"undelivered": 10})


def test_a_pattern_finds_groups_and_leaves_out_what_pelops_keeps(audited: Audited) -> None:
    audited.create_group()
    audited.add(3)
    audited.client.xadd(audited.keys.ledger, {"kind": "group-adopted"})
    audited.client.xgroup_create(audited.keys.retry, GROUP, id="0", mkstream=True)
    pattern = audited.prefix.replace("{", "\\{") + "*"
    (summary,) = audited.audit(targets=(), pattern=pattern)
    assert (summary.stream, summary.produced) == (audited.stream, 3)


def test_payloads_are_archived_only_when_asked_for(audited: Audited) -> None:
    audited.create_group()
    audited.add(2, name=b"\xff\x00", empty="")
    audited.audit_one()
    assert [row["fields"] for row in audited.entries()] == [None, None]
    assert all(row["hash"] and row["bytes"] == 11 for row in audited.entries())
    audited.add(1, name=b"\xff\x00", empty="")
    audited.audit_one(payload=ArchivedPayload.FULL)
    (row,) = audited.entries(1)
    kept = {one["name"]: one["value"] for one in row["fields"]}
    assert kept == {b"name": b"\xff\x00", b"empty": b""}


def test_windows_that_are_older_than_the_archive_is_kept_are_removed(audited: Audited) -> None:
    audited.create_group()
    for _ in range(4):
        audited.add(2)
        audited.audit_one(retention=timedelta(days=9))
    assert [row["window"] for row in audited.windows(WindowPhase.ARCHIVED)] == [0, 1, 2, 3]
    for number in (0, 1, 2, 3):
        audited.grow_older(number, timedelta(days=10))
    audited.add(1)
    assert audited.audit_one(retention=timedelta(days=9)).open == 9
    # The newest two stay, however old, and what the others have left open is in their statuses.
    assert {row["window"] for row in audited.entries()} == {3, 4}
    assert {row["window"] for row in audited.windows()} == {3, 4}
    assert {row["as_of"] for row in audited.statuses()} == {3, 4}
    audited.acknowledge(*audited.deliver(10))
    assert audited.audit_one().open == 0


@pytest.mark.full
def test_a_group_set_back_before_its_start_includes_entries_between(
    audited: Audited,
) -> None:
    ids = audited.add(10)
    audited.create_group(at=ids[5])
    audited.record("group-created", "position", ids[5], "why", "first", "added", 6)
    audited.deliver(4)
    audited.client.xgroup_setid(audited.stream, GROUP, id=ids[2])
    summary = audited.audit_one()
    assert audited.counts(summary) == {"undelivered": 3, "in_flight": 4}
    assert summary.window.from_id == parse_entry_id(ids[2])
    # Where it was set to stays known when it has read on.
    audited.record("position-changed", "from", ids[9], "to", ids[2], "why", "went-back")
    audited.acknowledge(*audited.deliver(7))
    again = audited.audit_one(archive=f"{audited.archive}-anew")
    assert (again.produced, again.counts[EntryStatus.IN_FLIGHT]) == (7, 0)


@pytest.mark.full
def test_copies_in_the_retry_stream_have_a_status_each(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(4)
    audited.acknowledge(*audited.deliver(4))
    client, retry = audited.client, audited.keys.retry
    client.xgroup_create(retry, GROUP, id="0", mkstream=True)
    copies = [f"{FIRST_MS + 100}-{n}" for n in range(4)]
    for copy, root in zip(copies, ids, strict=True):
        words = ("number", 1, "_original_id", root, "_retry_count", 1)
        client.execute_command("XADD", retry, copy, *words)
        audited.record("requeued", "target", retry, root, f"{copy} {root} 1 1 40")
    client.xreadgroup(GROUP, "b", {retry: ">"}, count=3)
    client.xack(retry, GROUP, copies[0], copies[2])
    client.xdel(retry, copies[2])
    client.execute_command(
        "XADD", audited.keys.ledger, "*", "kind", "dead-lettered", "stream", retry, "reason", "Bad",
        copies[2], f"9-9 {ids[2]} 1 1 40",
    )  # fmt: skip
    summary = audited.audit_one()
    assert audited.counts(summary) == {"requeued": 4}
    assert {one.kind: one.count for one in summary.findings} == {"dead-lettered-copies": 1}
    reported = {row["seq"]: (row["status"], row["root"]) for row in audited.rows("retried")}
    assert reported == {
        0: ("acknowledged_inferred", ids[0]),
        1: ("in_flight", ids[1]),
        2: ("dead_lettered", ids[2]),
        3: ("undelivered", ids[3]),
    }
    client.xack(retry, GROUP, copies[1])
    audited.audit_one()
    later = {row["seq"]: row["status"] for row in audited.rows("retried", 1)}
    assert later == {1: "acknowledged_inferred", 3: "undelivered"}


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


@pytest.mark.full
def test_an_audit_looks_at_every_window_that_was_only_archived(audited: Audited) -> None:
    audited.create_group()
    for number in (10, 20, 30):
        audited.add(number)
        audited.archive_only()
    audited.acknowledge(*audited.deliver(15))
    first, second, third, last = audited.audit()
    assert [one.window.number for one in (first, second, third, last)] == [0, 1, 2, 3]
    assert audited.counts(first) == {"acknowledged_inferred": 10}
    assert audited.counts(second) == {"acknowledged_inferred": 5, "undelivered": 15}
    assert audited.counts(third) == {"undelivered": 30}
    assert last.produced == 0
    assert last.open == 45


@pytest.mark.full
def test_what_an_archived_window_left_undelivered_is_not_lost_in_the_next(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(10)
    audited.archive_only()
    audited.add(10)
    audited.archive_only()
    summaries = audited.audit()
    assert [one.lost_earlier for one in summaries] == [0, 0, 0]
    assert summaries[-1].open == 20
