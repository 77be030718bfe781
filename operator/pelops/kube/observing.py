"""Facts about workers, read from what the API server shows of Deployments, scales and pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pelops.domain.workload import PodObservation, Target, WorkloadObservation
from pelops.kube.client import Manifest
from pelops.kube.selectors import parse_label_selector


def observe_deployment(manifest: Manifest) -> WorkloadObservation:
    """The workload behind a Deployment, without its pods."""
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    return WorkloadObservation(
        target=Target(
            api_version="apps/v1",
            kind="Deployment",
            namespace=metadata["namespace"],
            name=metadata["name"],
        ),
        exists=True,
        uid=metadata.get("uid"),
        controller_uid=controller_uid(manifest),
        wished=spec.get("replicas", 1),
        current=status.get("replicas", 0),
        ready=status.get("readyReplicas", 0),
        selector=str(parse_label_selector(spec.get("selector"))),
        is_rolled_out=status.get("observedGeneration", 0) >= metadata.get("generation", 0),
        failure=_replica_failure(status),
    )


def observe_scale(target: Target, scale: Manifest) -> WorkloadObservation:
    """The workload behind a scale subresource (autoscaling/v1 Scale), without its pods.

    A scale does not tell readiness: `ready` is filled in from the pods.
    """
    status = scale.get("status") or {}
    return WorkloadObservation(
        target=target,
        exists=True,
        uid=scale.get("metadata", {}).get("uid"),
        wished=(scale.get("spec") or {}).get("replicas", 0),
        current=status.get("replicas", 0),
        selector=status.get("selector", ""),
    )


def observe_pod(manifest: Manifest) -> PodObservation:
    """One pod."""
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    containers = status.get("containerStatuses") or []
    waiting: Mapping[str, Any] = next(
        (c["state"]["waiting"] for c in containers if (c.get("state") or {}).get("waiting")), {}
    )
    return PodObservation(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        node=spec.get("nodeName"),
        phase=status.get("phase", "Unknown"),
        is_ready=_is_true(status.get("conditions"), "Ready"),
        is_deleting="deletionTimestamp" in metadata,
        waiting_reason=waiting.get("reason"),
        waiting_message=waiting.get("message"),
        restarts=sum(c.get("restartCount", 0) for c in containers),
        exit_code=_last_exit_code(containers),
    )


def is_node_ready(manifest: Manifest) -> bool:
    """Whether the node's kubelet reports and says that it is well."""
    return _is_true((manifest.get("status") or {}).get("conditions"), "Ready")


def autoscaler_target(manifest: Manifest) -> Target:
    """What a HorizontalPodAutoscaler scales."""
    reference = (manifest.get("spec") or {}).get("scaleTargetRef") or {}
    return Target(
        api_version=reference.get("apiVersion", "apps/v1"),
        kind=reference.get("kind", ""),
        namespace=manifest["metadata"]["namespace"],
        name=reference.get("name", ""),
    )


def controller_uid(manifest: Manifest) -> str | None:
    """The uid in the object's controller ownerReference."""
    for reference in manifest.get("metadata", {}).get("ownerReferences") or []:
        if reference.get("controller"):
            return str(reference.get("uid"))
    return None


def _replica_failure(status: Mapping[str, Any]) -> str | None:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message") or condition.get("reason"))
    return None


def _is_true(conditions: list[dict[str, Any]] | None, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions or [])


def _last_exit_code(containers: list[dict[str, Any]]) -> int | None:
    for container in containers:
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            if "terminated" in state:
                return int(state["terminated"].get("exitCode", 0))
    return None
