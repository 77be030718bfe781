"""Which entries a crash counts against, which are retried and when, and which are dead-lettered.

A process that dies while it holds 500 entries has not failed 500 times: one of them is the cause,
or none. So attempts are counted by cause, not by delivery, and suspects are separated until one
fails in isolation::

    first crash     every entry that the process held gets one failed attempt and is retried at once
    next crashes    entries with failed attempts are suspects. They stay pending and are released
                    in retry batches of about the square root of their number. The next batch
                    follows when every entry of the last one is acknowledged
    last attempt    one entry at a time
    in isolation    an entry that has used up its retries and is the only suspect of its process
                    becomes a dead letter. With other suspects, one of them may be the cause

Two poison entries among 4,000 are isolated after four crashes each, and no other entry becomes a
dead letter. A process that was killed from outside is weak evidence against its entries. With two
retries or more, such an entry must fail in isolation twice, and no other failed entry is retried
during its last attempt. A worker that records started entries names its suspects itself and runs
them one by one; only their last attempts wait for a retry batch.

An entry that exceeds the processing timeout while its process lives is stronger evidence, because
the other entries of the process did not fail with it::

    failed together   the entries of one read: a worker that hangs in one of them, or never received
                      the reply, leaves the whole read pending
    in isolation      the only suspect of its read, whatever else the process holds
    next retry batch  follows as soon as the last one is delivered, so that no read contains two
                      batches. Batches can then fail in parallel, within one timeout

A process that reads ahead may hang with several reads pending. So a dead letter requires twice as
many failures if other consumers finish entries and this process was not observed to. The same
holds if it may have restarted under its name. While suspects of a crash are being retried, no other
suspect is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pelops.clock import MILLISECOND
from pelops.domain.backoff import backoff_s
from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import Action, Death, RetryBatch, Suspect, read_ids

MOST_ATTEMPTS: Final = 999_999  # what the six digits of _retry_count hold
MOST_PARALLEL: Final = 1_000  # entries of a retry batch that others may join
MOST_FOLLOWING: Final = 50  # retry batches of one plan
ONE_READ: Final = timedelta(milliseconds=5)  # entries delivered closer together count as one read


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long an entry waits after its n-th failure: initial * factor^(n-1), `longest` at most."""

    initial: timedelta = timedelta()
    factor: float = 2.0
    longest: timedelta = timedelta(minutes=5)

    def after(self, failures: int) -> timedelta:
        """Return the wait after this number of failures; zero if there were none."""
        wait_s = backoff_s(
            failures,
            first_s=self.initial.total_seconds(),
            longest_s=self.longest.total_seconds(),
            factor=self.factor,
        )
        return timedelta(seconds=wait_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The limits of retries that the resource sets."""

    max_retries: int
    backoff: Backoff = Backoff()

    @property
    def retries_nothing(self) -> bool:
        """Whether the first failure makes a dead letter."""
        return self.max_retries == 0

    @property
    def runs_isolated_first(self) -> bool:
        """Whether an entry runs in isolation before it becomes a dead letter: from two retries on.

        With fewer, its co-failed entries decide, so all of them must be known.
        """
        return self.max_retries > 1

    def may_give_up(self, suspects: Iterable[Suspect]) -> bool:
        """Whether one more failure can turn any of these into a dead letter."""
        return any(suspect.attempts >= self.max_retries for suspect in suspects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """One owner that failed, and the entries it still holds."""

    owner: str
    cutoff: datetime  # only entries delivered before it may be touched
    death: Death
    suspects: tuple[Suspect, ...]
    co_failed: datetime | None = None  # entries delivered before it failed together with others
    is_idle: bool = False  # its process lives; the entries exceeded the processing timeout
    # If idle: when the process last asked for entries, unless it was observed to finish some.
    unproven_since: datetime | None = None
    is_outdone: bool = False  # other consumers of the group finish entries meanwhile

    @property
    def fails_by_read(self) -> bool:
        """Whether entries failed together by read rather than by process.

        False if the worker records started entries: it names its suspects itself.
        """
        return self.is_idle and not any(suspect.is_started for suspect in self.suspects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What is done with one suspect. `attempts` and `isolated_failures` count this failure too."""

    entry_id: EntryId
    action: Action
    attempts: int
    isolated_failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPlan:
    """What is done with one owner's suspects; may only record that they failed together."""

    owner: str
    cutoff: datetime
    settlements: tuple[Settlement, ...]
    co_failed: datetime | None  # to be written; None: nothing new
    is_idle: bool = False  # they exceeded the processing timeout, and no process ended


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """What is done now; other suspects wait for a retry batch or their backoff."""

    owners: tuple[OwnerPlan, ...]
    waiting: int
    retry_batch: RetryBatch  # on which it was decided
    kept: frozenset[EntryId]  # of the retry batch: still under way
    resolved: frozenset[EntryId]  # of the retry batch: acknowledged, to be removed from the state
    is_parallel: bool = False  # more entries may join the retry batch that this leaves
    has_finished: bool = False  # some of it, or of those before it, was acknowledged
    # Batches that may join it, each when all before it are delivered; `waiting` includes them.
    following: tuple[OwnerPlan, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not any(plan.settlements or plan.co_failed for plan in self.owners)

    def after(self, written: str) -> AttemptPlan:
        """Return the rest of the plan after a part of it wrote this retry batch to the state."""
        ids = frozenset(read_ids(written))
        retry_batch = RetryBatch(written=written, under_way=ids)
        return replace(self, retry_batch=retry_batch, kept=ids, resolved=frozenset())


def plan_attempts(
    crashes: Sequence[Crash], retry_batch: RetryBatch, rules: Rules, *, now: datetime
) -> AttemptPlan:
    """Plan for all suspects of one group together. Total. `now` is the server's time.

    At most one owner's retry batch is released. Nothing of the last one may be under way, unless
    all of it is delivered and both contain idle entries.
    """
    held = {suspect.entry_id for crash in crashes for suspect in crash.suspects if _failed(suspect)}
    under_way = retry_batch.under_way - held
    resolved = retry_batch.members - retry_batch.under_way - held
    has_finished = retry_batch.has_finished or bool(resolved)
    updated = [replace(one, is_outdone=one.is_outdone or has_finished) for one in crashes]
    decided = _let_final_attempt_run([(crash, _decide(crash, rules, now)) for crash in updated])
    before = replace(
        retry_batch, under_way=under_way, undelivered=retry_batch.undelivered & under_way
    )
    batches = _release(decided, before, rules)
    released, following = (batches[0] if batches else None), batches[1:]
    owners = tuple(
        OwnerPlan(
            owner=crash.owner,
            cutoff=crash.cutoff,
            settlements=(
                *decisions.settled,
                *decisions.freed,
                *(released[1] if released and released[0] is crash else ()),
            ),
            co_failed=decisions.co_failed,
            is_idle=crash.fails_by_read,
        )
        for crash, decisions in decided
    )
    taken = len(released[1]) if released else 0
    is_parallel = (
        released[0].fails_by_read if released else retry_batch.is_parallel and bool(under_way)
    )
    return AttemptPlan(
        owners=owners,
        waiting=sum(len(decisions.staged) + decisions.waiting for _, decisions in decided) - taken,
        retry_batch=retry_batch,
        kept=under_way,
        resolved=resolved,
        is_parallel=is_parallel,
        has_finished=has_finished,
        following=tuple(
            OwnerPlan(
                owner=crash.owner,
                cutoff=crash.cutoff,
                settlements=settlements,
                co_failed=None,
                is_idle=True,
            )
            for crash, settlements in following
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decisions:
    """One owner's suspects, sorted by what can be done with them."""

    settled: tuple[Settlement, ...]  # done at once: dead letters, and entries that did not fail
    freed: tuple[Settlement, ...]  # failed, and released at once, whatever is under way
    staged: tuple[Settlement, ...]  # failed, and released in a retry batch
    waiting: int  # for their backoff, or for the final attempt of another entry
    co_failed: datetime | None
    final_attempt: EntryId | None  # failed in isolation; the next such failure is its last

    def only(self, final_attempt: EntryId) -> _Decisions:
        """Return the decisions with every other failed entry held back for this one."""
        freed, staged = (
            tuple(one for one in some if one.entry_id == final_attempt)
            for some in (self.freed, self.staged)
        )
        held = len(self.freed) + len(self.staged) - len(freed) - len(staged)
        return replace(self, freed=freed, staged=staged, waiting=self.waiting + held)


_Decided = Sequence[tuple[Crash, _Decisions]]


def _let_final_attempt_run(decided: _Decided) -> _Decided:
    """Hold back all other failed entries during a final attempt: it must fail in isolation."""
    final_attempts = [
        decisions.final_attempt for _, decisions in decided if decisions.final_attempt is not None
    ]
    if not final_attempts:
        return decided
    return [(crash, decisions.only(min(final_attempts))) for crash, decisions in decided]


def _decide(crash: Crash, rules: Rules, now: datetime) -> _Decisions:
    counted = _counted_in_last_failure(crash, rules)
    isolated = _find_isolated(crash, counted)
    bystanders = _find_bystanders(crash, counted, rules)
    settled: list[Settlement] = []
    freed: list[Settlement] = []
    staged: list[Settlement] = []
    waiting, final_attempt = 0, None
    for suspect in sorted(crash.suspects, key=lambda one: (one.attempts, one.entry_id)):
        is_isolated = suspect.entry_id in isolated
        is_bystander = suspect.entry_id in bystanders
        settlement = _decide_settlement(
            suspect, crash, rules, is_isolated=is_isolated, is_bystander=is_bystander
        )
        if settlement.action is Action.DEAD or not _failed(suspect):
            settled.append(settlement)
            continue
        if is_isolated and settlement.attempts > rules.max_retries and not crash.fails_by_read:
            final_attempt = suspect.entry_id
        if _must_wait(suspect, settlement, rules, now):
            waiting += 1
        else:
            (freed if settlement.action is Action.FREE else staged).append(settlement)
    # If all counted suspects become dead letters, none is left to be decided again. If only some of
    # them are moved (the replica stops, or another is faster), the rest is decided as now.
    dead = {one.entry_id for one in settled if one.action is Action.DEAD}
    is_any_left = any(one.entry_id not in dead for one in counted)
    return _Decisions(
        settled=tuple(settled),
        freed=tuple(freed),
        staged=tuple(staged),
        waiting=waiting,
        co_failed=_co_failed(crash, counted) if is_any_left else None,
        final_attempt=final_attempt,
    )


def _decide_settlement(
    suspect: Suspect, crash: Crash, rules: Rules, *, is_isolated: bool, is_bystander: bool
) -> Settlement:
    if suspect.was_offered or not suspect.counts_attempt:
        return _settlement(suspect, Action.FREE, suspect.attempts, suspect.isolated_failures)
    attempts = min(suspect.attempts + 1, MOST_ATTEMPTS)
    failures = suspect.isolated_failures + is_isolated
    most = 2 * rules.max_retries + 1 if is_bystander else rules.max_retries
    if is_isolated and attempts > most and failures >= _needed(crash.death, rules):
        return _settlement(suspect, Action.DEAD, attempts, failures)
    # A worker that records started entries runs those with failed attempts in isolation. But if two
    # processes of one name failed between two observations, their entries seem to have failed
    # together.
    runs_isolated = suspect.is_started and attempts <= rules.max_retries
    staged = _is_counted(suspect, rules) and not runs_isolated
    return _settlement(suspect, Action.RETRY if staged else Action.FREE, attempts, failures)


def _settlement(suspect: Suspect, action: Action, attempts: int, failures: int) -> Settlement:
    return Settlement(
        entry_id=suspect.entry_id, action=action, attempts=attempts, isolated_failures=failures
    )


_Staged = tuple[Crash, tuple[Settlement, ...]]


def _release(decided: _Decided, retry_batch: RetryBatch, rules: Rules) -> list[_Staged]:
    """Return the next retry batch, followed by those that may join it if its entries are idle."""
    ready = _select_ready(
        [(crash, decisions.staged) for crash, decisions in decided if decisions.staged], retry_batch
    )
    batches: list[_Staged] = []
    while ready and len(batches) < MOST_FOLLOWING:
        crash, taken = _next_retry_batch(ready, rules)
        batches.append((crash, taken))
        if not crash.fails_by_read:
            break
        rest = [(one, staged[len(taken) :] if one is crash else staged) for one, staged in ready]
        ready = [(one, staged) for one, staged in rest if staged]
    return batches


def _next_retry_batch(ready: Sequence[_Staged], rules: Rules) -> _Staged:
    """Take it from the owner whose first suspect has the fewest attempts, then the lowest ID."""
    crash, staged = min(ready, key=lambda one: (one[1][0].attempts, one[1][0].entry_id))
    early = [one for one in staged if one.attempts < rules.max_retries]
    size = math.isqrt(len(early) - 1) + 1 if early else 1
    return crash, tuple((early or staged)[:size])


def _select_ready(ready: Sequence[_Staged], retry_batch: RetryBatch) -> Sequence[_Staged]:
    """Select the suspects of crashes or the idle ones, whichever have waited longer.

    Suspects of a crash run while no others do: else a failure would not be in isolation.
    """
    idle = [one for one in ready if one[0].fails_by_read]
    crashed = [one for one in ready if not one[0].fails_by_read]
    turn = idle if idle and (not crashed or _since(idle) < _since(crashed)) else crashed
    if not retry_batch.under_way:
        return turn
    is_open = (
        retry_batch.is_parallel
        and not retry_batch.undelivered
        and len(retry_batch.under_way) < MOST_PARALLEL
    )
    return turn if is_open and turn is idle else ()


def _since(ready: Sequence[_Staged]) -> datetime:
    """Return when the first of the waiting suspects was delivered."""
    ids = {settlement.entry_id for _, staged in ready for settlement in staged}
    held = (suspect for crash, _ in ready for suspect in crash.suspects)
    return min(suspect.delivered for suspect in held if suspect.entry_id in ids)


def _find_isolated(crash: Crash, counted: Sequence[Suspect]) -> set[EntryId]:
    """Return the suspects that failed as the only one of their process or, if idle, of a read."""
    if not crash.fails_by_read:
        return {counted[0].entry_id} if len(counted) == 1 else set()
    isolated: set[EntryId] = set()
    by_time = sorted(counted, key=lambda one: one.delivered)
    for at, suspect in enumerate(by_time):
        beside = (*by_time[max(0, at - 1) : at], *by_time[at + 1 : at + 2])
        if all(abs(suspect.delivered - other.delivered) > ONE_READ for other in beside):
            isolated.add(suspect.entry_id)
    return isolated


def _find_bystanders(crash: Crash, counted: Sequence[Suspect], rules: Rules) -> set[EntryId]:
    """Return the suspects that may only have waited while their process hung on another entry.

    None if the process finishes entries, or no other consumer does. A single suspect is included
    only if the process asked for entries after its delivery, and maxRetries is not 0.
    """
    since = crash.unproven_since
    if since is None or not crash.is_outdone:
        return set()
    is_single = len(counted) == 1 and crash.co_failed is None
    if is_single and rules.retries_nothing:
        return set()
    return {one.entry_id for one in counted if not is_single or one.delivered < since - ONE_READ}


def _counted_in_last_failure(crash: Crash, rules: Rules) -> list[Suspect]:
    """Return what may have caused the owner's last failure: no entries that failed before it."""
    return [
        suspect
        for suspect in crash.suspects
        if _is_counted(suspect, rules)
        and (crash.co_failed is None or suspect.delivered >= crash.co_failed)
    ]


def _is_counted(suspect: Suspect, rules: Rules) -> bool:
    """Whether it may have caused the failure: it failed before, was started, or has no retries."""
    if not _failed(suspect):
        return False
    return suspect.attempts > 0 or suspect.is_started or rules.retries_nothing


def _failed(suspect: Suspect) -> bool:
    return suspect.counts_attempt and not suspect.was_offered


def _must_wait(suspect: Suspect, after: Settlement, rules: Rules, now: datetime) -> bool:
    return now - suspect.delivered < rules.backoff.after(after.attempts)


def _needed(death: Death, rules: Rules) -> int:
    return 2 if death is Death.KILLED and rules.runs_isolated_first else 1


def _co_failed(crash: Crash, counted: Sequence[Suspect]) -> datetime | None:
    """Return the time before which this owner's entries failed together, if it is a later one."""
    if len(counted) < 2:
        return None
    co_failed = max(suspect.delivered for suspect in counted) + MILLISECOND
    return co_failed if crash.co_failed is None or co_failed > crash.co_failed else None
