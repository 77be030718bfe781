"""Which refusals a worker logs, and how often."""

from __future__ import annotations

import pytest

from pelops.errors import PermissionDenied, RedisUnavailable
from pelops.worker.engine.observer import Observer
from pelops.worker.engine.shared import RefusalLog
from pelops.worker.server.adapter import NameTaken


def _complaints() -> tuple[RefusalLog, list[float]]:
    now = [0.0]
    return RefusalLog(Observer(), lambda: now[0]), now


def test_what_goes_on_being_refused_is_said_from_time_to_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals, now = _complaints()
    for at_s in (0.0, 1.0, 29.0, 31.0, 32.0):
        now[0] = at_s
        refusals.report("read", RedisUnavailable(f"no answer, try {at_s:g}"))
    assert [record.message for record in caplog.records] == [
        "read: RedisUnavailable: no answer, try 0; retrying",
        "read: RedisUnavailable: no answer, try 31; retrying",
    ]
    assert refusals.current == ["read: RedisUnavailable: no answer, try 32"]


def test_another_key_or_command_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals, _ = _complaints()
    for key in ("a", "a", "b"):
        refusals.report("read", PermissionDenied(f"xack on {key}", command="xack", key=key))
    assert [record.message for record in caplog.records] == [
        "read: PermissionDenied: xack on a; retrying",
        "read: PermissionDenied: xack on b; retrying",
    ]
    refusals.end("read")
    assert refusals.current == []


def test_a_name_that_is_taken_no_more_is_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    refusals, now = _complaints()
    refusals.report("read", NameTaken("another process has it"))
    now[0] = 4.0
    refusals.report("exchange", NameTaken("another process has it"))
    now[0] = 8.0
    assert refusals.current == ["name: NameTaken: another process has it"]
    now[0] = 10.0
    assert refusals.current == []
    assert caplog.records[-1].message == "name: succeeded after an error"
