"""The settlement of an entry after its handler: done, retried, or a dead letter.

An entry that was delivered twice before, and not acknowledged, runs in isolation. If its process
then ends, that entry is the cause. Without an operator, the worker counts these runs in Redis when
they begin and resets the count when they end. An entry whose runs ended too many processes becomes
a dead letter instead.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pelops.domain.backoff import backoff_s
from pelops.errors import RedisError
from pelops.worker.entry import Entry
from pelops.worker.handlers import Handler
from pelops.worker.outcomes import (
    HANDLER_FAILED,
    LONGEST_REASON,
    MAX_RETRIES,
    Outcome,
    Reject,
    Retry,
)
from pelops.worker.redaction import cause_of
from pelops.worker.server.adapter import GroupAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Number of retries of a failed entry, and the backoff before each.

    The n-th failure waits `initial_s * factor ** (n - 1)`, at most `max_s`: 1, 2, 4 s by default.
    """

    max_retries: int = 3  # one more failure makes a dead letter
    initial_s: float = 1.0
    factor: float = 2.0
    max_s: float = 300.0

    def __post_init__(self) -> None:
        numbers = (self.max_retries, self.initial_s, self.factor, self.max_s)
        if not all(0 <= number < math.inf for number in numbers):
            raise ValueError(f"a retry policy takes finite numbers, 0 or more, not {self}")

    def wait_s(self, failures: int) -> float:
        """Seconds of backoff after `failures` failures; at least one is assumed."""
        return backoff_s(
            max(failures, 1), first_s=self.initial_s, longest_s=self.max_s, factor=self.factor
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """The entry is retried in this worker."""

    wait_s: float
    counts: bool  # as a failed attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """The entry becomes a dead letter."""

    reason: str
    error: str


Settlement: TypeAlias = Again | GivenUp | None  # None: done, acknowledge


Describe: TypeAlias = Callable[[BaseException], str]  # the text for a dead letter


def decide_settlement(
    outcome: Outcome, failures: int, policy: RetryPolicy, describe: Describe
) -> Settlement:
    """Decide about an entry that had failed `failures` times before this outcome."""
    match outcome:
        case Reject():
            return GivenUp(reason=outcome.reason[:LONGEST_REASON], error=_report(outcome, describe))
        case Retry(after=after, counts=False):
            wait_s = policy.wait_s(failures + 1) if after is None else after
            return Again(wait_s=wait_s, counts=False)
        case BaseException():
            return _retry_or_give_up(outcome, failures + 1, policy, describe)
        case _:
            return None


def _retry_or_give_up(
    error: BaseException, failures: int, policy: RetryPolicy, describe: Describe
) -> Settlement:
    if failures > policy.max_retries:
        return GivenUp(reason=HANDLER_FAILED, error=_report(error, describe))
    after = error.after if isinstance(error, Retry) else None
    return Again(wait_s=policy.wait_s(failures) if after is None else after, counts=True)


def _report(error: BaseException, describe: Describe) -> str:
    """The text of an error, or of its cause if it has no text."""
    behind = cause_of(error)
    is_silent = isinstance(behind, Reject) and not behind.error
    return "" if is_silent else describe(behind)


log = logging.getLogger("pelops.worker")


def counted(handler: Handler, adapter: GroupAdapter, max_crashes: int) -> Handler:
    """Wrap a handler: reject entries that ended `max_crashes` processes in isolation."""
    runs = _Runs(adapter, max_crashes)
    one, many = handler.one, handler.many

    async def handle_one(entry: Entry) -> Any:
        assert one is not None
        return await (runs.run(entry, one, entry) if entry.runs_isolated else one(entry))

    async def handle_many(entries: list[Entry]) -> Any:
        assert many is not None
        first = entries[0]  # an isolated entry is a batch of its own
        return await (runs.run(first, many, entries) if first.runs_isolated else many(entries))

    return Handler(one=handle_one) if one is not None else Handler(many=handle_many)


class _Runs:
    def __init__(self, adapter: GroupAdapter, max_crashes: int) -> None:
        self._adapter = adapter
        self._max_crashes = max_crashes

    async def run(self, entry: Entry, handle: Callable[[Any], Awaitable[Any]], given: Any) -> Any:
        crashes = await self._begin(entry)
        if crashes >= self._max_crashes:
            raise Reject(
                MAX_RETRIES,
                f"{crashes} worker processes ended while they ran this entry in isolation",
            )
        try:
            outcome = await handle(given)
        except GeneratorExit:  # the loop is being closed, so nothing can be awaited
            raise
        except BaseException:
            await self._end(entry)
            raise
        await self._end(entry)
        return outcome

    async def _begin(self, entry: Entry) -> int:
        try:
            return await self._adapter.begin_isolated(entry.raw_id) - 1
        except RedisError as error:
            log.warning(
                "%r: this run could not be recorded, so a crash is not counted: %s",
                entry,
                type(error).__name__,
            )
            return 0

    async def _end(self, entry: Entry) -> None:
        try:
            await self._adapter.end_isolated(entry.raw_id)
        except RedisError as error:
            log.warning(
                "%r: the record of this run could not be removed, so it counts as a crash: %s",
                entry,
                type(error).__name__,
            )
