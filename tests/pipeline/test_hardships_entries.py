"""Entries, ledgers and pending records that hold what no producer in its senses would write."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditVerdict
from pelops.pipeline.settings import ArchivedPayload
from tests.pipeline.audited import FIRST_MS, GROUP, Audited
from tests.pipeline.hardships import large_windows

MOST = 2**63 - 1  # of a column of 64 bits with sign
YEAR_9999_MS = 253_370_764_800_000


def add(audited: Audited, entry_id: str, *parts: Any) -> None:
    audited.client.execute_command("XADD", audited.stream, entry_id, *parts)


@pytest.mark.full
def test_a_full_payload_is_archived_to_the_byte(audited: Audited) -> None:
    audited.create_group()
    payloads: list[list[Any]] = [
        [b"\xff\x00", b"\x00\xfe"],
        ["", ""],
        ["", "x", "", "y"],
        ["a", "1", "a", "2", "b", "3", "a", "4"],
        ["long", b"\xff" * 1_000_000],
        [part for number in range(10_000) for part in (f"f{number}", number)],
        ["_original_id", "1-1", "_retry_count", "nonsense"],
        ["_original_id", "5-5"],
        ["_original_id", "1-0", "_retry_count", 1, "b", 9],
    ]
    for number, parts in enumerate(payloads, 1):
        add(audited, f"{number}-0", *parts)
    summary = audited.audit_one(payload=ArchivedPayload.FULL, business_key="a")
    assert audited.counts(summary) == {"undelivered": len(payloads)}
    rows = {row["ms"]: row for row in audited.entries()}
    for number, parts in enumerate(payloads, 1):
        wanted = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
        kept = [part for one in rows[number]["fields"] for part in (one["name"], one["value"])]
        assert kept == wanted
        assert rows[number]["bytes"] == sum(map(len, wanted))
    # Of a field that is repeated the last value counts; no entry is a copy.
    assert rows[4]["key"] == "4"
    assert not any(row["root_ms"] for row in rows.values())


@pytest.mark.full
def test_ids_at_every_end_are_audited_and_reported(audited: Audited) -> None:
    ids = ["0-1", "0-2", f"5-{MOST}", f"{YEAR_9999_MS}-7", f"{YEAR_9999_MS + 10**9}-0"]
    ids += [f"{MOST - 1}-0", f"{MOST}-{MOST}"]
    audited.create_group()
    for entry_id in ids:
        add(audited, entry_id, "number", 1)
    audited.deliver(6)
    audited.acknowledge(ids[0])
    # Delivered, as its record says, in a hundred years.
    words = ("XCLAIM", audited.stream, GROUP, "a", 0, ids[1], "TIME", 4_900_000_000_000)
    audited.client.execute_command(*words)
    audited.let_idle(ids[3], 86_400_000)
    _keep_odd_ledger(audited, ids)
    summary = audited.audit_one(name="shop/nightly")
    assert audited.counts(summary) == {
        "acknowledged_inferred": 1, "in_flight": 2, "stuck": 1, "undelivered": 1,
        "dead_lettered": 1, "requeued": 1,
    }  # fmt: skip
    assert summary.produced == 7
    page = audited.write_report(name="shop/nightly").read_text()
    assert "NaN" not in page
    assert f"{YEAR_9999_MS}-7" in page
    # The next window has a stream whose clock cannot go on, and checkpoints of another age.
    audited.acknowledge(*ids)
    again = audited.audit_one(name="shop/nightly")
    assert again.produced == 0
    assert again.verdict is AuditVerdict.BALANCED


def _keep_odd_ledger(audited: Audited, ids: list[str]) -> None:
    """A ledger whose events lie at both ends of time, and report entries that do too."""
    past = ("kind", "requeued", "stream", audited.stream, "consumer", "a")
    copy = f"{2**64 - 1}-{2**64 - 1}"
    audited.client.execute_command(
        "XADD", audited.keys.ledger, "0-1", *past, ids[2], f"{copy} {ids[2]} 1 1 40"
    )
    reported = ("entries_added", 3, "last_generated", ids[2])
    audited.record("bookmark", *reported, entry_id=f"{YEAR_9999_MS + 5}-0")
    audited.record(
        "dead-lettered", "reason", "Poison", ids[5], f"9-9 {ids[5]} 3 4 70", entry_id=f"{MOST}-0"
    )


@pytest.mark.full
def test_entries_with_ids_that_no_column_holds_are_counted_as_indeterminate(
    audited: Audited,
) -> None:
    audited.create_group()
    ids = audited.add(3)
    for entry_id in (f"{2**63}-0", f"{2**64 - 1}-{2**64 - 1}"):
        add(audited, entry_id, "number", 1)
    audited.deliver(4)
    audited.acknowledge(*ids)
    summary = audited.audit_one()
    assert audited.counts(summary) == {"acknowledged_inferred": 3, "indeterminate": 2}
    assert summary.produced == 5
    assert summary.verdict is AuditVerdict.FINDINGS
    assert [one.count for one in summary.findings if one.kind == "ids-beyond-range"] == [2]
    assert "unarchived" not in {one.kind for one in summary.findings}
    # The stream's clock cannot go back: nothing more can be added, and nothing is reported twice.
    again = audited.audit_one()
    assert again.produced == 0


@pytest.mark.full
@pytest.mark.parametrize("is_large", [False, True])
def test_entries_with_sequence_numbers_that_no_column_holds_are_counted_as_indeterminate(
    audited: Audited, is_large: bool
) -> None:
    """They are there: whatever the operator trimmed, they are not among it."""
    audited.create_group()
    ids = audited.add(4)
    large = [f"{FIRST_MS}-{2**63}", f"{FIRST_MS}-{2**64 - 1}", f"{FIRST_MS + 1}-{2**63}"]
    for entry_id in (*large, f"{FIRST_MS + 2}-{MOST}"):
        add(audited, entry_id, "number", 1)
    audited.acknowledge(*audited.deliver(5)[:4])
    audited.record("dead-lettered", "reason", "Poison", large[0], f"9-9 {large[0]} 3 4 70")
    audited.acknowledge(large[0])
    audited.client.xtrim(audited.stream, minid=ids[2], approximate=False)
    audited.record("trimmed", "count", 2, "below", ids[2], "first_id_after", ids[2])
    with large_windows() if is_large else nullcontext():
        summary = audited.audit_one()
    assert audited.counts(summary) == {
        "acknowledged_inferred": 4, "indeterminate": 3, "undelivered": 1,
    }  # fmt: skip
    reported = {one.kind: one.count for one in summary.findings}
    assert reported == {"ids-beyond-range": 3, "indeterminate": 3}


@pytest.mark.full
def test_append_only_files_may_name_entries_that_no_column_holds(witnessed: Audited) -> None:
    witnessed.create_group()
    ids = witnessed.add(3)
    large = [f"{FIRST_MS}-{2**63}", f"{FIRST_MS}-{2**64 - 1}", f"{2**63}-0"]
    for entry_id in large:
        add(witnessed, entry_id, "number", 1)
    witnessed.acknowledge(*witnessed.deliver(5)[:4])
    summary = witnessed.audit_one()
    assert witnessed.counts(summary) == {"acknowledged_proven": 3, "indeterminate": 3}
    reported = {one.kind: one.count for one in summary.findings}
    assert reported == {"ids-beyond-range": 3, "indeterminate": 3}
    assert [row["id"] for row in witnessed.statuses()] == ids


def test_a_ledger_of_another_hand_is_no_evidence_and_no_crash(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(4)
    audited.deliver(4)
    odd: list[tuple[Any, ...]] = [
        (b"\xff", b"\xfe"),
        ("kind", "requeued"),
        ("kind", "requeued", "stream", audited.stream, ids[0], "nonsense"),
        ("kind", "dead-lettered", "stream", audited.stream, ids[1], f"x {ids[1]} -1 9e9 40"),
        ("kind", "no-such-kind", "stream", audited.stream, ids[2], f"9-9 {ids[2]} 1 1 40"),
        ("kind", "dead-lettered", "stream", "another", ids[3], f"9-9 {ids[3]} 1 1 40"),
        ("kind", "requeued", "stream", audited.stream, ids[3], f"9-9 {ids[3]} 1 {10**19} {10**19}"),
    ]
    for parts in odd:
        audited.client.execute_command("XADD", audited.keys.ledger, "*", *parts)
    summary = audited.audit_one()
    assert summary.produced == sum(summary.counts.values()) == 4
    assert summary.counts[EntryStatus.IN_FLIGHT] >= 3
