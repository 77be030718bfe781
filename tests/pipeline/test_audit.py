"""What became of every entry: audits of a real stream without an operator."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pelops.domain.records.audit import AuditEvidence, AuditVerdict
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.context import open_run
from pelops.pipeline.run import find_targets, run_archive
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
def test_a_group_that_has_acknowledged_everything_balances(audited: Audited) -> None:
    audited.create_group()
    audited.add(30)
    audited.acknowledge(*audited.deliver(30))
    summary = audited.audit_one()
    assert audited.counts(summary) == {"acknowledged_inferred": 30}
    assert summary.verdict is AuditVerdict.BALANCED
    assert summary.sentence == (
        "30 of 30 entries were delivered or passed, and are no longer pending (inferred)."
    )


def test_the_next_window_begins_where_the_last_one_ended(audited: Audited) -> None:
    audited.create_group()
    audited.add(10)
    audited.acknowledge(*audited.deliver(10))
    first = audited.audit_one()
    audited.add(7)
    second = audited.audit_one()
    assert second.window.from_id == first.window.to_id
    assert (second.window.number, second.produced) == (1, 7)
    assert audited.counts(second) == {"undelivered": 7}


@pytest.mark.full
def test_an_undelivered_entry_that_is_gone_later_is_lost(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(10)
    audited.audit_one()
    audited.client.xdel(audited.stream, *ids[:2])
    audited.acknowledge(*audited.deliver(4))
    audited.client.xtrim(audited.stream, minid=f"{FIRST_MS}-8", approximate=False)
    summary = audited.audit_one()
    assert summary.produced == 0
    later = {one.kind: one.count for one in summary.findings}
    # 0 and 1 were passed unread, 2 to 5 acknowledged, then trimmed: these look the same.
    assert later == {"lost-later": 2, "indeterminate-later": 6}
    assert (summary.lost, summary.lost_earlier) == (0, 2)
    assert summary.sentence == (
        "Nothing was added. Of earlier windows 2 are lost by now, 6 are indeterminate by now."
    )
    settled = {(row["seq"], row["status"]) for row in audited.rows("settled", 1)}
    assert {(6, "lost"), (7, "lost")} <= settled
    assert summary.open == 2


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
def test_an_entry_stuck_since_an_earlier_window_is_always_a_finding(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(5)
    read = audited.deliver(5)
    audited.acknowledge(*read[2:])
    audited.let_idle(read[0], 10_000)
    assert audited.audit_one().verdict is AuditVerdict.BALANCED
    audited.let_idle(read[0])
    audited.add(1)
    summary = audited.audit_one()
    assert (summary.produced, summary.stuck_earlier, summary.open) == (1, 1, 3)
    assert {one.kind: one.count for one in summary.findings} == {"stuck-earlier": 1}
    assert summary.verdict is AuditVerdict.FINDINGS
    assert summary.sentence.endswith(" Of earlier windows 1 is stuck.")
    audited.acknowledge(read[0])
    assert audited.audit_one().verdict is AuditVerdict.BALANCED


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
    run = open_run(audited.spark, audited.settings)
    run_archive(run, find_targets(run))
    run.watch.close()
    sent = tmp_path / "sent.csv"
    sent.write_text("key\no-1\n")
    audited.audit(business_key="number", sent=UserTable(path=str(sent), format="csv", key="key"))
    limits = audited.limits()
    assert [one for one in limits if "planned the window without a business key" in one]
    assert not [one for one in audited.limits(1) if "business key," in one]


@pytest.mark.full
def test_an_in_flight_entry_acknowledged_and_then_trimmed_is_not_lost(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(5)
    read = audited.deliver(5)
    audited.audit_one()
    audited.acknowledge(*read)
    audited.client.xtrim(audited.stream, maxlen=0, approximate=False)
    summary = audited.audit_one()
    assert summary.findings == ()
    assert summary.open == 0


@pytest.mark.full
def test_a_pending_entry_whose_body_was_deleted_is_reported(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(6)
    audited.deliver(6)
    audited.client.xdel(audited.stream, ids[3])
    audited.client.xtrim(audited.stream, minid=ids[1], approximate=False)
    summary = audited.audit_one()
    # The first was trimmed before the archive began, and 3 deleted: both are still pending.
    assert audited.counts(summary) == {"in_flight": 4, "payload_gone": 2}
    assert (summary.produced, summary.archived) == (6, 4)


@pytest.mark.full
def test_counters_distinguish_lost_entries_from_gone_payloads_before_the_archive(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(5)
    audited.acknowledge(*audited.deliver(5))
    audited.audit_one()
    ids = audited.add(10)
    audited.deliver(4)
    audited.client.xtrim(audited.stream, minid=ids[6], approximate=False)
    summary = audited.audit_one()
    assert (summary.produced, summary.archived) == (10, 4)
    assert audited.counts(summary) == {"payload_gone": 4, "lost": 2, "undelivered": 4}
    assert {"unarchived", "lost", "payload-gone"} <= {f.kind for f in summary.findings}


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


def test_a_missing_group_fails_the_audit_and_not_the_run(audited: Audited) -> None:
    audited.add(5)
    summary = audited.audit_one()
    assert summary.verdict is AuditVerdict.FAILING
    assert summary.findings[0].kind == "group-missing"
    assert sum(summary.counts.values()) == 5


def test_a_missing_stream_fails_the_audit_and_not_the_run(audited: Audited) -> None:
    summary = audited.audit_one()
    assert (summary.verdict, summary.produced) == (AuditVerdict.FAILING, 0)


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
