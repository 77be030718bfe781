"""What the demo claims of the number of workers, each claim checked. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.checks import Check
from demo.recovery import Move, find_cause
from demo.scaling import Course
from demo.workers import History
from pelops.domain.records.ledger import LedgerKind

# A worker is wanted within a tenth of a second; this only shows that the demo looked at all.
LATEST_WAKE_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingOutcome:
    """What was found of the number of workers when all was over."""

    course: Course
    most: int  # maxReplicas
    pods: int  # of the resource's workers, on their way out included
    status: Mapping[str, Any]  # of the resource
    history: History
    moves: Sequence[Move]  # by the ledger


def check_scaling(outcome: ScalingOutcome) -> list[Check]:
    """Every claim, in the order in which they are printed."""
    return [
        check_beginning(outcome.course),
        check_waking(outcome.course),
        check_growth(outcome),
        check_departures(outcome),
        check_last(outcome.course),
        check_zero(outcome),
    ]


def check_beginning(course: Course) -> Check:
    """Without work there was no worker."""
    before = course.before
    wanted = max((count.wanted for count in before), default=0)
    ready = max((count.ready for count in before), default=0)
    return Check(
        claim="it started with no worker",
        holds=bool(before) and not wanted and not ready,
        found=f"{wanted} wanted and {ready} ready when the first entry was added"
        + " (no observation before it)" * (not before),
    )


def check_waking(course: Course) -> Check:
    """Work brought the first one."""
    wanted, ready = course.wanted_after_ms, course.ready_after_ms
    return Check(
        claim="the first entry started the first worker",
        holds=wanted is not None and ready is not None and 0 <= wanted <= LATEST_WAKE_MS,
        found=f"wanted after {_shown(wanted)}, ready after {_shown(ready)}",
    )


def check_growth(outcome: ScalingOutcome) -> Check:
    """Much work brought more of them."""
    ready, wanted = outcome.course.most_ready, outcome.course.most_wanted
    return Check(
        claim="workers were added with the backlog, up to maxReplicas",
        holds=1 < ready <= wanted <= outcome.most,
        found=f"{ready} ready at once, {wanted} wanted at most, maxReplicas {outcome.most}",
    )


def check_departures(outcome: ScalingOutcome) -> Check:
    """Entries that scaled-in workers had not started were requeued, without a failed attempt.

    A worker that shuts down finishes what it has started. It may have received more, if the
    scale-in came right after the read. Another check finds entries that were processed twice. Only
    a scale-in ends a worker with exit code 0.
    """
    gone = [end for end in outcome.history.ends.values() if end.exit_code == 0]
    failures: dict[str, int] = {}
    left = wrong = 0
    for move in sorted(outcome.moves, key=lambda one: one.moved_ms):
        cause = find_cause(move, outcome.history)
        if cause is not None and cause.exit_code == 0:
            left += 1
            has_failed = move.attempts > failures.get(move.original_id, 0)
            wrong += has_failed or move.kind != LedgerKind.REQUEUED
        failures[move.original_id] = move.attempts
    return Check(
        claim="entries that scaled-in workers had not started were requeued, and did not fail",
        holds=not wrong,
        found=f"{len(gone)} shut down cleanly, {left} entries requeued, {wrong} wrongly",
    )


def check_last(course: Course) -> Check:
    """The last one stayed as long as it was needed."""
    settled, zeros = course.settled_ms, course.zeros
    early = course.zeros_with_backlog
    pause = f"{(zeros[-1] - settled) / 1000:.1f} s after that" if settled and zeros else "never"
    return Check(
        claim="the last worker ended only after the backlog was empty",
        holds=bool(zeros) and settled is not None and not early,
        found=f"{pause}, {len(early)} times too early",
    )


def check_zero(outcome: ScalingOutcome) -> Check:
    """Without work there is no worker."""
    status, counts = outcome.status, outcome.course.counts
    wanted = counts[-1].wanted if counts else None
    reported = (status.get("desiredReplicas"), status.get("readyReplicas"))
    return Check(
        claim="it ended with no worker, as its status shows",
        holds=reported == (0, 0) and outcome.pods == 0 and wanted == 0,
        found=f"{outcome.pods} pods, {wanted} asked for; by status {reported[0]} wanted,"
        f" {reported[1]} ready",
    )


def _shown(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:,} ms"
