"""Calls that begin and finish a scan of a group, and that find idle entries for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

from pelops.clock import MILLISECOND, from_time, to_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.records.state import SCAN_AT, SCAN_CURSOR, SCAN_DONE, SCAN_REPORT
from pelops.domain.recovery import PendingEntry, RetryBatch, ScanObservation, StreamInScan
from pelops.errors import (
    DeadLetterStreamInUse,
    InvalidSpec,
    NoSuchGroup,
    NotOurs,
    PelopsError,
    PositionAhead,
    WouldDuplicate,
)
from pelops.redis_core.errors import permission_denied
from pelops.redis_core.replies.shapes import LATEST_MS, BadShape, invalid, reading
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Command, Reply
from pelops.redis_streams.group.group_observation import wrong_type
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import load_script
from pelops.scripts.parts import (
    Count,
    Id,
    IdIfAny,
    Moment,
    MomentIfAny,
    Name,
    Span,
    Text,
    read_moment,
)

FIRST_PAGE: Final = 100  # enough to detect that few entries are old
PAGE: Final = 500  # entries examined one by one in one call
SEEKABLE: Final = 20_000  # pending entries that the server may visit in one call


class NotDue(NamedTuple):
    """Another replica has scanned the group recently."""

    verdict: Literal["not-due"]
    scanned_at: Moment
    now: Moment


class _ObservedStream(NamedTuple):
    groups: Count
    pending: Count
    consumers: Count
    last_delivered_id: Id
    last_generated_id: Id
    first_id: IdIfAny
    lowest_pending: IdIfAny


class _Retried(NamedTuple):  # it is not resolved
    id: Id
    owner: Name  # empty if it is undelivered, or was offered and no worker has taken it


class _Opened(NamedTuple):
    verdict: Literal["open"]
    now: Moment
    master_since: MomentIfAny
    retry_batch: Name
    under_way: list[_Retried]
    delay_until: MomentIfAny
    delay_before: MomentIfAny
    report: Text
    cursor: Text
    offers: Count
    main: _ObservedStream
    retry: _ObservedStream | None


class _Idle(NamedTuple):
    id: Id
    owner: Name
    idle: Span
    deliveries: Count


class _Page(NamedTuple):
    """Entries that are idle, of those that the script visited."""

    now: Moment
    visited: Count
    last: Text  # ID that was visited; empty: none
    entries: tuple[_Idle, ...]


class _Finished(NamedTuple):
    verdict: Literal["done"]
    tries_cursor: Text


NoGroup: TypeAlias = Literal["no-group"]
_OPEN: Final = load_script("open_scan", _Opened | NotDue | Refusal)
_FIND: Final = load_script("find_idle", _Page | NoGroup)
_FINISH: Final = load_script("finish_scan", _Finished | Refusal)


async def open_scan(
    server: Server,
    keys: GroupKeys,
    *,
    uid: str,
    due: timedelta,
    with_retry: bool,
    is_retry_former: bool = False,
    is_first: bool = True,
) -> ScanObservation | NotDue:
    """Begin a scan unless one began less than `due` ago; a `due` of zero always begins one.

    `is_first` is False for a replica that expects that another one has scanned. The time of the
    last scan is then read first, which costs Redis a tenth of the script. `is_retry_former` means
    that the resource no longer uses the retry stream, so its group may not exist.

    Raises NotOurs, NoSuchGroup, DeadLetterStreamInUse, WrongType, PermissionDenied, before anything
    was written.
    """
    recent = None if is_first or not due else await _find_recent(server, keys, uid, due)
    if recent is not None:
        return recent
    call = _OPEN.call(
        keys,
        {"retry": keys.retry if with_retry else None},
        group=keys.group,
        uid=uid,
        due_ms=due // MILLISECOND,
        is_former=is_retry_former,
    )
    answer = _OPEN.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return answer if isinstance(answer, NotDue) else _read_observation(keys, answer)


async def _find_recent(server: Server, keys: GroupKeys, uid: str, due: timedelta) -> NotDue | None:
    """The last scan if it began less than `due` ago, else None."""
    fields = ("HMGET", keys.state, "owner:uid", SCAN_AT)
    asked = [Command(parts=parts, key=keys.state) for parts in (fields, ("TIME",))]
    replies: list[Reply] = await server.execute_many(asked)
    for reply in replies:
        if isinstance(reply, PelopsError):
            raise reply
    (owner, scanned_at), (seconds, microseconds) = replies
    if owner != uid.encode() or not (scanned_at or b"").isdigit():
        return None  # the script returns the reason
    now = from_time(seconds, microseconds)
    if len(scanned_at) > 15 or int(scanned_at) > LATEST_MS:
        return None
    at = read_moment(scanned_at)
    # A time in the future was written before the clock was set back, and is ignored.
    is_recent = timedelta() <= now - at < due
    return NotDue("not-due", scanned_at=at, now=now) if is_recent else None


async def find_idle(
    server: Server, observation: StreamInScan, group: str, *, idle: timedelta, cursor: str = ""
) -> AsyncGenerator[tuple[list[PendingEntry], str], None]:
    """Pages of entries that have been idle for at least `idle`, each with the cursor after it.

    The last page's cursor is empty. An empty or damaged cursor begins at the first pending entry.
    The result is exact. If IDs are times, entries added less than `idle` ago are not visited.
    Few pending entries are filtered by the server, many are examined page by page.
    """
    beyond = "+" if _has_future_ids(observation) else ""
    find = partial(_find_page, server, observation.name, group, to=beyond, idle=idle)
    entries, visited, last = await find(start=_after(cursor), count=FIRST_PAGE, seeks=False)
    is_whole = visited < FIRST_PAGE
    yield entries, "" if is_whole else last
    seeks = observation.pending <= SEEKABLE
    count = 1000 if seeks else PAGE
    while not is_whole:
        entries, visited, last = await find(start=f"({last}", count=count, seeks=seeks)
        is_whole = visited < count
        yield entries, "" if is_whole else last


async def count_dangling(server: Server, observation: StreamInScan, group: str) -> int:
    """The number of dangling entries below the stream's first entry, 100 at most."""
    lowest, first = observation.lowest_pending, observation.first_id
    if lowest is None or (first is not None and lowest >= first):
        return 0
    end = "+" if first is None else f"({first}"
    entries = await server.execute(
        "XPENDING", observation.name, group, "-", end, 100, key=observation.name
    )
    return len(entries)


async def finish_scan(
    server: Server,
    keys: GroupKeys,
    *,
    uid: str,
    target: str,
    others: tuple[str, ...] = (),
    report: str | None = None,
    cursor: str | None = None,
    done: datetime | None = None,
    resolved: str = "",
    tries_cursor: str = "",
    new_records: Mapping[str, str] | None = None,
) -> str:
    """Record the result of a scan, except arguments that are None, and clean up attempt counters.

    Returns the cursor for the next clean-up, `0` at its end. `done` is when the scan began, if it
    is completed. `resolved` is the observed retry batch, if none of its entries is under way.
    Copies go to `target`; `others` are streams of the group to which they went before.
    Raises NotOurs, WrongType, PermissionDenied.
    """
    done_ms = None if done is None else str(to_ms(done))
    state_fields = {
        SCAN_REPORT: report,
        SCAN_CURSOR: cursor,
        SCAN_DONE: done_ms,
        **(new_records or {}),
    }
    call = _FINISH.call(
        keys,
        {"stream": target, "others": others},
        group=keys.group,
        uid=uid,
        resolved=encode_name(resolved),
        tries_cursor=tries_cursor,
        fields=[
            {"name": name, "value": text} for name, text in state_fields.items() if text is not None
        ],
    )
    answer = _FINISH.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return answer.tries_cursor


async def read_fields(
    server: Server, keys: GroupKeys, names: Sequence[str], *, of_workers: bool = False
) -> list[str | None]:
    """Fields of the group's state, or of its worker state, in the order of `names`."""
    if not names:
        return []
    key = keys.worker_state if of_workers else keys.state
    reply = await server.execute("HMGET", key, *names, key=key)
    return [value.decode("utf-8", "replace") if value is not None else None for value in reply]


def refused(keys: GroupKeys, refusal: Refusal) -> PelopsError:
    """The error for a refusal of any script."""
    match (refusal.verdict, *refusal.names):
        case "letters-not-ours", *_:
            return DeadLetterStreamInUse(
                f"the dead-letter stream {keys.dead_letter} is not registered for group "
                f"{keys.group}, so Pelops recovers nothing"
            )
        case ("not-owner",):
            return NotOurs(f"another resource manages group {keys.group} of stream {keys.stream}")
        case "no-group", stream:
            return no_group(keys.group, stream)
        case "wrong-type", key, found:
            return wrong_type(key, found, "hash" if key in keys.hashes else "stream")
        case "no-permission", command, key:
            return permission_denied(command, key)
    return invalid("a script", "its verdict is unknown")


def refused_copies(keys: GroupKeys, target: str, refusal: Refusal) -> PelopsError:
    """The error for a refusal of a script that adds copies to the target stream."""
    match (refusal.verdict, *refusal.names):
        case "would-duplicate", groups:
            return WouldDuplicate(
                f"the stream {target} has {groups} consumer groups, and each of them would "
                "receive the copies of stuck entries"
            )
        case "position-ahead", delivered, _:
            return PositionAhead(
                f"the position of group {keys.group} is {delivered}, ahead of the last ID of "
                f"stream {target}"
            )
    return refused(keys, refusal)


def no_group(group: str, stream: str) -> NoSuchGroup:
    """The error for a group that does not exist on a stream."""
    return NoSuchGroup(f"group {group} does not exist on stream {stream}")


async def _find_page(
    server: Server,
    stream: str,
    group: str,
    *,
    to: str,
    idle: timedelta,
    start: str,
    count: int,
    seeks: bool,
) -> tuple[list[PendingEntry], int, str]:
    call = _FIND.call(
        None,
        {"stream": stream},
        group=group,
        first=start,
        last=to,
        idle_ms=idle // MILLISECOND,
        count=count,
        how="seek" if seeks else "visit",
    )
    answer = _FIND.read(await server.run(call))
    if isinstance(answer, str):
        raise no_group(group, stream)
    with reading("find_idle.lua"):
        _check_page(answer, start, count)
    entries = [
        PendingEntry(
            entry_id=one.id,
            owner=one.owner,
            idle=one.idle,
            delivered=answer.now - one.idle,
            deliveries=one.deliveries,
        )
        for one in answer.entries
    ]
    return entries, answer.visited, answer.last


def _check_page(page: _Page, start: str, count: int) -> None:
    if page.visited > count or len(page.entries) > count:
        raise BadShape("there are more entries than requested")
    # IDs must grow from page to page, so that the loop over pages ends.
    is_first = not page.last or start == "-"
    if not is_first and parse_entry_id(page.last) <= parse_entry_id(start.removeprefix("(")):
        raise BadShape("a page does not continue where the page before it ended")


def decode_name(name: bytes) -> str:
    """A consumer's name as text; bytes that are not UTF-8 survive a round trip."""
    return name.decode("utf-8", "surrogateescape")


def encode_name(name: str) -> bytes:
    """The inverse of `decode_name`."""
    return name.encode("utf-8", "surrogateescape")


def _after(cursor: str) -> str:
    """The start for XPENDING after a cursor; Redis refuses a start after the largest ID."""
    try:
        last = parse_entry_id(cursor)
    except InvalidSpec:
        return "-"
    return "-" if last == EntryId.MAX else f"({last}"


def _has_future_ids(observation: StreamInScan) -> bool:
    # Then IDs are not times, or times of a faster clock, and do not give the age of entries.
    return observation.last_generated_id.ms > to_ms(observation.seen)


def _read_observation(keys: GroupKeys, opened: _Opened) -> ScanObservation:
    return ScanObservation(
        now=opened.now,
        master_since=opened.master_since,
        retry_batch=RetryBatch(
            written=opened.retry_batch,
            under_way=frozenset(one.id for one in opened.under_way),
            undelivered=frozenset(one.id for one in opened.under_way if not one.owner),
        ),
        delay_until=opened.delay_until,
        delay_before=opened.delay_before,
        report=opened.report,
        cursor=opened.cursor,
        stream=_read_stream(keys.stream, opened.now, opened.main),
        retry=_read_stream(keys.retry, opened.now, opened.retry) if opened.retry else None,
        offers=opened.offers,
    )


def _read_stream(name: str, seen: datetime, stream: _ObservedStream) -> StreamInScan:
    return StreamInScan(name=name, seen=seen, **stream._asdict())
