"""Observations of the workers: the object that runs them, its pods and their nodes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Reference to the object whose replicas are the workers; without a name there is none."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.name else "no workload"

    @property
    def is_undeclared(self) -> bool:
        """Whether no workers are declared."""
        return not self.name

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Equal for all references to one object, whatever API version they name."""
        return self.namespace, self.api_version.rpartition("/")[0], self.kind, self.name


ContainerState = Literal["running", "waiting", "terminated", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerObservation:
    """One container of a pod as its kubelet last reported it. Times are the node's, cut to 1 s."""

    name: str
    state: ContainerState = "unknown"  # unknown: nothing was reported yet
    started: datetime | None = None  # of the running process
    finished: datetime | None = None  # of a process that ended and was not restarted
    exit_code: int | None = None
    reason: str | None = None  # why it ended: OOMKilled, Error, ContainerStatusUnknown
    waiting_reason: str | None = None
    back_off_s: float | None = None  # how long a crash loop pauses after `last_finished`
    last_finished: datetime | None = None  # of the process before this one
    last_exit_code: int | None = None
    last_reason: str | None = None
    restarts: int = 0

    @property
    def has_restarted(self) -> bool:
        """Whether a process of this container ended before."""
        return self.restarts > 0 or self.last_exit_code is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodObservation:
    """One worker pod as the API server shows it."""

    name: str
    uid: str
    node: str | None
    phase: str
    is_ready: bool
    is_deleting: bool
    waiting_reason: str | None = None  # of the first waiting container
    waiting_message: str | None = None
    restarts: int = 0
    exit_code: int | None = None  # of the last container that ended
    # Init containers are left out, sidecars among them: they never read the stream.
    containers: tuple[ContainerObservation, ...] = ()
    created: datetime | None = None
    deletion_requested: datetime | None = None
    grace_period_s: float = 30.0  # how long its processes may take to end
    is_disrupted: bool = False  # evicted, preempted, drained, or its node shut down or was lost
    is_collected: bool = False  # its phase was written by the pod garbage collector, not a kubelet
    hostname: str = ""  # the host name that its processes get
    # Only orders pods for a scale-in, so a change of it alone is not a change of the observation.
    deletion_cost: int | None = field(default=None, compare=False)


def keep_request(pod: PodObservation, before: PodObservation | None) -> PodObservation:
    """The pod, with the earliest observed time of its deletion request.

    A repeated deletion request, such as the final one of a kubelet, changes the pod's
    deletionTimestamp.
    """
    if before is None or before.uid != pod.uid or before.deletion_requested is None:
        return pod
    asked = [before.deletion_requested, pod.deletion_requested or before.deletion_requested]
    return replace(pod, deletion_requested=min(asked))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObservation:
    """A node as the API server shows it."""

    name: str
    is_ready: bool | None  # None: never reported
    exists: bool = True
    is_out_of_service: bool = False  # has the out-of-service taint: an administrator shut it down
    ready_since: datetime | None = None  # when `is_ready` last changed


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadObservation:
    """The workers of one resource, observed through their target."""

    target: Target
    exists: bool
    uid: str | None = None
    controller_uid: str | None = None  # the uid in its controller ownerReference
    wished: int | None = None  # spec.replicas
    current: int = 0  # pods that exist
    ready: int = 0
    selector: str = ""  # label selector in its string form
    is_rolled_out: bool = True  # its controller has observed the newest spec
    failure: str | None = None  # why pods cannot be created (a quota, an admission rule)
    overdue: str | None = None  # message of a rollout beyond its progressDeadlineSeconds
    autoscaler: str | None = None  # the HorizontalPodAutoscaler that refers to it
    pods: tuple[PodObservation, ...] = ()
    unready_nodes: frozenset[str] = frozenset()
