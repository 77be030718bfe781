"""What `pelops doctor` observes, by category. A fact that could not be observed is `Unanswered`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from pelops.domain.naming import GroupKeys
from pelops.domain.stream_observation import ConsumerObservation, StreamObservation
from pelops.domain.workload import PodObservation
from pelops.policy.doctor.check import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKindFacts:
    """What answered at the address of Redis."""

    flavour: str  # redis, valkey or unknown
    version: tuple[int, int, int] | None
    topology: str  # standalone, sentinel or cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisNodeFacts:
    """One node: its INFO, and the settings that CONFIG GET shows."""

    address: str
    info: Fact[Mapping[str, str]]
    config: Fact[Mapping[str, str]]  # most users may not read it


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedCommand:
    """A command that the ACL forbids to the user of Redis."""

    command: str
    key: str | None  # None: the command needs no key

    def __str__(self) -> str:
        return f"{self.command} on {self.key}" if self.key else self.command


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The category `redis`."""

    kind: Fact[ServerKindFacts]
    nodes: Fact[tuple[RedisNodeFacts, ...]]  # of the stream, or every master
    denied: Fact[tuple[DeniedCommand, ...]] | None  # None: no group was named
    acl_command: str = ""  # what prints the rules that the user needs


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFacts:
    """What is needed of a StreamConsumerGroup."""

    namespace: str
    name: str
    uid: str
    strategy: str
    scaling_mode: str
    target: str  # kind and name of the workload; empty without one

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The category `group`."""

    keys: GroupKeys
    topology: Fact[str]
    types: Fact[Mapping[str, str]]  # of each key that exists, as TYPE returns it
    stream: Fact[StreamObservation]
    groups: Fact[tuple[str, ...]]  # names of all groups of the stream
    resource: ResourceFacts | None = None  # None: only names were given


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClock:
    """The clock of a node of Kubernetes, as its Lease shows it."""

    node: str
    ahead: timedelta  # renewTime minus the time of Redis when the Lease was read


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFacts:
    """The category `clocks`."""

    reader: str  # who compared: `the operator` or `this machine`
    ahead: Fact[timedelta]  # clock of Redis minus clock of the reader
    uncertainty: timedelta  # half of the time that the answer took
    nodes: Fact[tuple[NodeClock, ...]] | None  # None: there is no cluster to ask
    allowed: timedelta  # difference that the operator allows for


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """The category `workers`."""

    consumers: Fact[tuple[ConsumerObservation, ...]]
    pods: Fact[tuple[PodObservation, ...]]  # of the workload
    others: Fact[frozenset[str]]  # names of the other pods of the namespace
    has_workload: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAutoscaler:
    """What scales a workload, besides Pelops."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """The category `target`."""

    resource: ResourceFacts
    exists: Fact[bool]
    autoscalers: Fact[tuple[ExternalAutoscaler, ...]]
    # Who sets spec.replicas besides Pelops: field managers, and the annotation of `kubectl apply`.
    replicas_owners: Fact[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedKind:
    """A kind of pelops.dev as the API server serves it."""

    kind: str
    is_served: bool
    missing: Fact[tuple[str, ...]]  # fields of this version of Pelops that the CRD does not have
    unknown: tuple[str, ...] = ()  # fields of the CRD that this version does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An operator: replicas that renew Leases in one namespace."""

    namespace: str
    replicas: int  # that renewed their Lease lately
    version: str | None = None  # of the image of its Deployment; None: not known
    serves: frozenset[str] | None = None  # namespaces; empty: all; None: not known
    account: str | None = None  # ServiceAccount of its Deployment; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRight:
    """One verb on one resource of the Kubernetes API."""

    group: str
    resource: str  # with its subresource
    verb: str
    is_needed: bool = True  # False: something is less exact without it

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationFacts:
    """The category `installation`."""

    kubernetes: Fact[tuple[int, int]]
    kinds: Fact[tuple[ServedKind, ...]]
    installations: Fact[tuple[Installation, ...]]
    version: str  # of this program
    subject: str  # whose rights were reviewed
    scope: str  # where: `namespace shop`, or `all namespaces`
    refused: Fact[tuple[AccessRight, ...]]
    is_before: bool = False  # `--pre`: nothing is installed yet
