"""What the runtime has to know of a kind of ours.

A kind is a `ManagedKind`. The runtime lists and watches it with everything that concerns it, and
gives each of its resources a pass when it is due:

    parse           the resource, or why its spec cannot be read
    observe         everything that is known of it now
    actions         the writes that are missing; pure, but for what it remembers
    decide_status   the status that these facts ask for; pure
    clean_up        what goes before a resource that is being deleted

What makes a resource due is declared on the cache, by `Cache.follow`. No module of the runtime
names a kind: another one costs a subclass of `ManagedKind` and a place in the list of `replica.py`.
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
LONGEST_TERMINAL_RETRY_S: Final = 15.0  # somebody must change something, often where no watch tells
FIRST_BREAK_S: Final = 10.0  # a pass took all the time that it may take, or met a mistake
LONGEST_BREAK_S: Final = 60.0
FLIPS_PER_S: Final = 0.05  # of facts in the status, after a burst
AFTER_CONFLICT_S: Final = 0.5  # the resource has changed meanwhile; the watch brings the new one
FINALIZER_MANAGER: Final = "pelops-finalizer"

Status: TypeAlias = dict[str, Any]
Loop: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Difference(StrEnum):
    """How the wished status differs from the one on the API server."""

    NONE = "none"
    NUMBERS = "numbers"  # only what moves all the time
    FACTS = "facts"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousStatus:
    """The status that the API server has."""

    status: Status
    generation: int  # of the resource now


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAction:
    """One write, not yet done. It repeats safely."""

    part: str  # what it belongs to, a word of the kind; `ManagedKind.blame` is given it
    what: str  # for the log
    do: Callable[[], Awaitable[EventContent | None]]  # returns what is reported about it
    # What is written depends on these Secrets, in the resource's namespace. They must be fresh.
    secrets: tuple[SecretRef | None, ...] = ()
    is_routine: bool = False  # happens all the time and is not worth a line in the log


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDecision:
    """The status that is wished for, and why the resource is not as asked."""

    status: Status
    conditions: Sequence[Condition]
    problem: Finding | None = None  # says how soon the next pass is worth a try
    is_left_to_newer: bool = False  # a newer replica understands what this one does not


@dataclass(frozen=True, slots=True, kw_only=True)
class PassIntervals:
    """How often a settled resource gets a pass, and how often numbers are written to its status."""

    observe_s: float
    status_s: float
    together_s: float = 1.0  # after a change of its workers: one seldom comes alone
    seldom: int = 10  # times as long between two passes that nothing calls for


@dataclass(slots=True)
class WriteBudget:
    """A token bucket: an unforeseen ping-pong between writers becomes slow and visible."""

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
    """What one replica remembers of a resource between passes. Losing it costs time alone."""

    differing: dict[str, datetime] = field(default_factory=dict)  # what differs, and since when
    failures: int = 0  # in a row
    failure: str | None = None  # the last one that was logged
    cleanup_failure: str | None = None  # why the last try to clean up failed
    numbers_written: float = float("-inf")
    written: str | None = None  # the version of the resource with the status that was written last
    budget: WriteBudget = field(default_factory=WriteBudget)  # of writes of the status
    # Of those that are no mere numbers: a server may be something else each time it is asked.
    flips: WriteBudget = field(default_factory=lambda: WriteBudget(per_second=FLIPS_PER_S))
    breaks: int = 0  # passes in a row that were cut off or broke
    large_writes: int = 0  # in a row that failed: of the status of an object that is not kept
    large_again_at: float = float("-inf")

    def wait(self, what: str, rank: int, now: datetime, *, step: timedelta = STEP) -> timedelta:
        """How long this replica leaves a difference that it sees to others; starts the wait."""
        return wait_for_turn(rank, self.differing.setdefault(what, now), now, step=step)

    def sees_only(self, *differences: str) -> None:
        """Forget all other differences: somebody has mended them."""
        self.differing = {
            what: since for what, since in self.differing.items() if what in differences
        }

    def retry_s(self, *, is_terminal: bool = False) -> float:
        """How long to wait after one more failure."""
        self.failures += 1
        longest = LONGEST_TERMINAL_RETRY_S if is_terminal else LONGEST_RETRY_S
        return backoff_s(self.failures, first_s=FIRST_RETRY_S, longest_s=longest)

    def break_s(self) -> float:
        """How long to wait after one more pass that was cut off or broke: it was costly."""
        self.breaks += 1
        return backoff_s(self.breaks, first_s=FIRST_BREAK_S, longest_s=LONGEST_BREAK_S)

    def is_news(self, failure: str) -> bool:
        """Whether this failure is another one than the last that was asked about."""
        was, self.failure = self.failure, failure
        return was != failure


class Declared(Protocol):
    """A resource of any kind of ours."""

    @property
    def metadata(self) -> ObjectMeta: ...


ResourceT = TypeVar("ResourceT", bound=Declared)
ObservationT = TypeVar("ObservationT")
MemoryT = TypeVar("MemoryT", bound=Memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(Generic[ResourceT, MemoryT]):
    """One run of reconciliation, for one resource in one replica."""

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
        """How long this difference is still left to replicas of lower rank."""
        return self.memory.wait(what, self.rank, datetime.now(UTC), step=step).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What every kind of one replica works with."""

    api: KubeApi
    cache: Cache
    members: Members
    connections: Connections
    settings: ReplicaSettings
    clock: Callable[[], float]  # seconds since any beginning
    progress: Progress = field(default_factory=Progress)  # of all loops


class Finalizer:
    """The finalizer of a kind: a resource that has it is cleaned up before it goes."""

    def __init__(self, api: KubeApi, cache: Cache, kind: Kind, name: str) -> None:
        self._api = api
        self._cache = cache
        self._kind = kind
        self.name = name

    def is_on(self, metadata: ObjectMeta) -> bool:
        """Whether the resource has it."""
        return self.name in metadata.finalizers

    async def add(self, metadata: ObjectMeta) -> None:
        """Add it and nothing else. Repeats safely.

        The uid keeps an apply from bringing a deleted resource back.
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
        """Remove it, whoever else claims it, and no other.

        An apply would leave it to a co-owner (whoever applied an exported manifest), and the
        resource would never go. Raises Conflict when the resource has changed meanwhile.
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

    async def let_go(self, metadata: ObjectMeta) -> float | None:
        """Remove it from a resource that is cleaned up: seconds until another try, or None."""
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
    """One kind of ours. Only what is abstract has to be said of another one."""

    api: Kind
    # The conditions that are reported by an Event when they begin, beside changes of Ready.
    alarms: Sequence[str] = ()
    # True: the operator does not start without it. False: it follows once its CRD and the rights on
    # all that concerns it are there, and all else goes on without.
    is_required = False
    # True: the replica that ranks first observes a resource, and the others stand by.
    is_shared_out = False
    limits = Limits(deadline_s=20.0)  # of passes
    finalizer: Finalizer | None = None  # None: nothing has to be cleaned up

    def __init__(self, clock: Callable[[], float], memories: defaultdict[Name, MemoryT]) -> None:
        """`clock` tells seconds since any beginning; `memories` are by resource."""
        self.memories = memories
        self.queue: KeyedQueue[Name] = KeyedQueue(clock)

    # --- a pass

    @abstractmethod
    def parse(self, manifest: Manifest) -> ResourceT:
        """The resource. Raises InvalidSpec, whose message the status shows."""

    @abstractmethod
    async def observe(self, one: Pass[ResourceT, MemoryT]) -> ObservationT:
        """Everything that is known now; what cannot be seen is a problem within.

        Raises KubernetesError when the API server cannot be used.
        """

    @abstractmethod
    def actions(
        self, observation: ObservationT, one: Pass[ResourceT, MemoryT]
    ) -> Iterator[PlannedAction]:
        """What is not as it should be, in the order in which it is done. Raises InvalidSpec.

        Each action is decided when it is asked for: those before it are done by then. What depends
        on a change in Redis waits for another observation, so the actions end there.
        """

    @abstractmethod
    def blame(
        self, observation: ObservationT, part: str | None, error: PelopsError
    ) -> ObservationT:
        """The observation with this failure of an action, or (None) of finding the next one."""

    @abstractmethod
    def decide_status(
        self, observation: ObservationT, one: Pass[ResourceT, MemoryT], now: datetime
    ) -> StatusDecision:
        """The status that these facts ask for: the same facts give the same status anywhere."""

    @abstractmethod
    def intervals(self, known: int) -> PassIntervals:
        """How often to observe and to write numbers, with so many resources."""

    def rest_s(
        self,
        observation: ObservationT,
        one: Pass[ResourceT, MemoryT],
        decision: StatusDecision,
    ) -> float | None:
        """How long a resource needs no pass at which there is nothing to do; None: as usual.

        Only a kind that looks by itself meanwhile whether the observation changes has an answer.
        """
        return None

    # --- the end of a resource

    async def clean_up(self, one: Pass[ResourceT, MemoryT], now: datetime) -> EventContent | None:
        """Undo what is outside of Kubernetes; then the finalizer goes. Returns what is reported.

        Raises PelopsError when it did not work: it is tried again.
        """
        return None

    def abandon(self, problem: str) -> EventContent | None:
        """What is informed of a resource that goes and cannot be read: it is not cleaned up."""
        return None

    async def release(self, name: Name, manifest: Manifest | None) -> float | None:
        """Let go of what a former resource of this name held; begins each pass.

        `manifest` is what has the name now. Returns seconds to wait for that, or None when nothing
        is left.
        """
        return None

    def forget(self, name: Name) -> None:
        """Drop the metrics of a resource that is gone."""
        return

    # --- how it is reported

    def compare(self, wished: Status, live: Mapping[str, Any]) -> Difference:
        """How urgently the status has to be written."""
        return Difference.NONE if wished == live else Difference.FACTS

    def measure(self, observation: ObservationT, decision: StatusDecision) -> None:
        """Set the metrics of a resource."""
        return

    def measure_failure(self, name: Name) -> None:
        """Set the metrics of a resource that could not be observed: its spec is refused, or its
        pass was cut off.
        """
        return

    def stand_by(self, name: Name) -> None:
        """Drop the metrics that `measure` sets: another replica observes the resource."""
        return

    def list_events(self, before: Status, after: Status) -> Iterable[EventContent]:
        """What is informed of a written status, from these two alone."""
        return list_transitions(before, after, self.alarms)

    def count(self, known: int) -> None:
        """Set the metric of the number of resources. Called after each pass."""
        return

    def serve(self, is_served: bool) -> None:
        """Set the metric of whether resources are looked after, of a kind that is not required."""
        return

    # --- what runs beside the passes

    def rank_key(self, name: Name) -> str:
        """What the replicas rank themselves for."""
        return f"{self.api.plural}/{'/'.join(name)}"

    def heed(self, kind: Kind, names: set[Name]) -> None:
        """Hear of resources that became due, and of which objects have changed; once loops run."""
        return

    def loops(self) -> Mapping[str, Loop]:
        """Whatever else runs until cancelled, by name. Called once, when the cache is filled.

        A loop that fails is begun anew.
        """
        return {}

    def tidy(self) -> None:
        """Drop what was not used for long. Called every minute."""
        return


def place_of(name: Name, manifest: Manifest | None) -> Place:
    """Where work on a resource belongs: its namespace, and the Redis as its spec names it."""
    spec = None if manifest is None else manifest.get("spec")
    redis = spec.get("redis") if isinstance(spec, Mapping) else None
    return Place(name[0], str(redis or ""))


def previous_status(manifest: Manifest) -> PreviousStatus:
    """What the API server has of a resource's status."""
    return PreviousStatus(
        status=dict(manifest.get("status") or {}),
        generation=manifest["metadata"].get("generation", 0),
    )


def render_heading(
    conditions: Iterable[Condition], previous: PreviousStatus, now: datetime
) -> Status:
    """What begins each status: the generation, and the conditions with those of GitOps tools.

    Reconciling and Stalled follow from Ready, so that every kind has them.
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
