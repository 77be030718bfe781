"""Whether a run can write to its archive, as far as the resource tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pelops.api.stream_audit import StreamAudit


def tell_unmounted(audit: StreamAudit) -> str | None:
    """A clause about an archive that is a directory of the container alone; None otherwise.

    That is no error: a node may run its pods without containers, as the local cluster's do.
    """
    path = audit.spec.archive.path
    if path is None or not path.startswith("/"):
        return None
    if any(_holds(mount, path) for mount in _mount_paths(audit.spec.template or {})):
        return None
    return (
        f"No volume of spec.template is mounted at {path}: a container cannot write there, or what "
        "it writes goes with it. Mount one, or use archive.pvc"
    )


def _holds(mount: str, path: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{mount.rstrip('/')}/")


def _mount_paths(template: dict[str, Any]) -> Iterator[str]:
    """Where containers mount volumes. A template may have any shape: what is none is left out."""
    for container in _objects(_object(template.get("spec")).get("containers")):
        for mount in _objects(container.get("volumeMounts")):
            if isinstance(mount.get("mountPath"), str):
                yield mount["mountPath"]


def _object(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _objects(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
