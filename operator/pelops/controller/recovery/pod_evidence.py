"""Evidence from the cluster about the processes behind consumers: liveness cutoffs from pods.

consumer ── its name ──> pods that are, pods that were, or a pod of the group's own records
         ── a live GET of those that may be dead; Redis' TIME was taken before
         ── policy/recovery/liveness.py ──> a cutoff, or the reason why there is none

`PodHistory` keeps since when a pod has been absent, and which starts of containers were watched.
Both are reported on Redis' clock when they are asked for. Losing them makes a decision later, never
wrong. `NodeClocks` compares the clocks of nodes with that of a Redis when a container
restarted in place.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from pelops.clock import LATEST_MS, from_ms
from pelops.controller.runtime.cache import Recent
from pelops.controller.workload.pods import PodChange
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.records.state import BOOT
from pelops.domain.records.state import POD as POD_FIELD
from pelops.domain.recovery import (
    Cutoff,
    FormerPod,
    GonePod,
    LivenessReason,
    OwnerMatch,
    PodEvidence,
    PodRecord,
    no_cutoff,
    parse_pod_record,
    render_pod_record,
)
from pelops.domain.workload import (
    NodeObservation,
    PodObservation,
    WorkloadObservation,
    keep_request,
)
from pelops.errors import Forbidden, KubernetesError, NotFound
from pelops.kube.client import LEASE, NODE, POD, Address, KubeApi, Manifest
from pelops.kube.workload_observation import observe_node, observe_pod
from pelops.policy.recovery.liveness import (
    KEPT,
    ClockSample,
    combine,
    could_be_dead,
    decide_allowance,
    decide_cutoff,
    has_ended,
    remember_sample,
)
from pelops.policy.recovery.owners import Owners


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPods:
    """Pods by name. A name that was not read is in neither."""

    pods: dict[str, PodObservation | None] = field(default_factory=dict)  # None: no such pod
    unreadable: dict[str, Cutoff] = field(default_factory=dict)  # why it could not be read


async def observe_pods(api: KubeApi, namespace: str, names: Iterable[str]) -> ObservedPods:
    """Read all of them together. Never raises: an error becomes the reason for no cutoff."""
    observed = ObservedPods()
    await asyncio.gather(*(_observe_pod(api, namespace, name, observed) for name in names))
    return observed


async def observe_live_node(api: KubeApi, name: str) -> NodeObservation | None:
    """The node; None if it may not be read. Without an answer, nothing is known of it."""
    try:
        return observe_node(await api.get(Address(kind=NODE, namespace=None, name=name)))
    except NotFound:
        return NodeObservation(name=name, is_ready=None, exists=False)
    except Forbidden:
        return None
    except KubernetesError:
        return NodeObservation(name=name, is_ready=None)


async def _observe_pod(api: KubeApi, namespace: str, name: str, observed: ObservedPods) -> None:
    address = Address(kind=POD, namespace=namespace, name=name)
    try:
        observed.pods[name] = observe_pod(await api.get(address))
    except NotFound:
        observed.pods[name] = None
    except Forbidden as error:
        message = f"the operator may not read pods, so only the processing timeout applies: {error}"
        observed.unreadable[name] = no_cutoff(LivenessReason.FORBIDDEN, message)
    except KubernetesError as error:
        message = f"pod {name} could not be read, so only the processing timeout applies: {error}"
        observed.unreadable[name] = no_cutoff(LivenessReason.UNREADABLE, message)


REMEMBERED: Final = 20_000  # pods


@dataclass(frozen=True, slots=True)
class ClockPair:
    """The same moment on two clocks, to convert times from one to the other."""

    own: float
    server: datetime

    def translate(self, own: float) -> datetime:
        """A moment of this replica's clock, on Redis'."""
        return self.server - timedelta(seconds=self.own - own)


class PodHistory:
    """Records when pods became absent and containers started, from changes of the cache."""

    def __init__(self, cache: WorkloadCache) -> None:
        self._cache = cache
        self._absent: Recent[str, float] = Recent(REMEMBERED)  # by uid
        self._starts: Recent[tuple[str, str, datetime], float] = Recent(REMEMBERED)
        cache.listen(self._record_starts)

    def pair(self, server_time: datetime) -> ClockPair:
        """Redis' time, and this replica's now."""
        return ClockPair(self._cache.clock(), server_time)

    def starts_of(self, pod: PodObservation, clocks: ClockPair) -> Mapping[str, datetime]:
        """When the present process of each container was seen to begin, if that was watched."""
        seen = {
            container.name: self._starts.get((pod.uid, container.name, container.started))
            for container in pod.containers
            if container.started is not None
        }
        return {name: clocks.translate(at) for name, at in seen.items() if at is not None}

    def gone(self, one: GonePod, clocks: ClockPair) -> FormerPod:
        """A pod whose deletion was observed."""
        return self._former(one.pod, clocks.translate(one.seen_gone))

    def missing(self, pod: PodObservation, clocks: ClockPair) -> FormerPod:
        """A pod that a GET did not find, and whose deletion no event reported."""
        return self._former(pod, clocks.translate(self._absent_since(pod.uid)))

    def record_presence(self, pod: PodObservation) -> None:
        """A GET found it, so it was never absent."""
        self._absent.pop(pod.uid, None)

    def remembered(self, record: PodRecord, clocks: ClockPair) -> FormerPod:
        """A pod that only the group's state knows."""
        return FormerPod(
            name=record.name,
            uid=record.uid,
            absent_since=clocks.translate(self._absent_since(record.uid)),
            grace_s=record.grace_s,
            node=self._cache.node(record.node) if record.node else None,
            are_all_nodes_ready=self._cache.are_all_nodes_ready(),
        )

    def _former(self, pod: PodObservation, absent_since: datetime) -> FormerPod:
        return FormerPod(
            name=pod.name,
            uid=pod.uid,
            absent_since=absent_since,
            last=pod,
            grace_s=pod.grace_period_s,
            node=self._cache.node(pod.node) if pod.node is not None else None,
            are_all_nodes_ready=self._cache.are_all_nodes_ready(),
        )

    def _absent_since(self, uid: str) -> float:
        return self._absent.setdefault(uid, self._cache.clock())

    def _record_starts(self, change: PodChange) -> None:
        before, after = change.before, change.after
        if before is None or after is None:
            return  # what ran already at the first observation was not seen to begin
        known = {(one.name, one.started) for one in before.containers}
        for container in after.containers:
            if container.started is not None and (container.name, container.started) not in known:
                self._starts[after.uid, container.name, container.started] = self._cache.clock()


class Clocks(Protocol):
    """Measures how far the clocks of nodes may be off."""

    async def allowance(
        self, node: str | None, redis_time: datetime, default: timedelta, *, server: str = ""
    ) -> timedelta:
        """By how much a cutoff from this node's clock must be earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessQuestion:
    """Consumers of one group, and what Redis has about them."""

    workload: WorkloadObservation
    consumers: Sequence[str]
    records: Mapping[str, str]  # their fields `pod:` and `boot:` of the group's state
    server_time: datetime  # Redis' TIME, taken before the question is asked
    skew: timedelta  # the greatest between a node's clock and Redis', unless it was measured
    container: str | None = None  # the one that reads; None: any of a pod's
    master_since: datetime | None = None  # when the present master was first seen
    server: str = ""  # the address of the Redis

    @property
    def namespace(self) -> str:
        """Where the workload's pods are."""
        return self.workload.target.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLiveness:
    """The liveness of one consumer's processes."""

    cutoff: Cutoff
    match: OwnerMatch
    record: str | None = None  # what its field `pod:` should become; None: it stays


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """One consumer, and the pods that its name may refer to."""

    consumer: str
    match: OwnerMatch
    record: PodRecord | None  # of a pod that may be known from nowhere else

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all these pods."""
        names = [pod.name for pod in self.match.pods]
        names += [one.pod.name for one in self.match.gone]
        if self.record is not None and self.match.vanished_uid == self.record.uid:
            names.append(self.record.name)
        return tuple(dict.fromkeys(names))

    @property
    def uids(self) -> set[str]:
        """The uids of all these pods."""
        uids = {pod.uid for pod in self.match.pods} | {one.pod.uid for one in self.match.gone}
        return uids if self.match.vanished_uid is None else uids | {self.match.vanished_uid}

    def cached(self, name: str) -> PodObservation | None:
        """The live pod of this name, in its last state from the watch."""
        return next((pod for pod in self.match.pods if pod.name == name), None)

    def gone(self, name: str) -> list[GonePod]:
        """The pods of this name whose deletion was observed."""
        return [one for one in self.match.gone if one.pod.name == name]

    def remembered(self, name: str) -> PodRecord | None:
        """The recorded pod, if it has this name and may be this consumer's."""
        record = self.record
        if record is None or record.name != name:
            return None
        return record if not self.match.is_by_uid or record.uid in self.uids else None

    def has_formers(self, name: str) -> bool:
        """Whether another pod had this name before."""
        record, cached = self.remembered(name), self.cached(name)
        is_other = record is not None and (cached is None or cached.uid != record.uid)
        return is_other or bool(self.gone(name))


class LivenessEvidence:
    """Proves which processes have ended. One for a replica; it listens to the cache."""

    def __init__(
        self, api: KubeApi, cache: WorkloadCache, *, cluster: str = "", clocks: Clocks | None = None
    ) -> None:
        """`cluster` distinguishes the records of this Kubernetes cluster from those of others."""
        self._api = api
        self._cache = cache
        self._cluster = cluster
        self._clocks = clocks
        self._history = PodHistory(cache)
        # The states of pods by GET, by uid; None: deleted.
        self._confirmed: Recent[str, PodObservation | None] = Recent(REMEMBERED)

    async def find_liveness(self, question: LivenessQuestion) -> dict[str, ConsumerLiveness]:
        """The liveness of every consumer. Without an answer of the API server, no cutoff."""
        pods, gone = self._cache.pods_of(question.workload)
        owners = Owners(pods, gone, is_stranger=lambda name: self._exists(question, name))
        consumers = [
            self._find_candidates(question, name, owners.match(name)) for name in question.consumers
        ]
        wanted = {
            name
            for candidates in consumers
            for name in candidates.names
            if self._needs_read(candidates, name)
        }
        observed = await observe_pods(self._api, question.namespace, sorted(wanted))
        liveness = await asyncio.gather(
            *(self._find_liveness(question, candidates, observed) for candidates in consumers)
        )
        return {
            candidates.consumer: one for candidates, one in zip(consumers, liveness, strict=True)
        }

    def _exists(self, question: LivenessQuestion, name: str) -> bool:
        return self._cache.pods.get((question.namespace, name)) is not None

    def _find_candidates(
        self, question: LivenessQuestion, consumer: str, match: OwnerMatch
    ) -> _Candidates:
        record = parse_pod_record(question.records.get(POD_FIELD + consumer))
        # Pods of another cluster or namespace are not in this cache, and may be alive.
        here = (self._cluster, question.namespace)
        if record is None or match.is_strangers or (record.cluster, record.namespace) != here:
            return _Candidates(consumer=consumer, match=match, record=None)
        if match.is_unknown or match.vanished_uid == record.uid:
            # The workload may be deleted, and with it the selector that would find the pod.
            deleted = self._cache.pods.gone.find(record.namespace, record.uid)
            gone = () if deleted is None else (deleted,)
            match = replace(match, gone=gone, vanished_uid=record.uid)
        return _Candidates(consumer=consumer, match=match, record=record)

    def _needs_read(self, candidates: _Candidates, name: str) -> bool:
        """Whether a GET may show more than is known.

        A deleted uid does not return, and a later state of a pod only makes its cutoff later. But
        another pod may have the name of a pod that has ended.
        """
        cached, is_by_uid = candidates.cached(name), candidates.match.is_by_uid
        if cached is None:
            return not is_by_uid or any(uid not in self._confirmed for uid in candidates.uids)
        is_confirmed = self._confirmed.get(cached.uid) == cached
        if has_ended(cached):
            return not (is_by_uid and is_confirmed)
        return (could_be_dead(cached) or candidates.has_formers(name)) and not is_confirmed

    async def _find_liveness(
        self, question: LivenessQuestion, candidates: _Candidates, observed: ObservedPods
    ) -> ConsumerLiveness:
        if candidates.match.is_unknown:
            message = f"{candidates.consumer} does not match any pod of {question.workload.target}"
            return ConsumerLiveness(
                cutoff=no_cutoff(LivenessReason.UNKNOWN, message), match=candidates.match
            )
        unreadable = next(
            (observed.unreadable[name] for name in candidates.names if name in observed.unreadable),
            None,
        )
        if unreadable is not None:
            return ConsumerLiveness(cutoff=unreadable, match=candidates.match)
        clocks = self._history.pair(question.server_time)
        pod_evidence = [
            await self._gather(question, candidates, name, observed, clocks)
            for name in candidates.names
        ]
        pod_evidence = pod_evidence or [PodEvidence(consumer=candidates.consumer, live=None)]
        cutoffs = [await self._decide(question, evidence) for evidence in pod_evidence]
        record = (
            self._record(question, candidates, pod_evidence[0], cutoffs[0])
            if len(pod_evidence) == 1
            else None
        )
        return ConsumerLiveness(cutoff=combine(cutoffs), match=candidates.match, record=record)

    async def _decide(self, question: LivenessQuestion, evidence: PodEvidence) -> Cutoff:
        skew, live = question.skew, evidence.live
        could_end = live is not None and (could_be_dead(live) or evidence.is_succession)
        if self._clocks is not None and live is not None and could_end:
            skew = await self._clocks.allowance(
                live.node, question.server_time, skew, server=question.server
            )
        return decide_cutoff(
            evidence,
            server_time=question.server_time,
            skew=skew,
            master_since=question.master_since,
            container=question.container,
        )

    async def _gather(
        self,
        question: LivenessQuestion,
        candidates: _Candidates,
        name: str,
        observed: ObservedPods,
        clocks: ClockPair,
    ) -> PodEvidence:
        cached = candidates.cached(name)
        seen = observed.pods.get(name, cached)
        is_meant = seen is not None and (
            not candidates.match.is_by_uid or seen.uid in candidates.uids
        )
        live = keep_request(seen, cached) if seen is not None and is_meant else None
        formers = self._formers(candidates, name, clocks, live)
        if name in observed.pods:
            self._confirm(formers, live)
        record = candidates.remembered(name)
        is_recorded = record is not None and live is not None and record.uid == live.uid
        node = self._cache.node(live.node) if live is not None and live.node else None
        return PodEvidence(
            consumer=candidates.consumer,
            live=live,
            formers=tuple([await self._with_node(former) for former in formers]),
            has_proven_formers=is_recorded and record is not None and record.is_successor,
            node=node,
            boot=_moment(question.records.get(BOOT + candidates.consumer)),
            first_seen=self._history.starts_of(live, clocks) if live is not None else {},
        )

    def _formers(
        self, candidates: _Candidates, name: str, clocks: ClockPair, live: PodObservation | None
    ) -> list[FormerPod]:
        history, cached, record = (
            self._history,
            candidates.cached(name),
            candidates.remembered(name),
        )
        known = {live.uid} if live is not None else set()
        formers = [history.gone(one, clocks) for one in candidates.gone(name)]
        if cached is not None and cached.uid not in known:
            formers.append(history.missing(cached, clocks))
        known |= {former.uid for former in formers}
        if record is not None and record.uid not in known:
            formers.append(history.remembered(record, clocks))
        return [former for former in formers if live is None or former.uid != live.uid]

    def _confirm(self, formers: Sequence[FormerPod], live: PodObservation | None) -> None:
        for former in formers:
            self._confirmed[former.uid] = None
        if live is not None:
            self._confirmed[live.uid] = live
            self._history.record_presence(live)

    async def _with_node(self, former: FormerPod) -> FormerPod:
        """The former pod, with its node read live when nothing else proves the end."""
        has_proof = former.last is not None and has_ended(former.last)
        if has_proof or former.node is None:
            return former
        return replace(
            former, node=await observe_live_node(self._api, former.node.name) or former.node
        )

    def _record(
        self,
        question: LivenessQuestion,
        candidates: _Candidates,
        evidence: PodEvidence,
        cutoff: Cutoff,
    ) -> str | None:
        """The record of the live pod, once the backlog is empty to the one that is recorded now."""
        live = evidence.live
        if live is None or live.node is None or cutoff.reason is LivenessReason.MAYBE_ALIVE:
            return None
        record = PodRecord(
            uid=live.uid,
            name=live.name,
            node=live.node,
            grace_s=live.grace_period_s,
            namespace=question.namespace,
            cluster=self._cluster,
            is_successor=evidence.is_succession,
        )
        return None if record == candidates.record else render_pod_record(record)


def _moment(ms: str | None) -> datetime | None:
    """Parse a time of the state; None if it is not a valid time."""
    if ms is None or not ms.isdecimal() or len(ms) > 15 or int(ms) > LATEST_MS:
        return None
    return from_ms(int(ms))


NODE_LEASES: Final = "kube-node-lease"  # the namespace in which every kubelet renews its Lease
FRESH_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _LeaseRead:
    at: float
    renewed: datetime | None  # None: the Lease cannot be read


class NodeClocks:
    """Reads a node's Lease at most once in 5 seconds, and only when asked about the node."""

    def __init__(self, api: KubeApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._reads: dict[str, _LeaseRead] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._samples: dict[tuple[str, str], tuple[ClockSample, ...]] = {}  # node and Redis

    async def allowance(
        self, node: str | None, redis_time: datetime, default: timedelta, *, server: str = ""
    ) -> timedelta:
        """By how much a cutoff from this node's clock must be earlier: see `policy/`.

        `redis_time` is Redis' TIME shortly before, and `server` the address of that Redis, since
        each has its own clock. `default` if there is no node, or if its Lease cannot be read: the
        right to `get` it is optional.
        """
        if node is None:
            return default
        began_at = self._clock()
        renewed = await self._read(node)
        read = redis_time + timedelta(seconds=self._clock() - began_at)
        samples = self._samples.get((node, server), ())
        if renewed is not None:
            samples = remember_sample(samples, ClockSample(renewed=renewed, read=read))
            self._samples[node, server] = samples
        return decide_allowance(samples, read, default=default)

    def prune(self) -> None:
        """Drop nodes that were not used for long."""
        oldest = self._clock() - KEPT.total_seconds()
        self._reads = {node: known for node, known in self._reads.items() if known.at >= oldest}
        self._samples = {key: kept for key, kept in self._samples.items() if key[0] in self._reads}
        for node in [node for node, turn in self._turns.items() if not turn.locked()]:
            del self._turns[node]

    async def _read(self, node: str) -> datetime | None:
        async with self._turns[node]:
            known = self._reads.get(node)
            if known is not None and self._clock() - known.at < FRESH_S:
                return known.renewed
            renewed = await self._fetch(node)
            self._reads[node] = _LeaseRead(self._clock(), renewed)
            return renewed

    async def _fetch(self, node: str) -> datetime | None:
        try:
            lease = await self._api.get(Address(kind=LEASE, namespace=NODE_LEASES, name=node))
        except KubernetesError:
            return None  # forbidden, missing, or no answer: the default applies
        return _renew_time(lease)


def _renew_time(lease: Manifest) -> datetime | None:
    text = (lease.get("spec") or {}).get("renewTime")
    return datetime.fromisoformat(text) if text else None
