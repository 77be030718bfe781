"""The conditions of a StreamRedrive: what holds, why, and what to do when it does not.

    Ready       True once the redrive is complete. Before, the reason is its current phase.
    Complete    Present once it has moved, or counted, all that it selected.
    Failed      Present once it has ended for another reason.
    Approved    Present if spec.approval is Required.
    Suspended   Present while spec.suspend is true.

A redrive ends once: its final conditions never change.

A message contains no changing numbers, except the final one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from pelops.api.group.recovery import RecoveryStrategy
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.redrive.stream_redrive import RedriveAction, RedriveDestination, StreamRedrive
from pelops.domain.condition import Condition, Finding, capitalize
from pelops.domain.quantities import render_count, render_seconds
from pelops.domain.records.dead_letter import SkipReason
from pelops.policy.redrive.progress import Outcomes, Trial, fails_again
from pelops.policy.redrive.redrive_facts import (
    Origin,
    Phase,
    RedriveCounts,
    RedriveFacts,
    Verdict,
    find_ending,
)
from pelops.policy.status.reasons import ConditionType, Reason

# How long to wait for the outcomes of the last entries; then the redrive ends without the rest.
OUTCOME_WAIT: Final = timedelta(minutes=10)
_SKIPPED: Final[Mapping[SkipReason, str]] = {
    SkipReason.VANISHED: "gone meanwhile",
    SkipReason.FOREIGN: "not of this group",
    SkipReason.NO_BODY: "without a body, because the entry was deleted before",
    SkipReason.TOO_LARGE: "larger than spec.recovery.maxEntryBytes",
    SkipReason.TOO_WIDE: "with too many fields to be copied",
    SkipReason.DAMAGED: "without a valid original ID",
    SkipReason.REFUSED: "refused by Redis",
}
_DONE: Final[Mapping[RedriveAction, str]] = {
    RedriveAction.REDRIVE: "Moved",
    RedriveAction.DISCARD: "Discarded",
    RedriveAction.RESTORE: "Restored",
}


def decide_redrive_conditions(facts: RedriveFacts) -> list[Condition]:
    """All conditions of a redrive, Ready first. Total."""
    ending = find_ending(facts.redrive) or _ending(facts.verdict)
    if ending is None:
        return [_ready(facts), *_approved(facts.redrive), *_suspended(facts.redrive)]
    is_complete = ending.type == ConditionType.COMPLETE
    ready = Condition(
        type=ConditionType.READY,
        status="True" if is_complete else "False",
        reason=ending.reason,
        message=ending.message,
    )
    return [ready, ending, *_approved(facts.redrive)]


def decide_verdict(
    redrive: StreamRedrive,
    counts: RedriveCounts,
    *,
    is_handled: bool,
    last_moved: datetime | None,
    refusal: str = "",
) -> Verdict | None:
    """Return how the redrive has ended; None while it has not.

    `is_handled`: no dead letter is left to be moved. `last_moved` is when the last one was moved.
    `refusal` is why a move would be refused after this dry run; empty if it would not.
    """
    outcomes, limit = counts.outcomes, redrive.spec.stop_on_failed_again_percent
    if outcomes is not None and outcomes.lost:
        return Verdict(is_failure=True, finding=_report_lost(redrive, counts, outcomes))
    if outcomes is not None and fails_again(outcomes, limit_percent=limit):
        return Verdict(is_failure=True, finding=_report_failing(redrive, counts, outcomes))
    if not is_handled:
        return None
    if outcomes is not None and outcomes.moved:
        waited = last_moved is not None and counts.now >= last_moved + OUTCOME_WAIT
        if not outcomes.is_settled and not waited:
            return None
    message = report_end(redrive, counts.finalize())
    if refusal:
        message = f"{message}. With spec.mode: Move it would be refused now: {refusal}"
    finding = Finding(reason=Reason.COMPLETED, message=message)
    return Verdict(is_failure=False, finding=finding)


def find_trial(redrive: StreamRedrive, outcomes: Outcomes | None) -> Trial | None:
    """Return the trial that still limits the redrive; None without one, or once it is settled."""
    trial = redrive.spec.trial
    if trial is None:
        return None
    if (
        outcomes is not None
        and outcomes.moved >= trial.entries
        and outcomes.is_settled
        and not outcomes.unknown
    ):
        return None
    return Trial(entries=trial.entries, wait=timedelta(seconds=trial.wait_seconds))


def report_end(redrive: StreamRedrive, counts: RedriveCounts) -> str:
    """Return a message: the outcomes of the entries, in one sentence."""
    action, selected = redrive.spec.action, counts.selected or 0
    letters = "discarded dead letter" if action is RedriveAction.RESTORE else "dead letter"
    if redrive.spec.is_dry_run:
        matches = "matches" if selected == 1 else "match"
        return f"Dry run: {_count(selected, letters)} {matches} the selection; nothing was moved"
    if not selected:
        return f"No {letters} matched the selection when the redrive started; nothing was moved"
    parts = [f"{_DONE[action]} {counts.moved:,} of {_count(selected, letters)}"]
    if counts.skips:
        parts.append(f"skipped {counts.skips:,} ({_report_skipped(counts.skipped)})")
    sentence = " and ".join(parts)
    outcomes = counts.outcomes
    if outcomes is None or not counts.moved:
        return sentence
    return f"{sentence}: {_report_outcomes(outcomes)}"


def find_changed_origin(redrive: StreamRedrive, started: Origin, now: Origin) -> Finding | None:
    """Return why a redrive does not continue if its origin has changed; None if it is the same.

    Another origin has other dead letters, and no information about the entries already moved.
    """
    group = f"StreamConsumerGroup {redrive.spec.group_ref.name}"
    if now.group_uid != started.group_uid:
        change = f"{group} was deleted and created again"
    elif now.server != started.server:
        change = f"spec.redis of {group} was changed from {started.server} to {now.server}"
    elif now.stream != started.stream:
        change = (
            f"spec.deadLetter.stream of {group} was changed: the redrive takes dead letters from "
            f"{started.stream}, and the group has {now.stream}"
        )
    else:
        return None
    return Finding(
        reason=Reason.GROUP_CHANGED,
        message=(
            f"Stopped, because {change} while the redrive ran. The dead letters that were not "
            "moved stay where they are. To continue, create another StreamRedrive"
        ),
        is_terminal=True,
    )


def report_slow_search(
    redrive: StreamRedrive, counts: RedriveCounts | None, most_s: float
) -> Finding:
    """Return why a redrive stops if its regular expression takes too long."""
    moved = counts.moved if counts is not None else 0
    return Finding(
        reason=Reason.REGEX_TOO_SLOW,
        message=(
            f"Stopped after {_count(moved, 'dead letter')} moved, because "
            f"spec.selection.errorMatches used {most_s:.0f} s of processor time. Create another "
            "StreamRedrive with a simpler expression, or with errorContains, reasons, or times, "
            "which are compared first"
        ),
        is_terminal=True,
    )


def report_wait(other: str) -> Finding:
    """Return why a redrive waits for another one."""
    return Finding(
        reason=Reason.ANOTHER_REDRIVE_RUNS,
        message=(
            f"StreamRedrive {other} of the same group runs: this one starts when it has ended. "
            f"To start this one first, suspend or delete {other}"
        ),
    )


def report_group_missing(redrive: StreamRedrive) -> Finding:
    """Return why a redrive does not start if its group is not declared."""
    return Finding(
        reason=Reason.GROUP_MISSING,
        message=(
            f"StreamConsumerGroup {redrive.spec.group_ref.name} does not exist in namespace "
            f"{redrive.metadata.namespace}: create it, or create a StreamRedrive for another one"
        ),
    )


def report_group_invalid(redrive: StreamRedrive, error: str) -> Finding:
    """Return why a redrive does not start if the spec of its group is invalid."""
    name = redrive.spec.group_ref.name
    message = f"The spec of StreamConsumerGroup {name} is invalid: {error}"
    return Finding(reason=Reason.INVALID_SPEC, message=message, is_terminal=True)


def find_group_problem(redrive: StreamRedrive, group: StreamConsumerGroup) -> Finding | None:
    """Return why no dead letter of this group may be moved now; None if they may."""
    spec, name = group.spec, group.metadata.name
    suspended = find_suspension(group)
    if suspended is not None and not redrive.spec.is_dry_run:
        return suspended
    is_retry = redrive.spec.destination is RedriveDestination.RETRY_STREAM
    if is_retry and spec.recovery.strategy is not RecoveryStrategy.RETRY_STREAM:
        message = (
            "spec.destination is RetryStream, but spec.recovery.strategy of StreamConsumerGroup "
            f"{name} is {spec.recovery.strategy}, so no worker reads its retry stream: set it to "
            "RetryStream"
        )
        return Finding(reason=Reason.INVALID_SPEC, message=message, is_terminal=True)
    return None


def find_suspension(group: StreamConsumerGroup) -> Finding | None:
    """Return why nothing is moved in a group that is suspended or in a dry run; None otherwise."""
    spec = group.spec
    if not spec.suspend and not spec.recovery.dry_run:
        return None
    field = "spec.suspend" if spec.suspend else "spec.recovery.dryRun"
    message = (
        f"{field} of StreamConsumerGroup {group.metadata.name} is true, so nothing is moved: set "
        "it to false"
    )
    return Finding(reason=Reason.GROUP_SUSPENDED, message=message)


def report_duplicates(error: str) -> Finding:
    """Return why nothing is added to a stream that other groups read."""
    return Finding(
        reason=Reason.REQUEUE_WOULD_DUPLICATE,
        message=(
            f"{capitalize(error)}. Nothing was moved. Set "
            "spec.recovery.strategy: RetryStream in the group, let its workers read "
            "that stream as well, and create a StreamRedrive with "
            "spec.destination: RetryStream; or delete the groups that are not used any more"
        ),
        is_terminal=True,
    )


def report_exhausted(stream: str) -> Finding:
    """Return why no entry can be added to a stream."""
    return Finding(
        reason=Reason.STREAM_EXHAUSTED,
        message=(
            f"Stream {stream} is at its last ID, because a client added an entry with the greatest "
            "ID, so Redis adds no more entries. The other dead letters stay where they are. Use "
            "another stream"
        ),
        is_terminal=True,
    )


def _ending(verdict: Verdict | None) -> Condition | None:
    if verdict is None:
        return None
    return Condition(
        type=ConditionType.FAILED if verdict.is_failure else ConditionType.COMPLETE,
        status="True",
        reason=verdict.finding.reason,
        message=verdict.finding.message,
    )


def _ready(facts: RedriveFacts) -> Condition:
    finding = _find_state(facts)
    return Condition(
        type=ConditionType.READY,
        status="False",
        reason=finding.reason,
        message=finding.message,
    )


def _find_state(facts: RedriveFacts) -> Finding:
    spec = facts.redrive.spec
    if spec.suspend:
        message = "spec.suspend is true: nothing is moved. To continue, set it to false"
        return Finding(reason=Reason.SUSPENDED, message=message)
    if spec.needs_approval:
        return Finding(reason=Reason.APPROVAL_REQUIRED, message=_NOT_APPROVED)
    if facts.waits_for is not None:
        return report_wait(facts.waits_for)
    if facts.problem is not None:
        return facts.problem
    return _report_phase(facts)


_NOT_APPROVED: Final = "The redrive waits for approval: another person must set spec.approved: true"


def _report_phase(facts: RedriveFacts) -> Finding:
    spec, group = facts.redrive.spec, facts.redrive.spec.group_ref.name
    if facts.phase is Phase.TRIAL and spec.trial is not None:
        return Finding(
            reason=Reason.TRIAL_RUNNING,
            message=(
                f"The trial of {_count(spec.trial.entries, 'entry')} is moved. The rest follows "
                f"when none is unprocessed, or after {render_seconds(spec.trial.wait_seconds)}, "
                f"unless more than {spec.stop_on_failed_again_percent}% failed again"
            ),
        )
    if facts.phase is Phase.BACKLOG:
        return Finding(
            reason=Reason.BACKLOG_TOO_LARGE,
            message=(
                f"The backlog of StreamConsumerGroup {group} is greater than spec.maxBacklog "
                f"({spec.max_backlog:,}), or unknown: the redrive continues when workers have "
                "reduced it"
            ),
        )
    if facts.phase is Phase.OUTCOMES:
        return Finding(
            reason=Reason.AWAITING_OUTCOMES,
            message=(
                "All selected dead letters are handled. The redrive is complete when workers have "
                f"processed the entries, or after {OUTCOME_WAIT // timedelta(minutes=1)} minutes"
            ),
        )
    if facts.phase is Phase.COUNTING or facts.phase is None:
        message = f"Counting the {facts.source} of StreamConsumerGroup {group} that match"
        return Finding(reason=Reason.RUNNING, message=message)
    return Finding(
        reason=Reason.RUNNING,
        message=(
            f"Moving {facts.source} of StreamConsumerGroup {group} {_report_target(facts.redrive)},"
            f" at most {spec.rate_per_second:,} per second"
        ),
    )


def _report_target(redrive: StreamRedrive) -> str:
    spec = redrive.spec
    if spec.action is RedriveAction.DISCARD:
        return "to the stream of discarded dead letters"
    if spec.action is RedriveAction.RESTORE:
        return "back to the dead-letter stream"
    if spec.destination is RedriveDestination.RETRY_STREAM:
        return "to its retry stream"
    return "back to its stream"


def _approved(redrive: StreamRedrive) -> list[Condition]:
    if not redrive.spec.asks_approval:
        return []
    kind = ConditionType.APPROVED
    if redrive.spec.approved:
        message = "spec.approved is true"
        return [Condition(type=kind, status="True", reason=Reason.APPROVED, message=message)]
    return [
        Condition(type=kind, status="False", reason=Reason.APPROVAL_REQUIRED, message=_NOT_APPROVED)
    ]


def _suspended(redrive: StreamRedrive) -> list[Condition]:
    if not redrive.spec.suspend:
        return []
    message = "spec.suspend is true: nothing is moved"
    return [
        Condition(
            type=ConditionType.SUSPENDED, status="True", reason=Reason.SUSPENDED, message=message
        )
    ]


def _report_failing(redrive: StreamRedrive, counts: RedriveCounts, outcomes: Outcomes) -> Finding:
    limit = redrive.spec.stop_on_failed_again_percent
    return Finding(
        reason=Reason.FAILS_AGAIN,
        message=(
            f"Stopped, because {outcomes.failed_again:,} of {outcomes.known:,} entries with a "
            f"known outcome failed again, more than {limit}%. {report_end(redrive, counts)}. "
            "Fix the cause, which the new dead letters name, then create another StreamRedrive"
        ),
        is_terminal=True,
    )


def _report_outcomes(outcomes: Outcomes) -> str:
    acknowledged = f"{outcomes.acknowledged:,} acknowledged"
    if outcomes.unknown:
        acknowledged = f"at most {outcomes.acknowledged + outcomes.unknown:,} acknowledged"
    elif not outcomes.is_exact:
        acknowledged = f"at least {acknowledged}"
    at_most = "" if outcomes.is_exact else "at most "
    parts = [
        acknowledged,
        f"{outcomes.failed_again:,} failed again",
        f"{at_most}{outcomes.unprocessed:,} unprocessed",
    ]
    if outcomes.lost:
        parts.append(f"{outcomes.lost:,} lost")
    counted = ", ".join(parts)
    if not outcomes.unknown:
        return counted
    return (
        f"{counted}. Of the acknowledged ones {outcomes.unknown:,} can be lost: they were deleted "
        "or trimmed before Pelops had seen their delivery, or while they were pending"
    )


def _report_lost(redrive: StreamRedrive, counts: RedriveCounts, outcomes: Outcomes) -> Finding:
    lost = f"{_count(outcomes.lost, 'moved entry')} {'was' if outcomes.lost == 1 else 'were'}"
    return Finding(
        reason=Reason.ENTRIES_LOST,
        message=(
            f"Stopped, because {lost} deleted or trimmed from the stream before delivery. "
            f"{report_end(redrive, counts)}. Find out what deletes or trims entries, such as "
            "XADD with MAXLEN. The events redriven of the ledger have the IDs of the moved entries"
        ),
        is_terminal=True,
    )


def _report_skipped(skipped: Mapping[SkipReason, int]) -> str:
    return ", ".join(
        f"{skipped[reason]:,} {words}" for reason, words in _SKIPPED.items() if skipped.get(reason)
    )


def _count(number: int, word: str) -> str:
    several = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return render_count(number, word, several)
