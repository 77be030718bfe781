"""Moves dead letters: back to the group, to the discarded dead letters, or back from there.

A redrive begins with `start_redrive`, which fixes the last dead letter that it may take. Then, page
by page, `read_letters`, a decision, and `move_letters`. `finish_redrive` ends it.

Everything repeats safely, also in several replicas at once. One script copies a dead letter and
deletes it, and the cursor up to which dead letters were handled is in Redis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from pelops.clock import MILLISECOND
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.records.dead_letter import DeadLetter, LetterAction, SkipReason, parse_letter
from pelops.errors import (
    AnotherRedriveRuns,
    DeadLetterStreamInUse,
    PelopsError,
    RedriveNotStarted,
    StreamInUse,
    WouldDuplicate,
)
from pelops.redis_core.commands import text_of
from pelops.redis_core.replies.shapes import BadShape, reading
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams.group.maintenance import has_retry_stream
from pelops.redis_streams.recovery.scan_calls import refused_copies
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import ScriptCall, load_script
from pelops.scripts.parts import Count, Id, Milliseconds, Moment, MomentIfAny

_NO_SKIPS: Final[Mapping[SkipReason, int]] = {}
MOST_MOVED: Final = 50  # dead letters in one call of the script: it takes less than 2 ms
MAX_BYTES: Final = 256 * 1024  # of bodies that one call of the script reads
DEPTH: Final = 6  # calls sent together, so that the server need not wait for the next one
PAGE_BYTES: Final = 1024 * 1024  # of dead letters that are read together
_FIRST_PAGE: Final = 4  # dead letters; small, because their size is not known yet


class Stop(StrEnum):
    """Why a call stopped moving. The value is what the script returns."""

    DONE = "done"  # all dead letters of the call are handled
    RATE = "rate"  # call again after `wait`
    LIMIT = "limit"  # the redrive has moved as many as it may
    BACKLOG = "backlog"  # the group's backlog is above spec.maxBacklog, or is not known
    EXHAUSTED = "exhausted"  # the target stream is at its last ID and takes no more entries
    BEHIND = "behind"  # earlier dead letters are not handled: read again from the cursor
    MORE = "more"  # the script reached its limit of bytes; `move_letters` continues


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveContext:
    """Arguments that all scripts of one redrive share."""

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

    def by_name(self) -> dict[str, str]:
        """The group's keys by the names that scripts use for them, with `source` and `target`."""
        return {**self.keys.by_name(), "source": self.source, "target": self.target}

    @property
    def mark(self) -> str:
        """The value of the mark in copies: `<name>/<uid>`."""
        return f"{self.name}/{self.uid}"

    @property
    def source(self) -> str:
        """The stream that dead letters are taken from."""
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


def _read_skipped(part: bytes) -> dict[SkipReason, int]:
    counts = (word.partition("=") for word in text_of(part).split())
    return {SkipReason(why): int(count) for why, _, count in counts if count.isdigit()}


Skipped: TypeAlias = Annotated[Mapping[SkipReason, int], _read_skipped]


class RedriveProgress(NamedTuple):
    """The progress of a redrive as recorded in Redis. Times are on Redis' clock."""

    now: Moment
    started: Moment
    until: Id  # the last ID of the source at the start: later ones are not taken
    cursor: Id  # everything up to it was handled
    moved: Count = 0
    skipped: Skipped = _NO_SKIPS
    last_moved: MomentIfAny = None  # when a dead letter was last moved

    @property
    def is_at_end(self) -> bool:
        """Whether every dead letter up to `until` was handled."""
        return self.cursor >= self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """Dead letters of the source, the oldest first."""

    letters: tuple[DeadLetter, ...]
    foreign: int  # entries that are not dead letters of this group
    through: EntryId  # everything up to it was read


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """The result for one page."""

    stop: Stop
    progress: RedriveProgress  # after the call, including the work of other replicas
    moved: int = 0  # by this call
    skipped: Mapping[SkipReason, int] = field(default_factory=dict)  # by this call
    wait: timedelta = timedelta()  # until the rate allows the next dead letter


class _Started(NamedTuple):
    verdict: Literal["started"]
    record: RedriveProgress


class _Moved(NamedTuple):
    verdict: Literal["done"]
    stop: Stop
    wait_ms: Milliseconds
    moved: Count
    skipped: Skipped
    record: RedriveProgress


_START: Final = load_script("start_redrive", _Started | Refusal)
_MOVE: Final = load_script("move_dead_letters", _Moved | Refusal)
_FINISH: Final = load_script("finish_redrive", Literal["finished"] | Refusal)


async def start_redrive(
    server: Server, context: RedriveContext, *, known_until: EntryId | None = None
) -> RedriveProgress:
    """Begin or continue a redrive, and make it the group's running one.

    Call it at the beginning of each pass. `known_until` is the bound in the resource's status,
    which is used again if Redis has lost its record. A redrive without a call for five minutes may
    be replaced by another one. Repeats safely.

    Raises AnotherRedriveRuns, NotOurs, WrongType, NewerFormat, PermissionDenied, before anything
    was written; RedisUnavailable and OutcomeUnknown.
    """
    call = _START.call(
        context,
        uid=context.owner_uid,
        redrive=context.uid,
        name=context.name,
        known_until=None if known_until is None else str(known_until),
    )
    answer = _START.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise refused_redrive(context, answer)
    return answer.record


async def read_letters(
    server: Server, context: RedriveContext, *, after: EntryId, until: EntryId, count: int = 300
) -> LetterPage:
    """Dead letters of the source after `after`, up to `until`: at most `count`, or about 1 MiB.

    Writes nothing. `through` is `until` when there are no more.
    """
    letters: list[DeadLetter] = []
    foreign, left, size, largest, through = 0, count, _FIRST_PAGE, 1, after
    room = PAGE_BYTES
    while through < until and left > 0 and room > 0:
        size = min(size, left)
        first, last = str(through.after()), str(until)
        reply = await server.execute(
            "XRANGE", context.source, first, last, "COUNT", size, key=context.source
        )
        for raw_id, flat in reply:
            entry_id = parse_entry_id(raw_id)
            with reading("XRANGE"):
                _check_order(through, entry_id, until)
            letter = parse_letter(entry_id, flat, context.keys)
            letters += [letter] if letter else []
            foreign, through = foreign + (letter is None), entry_id
            bytes_read = sum(map(len, flat))
            room, largest = room - bytes_read, max(largest, bytes_read)
        if len(reply) < size:
            through = until
        left -= len(reply)
        size = max(1, min(4 * size, room // largest))
    return LetterPage(letters=tuple(letters), foreign=foreign, through=through)


def _check_order(last: EntryId, following: EntryId, until: EntryId) -> None:
    """Raise BadShape unless IDs grow within the range, so that the loop ends."""
    if not last < following <= until:
        raise BadShape("the entries are not in the order of their IDs")


async def move_letters(
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
    """Move the dead letters with these IDs, the oldest first; then all up to `through` are handled.

    The IDs are the selection from a page after `after`. `rate` limits dead letters per second, for
    all replicas together, `limit` the total that the redrive moves, and `max_backlog` the group's
    backlog. None means no limit. Repeats safely.

    Raises, before anything was moved: AnotherRedriveRuns, RedriveNotStarted (call `start_redrive`
    again), NotOurs, NoSuchGroup, WouldDuplicate, PositionAhead, DeadLetterStreamInUse, StreamInUse,
    WrongType, NewerFormat, CrossSlot, PermissionDenied, RedisUnavailable and its kinds. If a part
    was moved before the error, it returns, and the next call raises. After OutcomeUnknown some may
    have been moved.
    """
    bounds = _Bounds(rate=rate, limit=limit, max_backlog=max_backlog)
    retry = None
    if max_backlog is not None and await has_retry_stream(server, context.keys):
        retry = context.keys.retry
    left, result = sorted(ids), None
    while True:
        calls = [_move_call(context, retry, one, bounds) for one in _split(left, after, through)]
        for answer in await server.run_many(calls):
            if isinstance(answer, PelopsError):
                if result is None or not result.moved:
                    raise answer
                return result
            result = _add_moved(result, _read_moved(context, answer))
        assert result is not None
        cursor = result.progress.cursor
        is_over = cursor >= min(through, result.progress.until)
        if is_over or result.stop not in {Stop.DONE, Stop.MORE}:
            return result
        with reading("move_dead_letters.lua"):
            _check_advance(after, cursor)
        left, after = [one for one in left if one > cursor], cursor


def _add_moved(before: MoveResult | None, result: MoveResult) -> MoveResult:
    """The sum of two results; if the first one stopped early, its reason to stop is kept."""
    if before is None:
        return result
    skipped = dict(before.skipped)
    for why, count in result.skipped.items():
        skipped[why] = skipped.get(why, 0) + count
    if result.stop is Stop.BEHIND and before.stop is not Stop.DONE:
        result = replace(result, stop=before.stop, wait=before.wait)
    return replace(result, moved=before.moved + result.moved, skipped=skipped)


def _check_advance(before: EntryId, cursor: EntryId) -> None:
    if cursor <= before:
        raise BadShape("no letter was handled, and one has to be")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    rate: int | None = None
    limit: int | None = None
    max_backlog: int | None = None


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The dead letters of one call, and the part of the page that they were selected from."""

    ids: Sequence[EntryId]
    after: EntryId
    through: EntryId


def _split(ids: Sequence[EntryId], after: EntryId, through: EntryId) -> Iterator[_Chunk]:
    """The next calls; the last one of a page covers the page to its end."""
    for start in range(0, max(1, min(len(ids), DEPTH * MOST_MOVED)), MOST_MOVED):
        some = ids[start : start + MOST_MOVED]
        end = through if start + MOST_MOVED >= len(ids) else some[-1]
        yield _Chunk(some, after, end)
        after = end


def _move_call(
    context: RedriveContext, retry: str | None, chunk: _Chunk, bounds: _Bounds
) -> ScriptCall:
    return _MOVE.call(
        context,
        {"retry": retry},
        group=context.keys.group,
        uid=context.owner_uid,
        prefix=context.field_prefix,
        redrive=context.uid,
        name=context.name,
        action=context.action.kind.value,
        requested_by=context.requested_by,
        actor=context.actor,
        allows_others=context.to_retry_stream,
        max_bytes=MAX_BYTES,
        max_entry_bytes=context.max_entry_bytes,
        rate=bounds.rate,
        limit=bounds.limit,
        max_backlog=bounds.max_backlog,
        after=str(chunk.after),
        through=str(chunk.through),
        ids=[str(one) for one in chunk.ids],
    )


def _read_moved(context: RedriveContext, reply: Reply) -> MoveResult:
    answer = _MOVE.read(reply)
    if isinstance(answer, Refusal):
        raise refused_redrive(context, answer)
    return MoveResult(
        stop=answer.stop,
        progress=answer.record,
        moved=answer.moved,
        skipped=answer.skipped,
        wait=min(answer.wait_ms, _LONGEST_WAIT_MS) * MILLISECOND,
    )


_LONGEST_WAIT_MS: Final = 60_000


async def check_redrive(server: Server, context: RedriveContext) -> None:
    """Raise what `move_letters` would raise for the group, the streams and the keys.

    Writes nothing. It does not check whether this redrive is started or another one runs.
    """
    # Without a record the script refuses in any case, but only after all other checks.
    unknown = replace(context, uid="none")
    call = _move_call(unknown, None, _Chunk((), EntryId.MIN, EntryId.MIN), _Bounds())
    answer = _MOVE.read(await server.run(call))
    if isinstance(answer, Refusal) and answer.verdict not in {"another-runs", "not-started"}:
        raise refused_redrive(context, answer)


async def finish_redrive(server: Server, context: RedriveContext, *, forget: bool) -> None:
    """Let another redrive of the group run; with `forget`, also delete this one's record.

    Without `forget`, its outcomes can still be observed. An unknown redrive changes nothing.
    Repeats safely. Raises as `start_redrive`, except AnotherRedriveRuns.
    """
    call = _FINISH.call(context, uid=context.owner_uid, redrive=context.uid, forgets=forget)
    answer = _FINISH.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise refused_redrive(context, answer)


def refused_redrive(context: RedriveContext, refusal: Refusal) -> PelopsError:
    """The error for a refusal of any script of a redrive."""
    keys = context.keys
    match (refusal.verdict, *refusal.names):
        case "another-runs", other, name:
            return AnotherRedriveRuns(
                f"the redrive {name} of group {keys.group} runs, and a group has one running "
                "redrive at a time",
                redrive=f"{name}/{other}",
            )
        case ("not-started",):
            return RedriveNotStarted(f"Redis has no record of the redrive {context.name}")
        case ("letters-not-ours",):
            return DeadLetterStreamInUse(
                f"the dead-letter stream {keys.dead_letter} is not registered for group "
                f"{keys.group}, so no dead letter is moved"
            )
        case "letters-read", groups:
            return DeadLetterStreamInUse(
                f"consumer groups ({groups}) read the dead-letter stream {keys.dead_letter}, so "
                "no dead letter is moved: destroy these groups"
            )
        case "discarded-in-use", *_:
            return StreamInUse(
                f"the stream {keys.discarded} has contents that Pelops did not write, so no dead "
                "letter is discarded or restored: rename it or delete it"
            )
        case "would-duplicate", groups:
            return WouldDuplicate(
                f"the stream {context.target} has {groups} consumer groups, and each of them "
                "would receive the redriven entries"
            )
    return refused_copies(keys, context.target, refusal)
