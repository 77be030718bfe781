"""Calls that begin and finish a scan of a group, and that find idle entries for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from pelops.clock import MILLISECOND, from_ms, from_time, to_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import PendingEntry, RetryBatch, ScanObservation, StreamInScan, read_ids
from pelops.domain.state import SCAN_AT, SCAN_CURSOR, SCAN_DONE, SCAN_REPORT
from pelops.errors import (
    DeadLetterStreamInUse,
    InvalidSpec,
    NoSuchGroup,
    NotOurs,
    PelopsError,
    PositionAhead,
    WouldDuplicate,
)
from pelops.redis_core.commands import text_of
from pelops.redis_core.errors import permission_denied
from pelops.redis_core.replies.shapes import LATEST_MS, BadShape, reading
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Command, Reply
from pelops.redis_streams.group.group_observation import wrong_type
from pelops.scripts.calls import ScriptAnswer, load_script

_OPEN: Final = load_script("open_scan")
_FIND: Final = load_script("find_idle")
_FINISH: Final = load_script("finish_scan")

FIRST_PAGE: Final = 100  # enough to detect that few entries are old
PAGE: Final = 500  # entries examined one by one in one call
SEEKABLE: Final = 20_000  # pending entries that the server may visit in one call


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDue:
    """Another replica has scanned the group recently."""

    scanned_at: datetime
    now: datetime


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
    if answer.verdict == "not-due":
        return _read_not_due(answer)
    raise_refusal(keys, answer)
    return _read_observation(keys, answer.into(_Opened))


@reading("open_scan.lua")
def _read_not_due(answer: ScriptAnswer) -> NotDue:
    return NotDue(scanned_at=instant(answer["scanned_at_ms"]), now=instant(answer["now_ms"]))


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
    age = now - instant(scanned_at)
    # A time in the future was written before the clock was set back, and is ignored.
    is_recent = timedelta() <= age < due
    return NotDue(scanned_at=instant(scanned_at), now=now) if is_recent else None


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
    learnt: Mapping[str, str] | None = None,
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
        **(learnt or {}),
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
    raise_refusal(keys, answer)
    return text_of(answer["tries_cursor"])


async def read_fields(
    server: Server, keys: GroupKeys, names: Sequence[str], *, of_workers: bool = False
) -> list[str | None]:
    """Fields of the group's state, or of its worker state, in the order of `names`."""
    if not names:
        return []
    key = keys.worker_state if of_workers else keys.state
    reply = await server.execute("HMGET", key, *names, key=key)
    return [value.decode("utf-8", "replace") if value is not None else None for value in reply]


def raise_refusal(keys: GroupKeys, answer: ScriptAnswer) -> None:
    """Raise the error for a verdict that is a refusal; other verdicts do nothing."""
    verdict = answer.verdict
    if verdict == "letters-not-ours":
        raise DeadLetterStreamInUse(
            f"the dead-letter stream {keys.dead_letter} is not registered for group {keys.group}, "
            "so Pelops recovers nothing"
        )
    if verdict == "not-owner":
        raise NotOurs(f"another resource manages group {keys.group} of stream {keys.stream}")
    if verdict == "no-group":
        raise NoSuchGroup(f"group {keys.group} does not exist on stream {text_of(answer['key'])}")
    if verdict == "wrong-type":
        key, key_type = text_of(answer["key"]), text_of(answer["type"])
        raise wrong_type(key, key_type, "hash" if key in keys.hashes else "stream")
    if verdict == "no-permission":
        raise permission_denied(text_of(answer["command"]), text_of(answer["key"]))


def raise_obstacle(group: str, target: str, answer: ScriptAnswer) -> None:
    """Raise the error for a verdict that no copy may be added to the target stream."""
    if answer.verdict == "would-duplicate":
        raise WouldDuplicate(
            f"the stream {target} has {text_of(answer['groups'])} consumer groups, and each of "
            "them would receive the copies of stuck entries"
        )
    if answer.verdict == "position-ahead":
        delivered = text_of(answer["delivered"])
        raise PositionAhead(
            f"the position of group {group} is {delivered}, ahead of the last ID of stream {target}"
        )


def instant(ms: bytes | int) -> datetime:
    """A time on the server's clock; raises BadShape when it is out of range."""
    if not 0 <= int(ms) <= LATEST_MS:
        raise BadShape("a time is out of range")
    return from_ms(int(ms))


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
    if answer.verdict == "no-group":
        raise NoSuchGroup(f"group {group} does not exist on stream {stream}")
    with reading("find_idle.lua"):
        return _read_page(answer, start, count)


def _read_page(answer: ScriptAnswer, start: str, count: int) -> tuple[list[PendingEntry], int, str]:
    now, last = instant(answer["now_ms"]), text_of(answer["last"])
    entries = [_read_pending(one, now) for one in answer["entries"]]
    if answer["visited"] > count or len(entries) > count:
        raise BadShape("there are more entries than requested")
    # IDs must grow from page to page, so that the loop over pages ends.
    if last and start != "-" and parse_entry_id(last) <= parse_entry_id(start.removeprefix("(")):
        raise BadShape("a page does not continue where the page before it ended")
    return entries, answer["visited"], last


def _read_pending(entry: Reply, now: datetime) -> PendingEntry:
    return PendingEntry(
        entry_id=parse_entry_id(entry.id),
        owner=decode_name(entry.owner),
        idle=int(entry.idle_ms) * MILLISECOND,
        delivered=now - int(entry.idle_ms) * MILLISECOND,
        deliveries=entry.deliveries,
    )


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


class _Opened(NamedTuple):
    """The answer of open_scan.lua when a scan has begun."""

    now_ms: bytes
    master_since_ms: bytes | None
    retry_batch: bytes
    under_way: Sequence[Reply]
    delay_until_ms: bytes | None
    since_ms: bytes | None
    report: bytes
    cursor: bytes
    offers: int
    main: Reply
    retry: Reply


@reading("open_scan.lua")
def _read_observation(keys: GroupKeys, opened: _Opened) -> ScanObservation:
    moment = instant(opened.now_ms)
    return ScanObservation(
        now=moment,
        master_since=_moment_or_none(opened.master_since_ms),
        retry_batch=RetryBatch(
            written=decode_name(opened.retry_batch),
            under_way=_read_ids(one.id for one in opened.under_way),
            undelivered=_read_ids(one.id for one in opened.under_way if not one.owner),
        ),
        delay_until=_moment_or_none(opened.delay_until_ms),
        delay_before=_moment_or_none(opened.since_ms),
        report=opened.report.decode("utf-8", "replace"),
        cursor=opened.cursor.decode("utf-8", "replace"),
        stream=_read_stream(keys.stream, moment, opened.main),
        retry=_read_stream(keys.retry, moment, opened.retry) if opened.retry else None,
        offers=opened.offers,
    )


def _read_ids(words: Iterable[bytes]) -> frozenset[EntryId]:
    return frozenset(one for word in words for one in read_ids(decode_name(word)))


def _read_stream(name: str, seen: datetime, reply: Reply) -> StreamInScan:
    return StreamInScan(
        name=name,
        seen=seen,
        groups=reply.groups,
        pending=reply.pending,
        consumers=reply.consumers,
        last_delivered_id=parse_entry_id(reply.last_delivered),
        last_generated_id=parse_entry_id(reply.last_generated),
        first_id=_id_or_none(reply.first),
        lowest_pending=_id_or_none(reply.lowest_pending),
    )


def _id_or_none(reply: Reply) -> EntryId | None:
    return parse_entry_id(reply) if reply else None


def _moment_or_none(reply: Reply) -> datetime | None:
    if not reply or not reply.isdigit() or int(reply) == 0:
        return None
    return instant(min(int(reply), LATEST_MS))
