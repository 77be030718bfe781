"""One observation of a stream and its consumer group."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import GroupState, OwnershipRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBacklog:
    """What is left of a group's work: in one stream, or in its stream and its retry stream."""

    lag: int | None  # not yet delivered; None: unknown, which is never zero
    at_least: int = 0  # lower bound of the lag; the lag itself when that is known
    pending: int  # delivered, not yet acknowledged
    lowest_pending: EntryId | None = None  # None when nothing is pending
    first_undelivered: EntryId | None = None  # None: there is none, or reading it is not allowed
    # Since the last delivery or heartbeat of the lowest pending entry; None: nothing is pending.
    lowest_idle: timedelta | None = None

    def __post_init__(self) -> None:
        """Take the lag as its own lower bound."""
        if self.lag is not None:
            object.__setattr__(self, "at_least", self.lag)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupObservation(GroupBacklog):
    """A consumer group on one stream, as the server describes it."""

    last_delivered_id: EntryId = EntryId.MIN
    consumers: int = 0
    entries_read: int | None = None  # the server's count; None when the server does not know it
    holding: int | None = None  # consumers that hold pending entries; None: too many to count
    is_lag_repairable: bool = False  # the server's lag is unknown or wrong, and can be repaired


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryObservation(GroupObservation):
    """The group on its own retry stream, which has copies of entries that were stuck."""

    lag: int | None = 0
    pending: int = 0
    holding: int | None = 0
    exists: bool  # both the retry stream and the group on it
    is_former: bool = False  # spec.recovery no longer uses it, but it still exists
    length: int = 0
    first_id: EntryId | None = None  # None when it holds no entry


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerObservation:
    """A consumer as XINFO CONSUMERS shows it."""

    name: str
    pending: int
    idle: timedelta  # since its last read or claim; acknowledgements do not count


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
        both = [self.group] if self.retry is None else [self.group, self.retry]
        lags = [backlog.lag for backlog in both]
        pending = [at for backlog in both if (at := backlog.lowest_pending) is not None]
        undelivered = [at for backlog in both if (at := backlog.first_undelivered) is not None]
        idle = [time for backlog in both if (time := backlog.lowest_idle) is not None]
        return GroupBacklog(
            lag=None if None in lags else sum(lag or 0 for lag in lags),
            at_least=sum(backlog.at_least for backlog in both),
            pending=sum(backlog.pending for backlog in both),
            lowest_pending=min(pending, default=None),
            first_undelivered=min(undelivered, default=None),
            lowest_idle=max(idle, default=None),
        )


@dataclass(frozen=True, slots=True)
class Ahead:
    """Entries counted after a group's position."""

    counted: int
    is_all: bool  # False: the count is a lower bound


def decide_lag(
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
