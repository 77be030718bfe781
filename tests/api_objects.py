"""Objects of a cluster, asked of the API server itself.

A test that waits asks many times a second, and each kubectl takes a tenth of a second of a core.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError

from local_cluster.plane import ControlPlane

TIMEOUT_S = 60.0
NAMESPACES = "/api/v1/namespaces"
# The API group and version of a kind, by the names that kubectl knows, and its plural.
KINDS = {
    "configmap": ("api/v1", "configmaps"),
    "pod": ("api/v1", "pods"),
    "secret": ("api/v1", "secrets"),
    "serviceaccount": ("api/v1", "serviceaccounts"),
    "resourcequota": ("api/v1", "resourcequotas"),
    "event": ("apis/events.k8s.io/v1", "events"),
    "deployment": ("apis/apps/v1", "deployments"),
    "statefulset": ("apis/apps/v1", "statefulsets"),
    "job": ("apis/batch/v1", "jobs"),
    "cronjob": ("apis/batch/v1", "cronjobs"),
    "hpa": ("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "poddisruptionbudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "scg": ("apis/pelops.dev/v1alpha1", "streamconsumergroups"),
    "saudit": ("apis/pelops.dev/v1alpha1", "streamaudits"),
    "srd": ("apis/pelops.dev/v1alpha1", "streamredrives"),
}
# By the names of manifests, those that `apply_object` takes.
NAMES = {
    "StreamConsumerGroup": "scg",
    "StreamAudit": "saudit",
    "StreamRedrive": "srd",
    "Deployment": "deployment",
    "StatefulSet": "statefulset",
    "Secret": "secret",
    "ConfigMap": "configmap",
    "HorizontalPodAutoscaler": "hpa",
    "Pod": "pod",
}
# What operators and controllers act on.
ACTIVE = ("scg", "saudit", "srd", "deployment", "statefulset", "cronjob", "job", "pod")

Object = dict[str, Any]


def read_object(plane: ControlPlane, namespace: str, kind: str, name: str) -> Object | None:
    """One object, or None when it does not exist."""
    try:
        found: Object = json.loads(_get(plane, f"{_path(namespace, kind)}/{name}"))
    except HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return None
        raise
    return found


def list_objects(plane: ControlPlane, namespace: str, kind: str) -> list[Object]:
    """All objects of one kind in a namespace."""
    items: list[Object] = json.loads(_get(plane, _path(namespace, kind)))["items"]
    return items


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's answer to an object that it is given."""

    resource: Object  # as it is accepted, with its defaults; empty when it is refused
    message: str = ""  # why it is refused

    @property
    def accepted(self) -> bool:
        """Whether the object keeps to the rules."""
        return bool(self.resource)


def create_object(
    plane: ControlPlane, namespace: str, kind: str, manifest: Object, *, dry_run: bool = False
) -> Answer:
    """Create an object, or ask with `dry_run` what would come of it.

    As with kubectl create, a field that is not known is refused.
    """
    asked = f"{_path(namespace, kind)}?fieldValidation=Strict{'&dryRun=All' * dry_run}"
    return _ask(plane, "POST", asked, manifest, "application/json")


def patch_object(
    plane: ControlPlane, namespace: str, kind: str, name: str, change: Object
) -> Answer:
    """Change an object by a merge patch; `NAME/status` changes its status."""
    asked = f"{_path(namespace, kind)}/{name}?fieldValidation=Strict"
    return _ask(plane, "PATCH", asked, change, "application/merge-patch+json")


def _ask(plane: ControlPlane, method: str, path: str, body: Object, content_type: str) -> Answer:
    try:
        found = plane.request(method, path, body, timeout_s=TIMEOUT_S, content_type=content_type)
    except HTTPError as error:
        if error.code not in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}:
            raise
        return Answer({}, json.loads(error.read())["message"])
    return Answer(json.loads(found))


class ApplyRefused(Exception):
    """The API server refuses what is applied, and says why."""


def apply_object(plane: ControlPlane, namespace: str, manifest: Object) -> None:
    """Server-side apply, with the last word on every field. Raises ApplyRefused."""
    metadata = manifest["metadata"]
    path = _path(metadata.get("namespace", namespace), NAMES[manifest["kind"]])
    try:
        plane.request(
            "PATCH",
            f"{path}/{metadata['name']}?fieldManager=kubectl&force=true&fieldValidation=Strict",
            manifest,
            timeout_s=TIMEOUT_S,
            content_type="application/apply-patch+yaml",
        )
    except HTTPError as error:
        raise ApplyRefused(json.loads(error.read())["message"]) from error


def delete_object(plane: ControlPlane, namespace: str, kind: str, name: str) -> None:
    """Begin to delete an object."""
    plane.request("DELETE", f"{_path(namespace, kind)}/{name}", timeout_s=TIMEOUT_S)


def create_namespace(plane: ControlPlane, name: str) -> None:
    """An empty namespace; HTTPError when there is one."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    plane.request("POST", NAMESPACES, manifest, timeout_s=TIMEOUT_S)


def empty_namespace(plane: ControlPlane, name: str) -> None:
    """Begin to delete what does something in a namespace.

    The namespace itself stays: to delete it, the controller asks for objects of every kind that
    the API server knows.
    """
    for kind in ACTIVE:
        delete_all(plane, f"{_path(name, kind)}?propagationPolicy=Background")


def delete_all(plane: ControlPlane, path: str) -> None:
    """Begin to delete all objects of a collection.

    It is asked for again where one of them was written at the same moment (409).
    """
    while True:
        try:
            plane.request("DELETE", path, timeout_s=TIMEOUT_S)
        except HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise
        else:
            return


def _path(namespace: str, kind: str) -> str:
    group, plural = KINDS[kind]
    return f"/{group}/namespaces/{namespace}/{plural}"


def _get(plane: ControlPlane, path: str) -> bytes:
    return plane.request("GET", path, timeout_s=TIMEOUT_S)
