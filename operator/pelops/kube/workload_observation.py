"""Facts about workers, read from Deployments, scales, pods and nodes; and label selectors.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from sys import intern
from typing import TYPE_CHECKING, Any, Final, Literal

from pelops.domain.workload import (
    ContainerObservation,
    ContainerState,
    NodeObservation,
    PodObservation,
    Target,
    WorkloadObservation,
)

if TYPE_CHECKING:  # the command line reads pods without the client of the API server
    from pelops.kube.client import Manifest

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

_SET = re.compile(r"^\s*(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)\s*$")
# A comma outside of parentheses ends a requirement.
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a selector."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def is_met(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet it; an absent key meets NotIn, as in Kubernetes."""
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        return (labels.get(self.key) in self.values) == (self.operator == "In")

    def __str__(self) -> str:
        if self.operator == "Exists":
            return self.key
        if self.operator == "DoesNotExist":
            return f"!{self.key}"
        if len(self.values) == 1:
            return f"{self.key}{'=' if self.operator == 'In' else '!='}{self.values[0]}"
        return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that all must be met. An empty selector matches nothing here."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return bool(self.requirements) and all(r.is_met(labels) for r in self.requirements)

    def required_value(self, key: str) -> str | None:
        """Return the only value that this label may have; None if others match too."""
        for requirement in self.requirements:
            if (requirement.key, requirement.operator) == (key, "In") and len(
                requirement.values
            ) == 1:
                return requirement.values[0]
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def parse_label_selector(selector: Mapping[str, Any] | None) -> Selector:
    """Parse `matchLabels` and `matchExpressions`."""
    selector = selector or {}
    equal = (
        Requirement(key, "In", (value,))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    )
    sets = (
        Requirement(item["key"], item["operator"], tuple(item.get("values") or ()))
        for item in selector.get("matchExpressions") or ()
    )
    return Selector((*equal, *sets))


def parse_selector(text: str) -> Selector:
    """Parse the string form, as in the scale subresource."""
    return Selector(tuple(_requirement(part) for part in _COMMA.split(text) if part.strip()))


def _requirement(text: str) -> Requirement:
    if match := _SET.match(text):
        values = tuple(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], "In" if match["op"] == "in" else "NotIn", values)
    for sign, operator in (("!=", "NotIn"), ("==", "In"), ("=", "In")):
        key, separator, value = text.partition(sign)
        if separator:
            return Requirement(key.strip(), operator, (value.strip(),))  # type: ignore[arg-type]
    name = text.strip()
    if name.startswith("!"):
        return Requirement(name[1:], "DoesNotExist")
    return Requirement(name, "Exists")


OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
HOSTNAME_LIMIT: Final = 63
GRACE_S: Final = 30.0  # the API server's default of terminationGracePeriodSeconds

_ENDED_FROM_OUTSIDE: Final = {"Evicted", "NodeLost", "NodeShutdown", "Preempting", "Terminated"}
_BACK_OFF: Final = re.compile(r"back-off (?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)? ")


def observe_deployment(manifest: Manifest) -> WorkloadObservation:
    """Return the workload of a Deployment, without its pods."""
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
        overdue=_overdue(status),
    )


def observe_scale(target: Target, scale: Manifest) -> WorkloadObservation:
    """Return the workload of a scale subresource (autoscaling/v1 Scale), without its pods.

    A scale does not report readiness: `ready` is set later, from the pods.
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
    """Return the observation of one pod."""
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    statuses = status.get("containerStatuses") or []
    disruption = _condition(status, "DisruptionTarget")
    is_disrupted = disruption.get("status") == "True"
    waiting: Mapping[str, Any] = next(
        (c["state"]["waiting"] for c in statuses if (c.get("state") or {}).get("waiting")), {}
    )
    return PodObservation(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        node=_intern(spec.get("nodeName")),
        phase=intern(status.get("phase", "Unknown")),
        is_ready=_is_true(status, "Ready"),
        is_deleting="deletionTimestamp" in metadata,
        waiting_reason=_intern(waiting.get("reason")),
        waiting_message=waiting.get("message"),
        restarts=sum(c.get("restartCount", 0) for c in statuses),
        exit_code=_last_exit_code(statuses),
        containers=_observe_containers(spec, statuses),
        created=_time(metadata.get("creationTimestamp")),
        deletion_requested=_deletion_requested(metadata, spec),
        grace_period_s=_grace_period_s(metadata, spec),
        is_disrupted=is_disrupted or status.get("reason") in _ENDED_FROM_OUTSIDE,
        is_collected=is_disrupted and disruption.get("reason") == "DeletionByPodGC",
        hostname=_hostname(metadata, spec),
        deletion_cost=_deletion_cost(metadata),
    )


def observe_node(manifest: Manifest) -> NodeObservation:
    """Return the observation of one node."""
    ready = _condition(manifest.get("status") or {}, "Ready")
    taints = (manifest.get("spec") or {}).get("taints") or []
    return NodeObservation(
        name=manifest["metadata"]["name"],
        is_ready=ready["status"] == "True" if ready else None,
        is_out_of_service=any(taint.get("key") == OUT_OF_SERVICE for taint in taints),
        ready_since=_time(ready.get("lastTransitionTime")),
    )


def autoscaler_target(manifest: Manifest) -> Target:
    """Return the target of a HorizontalPodAutoscaler."""
    reference = (manifest.get("spec") or {}).get("scaleTargetRef") or {}
    return Target(
        api_version=reference.get("apiVersion", "apps/v1"),
        kind=reference.get("kind", ""),
        namespace=manifest["metadata"]["namespace"],
        name=reference.get("name", ""),
    )


def controller_uid(manifest: Manifest) -> str | None:
    """Return the uid in the object's controller ownerReference."""
    for reference in manifest.get("metadata", {}).get("ownerReferences") or []:
        if reference.get("controller"):
            return str(reference.get("uid"))
    return None


def _replica_failure(status: Mapping[str, Any]) -> str | None:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message") or condition.get("reason"))
    return None


def _overdue(status: Mapping[str, Any]) -> str | None:
    progressing = _condition(status, "Progressing")
    if progressing.get("reason") != "ProgressDeadlineExceeded":
        return None
    return str(progressing.get("message") or progressing["reason"])


def _is_true(status: Mapping[str, Any], kind: str) -> bool:
    return _condition(status, kind).get("status") == "True"


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found = (c for c in status.get("conditions") or [] if c.get("type") == kind)
    return next(found, {})


def _last_exit_code(containers: list[dict[str, Any]]) -> int | None:
    for container in containers:
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            if "terminated" in state:
                return int(state["terminated"].get("exitCode", 0))
    return None


def _observe_containers(
    spec: Mapping[str, Any], statuses: list[dict[str, Any]]
) -> tuple[ContainerObservation, ...]:
    """Return every container of the pod's spec: one without a status may run."""
    reported_names = {status["name"] for status in statuses if "name" in status}
    missing = [c["name"] for c in spec.get("containers") or [] if c["name"] not in reported_names]
    return (
        *(_observe_container(status) for status in statuses),
        *(ContainerObservation(name=intern(name)) for name in missing),
    )


def _observe_container(status: Mapping[str, Any]) -> ContainerObservation:
    now, last = (status.get(part) or {} for part in ("state", "lastState"))
    ended, before = now.get("terminated") or {}, last.get("terminated") or {}
    waiting = now.get("waiting") or {}
    return ContainerObservation(
        name=intern(status.get("name", "")),
        state=_state(now),
        started=_time((now.get("running") or {}).get("startedAt")),
        finished=_time(ended.get("finishedAt")),
        exit_code=ended.get("exitCode"),
        reason=_intern(ended.get("reason")),
        waiting_reason=_intern(waiting.get("reason")),
        back_off_s=_back_off_s(waiting.get("message") or ""),
        last_finished=_time(before.get("finishedAt")),
        last_exit_code=before.get("exitCode"),
        last_reason=_intern(before.get("reason")),
        restarts=status.get("restartCount", 0),
    )


def _state(state: Mapping[str, Any]) -> ContainerState:
    known: tuple[ContainerState, ...] = ("running", "terminated", "waiting")
    return next((name for name in known if name in state), "unknown")


def _back_off_s(message: str) -> float | None:
    """Parse the pause in a kubelet's message: `back-off 2m40s restarting failed container=...`."""
    found = _BACK_OFF.search(message)
    if found is None or not any(found.groups()):
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _deletion_requested(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> datetime | None:
    # deletionTimestamp is the end of the grace period, and changes with it. Kubelets set a period
    # of 0 once all containers have ended, which sets deletionTimestamp to the current time.
    end = _time(metadata.get("deletionTimestamp"))
    grace_s = metadata.get("deletionGracePeriodSeconds") or _grace_period_s(metadata, spec)
    return end - timedelta(seconds=grace_s) if end is not None else None


def _grace_period_s(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> float:
    own = spec.get("terminationGracePeriodSeconds")
    asked = metadata.get("deletionGracePeriodSeconds") or 0
    return float(max(GRACE_S if own is None else own, asked))


def _hostname(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    # https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/kubelet_pods.go
    # (truncatePodHostnameIfNeeded): a truncated name must not end in a dash or a dot.
    chosen = spec.get("hostnameOverride") or spec.get("hostname")
    return str(chosen or metadata.get("name", "")[:HOSTNAME_LIMIT].rstrip("-."))


def _deletion_cost(metadata: Mapping[str, Any]) -> int | None:
    cost = (metadata.get("annotations") or {}).get(DELETION_COST)
    try:
        return int(cost) if cost is not None else None
    except ValueError:
        return None


def _time(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def _intern(text: str | None) -> str | None:
    return intern(text) if text is not None else None
