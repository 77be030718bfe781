"""The work on one redrive by one replica: dead letters are counted, moved and watched, in parts.

A part takes about a second. Between two parts other redrives run, and the status is written. Redis
has the position, the number of moved dead letters and the rate, and one script moves and deletes a
dead letter. So any replica can continue after the process ends, and several replicas at once move
no dead letter twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pelops.api.redrive.redrive_status_model import MOST_SAMPLES
from pelops.api.redrive.stream_redrive import RedriveAction, StreamRedrive
from pelops.domain.condition import Finding
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.dead_letter import DeadLetter
from pelops.errors import AuthenticationFailed, OutcomeUnknown, RedisError, RedisUnavailable
from pelops.policy.redrive.progress import Outcomes, find_limit
from pelops.policy.redrive.redrive_conditions import (
    decide_verdict,
    find_trial,
    report_exhausted,
    report_slow_search,
)
from pelops.policy.redrive.redrive_facts import Phase, RedriveCounts, Verdict
from pelops.policy.redrive.selection import Selection
from pelops.redis_core.server import Server
from pelops.redis_streams.redrive.moves import (
    LetterPage,
    MoveResult,
    RedriveContext,
    RedriveProgress,
    Stop,
    check_redrive,
    finish_redrive,
    move_letters,
    read_letters,
    start_redrive,
)
from pelops.redis_streams.redrive.outcomes import observe_outcomes

PART_S: Final = 1.0  # of work between two reports
SHORTEST_WAIT_S: Final = 0.05  # for the rate: fewer calls with more dead letters each
LONGEST_WAIT_S: Final = 5.0
WATCH_S: Final = 1.0  # between two observations of a trial, a backlog or outcomes
TURN_S: Final = 0.5  # of one search; then another redrive searches
MOST_SEARCH_S: Final = 60.0  # of processor time for the regular expression of one redrive


class _RegexTooSlow(Exception):
    """The regular expression of the redrive has used its time."""


@dataclass(slots=True)
class _Selected:
    """The selected dead letters of a page that are not handled yet."""

    after: EntryId  # everything up to it was handled
    ids: list[EntryId]
    through: EntryId


class RedriveRun:
    """One redrive in this replica, from its first part to its end."""

    def __init__(
        self,
        server: Server,
        context: RedriveContext,
        selection: Selection,
        clock: Callable[[], float],
        searches: asyncio.Lock,
    ) -> None:
        """`searches` is held while dead letters are selected: one thread of a replica does that."""
        self.server = server
        self.context = context
        self.phase = Phase.COUNTING
        self.verdict: Verdict | None = None
        self.problem: Finding | None = None  # nothing more can be moved
        self.wait_s = 0.0  # until the next part is worth a try
        self._selection = selection
        self._clock = clock
        self._searches = searches
        self._searched_s = 0.0
        self._progress: RedriveProgress | None = None
        self._outcomes: Outcomes | None = None
        self._selected: int | None = None  # matching dead letters; None: not all are counted yet
        self._matching = 0  # up to `_counted`
        self._counted: EntryId | None = None
        self._newest: EntryId | None = None  # of the counted dead letters
        self._samples: list[EntryId] = []
        self._page: _Selected | None = None

    def recall(self, redrive: StreamRedrive) -> None:
        """Take over the counts of another replica from the status."""
        status = redrive.status
        if status is not None and status.selected is not None:
            self._selected = status.selected
            self._samples = [parse_entry_id(one) for one in status.samples or ()]

    def follow(self, server: Server, context: RedriveContext) -> None:
        """Go on through another connection to the same server: the Secret may have changed."""
        self.server, self.context = server, context

    @property
    def counts(self) -> RedriveCounts | None:
        """How far it is; None before the first part."""
        progress = self._progress
        if progress is None:
            return None
        is_dry = progress.until == EntryId.MAX  # a dry run fixes no bound
        return RedriveCounts(
            started=progress.started,
            now=progress.now,
            until=self._newest if is_dry else progress.until,
            cursor=(self._newest or progress.cursor) if is_dry else progress.cursor,
            selected=self._selected,
            moved=progress.moved,
            skipped=progress.skipped or {},
            outcomes=self._outcomes,
            samples=tuple(self._samples),
        )

    async def advance(self, redrive: StreamRedrive, *, refusal: str = "") -> None:
        """Do a part of the work. Raises PelopsError as `start_redrive` and `move_letters` do.

        `refusal` is why the group lets nothing be moved: a dry run reports it and counts.
        """
        end, self.wait_s = self._clock() + PART_S, 0.0
        try:
            if redrive.spec.is_dry_run:
                await self._advance_dry_run(redrive, end, refusal or await self._find_refusal())
            else:
                await self._advance(redrive, end)
        except _RegexTooSlow:
            finding = report_slow_search(redrive, self.counts, MOST_SEARCH_S)
            self.verdict = Verdict(is_failure=True, finding=finding)

    async def _advance(self, redrive: StreamRedrive, end: float) -> None:
        await check_redrive(self.server, self.context)  # before it takes the place of another
        known = redrive.status.until_id if redrive.status else None
        self._progress = await start_redrive(
            self.server, self.context, known_until=parse_entry_id(known) if known else None
        )
        if self._selected is None and not await self._count(redrive, end):
            self.phase = Phase.COUNTING
            return
        if self._outcomes is None or self.phase is Phase.TRIAL:
            # Losses are found by comparison, and nothing is moved after a trial that lost entries.
            counts = await self._watch(redrive)
            self.verdict = decide_verdict(redrive, counts, is_handled=False, last_moved=None)
            if self.verdict is not None:
                return
        is_handled = await self._move(redrive, end)
        counts = await self._watch(redrive)
        last_moved = self._progress.last_moved
        self.verdict = decide_verdict(redrive, counts, is_handled=is_handled, last_moved=last_moved)
        if is_handled and self.verdict is None:
            self.phase, self.wait_s = Phase.OUTCOMES, WATCH_S

    async def finish(self, *, forget: bool) -> None:
        """Let another redrive of the group run; with `forget`, remove its records from Redis."""
        await finish_redrive(self.server, self.context, forget=forget)

    async def _find_refusal(self) -> str:
        """Why nothing could be moved now; empty when it could."""
        try:
            await check_redrive(self.server, self.context)
        except (RedisUnavailable, OutcomeUnknown, AuthenticationFailed):
            raise  # nothing can be counted either
        except RedisError as error:
            return str(error)
        return ""

    async def _advance_dry_run(self, redrive: StreamRedrive, end: float, refusal: str) -> None:
        """A part of a dry run: all dead letters are counted, and nothing is written."""
        now = datetime.now(UTC)
        if self._progress is None:
            self._progress = RedriveProgress(
                now=now, started=now, until=EntryId.MAX, cursor=EntryId.MIN
            )
        if await self._count(redrive, end):
            counts = self.counts
            assert counts is not None
            self.verdict = decide_verdict(
                redrive, counts, is_handled=True, last_moved=None, refusal=refusal
            )

    async def _count(self, redrive: StreamRedrive, end: float) -> bool:
        """Count matching dead letters until the part ends; whether all of them are counted."""
        progress = self._progress
        assert progress is not None
        counted = self._counted or progress.cursor
        while counted < progress.until:
            page = await read_letters(
                self.server, self.context, after=counted, until=progress.until
            )
            letters, through = await self._select(page)
            self._newest = page.letters[-1].entry_id if page.letters else self._newest
            self._add_matching(letters)
            counted = self._counted = through
            if self._clock() >= end:
                break
        if counted < progress.until:
            return False
        handled = progress.moved + sum((progress.skipped or {}).values())
        most, matching = redrive.spec.max_entries, handled + self._matching
        self._selected = matching if most is None else min(most, matching)
        return True

    async def _select(self, page: LetterPage) -> tuple[list[DeadLetter], EntryId]:
        """The selected dead letters of a page, and the position up to which it was searched.

        The search runs in a thread: RE2 releases the lock of the interpreter, so the event loop
        continues.
        """
        async with self._searches:
            return await asyncio.to_thread(self._search, page)

    def _search(self, page: LetterPage) -> tuple[list[DeadLetter], EntryId]:
        taken: list[DeadLetter] = []
        end = self._clock() + TURN_S
        for letter in page.letters:
            began = time.thread_time()
            if self._selection.selects(letter):
                taken.append(letter)
            self._searched_s += time.thread_time() - began
            if self._searched_s > MOST_SEARCH_S and self._selection.error_matches is not None:
                raise _RegexTooSlow
            if self._clock() >= end:
                return taken, letter.entry_id
        return taken, page.through

    def _add_matching(self, letters: Sequence[DeadLetter]) -> None:
        self._matching += len(letters)
        missing = MOST_SAMPLES - len(self._samples)
        self._samples += [letter.entry_id for letter in letters[:missing]]

    async def _move(self, redrive: StreamRedrive, end: float) -> bool:
        """Move dead letters until the part ends; whether all are moved."""
        spec, progress = redrive.spec, self._known()
        self.phase, self.problem = Phase.MOVING, None
        while not progress.is_at_end and self._clock() < end:
            page = await self._next_page(progress)
            result = await move_letters(
                self.server,
                self.context,
                page.ids,
                after=page.after,
                through=page.through,
                rate=spec.rate_per_second,
                limit=find_limit(
                    max_entries=spec.max_entries,
                    trial=find_trial(redrive, self._outcomes),
                    moved=progress.moved,
                    last_moved=progress.last_moved,
                    now=progress.now,
                ),
                max_backlog=spec.max_backlog,
            )
            self._progress = progress = result.progress
            page.after = progress.cursor
            page.ids = [one for one in page.ids if one > progress.cursor]
            if not await self._may_continue(result, end):
                break
        return progress.is_at_end or (
            spec.max_entries is not None and progress.moved >= spec.max_entries
        )

    async def _may_continue(self, result: MoveResult, end: float) -> bool:
        """Whether more dead letters can be moved in this part; waits for the rate."""
        stop = result.stop
        if stop is Stop.RATE:
            return await self._wait(result.wait.total_seconds(), end)
        if stop in {Stop.DONE, Stop.BEHIND}:
            self._page = None
        elif stop is Stop.LIMIT:
            self.phase, self.wait_s = Phase.TRIAL, WATCH_S
        elif stop is Stop.BACKLOG:
            self.phase, self.wait_s = Phase.BACKLOG, WATCH_S
        elif stop is Stop.EXHAUSTED:
            self.problem, self.wait_s = report_exhausted(self.context.target), LONGEST_WAIT_S
        return stop not in {Stop.LIMIT, Stop.BACKLOG, Stop.EXHAUSTED}

    async def _next_page(self, progress: RedriveProgress) -> _Selected:
        """What is left of the page that was read last, or the next one."""
        if self._page is None or self._page.after != progress.cursor:
            page = await read_letters(
                self.server, self.context, after=progress.cursor, until=progress.until
            )
            letters, through = await self._select(page)
            ids = [letter.entry_id for letter in letters]
            self._page = _Selected(progress.cursor, ids, through)
        return self._page

    async def _wait(self, wait_s: float, end: float) -> bool:
        """Wait for the rate, if that is over before the part ends."""
        wait_s = max(wait_s, SHORTEST_WAIT_S)
        if self._clock() + wait_s > end:
            self.wait_s = min(wait_s, LONGEST_WAIT_S)
            return False
        await asyncio.sleep(wait_s)
        return True

    async def _watch(self, redrive: StreamRedrive) -> RedriveCounts:
        """The counts, with what became of the entries."""
        if redrive.spec.action is RedriveAction.REDRIVE:
            self._outcomes = await observe_outcomes(self.server, self.context)
        counts = self.counts
        assert counts is not None
        return counts

    def _known(self) -> RedriveProgress:
        assert self._progress is not None
        return self._progress
