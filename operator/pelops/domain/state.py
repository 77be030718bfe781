"""What a group remembers beside its stream: the fields of the hash `<prefix>:state`.

Every replica reads the same hash, so all of them tell the same about a group whichever of them did
the work. Losing it costs repetition, never an entry: positions are found anew, retry batches are
formed anew, and a scan that is not remembered is scanned again.

The ownership record says who acts on the group. Two resources may name one group from two clusters,
or under two spellings of one address. Neither API server can see that, so the group itself says
it: the oldest resource whose record has not expired.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pelops.clock import from_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.errors import InvalidSpec

# The format of the fields below, as a number; absent in a state of version 1. Only a change that an
# older operator would misread raises it. The field keeps its name and meaning in every version.
FORMAT_VERSION: Final = 1
FORMAT: Final = "group:format"
# Fields with one value. The scripts write them; their names are part of the protocol.
MASTER_REPLID: Final = "master:replid"
MASTER_SINCE: Final = "master:since_ms"  # server time at which this master was first seen
SCAN_AT: Final = "sweep:at_ms"  # when a scan began last, whatever came of it
SCAN_DONE: Final = "sweep:done_ms"  # when the last one began that was completed
SCAN_CURSOR: Final = "sweep:cursor"
SCAN_REPORT: Final = "sweep:report"
SEEN_DELIVERED: Final = "seen:last_delivered"
SEEN_LOWEST: Final = "seen:lowest_pending"  # empty: nothing was pending
SEEN_ADDED: Final = "seen:entries_added"
SEEN_GENERATED: Final = "seen:last_generated"
SEEN_PENDING: Final = "seen:pending"
SEEN_UNDELIVERED: Final = "seen:undelivered"  # at least so many; empty: not known
SEEN_AT: Final = "seen:at_ms"
SEEN_REPLID: Final = "seen:replid"  # the master that it was read from
WATCH: Final = "watch"  # what the next observation is compared with: see watch.lua
CREATED_AT: Final = "group:created_ms"  # when we made the group, for the first time or anew
TRIM_AT: Final = "trim:at_ms"  # when trimming was last tried and could not go on
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
LOSS_FOUND: Final = "loss:found_ms"  # when it was recorded; stays when it is acknowledged
DROPPED_AT_MOST: Final = "dropped:at_most"
DROPPED_CONSUMER: Final = "dropped:consumer"  # one of them
DROPPED_CONSUMERS: Final = "dropped:consumers"  # how many
DROPPED_OBSERVED: Final = "dropped:observed_ms"
DROPPED_FOUND: Final = "dropped:found_ms"  # when it was recorded; stays when it is acknowledged
DROPPED_SEEN: Final = "dropped:seen_ms"
TOTAL_REQUEUED: Final = "total:requeued"
TOTAL_RELEASED: Final = "total:released"
TOTAL_DEAD_LETTERED: Final = "total:dead_lettered"
TOTAL_PAYLOAD_GONE: Final = "total:payload_gone"
TOTAL_TRIMMED: Final = "total:trimmed"
TOTAL_REDRIVEN: Final = "total:redriven"
TOTAL_DISCARDED: Final = "total:discarded"
TOTAL_RESTORED: Final = "total:restored"
# "first_undelivered position at_ms": the copy that waits first in the retry stream, and where the
# group stood on the stream when that was noted.
RETRY_WAITS: Final = "retry:waits"
RETRY_BATCH: Final = "chunk"  # IDs of suspects released and not yet resolved, separated by spaces

# What every look reads, in one HMGET.
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
    """What is reported until a person acknowledges it: the types of the conditions."""

    DATA_LOSS = "DataLoss"
    POSITION_WENT_BACK = "PositionWentBack"
    PENDING_DROPPED = "PendingEntriesDropped"


# The fields that go when it is acknowledged. Of a loss the numbers stay: that gap is known.
STICKY_FIELDS: Final[Mapping[StickyCondition, tuple[str, ...]]] = {
    StickyCondition.DATA_LOSS: (LOSS_SEEN,),
    StickyCondition.POSITION_WENT_BACK: (BACK_SINCE, BACK_FROM, BACK_TO, BACK_DELAY_UNTIL),
    StickyCondition.PENDING_DROPPED: (DROPPED_SEEN,),
}

# Beginnings of fields of which there is one per consumer or entry.
CO_FAILED: Final = "crowd:"  # + consumer: entries delivered before this time (ms) failed together
# + entry ID: "attempts isolated_failures delivered_ms"; " offered" while this delivery is on offer
TRY: Final = "try:"
OFFER: Final = "offer:"  # + number, from offers:first to offers:last: an offer that is not taken
POD: Final = "pod:"  # + consumer: JSON of the pod that it was matched to
# + "running", or the uid of a StreamRedrive, ":" and what is known of it: see redrive.lua
REDRIVE: Final = "redrive:"
BOOT: Final = "boot:"  # + consumer: when its process began, ms by Redis TIME; the SDK writes it


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedPosition:
    """Where the group stood when it was last looked at: the pair.

    The counters are the stream's when the group was first seen there.
    """

    last_delivered_id: EntryId
    lowest_pending: EntryId | None  # None: nothing was pending
    entries_added: int
    last_generated_id: EntryId
    at: datetime
    pending: int = 0
    undelivered: int = 0  # at least so many


class LossCause(StrEnum):
    """How entries that the group had not finished were lost."""

    TRIMMED = "trimmed"  # before the group was given them
    STREAM_GONE = "stream-gone"  # deleted, evicted or flushed, with all that it held
    RETRY_STREAM_GONE = "retry-stream-gone"
    TAIL_LOST = "tail-lost"  # the server came back with an older state of the stream


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBack:
    """The group was found behind where it had been: a failover or a restored backup."""

    since: datetime
    before: EntryId  # last-delivered-id as it had been
    after: EntryId  # as it was found
    delay_until: datetime  # until then nothing delivered before `since` is recovered


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Entries that are gone from Redis before the group had finished them.

    Of what was trimmed the bounds are exact. Of a stream that is gone, or that lost its end, there
    are the numbers of the last observation: what was added or acknowledged later is not in them.
    """

    at_least: int
    at_most: int | None  # None: no bound is known
    position: EntryId  # last-delivered-id at which it was found, or before the stream was gone
    seen: datetime
    cause: LossCause = LossCause.TRIMMED
    undelivered: int = 0  # of other causes, as last observed
    pending: int = 0
    observed: datetime | None = None  # when; None: as the resource's status says
    # The lost entries lie after `after` and before `before`; None: right after `position`.
    after: EntryId | None = None
    before: EntryId | None = None

    @property
    def is_certain(self) -> bool:
        """Whether anything was lost for sure; else users may have deleted all of it by hand."""
        return self.at_least > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleLoss:
    """Entries that were removed between two observations, and that the group passed in between.

    Redis does not record whether they were delivered before.
    """

    after: EntryId  # they lay after it,
    before: EntryId  # and before it
    at_most: int | None  # None: no bound is known


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedConsumers:
    """Consumers that somebody deleted with entries pending."""

    at_most: int  # entries
    consumer: str  # one of them
    consumers: int
    observed: datetime  # when these entries were last seen pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What the operator did to the group, counted by the scripts that did it."""

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
    """What the last scan found that stays as it is. The same for all who read it."""

    reason: str = ""  # why recovery does not work, or only in part; empty: it works
    message: str = ""
    unmovable: int = 0  # entries that no script can move
    unmovable_example: str = ""
    unmatched: tuple[str, ...] = ()  # consumers with pending entries that no pod matches
    is_partial: bool = False  # more consumers may be so: there are too many to look at
    waiting: int = 0  # suspects that wait for their turn
    offered: int = 0  # entries that were offered to workers that claim, and are not taken
    stuck: int | None = None  # entries that stay where they are; None: not known
    is_not_taken: bool = False  # no worker has taken any of them for too long


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryWait:
    """A copy that waits in the retry stream for its delivery, as it was noted first."""

    first_undelivered: EntryId
    position: EntryId  # the group's on the stream at that time
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The group's state as it was read; what was never written is absent."""

    format: int = 1  # the version of the format that it is written in
    seen: RememberedPosition | None = None
    back: WentBack | None = None
    loss: Loss | None = None
    acknowledged_loss: Loss | None = None  # told before, and acknowledged; in place of `loss`
    loss_found_at: datetime | None = None  # when the last loss was recorded
    dropped: DroppedConsumers | None = None
    dropped_found_at: datetime | None = None  # when the last of these was recorded
    totals: Totals = field(default_factory=Totals)
    report: ScanReport = field(default_factory=ScanReport)
    scanned_at: datetime | None = None  # the beginning of the last scan that was completed
    checkpointed_at: datetime | None = None
    master_since: datetime | None = None  # None: this server was the master from the beginning
    created_at: datetime | None = None  # None: the group was there before us
    trim_tried_at: datetime | None = None  # and nothing more could go
    retry_wait: RetryWait | None = None


def parse_state(fields: Mapping[str, str | None]) -> GroupState:
    """The state from its fields; whatever is damaged counts as never written. Never raises."""
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
        report=_parse_report_text(fields.get(SCAN_REPORT)),
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


def parse_report(fields: Mapping[str, object]) -> ScanReport:
    """The report that a scan wrote as JSON; whatever does not fit counts as absent."""
    unmatched = fields.get("unmatched")
    return ScanReport(
        reason=_text(fields.get("reason")),
        message=_text(fields.get("message")),
        unmovable=_count(fields.get("unmovable")),
        unmovable_example=_text(fields.get("unmovable_example")),
        unmatched=tuple(map(_text, unmatched)) if isinstance(unmatched, list) else (),
        is_partial=fields.get("is_partial") is True,
        waiting=_count(fields.get("waiting")),
        offered=_count(fields.get("offered")),
        stuck=_count(fields.get("stuck")) if "stuck" in fields else None,
        is_not_taken=fields.get("not_taken") is True,
    )


def render_report(report: ScanReport) -> dict[str, object]:
    """The report as a JSON object, without what is empty: the same report, the same bytes."""
    fields: dict[str, object] = {
        "reason": report.reason,
        "message": report.message,
        "unmovable": report.unmovable,
        "unmovable_example": report.unmovable_example,
        "unmatched": list(report.unmatched),
        "is_partial": report.is_partial,
        "waiting": report.waiting,
        "offered": report.offered,
        "not_taken": report.is_not_taken,
    }
    fields = {name: value for name, value in fields.items() if value}
    # No stuck entry is a fact; without a scan nothing is known.
    return fields if report.stuck is None else {**fields, "stuck": report.stuck}


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


def _parse_report_text(text: str | None) -> ScanReport:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return ScanReport()
    return parse_report(found) if isinstance(found, dict) else ScanReport()


def _number(text: str | None) -> int | None:
    # 19 digits hold what a counter of Redis can reach; more would cost a long conversion.
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


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


OWNERSHIP_LIFETIME: Final = timedelta(
    minutes=10
)  # a resource that is not renewed this long gives way


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """The resource that acts on a group, as it introduces itself to Redis."""

    uid: str
    cluster: str  # identity of the Kubernetes cluster; empty when unknown
    namespace: str
    name: str
    created: datetime  # of the resource: the older one acts

    def __post_init__(self) -> None:
        if self.created.tzinfo is None:
            raise InvalidSpec("the creation time of an owner needs a time zone")

    def __str__(self) -> str:
        place = f" of cluster {self.cluster}" if self.cluster else ""
        return f"{self.namespace}/{self.name}{place}"

    def is_same_as(self, other: OwnerRecord) -> bool:
        """Whether both records speak of one resource, known by its uid alone.

        The cluster may be unknown for a while: a namespaced install cannot read who it is.
        """
        return self.uid == other.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipRecord:
    """An owner's record as the group holds it."""

    owner: OwnerRecord
    owned_until: datetime  # on the server's clock
