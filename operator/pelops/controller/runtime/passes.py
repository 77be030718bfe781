"""What a turn is for every kind: whose turn it is, taking one step, and telling the status.

Every replica sees every difference; normally the first in rank writes it, and nobody leads.

Each step repeats safely. If the process dies after one, the next look of any replica finds the
rest.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from pelops.api.meta import ObjectMeta
from pelops.controller.group.memory import Memory
from pelops.controller.group.status import Difference, Previous, Status
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.versions import Name
from pelops.errors import KubernetesUnavailable, NotFound, PelopsError
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.events import Happening
from pelops.kube.resources import Kind
from pelops.metrics import STATUS_WRITES_LIMITED


class Part(StrEnum):
    """What a step belongs to: its failure is told in that condition."""

    RESOURCE = "resource"
    GROUP = "group"
    WORKLOAD = "workload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One write, not yet done."""

    part: Part
    what: str  # for the log
    do: Callable[[], Awaitable[Happening | None]]  # answers what people are told about it
    reads_secrets: bool = False  # what is written depends on Secrets, which must be fresh
    is_routine: bool = False  # happens all the time and is not worth a line in the log


log = logging.getLogger(__name__)

STATUS = "status"  # the difference between the status wished for and the one that is there
LIMITED_S = 10.0  # the next look when the write budget is used up


class Declared(Protocol):
    """A resource of any kind of ours."""

    @property
    def metadata(self) -> ObjectMeta: ...


ResourceT = TypeVar("ResourceT", bound=Declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often to look, and how often to tell numbers."""

    observe_s: float
    status_s: float

    def stretched(self, resources: int) -> Pace:
        """Slower with very many resources, so that one replica keeps up."""
        return Pace(
            observe_s=max(self.observe_s, resources * 0.01),
            status_s=max(self.status_s, resources * 0.02),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Generic[ResourceT]):
    """One resource in one turn of this replica."""

    resource: ResourceT
    manifest: Manifest  # as the cache has it
    memory: Memory
    rank: int  # 0 writes first

    @property
    def name(self) -> Name:
        return self.resource.metadata.namespace, self.resource.metadata.name

    def wait_s(self, what: str) -> float:
        """How long this difference is still left to replicas of lower rank."""
        return self.memory.wait(what, self.rank, datetime.now(UTC)).total_seconds()


class Teller:
    """Takes steps and writes the status, for the resources of one kind."""

    def __init__(
        self,
        api: KubeApi,
        kind: Kind,
        reporter: Reporter,
        put: Callable[[Kind, Manifest], object],
        clock: Callable[[], float],
    ) -> None:
        """`put` takes in what a write answered, before the watch tells of it."""
        self._api = api
        self._kind = kind
        self._reporter = reporter
        self._put = put
        self._clock = clock

    async def take(self, step: Step, turn: Turn[ResourceT]) -> PelopsError | None:
        """Do the step, and tell about it; the error when it failed.

        Raises KubernetesUnavailable: then nothing can be told either.
        """
        memory, metadata = turn.memory, turn.resource.metadata
        try:
            happening = await step.do()
        except KubernetesUnavailable:
            raise
        except PelopsError as error:
            level = logging.WARNING if memory.is_news(str(error)) else logging.DEBUG
            log.log(level, "%s failed: %s", step.what, error, extra={"resource": metadata.key})
            return error
        level = logging.DEBUG if step.is_routine else logging.INFO
        log.log(level, step.what, extra={"resource": metadata.key})
        if happening is not None:
            await self._reporter.tell(metadata, happening)
        memory.failures = 0
        memory.told = None
        memory.sees_only(STATUS)
        return None

    async def write(
        self, turn: Turn[ResourceT], wished: Status, difference: Difference, *, numbers_s: float
    ) -> float | None:
        """Write the status if it differs and the turn is ours: seconds until that, if not yet.

        Numbers that move are written every `numbers_s` at most.
        """
        live = turn.manifest.get("status") or {}
        if difference is Difference.FACTS:
            wait = turn.wait_s(STATUS)
        elif difference is Difference.NUMBERS and turn.rank == 0:
            wait = turn.memory.numbers_written + numbers_s - self._clock()
        else:
            turn.memory.differing.pop(STATUS, None)
            return None
        if wait > 0:
            return wait
        if not turn.memory.budget.take(self._clock()):
            STATUS_WRITES_LIMITED.labels(*turn.name).inc()
            return LIMITED_S
        await self.put_status(turn.manifest, wished)
        turn.memory.differing.pop(STATUS, None)
        turn.memory.numbers_written = self._clock()
        await self._reporter.tell_transition(turn.resource.metadata, live, wished)
        return None

    async def put_status(self, manifest: Manifest, wished: Status) -> None:
        """Write the status, whoever else would. Nothing when the resource is gone meanwhile."""
        metadata = manifest["metadata"]
        address = Address(
            kind=self._kind,
            namespace=metadata["namespace"],
            name=metadata["name"],
            subresource="status",
        )
        body: Manifest = {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "status": wished,
        }
        try:
            answer = await self._api.apply(address, body)
        except NotFound:
            return  # the watch will say so
        self._put(self._kind, answer)


def previous_status(manifest: Manifest) -> Previous:
    """What the API server has of a resource's status."""
    return Previous(
        status=dict(manifest.get("status") or {}),
        generation=manifest["metadata"].get("generation", 0),
    )
