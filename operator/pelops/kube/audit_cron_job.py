"""The desired CronJob of an audit.

Its pod has no rights in Kubernetes and no token: everything it needs is in its environment, and it
writes its results to Redis.
"""

from __future__ import annotations

from typing import Any, Final

from pelops.api.audit.stream_audit import AUDIT_KIND, ClaimSpec, StreamAudit
from pelops.errors import InvalidSpec
from pelops.kube.client import CRON_JOB, STREAM_AUDIT, Manifest
from pelops.kube.container_environment import (
    ARCHIVE_MOUNT,
    TLS_MOUNT,
    TLS_VOLUME,
    WORK_MOUNT,
    WorkerAccess,
    build_audit_environment,
    resources_of,
    tls_volume,
)
from pelops.kube.trimmed import copy_template
from pelops.kube.worker_deployment import APPLIED, MANAGED_BY, fingerprint_of
from pelops.policy.audit.plan import AuditPlan

AUDIT_LABEL: Final = "pelops.dev/stream-audit"
CONTAINER: Final = "audit"
COMMAND: Final = ("python", "-m", "pelops.pipeline", "audit")
USER: Final = 65532
# A run that could not start in time, because the controller was down, is skipped after this.
STARTING_DEADLINE_S: Final = 300
KEPT_RUNS: Final = 3
RETRIES: Final = 2
KEPT_S: Final = 7 * 24 * 3600  # for Jobs created by hand, to which the history limits do not apply
# Sources of projected volumes that give a pod an identity.
_IDENTITIES: Final = ("serviceAccountToken", "podCertificate")
# A retry would have the same result: invalid settings, and findings.
FINAL_EXIT_CODES: Final = (2, 3, 4)


def audit_job_name(audit_name: str) -> str:
    """Return the name of the CronJob, or of the Spark operator's object, that an audit owns."""
    return f"{audit_name}-audit"


def build_cron_job(
    audit: StreamAudit, plan: AuditPlan, access: WorkerAccess, *, image: str
) -> Manifest:
    """Return the desired CronJob. `image` is used if the audit sets none.

    Raises:
        InvalidSpec: `spec.template` is not a valid pod template.
    """
    spec = audit.spec
    labels = {**MANAGED_BY, AUDIT_LABEL: audit.metadata.name}
    body: Manifest = {
        "apiVersion": CRON_JOB.api_version,
        "kind": CRON_JOB.kind,
        "metadata": {
            "name": audit_job_name(audit.metadata.name),
            "namespace": audit.metadata.namespace,
            "labels": labels,
            "ownerReferences": [build_audit_owner(audit)],
        },
        "spec": {
            "schedule": spec.schedule,
            "timeZone": spec.time_zone or "Etc/UTC",
            "suspend": spec.suspend,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": STARTING_DEADLINE_S,
            "successfulJobsHistoryLimit": KEPT_RUNS,
            "failedJobsHistoryLimit": KEPT_RUNS,
            "jobTemplate": {
                "metadata": {"labels": labels},
                "spec": {
                    "activeDeadlineSeconds": spec.active_deadline_seconds,
                    "backoffLimit": RETRIES,
                    "ttlSecondsAfterFinished": KEPT_S,
                    "podFailurePolicy": {"rules": [_no_repetition()]},
                    "template": build_audit_pod(audit, plan, access, image=image),
                },
            },
        },
    }
    # Fields removed from the desired object are detected only by this: all others still match.
    body["metadata"]["annotations"] = {APPLIED: fingerprint_of(body)}
    return body


def build_audit_owner(audit: StreamAudit) -> Manifest:
    """Return the owner reference with which the object is deleted together with the audit."""
    return {
        "apiVersion": STREAM_AUDIT.api_version,
        "kind": AUDIT_KIND,
        "name": audit.metadata.name,
        "uid": audit.metadata.uid,
        "controller": True,
    }


def _no_repetition() -> Manifest:
    codes = {"containerName": CONTAINER, "operator": "In", "values": list(FINAL_EXIT_CODES)}
    return {"action": "FailJob", "onExitCodes": codes}


def build_audit_pod(
    audit: StreamAudit, plan: AuditPlan, access: WorkerAccess, *, image: str
) -> Manifest:
    """Return the pod template: `spec.template`, with the settings that the job needs."""
    template = copy_template(audit.spec.template)
    metadata = _object_in(template, "metadata")
    labels = {**MANAGED_BY, **_object_in(metadata, "labels")}
    metadata["labels"] = {**labels, AUDIT_LABEL: audit.metadata.name}
    pod = _object_in(template, "spec")
    theirs = _objects_in(pod, "containers")
    own = next((one for one in theirs if one.get("name") == CONTAINER), {})
    others = [one for one in theirs if one is not own]
    container = _build_container(audit, own, image)
    container["env"] = _merge(build_audit_environment(audit, plan, access), _objects_in(own, "env"))
    container["volumeMounts"] = _merge(_mounts(audit, access), _objects_in(own, "volumeMounts"))
    pod.update(
        {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container, *others],
            "volumes": _merge(_volumes(audit, access), _objects_in(pod, "volumes")),
        }
    )
    pod.setdefault("securityContext", _pod_security())
    _refuse_tokens(pod)
    return template


def _refuse_tokens(pod: Manifest) -> None:
    """Raise InvalidSpec if a volume would give the job an identity in Kubernetes."""
    for volume in _objects_in(pod, "volumes"):
        projected = dict(_object_in(dict(volume), "projected"))
        for source in _objects_in(projected, "sources"):
            for kind in _IDENTITIES:
                if source.get(kind) is not None:
                    raise InvalidSpec(
                        f"in spec.template, volume {volume.get('name')} projects a {kind}, but the "
                        "job of an audit has no identity in Kubernetes: remove this source"
                    )


def _build_container(audit: StreamAudit, own: Manifest, image: str) -> Manifest:
    container: Manifest = {
        **own,
        "name": CONTAINER,
        "image": audit.spec.image or own.get("image") or image,
        "command": own.get("command") or list(COMMAND),
        "resources": resources_of(audit),
        "securityContext": own.get("securityContext") or _container_security(),
        # `kubectl describe pod` shows why a run failed.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if audit.spec.image_pull_policy is not None:
        container["imagePullPolicy"] = audit.spec.image_pull_policy.value
    return container


def _pod_security() -> Manifest:
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        # Otherwise the kubelet would visit each file of a large archive at each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container_security() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _volumes(audit: StreamAudit, access: WorkerAccess) -> list[Manifest]:
    volumes: list[Manifest] = [{"name": "work", "emptyDir": {}}]
    archive, evidence = audit.spec.archive.persistent_volume_claim, audit.spec.evidence
    if archive is not None:
        volumes.append(_claim("archive", archive))
    if evidence is not None and evidence.aof.persistent_volume_claim is not None:
        volumes.append(_claim("aof", evidence.aof.persistent_volume_claim, is_read_only=True))
    tls = tls_volume(access)
    return volumes if tls is None else [*volumes, tls]


def _claim(name: str, claim: ClaimSpec, *, is_read_only: bool = False) -> Manifest:
    source: Manifest = {"claimName": claim.claim_name}
    if is_read_only:
        source["readOnly"] = True
    return {"name": name, "persistentVolumeClaim": source}


def _mounts(audit: StreamAudit, access: WorkerAccess) -> list[Manifest]:
    mounts: list[Manifest] = [{"name": "work", "mountPath": WORK_MOUNT}]
    archive, evidence = audit.spec.archive.persistent_volume_claim, audit.spec.evidence
    if archive is not None:
        mounts.append(_mount("archive", ARCHIVE_MOUNT, archive))
    aof = evidence.aof if evidence is not None else None
    if aof is not None and aof.persistent_volume_claim is not None:
        mount = _mount("aof", aof.path, aof.persistent_volume_claim)
        mounts.append({**mount, "readOnly": True})
    if access.tls_sources:
        mounts.append({"name": TLS_VOLUME, "mountPath": TLS_MOUNT, "readOnly": True})
    return mounts


def _mount(name: str, path: str, claim: ClaimSpec) -> Manifest:
    mount = {"name": name, "mountPath": path}
    return {**mount, "subPath": claim.sub_path} if claim.sub_path else mount


def _merge(ours: list[Manifest], theirs: list[Manifest]) -> list[Manifest]:
    """Return both lists; of items with the same name, the user's (`theirs`) is used."""
    names = {one.get("name") for one in theirs}
    return [*(one for one in ours if one["name"] not in names), *theirs]


def _object_in(parent: Manifest, field: str) -> Manifest:
    found: Any = parent.get(field) or {}
    if not isinstance(found, dict):
        raise InvalidSpec(f"in spec.template, {field} must be an object; correct it")
    parent[field] = found
    return found


def _objects_in(parent: Manifest, field: str) -> list[Manifest]:
    found: Any = parent.get(field) or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise InvalidSpec(f"in spec.template, {field} must be a list of objects; correct it")
    return found
