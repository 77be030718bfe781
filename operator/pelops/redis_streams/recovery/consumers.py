"""Lists the consumers of a group, observes their activity, and removes those that own nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, NamedTuple

from pelops.clock import MILLISECOND
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.recovery import ConsumerProgress
from pelops.errors import NoSuchStream
from pelops.redis_core.commands import text_of
from pelops.redis_core.replies.shapes import invalid
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams.recovery.scan_calls import (
    NoGroup,
    decode_name,
    encode_name,
    no_group,
    refused,
)
from pelops.redis_streams.recovery.stuck_entries import ScanContext
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import load_script
from pelops.scripts.parts import Moment, SpanIfAny


class _Progress(NamedTuple):
    asked: Moment
    inactive: SpanIfAny
    newest: SpanIfAny
    others: SpanIfAny


_REMOVE: Final = load_script(
    "remove_consumer", Literal["removed", "owns-entries", "absent"] | Refusal
)
_PROGRESS: Final = load_script("observe_progress", _Progress | NoGroup)
LISTABLE: Final = 2_000  # consumers; the list of more would hold the server for too long
LOOKED_AT: Final = 500  # pending entries of one consumer per call


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedConsumer:
    """A consumer as XINFO CONSUMERS shows it."""

    name: str
    pending: int
    idle: timedelta  # since its last read or claim


async def list_consumers(server: Server, stream: str, group: str) -> list[ObservedConsumer]:
    """All consumers of a group. The cost is linear in their number (XINFO CONSUMERS)."""
    reply = await server.execute("XINFO", "CONSUMERS", stream, group, key=stream)
    return [_read_consumer(one) for one in reply]


async def list_lowest_owners(server: Server, stream: str, group: str, *, count: int) -> list[str]:
    """The owners of the lowest pending entries, each once. The cost is linear in `count`."""
    reply = await server.execute("XPENDING", stream, group, "-", "+", count, key=stream)
    return list(dict.fromkeys(decode_name(owner) for _, owner, _, _ in reply if owner))


async def list_pending_of(
    server: Server, stream: str, group: str, consumer: str
) -> AsyncGenerator[list[tuple[EntryId, timedelta]], None]:
    """Pages of a consumer's pending IDs and idle times, the lowest ID first. Writes nothing.

    Raises InvalidReply when a page does not continue where the previous one ended.
    """
    start, last = "-", EntryId.MIN
    while start:
        reply = await server.execute(
            *("XPENDING", stream, group, start, "+", LOOKED_AT, encode_name(consumer)), key=stream
        )
        page = [
            (parse_entry_id(text_of(entry_id)), idle_ms * MILLISECOND)
            for entry_id, _, idle_ms, _ in reply
        ]
        yield page
        start = ""
        if len(page) == LOOKED_AT:
            before, last = last, page[-1][0]
            start = f"({last}"
            if last <= before:
                raise invalid("XPENDING", "a page does not continue where the page before it ended")


async def count_consumers(server: Server, stream: str, group: str) -> int:
    """The number of consumers of a group; 0 without the group or its stream."""
    try:
        groups = await server.execute("XINFO", "GROUPS", stream, key=stream)
    except NoSuchStream:
        return 0
    found = (dict(zip(one[::2], one[1::2], strict=True)) for one in groups)
    return next((one[b"consumers"] for one in found if one[b"name"] == group.encode()), 0)


async def observe_progress(
    server: Server, stream: str, group: str, consumer: str
) -> ConsumerProgress:
    """Observe whether a consumer and the others of its group finish the entries they get.

    The cost is linear in the number of consumers. Raises NoSuchGroup.
    """
    name = encode_name(consumer)
    call = _PROGRESS.call(None, {"stream": stream}, group=group, consumer=name, limit=LOOKED_AT)
    answer = _PROGRESS.read(await server.run(call))
    if isinstance(answer, str):
        raise no_group(group, stream)
    return ConsumerProgress(**answer._asdict())


async def remove_consumer(server: Server, context: ScanContext, consumer: str) -> bool:
    """Remove a consumer that owns nothing; False when it owns entries or no longer exists.

    Entries in the group's other streams count too: the stream, and the present or former retry
    stream.

    Raises NotOurs, WrongType, PermissionDenied.
    """
    keys = context.keys
    others = {keys.stream, context.target, context.former_retry} - {context.source, ""}
    call = _REMOVE.call(
        context,
        {"stream": context.source, "others": tuple(others)},
        group=keys.group,
        uid=context.uid,
        actor=context.actor,
        consumer=encode_name(consumer),
    )
    answer = _REMOVE.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return answer == "removed"


def _read_consumer(reply: Sequence[Reply]) -> ObservedConsumer:
    fields = dict(zip(reply[::2], reply[1::2], strict=True))
    return ObservedConsumer(
        name=decode_name(fields[b"name"]),
        pending=fields[b"pending"],
        idle=fields[b"idle"] * MILLISECOND,
    )
