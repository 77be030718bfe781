"""The state of one entry, by the rules that a scan would apply to it now. Pure.

    Dead-lettered or discarded   Its dead letter.
    Pending                      Its owner, whether that is alive, and what prevents recovery.
    Undelivered                  It waits for a worker.
    None of these                Acknowledged or removed: see `absence.py`.

The rules are those of recovery: the cutoff, the processing timeouts, the backoff and the plan of
attempts. Only one entry is considered here. Whether it failed in isolation also depends on the
other suspects of its process, so a message contains "unless another suspect failed beside it".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pelops.api.group.recovery import RecoverySpec, RecoveryStrategy
from pelops.domain.outcome import EntryState
from pelops.domain.records.inspection import EntryFinding, EntryLocation, Evidence, StreamKind
from pelops.domain.recovery import Action, Cutoff, Death, LivenessReason, PendingEntry, Suspect
from pelops.policy.inspection.absence import decide_absence
from pelops.policy.recovery.attempts import Crash, Rules, plan_attempts
from pelops.policy.recovery.processing_timeouts import (
    counts_attempt,
    decide_idle_death,
    decide_processing_timeouts,
    decide_rules,
)


def decide_state(
    location: EntryLocation,
    recovery: RecoverySpec,
    *,
    evidence: Sequence[Evidence] = (),
    obstacle: str = "",
) -> EntryFinding:
    """Return the state of an entry, and why. Total.

    `evidence` is from the ledger, for entries that are neither pending nor moved. `obstacle` is why
    recovery does nothing in this group now; empty if nothing prevents it.
    """
    if location.place is StreamKind.DEAD_LETTERS:
        return _letter(location)
    if location.place is StreamKind.DISCARDED:
        return _discarded(location)
    if location.pending is not None:
        return _Pending(location, location.pending, recovery, obstacle).decide()
    position = location.position.last_delivered
    if position is not None and location.entry_id > position and location.found is not None:
        return _undelivered(location)
    if position is None and location.found is not None:
        return EntryFinding(
            state=EntryState.UNDELIVERED,
            message="The entry is in the stream, and the consumer group does not exist.",
        )
    return decide_absence(location, evidence)


def _letter(location: EntryLocation) -> EntryFinding:
    if location.found is None:
        return EntryFinding(
            state=EntryState.INDETERMINATE,
            message="It became a dead letter, which is no longer in the dead-letter stream: it "
            "expired, or it was deleted by hand.",
            is_certain=False,
        )
    letter = location.found.letter
    reason = "" if letter is None else f", reason {letter.reason}"
    return EntryFinding(
        state=EntryState.DEAD_LETTER,
        message=f"It is dead letter {location.entry_id}{reason}. A StreamRedrive moves it back.",
    )


def _discarded(location: EntryLocation) -> EntryFinding:
    return EntryFinding(
        state=EntryState.DISCARDED,
        message="Its dead letter was discarded"
        + (
            ". A StreamRedrive with the action Restore moves it back to the dead-letter stream, "
            "until the retention of dead letters ends."
            if location.found is not None
            else ", and has expired since."
        ),
    )


def _undelivered(location: EntryLocation) -> EntryFinding:
    if location.place is StreamKind.RETRY_STREAM:
        return EntryFinding(
            state=EntryState.IN_RETRY_STREAM,
            message="A copy of it waits in the retry stream, and no worker has read it yet. "
            "Workers must read the retry stream as well.",
        )
    batch = location.retry_batch
    if location.entry_id in batch.members:
        return EntryFinding(
            state=EntryState.IN_RETRY_BATCH,
            message=f"A copy of it waits to be delivered again, {_in_batch(location)}.",
        )
    return EntryFinding(
        state=EntryState.UNDELIVERED,
        message=f"No worker has been given it: the group's position is "
        f"{location.position.last_delivered}.",
    )


def _in_batch(location: EntryLocation) -> str:
    return f"in a retry batch of {len(location.retry_batch.members)} suspects"


class _Pending:
    """One pending entry, as a scan that begins now would classify it."""

    def __init__(
        self, location: EntryLocation, pending: PendingEntry, recovery: RecoverySpec, obstacle: str
    ) -> None:
        self._location = location
        self._pending = pending
        self._recovery = recovery
        self._obstacle = obstacle
        self._rules: Rules = decide_rules(recovery)
        cutoff = location.cutoff
        self._known = None if cutoff is None or cutoff.reason is LivenessReason.UNKNOWN else cutoff
        self._limit = decide_processing_timeouts(recovery).limit(
            is_unknown=self._known is None, is_unowned=not pending.owner
        )

    def decide(self) -> EntryFinding:
        location = self._location
        if location.found is None:
            return self._finding(
                EntryState.BODY_GONE,
                f"It is pending at {self._owner}, but its body was deleted or trimmed. Once it is "
                "stuck, it becomes a dead letter with the reason PayloadGone.",
            )
        if location.is_on_offer:
            return self._finding(
                EntryState.OFFERED,
                f"It is stuck at {self._owner} and is offered to workers that claim entries. None "
                "has claimed it yet.",
            )
        death = self._death()
        if death is None:
            return self._held()
        return self._delayed() or self._locked() or self._stuck(death)

    @property
    def _owner(self) -> str:
        return self._pending.owner or "no consumer"

    @property
    def _is_dead(self) -> bool:
        at = None if self._known is None else self._known.at
        return at is not None and self._pending.delivered < at

    def _death(self) -> Death | None:
        """How its owner failed; None if the entry is not stuck."""
        if self._is_dead and self._known is not None:
            return self._known.death
        is_idle = not self._pending.owner or self._pending.idle >= self._limit
        return decide_idle_death(self._known) if is_idle else None

    def _held(self) -> EntryFinding:
        location, pending = self._location, self._pending
        until = pending.delivered + self._limit
        after = (
            f"It counts as stuck {_seconds(self._limit)} after its last delivery or heartbeat, "
            f"at {_clock(until)}, or when its worker ends."
        )
        if location.entry_id in location.retry_batch.members:
            return self._finding(
                EntryState.IN_RETRY_BATCH,
                f"{self._owner} retries it now, {_in_batch(location)}. {after}",
                again_at=until,
            )
        if self._known is None:
            why = "its name matches no pod" if location.cutoff is not None else "no pod was asked"
            return self._finding(
                EntryState.HELD_BY_UNKNOWN_CONSUMER,
                f"{self._owner} holds it; {why}, so only the processing timeout applies. {after}",
                again_at=until,
            )
        if _is_alive(self._known):
            return self._finding(
                EntryState.HELD_BY_LIVE_WORKER,
                f"{self._owner} holds it and is alive: {self._known.message}. {after}",
                again_at=until,
            )
        return self._finding(
            EntryState.HELD_BY_UNKNOWN_CONSUMER,
            f"{self._owner} holds it, and it is not certain that its process has ended: "
            f"{self._known.message}. {after}",
            again_at=min(filter(None, (until, self._known.again_at))),
        )

    def _delayed(self) -> EntryFinding | None:
        """Recovery waits after a failover that moved the group back."""
        location = self._location
        until, before = location.delay_until, location.delay_before
        if until is None or before is None or location.now >= until:
            return None
        if self._pending.delivered >= before:
            return None
        return self._finding(
            EntryState.IDLE_TOO_LONG if not self._is_dead else EntryState.HELD_BY_DEAD_WORKER,
            f"{self._stuck_because()}. The group's position went back, so it may be acknowledged "
            f"already: nothing that was delivered before moves until {_clock(until)}.",
            again_at=until,
        )

    def _locked(self) -> EntryFinding | None:
        if self._location.lock is None:
            return None
        return self._finding(
            EntryState.LOCKED,
            f"{self._stuck_because()}, and its lock {self._location.lock} exists. It is recovered "
            "when the lock expires or is deleted.",
        )

    def _stuck(self, death: Death) -> EntryFinding:
        rules, pending, location = self._rules, self._pending, self._location
        state = EntryState.HELD_BY_DEAD_WORKER if self._is_dead else EntryState.IDLE_TOO_LONG
        why = self._stuck_because()
        if self._recovery.strategy is RecoveryStrategy.DISABLED:
            return self._finding(state, f"{why}. It stays, since recovery.strategy is Disabled.")
        if self._obstacle:
            return self._finding(state, f"{why}. Recovery is blocked: {self._obstacle}.")
        fails = self._counts_attempt(death)
        failures = location.attempts + fails
        wait = rules.backoff.after(failures) if fails else timedelta()
        if pending.idle < wait:
            until = pending.delivered + wait
            return self._finding(
                EntryState.WAITING_FOR_BACKOFF,
                f"{why}. It failed {_times(failures)} and waits {_seconds(wait)} from its last "
                f"delivery (recovery.backoff), until {_clock(until)}.",
                again_at=until,
            )
        if not (fails and self._is_suspect):
            return self._finding(state, f"{why}. The next scan {self._moves}.")
        return self._suspect(death, why, state)

    def _suspect(self, death: Death, why: str, state: EntryState) -> EntryFinding:
        """Return the state of a suspect: the plan of attempts decides what is done with it now."""
        location = self._location
        crash = Crash(
            owner=self._pending.owner,
            cutoff=location.now,
            death=death,
            suspects=(self._as_suspect(),),
            is_idle=not self._is_dead,
        )
        plan = plan_attempts([crash], location.retry_batch, self._rules, now=location.now)
        settled = [one for owner in plan.owners for one in owner.settlements]
        if not settled:
            return self._finding(
                EntryState.WAITING_FOR_RETRY_BATCH,
                f"{why}. It is a suspect with {_times(location.attempts, 'failed attempt')} and "
                f"waits for its turn: {len(location.retry_batch.under_way)} suspects are being "
                "retried, and the next retry batch follows when they are acknowledged.",
            )
        (settlement,) = settled
        if settlement.action is Action.DEAD:
            return self._finding(
                state,
                f"{why}. It failed {_times(settlement.attempts)}, more than maxRetries "
                f"({self._rules.max_retries}): the next scan makes it a dead letter, unless "
                "another suspect failed beside it.",
            )
        return self._finding(
            state,
            f"{why}. It is a suspect with {_times(settlement.attempts, 'failed attempt')} of "
            f"{self._rules.max_retries} retries: the next scan {self._moves}.",
        )

    @property
    def _moves(self) -> str:
        strategy = self._recovery.strategy
        if strategy is RecoveryStrategy.RELEASE:
            return "offers it to workers that claim"
        where = "the retry stream" if strategy is RecoveryStrategy.RETRY_STREAM else "its stream"
        return f"copies it to the end of {where} and acknowledges it"

    @property
    def _is_suspect(self) -> bool:
        """Whether the script of a scan would return it as a suspect; others are moved at once."""
        is_started = self._location.is_started is True
        return self._location.attempts > 0 or is_started or self._rules.retries_nothing

    def _counts_attempt(self, death: Death) -> bool:
        if not self._pending.owner or not counts_attempt(death):
            return False
        since = self._location.master_since
        if since is not None and self._pending.delivered < since:
            return False
        return self._location.is_started is not False

    def _as_suspect(self) -> Suspect:
        location, pending = self._location, self._pending
        return Suspect(
            entry_id=location.entry_id,
            attempts=location.attempts,
            isolated_failures=location.isolated_failures,
            delivered=pending.delivered,
            deliveries=pending.deliveries,
            is_started=location.is_started is True,
        )

    def _stuck_because(self) -> str:
        if self._is_dead and self._known is not None:
            return f"{self._owner} held it and has ended: {self._known.message}"
        if not self._pending.owner:
            return "A worker gave it back to the group, and no consumer holds it"
        return (
            f"{self._owner} holds it, and it has been idle for {_seconds(self._pending.idle)}, "
            f"more than its limit of {_seconds(self._limit)}"
        )

    def _finding(
        self, state: EntryState, message: str, *, again_at: datetime | None = None
    ) -> EntryFinding:
        return EntryFinding(state=state, message=message, again_at=again_at)


def _is_alive(cutoff: Cutoff) -> bool:
    # With a cutoff, what is held now was delivered after it: to the process that runs.
    return cutoff.reason is LivenessReason.ALIVE or cutoff.at is not None


def _times(count: int, what: str = "") -> str:
    if what:
        return f"{count} {what}{'' if count == 1 else 's'}"
    return "once" if count == 1 else f"{count} times"


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
