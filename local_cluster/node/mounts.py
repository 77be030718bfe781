"""Which directory of this machine stands for which path of a container.

There are no mount namespaces here, so paths are rewritten where a pod names them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from local_cluster.node.environment import expand
from local_cluster.node.fields import KubeObject

TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    path: str  # as the container names it, without a trailing slash
    directory: Path  # what stands for it on this machine


def build_mounts(
    container: KubeObject, volumes: Mapping[str, Path], environment: Mapping[str, str]
) -> tuple[Mount, ...]:
    """The container's mounts, the deepest path first; a mount of an unknown volume is left out."""
    mounts = []
    for mount in container.get("volumeMounts") or []:
        volume = volumes.get(mount["name"])
        if volume is None:
            continue
        sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", environment)
        mounts.append(Mount(path=mount["mountPath"].rstrip("/"), directory=volume / sub_path))
    return tuple(sorted(mounts, key=lambda mount: len(mount.path), reverse=True))


def rewrite(value: str, mounts: Iterable[Mount]) -> str:
    """`value` with a leading mountPath replaced by the real directory."""
    for mount in mounts:
        if value == mount.path or value.startswith(mount.path + "/"):
            return f"{mount.directory}{value[len(mount.path) :]}"
    return value


def rewrite_argument(argument: str, mounts: Iterable[Mount]) -> str:
    """As `rewrite`, and for "--option=/path" also after the first "="."""
    option, equals, value = argument.partition("=")
    if equals and option.startswith("-"):
        return f"{option}={rewrite(value, mounts)}"
    return rewrite(argument, mounts)
