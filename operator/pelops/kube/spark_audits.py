"""An audit as an application of a Spark operator: how it should look, and how its runs went.

Kubeflow  one ScheduledSparkApplication, which starts the runs itself
Apache    one SparkApplication for each run, which the operator makes when it is due
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pelops.api.stream_audit import StreamAudit
from pelops.kube.audits import (
    AUDIT_LABEL,
    CONTAINER,
    KEPT_RUNS,
    audit_job_name,
    build_audit_owner,
    build_audit_pod,
)
from pelops.kube.client import Manifest
from pelops.kube.environment import WorkerAccess
from pelops.kube.resources import Kind
from pelops.kube.workloads import APPLIED, MANAGED_BY, fingerprint_of
from pelops.policy.audit_facts import Runs
from pelops.policy.audit_plan import AuditPlan

SCHEDULED_SPARK_APPLICATION: Final = Kind(
    group="sparkoperator.k8s.io",
    version="v1beta2",
    kind="ScheduledSparkApplication",
    plural="scheduledsparkapplications",
)
SPARK_APPLICATION: Final = Kind(
    group="spark.apache.org", version="v1", kind="SparkApplication", plural="sparkapplications"
)
MAIN_FILE: Final = "local:///opt/pelops/run_pipeline.py"
SPARK_VERSION: Final = "4.3.0"
_ACCOUNT: Final = "spark"  # unless the template names one
_SUCCEEDED: Final = "Succeeded"
_ENDED: Final = frozenset({"ResourceReleased", "TerminatedWithoutReleaseResources"})


def build_scheduled_application(
    audit: StreamAudit, plan: AuditPlan, access: WorkerAccess, *, image: str
) -> Manifest:
    """The ScheduledSparkApplication of the Kubeflow operator. Raises InvalidSpec."""
    spec = audit.spec
    pod = _driver(audit, plan, access, image)
    container = pod["spec"]["containers"][0]
    body: Manifest = {
        "apiVersion": SCHEDULED_SPARK_APPLICATION.api_version,
        "kind": SCHEDULED_SPARK_APPLICATION.kind,
        "metadata": {**_metadata(audit), "name": audit_job_name(audit.metadata.name)},
        "spec": {
            # Its cron takes a zone in front, as Go's does.
            "schedule": f"CRON_TZ={spec.time_zone} {spec.schedule}"
            if spec.time_zone
            else spec.schedule,
            "suspend": spec.suspend,
            "concurrencyPolicy": "Forbid",
            "successfulRunHistoryLimit": KEPT_RUNS,
            "failedRunHistoryLimit": KEPT_RUNS,
            "template": {
                "type": "Python",
                "pythonVersion": "3",
                "sparkVersion": SPARK_VERSION,
                "mode": "cluster",
                "image": container["image"],
                "mainApplicationFile": MAIN_FILE,
                "arguments": ["audit"],
                "restartPolicy": {"type": "Never"},
                "driver": {"template": pod, "serviceAccount": _account(audit)},
                "executor": {"template": pod, "instances": spec.backend.executors}
                if spec.backend.executors
                else {},
            },
        },
    }
    if not spec.backend.executors:
        body["spec"]["template"]["driver"]["kubernetesMaster"] = "local[*]"
    if audit.spec.image_pull_policy is not None:
        body["spec"]["template"]["imagePullPolicy"] = audit.spec.image_pull_policy.value
    body["metadata"]["annotations"] = {APPLIED: fingerprint_of(body)}
    return body


def build_application(
    audit: StreamAudit, plan: AuditPlan, access: WorkerAccess, *, image: str, due: datetime
) -> Manifest:
    """The SparkApplication of the Apache operator for the run of one minute.

    Its name depends on the minute alone, so of several replicas one makes it. Raises InvalidSpec.
    """
    pod = _driver(audit, plan, access, image)
    name = f"{audit_job_name(audit.metadata.name)}-{int(due.timestamp()) // 60}"
    return {
        "apiVersion": SPARK_APPLICATION.api_version,
        "kind": SPARK_APPLICATION.kind,
        "metadata": {**_metadata(audit), "name": name},
        "spec": {
            "pyFiles": MAIN_FILE,
            "driverArgs": ["audit"],
            "runtimeVersions": {"sparkVersion": SPARK_VERSION},
            "sparkConf": {
                "spark.kubernetes.driver.master": "local[*]",
                "spark.kubernetes.container.image": pod["spec"]["containers"][0]["image"],
                "spark.kubernetes.driver.podTemplateContainerName": CONTAINER,
                "spark.kubernetes.authenticate.driver.serviceAccountName": _account(audit),
            },
            "driverSpec": {"podTemplateSpec": pod},
            "applicationTolerations": {"resourceRetainPolicy": "Never"},
        },
    }


def scheduled_runs(live: Manifest | None) -> Runs:
    """The runs that a ScheduledSparkApplication tells of. It does not say when one ended."""
    if live is None:
        return Runs()
    status = live.get("status") or {}
    began, name = _time(status.get("lastRun")), status.get("lastRunName")
    is_success = name in (status.get("pastSuccessfulRunNames") or ())
    is_over = is_success or name in (status.get("pastFailedRunNames") or ())
    return Runs(
        exists=True,
        last_start=began,
        last_success=began if is_success else None,
        is_active=began is not None and not is_over,
    )


def application_runs(live: Sequence[Manifest]) -> Runs:
    """The runs that SparkApplications are; what makes them is the operator, which is there."""
    newest = max(live, key=made_at, default=None)
    if newest is None:
        return Runs(exists=True)
    ends = [_success_of(one) for one in live]
    return Runs(
        exists=True,
        last_start=made_at(newest),
        last_success=max((end for end in ends if end is not None), default=None),
        is_active=not has_ended(newest),
    )


def has_ended(application: Manifest) -> bool:
    """Whether a SparkApplication is over and its resources are released or kept for good."""
    state = ((application.get("status") or {}).get("currentState") or {}).get("currentStateSummary")
    return state in _ENDED


def made_at(manifest: Manifest) -> datetime:
    """When the API server took an object in."""
    return datetime.fromisoformat(manifest["metadata"]["creationTimestamp"])


def _success_of(application: Manifest) -> datetime | None:
    history = (application.get("status") or {}).get("stateTransitionHistory") or {}
    times = [
        _time(state.get("lastTransitionTime"))
        for state in history.values()
        if state.get("currentStateSummary") == _SUCCEEDED
    ]
    return max((time for time in times if time is not None), default=None)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _driver(audit: StreamAudit, plan: AuditPlan, access: WorkerAccess, image: str) -> Manifest:
    """The pod as of the CronJob, but for what the Spark operator decides: command and token."""
    pod = build_audit_pod(audit, plan, access, image=image)
    del pod["spec"]["containers"][0]["command"]
    if audit.spec.backend.executors:
        # The driver makes its executors itself.
        del pod["spec"]["automountServiceAccountToken"]
    return pod


def _metadata(audit: StreamAudit) -> Manifest:
    return {
        "namespace": audit.metadata.namespace,
        "labels": {**MANAGED_BY, AUDIT_LABEL: audit.metadata.name},
        "ownerReferences": [build_audit_owner(audit)],
    }


def _account(audit: StreamAudit) -> str:
    pod = (audit.spec.template or {}).get("spec") or {}
    return str(pod.get("serviceAccountName") or _ACCOUNT)
