"""Reads of a worker: new entries, idle entries that it claims, and its own pending entries.

Where XREADGROUP has no CLAIM, a script claims idle entries page by page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pelops.clock import with_jitter
from pelops.domain.entry_id import parse_entry_id
from pelops.errors import NoSuchGroup, PelopsError, RedisError
from pelops.redis_core.errors import words_of
from pelops.redis_core.replies.shapes import BadShape, entries, reading
from pelops.redis_core.transport import Reply
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import Script
from pelops.scripts.parts import Raw, RawId
from pelops.worker.server.acknowledgements import RENEW, in_chunks
from pelops.worker.server.adapter import Delivered, DeliverySource, RawEntry
from pelops.worker.server.connection import Wire
from pelops.worker.server.script_commands import Names, Parts, worker_script
from pelops.worker.settings import WorkerPlace

# With idle times and delivery counts.
Taken: TypeAlias = Annotated[list[RawEntry], partial(entries, widths=frozenset({4}))]


class _Claimed(NamedTuple):
    next: Raw  # where the next page begins; empty at the end
    taken: Taken
    gone: list[RawId]  # whose body was deleted


class _Buried(NamedTuple):
    verdict: Literal["done"]
    ids: list[RawId]


_CLAIM: Final = worker_script("claim", _Claimed)
TAKE_OVER: Final = worker_script("take_over", Taken)
_BURY: Final = worker_script("bury", _Buried | Refusal)
_PAGE: Final = 500  # pending entries per run of the claim script: a third of a millisecond
MAX_BYTES: Final = 256 * 1024  # of bodies that a script reads
_LONGEST_CURSOR: Final = 64  # a longer value is not a valid cursor
_BETWEEN_TURNS_S: Final = 0.02
_PASSES_PER_LIMIT: Final = 3


class ClaimPasses:
    """Passes over all pending entries, a page of each stream at a time."""

    def __init__(self, names: Names, processing_timeout_ms: int, now: Callable[[], float]) -> None:
        self._names = names
        self._processing_timeout_ms = processing_timeout_ms
        self._now = now
        self._due = now()
        self._at: dict[bytes, str | bytes] = {}  # where each stream's pass continues

    @property
    def wait_s(self) -> float:
        """Seconds until the next page is due; 0: now."""
        return max(0.0, self._due - self._now())

    def calls(self, keys: Sequence[bytes], count: int) -> list[Parts]:
        """Commands that claim the next page of each stream. Pass each reply to `read_page`."""
        self._at = self._at or dict.fromkeys(keys, "-")
        return [
            self._names.recording(
                _CLAIM,
                key,
                "idle",
                min_idle_ms=self._processing_timeout_ms,
                start=start,
                page=_PAGE,
                count=count,
                max_bytes=MAX_BYTES,
            )
            for key, start in self._at.items()
        ]

    def keys(self) -> list[bytes]:
        """The streams of the last `calls`, in the same order."""
        return list(self._at)

    def read_page(self, key: bytes, reply: Reply) -> list[list[object]]:
        """The entries that were claimed; empty when the command was refused."""
        if isinstance(reply, Exception):
            del self._at[key]  # retried in the next pass; the read reports a missing group
            return []
        turn = _CLAIM.read(reply)
        if turn.next and len(turn.next) <= _LONGEST_CURSOR:
            self._at[key] = turn.next
        else:
            del self._at[key]
        return turn.taken

    def finish(self) -> None:
        """Schedule the next page: soon, or after a longer pause when the pass is complete."""
        rest = with_jitter(self._processing_timeout_ms / 1000 / _PASSES_PER_LIMIT)
        self._due = self._now() + (_BETWEEN_TURNS_S if self._at else rest)


_NAMED: Final = re.compile(r"No such key '(.*)' or consumer group", re.DOTALL)
_RETRY_MISSING_S: Final = 10.0  # the resource's strategy may change while workers run


class Streams:
    """The streams to read. A missing one is left out: Redis would refuse the whole read."""

    def __init__(self, names: Names, now: Callable[[], float]) -> None:
        self._stream = names.stream
        self._optional = (names.retry, names.offer_stream)
        self._offer_stream = names.offer_stream
        self._missing_until: dict[bytes, float] = {}
        self._now = now

    def to_read(self) -> list[bytes]:
        """Keys of the streams to name in a read."""
        if self._missing_until:
            now = self._now()
            self._missing_until = {
                key: until for key, until in self._missing_until.items() if until > now
            }
        missing = self._missing_until
        return [self._stream, *(key for key in self._optional if key not in missing)]

    def with_entries(self) -> list[bytes]:
        """Streams whose entries are processed: all except the offer stream."""
        return [key for key in self.to_read() if key != self._offer_stream]

    @property
    def may_offer(self) -> bool:
        """Whether the offer stream exists, as far as is known."""
        return self._offer_stream not in self._missing_until

    def learn_missing(self, refusal: str, request: Collection[object]) -> bool:
        """Note the stream that NOGROUP names; False if it is the main stream: no group exists.

        Only streams among `request` count. Each repetition then reads fewer streams, so it ends.
        """
        named = _NAMED.search(refusal)
        key = named[1].encode("utf-8", "surrogateescape") if named else b""
        if key not in self._optional or key not in request:
            return False
        self._missing_until[key] = self._now() + _RETRY_MISSING_S
        return True


_FRESH: Final = (0, 0)  # idle time and delivery count of a new entry


@dataclass(slots=True)
class ReadRequest:
    """The commands of one read, in order, and what is needed to interpret their replies."""

    commands: list[Parts] = field(default_factory=list)
    claims: list[bytes] = field(default_factory=list)  # keys of the first commands, which claim
    block_ms: int = 0


@dataclass(slots=True)
class ReadResult:
    """The result of a read."""

    delivered: list[Delivered] = field(default_factory=list)
    offers: list[Parts] = field(default_factory=list)  # scripts that claim offered entries
    problem: RedisError | None = None
    again: bool = False  # the server refused this form of the read: repeat it


class ReadCommands:
    """Builds reads and interprets their replies. Detects by trial whether CLAIM exists."""

    def __init__(self, place: WorkerPlace, names: Names, now: Callable[[], float]) -> None:
        self._names = names
        self._limit = place.processing_timeout_ms
        self.knows_claim = True
        self.streams = Streams(names, now)
        self._turns = ClaimPasses(names, place.processing_timeout_ms, now)

    def forget(self) -> None:
        """Try CLAIM again: the address may now lead to another server."""
        self.knows_claim = True

    def build(self, count: int, block_ms: int) -> ReadRequest:
        """A read of up to `count` entries per stream; `block_ms` 0: without blocking."""
        request = ReadRequest()
        if not self.knows_claim:
            wait_ms = int(self._turns.wait_s * 1000)
            if wait_ms == 0:
                request.commands = self._turns.calls(self.streams.with_entries(), count)
                request.claims = self._turns.keys()
            block_ms = min(block_ms, wait_ms)  # claimed entries must not wait for new ones
        request.block_ms = block_ms
        request.commands.append(self._read(count, block_ms))
        return request

    def interpret(self, request: ReadRequest, replies: list[Reply]) -> ReadResult:
        """Interpret the replies. Raises errors that are not of Redis."""
        result = ReadResult()
        for key, reply in zip(request.claims, replies, strict=False):
            taken = self._turns.read_page(key, reply)
            if taken:
                result.delivered.append(Delivered(key, DeliverySource.CLAIMED, taken))
        if request.claims:
            self._turns.finish()
        reply = replies[-1]
        if isinstance(reply, PelopsError):
            self._interpret_refusal(reply, result, request.commands[-1])
        else:
            self._sort_deliveries(reply or (), result)
        return result

    def _read(self, count: int, block_ms: int) -> Parts:
        keys = self.streams.to_read()
        block = ("BLOCK", block_ms) if block_ms > 0 else ()
        claim = ("CLAIM", self._limit) if self.knows_claim else ()
        head = ("XREADGROUP", "GROUP", self._names.group, self._names.me, "COUNT", count)
        return (*head, *block, *claim, "STREAMS", *keys, *(b">",) * len(keys))

    def _interpret_refusal(self, refusal: PelopsError, result: ReadResult, request: Parts) -> None:
        is_missing = isinstance(refusal, NoSuchGroup)
        if is_missing and self.streams.learn_missing(words_of(refusal), request):
            result.again = True
        elif self.knows_claim and _is_about_syntax(refusal):
            self.knows_claim = False
            result.again = True
        elif isinstance(refusal, RedisError):
            result.problem = refusal
        else:
            raise refusal

    def _sort_deliveries(self, reply: Reply, result: ReadResult) -> None:
        for key, page in reply:
            if key == self._names.offer_stream:
                result.offers += [call for offer in page for call in self._claim_offer(offer)]
                continue
            if page and len(page[0]) == 2:
                for entry in page:
                    entry.extend(_FRESH)
            result.delivered.append(Delivered(key, DeliverySource.NEW, page))

    def _claim_offer(self, offer: RawEntry) -> list[Parts]:
        fields = dict(zip(offer[1][::2], offer[1][1::2], strict=False)) if offer[1] else {}
        ids = fields.get(b"ids", b"").split()[:1000]
        call = self._names.run(
            TAKE_OVER,
            {"source": self._names.stream},
            offer=offer[0],
            owner=fields.get(b"consumer", b""),
            before=fields.get(b"before", b"0"),
            max_bytes=MAX_BYTES,
            ids=ids,
        )
        return [call]


def _is_about_syntax(refusal: PelopsError) -> bool:
    text = words_of(refusal).lower()
    return "syntax" in text or "unbalanced" in text


_START: Final = b"0-0"

_Pending = Sequence[Any]  # ID, consumer, idle time in ms, deliveries


@reading("XPENDING")
def _check_progress(after: bytes, pending: Sequence[_Pending]) -> None:
    if parse_entry_id(pending[-1][0]) <= parse_entry_id(after):
        raise BadShape("a page of entries does not continue where the previous page ended")


class HistoryReader:
    """Reads the pending entries of this consumer page by page, and resets their idle time."""

    def __init__(self, wire: Wire, names: Names, streams: Streams) -> None:
        self._wire = wire
        self._names = names
        self._streams = streams

    async def read(
        self, after: Mapping[bytes, bytes], count: int, skip: Collection[bytes]
    ) -> list[Delivered]:
        """As `GroupAdapter.read_history`; raises the error if the server refuses."""
        at = dict(after)
        while listed := await self._list(at, count):
            for key, pending in listed.items():
                _check_progress(at.get(key, _START), pending)
                at[key] = pending[-1][0]
            pages = await self._read(listed, skip)
            kept = [page for page in pages if await self._refresh(page)]
            if kept:
                return kept
        await self._create_consumer(at)
        return []

    async def _create_consumer(self, at: Mapping[bytes, bytes]) -> None:
        """Create this consumer by a read: before Redis 7.2 a blocked read does not create it."""
        keys = self._streams.with_entries()
        head = ("XREADGROUP", "GROUP", self._names.group, self._names.me, "COUNT", 1)
        behind_all = [at.get(key, _START) for key in keys]
        (reply,) = await self._wire.send([(*head, "STREAMS", *keys, *behind_all)])
        if isinstance(reply, PelopsError):
            raise reply

    async def _list(self, at: Mapping[bytes, bytes], count: int) -> dict[bytes, list[_Pending]]:
        """A page of this consumer's pending entries, for each stream that has any.

        XREADGROUP would also return the bodies, and reset the idle time of every entry. The
        operator would then not recover entries that a crashed process had started.
        """
        keys = self._streams.with_entries()
        replies = await self._wire.send([self._listing(key, at, count) for key in keys])
        for reply in replies:
            is_missing = isinstance(reply, NoSuchGroup)
            if is_missing and self._streams.learn_missing(words_of(reply), keys):
                self._wire.reset_backoff()
                return await self._list(at, count)
            if isinstance(reply, PelopsError):
                raise reply
        return {key: listed for key, listed in zip(keys, replies, strict=True) if listed}

    def _listing(self, key: bytes, at: Mapping[bytes, bytes], count: int) -> Parts:
        start = b"(" + at.get(key, _START)
        return ("XPENDING", key, self._names.group, start, "+", count, self._names.me)

    async def _read(
        self, listed: Mapping[bytes, list[_Pending]], skip: Collection[bytes]
    ) -> list[Delivered]:
        """Read the bodies, None for a deleted one; leave out the IDs in `skip`."""
        wanted = [(key, one) for key, some in listed.items() for one in some if one[0] not in skip]
        calls: list[Parts] = [("XRANGE", key, one[0], one[0]) for key, one in wanted]
        pages = {key: Delivered(key, DeliverySource.HISTORY, []) for key in listed}
        replies = await self._wire.send(calls) if calls else []
        for (key, (entry_id, _, idle_ms, deliveries)), reply in zip(wanted, replies, strict=True):
            if isinstance(reply, PelopsError):
                raise reply
            body = reply[0][1] if reply else None
            pages[key].entries.append([entry_id, body, idle_ms, deliveries])
        return list(pages.values())

    async def _refresh(self, page: Delivered) -> bool:
        """Refresh entries and dead-letter those without a body; False: the page is now empty."""
        mine = page.entries
        page.entries = [entry for entry in mine if entry[1] is not None]
        gone = [entry[0] for entry in mine if entry[1] is None]
        kept = [entry[0] for entry in page.entries]
        keeps, buries = self._calls(RENEW, page.key, kept), self._calls(_BURY, page.key, gone)
        replies = await self._wire.send([*keeps, *buries]) if mine else []
        for reply in replies:
            if isinstance(reply, PelopsError):
                raise reply
        # Entries that were acknowledged or claimed by another consumer since they were listed.
        lost = {one for reply in replies[: len(keeps)] for one in RENEW.read(reply).lost}
        page.entries = [entry for entry in page.entries if entry[0] not in lost]
        return bool(page.entries)

    def _calls(self, script: Script[Any], key: bytes, ids: list[bytes]) -> list[Parts]:
        chunks = (some for _, some in in_chunks({key: ids}))
        return [self._names.recording(script, key, "history", ids=some) for some in chunks]
