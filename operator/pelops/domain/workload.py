"""What is known of the workers: the object that runs them, and its pods."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Names the object whose replicas are the workers."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What two references to one object have in common, whatever version they name."""
        return self.namespace, self.api_version.rpartition("/")[0], self.kind, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class PodObservation:
    """One worker pod as the API server shows it."""

    name: str
    uid: str
    node: str | None
    phase: str
    is_ready: bool
    is_deleting: bool
    waiting_reason: str | None = None  # of the first container that waits
    waiting_message: str | None = None
    restarts: int = 0
    exit_code: int | None = None  # of the last container that ended


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadObservation:
    """The workers of one resource, seen through their target."""

    target: Target
    exists: bool
    uid: str | None = None
    controller_uid: str | None = None  # the uid in its controller ownerReference
    wished: int | None = None  # spec.replicas
    current: int = 0  # pods that exist
    ready: int = 0
    selector: str = ""  # label selector in its string form
    is_rolled_out: bool = True  # its controller has seen the newest spec
    failure: str | None = None  # why pods cannot be created (a quota, an admission rule)
    autoscaler: str | None = None  # the HorizontalPodAutoscaler that refers to it
    pods: tuple[PodObservation, ...] = ()
    unready_nodes: frozenset[str] = frozenset()
