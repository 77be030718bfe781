"""The watch: kopf in a thread of its own, with a check that it receives events of each kind.

kopf sends its requests through a session that this module opens. A middleware of the session makes
sure that the cache cannot silently miss changes:

- It records when the API server last answered for each kind. Readiness depends on that.
- It replaces each LIST of kopf by a LIST of the cache, which also detects missed deletions. kopf
  itself receives an empty list, and continues with the changes since then.
- It turns a refusal into a lost connection. kopf repeats requests after those, and gives up a kind
  otherwise.
- It waits with growing pauses if the API server ends each stream at once.
- It replaces an object that is too large to be kept by a small one, before kopf parses it.

If kopf nevertheless ends, or no longer asks for a kind, it is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias, cast

import aiohttp

from pelops.controller.runtime.cache import Resync
from pelops.domain.backoff import backoff_s
from pelops.errors import KubernetesError, KubernetesUnavailable
from pelops.kube.client import Kind, KubeApi, Manifest, parse_message
from pelops.kube.json_text import parse_json
from pelops.kube.trimmed import MOST_OTHER_BYTES, is_kept, trim
from pelops.metrics import WATCH_ACTIVITY, WATCH_LISTS, WATCH_RESTARTS

log = logging.getLogger(__name__)

# Called with the kind, the object, and whether it was deleted.
Listener: TypeAlias = Callable[[Kind, Manifest, bool], None]

# Readiness fails when the API server has not answered for a kind for so long: two streams' length.
SILENCE_LIMIT_S: Final = 60.0
UNAUTHORIZED, NOT_FOUND, GONE, TOO_MANY = 401, 404, 410, 429
BURST: Final = 50  # events that are stored before other tasks run
# kopf parses objects that may be nested 10,000 levels deep, which is the limit of the API server.
DEEPEST: Final = 25_000
STACK_BYTES: Final = 256 * 1024 * 1024
REFUSAL_BYTES: Final = 64 * 1024  # that are read of a refusal
LARGE_BYTES: Final = MOST_OTHER_BYTES  # smaller events have no objects that are too large
NOTHING: Final = "metadata.name=-"  # a field selector that no object fits


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPace:
    """Deadlines and pauses of the watch, in seconds."""

    # The server ends a stream after this time, and the next one continues where it ended. So each
    # kind is asked for at least so often, which shows that it is followed.
    stream_s: float = 30.0
    late_s: float = 10.0  # beyond `stream_s` without an event: then the stream is taken for dead
    answer_s: float = 10.0  # until the first byte of an answer; doubled with each failure
    longest_answer_s: float = 60.0
    list_s: float = 300.0
    first_pause_s: float = 0.25
    longest_pause_s: float = 4.0
    longest_silence_s: float = 90.0  # without a request for a kind: then kopf is started again
    check_s: float = 0.5  # between two checks of kopf
    longest_start_s: float = 10.0
    ending_s: float = 0.5  # for kopf to end; then its thread is left behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What kopf follows from one start to its end. All of it is called in kopf's event loop."""

    kinds: Collection[Kind]
    namespaces: Collection[str]  # empty: all
    # The address of the API server, and a session. Raises KubernetesError.
    open_session: Callable[[], Awaitable[tuple[str, aiohttp.ClientSession]]]
    on_event: Listener
    stop: threading.Event  # set by the watch
    ending: threading.Event  # set by kopf, which then takes some seconds to end
    pace: WatchPace


# Runs kopf until the stop event; raises what ended it before.
Operator: TypeAlias = Callable[[Subscription], Coroutine[Any, Any, None]]


@dataclass(slots=True, kw_only=True)
class Feed:
    """One kind in one namespace, or in all, and how it is followed."""

    kind: Kind
    namespace: str | None
    is_trimmed: bool  # `trim` decides what is kept of its objects
    seen_at: float  # the last answer or event
    asked_at: float  # the last request
    is_listed: bool = False  # since kopf was started
    failures: int = 0  # in a row
    trouble: str = ""  # of the last failure, until an answer
    answered_at: dict[bool, float] = field(default_factory=dict)  # by whether it is a stream
    haste: int = 0  # answers in a row that followed too soon

    def __str__(self) -> str:
        where = "" if self.namespace is None else f" in the namespace {self.namespace}"
        return f"{self.kind.plural}{where}"


class Watch:
    """Follows kinds until cancelled, and records for each when the API server last answered."""

    def __init__(
        self,
        api: KubeApi,
        resync: Resync,
        listener: Listener,
        clock: Callable[[], float],
        operator: Operator,
        *,
        pace: WatchPace = WatchPace(),
    ) -> None:
        """`listener` takes in each event; what a LIST finds goes the way of `resync`."""
        self._api = api
        self._resync = resync
        self._listener = listener
        self._clock = clock
        self._operator = operator
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self.kinds: tuple[Kind, ...] = ()
        self._feeds: dict[str, Feed] = {}  # by their path
        self._events: deque[tuple[Kind, Manifest, bool]] = deque()

    def follow(self, kinds: Collection[Kind]) -> None:
        """Follow these kinds from now on. Another choice than the last one starts kopf again."""
        if set(kinds) == set(self.kinds):
            return
        self.kinds = tuple(kinds)
        for kind in kinds:
            WATCH_ACTIVITY.labels(kind.plural).set_function(partial(self._last_activity, kind))
            WATCH_RESTARTS.labels(kind.plural)

    async def run(self) -> None:
        """Run kopf until cancelled."""
        failures = 0
        while True:
            began_at = self._clock()
            reason = await self._run_once()
            if not reason:
                continue
            failures = (
                1 if self._clock() - began_at > self._pace.longest_silence_s else failures + 1
            )
            log.warning("Starting the watch of every kind again: %s", reason)
            for kind in self.kinds:
                WATCH_RESTARTS.labels(kind.plural).inc()
            await self._pause(failures, self._pace.longest_start_s)

    async def await_lists(self, within_s: float) -> None:
        """Return when each kind was listed since kopf was started.

        Raises KubernetesUnavailable when that fails, or does not advance for so long.
        """
        while waiting := [feed for feed in self._feeds.values() if not feed.is_listed]:
            for feed in waiting:
                silent_s = self._clock() - feed.seen_at
                if feed.trouble or silent_s > within_s:
                    why = feed.trouble or f"no answer for {silent_s:.0f} s"
                    raise KubernetesUnavailable(f"could not list {feed}: {why}")
            await asyncio.sleep(0.05)

    def problem(self) -> str:
        """The kinds without an answer for longer than the limit; empty: there is none."""
        now = self._clock()
        return "; ".join(
            f"the watch of {feed} has received nothing for {now - feed.seen_at:.0f} s"
            + (f" ({feed.trouble})" if feed.trouble else "")
            for feed in self._feeds.values()
            if now - feed.seen_at > SILENCE_LIMIT_S
        )

    def _last_activity(self, kind: Kind) -> float:
        now = self._clock()
        return time.time() - (now - self._seen_at(kind, now))

    def _seen_at(self, kind: Kind, default: float) -> float:
        seen_at = (feed.seen_at for feed in self._feeds.values() if feed.kind == kind)
        return min(seen_at, default=default)

    async def _run_once(self) -> str:
        """Run kopf until it has to be started again: why, or empty for other kinds to follow."""
        kinds, now = self.kinds, self._clock()
        # A thread that was left behind may still write to former ones.
        feeds = {
            kind.path(namespace): Feed(
                kind=kind,
                namespace=namespace,
                is_trimmed=self._resync.is_trimmed(kind),
                seen_at=self._seen_at(kind, now),
                asked_at=now,
            )
            for kind in kinds
            for namespace in self._resync.feeds(kind)
        }
        self._feeds = feeds
        subscription = Subscription(
            kinds=kinds,
            namespaces=self._resync.namespaces,
            open_session=partial(self._api.open_session, partial(self._answer, feeds)),
            on_event=partial(self._receive_event, feeds),
            stop=threading.Event(),
            ending=threading.Event(),
            pace=self._pace,
        )
        thread = OperatorThread(partial(self._operator, subscription))
        thread.start()
        try:
            while self.kinds == kinds:
                await asyncio.sleep(self._pace.check_s)
                if subscription.ending.is_set() or not thread.is_alive():
                    return thread.outcome
                for feed in feeds.values():
                    silent_s = self._clock() - max(feed.asked_at, feed.seen_at)
                    if silent_s > self._pace.longest_silence_s:
                        return f"kopf has not asked for {feed} for {silent_s:.0f} s"
            return ""
        finally:
            subscription.stop.set()
            try:
                await asyncio.to_thread(thread.join, self._pace.ending_s)
            finally:
                thread.abandon()

    def _process_events(self) -> None:
        for _ in range(BURST):
            if not self._events:
                return
            kind, manifest, is_gone = self._events.popleft()
            try:
                self._listener(kind, manifest, is_gone)
            except Exception:
                # One object that cannot be read must not hide all others from the replica.
                log.exception("Could not process a watch event of %s", kind.plural)
        self._loop.call_soon(self._process_events)

    # --- in the thread of kopf

    def _receive_event(
        self, feeds: dict[str, Feed], kind: Kind, manifest: Manifest, is_gone: bool
    ) -> None:
        namespace = manifest.get("metadata", {}).get("namespace")
        feed = feeds.get(kind.path(namespace)) or feeds.get(kind.path())
        if feed is not None:
            feed.seen_at = self._clock()
        self._events.append((kind, manifest, is_gone))
        if len(self._events) == 1:
            self._loop.call_soon_threadsafe(self._process_events)

    async def _answer(
        self,
        feeds: dict[str, Feed],
        request: aiohttp.ClientRequest,
        handler: aiohttp.ClientHandlerType,
    ) -> aiohttp.ClientResponse:
        """The middleware of kopf's session."""
        path = request.url.path  # that of the server comes first, as of a proxy for many clusters
        feed = next((feed for place, feed in feeds.items() if path.endswith(place)), None)
        if feed is None:
            return await self._discover(request, handler)
        is_stream = "watch" in request.url.query
        if not is_stream:
            request.url = request.url.update_query(fieldSelector=NOTHING)
        await self._pause(feed.haste, self._pace.longest_pause_s)
        feed.asked_at = self._clock()
        try:
            async with asyncio.timeout(self._answer_s(feed)):
                response = await handler(request)
            # kopf logs in again, waits for as long as it is asked to, or ends: the next one lists.
            left = (UNAUTHORIZED, TOO_MANY, GONE) if is_stream else (UNAUTHORIZED, TOO_MANY)
            if response.status in left:
                await self._leave_to_kopf(feed, response.status)
                return response
            if response.status >= 400 or "json" not in response.content_type:
                raise await _read_refusal(response)
            if not is_stream:
                await self._list(feed)
        except (aiohttp.ClientError, KubernetesError, TimeoutError, OSError) as error:
            self._fail(feed, str(error) or "the API server does not answer")
            raise aiohttp.ClientConnectionError(feed.trouble) from error
        self._succeed(feed, is_stream)
        if is_stream and feed.is_trimmed:
            response.content = cast(aiohttp.StreamReader, TrimmedLines(response.content))
        return response

    async def _discover(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Which kinds are served."""
        async with asyncio.timeout(self._pace.answer_s):
            response = await handler(request)
        if response.status >= 400 and response.status not in (UNAUTHORIZED, NOT_FOUND, TOO_MANY):
            raise aiohttp.ClientConnectionError(str(await _read_refusal(response)))
        return response

    async def _list(self, feed: Feed) -> None:
        """LIST into the cache, after kopf's own request: its stream begins with what came before.

        Raises KubernetesError, or TimeoutError.
        """
        listing = self._resync.list_feed(
            feed.kind,
            feed.namespace,
            page_s=self._answer_s(feed),
            on_page=partial(self._record_answer, feed),
        )
        async with asyncio.timeout(self._pace.list_s):
            await self._in_main(listing)
        WATCH_LISTS.labels(feed.kind.plural, "gap").inc()
        feed.is_listed = True

    async def _in_main(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _leave_to_kopf(self, feed: Feed, status: int) -> None:
        self._fail(feed, f"the API server returned HTTP status {status}")
        if status == UNAUTHORIZED:
            await self._in_main(self._api.renew())
            await self._pause(feed.failures, self._pace.longest_pause_s)

    def _fail(self, feed: Feed, trouble: str) -> None:
        feed.failures += 1
        feed.trouble = trouble
        WATCH_RESTARTS.labels(feed.kind.plural).inc()
        log.warning("Restarting the watch of %s: %s", feed, trouble)

    def _succeed(self, feed: Feed, is_stream: bool) -> None:
        now = self._clock()
        after_s = now - feed.answered_at.get(is_stream, float("-inf"))
        feed.answered_at[is_stream] = feed.seen_at = now
        feed.failures = 0
        if after_s < self._pace.stream_s / 4:
            feed.haste += 1
            feed.trouble = f"the API server ended the stream after {after_s:.1f} s"
        else:
            feed.haste, feed.trouble = 0, ""

    def _record_answer(self, feed: Feed) -> None:
        feed.seen_at = self._clock()

    async def _pause(self, failures: int, longest_s: float) -> None:
        """Wait longer with each failure in a row, and never all replicas equally long."""
        pause_s = backoff_s(failures, first_s=self._pace.first_pause_s, longest_s=longest_s)
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))

    def _answer_s(self, feed: Feed) -> float:
        """How long an answer may take: longer after failures, or a slow server never answers."""
        pace = self._pace
        return backoff_s(feed.failures + 1, first_s=pace.answer_s, longest_s=pace.longest_answer_s)


class TrimmedLines:
    """The events of a watch as lines, with small events for objects that are too large to be kept.

    Parsed JSON takes up to 25 times the memory of its text, and kopf keeps the last event of each
    object for a moment. Here one large object at a time is parsed, and kopf receives only its stub.
    """

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        """All else is the content's: the response asks it for its exception when it ends."""
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The same lines as those of the content. Each part ends with a line."""
        begun = b""
        async for data in self._content.iter_chunked(size):
            whole, end, rest = data.rpartition(b"\n")
            if not end:
                begun += data
                continue
            lines, begun = begun + whole + end, rest
            if len(lines) <= LARGE_BYTES:
                yield lines
                continue
            for line in lines.splitlines(keepends=True):
                yield line if len(line) <= LARGE_BYTES else await _trim_event(line)
        if begun:
            yield begun


async def _trim_event(line: bytes) -> bytes:
    try:
        event = await parse_json(line)
        kept = trim(event["object"])
    except (ValueError, KeyError, TypeError, AttributeError):  # not an object: kopf reports it
        return line
    return line if is_kept(kept) else json.dumps({**event, "object": kept}).encode() + b"\n"


class OperatorThread(threading.Thread):
    """A thread with an event loop of its own: at its end kopf cancels all tasks of its loop."""

    def __init__(self, operator: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__(name="kopf", daemon=True)  # the process does not wait for it
        self.outcome = "kopf ends"
        self._operator = operator
        self._loop = asyncio.new_event_loop()
        # Tasks that are left behind are destroyed some time, which asyncio takes for an error.
        self._loop.set_exception_handler(lambda _, context: log.debug("In kopf: %s", context))

    def start(self) -> None:
        sys.setrecursionlimit(max(DEEPEST, sys.getrecursionlimit()))
        former = threading.stack_size(STACK_BYTES)
        try:
            super().start()
        finally:
            threading.stack_size(former)

    def run(self) -> None:
        try:
            self._loop.run_until_complete(self._operator())
        except BaseException as error:
            self.outcome = f"kopf ended by {type(error).__name__}: {error}"[:500]
        finally:
            self._loop.close()

    def abandon(self) -> None:
        """Stop it where it is, if it still runs."""
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._loop.stop)


async def _read_refusal(response: aiohttp.ClientResponse) -> KubernetesUnavailable:
    text = await response.content.read(REFUSAL_BYTES)
    response.close()
    if response.status < 400:
        return KubernetesUnavailable("the answer of the API server is not JSON")
    return KubernetesUnavailable(
        f"the API server returned HTTP status {response.status}: {parse_message(text)}"
    )
