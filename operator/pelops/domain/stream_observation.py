"""One observation of a stream and its consumer group."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pelops.domain.entry_id import EntryId
from pelops.domain.state import GroupState, OwnershipRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupObservation:
    """A consumer group as the server describes it."""

    last_delivered_id: EntryId
    pending: int  # delivered, not yet acknowledged
    lag: int | None  # not yet delivered; None: unknown, which is never zero
    consumers: int
    entries_read: int | None  # the server's count; None when the server does not know it
    lowest_pending: EntryId | None  # None when nothing is pending
    holding: int | None = None  # consumers that hold pending entries; None: too many to count
    at_least: int = 0  # lower bound of the lag; the lag itself when that is known
    is_lag_repairable: bool = False  # the server's lag is unknown or wrong, and can be repaired
    first_undelivered: EntryId | None = None  # None: there is none, or reading it is not allowed
    # Since the last delivery or heartbeat of the lowest pending entry; None: nothing is pending.
    lowest_idle: timedelta | None = None

    def __post_init__(self) -> None:
        _settle_at_least(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerObservation:
    """A consumer as XINFO CONSUMERS shows it."""

    name: str
    pending: int
    idle: timedelta  # since its last read or claim; acknowledgements do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryObservation:
    """The group's own retry stream: copies of entries that were stuck."""

    exists: bool  # both the retry stream and the group on it
    is_former: bool = False  # spec.recovery no longer uses it, but it still exists
    length: int = 0
    first_id: EntryId | None = None  # None when it holds no entry
    last_delivered_id: EntryId = EntryId.MIN
    pending: int = 0
    lag: int | None = 0  # None: unknown
    lowest_pending: EntryId | None = None
    holding: int | None = 0  # consumers that hold pending entries; None: too many to count
    at_least: int = 0
    is_lag_repairable: bool = False
    first_undelivered: EntryId | None = None  # None: there is none, or reading it is not allowed
    lowest_idle: timedelta | None = None  # as in GroupObservation

    def __post_init__(self) -> None:
        _settle_at_least(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBacklog:
    """A group's backlog in its stream and in its retry stream together."""

    lag: int | None  # not yet delivered; None: unknown in one of the two, which is never zero
    at_least: int  # lower bound of the lag
    pending: int
    lowest_pending: EntryId | None  # the lowest ID of both; None when nothing is pending
    first_undelivered: EntryId | None = None  # the lowest of both; None: there is none, or unknown
    lowest_idle: timedelta | None = None  # the longest of both; None when nothing is pending


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamObservation:
    """A stream, one group on it and the group's derived keys, all observed at one instant."""

    server_time: datetime  # on the server's clock
    exists: bool
    length: int
    last_generated_id: EntryId  # `EntryId.MIN` when the stream does not exist or never had an entry
    first_id: EntryId | None  # None when the stream holds no entry
    entries_added: int | None  # ever; None when the stream does not exist
    groups: int  # number of all groups on the stream
    group: GroupObservation | None  # None when the group does not exist
    dead_letters: int
    dead_letter_exists: bool
    ledger_exists: bool
    ownership: OwnershipRecord | None  # who acts on the group, by its state key; may have expired
    max_deleted_id: EntryId = (
        EntryId.MIN
    )  # the greatest ID that XDEL removed; Redis does not record trimming here
    state: GroupState = field(default_factory=GroupState)
    retry: RetryObservation | None = None  # None: the group has none
    # All of them; None: not requested, not allowed, or too many.
    consumers: tuple[ConsumerObservation, ...] | None = None
    has_offer_stream: bool = True  # offer stream and the group on it; true when not requested
    owns_dead_letters: bool = True  # the record of the dead-letter stream names this group
    dead_letter_groups: int = 0  # consumer groups that read the dead-letter stream
    first_dead_letter: EntryId | None = None  # None: not requested, not allowed, or there is none
    # Equal digests of one process mean that only times differ. 0: not known.
    digest: int = field(default=0, compare=False)

    @property
    def is_provisioned(self) -> bool:
        """Whether everything that provisioning creates exists."""
        retry = self.retry
        has_retry = retry is None or retry.exists or retry.is_former
        has_letters = self.dead_letter_exists and self.owns_dead_letters
        has_records = has_letters and self.ledger_exists
        return self.group is not None and has_records and has_retry and self.has_offer_stream

    @property
    def backlog(self) -> GroupBacklog | None:
        """The backlog in both streams together; None when the group does not exist."""
        if self.group is None:
            return None
        parts = (self.group, *(() if self.retry is None else (self.retry,)))
        lags = [part.lag for part in parts]
        return GroupBacklog(
            lag=None if None in lags else sum(lag or 0 for lag in lags),
            at_least=sum(part.at_least for part in parts),
            pending=sum(part.pending for part in parts),
            lowest_pending=min(
                (part.lowest_pending for part in parts if part.lowest_pending is not None),
                default=None,
            ),
            first_undelivered=min(
                (one for part in parts if (one := part.first_undelivered) is not None),
                default=None,
            ),
            lowest_idle=max(
                (one for part in parts if (one := part.lowest_idle) is not None), default=None
            ),
        )


@dataclass(frozen=True, slots=True)
class Ahead:
    """Entries counted after a group's position."""

    counted: int
    is_all: bool  # False: the count is a lower bound


def judge_lag(
    reported_lag: int | None,
    *,
    last_delivered_id: EntryId,
    last_generated_id: EntryId,
    length: int,
    ahead: Ahead | None,
) -> int | None:
    """The lag of a group if it can be trusted, else None.

    1. At the end of the stream the lag is 0, whatever the server reports.
    2. Beyond the end it is None: the server reports 0, although new entries will be skipped.
    3. Without a count (`ahead` is None) it is None.
    4. A count up to the end of the stream is exact.
    5. Otherwise the server's number is used if it is between the count and the stream's length.
       With a wrong entries-read the server may report any number, even a negative one.
    """
    if last_delivered_id == last_generated_id:
        return 0
    if last_delivered_id > last_generated_id or ahead is None:
        return None
    if ahead.is_all:
        return ahead.counted
    if reported_lag is None or not ahead.counted <= reported_lag <= length:
        return None
    return reported_lag


def _settle_at_least(seen: GroupObservation | RetryObservation) -> None:
    if seen.lag is not None:
        object.__setattr__(seen, "at_least", seen.lag)
