"""What all loops of one worker share: state, clock, alarms, and a log of refusals."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Final

from pelops.worker.engine.in_flight import InFlight, OrderBy
from pelops.worker.engine.observer import Observer
from pelops.worker.engine.prefetch import DeliveryReceiver, Prefetcher
from pelops.worker.entry import Terms
from pelops.worker.server.adapter import GroupAdapter, NameTaken
from pelops.worker.settings import WorkerSettings

Clock = Callable[[], float]


# It must advance while the machine sleeps, because idle times in Redis do.
steady: Clock = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)


log = logging.getLogger("pelops.worker")

_AGAIN_S: Final = 30.0
_LAPSES_S: Final = 5.0


class RefusalLog:
    """Refusals by operation. Logs a repeated one once every 30 s."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock
        self._refused: dict[str, _Refused] = {}

    @property
    def current(self) -> list[str]:
        """Operations that Redis refuses, each with the reason."""
        now_s = self._clock()
        for what in [what for what, refusal in self._refused.items() if refusal.until_s <= now_s]:
            self.end(what)
        return [
            f"{what}: {refusal.why}"
            for what, refusal in sorted(self._refused.items(), key=itemgetter(0))
        ]

    def report(self, what: str, error: BaseException) -> None:
        """Note that Redis refused `what`."""
        self._observer.refused(what, error)
        # Every operation raises NameTaken while it lasts, and none reports its end.
        lasts_s = math.inf
        if isinstance(error, NameTaken):
            what, lasts_s = "name", _LAPSES_S
        now_s, former = self._clock(), self._refused.get(what)
        about = (type(error), getattr(error, "command", None), getattr(error, "key", None))
        refusal = _Refused(about, f"{type(error).__name__}: {error}", now_s, now_s + lasts_s)
        if former is not None and former.about == about and now_s - former.at_s < _AGAIN_S:
            refusal.at_s = former.at_s
        else:
            log.warning("%s: %s; retrying", what, refusal.why)
        self._refused[what] = refusal

    def end(self, what: str) -> None:
        """Note that Redis executes `what` again."""
        if self._refused.pop(what, None) is not None:
            log.info("%s: succeeded after an error", what)


@dataclass(slots=True)
class _Refused:
    about: tuple[object, ...]  # identifies the refusal, so that it is not logged again soon
    why: str
    at_s: float
    until_s: float  # it counts as over then, unless repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The state of one running worker."""

    adapter: GroupAdapter
    settings: WorkerSettings
    observer: Observer
    clock: Clock
    refusals: RefusalLog
    in_flight: InFlight
    prefetcher: Prefetcher
    receiving: DeliveryReceiver


def build_shared(
    adapter: GroupAdapter,
    settings: WorkerSettings,
    observer: Observer,
    clock: Clock,
    order_by: OrderBy | None,
) -> Shared:
    """Build the state of a worker that has not begun."""
    in_flight = InFlight(settings.concurrency, order_by, idle_s=settings.idle_s)
    prefetcher = Prefetcher(
        concurrency=settings.concurrency,
        prefetch=settings.prefetch,
        prefetch_bytes=settings.prefetch_bytes,
    )
    terms = Terms(clock, settings.idle_s, settings.field_prefix.encode())
    return Shared(
        adapter=adapter,
        settings=settings,
        observer=observer,
        clock=clock,
        refusals=RefusalLog(observer, clock),
        in_flight=in_flight,
        prefetcher=prefetcher,
        receiving=DeliveryReceiver(in_flight, terms, prefetcher.sizes, observer),
    )


class Alarm:
    """One task waits until any other rings. Cheaper than `wait_for`, which creates a task."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._is_ringing = False

    def ring(self) -> None:
        """End the wait, or the next one if no task waits."""
        self._is_ringing = True
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Wait for a ring, at most this long."""
        if not self._is_ringing and seconds > 0:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(seconds, self.ring)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        self._is_ringing = False
