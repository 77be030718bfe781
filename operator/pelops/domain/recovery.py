"""Facts of a scan: pending entries, what became of them, and what is known of their processes.

A cutoff is a time on the Redis server's clock: no process that could hold an entry of this consumer
delivered before it is alive. An entry may be moved only when it was delivered strictly before.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.workload import NodeObservation, PodObservation
from pelops.errors import InvalidSpec

# Words of the retry batch beside its IDs.
PARALLEL: Final = "parallel"  # more may join it
FINISHED: Final = "finished"  # some of it was acknowledged


class Trigger(StrEnum):
    """Why a group is scanned now."""

    SCAN = "scan"  # the timer
    START_UP = "start-up"
    POD_DEATH = "pod-death"
    LOCK_EXPIRY = "lock-expiry"


class EntryVerdict(StrEnum):
    """Why an entry stayed where it is. The value is what the scripts answer."""

    NOT_PENDING = "not-pending"  # somebody acknowledged or moved it
    OTHER_OWNER = "other-owner"  # somebody claimed it
    TOO_YOUNG = "too-young"  # delivered after the cutoff, or not idle for long enough
    HELD = "held"  # the group went back, and what was pending before may be done
    LOCKED = "locked"
    WAITING = "waiting"  # for its backoff
    TOO_WIDE = "too-wide"  # more field pairs than a script can copy
    TOO_LARGE = "too-large"  # more bytes than spec.recovery.maxEntryBytes
    GONE = "gone"  # its body is
    REFUSED = "refused"  # Redis did not take the copy
    NEXT_BATCH = "next-batch"
    OFFERED = "offered"  # this delivery is on offer to workers that claim


class Action(StrEnum):
    """What is done with a suspect now. The value is what the scripts are informed."""

    RETRY = "retry"  # it is tried again, and others wait until it is resolved
    FREE = "free"  # it is tried again, and nobody waits
    DEAD = "dead"  # it becomes a dead letter


class LetterReason(StrEnum):
    """Why an entry became a dead letter."""

    MAX_RETRIES = "MaxRetriesExceeded"
    PAYLOAD_GONE = "PayloadGone"
    STREAM_EXHAUSTED = "StreamExhausted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEntry:
    """An entry that was delivered and not acknowledged."""

    entry_id: EntryId
    owner: str  # its consumer; empty when it was given back to the group
    idle: timedelta  # since it was delivered last; negative when it was given back
    delivered: datetime  # the same, on the server's clock
    deliveries: int  # as the server counts; polls and history reads count too


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A pending entry whose owner failed, and that may be the cause."""

    entry_id: EntryId
    owner: str
    attempts: int  # failed attempts before this one
    isolated_failures: int  # of these, how often it failed with no other suspect beside it
    delivered: datetime
    deliveries: int
    counts_attempt: bool = True  # this failure counts: the process did not end on purpose
    is_started: bool = False  # its worker had said that it started it
    was_offered: bool = (
        False  # this delivery was counted as failed and offered to other workers already
    )
    is_on_offer: bool = False  # and the offer is remembered, to be repeated and counted


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBatch:
    """The suspects that are being tried again, and for which others wait."""

    written: str  # as the state has it; changed by whoever decides next
    under_way: frozenset[EntryId]  # not yet acknowledged
    undelivered: frozenset[EntryId] = frozenset()  # of these: no worker has been given them yet

    @property
    def is_parallel(self) -> bool:
        """Whether more may join it as soon as all of it is delivered."""
        return PARALLEL in self.written.split()

    @property
    def has_finished(self) -> bool:
        """Whether some of it was acknowledged since it was begun."""
        return FINISHED in self.written.split()

    @property
    def members(self) -> frozenset[EntryId]:
        """All IDs that the state names; damaged words are left out."""
        return frozenset(read_ids(self.written))


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What became of entries that were offered to workers that claim."""

    now: datetime  # on the server's clock
    taken: Mapping[str, int] = field(default_factory=dict)  # since the last look, by trigger
    untaken: int = 0  # entries that are still with the owner that they were offered of
    oldest: datetime | None = None  # when the first of these was offered
    due: datetime | None = None  # when the next offer may be repeated
    repeated: int = 0  # offers repeated by this look
    taken_at: datetime | None = None  # when something was last seen to be taken

    def plus(self, later: Offers) -> Offers:
        """Both together."""
        taken = Counter(self.taken)
        taken.update(later.taken)
        return Offers(
            now=later.now,
            taken=taken,
            untaken=self.untaken + later.untaken,
            oldest=min(filter(None, (self.oldest, later.oldest)), default=None),
            due=min(filter(None, (self.due, later.due)), default=None),
            repeated=self.repeated + later.repeated,
            taken_at=later.taken_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the server reports a consumer's work, and of the work of the group's others.

    `None`: never, or the server does not tell (before Redis 7.2).
    """

    asked: datetime  # when the consumer last asked for entries, on the server's clock
    inactive: timedelta | None  # since it was given one
    newest: timedelta | None  # since the newest of its pending entries was delivered
    others: timedelta | None  # since any other consumer was given an entry, of those that own none

    def has_finished(self, limit: timedelta) -> bool:
        """Whether it was given an entry later than any that is pending, and so acknowledged it.

        What was given longer ago than the limit may have been moved instead.
        """
        bound = limit if self.newest is None else min(limit, self.newest)
        return self.inactive is not None and self.inactive < bound

    def have_others_finished(self, limit: timedelta) -> bool:
        """The same of the group's others."""
        return self.others is not None and self.others < limit


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInScan:
    """A stream that is scanned, seen at its beginning."""

    name: str
    seen: datetime  # on the server's clock
    groups: int
    pending: int
    consumers: int
    last_delivered_id: EntryId
    last_generated_id: EntryId
    first_id: EntryId | None
    lowest_pending: EntryId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanObservation:
    """What a scan begins with. `now` is the server's, from before any pod was asked about."""

    now: datetime
    master_since: datetime | None  # when the present master was first seen; None: always the same
    retry_batch: RetryBatch
    delay_until: datetime | None  # what was delivered before `delay_before` stays until then
    delay_before: datetime | None
    report: str
    cursor: str
    stream: StreamInScan
    retry: StreamInScan | None
    offers: int = 0  # that may not be taken


def read_ids(words: str) -> Iterable[EntryId]:
    """The IDs in a text, separated by spaces."""
    for word in words.split():
        try:
            entry_id = parse_entry_id(word)
        except InvalidSpec:
            continue  # damaged
        if "-" in word:
            yield entry_id


def write_ids(ids: Iterable[EntryId]) -> str:
    """The IDs as text, the smallest first: the same IDs, the same text."""
    return " ".join(map(str, sorted(ids)))


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
