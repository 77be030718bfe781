"""Clocks that disagree: driver and server, and a server whose clock goes back."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pelops.clock import to_ms
from pelops.domain.records.audit import AuditEvidence
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import WINDOWS
from pelops.pipeline.archive.windows import parse_record, render_record
from tests.faults.skewing import NoFaketime, skewed_start
from tests.pipeline.audited import Audited
from tests.pipeline.test_dying_drivers import end, start

AHEAD = timedelta(hours=2)
HOUR = timedelta(hours=1)
NAME = "shop/nightly"


@pytest.mark.full
def test_the_clock_of_the_driver_does_not_matter(
    audited: Audited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited.create_group()
    audited.add(10)
    audited.deliver(6)
    log = tmp_path / "driver.log"
    try:
        with skewed_start(AHEAD.total_seconds()), monkeypatch.context() as patch:
            # Sleeping fails where one clock alone is another one; its beginning is arbitrary.
            patch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "0")
            process = start(audited, log)
    except NoFaketime as error:
        pytest.skip(str(error))
    try:
        assert process.wait(timeout=240) == 0, log.read_text()[-3000:]
    finally:
        if process.poll() is None:
            end(process)
    summary = audited.report().summary
    # By the driver's clock the deliveries would have been pending for two hours.
    assert audited.counts(summary) == {"in_flight": 6, "undelivered": 4}
    assert abs(summary.window.at.timestamp() - time.time()) < AHEAD.total_seconds() / 2


@pytest.mark.full
def test_a_clock_that_goes_back_stops_no_audit_and_hides_no_act(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(10)
    audited.deliver(6)
    # The server was two hours ahead, and the group quiet for a while before the audit.
    quiet = round((time.time() + AHEAD.total_seconds() - 600) * 1000)
    reported = ("entries_added", 10, "last_generated", ids[-1])
    audited.record("bookmark", *reported, entry_id=f"{quiet}-0")
    first = audited.audit_one(window=HOUR, name=NAME)
    assert first.evidence is AuditEvidence.LEDGER
    set_ahead(audited)
    # A failover put the clock right. The ledger continues from its last ID, before that audit.
    audited.acknowledge(*ids[:6])
    audited.record("dead-lettered", "reason", "Poison", ids[0], f"9-9 {ids[0]} 3 4 70")
    added = audited.add(5)
    audited.record("dead-lettered", "reason", "Poison", added[0], f"9-9 {added[0]} 3 4 70")
    second = audited.audit_one(window=HOUR, name=NAME)
    assert audited.counts(second) == {"dead_lettered": 1, "undelivered": 4}
    settled = [row["status"] for row in audited.rows("settled", 1)]
    assert sorted(settled) == ["acknowledged_inferred"] * 5 + ["dead_lettered"]
    # What is recorded is this window, though it ended before the other by the clock.
    assert b'"number":1' in audited.client.hget(audited.keys.audit, NAME)
    assert audited.audit(window=HOUR, name=NAME) == []


def set_ahead(audited: Audited) -> None:
    """Make the first window one that a server closed whose clock was ahead."""
    (row,) = [one for one in audited.windows(WindowPhase.AUDITED) if one["group"] is None]
    record = parse_record(row["state"])
    window = replace(record.plan.window, at=record.plan.window.at + AHEAD)
    record = replace(record, plan=replace(record.plan, window=window))
    table = DeltaTable(audited.archive_tables.place.path(WINDOWS))
    changes: dict[str, Any] = {"state": render_record(record)}
    table.update(
        new_values=changes, predicate=f"phase = '{WindowPhase.AUDITED}' AND \"group\" IS NULL"
    )
    at_ms = to_ms(window.at)
    audited.client.hset(audited.keys.audit, f"totals:{NAME}", f"{at_ms} 0 0")


@pytest.mark.full
def test_a_checkpoint_of_the_future_closes_no_window_there(audited: Audited) -> None:
    audited.create_group()
    audited.audit()
    ids = audited.add(5)
    far = f"{253_370_764_800_000 + 5}-0"
    audited.record("bookmark", "entries_added", 5, "last_generated", ids[-1], entry_id=far)
    audited.add(5)
    summaries = audited.audit(window=timedelta())
    assert sum(one.produced for one in summaries) == 10
    assert all(one.window.at.year < 9999 for one in summaries)
