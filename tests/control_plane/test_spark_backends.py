"""Audits that a Spark operator runs: its kinds are served, and no Spark operator is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from pelops.kube.audit_spark import made_at
from tests.cluster_fixtures import FAST
from tests.e2e.auditing import AUDIT, JOB, an_audit, apply_audit, await_audit, await_reason
from tests.e2e.declaring import NAME, a_spec, await_absence, await_object, get
from tests.operators import ROOT, Operators, Resources

SCHEDULED = "scheduledsparkapplications"
APPLICATION = "sparkapplications.spark.apache.org"
RUN = "sparkapplications.sparkoperator.k8s.io"
MINUTES_S = 150.0
LOOKS = timedelta(seconds=5)  # of the operator, a few
# Groups below k8s.io need it.
APPROVED = {"api-approved.kubernetes.io": "https://github.com/kubeflow/spark-operator/pull/1298"}


def definition(group: str, version: str, kind: str) -> dict[str, Any]:
    """A definition that accepts any spec and status."""
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "properties": {
            part: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            for part in ("spec", "status")
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": APPROVED},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


DEFINITIONS = (
    definition("sparkoperator.k8s.io", "v1beta2", "ScheduledSparkApplication"),
    definition("sparkoperator.k8s.io", "v1beta2", "SparkApplication"),
    definition("spark.apache.org", "v1", "SparkApplication"),
)


@pytest.fixture(scope="module")
def spark_kinds(plane: ControlPlane) -> Iterator[None]:
    """The kinds of Spark operators, and the rights on them, while these tests run."""
    definitions = yaml.safe_dump_all(DEFINITIONS)
    overlay = str(ROOT / "manifests" / "overlays" / "spark-operators")
    plane.kubectl("apply", "-f", "-", stdin=definitions)
    plane.kubectl("apply", "-k", overlay)
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    yield
    plane.kubectl("delete", "-k", overlay)
    plane.kubectl("delete", "-f", "-", stdin=definitions)


@pytest.fixture(scope="module")
def operator(
    plane: ControlPlane, spark_kinds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operators]:
    """Two replicas, which must not start a run twice."""
    directory: Path = tmp_path_factory.mktemp("operator")
    with Operators(plane, directory, environment=FAST) as operators:
        operators.start(2)
        yield operators


@pytest.fixture
def resources(
    plane: ControlPlane, operator: Operators, namespace: str, redis_86: StandaloneServers
) -> Resources:
    """A namespace with a group that is ready."""
    resources = Resources(plane, namespace)
    resources.apply(NAME, a_spec(redis_86.url, f"{namespace}-orders"))
    resources.await_condition(NAME, reason="Ready")
    return resources


def backend(operator: str) -> dict[str, Any]:
    return {"type": "SparkApplication", "sparkOperator": operator}


def write_status(resources: Resources, kind: str, name: str, status: dict[str, Any]) -> None:
    """What the Spark operator would write."""
    body = json.dumps({"status": status})
    where = ("-n", resources.namespace, "--subresource=status", "--type=merge")
    resources.plane.kubectl("patch", kind, name, *where, "-p", body)


def start_run(resources: Resources, name: str) -> None:
    """What Kubeflow's operator makes of a scheduled application when it is due."""
    scheduled = get(resources, SCHEDULED, JOB)
    owner = {key: scheduled[key] for key in ("apiVersion", "kind")}
    owner |= {key: scheduled["metadata"][key] for key in ("name", "uid")}
    metadata = {
        "name": name,
        "labels": {"sparkoperator.k8s.io/scheduled-app-name": JOB},
        "ownerReferences": [owner],
    }
    resources.apply_raw(
        {
            "apiVersion": scheduled["apiVersion"],
            "kind": "SparkApplication",
            "metadata": metadata,
            "spec": scheduled["spec"]["template"],
        }
    )


def end_run(resources: Resources, name: str, state: str) -> None:
    """What Kubeflow's operator writes when a run is over."""
    status = {"applicationState": {"state": state}, "terminationTime": "2199-05-04T03:00:00Z"}
    write_status(resources, RUN, name, status)


@pytest.mark.full
def test_kubeflow_is_given_the_schedule_and_reports_its_runs(resources: Resources) -> None:
    apply_audit(resources, an_audit(NAME, backend=backend("Kubeflow")))
    scheduled = await_object(resources, SCHEDULED, JOB)
    (owner,) = scheduled["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("StreamAudit", AUDIT)
    assert scheduled["spec"]["schedule"] == "CRON_TZ=UTC 0 0 29 2 *"
    ready = await_reason(resources, "Ready", "Scheduled")
    assert f"ScheduledSparkApplication/{JOB}" in ready["message"]
    assert resources.get("cronjob", JOB) is None

    start_run(resources, "first")
    run = {"active": True}
    await_audit(resources, "a run", lambda a: run.items() <= a["status"].get("run", {}).items())
    end_run(resources, "first", "COMPLETED")
    well = "2199-05-04T03:00:00Z"
    await_audit(
        resources, "its end", lambda a: a["status"]["run"].get("lastSuccessfulTime") == well
    )


@pytest.mark.full
def test_a_run_of_kubeflow_that_failed_is_reported_once_another_has_begun(
    resources: Resources,
) -> None:
    apply_audit(resources, an_audit(NAME, backend=backend("Kubeflow")))
    await_object(resources, SCHEDULED, JOB)
    start_run(resources, "first")
    await_audit(resources, "a run", lambda a: a["status"].get("run", {}).get("active"))
    end_run(resources, "first", "FAILED")
    await_audit(resources, "its end", lambda a: not a["status"]["run"].get("active") or None)
    # Times of creation have whole seconds.
    made = made_at(get(resources, RUN, "first"))
    wait_until(
        lambda: datetime.now(UTC) - made > timedelta(seconds=1),
        timeout_s=60.0,
        what="the next second",
    )
    start_run(resources, "second")
    await_reason(resources, "AuditFailing", "RunFailed")
    await_reason(resources, "AuditFailing", "RunFailed", of=("scg", NAME))
    end_run(resources, "second", "COMPLETED")
    await_reason(resources, "AuditFailing", None)


def test_a_change_by_hand_of_a_scheduled_application_is_corrected(resources: Resources) -> None:
    apply_audit(resources, an_audit(NAME, backend=backend("Kubeflow")))
    await_object(resources, SCHEDULED, JOB)
    change = json.dumps({"spec": {"concurrencyPolicy": "Allow"}})
    where = ("-n", resources.namespace, "--type=merge")
    resources.plane.kubectl("patch", SCHEDULED, JOB, *where, "-p", change)
    wait_until(
        lambda: get(resources, SCHEDULED, JOB)["spec"]["concurrencyPolicy"] == "Forbid",
        timeout_s=60.0,
        what="the application to be as asked",
        every_s=0.2,
    )


def _is_scheduled(audit: dict[str, Any]) -> bool | None:
    reference = audit["status"]["jobRef"]
    known = (reference["apiVersion"], reference["kind"], reference["name"])
    return known == ("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", JOB) or None


@pytest.mark.full
def test_another_backend_takes_the_place_of_the_former(resources: Resources) -> None:
    apply_audit(resources, an_audit(NAME))
    await_object(resources, "cronjob", JOB)
    apply_audit(resources, an_audit(NAME, backend=backend("Kubeflow")))
    await_object(resources, SCHEDULED, JOB)
    await_absence(resources, "cronjob", JOB)
    await_audit(resources, "its job", _is_scheduled)
    apply_audit(resources, an_audit(NAME))
    await_object(resources, "cronjob", JOB)
    await_absence(resources, SCHEDULED, JOB)


def foreign(kind: str, group: str, name: str) -> dict[str, Any]:
    """An application that Pelops did not create."""
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"theirs": True, "schedule": "@yearly"},
    }


@pytest.mark.full
def test_an_application_of_another_owner_is_neither_changed_nor_deleted(
    resources: Resources,
) -> None:
    theirs = foreign("ScheduledSparkApplication", "sparkoperator.k8s.io/v1beta2", JOB)
    resources.apply_raw(theirs)
    uid = get(resources, SCHEDULED, JOB)["metadata"]["uid"]
    apply_audit(resources, an_audit(NAME, backend=backend("Kubeflow")))
    refused = await_reason(resources, "Ready", "NameTaken")
    assert (
        f"ScheduledSparkApplication {JOB} exists, but was not created for this StreamAudit"
        in str(refused)
    )
    assert get(resources, SCHEDULED, JOB)["spec"] == theirs["spec"]
    # The status records that the audit ran as an application of this name.
    apply_audit(resources, an_audit(NAME))
    await_object(resources, "cronjob", JOB)
    await_reason(resources, "Ready", "Scheduled")
    assert get(resources, SCHEDULED, JOB)["metadata"]["uid"] == uid


@pytest.mark.full
def test_an_application_that_another_owner_created_again_is_kept(
    resources: Resources,
) -> None:
    apply_audit(resources, an_audit(NAME, backend=backend("Kubeflow")))
    await_object(resources, SCHEDULED, JOB)
    theirs = foreign("ScheduledSparkApplication", "sparkoperator.k8s.io/v1beta2", JOB)
    resources.plane.kubectl("delete", "saudit", AUDIT, "-n", resources.namespace)
    await_absence(resources, SCHEDULED, JOB)
    resources.apply_raw(theirs)
    apply_audit(resources, an_audit(NAME, backend=backend("Kubeflow")))
    await_reason(resources, "Ready", "NameTaken")
    resources.plane.kubectl("delete", "saudit", AUDIT, "-n", resources.namespace)
    assert get(resources, SCHEDULED, JOB)["spec"] == theirs["spec"]


def test_the_pods_of_a_spark_operator_are_held_to_the_restricted_level(
    resources: Resources,
) -> None:
    template = {"spec": {"hostNetwork": True}}
    apply_audit(resources, an_audit(NAME, backend=backend("Kubeflow"), template=template))
    refused = await_reason(resources, "Ready", "InvalidSpec")
    assert "hostNetwork is set" in str(refused)
    assert resources.get(SCHEDULED, JOB) is None


def applications(resources: Resources) -> list[str]:
    """Names of the runs that there are, the oldest first."""
    answer = resources.plane.kubectl("get", APPLICATION, "-n", resources.namespace, "-o", "json")
    items = json.loads(answer.stdout)["items"]
    items.sort(key=made_at)
    return [item["metadata"]["name"] for item in items]


@pytest.mark.full
def test_for_apache_each_run_gets_one_application_and_none_overlap(
    resources: Resources,
) -> None:
    asked = {"backend": backend("Apache"), "schedule": "* * * * *"}
    apply_audit(resources, an_audit(NAME, **asked, suspend=True))
    await_reason(resources, "Suspended", "Suspended")
    made = start_application(resources, "first")
    apply_audit(resources, an_audit(NAME, **asked))
    await_reason(resources, "Suspended", None)
    run = {"active": True}
    await_audit(resources, "a run", lambda a: run.items() <= a["status"].get("run", {}).items())
    due = made.replace(second=0) + timedelta(minutes=1)
    wait_until(
        lambda: datetime.now(UTC) > due + LOOKS,
        timeout_s=MINUTES_S,
        what="a run to be due while another goes on",
    )
    assert applications(resources) == ["first"]
    ended = "2199-05-04T03:00:00Z"
    state = {"currentStateSummary": "ResourceReleased", "lastTransitionTime": ended}
    well = {"currentStateSummary": "Succeeded", "lastTransitionTime": ended}
    status = {"currentState": state, "stateTransitionHistory": {"0": well, "1": state}}
    write_status(resources, APPLICATION, "first", status)
    wait_until(
        lambda: len(applications(resources)) == 2, timeout_s=MINUTES_S, what="the second run"
    )
    # Of two replicas one makes it: its name is that of its minute.
    _, second = applications(resources)
    assert int(second.removeprefix(f"{JOB}-")) >= due.timestamp() // 60
    application = get(resources, APPLICATION, second)
    assert application["metadata"]["ownerReferences"][0]["name"] == AUDIT
    reported = await_audit(
        resources, "its end", lambda a: a["status"]["run"].get("lastSuccessfulTime")
    )
    assert reported == ended


def start_application(resources: Resources, name: str) -> datetime:
    """A run of the Apache operator that the audit has made before; when it was made."""
    audit = get(resources, "saudit", AUDIT)
    owner = {key: audit[key] for key in ("apiVersion", "kind")}
    owner |= {key: audit["metadata"][key] for key in ("name", "uid")}
    labels = {"pelops.dev/stream-audit": AUDIT}
    resources.apply_raw(
        {
            "apiVersion": "spark.apache.org/v1",
            "kind": "SparkApplication",
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": {"pyFiles": "local:///a.py"},
        }
    )
    return made_at(get(resources, APPLICATION, name))
