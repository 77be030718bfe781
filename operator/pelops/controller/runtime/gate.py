"""Limits on the work of a loop, so that the work on one resource cannot delay or end the others.

A loop (reconcile, scan, scaling, ...) has one gate. A work item is the work on one resource:

    places      The number of work items that run at once is limited: in total, per namespace, and
                per endpoint of a namespace. A free place goes to the namespace with the fewest
                running work items. So a namespace with hundreds of resources on servers that do not
                answer does not delay other namespaces.
    deadline    A work item that takes longer is cancelled, and fails with DeadlineExceeded.
    failures    Any other exception becomes an InternalError, with a log entry and a metric.

So callers catch one exception, PelopsError, and no resource ends a loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from pelops.domain.backoff import backoff_s
from pelops.errors import DeadlineExceeded, InternalError, PelopsError
from pelops.metrics import LOOP_RESTARTS, LOOP_STALLED, WORK_ITEM_FAILURES, WORK_ITEMS_WAITING
from pelops.redis_core.sockets import TENANT

log = logging.getLogger(__name__)

Result = TypeVar("Result")

STALL_LIMIT_S: Final = 60.0  # readiness fails when a loop has made no progress for so long
ENDING_S: Final = 1.0  # how long the caller waits for a cancelled work item to end
HEALED_S: Final = 60.0  # how long a loop must run before its failures are forgotten
LONGEST_RESTART_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """The namespace and the endpoint that a work item counts for."""

    namespace: str
    endpoint: str = ""  # names a server as a resource of the namespace does; any text


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many work items of a loop run at once, and the deadline of each."""

    deadline_s: float
    most: int = 256
    per_namespace: int = 32
    per_endpoint: int = 16


class Gate:
    """Runs the work items of one loop."""

    def __init__(self, loop: str, limits: Limits) -> None:
        """`loop` is its name in metrics and messages."""
        self.loop = loop
        self._limits = limits
        self._running: Counter[Place] = Counter()
        self._of_namespace: Counter[str] = Counter()
        self._waiting: dict[str, _Line] = {}  # by namespace
        self._progress_at = -math.inf  # when a work item last began or ended
        WORK_ITEMS_WAITING.labels(loop).set_function(lambda: self.waiting)
        for outcome in ("timeout", "error"):
            WORK_ITEM_FAILURES.labels(loop, outcome)

    @property
    def waiting(self) -> int:
        """Number of work items that wait for a place."""
        return sum(line.length for line in self._waiting.values())

    async def run(
        self,
        place: Place,
        work: Callable[[], Coroutine[Any, Any, Result]],
        *,
        what: str,
        deadline_s: float | None = None,
    ) -> Result:
        """The result of one work item. Raises PelopsError or CancelledError, and nothing else.

        `what` names the resource in the log. The deadline begins when the work item gets a place.
        """
        limit_s = self._limits.deadline_s if deadline_s is None else deadline_s
        await self._enter(place)
        context = copy_context()
        context.run(TENANT.set, place.namespace)
        task = asyncio.get_running_loop().create_task(work(), context=context)
        # The place is taken until the work has ended, even after its deadline.
        task.add_done_callback(partial(self._end, place))
        try:
            await asyncio.wait({task}, timeout=limit_s)
        finally:
            is_in_time = task.done()
            if not is_in_time:
                task.cancel()
                await asyncio.wait({task}, timeout=ENDING_S)
        if not is_in_time:
            WORK_ITEM_FAILURES.labels(self.loop, "timeout").inc()
            log.warning(
                "The %s loop cancelled the work on a resource: it did not complete within %g s",
                *(self.loop, limit_s),
                extra={"resource": what},
            )
            raise report_timeout(self.loop, what, limit_s)
        return self._result(task, what)

    def has_waiting(self, namespace: str) -> bool:
        """Whether work items of this namespace wait for a place."""
        return namespace in self._waiting

    def stalled_s(self) -> float:
        """Seconds without a begin or an end of a work item while all places are taken; else 0."""
        if not self._waiting or self._running.total() < self._limits.most:
            return 0.0
        return _now() - self._progress_at

    def _result(self, task: asyncio.Task[Result], what: str) -> Result:
        # The cancellation may be that of a task on which several work items wait.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return task.result()
        if isinstance(error, PelopsError):
            raise error
        if not isinstance(error, (Exception, BaseExceptionGroup, asyncio.CancelledError)):
            raise error  # KeyboardInterrupt and the like
        WORK_ITEM_FAILURES.labels(self.loop, "error").inc()
        log.error(
            "Unexpected error in the %s loop", self.loop, exc_info=error, extra={"resource": what}
        )
        raise report_unexpected(self.loop, what, error) from error

    async def _enter(self, place: Place) -> None:
        if self._has_room(place) and place.namespace not in self._waiting:
            self._begin(place)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(place.namespace, _Line())
        line.join(place, turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(place)  # it was admitted and cancelled in the same moment
            else:
                line.leave(place, turn)
                if not line.length and self._waiting.get(place.namespace) is line:
                    del self._waiting[place.namespace]
            raise

    def _has_room(self, place: Place) -> bool:
        limits = self._limits
        return (
            self._running.total() < limits.most
            and self._of_namespace[place.namespace] < limits.per_namespace
            and self._running[place] < limits.per_endpoint
        )

    def _begin(self, place: Place) -> None:
        self._running[place] += 1
        self._of_namespace[place.namespace] += 1
        self._progress_at = _now()

    def _end(self, place: Place, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved: after a deadline no caller waits for it
        self._leave(place)

    def _leave(self, place: Place) -> None:
        _count_down(self._running, place)
        _count_down(self._of_namespace, place.namespace)
        self._progress_at = _now()
        self._admit()

    def _admit(self) -> None:
        """Give free places to waiting work items, first in the namespaces with the fewest."""
        while self._waiting and self._running.total() < self._limits.most:
            for namespace in sorted(self._waiting, key=self._of_namespace.__getitem__):
                line = self._waiting[namespace]
                place = line.next(self._has_room)
                if place is not None:
                    break
            else:
                return
            self._begin(place)
            line.admit(place)
            if not line.length:
                del self._waiting[namespace]


class _Line:
    """The waiting work items of one namespace: first in, first out for each endpoint."""

    def __init__(self) -> None:
        self._turns: OrderedDict[Place, deque[asyncio.Future[None]]] = OrderedDict()
        self.length = 0

    def join(self, place: Place, turn: asyncio.Future[None]) -> None:
        self._turns.setdefault(place, deque()).append(turn)
        self.length += 1

    def leave(self, place: Place, turn: asyncio.Future[None]) -> None:
        turns = self._turns.get(place, deque())
        if turn in turns:
            turns.remove(turn)
            self.length -= 1
            if not turns:
                del self._turns[place]

    def next(self, has_room: Callable[[Place], bool]) -> Place | None:
        return next(filter(has_room, self._turns), None)

    def admit(self, place: Place) -> None:
        """Begin the first work item of this endpoint, which becomes the last in the order."""
        turns = self._turns[place]
        self._turns.move_to_end(place)
        turn = turns.popleft()
        self.length -= 1
        if not turns:
            del self._turns[place]
        turn.set_result(None)


def report_timeout(loop: str, what: str, limit_s: float) -> DeadlineExceeded:
    """The error for a work item that was cancelled at its deadline."""
    return DeadlineExceeded(
        f"the work of the {loop} loop on {what} did not complete within {limit_s:g} s and was "
        "cancelled"
    )


def report_unexpected(loop: str, what: str, error: BaseException) -> InternalError:
    """The error for a work item that raised an exception that callers do not expect."""
    return InternalError(
        f"unexpected error ({type(error).__name__}) in the {loop} loop while it worked on {what}: "
        "see the log of the operator"
    )


def _count_down(counts: Counter[Any], key: object) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _now() -> float:
    return asyncio.get_running_loop().time()


class Progress:
    """Whether the loops of one replica make progress."""

    def __init__(self) -> None:
        self._stalled: dict[str, list[Callable[[], float]]] = {}
        self._failing: dict[str, str] = {}  # loops that broke several times in a row, and why
        self._healing: dict[str, asyncio.TimerHandle] = {}

    def follow(self, loop: str, *stalled_s: Callable[[], float]) -> None:
        """Add functions that return for how many seconds waiting work has made no progress."""
        self._stalled.setdefault(loop, []).extend(stalled_s)

    def measure(self) -> None:
        """Set the metric of each loop. To be called regularly."""
        for loop in self._stalled:
            LOOP_STALLED.labels(loop).set(self._stalled_s(loop))

    def problem(self) -> str:
        """The loops that have made no progress for longer than the limit; empty: there is none."""
        stalled = ((loop, self._stalled_s(loop)) for loop in self._stalled)
        return "; ".join(
            [
                *(
                    f"the {loop} loop has made no progress for {seconds:.0f} s"
                    for loop, seconds in stalled
                    if seconds > STALL_LIMIT_S
                ),
                *(f"the {loop} loop keeps failing: {why}" for loop, why in self._failing.items()),
            ]
        )

    def _stalled_s(self, loop: str) -> float:
        return max((one() for one in self._stalled[loop]), default=0.0)

    async def keep_running(self, loop: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a loop until it ends by itself or is cancelled. After a failure it is restarted.

        Work on resources runs in a gate, and cannot end a loop. This is for all other failures.
        """
        failures = 0
        LOOP_RESTARTS.labels(loop)
        while True:
            began_at = _now()
            try:
                await run()
                return
            except (Exception, BaseExceptionGroup) as error:
                failures = 1 if _now() - began_at > HEALED_S else failures + 1
                LOOP_RESTARTS.labels(loop).inc()
                log.exception("Unexpected error in the %s loop: restarting the loop", loop)
                if failures > 1:
                    self._note_failure(loop, f"{type(error).__name__}: {error}"[:500])
            pause_s = backoff_s(failures, first_s=0.5, longest_s=LONGEST_RESTART_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))

    def _note_failure(self, loop: str, why: str) -> None:
        """Report a failure until the loop has run for a while without another failure."""
        if loop in self._healing:
            self._healing[loop].cancel()
        self._failing[loop] = why
        later = asyncio.get_running_loop().call_later
        self._healing[loop] = later(HEALED_S, self._failing.pop, loop, None)
