"""The audit log is read while the API server writes it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from local_cluster.audit import AuditTrail
from local_cluster.plane import ControlPlane


def line(name: str) -> str:
    event = {
        "user": {"username": "jane"},
        "verb": "create",
        "objectRef": {"resource": "pods", "name": name},
        "stageTimestamp": "2026-01-01T00:00:00Z",
        "responseStatus": {"code": 201},
    }
    return json.dumps(event) + "\n"


def test_a_line_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    first, second, third = line("first"), line("second"), line("third")
    log.write_text(first + second[:20])
    trail = AuditTrail(cast(ControlPlane, SimpleNamespace(audit_log=log)), "jane")
    assert trail.read() == []
    log.write_text(first + second + third[:30])
    assert [one.name for one in trail.read()] == ["second"]
    assert trail.read() == []
    log.write_text(first + second + third)
    assert [one.name for one in trail.read()] == ["third"]
