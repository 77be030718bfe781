"""An audit as an application of a Spark operator: the desired object, and its runs.

Kubeflow  one ScheduledSparkApplication, which starts the runs itself
Apache    one SparkApplication for each run, which Pelops creates when it is due
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pelops.api.audit.stream_audit import StreamAudit
from pelops.domain.records.packed_parts import part_of
from pelops.errors import InvalidSpec
from pelops.kube.audit_cron_job import (
    AUDIT_LABEL,
    CONTAINER,
    KEPT_RUNS,
    audit_job_name,
    build_audit_owner,
    build_audit_pod,
)
from pelops.kube.client import Kind, Manifest
from pelops.kube.container_environment import WorkerAccess, mebibytes, resources_of
from pelops.kube.worker_deployment import APPLIED, MANAGED_BY, fingerprint_of
from pelops.policy.audit.audit_facts import Runs
from pelops.policy.audit.plan import AuditPlan

SCHEDULED_SPARK_APPLICATION: Final = Kind(
    group="sparkoperator.k8s.io",
    version="v1beta2",
    kind="ScheduledSparkApplication",
    plural="scheduledsparkapplications",
)
SPARK_APPLICATION: Final = Kind(
    group="spark.apache.org", version="v1", kind="SparkApplication", plural="sparkapplications"
)
KUBEFLOW_APPLICATION: Final = Kind(
    group="sparkoperator.k8s.io",
    version="v1beta2",
    kind="SparkApplication",
    plural="sparkapplications",
)
# Label that Kubeflow's operator sets on the applications that it creates from a scheduled one.
SCHEDULED_LABEL: Final = "sparkoperator.k8s.io/scheduled-app-name"
MAIN_FILE: Final = "local:///opt/pelops/run_pipeline.py"
SPARK_VERSION: Final = "4.2.0"
_ACCOUNT: Final = "spark"  # unless the template names one
# Kubeflow's operator looks for containers of these names in its templates, and in their pods.
_DRIVER: Final = "spark-kubernetes-driver"
_EXECUTOR: Final = "spark-kubernetes-executor"
# A run's name ends with the nanoseconds since 1970, and a label has at most 63 characters.
LONGEST_KUBEFLOW_NAME: Final = 63 - len(audit_job_name("")) - 20
# In one pod. Each task is tried three times, as a CronJob's pod is.
_MASTER: Final = "local[*,3]"
_SHARE_OF_JVM: Final = 0.75  # of the memory limit, as in the job itself
_LEAST_HEAP_MIB: Final = 512  # Spark refuses less than 450
# Resources of a pod: Kubeflow's field and Spark's setting.
_SIZES: Final = {
    "memory": "spark.driver.memory",
    "memoryOverhead": "spark.driver.memoryOverhead",
    "coreRequest": "spark.kubernetes.driver.request.cores",
    "coreLimit": "spark.kubernetes.driver.limit.cores",
}
_SUCCEEDED: Final = "Succeeded"
_ENDED: Final = frozenset({"ResourceReleased", "TerminatedWithoutReleaseResources"})
_COMPLETED: Final = "COMPLETED"  # Kubeflow's state for success
_KUBEFLOW_ENDED: Final = frozenset({_COMPLETED, "FAILED"})


def build_scheduled_application(
    audit: StreamAudit, plan: AuditPlan, access: WorkerAccess, *, image: str
) -> Manifest:
    """Return the ScheduledSparkApplication of the Kubeflow operator. Raises InvalidSpec."""
    spec = audit.spec
    if len(audit.metadata.name) > LONGEST_KUBEFLOW_NAME:
        raise InvalidSpec(
            f"with sparkOperator Kubeflow metadata.name must have at most {LONGEST_KUBEFLOW_NAME} "
            "characters, because its runs have longer names, which are label values: create a "
            "StreamAudit with a shorter name"
        )
    body: Manifest = {
        "apiVersion": SCHEDULED_SPARK_APPLICATION.api_version,
        "kind": SCHEDULED_SPARK_APPLICATION.kind,
        "metadata": {**_metadata(audit), "name": audit_job_name(audit.metadata.name)},
        "spec": {
            # Without CRON_TZ the time zone of the Spark operator's pod applies.
            "schedule": f"CRON_TZ={spec.time_zone or 'UTC'} {spec.schedule}",
            "suspend": spec.suspend,
            "concurrencyPolicy": "Forbid",
            "successfulRunHistoryLimit": KEPT_RUNS,
            "failedRunHistoryLimit": KEPT_RUNS,
            "template": _build_template(audit, _driver(audit, plan, access, image)),
        },
    }
    body["metadata"]["annotations"] = {APPLIED: fingerprint_of(body)}
    return body


def _build_template(audit: StreamAudit, pod: Manifest) -> Manifest:
    """Return the template from which Kubeflow's operator creates each run."""
    executors, sizes = audit.spec.backend.executors, _sizes(audit)
    driver = {**sizes, "template": _named(pod, _DRIVER), "serviceAccount": _account(audit)}
    executor: Manifest = {}
    if executors:
        executor = {
            **sizes,
            "template": _named(_executor(pod), _EXECUTOR),
            "instances": executors,
        }
    else:
        driver["kubernetesMaster"] = _MASTER
    pull_policy = audit.spec.image_pull_policy
    return {
        "type": "Python",
        "pythonVersion": "3",
        "sparkVersion": SPARK_VERSION,
        "mode": "cluster",
        "image": pod["spec"]["containers"][0]["image"],
        **({} if pull_policy is None else {"imagePullPolicy": pull_policy.value}),
        "mainApplicationFile": MAIN_FILE,
        "arguments": ["audit"],
        "restartPolicy": {"type": "Never"},
        "driver": driver,
        "executor": executor,
    }


def build_application(
    audit: StreamAudit, plan: AuditPlan, access: WorkerAccess, *, image: str, due: datetime
) -> Manifest:
    """Return the SparkApplication of the Apache operator for the run that is due in this minute.

    Its name depends only on the audit and the minute, so only one replica can create it. Raises
    InvalidSpec.
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
                "spark.kubernetes.driver.master": _MASTER,
                "spark.kubernetes.container.image": pod["spec"]["containers"][0]["image"],
                "spark.kubernetes.driver.podTemplateContainerName": CONTAINER,
                "spark.kubernetes.authenticate.driver.serviceAccountName": _account(audit),
                **{_SIZES[name]: size for name, size in _sizes(audit).items()},
            },
            "driverSpec": {"podTemplateSpec": pod},
            # A failed driver is kept with its application, for its log.
            "applicationTolerations": {"resourceRetainPolicy": "OnFailure"},
        },
    }


def scheduled_runs(live: Manifest | None, applications: Sequence[Manifest]) -> Runs:
    """Return the runs of a ScheduledSparkApplication, which are applications that it owns.

    Its own status reports a run's end only when the next one starts.
    """
    if live is None:
        return Runs()
    uid = live["metadata"]["uid"]
    runs = [one for one in applications if uid in _owners(one)]
    newest = max(runs, key=made_at, default=None)
    ends = [_time(one["status"].get("terminationTime")) for one in runs if _has_completed(one)]
    return Runs(
        exists=True,
        last_start=None if newest is None else made_at(newest),
        last_success=max((end for end in ends if end is not None), default=None),
        is_active=newest is not None and _kubeflow_state(newest) not in _KUBEFLOW_ENDED,
    )


def application_runs(live: Sequence[Manifest]) -> Runs:
    """Return the runs from SparkApplications. They always `exist`, as Pelops creates them."""
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
    """Whether a SparkApplication has ended, with its resources released or kept permanently."""
    state = ((application.get("status") or {}).get("currentState") or {}).get("currentStateSummary")
    return state in _ENDED


def made_at(manifest: Manifest) -> datetime:
    """Return when an object was created."""
    return datetime.fromisoformat(manifest["metadata"]["creationTimestamp"])


def _owners(manifest: Manifest) -> set[str]:
    return {str(one.get("uid")) for one in manifest["metadata"].get("ownerReferences") or ()}


def _has_completed(application: Manifest) -> bool:
    return _kubeflow_state(application) == _COMPLETED


def _kubeflow_state(application: Manifest) -> str | None:
    state: str | None = ((application.get("status") or {}).get("applicationState") or {}).get(
        "state"
    )
    return state


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
    """Return the CronJob's pod without what the Spark operator sets: command and token."""
    pod = build_audit_pod(audit, plan, access, image=image)
    del pod["spec"]["containers"][0]["command"]
    pod["spec"]["activeDeadlineSeconds"] = audit.spec.active_deadline_seconds
    if audit.spec.backend.executors:
        # The driver creates its executors, so it needs a token.
        del pod["spec"]["automountServiceAccountToken"]
    return pod


def _named(pod: Manifest, container: str) -> Manifest:
    first, *others = pod["spec"]["containers"]
    spec = {**pod["spec"], "containers": [{**first, "name": container}, *others]}
    return {**pod, "spec": spec}


def _executor(pod: Manifest) -> Manifest:
    """Return the driver's pod without deadline, and without the token that only it needs."""
    spec = {name: value for name, value in pod["spec"].items() if name != "activeDeadlineSeconds"}
    return {**pod, "spec": {**spec, "automountServiceAccountToken": False}}


def _sizes(audit: StreamAudit) -> dict[str, str]:
    """Return the resources of a pod as Spark's settings, which override those of a template."""
    resources = resources_of(audit)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    sizes = {"coreRequest": requests.get("cpu"), "coreLimit": limits.get("cpu")}
    core_sizes = {name: str(cpu) for name, cpu in sizes.items() if cpu is not None}
    memory = limits.get("memory", requests.get("memory"))
    if memory is None:
        return core_sizes
    mib = mebibytes(memory, field="in spec.resources, memory")
    heap = max(_LEAST_HEAP_MIB, int(mib * _SHARE_OF_JVM))
    return {"memory": f"{heap}m", "memoryOverhead": f"{max(0, mib - heap)}m", **core_sizes}


def _metadata(audit: StreamAudit) -> Manifest:
    return {
        "namespace": audit.metadata.namespace,
        "labels": {**MANAGED_BY, AUDIT_LABEL: audit.metadata.name},
        "ownerReferences": [build_audit_owner(audit)],
    }


def _account(audit: StreamAudit) -> str:
    pod = part_of(audit.spec.template, "spec") or {}
    return str(pod.get("serviceAccountName") or _ACCOUNT)
