"""Audits that a Spark operator runs: its kinds are served, and no Spark operator is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.cluster_fixtures import FAST
from tests.control_plane.own_plane import own_plane
from tests.e2e.auditing import AUDIT, JOB, an_audit, apply_audit, await_audit, await_reason
from tests.e2e.declaring import NAME, a_spec, await_absence, await_object, get
from tests.operators import ROOT, Operators, Resources

SCHEDULED, APPLICATION = "scheduledsparkapplications", "sparkapplications"
MINUTES_S = 150.0
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
    definition("spark.apache.org", "v1", "SparkApplication"),
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that serves the kinds of Spark operators."""
    with own_plane(tmp_path_factory.mktemp("spark")) as plane:
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(DEFINITIONS))
        overlay = ROOT / "manifests" / "overlays" / "spark-operators"
        plane.kubectl("apply", "-k", str(overlay))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield plane


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
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


def test_kubeflow_is_given_the_schedule_and_tells_of_its_runs(resources: Resources) -> None:
    apply_audit(resources, an_audit(NAME, backend=backend("Kubeflow")))
    scheduled = await_object(resources, SCHEDULED, JOB)
    (owner,) = scheduled["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("StreamAudit", AUDIT)
    assert scheduled["spec"]["schedule"] == "0 0 29 2 *"
    ready = await_reason(resources, "Ready", "Scheduled")
    assert f"ScheduledSparkApplication/{JOB}" in ready["message"]
    assert resources.get("cronjob", JOB) is None

    failed = {"lastRun": "2026-05-04T03:00:00Z", "lastRunName": "x", "pastFailedRunNames": ["x"]}
    write_status(resources, SCHEDULED, JOB, failed)
    await_reason(resources, "AuditFailing", "RunFailed")
    await_reason(resources, "AuditFailing", "RunFailed", of=("scg", NAME))


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


def test_another_backend_takes_the_place_of_the_former(resources: Resources) -> None:
    apply_audit(resources, an_audit(NAME))
    await_object(resources, "cronjob", JOB)
    apply_audit(resources, an_audit(NAME, backend=backend("Kubeflow")))
    await_object(resources, SCHEDULED, JOB)
    await_absence(resources, "cronjob", JOB)
    await_audit(resources, "its job", lambda a: a["status"]["job"].startswith("Scheduled") or None)
    apply_audit(resources, an_audit(NAME))
    await_object(resources, "cronjob", JOB)
    await_absence(resources, SCHEDULED, JOB)


def applications(resources: Resources) -> list[str]:
    """Names of the runs that there are, the oldest first."""
    answer = resources.plane.kubectl("get", APPLICATION, "-n", resources.namespace, "-o", "json")
    items = json.loads(answer.stdout)["items"]
    return sorted(item["metadata"]["name"] for item in items)


def test_of_apaches_one_application_is_made_for_each_run_and_none_beside_it(
    resources: Resources,
) -> None:
    apply_audit(resources, an_audit(NAME, backend=backend("Apache"), schedule="* * * * *"))
    await_reason(resources, "Ready", "Scheduled")
    (first,) = wait_until(
        lambda: applications(resources), timeout_s=MINUTES_S, what="the first run"
    ) or [""]
    application = get(resources, APPLICATION, first)
    assert application["metadata"]["ownerReferences"][0]["name"] == AUDIT
    began = await_audit(resources, "a run", lambda a: a["status"].get("run", {}).get("active"))
    assert began is True
    ended = "2199-05-04T03:00:00Z"
    state = {"currentStateSummary": "ResourceReleased", "lastTransitionTime": ended}
    well = {"currentStateSummary": "Succeeded", "lastTransitionTime": ended}
    status = {"currentState": state, "stateTransitionHistory": {"0": well, "1": state}}
    write_status(resources, APPLICATION, first, status)
    wait_until(
        lambda: len(applications(resources)) == 2, timeout_s=MINUTES_S, what="the second run"
    )
    assert applications(resources)[0] == first
    run = get(resources, "saudit", AUDIT)["status"]["run"]
    assert run["lastSuccessTime"] == ended
