"""An audit becomes a CronJob, and the findings of its job are reported where people look."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from local_cluster.nodes import Node
from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import GroupKeys, audit_index_key, derive_keys
from tests.audits import a_summary, a_window
from tests.e2e.auditing import (
    AUDIT,
    JOB,
    an_audit,
    apply_audit,
    await_audit,
    await_reason,
    env_of,
    own_job,
    record,
    run_now,
)
from tests.e2e.declaring import (
    NAME,
    WAIT_S,
    a_spec,
    await_absence,
    await_object,
    get,
    patch,
)
from tests.operators import Operators, Resources, metrics


@pytest.fixture
def keys(resources: Resources, redis_86: RedisServers, stream: str) -> GroupKeys:
    """The keys of a group that is declared and ready."""
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    return derive_keys(stream, NAME)


@pytest.fixture
def audited(keys: GroupKeys, resources: Resources) -> GroupKeys:
    """The same, with an audit that waits for its schedule."""
    apply_audit(resources, an_audit(NAME))
    await_reason(resources, "Ready", "Scheduled")
    return keys


def verdict_of(audit: dict[str, Any]) -> dict[str, Any] | None:
    """The one group of an audit, once there is a verdict on it."""
    (group,) = audit["status"].get("groups") or [{}]
    return group if "verdict" in group else None


def test_an_audit_becomes_a_cron_job_that_it_owns(
    audited: GroupKeys, resources: Resources, redis_86: RedisServers
) -> None:
    job, audit = get(resources, "cronjob", JOB), get(resources, "saudit", AUDIT)
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("StreamAudit", audit["metadata"]["uid"])
    spec = job["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("0 0 29 2 *", "Forbid")
    assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 3600
    variables = env_of(job)
    assert variables["PELOPS_REDIS_URL"]["value"] == redis_86.url
    (group,) = json.loads(variables["PELOPS_AUDIT_GROUPS"]["value"])
    assert (group["stream"], group["group"], group["resource"]) == (audited.stream, NAME, NAME)
    assert variables["PELOPS_AUDIT_NAME"]["value"] == f"{resources.namespace}/{AUDIT}"


def test_a_recorded_summary_appears_in_conditions_columns_events_and_metrics(
    audited: GroupKeys, resources: Resources, redis_86: RedisServers, operator: Operators
) -> None:
    record(redis_86, audited, resources, a_summary(lost=2, stuck=1, dead_lettered=3))
    loss = await_reason(resources, "LossDetected", "LossDetected")
    assert audited.stream in loss["message"] and "annotate" in loss["message"]
    columns = resources.plane.kubectl("get", "saudit", AUDIT, "-n", resources.namespace).stdout
    heading, row = columns.splitlines()
    assert heading.split() == [
        *("NAME", "READY", "REASON", "VERDICT", "LOST", "STUCK", "DEAD", "WINDOW", "AGE")
    ]
    assert row.split()[:8] == [AUDIT, "True", "Scheduled", "Findings", "2", "1", "3", "0"]
    of_group = await_reason(resources, "LossDetected", "LossDetected", of=("scg", NAME))
    assert f"2 according to StreamAudit {AUDIT}" in of_group["message"]
    for name, reported in ((AUDIT, {"LossDetected", "WindowAudited"}), (NAME, {"LossDetected"})):
        wait_until(
            partial(_are_reported, resources, name, reported),
            timeout_s=WAIT_S,
            what=f"Events about {name}",
        )
    labels = f'name="{AUDIT}",namespace="{resources.namespace}",stream="{audited.stream}"'
    for port in operator.ports:
        wait_until(
            partial(_reports, port, f'group="{NAME}",{labels}}} 2.0'),
            timeout_s=WAIT_S,
            what="the metrics of every replica",
        )


def test_an_archive_that_trimming_overtakes_is_reported_until_it_has_caught_up(
    audited: GroupKeys, resources: Resources, redis_86: RedisServers
) -> None:
    for _ in range(40):
        redis_86.cli("XADD", audited.stream, "*", "f", "v")
    record(redis_86, audited, resources, a_summary())
    await_audit(resources, "a verdict", verdict_of)
    redis_86.cli("XTRIM", audited.stream, "MAXLEN", "=", "12")
    behind = await_reason(resources, "ArchiveBehindRetention", "ArchiveBehindRetention")
    assert "were trimmed before they were archived" in behind["message"]
    of = ("scg", NAME)
    await_reason(resources, "ArchiveBehindRetention", "ArchiveBehindRetention", of=of)
    record(redis_86, audited, resources, a_summary(a_window(1, entries=20)))
    await_reason(resources, "ArchiveBehindRetention", None)
    await_reason(resources, "ArchiveBehindRetention", None, of=of)


def test_an_unreadable_summary_is_reported_until_the_next_run_replaces_it(
    audited: GroupKeys, resources: Resources, redis_86: RedisServers
) -> None:
    name = f"{resources.namespace}/{AUDIT}"
    redis_86.cli("HSET", audited.audit, name, "no summary")
    failing = await_reason(resources, "AuditFailing", "SummaryUnreadable")
    assert "not valid JSON" in failing["message"]
    await_reason(resources, "AuditFailing", "SummaryUnreadable", of=("scg", NAME))
    record(redis_86, audited, resources, a_summary())
    await_reason(resources, "AuditFailing", None)


def test_a_loss_is_reported_until_a_person_has_seen_it(
    audited: GroupKeys, resources: Resources, redis_86: RedisServers
) -> None:
    record(redis_86, audited, resources, a_summary(lost=2))
    await_reason(resources, "LossDetected", "LossDetected")
    record(redis_86, audited, resources, a_summary(a_window(1)))
    await_audit(resources, "window 1", lambda a: a["status"]["summary"]["window"] == 1 or None)
    await_reason(resources, "LossDetected", "LossDetected")
    acknowledge = {"metadata": {"annotations": {"pelops.dev/acknowledge": "LossDetected"}}}
    patch(resources, "saudit", AUDIT, acknowledge)
    await_reason(resources, "LossDetected", None)
    await_reason(resources, "LossDetected", None, of=("scg", NAME))
    annotations = get(resources, "saudit", AUDIT)["metadata"].get("annotations") or {}
    assert "pelops.dev/acknowledge" not in annotations
    record(redis_86, audited, resources, a_summary(a_window(2), lost=1))
    await_reason(resources, "LossDetected", "LossDetected")


def test_a_change_by_hand_is_corrected(audited: GroupKeys, resources: Resources) -> None:
    change = {"spec": {"concurrencyPolicy": "Allow", "schedule": "* * * * *"}}
    patch(resources, "cronjob", JOB, change)

    def corrected() -> bool:
        spec = get(resources, "cronjob", JOB)["spec"]
        return (spec["concurrencyPolicy"], spec["schedule"]) == ("Forbid", "0 0 29 2 *")

    wait_until(corrected, timeout_s=WAIT_S, what="the CronJob to be as asked", every_s=0.2)
    resources.plane.kubectl("delete", "cronjob", JOB, "-n", resources.namespace)
    await_object(resources, "cronjob", JOB)


def test_an_audit_that_goes_takes_its_job_and_its_record_along(
    audited: GroupKeys, resources: Resources, redis_86: RedisServers
) -> None:
    record(redis_86, audited, resources, a_summary(lost=1))
    await_reason(resources, "LossDetected", "LossDetected", of=("scg", NAME))
    resources.plane.kubectl("delete", "saudit", AUDIT, "-n", resources.namespace)
    await_absence(resources, "cronjob", JOB)
    await_reason(resources, "LossDetected", None, of=("scg", NAME))
    wait_until(
        lambda: redis_86.cli("EXISTS", audited.audit) == "0",
        timeout_s=WAIT_S,
        what="the record to be gone",
    )


def test_a_run_by_hand_has_all_it_needs_and_no_token(
    keys: GroupKeys, resources: Resources, node: Node
) -> None:
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    resources.plane.kubectl("label", "namespace", resources.namespace, restricted)
    apply_audit(resources, an_audit(NAME, template=own_job(), archive={"path": "/a/$HOME"}))
    await_reason(resources, "Ready", "Scheduled")
    run_now(resources)
    group = await_audit(resources, "a verdict", verdict_of)
    assert (group["verdict"], group["name"]) == ("Balanced", NAME)
    assert group["message"] == "Archived to /a/$HOME."


def test_a_run_of_the_schedule_is_reported(
    keys: GroupKeys, resources: Resources, node: Node
) -> None:
    apply_audit(resources, an_audit(NAME, template=own_job(), schedule="* * * * *"))
    run = await_audit(
        resources,
        "a run that ended well",
        lambda a: (a.get("status") or {}).get("run", {}).get("lastSuccessfulTime"),
        timeout_s=120.0,
    )
    assert run
    await_audit(resources, "a verdict", lambda a: a["status"]["summary"].get("verdict") or None)


def test_the_groups_of_a_pattern_are_those_that_the_job_found(
    resources: Resources, redis_86: RedisServers, stream: str, node: Node
) -> None:
    redis_86.cli("XGROUP", "CREATE", f"{stream}1", "g", "0", "MKSTREAM")
    spec = an_audit(
        groups=None,
        streamPattern=f"{stream}*",
        redis={"url": redis_86.url},
        template=own_job(),
    )
    apply_audit(resources, spec)
    await_reason(resources, "Ready", "Scheduled")
    run_now(resources)
    group = await_audit(resources, "a verdict", verdict_of)
    assert (group["stream"], group["group"]) == (f"{stream}1", "g")
    index = audit_index_key(f"{resources.namespace}/{AUDIT}")
    assert redis_86.cli("EXISTS", index) == "1"
    resources.plane.kubectl("delete", "saudit", AUDIT, "-n", resources.namespace)
    wait_until(
        lambda: redis_86.cli("EXISTS", index) == "0", timeout_s=WAIT_S, what="the index to be gone"
    )


def test_a_suspended_audit_starts_no_run_and_goes_on_reporting(
    audited: GroupKeys, resources: Resources, redis_86: RedisServers
) -> None:
    patch(resources, "saudit", AUDIT, {"spec": {"suspend": True}})
    await_reason(resources, "Suspended", "Suspended")
    wait_until(
        lambda: get(resources, "cronjob", JOB)["spec"]["suspend"],
        timeout_s=WAIT_S,
        what="the CronJob to be suspended",
    )
    record(redis_86, audited, resources, a_summary(lost=1))
    await_reason(resources, "LossDetected", "LossDetected")
    patch(resources, "saudit", AUDIT, {"spec": {"suspend": False}})
    await_reason(resources, "Suspended", None)


def _are_reported(resources: Resources, name: str, reasons: set[str]) -> bool:
    return reasons <= {event["reason"] for event in resources.events(name)}


def _reports(port: int, line: str) -> bool:
    return line in metrics(port)
