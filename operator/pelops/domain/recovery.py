"""Facts of a scan: pending entries, what became of them, and evidence about their processes.

A liveness cutoff is a time on the Redis server's clock. No process that could hold an entry of the
consumer delivered before it is alive. Only entries delivered strictly before it may be recovered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.json_codec import Codec, Stored, ValueLimits
from pelops.domain.workload import NodeObservation, PodObservation
from pelops.errors import InvalidSpec

# Words that the state's retry batch field may hold in addition to entry IDs.
PARALLEL: Final = "parallel"  # more may join it
FINISHED: Final = "finished"  # some of it was acknowledged


class Trigger(StrEnum):
    """Why a group is scanned now."""

    SCAN = "scan"  # the timer
    START_UP = "start-up"
    POD_DEATH = "pod-death"
    LOCK_EXPIRY = "lock-expiry"


class EntryVerdict(StrEnum):
    """Why an entry stayed where it is. The value is what the scripts return."""

    NOT_PENDING = "not-pending"  # acknowledged or moved meanwhile
    OTHER_OWNER = "other-owner"  # claimed by another consumer meanwhile
    TOO_YOUNG = "too-young"  # delivered after the cutoff, or not idle for long enough
    HELD = "held"  # the position went back: entries pending before may already be processed
    LOCKED = "locked"
    WAITING = "waiting"  # for its backoff
    TOO_WIDE = "too-wide"  # more field pairs than a script can copy
    TOO_LARGE = "too-large"  # more bytes than spec.recovery.maxEntryBytes
    GONE = "gone"  # its body was deleted or trimmed
    REFUSED = "refused"  # Redis did not accept the copy
    NEXT_BATCH = "next-batch"
    OFFERED = "offered"  # this delivery is on offer to workers that claim


class Action(StrEnum):
    """What is done with a suspect now. The value is an argument of the scripts."""

    RETRY = "retry"  # retried, while other suspects wait until it is resolved
    FREE = "free"  # retried, while no other suspect waits for it
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
    owner: str  # its consumer; empty after XNACK returned it to the group
    idle: timedelta  # since its last delivery; negative after XNACK returned it to the group
    delivered: datetime  # its last delivery, on the server's clock
    deliveries: int  # the server's count, which includes polls and history reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A pending entry that may have made its owner's process fail."""

    entry_id: EntryId
    attempts: int  # failed attempts before this one
    isolated_failures: int  # of these, the failures as the only suspect in its process
    delivered: datetime
    deliveries: int
    counts_attempt: bool = True  # this failure counts: the process was not ended on purpose
    is_started: bool = False  # its worker recorded it as started
    was_offered: bool = (
        False  # this delivery was counted as failed and offered to other workers already
    )
    is_on_offer: bool = False  # the offer is in the state, to be repeated and counted


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBatch:
    """The suspects that are being retried while others wait."""

    written: str  # the state's field, which the next decision replaces
    under_way: frozenset[EntryId]  # not yet acknowledged
    undelivered: frozenset[EntryId] = frozenset()  # of these, the ones not delivered yet

    @property
    def is_parallel(self) -> bool:
        """Whether more suspects may join as soon as all members are delivered."""
        return PARALLEL in self.written.split()

    @property
    def has_finished(self) -> bool:
        """Whether a member was acknowledged since the batch began."""
        return FINISHED in self.written.split()

    @property
    def members(self) -> frozenset[EntryId]:
        """All IDs in the state's field, without damaged ones."""
        return frozenset(read_ids(self.written))


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What became of entries that were offered to workers that claim."""

    now: datetime  # on the server's clock
    taken: Mapping[str, int] = field(default_factory=dict)  # since the last check, by trigger
    untaken: int = 0  # offered entries that their owner still has
    oldest: datetime | None = None  # when the first of `untaken` was offered
    due: datetime | None = None  # when the next offer may be repeated
    repeated: int = 0  # offers that this check repeated
    taken_at: datetime | None = None  # when an entry was last seen to be taken

    def plus(self, later: Offers) -> Offers:
        """The sum of both; `now` and `taken_at` are those of `later`."""
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
class ConsumerProgress:
    """What the server reports about the activity of a consumer and of its group's other consumers.

    `None`: never, or the server does not report it (before Redis 7.2).
    """

    asked: datetime  # when the consumer last asked for entries, on the server's clock
    inactive: timedelta | None  # since its last delivery
    newest: timedelta | None  # since the newest of its pending entries was delivered
    others: timedelta | None  # since a delivery to another consumer that has nothing pending

    def has_finished(self, limit: timedelta) -> bool:
        """Whether its last delivery is newer than all its pending entries, so it acknowledged one.

        A delivery longer ago than `limit` does not count: that entry may have been moved instead.
        """
        bound = limit if self.newest is None else min(limit, self.newest)
        return self.inactive is not None and self.inactive < bound

    def have_others_finished(self, limit: timedelta) -> bool:
        """Whether another consumer acknowledged an entry that it got within `limit`."""
        return self.others is not None and self.others < limit


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInScan:
    """A stream that is scanned, as observed when the scan begins."""

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
    """The observation at the beginning of a scan.

    `now` is on the server's clock, and was read before any pod was looked up.
    """

    now: datetime
    master_since: datetime | None  # when this master was first seen; None: there was no other
    retry_batch: RetryBatch
    # Entries delivered before `delay_before` are not recovered until `delay_until`.
    delay_until: datetime | None
    delay_before: datetime | None
    report: str
    cursor: str
    stream: StreamInScan
    retry: StreamInScan | None
    offers: int = 0  # recorded offers, some of which may have been taken meanwhile


def read_ids(words: str) -> Iterable[EntryId]:
    """The IDs in a text, separated by spaces; damaged ones are skipped."""
    for word in words.split():
        try:
            entry_id = parse_entry_id(word)
        except InvalidSpec:
            continue
        if "-" in word:
            yield entry_id


def write_ids(ids: Iterable[EntryId]) -> str:
    """The IDs as text, in ascending order: the same IDs give the same text."""
    return " ".join(map(str, sorted(ids)))


class Death(StrEnum):
    """How a process ended, which decides whether its entries may be the cause."""

    PLANNED = "planned"  # ended on purpose: deletion, eviction, node shutdown
    CRASHED = "crashed"
    KILLED = "killed"  # from outside, or its end was not observed


class LivenessReason(StrEnum):
    """Why a consumer has a cutoff, or has none."""

    # With a cutoff.
    GONE = "PodGone"  # its pod no longer exists, and every container was seen to have ended
    FINISHED = "PodFinished"  # its pod is in a final phase, with every container ended
    RESTARTED = "ContainerRestarted"
    CRASH_LOOP = "CrashLoopBackOff"
    CONTAINER_ENDED = "ContainerEnded"
    REPLACED = "PodReplaced"  # another pod has its name, and the former one has ended
    VANISHED = "PodVanished"  # its end was not observed, but its node had enough time to stop it
    BOOTED = "WorkerBooted"  # its present process has recorded when it began
    # Without a cutoff.
    ALIVE = "PodAlive"
    ENDING = "PodEnding"
    NODE_LOST = "NodeNotReady"
    MAYBE_ALIVE = "PodMayLive"  # its pod no longer exists, but its end was not observed
    NOT_REPORTED = "EndNotReported"  # a final phase that no kubelet wrote, or missing times
    NO_CONTAINER = "ContainerUnknown"
    CLOCK_SKEW = "ClockSkew"
    MASTER_CHANGED = "MasterChanged"
    NEVER_SEEN = "PodNeverSeen"  # its name has the uid of a pod that this operator never saw
    UNKNOWN = "NoPod"  # no pod matches its name
    UNREADABLE = "ApiServerUnavailable"
    FORBIDDEN = "PermissionDenied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoff:
    """The liveness cutoff of one consumer, from pod evidence."""

    at: datetime | None  # on the Redis server's clock; None: only idle time decides
    reason: LivenessReason
    message: str  # for people
    death: Death = Death.KILLED  # how the process before the cutoff ended; unused without a cutoff
    again_at: datetime | None = (
        None  # without a cutoff: when the passing of time alone may give one
    )


def no_cutoff(reason: LivenessReason, message: str, *, again_at: datetime | None = None) -> Cutoff:
    """No cutoff, at least until `again_at`: only idle time decides."""
    return Cutoff(at=None, reason=reason, message=message, again_at=again_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class GonePod:
    """A pod that no longer exists, as it was last observed."""

    pod: PodObservation
    labels: Mapping[str, str]
    seen_gone: float  # when this replica noticed it, in seconds of its own clock


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerPod:
    """A pod that no longer exists, and the evidence whether its processes have ended."""

    name: str
    uid: str
    absent_since: datetime  # on the Redis server's clock
    last: PodObservation | None = None  # as last observed; None: only its record is left
    grace_s: float = 30.0
    node: NodeObservation | None = None  # None: its node is unknown
    are_all_nodes_ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvidence:
    """Everything that is known about the pods with one name that acted as one consumer."""

    consumer: str
    live: PodObservation | None  # from a live GET
    formers: tuple[FormerPod, ...] = ()  # pods of this consumer that no longer exist
    has_proven_formers: bool = False  # earlier pods of this name were proven to have ended
    node: NodeObservation | None = None  # of the live pod; None: nodes cannot be read
    boot: datetime | None = None  # its worker's boot record, on the Redis clock
    # By container: when this replica first saw its present process, on the Redis clock.
    first_seen: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def is_succession(self) -> bool:
        """Whether an earlier pod had the name of the live pod."""
        return bool(self.formers) or self.has_proven_formers


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerMatch:
    """The pods that a consumer's name matches."""

    pods: tuple[PodObservation, ...] = ()
    gone: tuple[GonePod, ...] = ()
    vanished_uid: str | None = None  # the uid in the name, of a pod that was never observed
    is_by_uid: bool = False  # the name holds the uid, so no other pod can match
    is_strangers: bool = False  # the name is that of a pod outside of the workload

    @property
    def is_unknown(self) -> bool:
        """Whether there is no evidence that the owner is a pod of this workload."""
        return not self.pods and not self.gone and self.vanished_uid is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """One field `pod:<consumer>`: identifies a pod in case its end is not observed."""

    uid: Annotated[str, ValueLimits(min_length=1)]
    name: Annotated[str, ValueLimits(min_length=1)]
    node: str
    grace_s: Annotated[float, Stored(Annotated[float, ValueLimits(ge=0)], lambda s: min(s, 1e9))]
    namespace: str
    cluster: str = ""  # identity of its Kubernetes cluster; empty when unknown
    is_successor: bool = False  # earlier pods of its name were proven to have ended


_PODS: Final = Codec(PodRecord, "the record of a pod", limit=64 * 1024)


def parse_pod_record(text: str | None) -> PodRecord | None:
    """The record; None when it is missing or malformed."""
    try:
        return _PODS.parse(text) if text else None
    except InvalidSpec:
        return None


def render_pod_record(record: PodRecord) -> str:
    """The field's value: the same record gives the same text."""
    return _PODS.render(record, has_defaults=False, separators=(",", ":"))
