"""Observes what became of the entries that a redrive moved back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.dead_letter import LetterAction
from pelops.policy.redrive.copies import (
    CopiesObservation,
    StreamCounters,
    compare_observations,
    find_floor,
    is_untouched,
)
from pelops.policy.redrive.progress import Outcomes
from pelops.redis_core.replies.shapes import invalid
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import NoGroup
from pelops.redis_streams.redrive.moves import (
    RedriveContext,
    RedriveProgress,
    refused_redrive,
)
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import load_script
from pelops.scripts.parts import Count, Flag, Id, IdIfAny, Text

VISITED: Final = 300  # entries that one call examines: about a millisecond
MOST_CALLS: Final = 10  # for each part of a stream


_First: TypeAlias = Annotated[EntryId, lambda part: parse_entry_id(part) if part else EntryId.MIN]
_Last: TypeAlias = Annotated[EntryId, lambda part: parse_entry_id(part) if part else EntryId.MAX]


class _FailedAgain(NamedTuple):
    """Copies that became dead letters again, and the record of the redrive."""

    verdict: Literal["done"]
    failed: Count
    gone: Count  # dead letters without a body that may be copies
    has_more: Flag  # they were not all counted
    requeued_since: Count  # entries of the group that were requeued since the redrive started
    first: _First  # copy; MIN: not known
    last: _Last  # copy; MAX: not known
    look: Text  # the comparison state in the record: see `_render_comparison`
    progress: RedriveProgress


class _StreamCounts(NamedTuple):
    position: Id
    added: Count
    length: Count
    first: IdIfAny
    deleted: Id


class _CopyCount(NamedTuple):
    verdict: Literal["done"]
    copies: Count
    visited: Count
    unvisited: Count | None  # entries of this part that may follow; None: not known
    next: IdIfAny  # where to continue; None: at the end
    originals: Count
    stream: _StreamCounts


_FIND: Final = load_script("find_redriven", _CopyCount | NoGroup)
_COUNT: Final = load_script("count_failed_again", _FailedAgain | Refusal)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StreamPart:
    """Copies among the undelivered, the pending or the delivered entries of a stream."""

    copies: int = 0
    others: int = 0  # upper bound of copies among entries that were not examined
    originals: int = 0  # copies that the redrive made itself, not copies of them
    begin: StreamCounters | None = None  # None: there is no group
    end: StreamCounters | None = None


async def observe_outcomes(server: Server, context: RedriveContext) -> Outcomes:
    """Count how many of the moved entries failed again, are still unprocessed, or were lost.

    It examines some thousand entries at most. If there are more, `unprocessed` is an upper bound,
    and `is_exact` is False. Entries that failed again are counted from where the last call of any
    replica stopped; `is_exact` is False while more are left to count. Lost entries are found by
    comparison with the previous call, so call it once before the first move.

    Raises NotOurs, RedriveNotStarted when Redis has no record of it, WrongType, NewerFormat,
    PermissionDenied; RedisUnavailable and OutcomeUnknown.
    """
    known = await _count_failed(server, context)
    if context.action is not LetterAction.REDRIVE:
        return Outcomes(moved=known.progress.moved, failed_again=0, unprocessed=0)
    # In the order of an entry's life: an entry that moves meanwhile is counted twice, not missed.
    parts = {
        (part, key): await _count_part(server, context, key, part, known)
        for part in ("undelivered", "pending")
        for key in (context.keys.stream, context.keys.retry)
    }
    look = _parse_comparison(known.look)
    ahead = parts["undelivered", context.target]
    if not ahead.others:
        look = await _compare(server, context, known, ahead)
    known = await _count_failed(server, context, known.look, _render_comparison(look))
    copies = sum(one.copies for one in parts.values())
    others = sum(one.others for one in parts.values())
    moved = known.progress.moved
    lost = min(look.lost, moved - known.failed)
    unprocessed = max(0, min(copies + others, moved - known.failed - lost))
    return Outcomes(
        moved=moved,
        failed_again=known.failed,
        unprocessed=unprocessed,
        lost=lost,
        unknown=min(look.unknown + known.gone, moved - known.failed - lost - unprocessed),
        is_exact=not known.has_more and not others,
    )


async def _compare(
    server: Server, context: RedriveContext, known: _FailedAgain, ahead: _StreamPart
) -> CopiesObservation:
    """The new comparison state. Requires that all undelivered entries were examined."""
    former, begin, end, kept = _parse_comparison(known.look), ahead.begin, ahead.end, 0
    if begin is not None and end is not None and not is_untouched(former, end, known.first):
        start = find_floor(former, known.first).after()
        # Without copies that were counted among the undelivered entries.
        delivered = known._replace(last=min(known.last, begin.position))
        part = await _count_part(
            server, context, context.target, "delivered", delivered, start=start
        )
        kept = part.originals
    return compare_observations(
        former,
        begin=begin,
        end=end,
        first=known.first,
        moved=known.progress.moved,
        undelivered=ahead.originals,
        requeued=known.requeued_since,
        kept=kept,
    )


async def _count_failed(
    server: Server, context: RedriveContext, look_before: str = "", look: str = ""
) -> _FailedAgain:
    """Continue to count, with a limited number of calls; the first one writes `look`."""
    for _ in range(MOST_CALLS):
        call = _COUNT.call(
            context,
            uid=context.owner_uid,
            stream=context.keys.stream,
            group=context.keys.group,
            redrive=context.uid,
            name=context.name,
            most=VISITED,
            look_before=look_before,
            look=look,
        )
        answer = _COUNT.read(await server.run(call))
        if isinstance(answer, Refusal):
            raise refused_redrive(context, answer)
        known = answer
        if not known.has_more:
            break
    return known


async def _count_part(
    server: Server,
    context: RedriveContext,
    key: str,
    part: str,
    known: _FailedAgain,
    *,
    start: EntryId | None = None,
) -> _StreamPart:
    start = start or known.first
    copies, originals, visited, total = 0, 0, 0, None
    begin: StreamCounters | None = None
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
            last=str(known.last),
            most=VISITED,
        )
        answer = _FIND.read(await server.run(call))
        if isinstance(answer, str):
            return _StreamPart()
        end = StreamCounters(**answer.stream._asdict())
        begin = begin or end
        copies, visited = copies + answer.copies, visited + answer.visited
        originals += answer.originals
        following = answer.next
        if number == 0 and answer.unvisited is not None:
            total = answer.visited + answer.unvisited
        if following is None:
            break
        if following <= start:
            raise invalid(
                "find_redriven.lua", "a page does not continue where the page before it ended"
            )
        start = following
    others = 0
    if following is not None:
        others = most if total is None else max(0, total - visited)
    if part == "undelivered" and start > known.last:
        # After the last copy of the redrive there are only copies of copies.
        others = min(others, known.requeued_since)
    return _StreamPart(copies=copies, others=others, originals=originals, begin=begin, end=end)


def _render_comparison(look: CopiesObservation) -> str:
    """The text for the record: five counts, then the stream's five values if it was observed."""
    seen = look.stream
    words: list[object] = [look.moved, look.undelivered, look.requeued, look.lost, look.unknown]
    if seen is not None:
        words += [seen.position, seen.added, seen.length, seen.first, seen.deleted]
    return " ".join(map(str, words))


def _parse_comparison(text: str) -> CopiesObservation:
    """The inverse of `_render_comparison`; an empty observation for a damaged text."""
    words = text.split()
    try:
        counts = [int(word) for word in words[:5]]
        seen = words[5:]
        return CopiesObservation(
            stream=StreamCounters(
                position=parse_entry_id(seen[0]),
                added=int(seen[1]),
                length=int(seen[2]),
                first=None if seen[3] == "None" else parse_entry_id(seen[3]),
                deleted=parse_entry_id(seen[4]),
            )
            if seen
            else None,
            **dict(zip(_COUNTS, counts, strict=True)),
        )
    except (ValueError, IndexError):
        return CopiesObservation()


_COUNTS: Final = ("moved", "undelivered", "requeued", "lost", "unknown")
