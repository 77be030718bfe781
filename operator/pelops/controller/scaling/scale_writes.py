"""The write of the replicas after a decision to scale, with the choice of pods and Events.

For a scale-in, the pods to be deleted are chosen by their pending entries:

- Redis: pending entries by consumer, of the stream and its retry stream, and of each other group
  with the same workers.
- Cache: the live pods, and the consumers that belong to them by name.
- Policy: the pods with the fewest pending entries are deleted first, then the youngest.
- Pods: the annotation pod-deletion-cost is written, on as few of them as possible.

This is an optimization, and never fails: pending entries of other deleted pods are recovered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.group_observer import GroupObserver
from pelops.controller.runtime.cache import Recent
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.kind import FIRST_RETRY_S, LONGEST_RETRY_S, LONGEST_TERMINAL_RETRY_S
from pelops.controller.scaling.scaled_resources import Scaled
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.backoff import backoff_s
from pelops.domain.naming import GroupKeys
from pelops.domain.workload import PodObservation, Target, WorkloadObservation
from pelops.errors import Conflict, InvalidSpec, KubernetesUnavailable, NotFound, PelopsError
from pelops.kube.client import POD, Address, KubeApi, Manifest
from pelops.kube.event_recorder import EventContent
from pelops.kube.worker_deployment import SCALE_MANAGER
from pelops.kube.workload_observation import DELETION_COST
from pelops.metrics import SCALE_WRITES
from pelops.policy.group.provisioning import needs_retry_stream
from pelops.policy.recovery.owners import Owners
from pelops.policy.scaling.decision import (
    ScalingDecision,
    is_measured,
    record_try,
    remember_write,
    report_failure,
    spare_busy,
)
from pelops.policy.scaling.victims import (
    AT_WORK_S,
    count_kept,
    count_unknown,
    find_contested,
    is_active,
    list_holdings,
    rank,
)
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.reasons import Reason
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.consumers import (
    LISTABLE,
    ObservedConsumer,
    count_consumers,
    list_consumers,
)

log = logging.getLogger(__name__)


FRESH_S: Final = 1.0  # how long a look serves: one decision and what follows from it
NAMING_S: Final = 3.0  # how long a scale-in waits for its victims to be named
REMEMBERED: Final = 1_000  # looks
# They make their pods with ReplicaSets, which heed deletion costs.
_HEEDING: Final = frozenset({"Deployment", "ReplicaSet", "Rollout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The workers of one resource, and where to see what they hold."""

    resource: StreamConsumerGroup
    server: Server
    keys: GroupKeys
    workload: WorkloadObservation
    has_former_retry: bool = False  # a retry stream that the resource no longer asks for

    def __str__(self) -> str:
        return self.resource.metadata.key


@dataclass(frozen=True, slots=True)
class _Held:
    """Entries by consumer: all that it holds, and those of one that is still busy with them."""

    pending: Counter[str] = field(default_factory=Counter)
    at_work: Counter[str] = field(default_factory=Counter)

    def add(self, one: ObservedConsumer) -> None:
        self.pending[one.name] += one.pending
        if one.idle.total_seconds() >= AT_WORK_S:
            self.at_work[one.name] += one.pending

    def merge(self, other: _Held) -> None:
        self.pending.update(other.pending)
        self.at_work.update(other.at_work)


@dataclass(frozen=True, slots=True)
class _Holdings:
    """What consumers hold of all groups with the same workers."""

    everything: _Held = field(default_factory=_Held)  # says who goes first
    counted: _Held = field(default_factory=_Held)  # of groups that workers are kept for
    unseen: tuple[str, ...] = ()  # why one of those is not part of it


class Victims:
    """Sees which pods hold entries, and names those that should go."""

    def __init__(
        self, api: KubeApi, cache: WorkloadCache, observer: GroupObserver | None = None
    ) -> None:
        """`observer` reaches the other groups with the same workers; None: only one is seen."""
        self._api = api
        self._cache = cache
        self._observer = observer
        self._looks: Recent[str, tuple[float, _Holdings]] = Recent(REMEMBERED)

    async def count_busy(self, fleet: Fleet, *, only_at_work: bool = False) -> int | None:
        """The fewest replicas with which no pod has to go that holds entries; with `only_at_work`,
        none whose consumers are still busy with them.

        For a Deployment, the number of pods with pending entries. For a StatefulSet, whose highest
        pods are deleted first, the position of the last such pod. A consumer without a matching pod
        may be any of them. Terminating pods do not count. None if it is not known: Redis does not
        answer, or there are too many consumers to list.
        """
        pods, owners = self._pods(fleet)
        try:
            held = await self._see_held(fleet)
        except PelopsError as error:
            _report(fleet, f"Could not list the pods that hold pending entries: {error}")
            return None
        if held is None:
            return None
        if held.unseen:
            _report(fleet, f"Could not list the pods that hold pending entries: {held.unseen[0]}")
            return None
        kept = held.counted
        counted = kept.at_work if only_at_work else kept.pending
        return count_kept(
            list_holdings(filter(is_active, pods), owners, counted, kept.at_work),
            unknown=count_unknown(owners, counted),
            by_ordinal=fleet.workload.target.kind == "StatefulSet",
        )

    async def name_victims(self, fleet: Fleet, leaving: int) -> None:
        """Write deletion costs so that a scale-in by `leaving` pods deletes the chosen ones.

        To be called right before the scale-in. It does not raise, and takes seconds at most.
        """
        try:
            costs, uids = await self._rank(fleet, leaving)
            async with asyncio.timeout(NAMING_S):
                outcomes = await asyncio.gather(
                    *(self._mark(fleet, name, uids[name], cost) for name, cost in costs.items())
                )
            problem = next((str(error) for error in outcomes if error is not None), None)
        except PelopsError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"the API server did not answer within {NAMING_S:g} s"
        if problem is not None:
            _report(fleet, f"Could not choose the pods to remove first: {problem}")

    async def _rank(self, fleet: Fleet, leaving: int) -> tuple[dict[str, int], dict[str, str]]:
        """The costs to write, and the uids of their pods. Raises PelopsError."""
        pods, owners = self._pods(fleet)
        wished = fleet.workload.wished
        if wished is not None:
            # Pods that were never made need not go, and those of an earlier scale-in still have to.
            leaving += sum(map(is_active, pods)) - wished
        contested, leaving = find_contested(pods, leaving)
        if leaving == 0 or fleet.workload.target.kind not in _HEEDING:
            return {}, {}
        held = await self._see_held(fleet)
        if held is None:
            return {}, {}
        every = held.everything
        holdings = list_holdings(contested, owners, every.pending, every.at_work)
        return rank(holdings, leaving), {one.pod: one.uid for one in holdings}

    def _pods(self, fleet: Fleet) -> tuple[list[PodObservation], Owners]:
        pods, gone = self._cache.pods_of(fleet.workload)
        namespace = fleet.workload.target.namespace

        def is_pod(name: str) -> bool:
            return self._cache.pods.get((namespace, name)) is not None

        return pods, Owners(pods, gone, is_stranger=is_pod)

    async def _see_held(self, fleet: Fleet) -> _Holdings | None:
        """What consumers hold; None when there are too many to list. Raises PelopsError.

        A consumer that reads several streams has one name in all their groups, and the sum of their
        pending entries counts. Other groups that cannot be observed are left out.
        """
        uid, now = fleet.resource.metadata.uid, self._cache.clock()
        known = self._looks.get(uid)
        if known is not None and now - known[0] < FRESH_S:
            return known[1]
        own = await _list_held(fleet)
        if own is None:
            return None
        held = _Holdings()
        held.everything.merge(own)
        held.counted.merge(own)
        unseen = await self._add_others(fleet, held) if self._observer is not None else []
        held = replace(held, unseen=tuple(unseen))
        self._looks[uid] = (now, held)
        return held

    async def _add_others(self, fleet: Fleet, held: _Holdings) -> list[str]:
        """Add the other groups with these workers, each once: why some are missing."""
        manifests = self._other_resources(fleet)
        found = await asyncio.gather(*(self._reach(fleet, one) for one in manifests))
        groups = {_identify(one): one for one in found if isinstance(one, Fleet)}
        groups.pop(_identify(fleet), None)
        unseen = [one for one in found if isinstance(one, str)]
        for one, listed in zip(
            groups.values(), await asyncio.gather(*map(_try_list, groups.values())), strict=True
        ):
            if isinstance(listed, _Held):
                held.everything.merge(listed)
            if not is_measured(one.resource.spec):
                continue
            if isinstance(listed, _Held):
                held.counted.merge(listed)
            else:
                unseen.append(f"{one}: {listed}")
        return unseen

    def _other_resources(self, fleet: Fleet) -> list[Manifest]:
        names = sorted(self._cache.resources_of(fleet.workload.target))
        manifests = (self._cache.resources.get(name) for name in names)
        own = fleet.resource.metadata.uid
        return [one for one in manifests if one is not None and one["metadata"]["uid"] != own]

    async def _reach(self, fleet: Fleet, manifest: Manifest) -> Fleet | str | None:
        """Another group with these workers, or why it cannot be reached; None: no matter."""
        observer = self._observer
        if observer is None:
            return None
        try:
            resource = StreamConsumerGroup.parse(manifest)
        except InvalidSpec:
            return None  # its group is not known
        try:
            async with asyncio.timeout(NAMING_S):
                server, keys = await observer.connect(resource)
                has_former = await observer.has_former_retry(resource, server, keys)
        except (PelopsError, TimeoutError) as error:
            return f"{resource.metadata.key}: {error}" if is_measured(resource.spec) else None
        return Fleet(
            resource=resource,
            server=server,
            keys=keys,
            workload=fleet.workload,
            has_former_retry=has_former,
        )

    async def _mark(self, fleet: Fleet, name: str, uid: str, cost: int) -> PelopsError | None:
        """Write the cost of one pod. Returns the error; None also if the pod was deleted."""
        address = Address(kind=POD, namespace=fleet.workload.target.namespace, name=name)
        metadata: Manifest = {"uid": uid, "annotations": {DELETION_COST: str(cost)}}
        try:
            answer = await self._api.merge(address, {"metadata": metadata}, manager=SCALE_MANAGER)
        except PelopsError as error:
            return None if isinstance(error, NotFound | Conflict) else error
        self._cache.put(POD, answer)
        return None


async def _list_held(fleet: Fleet) -> _Held | None:
    """What the consumers of a group hold; None: there are too many to list. Raises PelopsError."""
    keys, held = fleet.keys, _Held()
    with_retry = fleet.has_former_retry or needs_retry_stream(fleet.resource.spec)
    for stream in (keys.stream, keys.retry) if with_retry else (keys.stream,):
        count = await count_consumers(fleet.server, stream, keys.group)
        if count > LISTABLE:
            return None
        for one in await list_consumers(fleet.server, stream, keys.group) if count else ():
            held.add(one)
    return held


async def _try_list(fleet: Fleet) -> _Held | str:
    """What the consumers of another group hold, or why that cannot be seen."""
    try:
        async with asyncio.timeout(NAMING_S):
            held = await _list_held(fleet)
    except (PelopsError, TimeoutError) as error:
        return str(error) or f"Redis did not answer within {NAMING_S:g} s"
    return held or f"the group has more than {LISTABLE} consumers"


def _identify(fleet: Fleet) -> tuple[str, str, str]:
    return fleet.server.address, fleet.keys.stream, fleet.keys.group


def _report(fleet: Fleet, what: str) -> None:
    log.warning("%s", what, extra={"resource": str(fleet)})


TOGETHER: Final = 32  # writes under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The workload that a decision is written to."""

    workload: WorkloadObservation
    fleet: Fleet | None  # None: it cannot be known which workers are busy
    is_current: Callable[[], bool]  # whether the spec is still the one of the decision
    left_s: Callable[[], float]  # how long this replica may write, unless its Lease is renewed


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """From how many replicas to how many."""

    before: int
    after: int

    @property
    def direction(self) -> int:
        """1 up, -1 down."""
        return 1 if self.after > self.before else -1


class ScaleWrites:
    """Brings replicas to what was decided."""

    def __init__(
        self,
        targets: Targets,
        victims: Victims,
        reporter: Reporter,
        clock: Callable[[], float],
    ) -> None:
        self._targets = targets
        self._victims = victims
        self._reporter = reporter
        self._clock = clock
        self._room = asyncio.Semaphore(TOGETHER)

    async def carry_out(
        self, scaled: Scaled, decision: ScalingDecision, scene: Scene
    ) -> ScalingDecision:
        """Write the replicas if they differ: the decision as it turned out."""
        if decision.replicas is None or not scene.workload.exists:
            return decision
        decision = await self._spare_busy(decision, scene)
        move = Move(before=decision.current, after=decision.replicas or 0)
        if not decision.is_change:
            scaled.failures, scaled.problem = 0, None
            return decision
        if scaled.problem is not None and self._clock() < scaled.write_after:
            return report_failure(decision, scaled.problem)
        try:
            is_written = await self._write(scene, move)
        except NotFound:
            return decision  # it was deleted: the next observation shows it
        except PelopsError as error:
            if isinstance(error, KubernetesUnavailable):
                _remember_try(scaled, move)
            return self._note_failure(scaled, decision, error)
        if is_written:
            await self._close(scaled, scene, move, decision)
        return decision

    async def _spare_busy(self, decision: ScalingDecision, scene: Scene) -> ScalingDecision:
        if not (decision.is_change and decision.wants_busy):
            return decision
        busy = None
        if scene.fleet is not None:
            only_at_work = decision.only_at_work
            busy = await self._victims.count_busy(scene.fleet, only_at_work=only_at_work)
        return spare_busy(decision, scene.workload, busy)

    async def _write(self, scene: Scene, move: Move) -> bool:
        """Whether it was written: not if the decision is outdated. Raises KubernetesError."""
        async with self._room:
            if not scene.is_current():
                return False
            if scene.fleet is not None and 0 < move.after < move.before:
                await self._victims.name_victims(scene.fleet, move.before - move.after)
            if not scene.is_current():
                return False
            await _finish(self._targets.scale(scene.workload.target, move.after), scene.left_s)
        return True

    def _note_failure(
        self, scaled: Scaled, decision: ScalingDecision, error: PelopsError
    ) -> ScalingDecision:
        problem = diagnose(error)
        level = logging.DEBUG if scaled.problem == problem else logging.WARNING
        log.log(level, "Could not scale: %s", error, extra={"resource": "/".join(scaled.name)})
        longest = LONGEST_TERMINAL_RETRY_S if problem.is_terminal else LONGEST_RETRY_S
        scaled.failures += 1
        wait = backoff_s(scaled.failures, first_s=FIRST_RETRY_S, longest_s=longest)
        scaled.problem = problem
        scaled.write_after = self._clock() + wait
        return report_failure(decision, problem)

    async def _close(
        self, scaled: Scaled, scene: Scene, move: Move, decision: ScalingDecision
    ) -> None:
        """Record a write, and create an Event if the direction has changed."""
        scaled.failures, scaled.problem = 0, None
        scaled.memory = remember_write(
            scaled.memory, before=move.before, after=move.after, now=self._clock()
        )
        SCALE_WRITES.labels("up" if move.direction > 0 else "down").inc()
        happening = report_scaled(
            scene.workload.target, move, decision, occurrence=datetime.now(UTC).isoformat()
        )
        log.info("%s", happening.note, extra={"resource": "/".join(scaled.name)})
        if move.direction == scaled.direction:
            return
        scaled.direction = move.direction
        await self._reporter.report(scaled.resource.metadata, happening)


def report_scaled(
    target: Target, move: Move, decision: ScalingDecision, *, occurrence: str
) -> EventContent:
    """The Event for a number of replicas that was written."""
    return EventContent(
        type="Normal",
        reason=Reason.SCALED_UP if move.direction > 0 else Reason.SCALED_DOWN,
        action="Scale",
        note=(
            f"Scaled {target} from {move.before:,} to {move.after:,} replicas. {decision.message}"
        ),
        occurrence=occurrence,
    )


async def _finish(write: Coroutine[Any, Any, None], left_s: Callable[[], float]) -> None:
    """Wait for a write, and give it up once another replica may be the one to write.

    After a pause of this process that is so before anything else is sent.
    """
    writing = asyncio.create_task(write)
    try:
        while not writing.done():
            if (wait_s := left_s()) <= 0:
                raise KubernetesUnavailable(
                    "the Lease of this operator replica expired during the write"
                )
            await asyncio.wait({writing}, timeout=wait_s)
        writing.result()
    finally:
        writing.cancel()


def _remember_try(scaled: Scaled, move: Move) -> None:
    """Record a write without an answer: if it happened, it is not another client's."""
    others = record_try(scaled.memory.others, before=move.before, after=move.after)
    scaled.memory = replace(scaled.memory, others=others)
