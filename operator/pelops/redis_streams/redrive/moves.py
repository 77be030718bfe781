"""Moving dead letters: back to the group, to the discarded letters, or back from there.

A redrive begins with `start_redrive`, which fixes the last letter that it can take. Then, page by
page, `read_letters`, a decision, and `move_letters`. `finish_redrive` ends it. Everything repeats
safely, by however many replicas at once: a letter is moved by the script that deletes it, and the
position up to which letters were handled is in Redis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pelops.domain.dead_letter import DeadLetter, LetterAction, SkipReason
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys
from pelops.redis_core.server import Server


class Stop(StrEnum):
    """Why a call moved no more letters. The value is what the script answers."""

    DONE = "done"  # all that it was given are handled
    RATE = "rate"  # call again after `wait`
    LIMIT = "limit"  # as many were moved as may be
    BACKLOG = "backlog"  # the group's backlog is above spec.maxBacklog, or is not known
    EXHAUSTED = "exhausted"  # the target stream is at its last ID and takes no more entries
    BEHIND = "behind"  # letters before these are not handled: read again from `cursor`


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveContext:
    """What all scripts of one redrive have in common."""

    keys: GroupKeys
    owner_uid: str  # of the StreamConsumerGroup
    uid: str  # of the StreamRedrive
    name: str  # of the StreamRedrive
    action: LetterAction
    to_retry_stream: bool  # spec.destination
    field_prefix: str
    actor: str  # this replica
    requested_by: str  # annotation pelops.dev/requested-by; empty: unknown
    max_entry_bytes: int

    @property
    def mark(self) -> str:
        """What copies name: `<name>/<uid>`."""
        return f"{self.name}/{self.uid}"

    @property
    def source(self) -> str:
        """The stream that letters are taken from."""
        is_restore = self.action is LetterAction.RESTORE
        return self.keys.discarded if is_restore else self.keys.dead_letter

    @property
    def target(self) -> str:
        """The stream that they are moved to."""
        if self.action is LetterAction.DISCARD:
            return self.keys.discarded
        if self.action is LetterAction.RESTORE:
            return self.keys.dead_letter
        return self.keys.retry if self.to_retry_stream else self.keys.stream


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveProgress:
    """How far a redrive is, as Redis remembers it. Times are Redis' own."""

    now: datetime
    started: datetime
    until: EntryId  # the last ID of the source when it started: nothing after it is taken
    cursor: EntryId  # everything up to it was handled
    moved: int = 0
    skipped: Mapping[SkipReason, int] | None = None
    last_moved: datetime | None = None  # when a letter was moved last

    @property
    def is_at_end(self) -> bool:
        """Whether every letter up to `until` was handled."""
        return self.cursor >= self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """Letters of the source, oldest first."""

    letters: tuple[DeadLetter, ...]
    foreign: int  # entries that are no dead letters of this group
    through: EntryId  # everything up to it was read


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """What became of a page."""

    stop: Stop
    progress: RedriveProgress  # after the call, the work of other replicas included
    moved: int = 0  # by this call
    skipped: Mapping[SkipReason, int] | None = None  # by this call
    wait: timedelta = timedelta()  # until the rate allows more letters


async def start_redrive(
    server: Server, context: RedriveContext, *, known_until: EntryId | None = None
) -> RedriveProgress:
    """Begin a redrive, or go on with one: it is the group's running one from now on.

    `known_until` is the bound in the resource's status: it stays the bound when Redis has lost its
    record. A redrive that neither started nor moved letters for five minutes gives way to another.
    Repeats safely.

    Raises AnotherRedriveRuns; what `move_letters` raises.
    """
    raise NotImplementedError


async def read_letters(
    server: Server, context: RedriveContext, *, after: EntryId, until: EntryId, count: int = 200
) -> LetterPage:
    """Letters of the source after `after`, up to `until`: `count` of them at most, or about 1 MiB.

    Writes nothing. `through` is `until` when there are no more.
    """
    raise NotImplementedError


async def move_letters(  # noqa: PLR0913 - what is moved, and what bounds it
    server: Server,
    context: RedriveContext,
    ids: Sequence[EntryId],
    *,
    after: EntryId,
    through: EntryId,
    rate: int | None = None,
    limit: int | None = None,
    max_backlog: int | None = None,
) -> MoveResult:
    """Move the letters with these IDs, the oldest first, and note that all up to `through` are done.

    They are those that were selected of a page after `after`. `rate` is letters per second, of all
    replicas together; `limit` is how many the redrive may have moved in all; `max_backlog` how many
    entries the group may have unprocessed, None is no bound. Repeats safely.

    Raises, before anything was moved: AnotherRedriveRuns, RedriveNotStarted (call `start_redrive`
    again), NotOurs, NoSuchGroup, WouldDuplicate, PositionAhead, DeadLetterStreamInUse, StreamInUse,
    WrongType, NewerFormat, CrossSlot, PermissionDenied, RedisUnavailable and its kinds.
    OutcomeUnknown may have moved letters.
    """
    raise NotImplementedError


async def check_redrive(server: Server, context: RedriveContext) -> None:
    """Raise what `move_letters` would raise of the group, the stream and the keys. Writes nothing."""
    raise NotImplementedError


async def finish_redrive(server: Server, context: RedriveContext, *, forget: bool) -> None:
    """Let another redrive of the group run; with `forget`, remove all that Redis has of this one.

    Before, its outcomes can still be observed. Of a redrive that is unknown nothing changes.
    Repeats safely. Raises as `start_redrive`, but AnotherRedriveRuns.
    """
    raise NotImplementedError
