"""Which entries a crash counts against, which are retried and when, and which are dead-lettered.

A process that dies while it holds 500 entries has not failed 500 times: one of them is the cause,
or none. So attempts are counted by cause, not by delivery, and suspects are separated until one
fails in isolation::

    first crash     every entry it held gets one failed attempt and is retried at once
    from then on    entries with failed attempts are suspects. They stay pending and are
                    released in retry batches of about the root of their number; the next retry
                    batch follows when every entry of the last is acknowledged
    last attempt    one at a time
    failed alone    an entry that has used up its retries, with no other suspect beside it: it is a
                    dead letter. Whatever failed beside others was perhaps their neighbour

Of two suspects that crash 4,000 entries, four crashes each are enough; no innocent is given up. A
process that was killed from outside says little about what it held: an entry must then have failed
alone twice, and while it is tried again, nothing else that failed is. A worker that records started
entries names its suspects itself, and runs them one by one; only the last attempts are staged.

An entry that idles past its limit while its process lives says more, since no process went down
with its neighbours::

    failed together   what one read delivered: a worker that hangs in one entry of a read, or never
                      received the answer, leaves all of that read
    failed alone      the only suspect of its read, whatever else the process holds
    next retry batch        as soon as the last one is delivered, so that no read holds two retry
                      batches. The retry batches then fail side by side, within one limit

A process that reads ahead may hang with several reads in hand. Where the others of the group finish
what they read, and this one was not seen to, or it may have begun anew under its name, an entry is
given up after twice as many failures. While suspects of a crash are tried again, nothing else is.
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
ONE_READ: Final = timedelta(milliseconds=5)  # what was delivered closer together counts as one read


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long an entry waits after its n-th failure: initial * factor^(n-1), `longest` at most."""

    initial: timedelta = timedelta()
    factor: float = 2.0
    longest: timedelta = timedelta(minutes=5)

    def after(self, failures: int) -> timedelta:
        """The wait after so many failures; none after none."""
        wait_s = backoff_s(
            failures,
            first_s=self.initial.total_seconds(),
            longest_s=self.longest.total_seconds(),
            factor=self.factor,
        )
        return timedelta(seconds=wait_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the resource says of attempts."""

    max_retries: int
    backoff: Backoff = Backoff()

    @property
    def retries_nothing(self) -> bool:
        """Whether the first failure makes a dead letter."""
        return self.max_retries == 0

    @property
    def runs_alone_first(self) -> bool:
        """Whether an entry runs alone before it is given up: from two retries on.

        With fewer, what failed beside it decides, and that must be known completely.
        """
        return self.max_retries > 1

    def may_give_up(self, suspects: Iterable[Suspect]) -> bool:
        """Whether one more failure can make a dead letter of any of these."""
        return any(suspect.attempts >= self.max_retries for suspect in suspects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """One owner that failed, and the entries it still holds."""

    owner: str
    cutoff: datetime  # only what was delivered before it may be touched
    death: Death
    suspects: tuple[Suspect, ...]
    co_failed: datetime | None = None  # what was delivered before it failed together with others
    is_idle: bool = False  # its process goes on; the entries idled past their limit
    # Of idle ones: when their process last asked for entries, if it was not seen to finish any.
    unproven_since: datetime | None = None
    is_outdone: bool = False  # while others of the group finish what they read

    @property
    def fails_by_read(self) -> bool:
        """Whether only what one read delivered failed together.

        Not where the worker records what it starts: it reads ahead, and names its suspects itself.
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
    """What is done with the suspects of one owner. May only say that they failed together."""

    owner: str
    cutoff: datetime
    settlements: tuple[Settlement, ...]
    co_failed: datetime | None  # to be written; None: nothing new
    is_idle: bool = False  # they idled past their limit, and no process ended


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """What is done now; the others wait for their turn or their backoff."""

    owners: tuple[OwnerPlan, ...]
    waiting: int
    retry_batch: RetryBatch  # on which it was decided
    kept: frozenset[EntryId]  # of the retry batch: still under way
    resolved: frozenset[EntryId]  # of the retry batch: acknowledged, and to be forgotten
    is_parallel: bool = False  # more may join the retry batch that this leaves
    has_finished: bool = False  # some of it, or of those before it, was acknowledged
    # Retry batches that may join it, each once all before it is delivered; `waiting` counts them.
    following: tuple[OwnerPlan, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not any(plan.settlements or plan.co_failed for plan in self.owners)

    def after(self, written: str) -> AttemptPlan:
        """The rest of the plan, when a part of it has left this retry batch in the state."""
        ids = frozenset(read_ids(written))
        retry_batch = RetryBatch(written=written, under_way=ids)
        return replace(self, retry_batch=retry_batch, kept=ids, resolved=frozenset())


def plan_attempts(
    crashes: Sequence[Crash], retry_batch: RetryBatch, rules: Rules, *, now: datetime
) -> AttemptPlan:
    """Decide for all suspects of one group together; total. `now` is the server's time.

    At most one owner's retry batch is released, and only when nothing of the last one is under way,
    or all of it is delivered and both failed by idling.
    """
    held = {suspect.entry_id for crash in crashes for suspect in crash.suspects if _failed(suspect)}
    under_way = retry_batch.under_way - held
    resolved = retry_batch.members - retry_batch.under_way - held
    has_finished = retry_batch.has_finished or bool(resolved)
    seen = [replace(one, is_outdone=one.is_outdone or has_finished) for one in crashes]
    judged = _let_final_attempt_run([(crash, _judge(crash, rules, now)) for crash in seen])
    before = replace(
        retry_batch, under_way=under_way, undelivered=retry_batch.undelivered & under_way
    )
    chunks = _release(judged, before, rules)
    released, following = (chunks[0] if chunks else None), chunks[1:]
    owners = tuple(
        OwnerPlan(
            owner=crash.owner,
            cutoff=crash.cutoff,
            settlements=(
                *cases.settled,
                *cases.freed,
                *(released[1] if released and released[0] is crash else ()),
            ),
            co_failed=cases.co_failed,
            is_idle=crash.fails_by_read,
        )
        for crash, cases in judged
    )
    taken = len(released[1]) if released else 0
    is_parallel = (
        released[0].fails_by_read if released else retry_batch.is_parallel and bool(under_way)
    )
    return AttemptPlan(
        owners=owners,
        waiting=sum(len(cases.staged) + cases.waiting for _, cases in judged) - taken,
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
class _Cases:
    """One owner's suspects, sorted by what can be done with them."""

    settled: tuple[Settlement, ...]  # at once: dead letters, and what did not fail
    freed: tuple[Settlement, ...]  # failed, and its worker runs it alone: whatever is under way
    staged: tuple[Settlement, ...]  # failed: when it is their turn
    waiting: int  # for their backoff, or for a trial
    co_failed: datetime | None
    final_attempt: EntryId | None  # failed alone, and is a dead letter when it does so once more

    def only(self, final_attempt: EntryId) -> _Cases:
        """The same, while everything else that failed waits for this entry."""
        freed, staged = (
            tuple(one for one in some if one.entry_id == final_attempt)
            for some in (self.freed, self.staged)
        )
        held = len(self.freed) + len(self.staged) - len(freed) - len(staged)
        return replace(self, freed=freed, staged=staged, waiting=self.waiting + held)


_Judged = Sequence[tuple[Crash, _Cases]]


def _let_final_attempt_run(judged: _Judged) -> _Judged:
    """Let nothing else that failed run while an entry is on trial: it must fail alone again."""
    final_attempts = [cases.final_attempt for _, cases in judged if cases.final_attempt is not None]
    if not final_attempts:
        return judged
    return [(crash, cases.only(min(final_attempts))) for crash, cases in judged]


def _judge(crash: Crash, rules: Rules, now: datetime) -> _Cases:
    counted = _counted_for_the_last(crash, rules)
    isolated = _find_isolated(crash, counted)
    doubted = _find_doubted(crash, counted, rules)
    settled: list[Settlement] = []
    freed: list[Settlement] = []
    staged: list[Settlement] = []
    waiting, final_attempt = 0, None
    for suspect in sorted(crash.suspects, key=lambda one: (one.attempts, one.entry_id)):
        is_isolated = suspect.entry_id in isolated
        is_doubted = suspect.entry_id in doubted
        settlement = _settle(suspect, crash, rules, is_isolated=is_isolated, is_doubted=is_doubted)
        if settlement.action is Action.DEAD or not _failed(suspect):
            settled.append(settlement)
            continue
        if is_isolated and settlement.attempts > rules.max_retries and not crash.fails_by_read:
            final_attempt = suspect.entry_id
        if _must_wait(suspect, settlement, rules, now):
            waiting += 1
        else:
            (freed if settlement.action is Action.FREE else staged).append(settlement)
    # Of dead letters nothing is left that could be judged again; where only some of them are
    # moved, because a replica ends or another one is faster, the rest is judged as now.
    dead = {one.entry_id for one in settled if one.action is Action.DEAD}
    is_any_left = any(one.entry_id not in dead for one in counted)
    return _Cases(
        settled=tuple(settled),
        freed=tuple(freed),
        staged=tuple(staged),
        waiting=waiting,
        co_failed=_co_failed(crash, counted) if is_any_left else None,
        final_attempt=final_attempt,
    )


def _settle(
    suspect: Suspect, crash: Crash, rules: Rules, *, is_isolated: bool, is_doubted: bool
) -> Settlement:
    if suspect.was_offered or not suspect.counts_attempt:
        return _settlement(suspect, Action.FREE, suspect.attempts, suspect.isolated_failures)
    attempts = min(suspect.attempts + 1, MOST_ATTEMPTS)
    failures = suspect.isolated_failures + is_isolated
    most = 2 * rules.max_retries + 1 if is_doubted else rules.max_retries
    if is_isolated and attempts > most and failures >= _needed(crash.death, rules):
        return _settlement(suspect, Action.DEAD, attempts, failures)
    # A worker that records started entries runs one with failed attempts in isolation; but two
    # processes of one name may have failed between two looks, and what they held then seems to have
    # failed together.
    runs_isolated = suspect.is_started and attempts <= rules.max_retries
    staged = _is_counted(suspect, rules) and not runs_isolated
    return _settlement(suspect, Action.RETRY if staged else Action.FREE, attempts, failures)


def _settlement(suspect: Suspect, action: Action, attempts: int, failures: int) -> Settlement:
    return Settlement(
        entry_id=suspect.entry_id, action=action, attempts=attempts, isolated_failures=failures
    )


_Staged = tuple[Crash, tuple[Settlement, ...]]


def _release(judged: _Judged, retry_batch: RetryBatch, rules: Rules) -> list[_Staged]:
    """The next retry batch, and the retry batches that may follow it: all of owners that live, or
    one."""
    ready = _whose_turn(
        [(crash, cases.staged) for crash, cases in judged if cases.staged], retry_batch
    )
    chunks: list[_Staged] = []
    while ready and len(chunks) < MOST_FOLLOWING:
        crash, taken = _next_retry_batch(ready, rules)
        chunks.append((crash, taken))
        if not crash.fails_by_read:
            break
        rest = [(one, staged[len(taken) :] if one is crash else staged) for one, staged in ready]
        ready = [(one, staged) for one, staged in rest if staged]
    return chunks


def _next_retry_batch(ready: Sequence[_Staged], rules: Rules) -> _Staged:
    """Of the owner whose first suspect failed least, and then is the oldest."""
    crash, staged = min(ready, key=lambda one: (one[1][0].attempts, one[1][0].entry_id))
    early = [one for one in staged if one.attempts < rules.max_retries]
    size = math.isqrt(len(early) - 1) + 1 if early else 1
    return crash, tuple((early or staged)[:size])


def _whose_turn(ready: Sequence[_Staged], retry_batch: RetryBatch) -> Sequence[_Staged]:
    """Those that a crash left, or those that idled: whichever has waited longer.

    What a crash left runs while nothing else does, or it would not be seen to fail alone.
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
    """When the first of those that wait was delivered."""
    ids = {settlement.entry_id for _, staged in ready for settlement in staged}
    held = (suspect for crash, _ in ready for suspect in crash.suspects)
    return min(suspect.delivered for suspect in held if suspect.entry_id in ids)


def _find_isolated(crash: Crash, counted: Sequence[Suspect]) -> set[EntryId]:
    """Those that failed with no other suspect beside them: in their process, or in their read."""
    if not crash.fails_by_read:
        return {counted[0].entry_id} if len(counted) == 1 else set()
    isolated: set[EntryId] = set()
    by_time = sorted(counted, key=lambda one: one.delivered)
    for at, suspect in enumerate(by_time):
        beside = (*by_time[max(0, at - 1) : at], *by_time[at + 1 : at + 2])
        if all(abs(suspect.delivered - other.delivered) > ONE_READ for other in beside):
            isolated.add(suspect.entry_id)
    return isolated


def _find_doubted(crash: Crash, counted: Sequence[Suspect], rules: Rules) -> set[EntryId]:
    """Those that may have waited in a process that hung over another entry, and read on.

    Not where it finishes entries, or nobody does; nor the only suspect of a process that has asked
    for nothing since, or where the user wants no retries.
    """
    since = crash.unproven_since
    if since is None or not crash.is_outdone:
        return set()
    is_single = len(counted) == 1 and crash.co_failed is None
    if is_single and rules.retries_nothing:
        return set()
    return {one.entry_id for one in counted if not is_single or one.delivered < since - ONE_READ}


def _counted_for_the_last(crash: Crash, rules: Rules) -> list[Suspect]:
    """What may be why the owner's last process failed: not what had failed before and waits."""
    return [
        suspect
        for suspect in crash.suspects
        if _is_counted(suspect, rules)
        and (crash.co_failed is None or suspect.delivered >= crash.co_failed)
    ]


def _is_counted(suspect: Suspect, rules: Rules) -> bool:
    """Whether it may be why its owner failed, as far as is known: not at its first failure."""
    if not _failed(suspect):
        return False
    return suspect.attempts > 0 or suspect.is_started or rules.retries_nothing


def _failed(suspect: Suspect) -> bool:
    return suspect.counts_attempt and not suspect.was_offered


def _must_wait(suspect: Suspect, after: Settlement, rules: Rules, now: datetime) -> bool:
    return now - suspect.delivered < rules.backoff.after(after.attempts)


def _needed(death: Death, rules: Rules) -> int:
    return 2 if death is Death.KILLED and rules.runs_alone_first else 1


def _co_failed(crash: Crash, counted: Sequence[Suspect]) -> datetime | None:
    """The time before which entries of this owner failed together, if that is news."""
    if len(counted) < 2:
        return None
    co_failed = max(suspect.delivered for suspect in counted) + MILLISECOND
    return co_failed if crash.co_failed is None or co_failed > crash.co_failed else None
