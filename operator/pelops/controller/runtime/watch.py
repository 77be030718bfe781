"""The watch: keeps a cache in step with the API server, whatever the API server does.

Each kind (and namespace) has a loop of its own: LIST, then the changes since that LIST, as a
stream that the server ends every half minute and that continues where it ended. After anything
else (a failure, a hang, a version that the server forgot) comes a LIST, which finds what was added,
changed and deleted meanwhile. Nothing in here ends a loop, and each wait has a deadline.

Of kopf the lower level is used: its requests, its errors and its stream of JSON lines.
`kopf.operator()` is not: it ends at a refusal, and its end may hang (`request_cancel_callback`);
it repeats without a growing pause, tells no deletion after a gap, and shows neither bookmarks nor
errors of its watches, so nobody could see that it is deaf.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import aiohttp
import kopf
from kopf._cogs.clients import api as streaming
from kopf._cogs.clients import auth, errors

from pelops.controller.runtime.cache import Resync
from pelops.controller.runtime.queue import is_wanted
from pelops.domain.backoff import backoff_s
from pelops.errors import Forbidden, NotFound
from pelops.kube.client import Kind, KubeApi, Manifest, parse_retry_after
from pelops.kube.json_text import parse_json
from pelops.metrics import WATCH_ACTIVITY, WATCH_LISTS, WATCH_RESTARTS

log = logging.getLogger(__name__)
# Each refused request would be two lines, beside ours.
_silent = logging.getLogger("pelops.controller.runtime.watch.requests")
_silent.disabled = True

# Called with the kind, the object, and whether it is gone.
Listener = Callable[[Kind, Manifest, bool], None]
# Called with a kind that the API server refuses by 403 or 404.
Refusal = Callable[[Kind], None]
Result = TypeVar("Result")

# Readiness fails when a watch has had no sign of life for so long: two streams' length.
SILENCE_LIMIT_S: Final = 60.0
FORBIDDEN, NOT_FOUND, GONE, UNAUTHORIZED = 403, 404, 410, 401
BURST: Final = 50  # events that are taken in before others of this process have a turn


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPace:
    """Deadlines and pauses of the watch, in seconds."""

    # The server sends a bookmark shortly before it ends a stream, so each stream begins where the
    # last one ended, at the cost of one request; and one that hangs is found out soon.
    stream_s: float = 30.0
    late_s: float = 5.0  # beyond `stream_s`: then the stream is taken for dead
    answer_s: float = 10.0  # until the first byte of an answer; doubled with each failure
    longest_answer_s: float = 60.0
    list_s: float = 300.0
    first_pause_s: float = 0.25
    longest_pause_s: float = 4.0
    longest_retry_after_s: float = 30.0
    ending_s: float = 2.0  # for what is cancelled to end; then it is left behind


class WatchFailed(Exception):
    """A stream did not begin, or ended otherwise than by the server's regular end."""

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float = 0.0) -> None:
        """`status` is that of HTTP; 0: it is not known, or says nothing."""
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s

    @property
    def is_refusal(self) -> bool:
        """Whether the request was refused, and not because its version is too old."""
        return self.status >= 400 and self.status != GONE


@dataclass(slots=True, kw_only=True)
class Feed:
    """One kind in one namespace, or in all, and how its watch is."""

    kind: Kind
    namespace: str | None
    seen_at: float  # the last sign of life, on the watch's clock
    failures: int = 0  # in a row
    trouble: str = ""  # of the last failure, until a stream ends well
    was_fed: bool = False  # whether the last stream brought an event or a bookmark
    is_gone: bool = False  # whether the last failure was a version that the server forgot

    def __str__(self) -> str:
        where = "" if self.namespace is None else f" in the namespace {self.namespace}"
        return f"{self.kind.plural}{where}"


class Watch:
    """Follows kinds until cancelled, and says of each when it last gave a sign of life."""

    def __init__(  # noqa: PLR0913 - what it connects, and how it is timed
        self,
        api: KubeApi,
        resync: Resync,
        listener: Listener,
        clock: Callable[[], float],
        *,
        refused: Refusal = lambda _: None,
        pace: WatchPace = WatchPace(),
    ) -> None:
        """`listener` takes in each event; what a LIST finds goes the way of `resync`."""
        self._api = api
        self._resync = resync
        self._listener = listener
        self._clock = clock
        self._refused = refused
        self._pace = pace
        self._feeds: list[Feed] = []

    async def run(self, kinds: Collection[Kind]) -> None:
        """Follow these kinds until cancelled."""
        self._feeds = [
            Feed(kind=kind, namespace=namespace, seen_at=self._clock())
            for kind in kinds
            for namespace in self._resync.feeds(kind)
        ]
        for kind in kinds:
            WATCH_ACTIVITY.labels(kind.plural).set_function(partial(self._last_activity, kind))
            WATCH_RESTARTS.labels(kind.plural)
        async with asyncio.TaskGroup() as group:
            for feed in self._feeds:
                group.create_task(self._follow(feed))

    def problem(self) -> str:
        """The watches without a sign of life for longer than the limit; empty: there is none."""
        now = self._clock()
        silent = [feed for feed in self._feeds if now - feed.seen_at > SILENCE_LIMIT_S]
        return "; ".join(_explain(feed, now - feed.seen_at) for feed in silent)

    def _last_activity(self, kind: Kind) -> float:
        seen_at = min(feed.seen_at for feed in self._feeds if feed.kind is kind)
        return time.time() - (self._clock() - seen_at)

    async def _follow(self, feed: Feed) -> None:
        version = self._resync.take_version(feed.kind, feed.namespace)
        while is_wanted():
            began_at = self._clock()
            try:
                if not version:
                    version = await self._list(feed)
                version = await self._stream(feed, version)
            except asyncio.CancelledError as error:
                if _is_ending():
                    raise
                version = ""
                await self._fail(feed, error, began_at)
            # Whatever it is: a watch that ends for good is deaf, and nobody notices.
            except (Exception, BaseExceptionGroup) as error:
                # No stream began, so nothing was lost: a server that is busy is spared the LIST.
                if not (isinstance(error, WatchFailed) and error.is_refusal):
                    version = ""
                await self._fail(feed, error, began_at)
            else:
                await self._end_well(feed, began_at)

    async def _list(self, feed: Feed) -> str:
        page_s = self._answer_s(feed)
        listing = self._resync.list_feed(
            feed.kind, feed.namespace, page_s=page_s, on_page=partial(self._see, feed)
        )
        version = await self._bounded(listing, self._pace.list_s, f"the LIST of {feed}")
        WATCH_LISTS.labels(feed.kind.plural, "gap").inc()
        return version

    async def _stream(self, feed: Feed, version: str) -> str:
        seconds = max(1, round(self._pace.stream_s * random.uniform(0.8, 1.0)))
        following = self._follow_stream(feed, version, seconds)
        limit_s = seconds + self._pace.late_s + self._answer_s(feed)
        return await self._bounded(following, limit_s, f"the watch of {feed}")

    async def _follow_stream(self, feed: Feed, version: str, seconds: int) -> str:
        feed.was_fed = False
        count = 0
        stream = self._open(feed, version, seconds)
        # Bounded from its beginning as well: a server may take a request and never answer it.
        try:
            async with asyncio.timeout(self._answer_s(feed)) as deadline, aclosing(stream):
                async for event in stream:
                    if count == 0:
                        deadline.reschedule(
                            asyncio.get_running_loop().time() + seconds + self._pace.late_s
                        )
                    count += 1
                    self._see(feed)
                    if event is not None:
                        version = self._take(feed, event)
                    if count % BURST == 0:
                        await asyncio.sleep(0)
        except TimeoutError as error:
            if count == 0:
                raise WatchFailed("the API server does not answer") from error
            raise WatchFailed(f"the API server did not end the stream in {seconds} s") from error
        return version

    async def _open(
        self, feed: Feed, version: str, seconds: int
    ) -> AsyncGenerator[Manifest | None]:
        """Yield None once the request is answered, then each event."""
        server, session = await self._api.open_session()
        info = kopf.AiohttpSession(server=server, aiohttp_session=session)
        context = auth.APIContext(info)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        try:
            response: aiohttp.ClientResponse = await streaming.request(
                "get",
                f"{feed.kind.path(feed.namespace)}?{urlencode(query)}",
                settings=_SETTINGS,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
                context=context,
                logger=_silent,
            )
            yield None
            async for line in streaming.iter_jsonlines(response.content):
                yield await parse_json(line)
        except errors.APIError as error:
            raise await self._translate(error) from error
        finally:
            await context.close()

    async def _translate(self, error: errors.APIError) -> WatchFailed:
        if error.status == UNAUTHORIZED:
            await self._api.renew()
        return WatchFailed(
            f"the API server returned HTTP status {error.status}: {error.message or error}",
            status=error.status,
            retry_after_s=parse_retry_after(error.headers.get("Retry-After")),
        )

    def _take(self, feed: Feed, event: Manifest) -> str:
        """Pass an event on; the version that is known with it."""
        kind, manifest = event["type"], event["object"]
        if kind == "ERROR":
            status = int(manifest.get("code") or 0)
            message = f"the watch returned the error {status}: {manifest.get('message')}"
            raise WatchFailed(message, status=GONE if status == GONE else 0)
        feed.was_fed = True
        version = str(manifest["metadata"]["resourceVersion"])
        if kind in {"ADDED", "MODIFIED", "DELETED"}:
            try:
                self._listener(feed.kind, manifest, kind == "DELETED")
            except Exception:
                # One object that cannot be read must not make the replica deaf for all others.
                log.exception("Could not process a watch event of %s", feed)
        return version

    def _see(self, feed: Feed) -> None:
        feed.seen_at = self._clock()

    async def _end_well(self, feed: Feed, began_at: float) -> None:
        """The server ended the stream; one that it ends at once is asked for with a pause.

        No LIST is needed: the next stream begins at the version of the last event.
        """
        lived_s = self._clock() - began_at
        if lived_s < self._pace.stream_s / 4:
            feed.failures += 1
            feed.trouble = f"the API server ended the stream after {lived_s:.1f} s"
            await self._pause(feed, 0.0)
        else:
            feed.failures, feed.trouble, feed.is_gone = 0, "", False

    async def _fail(self, feed: Feed, error: BaseException, began_at: float) -> None:
        if feed.was_fed and self._clock() - began_at > self._pace.stream_s / 4:
            feed.failures = 0
        status = error.status if isinstance(error, WatchFailed) else 0
        feed.failures += 1
        feed.trouble = str(error) or type(error).__name__
        WATCH_RESTARTS.labels(feed.kind.plural).inc()
        log.warning("Restarting the watch of %s: %s", feed, feed.trouble)
        if status in (FORBIDDEN, NOT_FOUND) or isinstance(error, (Forbidden, NotFound)):
            self._refused(feed.kind)
        was_gone, feed.is_gone = feed.is_gone, status == GONE
        if feed.is_gone and not was_gone:
            return  # the version is too old, and nothing else is wrong: LIST at once
        asked_s = getattr(error, "retry_after_s", 0.0)
        await self._pause(feed, min(asked_s, self._pace.longest_retry_after_s))

    async def _pause(self, feed: Feed, least_s: float) -> None:
        """Wait longer with each failure in a row, and never all replicas equally long."""
        pace = self._pace
        pause_s = backoff_s(
            feed.failures, first_s=pace.first_pause_s, longest_s=pace.longest_pause_s
        )
        pause_s *= random.uniform(0.5, 1.0)
        await asyncio.sleep(max(pause_s, least_s * random.uniform(1.0, 1.2)))

    def _answer_s(self, feed: Feed) -> float:
        """How long an answer may take: longer after failures, or a slow server never answers."""
        pace = self._pace
        return backoff_s(feed.failures + 1, first_s=pace.answer_s, longest_s=pace.longest_answer_s)

    async def _bounded(
        self, work: Coroutine[Any, Any, Result], seconds: float, what: str
    ) -> Result:
        """The result of the work within the time, even if the work clings to life afterwards."""
        task = asyncio.create_task(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=self._pace.ending_s)
        if not done:
            raise WatchFailed(f"{what} did not complete within {seconds:.0f} s")
        return task.result()


def _is_ending() -> bool:
    """Whether this task itself is being cancelled, rather than something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _explain(feed: Feed, silent_s: float) -> str:
    why = f" ({feed.trouble})" if feed.trouble else ""
    return f"the watch of {feed} has received nothing for {silent_s:.0f} s{why}"


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = ()  # `Watch` repeats, with a LIST in between
    return settings


_SETTINGS: Final = _settings()
