"""The facts and answers of the inspection commands: `why`, `pending` and `dlq`.

    EntryLocation   the data that Redis and the cluster have about one entry ID.
    EntryFinding    its state, derived from the location, and the reason.
    EntryReport     the answer to `pelops why`: the finding and the entry's history.
    PendingReport   the answer to `pelops pending`.
    LettersReport, LettersPage   the answers to `pelops dlq`.

Times are on the Redis server's clock, except those of pods. Only `pairs` holds payloads, and it is
empty unless payloads were requested.

`render_answer` renders answers as JSON objects, with `apiVersion` and `kind` for scripts to check.
Times are in UTC with milliseconds, and durations in seconds. A value that is not UTF-8 text is
rendered as `{"base64": ...}`. Within an API version fields may be added, but keep their meaning.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryState
from pelops.domain.records.json_codec import Codec, Id, Name, Stored, names
from pelops.domain.recovery import Cutoff, PendingEntry, RetryBatch

API_VERSION: Final = "inspection.pelops.dev/v1alpha1"
Document: TypeAlias = dict[str, Any]


def _show_time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _show_pairs(pairs: Pairs) -> list[Document]:
    return [{"name": _show_value(name), "value": _show_value(value)} for name, value in pairs]


def _show_value(value: bytes) -> str | Document:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


Time: TypeAlias = Annotated[datetime, Stored(str, write=_show_time)]
Span: TypeAlias = Annotated[timedelta, Stored(float, write=timedelta.total_seconds)]
Pairs: TypeAlias = tuple[tuple[bytes, bytes], ...]


class StreamKind(StrEnum):
    """Which of a group's streams holds an entry."""

    STREAM = "stream"
    RETRY_STREAM = "retry stream"
    DEAD_LETTERS = "dead-letter stream"
    DISCARDED = "discarded dead letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterDetails:
    """Why and when an entry became a dead letter. Any client that may write there can forge it."""

    reason: str
    error: str
    consumer: str
    deliveries: int
    at: Time | None  # when it became a dead letter; None: not recorded
    __pydantic_config__: ClassVar[Any] = names(at="deadLetteredAt")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntry:
    """An entry that is in one of the group's streams."""

    entry_id: Id
    place: StreamKind
    stream: str
    root_id: Id
    bytes: int | None  # of its fields and values; None: too large to be read
    retry_count: int = 0
    returned: int = 0  # how often it was redriven
    redrive: str = ""  # `name/uid` of the redrive that made this copy
    letter: LetterDetails | None = None
    # The user's own, only when payloads were asked for.
    pairs: Annotated[Pairs, Stored(Any, write=_show_pairs)] = ()
    __pydantic_config__: ClassVar[Any] = names(
        entry_id="id", root_id="rootId", retry_count="failedAttempts", pairs="fields"
    )


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
    place: StreamKind  # the stream that the ID is of
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
    again_at: Time | None = None  # when the passing of time alone changes the state
    __pydantic_config__: ClassVar[Any] = names(is_certain="certain", again_at="againAt")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """Something that happened to an entry."""

    at: Time
    entry_id: Id  # of the entry, or of one of its copies
    what: str
    details: str = ""
    source: str = "ledger"  # or `stream`, `worker`, `dead letter`
    __pydantic_config__: ClassVar[Any] = names(entry_id="id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much was searched."""

    what: str  # such as `ledger`
    searched: int  # entries of it
    is_whole: bool
    until: Id | None = None  # where the search stopped; None: at the end
    __pydantic_config__: ClassVar[Any] = names(is_whole="whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEntry:
    """Who holds a pending entry, and since when."""

    consumer: Name
    idle: Span
    delivered: Time
    deliveries: int
    liveness: str | None  # reason of the cutoff: see LivenessReason; None: not looked up
    process: str | None  # what is known of its process, for people
    lock: str | None  # the key of its lock, if that exists
    __pydantic_config__: ClassVar[Any] = names(idle="idleSeconds", delivered="deliveredAt")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryReport:
    """The answer to `why`."""

    api_version: str = API_VERSION
    kind: str = "EntryReport"
    stream: str
    group: str
    asked: str  # as the user asked
    entry_id: Id  # the last copy, or the entry itself
    root_id: Id
    place: StreamKind
    at: Time
    finding: EntryFinding
    pending: HeldEntry | None
    entry: FoundEntry | None  # None: it is not in its stream
    attempts: int
    events: tuple[HistoryEvent, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    notes: tuple[str, ...] = ()
    others: tuple[Id, ...] = ()  # further entries that match a search, the newest first
    __pydantic_config__: ClassVar[Any] = names(
        api_version="apiVersion", entry_id="id", root_id="rootId", others="otherMatches"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLine:
    """What one consumer has pending, or one pending entry."""

    stream: str
    consumer: Name
    entries: int
    entry_id: Id  # the lowest
    idle: Span  # of that entry
    deliveries: int
    liveness: str  # reason of the cutoff: see LivenessReason
    process: str  # what is known of its process, for people
    finding: EntryFinding  # of that entry
    __pydantic_config__: ClassVar[Any] = names(entry_id="id", idle="idleSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingReport:
    """The answer to `pending`."""

    api_version: str = API_VERSION
    kind: str = "PendingReport"
    stream: str
    group: str
    pending: int
    lines: tuple[PendingLine, ...]
    coverage: tuple[Coverage, ...] = ()
    notes: tuple[str, ...] = ()
    __pydantic_config__: ClassVar[Any] = names(api_version="apiVersion")


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterGroup:
    """Dead letters that failed alike."""

    cluster: str  # as the selection of a StreamRedrive names it
    reason: str
    error: str  # normalized
    letters: int
    oldest: Id
    newest: Id
    returned: int  # dead letters among these that failed again after a redrive
    action: str  # suggested: redrive, inspect or discard
    advice: str
    samples: tuple[Id, ...]
    __pydantic_config__: ClassVar[Any] = names(action="suggested")


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersReport:
    """The answer to `dlq list`."""

    api_version: str = API_VERSION
    kind: str = "DeadLetterReport"
    stream: str
    group: str
    dead_letter: str
    letters: int  # all in the stream, including those that were not read
    groups: tuple[LetterGroup, ...]
    coverage: tuple[Coverage, ...] = ()
    __pydantic_config__: ClassVar[Any] = names(
        api_version="apiVersion", dead_letter="deadLetterStream"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersPage:
    """The answer to `dlq show` and `dlq export`: dead letters, the oldest first."""

    api_version: str = API_VERSION
    kind: str = "DeadLetterList"
    stream: str
    group: str
    dead_letter: str
    letters: tuple[FoundEntry, ...]
    after: Id | None  # where the next page begins; None: this is the last one
    __pydantic_config__: ClassVar[Any] = names(
        api_version="apiVersion", dead_letter="deadLetterStream", after="next"
    )


Answer: TypeAlias = EntryReport | PendingReport | LettersReport | LettersPage


_CODECS: Final[Mapping[type, Codec[Any]]] = {
    kind: Codec(kind, "the answer", limit=0)  # nothing here reads answers
    for kind in (EntryReport, PendingReport, LettersReport, LettersPage)
}


def render_answer(answer: Answer) -> Document:
    """The answer as a JSON object."""
    document: Document = _inline(_CODECS[type(answer)].to_object(answer))
    return document


def _inline(value: Any) -> Any:
    """The value, with a finding and the details of a dead letter in the object that has them."""
    if isinstance(value, list):
        return [_inline(one) for one in value]
    if not isinstance(value, dict):
        return value
    inlined: Document = {}
    for name, inner in value.items():
        if name in {"finding", "letter"}:
            inlined |= inner or {}
        elif name != "fields" or inner:
            inlined[name] = _inline(inner)
    return inlined
