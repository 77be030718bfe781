"""The worker Deployment that a resource owns: its desired form, and whether it is applied."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.domain.naming import GroupKeys
from pelops.domain.records.packed_parts import part_of
from pelops.errors import InvalidSpec
from pelops.kube.client import DEPLOYMENT, FIELD_MANAGER, STREAM_CONSUMER_GROUP, Manifest
from pelops.kube.container_environment import (
    POD_VARIABLES,
    TLS_MOUNT,
    TLS_VOLUME,
    WorkerAccess,
    build_environment,
    tls_volume,
)
from pelops.kube.trimmed import copy_template

RESOURCE_LABEL = "pelops.dev/stream-consumer-group"
MANAGED_BY = {"app.kubernetes.io/managed-by": "pelops"}
APPLIED = "pelops.dev/applied"
SEARCHED = 100  # items of a list
SCALE_MANAGER = "pelops-scale"


def deployment_name(resource_name: str) -> str:
    """Return the name of the Deployment that a resource owns."""
    return f"{resource_name}-workers"


def build_deployment(
    resource: StreamConsumerGroup, keys: GroupKeys, access: WorkerAccess
) -> Manifest:
    """Return the Deployment without `replicas`, which scaling sets.

    The user's variables, labels and volumes override those of Pelops with the same name.

    Raises:
        InvalidSpec: `spec.containerName` names no container of the template.
    """
    metadata = resource.metadata
    selector = {RESOURCE_LABEL: metadata.name}
    body: Manifest = {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.kind,
        "metadata": {
            "name": deployment_name(metadata.name),
            "namespace": metadata.namespace,
            "labels": {**MANAGED_BY, **selector},
            "ownerReferences": [build_owner_reference(resource)],
        },
        "spec": {
            "selector": {"matchLabels": selector},
            "template": _build_template(
                resource, build_environment(resource, keys, access), access
            ),
        },
    }
    # Fields removed from the template are detected only by this: all others still match.
    body["metadata"]["annotations"] = {APPLIED: fingerprint_of(body)}
    return body


def worker_labels(resource: StreamConsumerGroup) -> dict[str, str]:
    """Return the labels of the pods that a resource owns, without those that others add.

    Raises:
        InvalidSpec: the template's labels are not an object.
    """
    metadata = _object_in({"metadata": part_of(resource.spec.template, "metadata")}, "metadata")
    labels = _object_in(dict(metadata), "labels")
    return {**MANAGED_BY, **labels, RESOURCE_LABEL: resource.metadata.name}


def fingerprint_of(body: Manifest) -> str:
    """Return a short hash of the content."""
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=8).hexdigest()


def build_owner_reference(resource: StreamConsumerGroup) -> Manifest:
    """Return the owner reference with which the object is deleted together with the resource."""
    return {
        "apiVersion": STREAM_CONSUMER_GROUP.api_version,
        "kind": STREAM_CONSUMER_GROUP.kind,
        "name": resource.metadata.name,
        "uid": resource.metadata.uid,
        "controller": True,
    }


def _build_template(
    resource: StreamConsumerGroup, environment: list[Manifest], access: WorkerAccess
) -> Manifest:
    template = copy_template(resource.spec.template)
    metadata = _object_in(template, "metadata")
    metadata["labels"] = worker_labels(resource)
    pod = _object_in(template, "spec")
    container = _reading_container(_objects_in(pod, "containers"), resource.spec.container_name)
    container["env"] = _merge_environment(environment, _objects_in(container, "env"))
    volume = tls_volume(access)
    if volume is not None:
        _mount_tls(pod, container, volume)
    return template


def _object_in(parent: Manifest, field: str) -> Manifest:
    """Return the object in a field, created if absent. The CRD checks little of a template."""
    found = parent.get(field) or {}
    if not isinstance(found, dict):
        raise InvalidSpec(f"in spec.template, {field} must be an object; correct it")
    parent[field] = found
    return found


def _objects_in(parent: Manifest, field: str) -> list[Manifest]:
    """Return the list of objects in a field, created if absent."""
    found = parent.get(field) or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise InvalidSpec(f"in spec.template, {field} must be a list of objects; correct it")
    parent[field] = found
    return found


def _merge_environment(ours: list[Manifest], theirs: list[Manifest]) -> list[Manifest]:
    """Return both lists; of variables with the same name, the user's (`theirs`) is used."""
    names = {variable.get("name") for variable in theirs}
    # A variable may only refer to earlier ones, and those of Pelops refer to POD_VARIABLES.
    first = [variable for variable in theirs if variable.get("name") in POD_VARIABLES]
    rest = [variable for variable in theirs if variable.get("name") not in POD_VARIABLES]
    return first + [variable for variable in ours if variable["name"] not in names] + rest


def _reading_container(containers: list[Manifest], name: str | None) -> Manifest:
    if not containers:
        raise InvalidSpec("spec.template.spec.containers is empty: add the container of the worker")
    if name is None:
        return containers[0]
    for container in containers:
        if container.get("name") == name:
            return container
    names = ", ".join(str(c.get("name")) for c in containers)
    raise InvalidSpec(
        f"spec.containerName is {name!r}, but spec.template has the containers {names}; name one"
    )


def _mount_tls(pod: Manifest, container: Manifest, tls: Manifest) -> None:
    volumes = _objects_in(pod, "volumes")
    if any(volume.get("name") == TLS_VOLUME for volume in volumes):
        return
    volumes.append(tls)
    mount = {"name": TLS_VOLUME, "mountPath": TLS_MOUNT, "readOnly": True}
    _objects_in(container, "volumeMounts").append(mount)


def is_applied(wished: Any, live: Any) -> bool:
    """Whether the live object has all desired values. It may have others, set by other clients.

    False for values that the API server writes in another form ("1000m" for "1"): applying those
    again changes nothing.
    """
    if isinstance(wished, Mapping):
        live_fields = live if isinstance(live, Mapping) else {}
        return all(is_applied(value, live_fields.get(key)) for key, value in wished.items())
    if isinstance(wished, list):
        live_items = live if isinstance(live, list) else []
        if not any(isinstance(item, Mapping) for item in wished):
            # A list of plain values, such as arguments, is one value, including its order.
            return not wished or wished == live_items
        return all(_is_listed(item, live_items, index) for index, item in enumerate(wished))
    # The API server omits empty values.
    return bool(wished == live) or (wished in (None, "", False, 0) and live is None)


def _is_listed(item: Any, found: list[Any], index: int) -> bool:
    """Whether a list contains an item; in a long list, only the same index is checked."""
    if index < len(found) and is_applied(item, found[index]):
        return True
    # Thousands of items against thousands would take minutes.
    return len(found) <= SEARCHED and any(is_applied(item, other) for other in found)


def replicas_owner(live: Manifest, *, besides: str = FIELD_MANAGER) -> str | None:
    """The field manager, other than `besides`, that owns `spec.replicas`; None without one."""
    for entry in live.get("metadata", {}).get("managedFields") or []:
        owns = "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
        if owns and entry.get("manager") != besides:
            return str(entry.get("manager"))
    return None
