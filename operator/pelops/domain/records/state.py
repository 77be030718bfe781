"""The state of a group: the fields of the hash `<prefix>:state`.

Every replica of the operator reads the same hash, so all of them report the same about a group.
Losing it costs repeated work, never an entry: positions, retry batches and scans are determined
again.

The ownership record names the resource that acts on the group: the oldest one whose record has not
expired. It is in Redis because two resources may name one group from two Kubernetes clusters, or by
two addresses of one server, which neither API server can detect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Final

from pelops.clock import from_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.json_codec import Codec, Count, Name, names
from pelops.errors import InvalidSpec

# The version of the fields below; absent in version 1. It is raised only by a change that an older
# operator would misread. The field keeps its name and meaning in every version.
FORMAT_VERSION: Final = 1
FORMAT: Final = "group:format"
# Fields with one value. The scripts write them; their names are part of the protocol.
MASTER_REPLID: Final = "master:replid"
MASTER_SINCE: Final = "master:since_ms"  # server time at which this master was first seen
SCAN_AT: Final = "sweep:at_ms"  # when the last scan began, completed or not
SCAN_DONE: Final = "sweep:done_ms"  # when the last completed scan began
SCAN_CURSOR: Final = "sweep:cursor"
SCAN_REPORT: Final = "sweep:report"
SEEN_DELIVERED: Final = "seen:last_delivered"
SEEN_LOWEST: Final = "seen:lowest_pending"  # empty: nothing was pending
SEEN_ADDED: Final = "seen:entries_added"
SEEN_GENERATED: Final = "seen:last_generated"
SEEN_PENDING: Final = "seen:pending"
SEEN_UNDELIVERED: Final = "seen:undelivered"  # a lower bound; empty: not known
SEEN_AT: Final = "seen:at_ms"
SEEN_REPLID: Final = "seen:replid"  # the master that it was read from
WATCH: Final = "watch"  # the basis of comparison for the next observation: see watch.lua
CREATED_AT: Final = "group:created_ms"  # when the operator last created the group
TRIM_AT: Final = "trim:at_ms"  # when trimming last removed nothing, or last ran with many groups
CHECKPOINT_AT: Final = "bookmark:at_ms"
BACK_SINCE: Final = "back:since_ms"
BACK_FROM: Final = "back:from"
BACK_TO: Final = "back:to"
BACK_DELAY_UNTIL: Final = "back:hold_until_ms"
LOSS_AT_LEAST: Final = "loss:at_least"
LOSS_AT_MOST: Final = "loss:at_most"  # empty: no bound is known
LOSS_POSITION: Final = "loss:position"
LOSS_SEEN: Final = "loss:seen_ms"
LOSS_CAUSE: Final = "loss:cause"  # a LossCause; absent: trimmed
LOSS_UNDELIVERED: Final = "loss:undelivered"  # of a cause other than trimming, as last observed
LOSS_PENDING: Final = "loss:pending"
LOSS_OBSERVED: Final = "loss:observed_ms"  # when these were observed; empty: not known
LOSS_FOUND: Final = "loss:found_ms"  # when it was recorded; kept after acknowledgement
DROPPED_AT_MOST: Final = "dropped:at_most"
DROPPED_CONSUMER: Final = "dropped:consumer"  # one of the deleted consumers
DROPPED_CONSUMERS: Final = "dropped:consumers"  # their number
DROPPED_OBSERVED: Final = "dropped:observed_ms"
DROPPED_FOUND: Final = "dropped:found_ms"  # when it was recorded; kept after acknowledgement
DROPPED_SEEN: Final = "dropped:seen_ms"
TOTAL_REQUEUED: Final = "total:requeued"
TOTAL_RELEASED: Final = "total:released"
TOTAL_DEAD_LETTERED: Final = "total:dead_lettered"
TOTAL_PAYLOAD_GONE: Final = "total:payload_gone"
TOTAL_TRIMMED: Final = "total:trimmed"
TOTAL_REDRIVEN: Final = "total:redriven"
TOTAL_DISCARDED: Final = "total:discarded"
TOTAL_RESTORED: Final = "total:restored"
# "first_undelivered position at_ms": the first undelivered copy in the retry stream, and the
# group's position on the stream when that was recorded.
RETRY_WAITS: Final = "retry:waits"
RETRY_BATCH: Final = "chunk"  # IDs of suspects released and not yet resolved, separated by spaces

# The fields that every observation reads, in one HMGET.
FIXED_FIELDS: Final = (
    FORMAT,
    *(MASTER_SINCE, SCAN_DONE, SCAN_REPORT, CHECKPOINT_AT, CREATED_AT, TRIM_AT),
    *(SEEN_DELIVERED, SEEN_LOWEST, SEEN_ADDED, SEEN_GENERATED, SEEN_AT),
    *(SEEN_PENDING, SEEN_UNDELIVERED),
    *(BACK_SINCE, BACK_FROM, BACK_TO, BACK_DELAY_UNTIL),
    *(LOSS_AT_LEAST, LOSS_AT_MOST, LOSS_POSITION, LOSS_SEEN),
    *(LOSS_CAUSE, LOSS_UNDELIVERED, LOSS_PENDING, LOSS_OBSERVED, LOSS_FOUND),
    *(DROPPED_AT_MOST, DROPPED_CONSUMER, DROPPED_CONSUMERS, DROPPED_OBSERVED),
    *(DROPPED_FOUND, DROPPED_SEEN),
    *(TOTAL_REQUEUED, TOTAL_RELEASED, TOTAL_DEAD_LETTERED, TOTAL_PAYLOAD_GONE, TOTAL_TRIMMED),
    *(TOTAL_REDRIVEN, TOTAL_DISCARDED, TOTAL_RESTORED),
    RETRY_WAITS,
)


class StickyCondition(StrEnum):
    """Types of the conditions that stay until a person acknowledges them."""

    DATA_LOSS = "DataLoss"
    POSITION_WENT_BACK = "PositionWentBack"
    PENDING_DROPPED = "PendingEntriesDropped"


# The fields that an acknowledgement deletes. The numbers of a loss stay, so it is not reported
# again.
STICKY_FIELDS: Final[Mapping[StickyCondition, tuple[str, ...]]] = {
    StickyCondition.DATA_LOSS: (LOSS_SEEN,),
    StickyCondition.POSITION_WENT_BACK: (BACK_SINCE, BACK_FROM, BACK_TO, BACK_DELAY_UNTIL),
    StickyCondition.PENDING_DROPPED: (DROPPED_SEEN,),
}

# Prefixes of fields that exist once for each consumer or entry.
CO_FAILED: Final = "crowd:"  # + consumer: entries delivered before this time (ms) failed together
# + entry ID: "attempts isolated_failures delivered_ms"; " offered" while this delivery is on offer
TRY: Final = "try:"
OFFER: Final = "offer:"  # + number, from offers:first to offers:last: an offer that is not taken
POD: Final = "pod:"  # + consumer: JSON of the pod that it was matched to
# + "running", or the uid of a StreamRedrive, ":" and the name of a value: see redrive.lua
REDRIVE: Final = "redrive:"
BOOT: Final = "boot:"  # + consumer: when its process began, ms by Redis TIME; the SDK writes it


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedPosition:
    """The group's position as last observed: `last_delivered_id` and `lowest_pending`.

    The counters are the stream's when the group was first seen at this position.
    """

    last_delivered_id: EntryId
    lowest_pending: EntryId | None  # None: nothing was pending
    entries_added: int
    last_generated_id: EntryId
    at: datetime
    pending: int = 0
    undelivered: int = 0  # a lower bound


class LossCause(StrEnum):
    """How entries that the group had not acknowledged were lost."""

    TRIMMED = "trimmed"  # deleted or trimmed before they were delivered
    STREAM_GONE = "stream-gone"  # the whole stream was deleted, evicted or flushed
    RETRY_STREAM_GONE = "retry-stream-gone"
    TAIL_LOST = "tail-lost"  # the server came back with an older state of the stream


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBack:
    """The group's position went back, after a failover or a restored backup."""

    since: datetime
    before: EntryId  # last-delivered-id as it was before
    after: EntryId  # last-delivered-id as it was found
    delay_until: datetime  # until then, no entry delivered before `since` is recovered


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Entries that were removed from Redis before the group had acknowledged them.

    For trimmed entries the bounds are exact. For other causes the numbers are those of the last
    observation, without what was added or acknowledged later.
    """

    at_least: int
    at_most: int | None  # None: no bound is known
    position: EntryId  # last-delivered-id when the loss was found, or as last observed before it
    seen: datetime
    cause: LossCause = LossCause.TRIMMED
    undelivered: int = 0  # for other causes than trimming, as last observed
    pending: int = 0
    observed: datetime | None = None  # time of that observation; None: see the resource's status
    # The lost entries are after `after` and before `before`; None: right after `position`.
    after: EntryId | None = None
    before: EntryId | None = None

    @property
    def is_certain(self) -> bool:
        """Whether entries were certainly lost; else users may have deleted all of them."""
        return self.at_least > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleLoss:
    """Entries that were removed, and passed by the group's position, between two observations.

    Redis does not record whether they were delivered before they were removed.
    """

    after: EntryId  # the entries were after this ID,
    before: EntryId  # and before this one
    at_most: int | None  # None: no bound is known


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedConsumers:
    """Consumers that were deleted by other clients while they had pending entries."""

    at_most: int  # entries that were pending
    consumer: str  # one of them
    consumers: int
    observed: datetime  # when these entries were last seen pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counters of the operator's actions, incremented by the scripts that perform them."""

    requeued: int = 0
    released: int = 0
    dead_lettered: int = 0
    payload_gone: int = 0
    trimmed: int = 0
    redriven: int = 0
    discarded: int = 0
    restored: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """What the last scan could not resolve. All replicas read the same report."""

    reason: str = ""  # why recovery does not work, or only in part; empty: it works
    message: str = ""
    unmovable: Count = 0  # entries that no script can move
    unmovable_example: str = ""
    unmatched: tuple[Name, ...] = ()  # consumers with pending entries that no pod matches
    is_partial: bool = False  # there were too many consumers to check, so more may be unmatched
    waiting: Count = 0  # suspects that wait until the retry batch is resolved
    offered: Count = 0  # entries that are offered to workers that claim, and not taken
    stuck: Count | None = None  # stuck entries that were not recovered; None: not known
    is_not_taken: bool = False  # no worker has taken an offered entry for too long
    __pydantic_config__: ClassVar[Any] = names(is_not_taken="not_taken")


_REPORTS: Final = Codec(ScanReport, "the report of a scan", limit=1024 * 1024)


def parse_report(text: str) -> ScanReport:
    """The report that a scan wrote; a malformed one counts as never written."""
    try:
        return _REPORTS.parse(text)
    except InvalidSpec:
        return ScanReport()


def render_report(report: ScanReport) -> str:
    """The report as JSON without empty fields; equal reports give equal texts."""
    return _REPORTS.render(report, has_defaults=False, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryWait:
    """A copy that waits in the retry stream for its delivery, as first recorded."""

    first_undelivered: EntryId
    position: EntryId  # the group's position on the stream at that time
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The group's state as it was read; fields that were never written have their defaults."""

    format: int = 1  # the format version
    seen: RememberedPosition | None = None
    back: WentBack | None = None
    loss: Loss | None = None
    acknowledged_loss: Loss | None = None  # set instead of `loss` after its acknowledgement
    loss_found_at: datetime | None = None  # when the last loss was recorded
    dropped: DroppedConsumers | None = None
    dropped_found_at: datetime | None = None  # when the last dropped entries were recorded
    totals: Totals = field(default_factory=Totals)
    report: ScanReport = field(default_factory=ScanReport)
    scanned_at: datetime | None = None  # when the last completed scan began
    checkpointed_at: datetime | None = None
    master_since: datetime | None = None  # None: this server was the master from the beginning
    created_at: datetime | None = None  # None: the operator did not create the group
    trim_tried_at: datetime | None = None  # see `TRIM_AT`
    retry_wait: RetryWait | None = None


def parse_state(fields: Mapping[str, str | None]) -> GroupState:
    """The state from its fields; damaged fields count as never written. Never raises."""
    loss, is_acknowledged = _parse_loss(fields), fields.get(LOSS_SEEN) is None
    return GroupState(
        format=_number(fields.get(FORMAT)) or 1,
        seen=_parse_seen(fields),
        back=_parse_back(fields),
        loss=None if is_acknowledged else loss,
        acknowledged_loss=loss if is_acknowledged else None,
        loss_found_at=parse_moment(fields.get(LOSS_FOUND)),
        dropped=_parse_dropped(fields),
        dropped_found_at=parse_moment(fields.get(DROPPED_FOUND)),
        totals=Totals(
            requeued=_number(fields.get(TOTAL_REQUEUED)) or 0,
            released=_number(fields.get(TOTAL_RELEASED)) or 0,
            dead_lettered=_number(fields.get(TOTAL_DEAD_LETTERED)) or 0,
            payload_gone=_number(fields.get(TOTAL_PAYLOAD_GONE)) or 0,
            trimmed=_number(fields.get(TOTAL_TRIMMED)) or 0,
            redriven=_number(fields.get(TOTAL_REDRIVEN)) or 0,
            discarded=_number(fields.get(TOTAL_DISCARDED)) or 0,
            restored=_number(fields.get(TOTAL_RESTORED)) or 0,
        ),
        report=parse_report(fields.get(SCAN_REPORT) or "{}"),
        scanned_at=parse_moment(fields.get(SCAN_DONE)),
        checkpointed_at=parse_moment(fields.get(CHECKPOINT_AT)),
        # 0 is written for the first master that was ever seen.
        master_since=parse_moment(fields.get(MASTER_SINCE))
        if _number(fields.get(MASTER_SINCE))
        else None,
        created_at=parse_moment(fields.get(CREATED_AT)),
        trim_tried_at=parse_moment(fields.get(TRIM_AT)),
        retry_wait=_parse_retry_wait(fields.get(RETRY_WAITS)),
    )


def _parse_seen(fields: Mapping[str, str | None]) -> RememberedPosition | None:
    delivered, generated = _id(fields.get(SEEN_DELIVERED)), _id(fields.get(SEEN_GENERATED))
    added, at = _number(fields.get(SEEN_ADDED)), parse_moment(fields.get(SEEN_AT))
    lowest_text = fields.get(SEEN_LOWEST)
    lowest = _id(lowest_text)
    if delivered is None or generated is None or added is None or at is None:
        return None
    if lowest is None and lowest_text != "":
        return None
    return RememberedPosition(
        last_delivered_id=delivered,
        lowest_pending=lowest,
        entries_added=added,
        last_generated_id=generated,
        at=at,
        pending=_number(fields.get(SEEN_PENDING)) or 0,
        undelivered=_number(fields.get(SEEN_UNDELIVERED)) or 0,
    )


def _parse_back(fields: Mapping[str, str | None]) -> WentBack | None:
    since, until = parse_moment(fields.get(BACK_SINCE)), parse_moment(fields.get(BACK_DELAY_UNTIL))
    before, after = _id(fields.get(BACK_FROM)), _id(fields.get(BACK_TO))
    if since is None or until is None or before is None or after is None:
        return None
    return WentBack(since=since, before=before, after=after, delay_until=until)


def _parse_loss(fields: Mapping[str, str | None]) -> Loss | None:
    at_least, position = _number(fields.get(LOSS_AT_LEAST)), _id(fields.get(LOSS_POSITION))
    seen = parse_moment(fields.get(LOSS_SEEN, None) or "0")
    if at_least is None or position is None or seen is None:
        return None
    at_most = _number(fields.get(LOSS_AT_MOST))
    cause = fields.get(LOSS_CAUSE)
    return Loss(
        at_least=at_least,
        at_most=at_most,
        position=position,
        seen=seen,
        cause=LossCause(cause) if cause in set(LossCause) else LossCause.TRIMMED,
        undelivered=_number(fields.get(LOSS_UNDELIVERED)) or 0,
        pending=_number(fields.get(LOSS_PENDING)) or 0,
        observed=parse_moment(fields.get(LOSS_OBSERVED)),
    )


def _parse_retry_wait(text: str | None) -> RetryWait | None:
    words = (text or "").split(" ")
    if len(words) != 3:
        return None
    first, position, at = _id(words[0]), _id(words[1]), parse_moment(words[2])
    if first is None or position is None or at is None:
        return None
    return RetryWait(first_undelivered=first, position=position, at=at)


def _parse_dropped(fields: Mapping[str, str | None]) -> DroppedConsumers | None:
    at_most, observed = (
        _number(fields.get(DROPPED_AT_MOST)),
        parse_moment(fields.get(DROPPED_OBSERVED)),
    )
    if not at_most or observed is None or parse_moment(fields.get(DROPPED_SEEN)) is None:
        return None
    return DroppedConsumers(
        at_most=at_most,
        consumer=fields.get(DROPPED_CONSUMER) or "",
        consumers=_number(fields.get(DROPPED_CONSUMERS)) or 1,
        observed=observed,
    )


def _number(text: str | None) -> int | None:
    # 19 digits hold every Redis counter; the limit bounds the cost of the conversion.
    fits = text is not None and 0 < len(text) <= 19 and text.isascii() and text.isdigit()
    return int(text) if fits and text is not None else None


def parse_moment(text: str | None) -> datetime | None:
    """A time that the state holds in milliseconds; None when it is absent or damaged."""
    ms = _number(text)
    return None if ms is None else from_ms(ms)


def _id(text: str | None) -> EntryId | None:
    try:
        return parse_entry_id(text) if text and "-" in text else None
    except InvalidSpec:
        return None


OWNERSHIP_LIFETIME: Final = timedelta(
    minutes=10
)  # a record that is not renewed for this long expires


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """The identity of a resource that acts on a group, as written to Redis."""

    uid: str
    cluster: str  # identity of the Kubernetes cluster; empty when unknown
    namespace: str
    name: str
    created: datetime  # of the resource; the oldest resource acts

    def __post_init__(self) -> None:
        if self.created.tzinfo is None:
            raise InvalidSpec("the creation time of an owner needs a time zone")

    def __str__(self) -> str:
        place = f" of cluster {self.cluster}" if self.cluster else ""
        return f"{self.namespace}/{self.name}{place}"

    def is_same_as(self, other: OwnerRecord) -> bool:
        """Whether both records are of the same resource, judged by its uid alone.

        The cluster may be unknown: a namespaced install cannot read its identity.
        """
        return self.uid == other.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipRecord:
    """The owner as recorded in the group's state."""

    owner: OwnerRecord
    owned_until: datetime  # on the server's clock
