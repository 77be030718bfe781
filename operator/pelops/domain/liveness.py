"""What is known of the processes behind a consumer: the pods that were, and the cutoff that
follows.

A cutoff is a time on the Redis server's clock: no process that could hold an entry of this consumer
delivered before it is alive. An entry may be moved only when it was delivered strictly before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pelops.domain.workload import NodeObservation, PodObservation


class Death(StrEnum):
    """How a process ended: whether its entries may be the cause."""

    PLANNED = "planned"  # somebody wanted it to end: deletion, eviction, node shutdown
    CRASHED = "crashed"
    KILLED = "killed"  # from outside, or nobody saw the end


class LivenessReason(StrEnum):
    """Why there is a cutoff, or none."""

    # With a cutoff.
    GONE = "PodGone"  # its pod is gone, and every container was seen to have ended
    FINISHED = "PodFinished"  # its pod is in a last phase, with every container ended
    RESTARTED = "ContainerRestarted"
    CRASH_LOOP = "CrashLoopBackOff"
    CONTAINER_ENDED = "ContainerEnded"
    REPLACED = "PodReplaced"  # another pod has its name, and the former one has ended
    VANISHED = "PodVanished"  # nobody saw the end, but its node has had the time to bring it about
    BOOTED = "WorkerBooted"  # its present process has written when it began
    # Without.
    ALIVE = "PodAlive"
    ENDING = "PodEnding"
    NODE_LOST = "NodeNotReady"
    MAYBE_ALIVE = "PodMayLive"  # gone, but nobody saw its end
    NOT_REPORTED = "EndNotReported"  # a last phase that no kubelet wrote, or times that lack
    NO_CONTAINER = "ContainerUnknown"
    CLOCK_SKEW = "ClockSkew"
    MASTER_CHANGED = "MasterChanged"
    NEVER_SEEN = "PodNeverSeen"  # it names a pod that nobody has seen
    UNKNOWN = "NoPod"  # its name is no pod's
    UNREADABLE = "ApiServerUnavailable"
    FORBIDDEN = "PermissionDenied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoff:
    """What pod evidence says of one consumer."""

    at: datetime | None  # on the Redis server's clock; None: only idle time decides
    reason: LivenessReason
    message: str  # for people
    death: Death = Death.KILLED  # how the process before the cutoff ended; says nothing without one
    again_at: datetime | None = (
        None  # without a cutoff: when the passing of time alone may give one
    )


def no_cutoff(reason: LivenessReason, message: str, *, again_at: datetime | None = None) -> Cutoff:
    """Only idle time decides, until `again_at` at least."""
    return Cutoff(at=None, reason=reason, message=message, again_at=again_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class GonePod:
    """A pod that is no more, as it was seen last."""

    pod: PodObservation
    labels: Mapping[str, str]
    seen_gone: float  # when this replica learnt it, in seconds of its own clock


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerPod:
    """A pod that is gone, and what tells whether its processes have ended."""

    name: str
    uid: str
    absent_since: datetime  # on the Redis server's clock
    last: PodObservation | None = None  # as it was seen last; None: only remembered
    grace_s: float = 30.0
    node: NodeObservation | None = None  # None: nobody knows where it ran
    are_all_nodes_ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvidence:
    """Everything that is known of the pods of one name behind one consumer."""

    consumer: str
    live: PodObservation | None  # the answer of the live GET
    formers: tuple[FormerPod, ...] = ()  # pods of this consumer that are gone
    has_proven_formers: bool = False  # earlier pods of this name were proven to have ended
    node: NodeObservation | None = None  # of the live pod; None: nodes cannot be seen
    boot: datetime | None = None  # when its process began by its own word, on the Redis clock
    # By container: when this replica saw its present process begin, on the Redis clock.
    first_seen: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def is_succession(self) -> bool:
        """Whether the live pod has taken the name of another one."""
        return bool(self.formers) or self.has_proven_formers


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerMatch:
    """The pods that a consumer's name speaks of."""

    pods: tuple[PodObservation, ...] = ()
    gone: tuple[GonePod, ...] = ()
    vanished_uid: str | None = None  # a pod's uid that nobody has seen
    is_by_uid: bool = False  # the name holds the uid, so it is this pod or none
    is_strangers: bool = False  # it is a pod's that does not belong to the workload

    @property
    def is_unknown(self) -> bool:
        """Whether nothing says that the owner is a pod of this workload."""
        return not self.pods and not self.gone and self.vanished_uid is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """One field `pod:<consumer>`: what reports a pod whose end nobody saw."""

    uid: str
    name: str
    node: str
    grace_s: float
    namespace: str
    cluster: str = ""  # identity of its Kubernetes cluster; empty when unknown
    is_successor: bool = False  # earlier pods of its name were proven to have ended


def parse_pod_record(text: str | None) -> PodRecord | None:
    """The record; None when there is none, or whatever is there does not fit."""
    try:
        fields = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    words = [fields.get(name, "") for name in ("uid", "name", "node", "namespace", "cluster")]
    grace_s = fields.get("grace_s")
    if not all(isinstance(word, str) for word in words) or not all(words[:2]):
        return None
    if isinstance(grace_s, bool) or not isinstance(grace_s, int | float) or not grace_s >= 0:
        return None
    uid, name, node, namespace, cluster = words
    return PodRecord(
        uid=uid,
        name=name,
        node=node,
        grace_s=min(float(grace_s), 1e9),
        namespace=namespace,
        cluster=cluster,
        is_successor=fields.get("is_successor") is True,
    )


def render_pod_record(record: PodRecord) -> str:
    """The field's value: the same record, the same text."""
    fields = {
        "uid": record.uid,
        "name": record.name,
        "node": record.node,
        "grace_s": record.grace_s,
        "namespace": record.namespace,
    }
    if record.cluster:
        fields["cluster"] = record.cluster
    if record.is_successor:
        fields["is_successor"] = True
    return json.dumps(fields, separators=(",", ":"))
