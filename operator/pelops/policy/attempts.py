"""Who is charged for a crash, who is tried again and when, and who is given up.

A process that dies while it holds 500 entries has not failed 500 times: one of them is to blame, or
none. So an attempt is charged, not counted, and suspects are separated until one fails alone::

    first crash     every entry it held is charged once and tried again at once
    from then on    entries that were charged before are suspects. They stay pending and are
                    released in chunks of about the root of their number; the next chunk follows
                    when every entry of the last is acknowledged
    last attempt    one at a time
    failed alone    an entry that has used up its retries, with no other suspect beside it: it is a
                    dead letter. Whatever failed beside others was perhaps their neighbour

Of two suspects that crash 4,000 entries, four crashes each are enough; no innocent is given up. A
process that was killed from outside says little about what it held: an entry must then have failed
alone twice, and while it is tried again, nothing else that failed is. A worker that marks what it
starts names its suspects itself, and runs them one by one; only the last attempts are staged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.liveness import Death
from pelops.domain.recovery import Action, Chunk, Suspect, read_ids

MOST_CHARGES: Final = 999_999  # what the six digits of _retry_count hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long an entry waits after its n-th failure: initial * factor^(n-1), `longest` at most."""

    initial: timedelta = timedelta()
    factor: float = 2.0
    longest: timedelta = timedelta(minutes=5)

    def after(self, failures: int) -> timedelta:
        """The wait after so many failures; none after none."""
        if failures <= 0 or not self.initial:
            return timedelta()
        # The exponent is bounded: a float overflows long after any wait is at its longest.
        seconds = self.initial.total_seconds() * self.factor ** min(failures - 1, 300)
        return min(timedelta(seconds=min(seconds, 1e9)), self.longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the resource says of attempts."""

    max_retries: int
    backoff: Backoff = Backoff()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """One owner that failed, and the entries it still holds."""

    owner: str
    cut: datetime  # only what was delivered before it may be touched
    death: Death
    suspects: tuple[Suspect, ...]
    crowd: datetime | None = None  # what was delivered before it failed together with others


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What is done with one suspect. `charges` and `alone_failures` count this failure too."""

    entry_id: EntryId
    action: Action
    charges: int
    alone_failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPlan:
    """What is done with the suspects of one owner. May only say that they failed together."""

    owner: str
    cut: datetime
    settlements: tuple[Settlement, ...]
    crowd: datetime | None  # to be written; None: nothing new


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """What is done now; the others wait for their turn or their backoff."""

    owners: tuple[OwnerPlan, ...]
    waiting: int
    chunk: Chunk  # on which it was decided
    kept: frozenset[EntryId]  # of the chunk: still under way
    resolved: frozenset[EntryId]  # of the chunk: acknowledged, and to be forgotten

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not any(plan.settlements or plan.crowd for plan in self.owners)

    def after(self, written: str) -> AttemptPlan:
        """The rest of the plan, when a part of it has left this chunk in the state."""
        ids = frozenset(read_ids(written))
        chunk = Chunk(written=written, under_way=ids)
        return replace(self, chunk=chunk, kept=ids, resolved=frozenset())


def plan_attempts(
    crashes: Sequence[Crash], chunk: Chunk, rules: Rules, *, now: datetime
) -> AttemptPlan:
    """Decide for all suspects of one group together; total. `now` is the server's time.

    At most one owner's chunk is released, and only when nothing of the last one is under way.
    """
    held = {suspect.entry_id for crash in crashes for suspect in crash.suspects if _failed(suspect)}
    under_way = chunk.under_way - held
    judged = _give_way([(crash, _judge(crash, rules, now)) for crash in crashes])
    released = _release(judged, rules) if not under_way else None
    owners = tuple(
        OwnerPlan(
            owner=crash.owner,
            cut=crash.cut,
            settlements=(
                *cases.settled,
                *cases.freed,
                *(released[1] if released and released[0] is crash else ()),
            ),
            crowd=cases.crowd,
        )
        for crash, cases in judged
    )
    taken = len(released[1]) if released else 0
    return AttemptPlan(
        owners=owners,
        waiting=sum(len(cases.staged) + cases.waiting for _, cases in judged) - taken,
        chunk=chunk,
        kept=under_way,
        resolved=chunk.members - chunk.under_way - held,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cases:
    """One owner's suspects, sorted by what can be done with them."""

    settled: tuple[Settlement, ...]  # at once: dead letters, and what did not fail
    freed: tuple[Settlement, ...]  # failed, and its worker runs it alone: whatever is under way
    staged: tuple[Settlement, ...]  # failed: when it is their turn
    waiting: int  # for their backoff, or for a trial
    crowd: datetime | None
    trial: EntryId | None  # failed alone, and is a dead letter when it does so once more

    def only(self, trial: EntryId) -> _Cases:
        """The same, while everything else that failed waits for this entry."""
        freed, staged = (
            tuple(one for one in some if one.entry_id == trial)
            for some in (self.freed, self.staged)
        )
        held = len(self.freed) + len(self.staged) - len(freed) - len(staged)
        return replace(self, freed=freed, staged=staged, waiting=self.waiting + held)


_Judged = Sequence[tuple[Crash, _Cases]]


def _give_way(judged: _Judged) -> _Judged:
    """Let nothing else that failed run while an entry is on trial: it must fail alone again."""
    trials = [cases.trial for _, cases in judged if cases.trial is not None]
    if not trials:
        return judged
    return [(crash, cases.only(min(trials))) for crash, cases in judged]


def _judge(crash: Crash, rules: Rules, now: datetime) -> _Cases:
    blamed = _blamed_for_the_last(crash, rules)
    settled: list[Settlement] = []
    freed: list[Settlement] = []
    staged: list[Settlement] = []
    waiting, trial = 0, None
    for suspect in sorted(crash.suspects, key=lambda one: (one.charges, one.entry_id)):
        is_alone = blamed == [suspect]
        settlement = _settle(suspect, crash, rules, is_alone=is_alone)
        if settlement.action is Action.DEAD or not _failed(suspect):
            settled.append(settlement)
            continue
        if is_alone and settlement.charges > rules.max_retries:
            trial = suspect.entry_id
        if _must_wait(suspect, settlement, rules, now):
            waiting += 1
        else:
            (freed if settlement.action is Action.FREE else staged).append(settlement)
    return _Cases(
        settled=tuple(settled),
        freed=tuple(freed),
        staged=tuple(staged),
        waiting=waiting,
        crowd=_crowd(crash, blamed),
        trial=trial,
    )


def _settle(suspect: Suspect, crash: Crash, rules: Rules, *, is_alone: bool) -> Settlement:
    if suspect.was_offered or not suspect.is_charged:
        return _settlement(suspect, Action.FREE, suspect.charges, suspect.alone_failures)
    charges = min(suspect.charges + 1, MOST_CHARGES)
    failures = suspect.alone_failures + is_alone
    if is_alone and charges > rules.max_retries and failures >= _needed(crash.death, rules):
        return _settlement(suspect, Action.DEAD, charges, failures)
    # A worker that marks runs what was charged alone; but two processes of one name may have failed
    # between two looks, and what they held then seems to have failed together.
    runs_alone = suspect.is_marked and charges <= rules.max_retries
    staged = _is_blamed(suspect, rules) and not runs_alone
    return _settlement(suspect, Action.RETRY if staged else Action.FREE, charges, failures)


def _settlement(suspect: Suspect, action: Action, charges: int, failures: int) -> Settlement:
    return Settlement(
        entry_id=suspect.entry_id, action=action, charges=charges, alone_failures=failures
    )


def _release(judged: _Judged, rules: Rules) -> tuple[Crash, tuple[Settlement, ...]] | None:
    """The next chunk: of the owner whose first suspect failed least, and then is the oldest."""
    ready = [(crash, cases.staged) for crash, cases in judged if cases.staged]
    if not ready:
        return None
    crash, staged = min(ready, key=lambda one: (one[1][0].charges, one[1][0].entry_id))
    early = [one for one in staged if one.charges < rules.max_retries]
    size = math.isqrt(len(early) - 1) + 1 if early else 1
    return crash, tuple((early or staged)[:size])


def _blamed_for_the_last(crash: Crash, rules: Rules) -> list[Suspect]:
    """What may be why the owner's last process failed: not what had failed before and waits."""
    return [
        suspect
        for suspect in crash.suspects
        if _is_blamed(suspect, rules) and (crash.crowd is None or suspect.delivered >= crash.crowd)
    ]


def _is_blamed(suspect: Suspect, rules: Rules) -> bool:
    """Whether it may be why its owner failed, as far as is known: not at its first failure."""
    if not _failed(suspect):
        return False
    return suspect.charges > 0 or suspect.is_marked or rules.max_retries == 0


def _failed(suspect: Suspect) -> bool:
    return suspect.is_charged and not suspect.was_offered


def _must_wait(suspect: Suspect, after: Settlement, rules: Rules, now: datetime) -> bool:
    return now - suspect.delivered < rules.backoff.after(after.charges)


def _needed(death: Death, rules: Rules) -> int:
    return 2 if death is Death.KILLED and rules.max_retries > 1 else 1


def _crowd(crash: Crash, blamed: Sequence[Suspect]) -> datetime | None:
    """The time before which entries of this owner failed together, if that is news."""
    if len(blamed) < 2:
        return None
    crowd = max(suspect.delivered for suspect in blamed) + timedelta(milliseconds=1)
    return crowd if crash.crowd is None or crowd > crash.crowd else None
