"""The pipeline as the Job of a StreamAudit: from `kubectl apply` to what people are told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from local_cluster.nodes import Node
from local_cluster.redis_servers import RedisServers
from tests.e2e.auditing import (
    AUDIT,
    an_audit,
    apply_audit,
    await_audit,
    await_reason,
    run_now,
    told_columns,
)
from tests.e2e.recovering import Group
from tests.operators import ROOT, Operators, Resources

RUN_S = 300.0  # Spark takes its time on a busy machine
pytestmark = pytest.mark.timeout(4 * RUN_S)


@pytest.fixture
def group(
    resources: Resources, operator: Operators, redis_86: RedisServers, stream: str, node: Node
) -> Group:
    """A declared group, in a namespace where Pod Security is as strict as it can be."""
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    resources.plane.kubectl("label", "namespace", resources.namespace, restricted)
    group = Group(resources, redis_86, stream)
    group.apply(template=None, replicas=None, recovery={"strategy": "Off"})
    group.resources.await_condition(group.name, reason="Ready")
    return group


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A directory that the node's processes can write to."""
    return tmp_path / "archive"


def pipeline_job(*command: str) -> dict[str, Any]:
    """A template whose job is the pipeline of this working copy, or a command in its place."""
    container = {
        "name": "audit",
        "command": list(command) or [sys.executable, "-m", "pelops.pipeline", "audit"],
        "env": [{"name": "PYTHONPATH", "value": str(ROOT / "operator")}],
    }
    return {"spec": {"containers": [container]}}


def an_audit_at(archive: Path, group: Group, **more: Any) -> dict[str, Any]:
    """An audit whose windows may be as short as the time between two runs."""
    usual = {
        "archive": {"path": str(archive)},
        "template": pipeline_job(),
        "windowSeconds": 1,
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}},
    }
    return an_audit(group.name, **(usual | more))


def test_the_pipeline_runs_as_the_job_of_an_audit_and_is_told_where_people_look(
    group: Group, archive: Path
) -> None:
    resources = group.resources
    ids = group.add(100)
    group.acknowledge(group.deliver("jane", 60)[:50])
    apply_audit(resources, an_audit_at(archive, group))
    await_reason(resources, "Ready", "Scheduled")
    run_now(resources, timeout_s=RUN_S)
    first = await_audit(resources, "window 0", lambda audit: _window(audit, 0))
    assert (first["verdict"], first["produced"], first["stuck"]) == ("balanced", 100, 0)
    assert first["sentence"].startswith("50 of 100 entries were acknowledged")
    assert told_columns(resources) == [AUDIT, "0", "balanced", "0", "0", "0"]
    assert list(archive.glob("*/window=*/manifest.json"))

    # What was owed is lost, and more comes: the next run tells of both.
    group.redis.xdel(group.stream, *ids[-5:])
    group.add(20)
    run_now(resources, "again", timeout_s=RUN_S)
    newest = _newest_window(archive)
    second = await_audit(resources, f"window {newest}", lambda audit: _window(audit, newest))
    assert second["lost"] == 5
    assert told_columns(resources)[1:4] == [str(newest), second["verdict"], "5"]
    assert _produced(archive) == 120
    loss = await_reason(resources, "LossDetected", "LossDetected", of=("scg", group.name))
    assert f"5 by StreamAudit {AUDIT}" in loss["message"]
    # What the ledger tells was archived as well: it need not wait for this audit.
    name = f"{resources.namespace}/{AUDIT}"
    assert group.redis.hget(group.keys.audit, "archived").startswith(f"{name} ")


def test_a_run_that_fails_is_told_with_its_reason(group: Group, tmp_path: Path) -> None:
    resources = group.resources
    group.add(10)
    blocked = tmp_path / "a-file"
    blocked.write_text("no directory")
    # Each run is ended before the next would begin; what is not told then is told by that one.
    spec = an_audit_at(blocked / "archive", group, schedule="* * * * *", deadlineSeconds=45)
    apply_audit(resources, spec)
    failing = await_reason(resources, "AuditFailing", "RunFailed", timeout_s=2 * RUN_S)
    assert "kubectl logs" in failing["message"]
    of_group = await_reason(resources, "AuditFailing", "RunFailed", of=("scg", group.name))
    assert AUDIT in of_group["message"]
    # The same audit is well again with the first run that is.
    apply_audit(resources, an_audit_at(tmp_path / "archive", group, schedule="* * * * *"))
    await_reason(resources, "AuditFailing", None, timeout_s=2 * RUN_S)
    await_audit(resources, "a verdict", lambda audit: _window(audit, 0))


def test_a_stream_that_is_trimmed_before_it_is_archived_is_told_and_accounted_for(
    group: Group, archive: Path
) -> None:
    resources = group.resources
    group.add(400)
    apply_audit(resources, an_audit_at(archive, group))
    await_reason(resources, "Ready", "Scheduled")
    run_now(resources, timeout_s=RUN_S)
    await_audit(resources, "window 0", lambda audit: _window(audit, 0))
    group.add(400)
    group.redis.xtrim(group.stream, maxlen=100, approximate=False)
    behind = await_reason(resources, "ArchiveBehindRetention", "ArchiveBehindRetention")
    assert f"entries of {group.stream} are gone that were not archived" in behind["message"]
    of = ("scg", group.name)
    await_reason(resources, "ArchiveBehindRetention", "ArchiveBehindRetention", of=of)
    run_now(resources, "again", timeout_s=RUN_S)
    newest = _newest_window(archive)
    second = await_audit(resources, f"window {newest}", lambda audit: _window(audit, newest))
    assert _produced(archive) == 800
    # The group was given none of them: those of window 0 are lost for certain.
    assert second["lost"] >= 400
    # It was behind when that run began: only one that is not ends the alarm.
    await_reason(resources, "ArchiveBehindRetention", "ArchiveBehindRetention", of=of)


def _newest_window(archive: Path) -> int:
    """Its number. A run closes a window at each bookmark of the operator, and at its own."""
    return max(int(path.name.removeprefix("window=")) for path in archive.glob("*/window=*"))


def _produced(archive: Path) -> int:
    """Entries that all windows together account for."""
    found = [json.loads(path.read_text()) for path in archive.glob("*/window=*/*/audit.json")]
    return sum(int(one["summary"]["produced"]) for one in found)


def _window(audit: dict[str, Any], number: int) -> dict[str, Any] | None:
    """The one group of an audit, once this window of it is told."""
    (group,) = audit["status"].get("groups") or [{}]
    return group if group.get("window") == number else None
