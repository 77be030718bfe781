"""The pipeline as the Job of a StreamAudit: from `kubectl apply` to the reported conditions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from local_cluster.java import require_java
from local_cluster.nodes import Node
from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import WINDOWS
from tests.e2e.auditing import (
    AUDIT,
    JOB,
    an_audit,
    apply_audit,
    await_audit,
    await_reason,
    logs_of,
    reported_columns,
    reported_logs,
    run_now,
)
from tests.e2e.declaring import WAIT_S, get
from tests.e2e.recovering import Group
from tests.operators import ROOT, Operators, Resources

RUN_S = 300.0  # Spark takes its time on a busy machine
pytestmark = pytest.mark.timeout(4 * RUN_S)


@pytest.fixture
def group(
    resources: Resources,
    operator: Operators,
    redis_86: RedisServers,
    stream: str,
    node: Node,
    spark_jars: None,
) -> Group:
    """A declared group, in a namespace where Pod Security is as strict as it can be."""
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    resources.plane.kubectl("label", "namespace", resources.namespace, restricted)
    group = Group(resources, redis_86, stream)
    group.apply(template=None, replicas=None, recovery={"strategy": "Disabled"})
    group.resources.await_condition(group.name, reason="Ready")
    return group


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A directory that the node's processes can write to."""
    return tmp_path / "archive"


def pipeline_job(*command: str) -> dict[str, Any]:
    """A template whose job is the pipeline of this working copy, or a command in its place."""
    variables = {
        "PYTHONPATH": str(ROOT / "operator"),
        "JAVA_HOME": str(require_java()),
        # Over before the second compiler has paid for itself.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    container = {
        "name": "audit",
        "command": list(command) or [sys.executable, "-m", "pelops.pipeline", "audit"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
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


def test_the_pipeline_runs_as_an_audit_job_and_its_findings_are_reported(
    group: Group, archive: Path
) -> None:
    resources = group.resources
    group.add(100)
    group.acknowledge(group.deliver("jane", 60)[:50])
    apply_audit(resources, an_audit_at(archive, group))
    await_reason(resources, "Ready", "Scheduled")
    run_now(resources, timeout_s=RUN_S)
    first = await_audit(resources, "window 0", lambda audit: _window(audit, 0))
    assert (first["verdict"], first["produced"], first["stuck"]) == ("Balanced", 100, 0)
    assert first["message"].startswith("50 of 100 entries were delivered or passed")
    assert reported_columns(resources) == ["Balanced", "0", "0", "0", "0"]
    assert {row["window"] for row in _audited(archive)} == {0}
    assert "SPARK_LOCAL_IP" not in logs_of(resources, "now"), "it looks for another address"

    # Trimming removes entries that the group has not read and entries that are not archived yet.
    group.add(400)
    group.redis.xtrim(group.stream, maxlen=100, approximate=False)
    behind = await_reason(resources, "ArchiveBehindRetention", "ArchiveBehindRetention")
    assert f"entries of {group.stream} were trimmed before they were archived" in behind["message"]
    of = ("scg", group.name)
    await_reason(resources, "ArchiveBehindRetention", "ArchiveBehindRetention", of=of)
    run_now(resources, "again", timeout_s=RUN_S)
    newest = _newest_window(archive)
    second = await_audit(resources, f"window {newest}", lambda audit: _window(audit, newest))
    # The group was never given these: 40 of window 0, and 300 that were trimmed before they were
    # archived, as its own counters show.
    assert second["lost"] == 340
    assert reported_columns(resources)[:2] == [second["verdict"], "340"]
    assert _produced(archive) == 500
    loss = await_reason(resources, "LossDetected", "LossDetected", of=of)
    assert f"340 according to StreamAudit {AUDIT}" in loss["message"]
    # It was behind when that run began: only one that is not ends the alarm.
    await_reason(resources, "ArchiveBehindRetention", "ArchiveBehindRetention", of=of)
    # What the ledger records was archived as well: it need not wait for this audit.
    name = f"{resources.namespace}/{AUDIT}"
    assert group.redis.hget(group.keys.audit, "archived").startswith(f"{name} ")


@pytest.mark.full
def test_a_run_that_fails_is_reported_until_one_ends_well(group: Group, tmp_path: Path) -> None:
    resources = group.resources
    group.add(10)
    blocked = tmp_path / "a-file"
    blocked.write_text("no directory")
    # Each run is ended before the next would begin; what is not reported then is reported by that
    # one.
    spec = an_audit_at(blocked / "archive", group, schedule="* * * * *", activeDeadlineSeconds=45)
    apply_audit(resources, spec)
    failing = await_reason(resources, "AuditFailing", "RunFailed", timeout_s=2 * RUN_S)
    label = ("-l", f"pelops.dev/stream-audit={AUDIT}", "--tail=50")
    assert f"kubectl logs -n {resources.namespace} {' '.join(label)}" in failing["message"]
    # The next run may be about to begin, of which there is no log yet.
    why = f"the archive path {blocked / 'archive'} cannot be used"
    wait_until(
        lambda: why in reported_logs(resources, *label),
        timeout_s=WAIT_S,
        what="the log to say why",
    )
    of_group = await_reason(resources, "AuditFailing", "RunFailed", of=("scg", group.name))
    assert AUDIT in of_group["message"]
    # One by hand that ends well is as good as one of the schedule.
    apply_audit(resources, an_audit_at(tmp_path / "archive", group))
    _await_schedule(resources, an_audit()["schedule"])
    # Another run would fail as well, and only take the machine's time.
    resources.plane.kubectl("delete", "jobs", *label[:2], "-n", resources.namespace)
    run_now(resources, timeout_s=RUN_S)
    await_reason(resources, "AuditFailing", None)
    await_audit(resources, "a verdict", lambda audit: _window(audit, 0))


def _await_schedule(resources: Resources, schedule: str) -> None:
    wait_until(
        lambda: get(resources, "cronjob", JOB)["spec"]["schedule"] == schedule,
        timeout_s=WAIT_S,
        what="the CronJob to be as asked",
        every_s=0.2,
    )


def _audited(archive: Path) -> list[dict[str, Any]]:
    """What the audits have found, by window and group."""
    rows: list[dict[str, Any]] = DeltaTable(str(archive / WINDOWS)).to_pyarrow_table().to_pylist()
    return [row for row in rows if row["phase"] == WindowPhase.AUDITED and row["group"] is not None]


def _newest_window(archive: Path) -> int:
    """Its number. A run closes a window at each checkpoint of the operator, and at its own."""
    return max(int(row["window"]) for row in _audited(archive))


def _produced(archive: Path) -> int:
    """Entries that all windows together account for."""
    return sum(int(row["produced"]) for row in _audited(archive))


def _window(audit: dict[str, Any], number: int) -> dict[str, Any] | None:
    """The one group of an audit, once this window of it is reported."""
    (group,) = audit["status"].get("groups") or [{}]
    return group if group.get("window") == number else None
