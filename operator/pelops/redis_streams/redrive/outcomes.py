"""What became of the entries that a redrive moved back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pelops.domain.dead_letter import LetterAction
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.policy.redrive.progress import Outcomes
from pelops.redis_core.commands import text_of
from pelops.redis_core.replies.shapes import BadShape, reading
from pelops.redis_core.scripts import ScriptAnswer, load_script
from pelops.redis_core.server import Server
from pelops.redis_streams.redrive.moves import (
    RedriveContext,
    RedriveProgress,
    raise_redrive_refusal,
    read_progress,
)

_FIND: Final = load_script("find_redriven")
_COUNT: Final = load_script("count_failed_again")
VISITED: Final = 300  # entries that one call looks at: about a millisecond
MOST_CALLS: Final = 10  # for each part of a stream


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedAgain:
    """Copies that are dead letters again, and what the record says of the copies."""

    failed: int
    is_all: bool
    requeued_since: int  # entries of the group that were requeued since the redrive started
    first: EntryId  # copy; MIN: there is none
    last: EntryId
    progress: RedriveProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Copies among the undelivered or the pending entries of a stream."""

    copies: int
    others: int  # copies that there may be beyond those that were looked at


async def observe_outcomes(server: Server, context: RedriveContext) -> Outcomes:
    """Count which of the moved entries failed again, and which are still unprocessed.

    Bounded: some thousand entries are looked at. Where there are more, `unprocessed` is an upper
    bound, and `is_exact` is False. The entries that failed again are counted from where the last
    call of any replica stopped; `is_exact` is False while there are more to count.

    Raises NotOurs, RedriveNotStarted when Redis has no record of it, WrongType, NewerFormat,
    PermissionDenied; RedisUnavailable and OutcomeUnknown.
    """
    known = await _count_failed(server, context)
    moved = known.progress.moved
    if context.action is not LetterAction.REDRIVE or not moved:
        return Outcomes(moved=moved, failed_again=0, unprocessed=0)
    # In the order in which an entry moves on: one that moves meanwhile counts twice, not never.
    parts = [
        await _count_part(server, context, key, part, known)
        for part in ("undelivered", "pending")
        for key in (context.keys.stream, context.keys.retry)
    ]
    known = await _count_failed(server, context)
    found, others = sum(one.copies for one in parts), sum(one.others for one in parts)
    moved = known.progress.moved
    return Outcomes(
        moved=moved,
        failed_again=known.failed,
        unprocessed=max(0, min(found + others, moved - known.failed)),
        is_exact=known.is_all and not others,
    )


async def _count_failed(server: Server, context: RedriveContext) -> _FailedAgain:
    """Go on counting, for a bounded number of calls."""
    for _ in range(MOST_CALLS):
        call = _COUNT.call(
            context,
            uid=context.owner_uid,
            stream=context.keys.stream,
            group=context.keys.group,
            redrive=context.uid,
            name=context.name,
            most=VISITED,
        )
        answer = _COUNT.read(await server.run(call))
        raise_redrive_refusal(context, answer)
        known = _read_failed(answer)
        if known.is_all:
            break
    return known


@reading("count_failed_again.lua")
def _read_failed(answer: ScriptAnswer) -> _FailedAgain:
    first, last = answer["first_copy"], answer["last_copy"]
    return _FailedAgain(
        failed=answer["failed"],
        is_all=not answer["more"],
        requeued_since=answer["requeued_since"],
        first=parse_entry_id(first) if first else EntryId.MIN,
        last=parse_entry_id(last) if last else EntryId.MAX,
        progress=read_progress(answer["record"]),
    )


async def _count_part(
    server: Server, context: RedriveContext, key: str, part: str, known: _FailedAgain
) -> _Part:
    copies, visited, total, start = 0, 0, None, known.first
    most = known.progress.moved
    for number in range(MOST_CALLS):
        call = _FIND.call(
            context,
            {"source": key},
            group=context.keys.group,
            prefix=context.field_prefix,
            mark=context.mark,
            part=part,
            start=str(start),
            most=VISITED,
        )
        answer = _FIND.read(await server.run(call))
        if answer.verdict == "no-group":
            return _Part(copies=0, others=0)
        with reading("find_redriven.lua"):
            copies, visited = copies + answer["copies"], visited + answer["visited"]
            following = text_of(answer["next"])
            if number == 0 and answer["unvisited"] is not None:
                total = answer["visited"] + answer["unvisited"]
            if not following:
                return _Part(copies=copies, others=0)
            start = _advance(start, parse_entry_id(following))
    others = most if total is None else max(0, total - visited)
    if part == "undelivered" and start > known.last:
        # Only copies of copies are after the last one.
        others = min(others, known.requeued_since)
    return _Part(copies=copies, others=others)


def _advance(start: EntryId, following: EntryId) -> EntryId:
    if following <= start:
        raise BadShape("a page does not continue where the page before it ended")
    return following
