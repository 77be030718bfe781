"""The facts and answers of the inspection commands: `why`, `pending` and `dlq`.

    EntryLocation   the data that Redis and the cluster have about one entry ID.
    EntryFinding    its state, derived from the location, and the reason.
    EntryReport     the answer to `pelops why`: the finding and the entry's history.
    PendingReport   the answer to `pelops pending`.
    LettersReport, LettersPage   the answers to `pelops dlq`.

Times are on the Redis server's clock, except those of pods. Only `pairs` holds payloads, and it is
empty unless payloads were requested.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import Cutoff, PendingEntry, RetryBatch

Pairs = tuple[tuple[bytes, bytes], ...]


class Place(StrEnum):
    """Which of a group's streams holds an entry."""

    STREAM = "stream"
    RETRY_STREAM = "retry stream"
    DEAD_LETTERS = "dead-letter stream"
    DISCARDED = "discarded dead letters"


class EntryState(StrEnum):
    """Where one entry is, for one group."""

    UNDELIVERED = "Undelivered"
    HELD_BY_LIVE_WORKER = "HeldByLiveWorker"
    HELD_BY_DEAD_WORKER = "HeldByDeadWorker"
    HELD_BY_UNKNOWN_CONSUMER = "HeldByUnknownConsumer"  # no evidence of its process
    IDLE_TOO_LONG = "IdleTooLong"  # beyond the processing timeout, without proof of a dead worker
    WAITING_FOR_BACKOFF = "WaitingForBackoff"
    WAITING_FOR_RETRY_BATCH = "WaitingForRetryBatch"  # a suspect, and other suspects go first
    IN_RETRY_BATCH = "InRetryBatch"
    LOCKED = "Locked"
    OFFERED = "Offered"  # to workers that claim
    IN_RETRY_STREAM = "InRetryStream"  # a copy that was not delivered yet
    BODY_GONE = "BodyGone"  # pending, and deleted from its stream
    DEAD_LETTER = "DeadLetter"
    DISCARDED = "Discarded"
    ACKNOWLEDGED = "Acknowledged"
    NOT_DELIVERED = "NotDelivered"  # the group's position passed it without a delivery
    REMOVED = "Removed"  # deleted or trimmed before it was delivered
    INDETERMINATE = "Indeterminate"
    NEVER_EXISTED = "NeverExisted"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterDetails:
    """Why and when an entry became a dead letter. Any client that may write there can forge it."""

    reason: str
    error: str
    consumer: str
    deliveries: int
    failures: int
    at: datetime | None  # when it became a dead letter; None: not recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntry:
    """An entry that is in one of the group's streams."""

    place: Place
    stream: str
    entry_id: EntryId
    root_id: EntryId
    bytes: int | None  # of its fields and values; None: too large to be read
    retry_count: int = 0
    redrive: str = ""  # `name/uid` of the redrive that made this copy
    returned: int = 0  # how often it was redriven
    letter: LetterDetails | None = None
    pairs: Pairs = ()  # the user's own, only when payloads were asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """The positions of a stream and of the group on it."""

    last_delivered: EntryId | None  # None: the group does not exist there
    last_generated: EntryId
    first: EntryId | None  # None: the stream is empty
    highest_deleted: EntryId
    has_removed: bool  # entries were deleted or trimmed, ever


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLocation:
    """Everything that Redis and the cluster show of one entry ID now."""

    entry_id: EntryId
    now: datetime
    place: Place  # the stream that the ID is of
    found: FoundEntry | None  # None: it is not in its stream
    position: StreamPosition
    pending: PendingEntry | None = None
    cutoff: Cutoff | None = None  # of its owner; None: not looked up
    is_started: bool | None = None  # its worker recorded it as started; None: records nothing
    attempts: int = 0
    isolated_failures: int = 0
    is_on_offer: bool = False
    retry_batch: RetryBatch = field(
        default_factory=lambda: RetryBatch(written="", under_way=frozenset())
    )
    lock: str | None = None  # the key of its lock, if that exists
    # The group went back: until `delay_until`, entries delivered before `delay_before` stay.
    delay_until: datetime | None = None
    delay_before: datetime | None = None
    master_since: datetime | None = None


class EvidenceKind(StrEnum):
    """What the ledger shows about an entry that is neither pending nor moved."""

    SKIPPED = "skipped"  # the position was set beyond it
    MAY_BE_DROPPED = "may-be-dropped"  # consumers with pending entries were deleted
    LOST = "lost"  # in a range of entries that were removed before they were delivered
    TRIMMED = "trimmed"  # by the operator, which trims what every group has acknowledged


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One ledger event that concerns the entry."""

    kind: EvidenceKind
    at: datetime
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFinding:
    """The state of an entry, and why."""

    state: EntryState
    message: str  # one or two sentences, for people
    is_certain: bool = True  # False: inferred; `message` names the evidence
    again_at: datetime | None = None  # when the passing of time alone changes the state


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """Something that happened to an entry."""

    at: datetime
    entry_id: EntryId  # of the entry, or of one of its copies
    what: str
    details: str = ""
    source: str = "ledger"  # or `stream`, `worker`, `dead letter`


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much was searched."""

    what: str  # such as `ledger`
    searched: int  # entries of it
    is_whole: bool
    until: EntryId | None = None  # where the search stopped; None: at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryReport:
    """The answer to `why`."""

    stream: str
    group: str
    asked: str  # as the user asked
    entry_id: EntryId  # the last copy, or the entry itself
    root_id: EntryId
    finding: EntryFinding
    location: EntryLocation
    events: tuple[HistoryEvent, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    notes: tuple[str, ...] = ()
    others: tuple[EntryId, ...] = ()  # further entries that match a search, the newest first


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLine:
    """What one consumer has pending, or one pending entry."""

    stream: str
    consumer: str
    entries: int
    entry_id: EntryId  # the lowest
    idle: timedelta  # of that entry
    deliveries: int
    liveness: str  # reason of the cutoff: see LivenessReason
    pod: str  # what is known of its process, for people
    finding: EntryFinding  # of that entry


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingReport:
    """The answer to `pending`."""

    stream: str
    group: str
    pending: int
    lines: tuple[PendingLine, ...]
    coverage: tuple[Coverage, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterGroup:
    """Dead letters that failed alike."""

    cluster: str  # as the selection of a StreamRedrive names it
    reason: str
    error: str  # normalized
    letters: int
    oldest: EntryId
    newest: EntryId
    returned: int  # dead letters among these that failed again after a redrive
    action: str  # suggested: redrive, inspect or discard
    advice: str
    samples: tuple[EntryId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersReport:
    """The answer to `dlq list`."""

    stream: str
    group: str
    dead_letter: str
    letters: int  # all in the stream, including those that were not read
    groups: tuple[LetterGroup, ...]
    coverage: tuple[Coverage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersPage:
    """The answer to `dlq show` and `dlq export`: dead letters, the oldest first."""

    stream: str
    group: str
    dead_letter: str
    letters: tuple[FoundEntry, ...]
    after: EntryId | None  # where the next page begins; None: this is the last one
