"""Pod templates that ask for more than a Pod Security level allows, each in one thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pelops.kube.pod_security import PodSecurity

Template = dict[str, Any]
BASELINE: Final = PodSecurity.BASELINE
RESTRICTED: Final = PodSecurity.RESTRICTED


def plain(**pod: Any) -> Template:
    """A template that says nothing about security."""
    return {"spec": {"containers": [{"name": "worker", "image": "worker"}], **pod}}


def container(**more: Any) -> Template:
    """A template whose container has these fields."""
    return {"spec": {"containers": [{"name": "worker", "image": "worker", **more}]}}


def context(**fields: Any) -> Template:
    """A template whose container has this securityContext."""
    return container(securityContext=fields)


def volume(**source: Any) -> Template:
    """A template with one volume."""
    return plain(volumes=[{"name": "data", **source}])


def _init(**fields: Any) -> Template:
    return plain(initContainers=[{"name": "init", "image": "init", "securityContext": fields}])


_PROBE: Final = {"httpGet": {"host": "169.254.169.254", "port": 80}}

# By what they ask for: the least level that refuses it, and the template.
BEYOND: Final[Mapping[str, tuple[PodSecurity, Template]]] = {
    "hostNetwork": (BASELINE, plain(hostNetwork=True)),
    "hostPID": (BASELINE, plain(hostPID=True)),
    "hostIPC": (BASELINE, plain(hostIPC=True)),
    "hostPath": (BASELINE, volume(hostPath={"path": "/"})),
    "hostPort": (BASELINE, container(ports=[{"containerPort": 80, "hostPort": 80}])),
    "privileged": (BASELINE, context(privileged=True)),
    "privileged init": (BASELINE, _init(privileged=True)),
    "capability": (BASELINE, context(capabilities={"add": ["SYS_ADMIN"], "drop": ["ALL"]})),
    "procMount": (
        BASELINE,
        {"spec": {**context(procMount="Unmasked")["spec"], "hostUsers": False}},
    ),
    "seccomp of pod": (
        BASELINE,
        plain(securityContext={"seccompProfile": {"type": "Unconfined"}}),
    ),
    "seccomp of container": (BASELINE, context(seccompProfile={"type": "Unconfined"})),
    "AppArmor of pod": (
        BASELINE,
        plain(securityContext={"appArmorProfile": {"type": "Unconfined"}}),
    ),
    "AppArmor of container": (BASELINE, context(appArmorProfile={"type": "Unconfined"})),
    "AppArmor by annotation": (
        BASELINE,
        {
            "metadata": {
                "annotations": {
                    "container.apparmor.security.beta.kubernetes.io/worker": "unconfined"
                }
            },
            **plain(),
        },
    ),
    "SELinux type": (BASELINE, context(seLinuxOptions={"type": "spc_t"})),
    "SELinux user": (BASELINE, context(seLinuxOptions={"user": "root"})),
    "SELinux role": (BASELINE, plain(securityContext={"seLinuxOptions": {"role": "root"}})),
    "sysctl": (
        BASELINE,
        plain(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    ),
    "probe of a host": (BASELINE, container(livenessProbe=_PROBE)),
    "hook to a host": (BASELINE, container(lifecycle={"preStop": _PROBE})),
    "root of pod": (RESTRICTED, plain(securityContext={"runAsUser": 0})),
    "root of container": (RESTRICTED, context(runAsUser=0)),
    "may be root": (RESTRICTED, plain(securityContext={"runAsNonRoot": False})),
    "container may be root": (RESTRICTED, context(runAsNonRoot=False)),
    "escalation": (RESTRICTED, context(allowPrivilegeEscalation=True)),
    "keeps capabilities": (RESTRICTED, context(capabilities={"drop": ["CHOWN"]})),
    "adds a usual capability": (RESTRICTED, context(capabilities={"add": ["CHOWN"]})),
    "nfs": (RESTRICTED, volume(nfs={"server": "eve", "path": "/"})),
}
# What the restricted level allows as it is filled in.
WITHIN: Final[Mapping[str, Template]] = {
    "nothing said": plain(),
    "null said": plain(securityContext=None, volumes=None, initContainers=None),
    "null in contexts": context(runAsNonRoot=None, capabilities=None, seccompProfile=None),
    "own profile": context(seccompProfile={"type": "Localhost", "localhostProfile": "a.json"}),
    "low port": context(capabilities={"add": ["NET_BIND_SERVICE"]}),
    "own user": plain(securityContext={"runAsUser": 1000, "fsGroup": 1000}),
    "safe sysctl": plain(
        securityContext={"sysctls": [{"name": "net.ipv4.tcp_fin_timeout", "value": "30"}]}
    ),
    "usual volumes": plain(
        volumes=[
            {"name": "bare"},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "secret", "secret": {"secretName": "data"}},
            {"name": "config", "configMap": {"name": "data"}},
            {"name": "empty", "emptyDir": {}, "hostPath": None},
        ]
    ),
    "an init container": _init(),
    "no hostNetwork": plain(hostNetwork=False, hostPID=False),
}
