"""Pod Security levels for the pod templates of users, by the Pod Security Standards of Kubernetes.

The operator creates workloads with its own rights. The admission policies are optional, and Pod
Security admission allows everything in a namespace without its label. So each template must comply
with a level before it is applied: unset fields get the value that the level requires. Fields that
exceed the level are refused.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from pelops.errors import InvalidSpec

Manifest = dict[str, Any]

ENFORCE_LABEL: Final = "pod-security.kubernetes.io/enforce"
_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
_HOST_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")
_HANDLERS: Final = ("httpGet", "tcpSocket")
_CAPABILITIES: Final = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
_SE_LINUX_TYPES: Final = frozenset(
    {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
)
_SYSCTLS: Final = frozenset(
    {
        "kernel.shm_rmid_forced",
        *(f"net.ipv4.{name}" for name in ("ip_local_port_range", "ip_local_reserved_ports")),
        *(f"net.ipv4.{name}" for name in ("ip_unprivileged_port_start", "ping_group_range")),
        *(f"net.ipv4.tcp_{name}" for name in ("fin_timeout", "keepalive_intvl")),
        *(f"net.ipv4.tcp_{name}" for name in ("keepalive_probes", "keepalive_time")),
        *(f"net.ipv4.tcp_{name}" for name in ("rmem", "wmem", "syncookies")),
    }
)
_VOLUMES: Final = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
        *("persistentVolumeClaim", "projected", "secret"),
    }
)
_PROFILES: Final = frozenset({"RuntimeDefault", "Localhost"})
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_APP_ARMOR_VALUE: Final = re.compile(r"|runtime/default|localhost/.*", re.DOTALL)


class PodSecurity(StrEnum):
    """The Pod Security levels, from the least to the most restrictive."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"


def level_of(namespace: Mapping[str, Any]) -> PodSecurity:
    """Return the level that a namespace enforces; restricted if it sets none or an unknown one."""
    labels = (namespace.get("metadata") or {}).get("labels") or {}
    try:
        return PodSecurity(labels.get(ENFORCE_LABEL, ""))
    except ValueError:
        return PodSecurity.RESTRICTED


def hold_to_level(template: Manifest, level: PodSecurity) -> Manifest:
    """Return the template with unset fields set as the level requires.

    Raises:
        InvalidSpec: the template exceeds the level; the message names each field.
    """
    if level is PodSecurity.PRIVILEGED:
        return template
    held = copy.deepcopy(template)
    if level is PodSecurity.RESTRICTED:
        _fill_in(_object(held, "spec"))
    violations = list(dict.fromkeys(find_violations(held, level)))
    if violations:
        raise InvalidSpec(
            f"spec.template violates the Pod Security level {level} of this namespace: "
            f"{'; '.join(violations[:8])}. Change the template, or ask an administrator to label "
            f"the namespace {ENFORCE_LABEL} with a level that allows it"
        )
    return held


def hold_template(body: Manifest, level: PodSecurity, *path: str) -> None:
    """Apply `hold_to_level` in place to the pod template at this path. Raises InvalidSpec."""
    *parents, field = path
    parent = body
    for name in parents:
        parent = parent[name]
    parent[field] = hold_to_level(parent[field], level)


def find_violations(template: Mapping[str, Any], level: PodSecurity) -> Iterator[str]:
    """Yield each field of a pod template that a level does not allow, with its value."""
    if level is PodSecurity.PRIVILEGED:
        return
    pod = _object(template, "spec")
    yield from _baseline_pod(template, pod)
    for path, container in _containers(pod):
        yield from _baseline_container(path, container)
    if level is PodSecurity.RESTRICTED:
        yield from _restricted(pod)


def _baseline_pod(template: Mapping[str, Any], pod: Manifest) -> Iterator[str]:
    yield from (f"{field} is set" for field in _HOST_NAMESPACES if pod.get(field))
    for volume in _objects(pod, "volumes"):
        if volume.get("hostPath") is not None:
            yield f"volume {volume.get('name')} is a hostPath"
    context = _object(pod, "securityContext")
    yield from _contexts("securityContext", context)
    for sysctl in _objects(context, "sysctls"):
        if sysctl.get("name") not in _SYSCTLS:
            yield f"sysctl {sysctl.get('name')} is set"
    for name, value in _object(_object(template, "metadata"), "annotations").items():
        if str(name).startswith(_APP_ARMOR) and not _APP_ARMOR_VALUE.fullmatch(str(value)):
            yield f"annotation {name} is {value}"


def _baseline_container(path: str, container: Manifest) -> Iterator[str]:
    context = _object(container, "securityContext")
    yield from _contexts(f"{path}: securityContext", context)
    if context.get("privileged"):
        yield f"{path}: securityContext.privileged is true"
    if context.get("procMount") not in (None, "", "Default"):
        yield f"{path}: securityContext.procMount is {context['procMount']}"
    yield from _added_capabilities(path, context, _CAPABILITIES)
    ports = container.get("ports")
    # The API server refuses anything that is not a list of objects.
    for port in ports if isinstance(ports, list) else ():
        if isinstance(port, dict) and port.get("hostPort"):
            yield f"{path}: hostPort {port['hostPort']} is set"
    lifecycle = _object(container, "lifecycle")
    hooks = [*((container, probe) for probe in _PROBES), *((lifecycle, hook) for hook in _HOOKS)]
    for parent, field in hooks:
        for handler in _HANDLERS:
            if _object(_object(parent, field), handler).get("host"):
                yield f"{path}: {field}.{handler}.host is set"


def _contexts(path: str, context: Manifest) -> Iterator[str]:
    """Yield the violations of baseline in the security context of a pod or a container."""
    if _object(context, "windowsOptions").get("hostProcess"):
        yield f"{path}.windowsOptions.hostProcess is true"
    for field in ("seccompProfile", "appArmorProfile"):
        profile = context.get(field)
        if profile is not None and _object(context, field).get("type") not in _PROFILES:
            yield f"{path}.{field}.type is not RuntimeDefault or Localhost"
    options = _object(context, "seLinuxOptions")
    if (options.get("type") or "") not in _SE_LINUX_TYPES:
        yield f"{path}.seLinuxOptions.type is {options['type']}"
    for field in ("user", "role"):
        if options.get(field):
            yield f"{path}.seLinuxOptions.{field} is set"


def _added_capabilities(path: str, context: Manifest, allowed: Collection[str]) -> Iterator[str]:
    for name in _list(_object(context, "capabilities"), "add"):
        if name not in allowed:
            yield f"{path}: securityContext.capabilities.add has {name}"


def _restricted(pod: Manifest) -> Iterator[str]:
    for volume in _objects(pod, "volumes"):
        yield from _restricted_volume(volume)
    own = _object(pod, "securityContext")
    if own.get("runAsUser") == 0:
        yield "securityContext.runAsUser is 0"
    if own.get("runAsNonRoot") is False:
        yield "securityContext.runAsNonRoot is false"
    for path, container in _containers(pod):
        context = _object(container, "securityContext")
        if _first("runAsNonRoot", context, own) is not True:
            yield f"{path}: securityContext.runAsNonRoot is not true"
        if context.get("runAsUser") == 0:
            yield f"{path}: securityContext.runAsUser is 0"
        if not _is_windows(pod):
            yield from _restricted_linux(path, context, own)


def _restricted_volume(volume: Manifest) -> Iterator[str]:
    kinds = {kind for kind, source in volume.items() if source is not None} - {"name"}
    if not kinds <= _VOLUMES:
        yield f"volume {volume.get('name')} is a {', '.join(sorted(kinds - _VOLUMES))}"


def _restricted_linux(path: str, context: Manifest, own: Manifest) -> Iterator[str]:
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{path}: securityContext.allowPrivilegeEscalation is not false"
    if "ALL" not in _list(_object(context, "capabilities"), "drop"):
        yield f"{path}: securityContext.capabilities.drop lacks ALL"
    yield from _added_capabilities(path, context, {"NET_BIND_SERVICE"})
    if _first("seccompProfile", context, own) is None:
        yield f"{path}: securityContext.seccompProfile is not set"


def _first(field: str, *contexts: Manifest) -> Any:
    """Return the field from the first context that sets it."""
    return next((one[field] for one in contexts if one.get(field) is not None), None)


def _fill_in(pod: Manifest) -> None:
    """Set unset fields as restricted requires, in place."""
    is_windows = _is_windows(pod)
    context = pod["securityContext"] = dict(_object(pod, "securityContext"))
    _set_default(context, "runAsNonRoot", value=True)
    if not is_windows:
        _set_default(context, "seccompProfile", value={"type": "RuntimeDefault"})
    for _, container in _containers(pod):
        own = container["securityContext"] = dict(_object(container, "securityContext"))
        if is_windows:
            continue
        _set_default(own, "allowPrivilegeEscalation", value=False)
        capabilities = own["capabilities"] = dict(_object(own, "capabilities"))
        _set_default(capabilities, "drop", value=["ALL"])


def _set_default(parent: Manifest, field: str, *, value: Any) -> None:
    # null counts as unset.
    if parent.get(field) is None:
        parent[field] = value


def _is_windows(pod: Manifest) -> bool:
    return _object(pod, "os").get("name") == "windows"


def _containers(pod: Manifest) -> Iterator[tuple[str, Manifest]]:
    for field in _LISTS:
        for container in _objects(pod, field):
            yield f"container {container.get('name')}", container


def _object(parent: Mapping[str, Any], field: str) -> Manifest:
    found = parent.get(field)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidSpec(f"in spec.template, {field} must be an object; correct it")
    return found


def _objects(parent: Mapping[str, Any], field: str) -> Iterable[Manifest]:
    found = _list(parent, field)
    if not all(isinstance(item, dict) for item in found):
        raise InvalidSpec(f"in spec.template, {field} must be a list of objects; correct it")
    return found


def _list(parent: Mapping[str, Any], field: str) -> list[Any]:
    found = parent.get(field)
    if found is None:
        return []
    if not isinstance(found, list):
        raise InvalidSpec(f"in spec.template, {field} must be a list; correct it")
    return found
