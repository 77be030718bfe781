"""What the tests of the operator's rights put into a namespace."""

from __future__ import annotations

from typing import Any

from tests.operators import Resources, sleeping_template

MEMBERS = "pelops-system"


def only(namespace: str) -> dict[str, str]:
    return {"PELOPS_NAMESPACE": namespace, "PELOPS_MEMBER_NAMESPACE": namespace}


def stream(namespace: str) -> str:
    return f"{namespace}-owned"


def owning(namespace: str, **more: Any) -> dict[str, Any]:
    """A resource with a template and a Secret; its workers have no node to run on."""
    return {
        "redis": {"secretRef": {"name": "redis"}},
        "stream": stream(namespace),
        "group": "workers",
        "template": sleeping_template(),
        "replicas": 0,
        **more,
    }


def targeting(url: str, namespace: str, deletion_policy: str = "Retain") -> dict[str, Any]:
    """A resource that scales a StatefulSet to one."""
    return {
        "redis": {"url": url},
        "stream": f"{namespace}-targeting",
        "group": "workers",
        "targetRef": {"kind": "StatefulSet", "name": "own"},
        "scaling": {"mode": "Manual"},
        "replicas": 1,
        "deletionPolicy": deletion_policy,
    }


def retargeted(url: str, namespace: str) -> dict[str, Any]:
    """The resource of `_owning`, with a target in place of its template."""
    return {**targeting(url, namespace, "Delete"), "stream": stream(namespace)}


def acknowledged_audit(group: str) -> dict[str, Any]:
    """An audit with an alarm that a user has already acknowledged."""
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamAudit",
        "metadata": {
            "name": "nightly",
            "annotations": {"pelops.dev/acknowledge": "LossDetected"},
        },
        "spec": {"groups": [group], "schedule": "@yearly", "archive": {"path": "/archive"}},
    }


def redrive(**spec: Any) -> dict[str, Any]:
    """A redrive of the resource of `owning`."""
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamRedrive",
        "metadata": {"name": "after-fix"},
        "spec": {"groupRef": {"name": "orders"}, **spec},
    }


def secret(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "redis"},
        "stringData": {"url": url},
    }


def stateful_set(name: str) -> dict[str, Any]:
    template = sleeping_template()
    template["metadata"] = {"labels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


def autoscaler(deployment: str) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "autoscaler"},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9},
    }


def dead_member() -> dict[str, Any]:
    """The Lease of a replica that was killed an hour ago and more."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "long-dead",
            "namespace": MEMBERS,
            "labels": {
                "app.kubernetes.io/name": "pelops",
                "app.kubernetes.io/component": "member",
            },
        },
        "spec": {
            "holderIdentity": "long-dead",
            "leaseDurationSeconds": 8,
            "renewTime": "2024-02-29T00:00:00.000000Z",
        },
    }


def wished(resources: Resources, kind: str, name: str) -> int | None:
    found = resources.get(kind, name)
    return found["spec"]["replicas"] if found else None
