"""The interface between the runtime and a managed kind.

A kind is a `ManagedKind`. The runtime lists and watches it, with all objects that concern it. When
a resource is due, the runtime makes a pass:

    parse           the resource, or the reason why its spec cannot be read
    observe         its state in Redis and in the cluster
    actions         the writes that are missing; pure, except for its memory
    decide_status   the status for this observation; pure
    clean_up        the clean-up of a resource that is being deleted

The changes that make a resource due are declared with `Cache.follow`. No module of the runtime
names a kind: a new kind is a subclass of `ManagedKind`, and an entry in the list of `replica.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from pelops.api.redis import SecretRef
from pelops.api.schema.base import ObjectMeta
from pelops.controller.runtime.cache import Cache, Name
from pelops.controller.runtime.connections import Connections
from pelops.controller.runtime.events import list_transitions
from pelops.controller.runtime.gate import Limits, Place, Progress
from pelops.controller.runtime.leases import Members
from pelops.controller.runtime.queue import KeyedQueue
from pelops.controller.runtime.settings import ReplicaSettings
from pelops.domain.backoff import backoff_s
from pelops.domain.condition import Condition, Finding, render_conditions
from pelops.errors import Conflict, NotFound, PelopsError
from pelops.kube.client import Address, Kind, KubeApi, Manifest
from pelops.kube.event_recorder import EventContent
from pelops.policy.membership import STEP, wait_for_turn
from pelops.policy.status.health import decide_health
from pelops.policy.status.reasons import ConditionType

FIRST_RETRY_S: Final = 0.5
LONGEST_RETRY_S: Final = 5.0
LONGEST_TERMINAL_RETRY_S: Final = 15.0  # a user must change something first
FIRST_BREAK_S: Final = 10.0  # a pass reached its deadline, or met a bug
LONGEST_BREAK_S: Final = 60.0
FLIPS_PER_S: Final = 0.05  # writes of changed facts to the status, after a burst
AFTER_CONFLICT_S: Final = 0.5  # the resource has changed; the watch receives it within this time
FINALIZER_MANAGER: Final = "pelops-finalizer"

Status: TypeAlias = dict[str, Any]
Loop: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Difference(StrEnum):
    """How the decided status differs from the one on the API server."""

    NONE = "none"
    NUMBERS = "numbers"  # only numbers, which change all the time
    FACTS = "facts"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousStatus:
    """The status on the API server."""

    status: Status
    generation: int  # of the resource now


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAction:
    """One write that is missing. It is safe to repeat."""

    part: str  # of the resource, as the kind names it; passed to `ManagedKind.add_problem`
    what: str  # for the log
    do: Callable[[], Awaitable[EventContent | None]]  # returns the Event for it
    # The Secrets that the write depends on, in the resource's namespace. They must be fresh.
    secrets: tuple[SecretRef | None, ...] = ()
    is_routine: bool = False  # happens all the time: logged at level DEBUG


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDecision:
    """The status to write, and the problem that keeps the resource from being as specified."""

    status: Status
    conditions: Sequence[Condition]
    problem: Finding | None = None  # decides when the next pass follows
    is_left_to_newer: bool = False  # a replica of a newer version reads this format


@dataclass(frozen=True, slots=True, kw_only=True)
class PassIntervals:
    """Intervals in seconds, for resources without changes."""

    observe_s: float  # between two observations
    status_s: float  # between two writes of numbers to the status
    together_s: float = 1.0  # from a change of the workers to the pass: more changes may follow
    seldom: int = 10  # standbys observe so many times less often


@dataclass(slots=True)
class WriteBudget:
    """A token bucket. It slows down two writers that undo each other's writes."""

    capacity: float = 30.0
    per_second: float = 0.5
    tokens: float = 30.0
    updated: float = 0.0

    def take(self, now_s: float) -> bool:
        """Whether one more write is allowed now."""
        refill = (now_s - self.updated) * self.per_second
        self.tokens = min(self.capacity, self.tokens + refill)
        self.updated = now_s
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(slots=True)
class Memory:
    """What one replica keeps about a resource between passes. Losing it only costs time."""

    differing: dict[str, datetime] = field(default_factory=dict)  # what differs, and since when
    failures: int = 0  # in a row
    failure: str | None = None  # the last one that was logged
    cleanup_failure: str | None = None  # why the last try to clean up failed
    numbers_written: float = float("-inf")
    written: str | None = None  # the version of the resource with the status that was written last
    budget: WriteBudget = field(default_factory=WriteBudget)  # of writes of the status
    # Of writes that change more than numbers: a server may answer differently each time.
    flips: WriteBudget = field(default_factory=lambda: WriteBudget(per_second=FLIPS_PER_S))
    breaks: int = 0  # passes in a row that were cancelled or raised an unexpected error
    large_writes: int = 0  # failed writes in a row to an object that is too large to be kept
    large_again_at: float = float("-inf")

    def wait(self, what: str, rank: int, now: datetime, *, step: timedelta = STEP) -> timedelta:
        """How long this replica still leaves this difference to replicas of lower rank."""
        return wait_for_turn(rank, self.differing.setdefault(what, now), now, step=step)

    def keep_only(self, *differences: str) -> None:
        """Forget all other differences: they no longer exist."""
        self.differing = {
            what: since for what, since in self.differing.items() if what in differences
        }

    def retry_s(self, *, is_terminal: bool = False) -> float:
        """The pause after one more failure, in seconds."""
        self.failures += 1
        longest = LONGEST_TERMINAL_RETRY_S if is_terminal else LONGEST_RETRY_S
        return backoff_s(self.failures, first_s=FIRST_RETRY_S, longest_s=longest)

    def break_s(self) -> float:
        """The pause in seconds after one more pass that was cancelled or raised an error."""
        self.breaks += 1
        return backoff_s(self.breaks, first_s=FIRST_BREAK_S, longest_s=LONGEST_BREAK_S)

    def is_news(self, failure: str) -> bool:
        """Whether this failure differs from the one of the last call."""
        was, self.failure = self.failure, failure
        return was != failure


class Declared(Protocol):
    """A resource of any managed kind."""

    @property
    def metadata(self) -> ObjectMeta: ...


ResourceT = TypeVar("ResourceT", bound=Declared)
ObservationT = TypeVar("ObservationT")
MemoryT = TypeVar("MemoryT", bound=Memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(Generic[ResourceT, MemoryT]):
    """One reconciliation of one resource, in one replica."""

    resource: ResourceT
    manifest: Manifest  # as the cache has it
    memory: MemoryT
    rank: int  # 0 writes first

    @property
    def name(self) -> Name:
        """The resource's."""
        return self.resource.metadata.namespace, self.resource.metadata.name

    @property
    def previous(self) -> PreviousStatus:
        """The status that the API server has."""
        return previous_status(self.manifest)

    def wait_s(self, what: str, *, step: timedelta = STEP) -> float:
        """How long this difference is still left to replicas of lower rank, in seconds."""
        return self.memory.wait(what, self.rank, datetime.now(UTC), step=step).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The adapters and services that all kinds of a replica share."""

    api: KubeApi
    cache: Cache
    members: Members
    connections: Connections
    settings: ReplicaSettings
    clock: Callable[[], float]  # monotonic, in seconds
    progress: Progress = field(default_factory=Progress)  # of all loops


class Finalizer:
    """The finalizer of a kind: a resource that has it is cleaned up before it is deleted."""

    def __init__(self, api: KubeApi, cache: Cache, kind: Kind, name: str) -> None:
        self._api = api
        self._cache = cache
        self._kind = kind
        self.name = name

    def is_on(self, metadata: ObjectMeta) -> bool:
        """Whether the resource has it."""
        return self.name in metadata.finalizers

    async def add(self, metadata: ObjectMeta) -> None:
        """Add it, and change nothing else. Safe to repeat.

        Because of the uid, the apply does not create a deleted resource again.
        """
        body: Manifest = {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
                "finalizers": [self.name],
            },
        }
        answer = await self._api.apply(self._address(metadata), body, manager=FINALIZER_MANAGER)
        self._cache.put_answer(self._kind, answer, writer=self._kind)

    async def remove(self, metadata: ObjectMeta) -> None:
        """Remove this finalizer, even if another field manager owns it too.

        A server-side apply would leave it to the other owner, for example a user who applied an
        exported manifest. Raises Conflict if the resource has changed.
        """
        others = [name for name in metadata.finalizers if name != self.name]
        body: Manifest = {
            "metadata": {
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
                "finalizers": others,
            }
        }
        answer = await self._api.merge(self._address(metadata), body, manager=FINALIZER_MANAGER)
        self._cache.put_answer(self._kind, answer, writer=self._kind)

    async def try_remove(self, metadata: ObjectMeta) -> float | None:
        """Remove it after the clean-up: seconds until the next attempt, or None."""
        try:
            await self.remove(metadata)
        except NotFound:
            return None
        except Conflict:
            return AFTER_CONFLICT_S
        return None

    def _address(self, metadata: ObjectMeta) -> Address:
        return Address(kind=self._kind, namespace=metadata.namespace, name=metadata.name)


class ManagedKind(ABC, Generic[ResourceT, ObservationT, MemoryT]):
    """A managed kind. A new kind must define the abstract methods."""

    api: Kind
    # The conditions for which an Event is created when they begin, in addition to Ready.
    alarms: Sequence[str] = ()
    # True: the operator does not start without it. False: it is managed once its CRD is installed
    # and its rights are granted; the other kinds do not wait for it.
    is_required = False
    # True: the replica that ranks first observes a resource, and the others are standbys.
    is_shared_out = False
    limits = Limits(deadline_s=20.0)  # of passes
    finalizer: Finalizer | None = None  # None: no clean-up is necessary

    def __init__(self, clock: Callable[[], float], memories: defaultdict[Name, MemoryT]) -> None:
        """`clock` is monotonic, in seconds; `memories` are by resource."""
        self.memories = memories
        self.queue: KeyedQueue[Name] = KeyedQueue(clock)

    # --- a pass

    @abstractmethod
    def parse(self, manifest: Manifest) -> ResourceT:
        """The resource. Raises InvalidSpec; the status shows its message."""

    @abstractmethod
    async def observe(self, current: Pass[ResourceT, MemoryT]) -> ObservationT:
        """The current state. A part that cannot be observed is a problem in the observation.

        Raises KubernetesError if the API server cannot be used.
        """

    @abstractmethod
    def actions(
        self, observation: ObservationT, current: Pass[ResourceT, MemoryT]
    ) -> Iterator[PlannedAction]:
        """The writes that are missing, in order. Raises InvalidSpec.

        An iterator: each action is decided after the ones before it are done. It ends at an action
        after which Redis has to be observed again.
        """

    @abstractmethod
    def add_problem(
        self, observation: ObservationT, part: str | None, error: PelopsError
    ) -> ObservationT:
        """The observation with the failure of an action, or (part None) of `actions` itself."""

    @abstractmethod
    def decide_status(
        self, observation: ObservationT, current: Pass[ResourceT, MemoryT], now: datetime
    ) -> StatusDecision:
        """The status for this observation: all replicas derive the same one from the same facts."""

    @abstractmethod
    def intervals(self, known: int) -> PassIntervals:
        """The intervals for this number of resources."""

    def rest_s(
        self,
        observation: ObservationT,
        current: Pass[ResourceT, MemoryT],
        decision: StatusDecision,
    ) -> float | None:
        """Seconds for which a resource without problems needs no pass; None: the usual interval.

        For kinds that detect changes of the observation without passes.
        """
        return None

    # --- the end of a resource

    async def clean_up(
        self, current: Pass[ResourceT, MemoryT], now: datetime
    ) -> EventContent | None:
        """Clean up outside of Kubernetes, before the finalizer is removed. Returns an Event.

        Raises PelopsError if it failed: it is repeated.
        """
        return None

    def abandon(self, problem: str) -> EventContent | None:
        """The Event for a resource that is deleted without a clean-up: its spec cannot be read."""
        return None

    async def release(self, name: Name, manifest: Manifest | None) -> float | None:
        """Release what a former resource of this name owned. Called at the begin of each pass.

        `manifest` is the resource that has the name now. Returns seconds until the next attempt, or
        None if nothing is left to release.
        """
        return None

    def forget(self, name: Name) -> None:
        """Drop the metrics of a deleted resource."""
        return

    # --- how it is reported

    def compare(self, wished: Status, live: Mapping[str, Any]) -> Difference:
        """The difference between the decided status and the one on the API server."""
        return Difference.NONE if wished == live else Difference.FACTS

    def measure(self, observation: ObservationT, decision: StatusDecision) -> None:
        """Set the metrics of a resource."""
        return

    def measure_failure(self, name: Name) -> None:
        """Set the metrics of a resource that was not observed: the spec is invalid, or the pass
        was cancelled.
        """
        return

    def stand_by(self, name: Name) -> None:
        """Drop the metrics that `measure` sets: another replica observes the resource."""
        return

    def list_events(self, before: Status, after: Status) -> Iterable[EventContent]:
        """The Events for a written status, derived from the two alone."""
        return list_transitions(before, after, self.alarms)

    def count(self, known: int) -> None:
        """Set the metric of the number of resources. Called after each pass."""
        return

    def serve(self, is_served: bool) -> None:
        """Set the metric of whether an optional kind is managed."""
        return

    # --- what runs beside the passes

    def rank_key(self, name: Name) -> str:
        """The key that determines the ranks of the replicas for a resource."""
        return f"{self.api.plural}/{'/'.join(name)}"

    def notice(self, kind: Kind, names: set[Name]) -> None:
        """Take note of resources that became due, and of the kind of objects that changed."""
        return

    def loops(self) -> Mapping[str, Loop]:
        """Further loops by name, which run until cancelled. Called once, with a filled cache.

        A loop that fails is restarted.
        """
        return {}

    def prune(self) -> None:
        """Drop data that was not used for long. Called every minute."""
        return


def place_of(name: Name, manifest: Manifest | None) -> Place:
    """The place of work on a resource: its namespace, and the Redis that its spec names."""
    spec = None if manifest is None else manifest.get("spec")
    redis = spec.get("redis") if isinstance(spec, Mapping) else None
    return Place(name[0], str(redis or ""))


def previous_status(manifest: Manifest) -> PreviousStatus:
    """The status of a resource on the API server."""
    return PreviousStatus(
        status=dict(manifest.get("status") or {}),
        generation=manifest["metadata"].get("generation", 0),
    )


def render_heading(
    conditions: Iterable[Condition], previous: PreviousStatus, now: datetime
) -> Status:
    """The fields that all kinds have in the status: the generation and the conditions.

    Reconciling and Stalled, which GitOps tools read, are derived from Ready.
    """
    before, generation = previous.status.get("conditions") or (), previous.generation
    wished = []
    for condition in conditions:
        wished.append(condition)
        if condition.type == ConditionType.READY:
            wished += decide_health(condition, before, generation=generation, now=now)
    return {
        "observedGeneration": generation,
        "conditions": render_conditions(wished, before, generation=generation, now=now),
    }
