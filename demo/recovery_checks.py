"""What the demo claims of deaths and of poison, each claim checked. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.checks import Check, Counts, show_example
from demo.effects import find_repeated
from demo.recovery import Letter, Move, Rescue, Traces, count_moves, count_operator_moves
from demo.workers import End
from pelops.domain.records.ledger import LedgerKind
from pelops.worker.outcomes import HANDLER_FAILED

# An idle machine takes some hundred; one that does other work beside, seconds. Without the news of
# its end, the entries of a worker wait for the processing timeout: 20 s and more.
AT_ONCE_MS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOutcome:
    """What was found of deaths and dead letters when the work was done."""

    poison: Counts  # what no worker can count, computed directly: all have an error
    redriven: Sequence[Letter]  # dead letters, before they were moved back
    ids: Mapping[str, str]  # of the entries that were added, by path
    rescues: Sequence[Rescue]  # one for each worker that was killed
    traces: Traces
    robberies: Sequence[Move]  # from workers whose end was not reported
    crashes: Sequence[End]  # of workers that the demo did not kill
    status: Mapping[str, Any]  # of the resource


def check_recovery(outcome: RecoveryOutcome) -> list[Check]:
    """Every claim, in the order in which they are printed."""
    return [
        check_rescues(outcome.rescues),
        check_speed(outcome.rescues),
        check_attempts(outcome.rescues),
        check_robberies(outcome),
        check_effects(outcome),
        check_repeats(outcome),
        check_crashes(outcome),
        *([check_dead_letters(outcome), check_reasons(outcome)] if outcome.poison else []),
        check_counts(outcome),
    ]


def check_rescues(rescues: Sequence[Rescue]) -> Check:
    """What the killed ones held was done in the end."""
    held = [len(rescue.victim.held) for rescue in rescues]
    moved, resumed = (
        sum(getattr(rescue, name) for rescue in rescues) for name in ("moved", "resumed")
    )
    slowest = max((rescue.kill_to_resumed_ms for rescue in rescues), default=0)
    when = f" (within {slowest:,} ms of the kill)" if resumed else ""
    lost = sum(rescue.lost for rescue in rescues)
    return Check(
        claim="every pending entry of the killed workers was processed after their end",
        holds=lost == 0 and bool(held) and all(held),
        found=f"{' and '.join(map(str, held))} entries held: {moved} moved, {resumed} resumed"
        f"{when}, {lost} lost",
    )


def check_speed(rescues: Sequence[Rescue]) -> Check:
    """What was moved was moved long before the processing timeout, as far as that is promised."""
    late = sum(rescue.late for rescue in rescues)
    slowest = [rescue.reported_to_deliverable_ms for rescue in rescues if rescue.at_once]
    words = f", {late} more later: delivered in the second of the restart" * bool(late)
    return Check(
        claim="deliverable again within 5 s of the report of the worker's end",
        # A container that was started again may find all of it in its own history.
        holds=all(rescue.at_once or rescue.victim.counts for rescue in rescues)
        and 0 <= max(slowest, default=-1) <= AT_ONCE_MS,
        found=f"after {' and '.join(map(str, slowest))} ms{words or ', none later'}",
    )


def check_attempts(rescues: Sequence[Rescue]) -> Check:
    """A deleted pod never counts as a failed attempt; a killed process may."""
    wrong = {entry_id for rescue in rescues for entry_id in rescue.wrongly_counted}
    counted_attempts = " and ".join(str(rescue.counted_attempts) for rescue in rescues)
    return Check(
        claim="a deleted pod counts as no failed attempt; a killed process as one for entries "
        "that it started",
        holds=not wrong,
        found=f"{counted_attempts} failed attempts, {len(wrong)} of them wrongly"
        + show_example(wrong),
    )


def check_robberies(outcome: RecoveryOutcome) -> Check:
    """Whatever was moved belonged to a process that had ended."""
    robbed = {move.entry_id for move in outcome.robberies}
    moves = [move for move in outcome.traces.moves if not move.is_own]
    return Check(
        claim="no entry was recovered from a running worker",
        holds=not robbed,
        found=f"{len(moves)} recoveries, {len(robbed)} from running workers{show_example(robbed)}",
    )


def check_effects(outcome: RecoveryOutcome) -> Check:
    """Each entry that was added had its effect."""
    added, settled = set(outcome.ids.values()), outcome.traces.settled_since(0)
    missing, strange = added - settled, settled - added
    return Check(
        claim="no entry was acknowledged without its effect; no entry was lost",
        holds=not missing and not strange and bool(added),
        found=f"{len(added):,} entries, {len(missing)} without an effect, {len(strange)} effects "
        f"without an entry{show_example(missing | strange)}",
    )


def check_repeats(outcome: RecoveryOutcome) -> Check:
    """Only entries that a killed worker had not acknowledged were processed twice."""
    repeated = find_repeated(outcome.traces.effects)
    wrong = repeated - outcome.traces.orphans(rescue.victim for rescue in outcome.rescues)
    return Check(
        claim="only entries of killed workers were processed twice",
        holds=not wrong,
        found=f"{len(repeated)} twice, {len(wrong)} of them of other workers{show_example(wrong)}",
    )


def check_crashes(outcome: RecoveryOutcome) -> Check:
    """No worker ended unless the demo killed it, not even on bad files."""
    crashed = {end.consumer for end in outcome.crashes}
    return Check(
        claim="no worker ended unexpectedly",
        holds=not crashed,
        found=f"{len(outcome.rescues)} killed, {len(outcome.crashes)} others"
        + show_example(crashed),
    )


def check_dead_letters(outcome: RecoveryOutcome) -> Check:
    """The dead letters are the poison."""
    paths = [letter.path for letter in outcome.redriven]
    wrong = outcome.poison.keys() ^ set(paths)
    return Check(
        claim="the dead letters were the files that do not parse, each once",
        holds=not wrong and len(paths) == len(set(paths)) and bool(paths),
        found=f"{len(paths)} dead letters, {len(outcome.poison)} such files{show_example(wrong)}",
    )


def check_reasons(outcome: RecoveryOutcome) -> Check:
    """Each says why and what it was."""
    letters = outcome.redriven
    wrong = {
        letter.path
        for letter in letters
        if letter.reason != HANDLER_FAILED
        or letter.error.partition(":")[0] != _kind_of_error(outcome.poison, letter.path)
        or letter.original_id != outcome.ids.get(letter.path)
    }
    return Check(
        claim="each had a reason and the ID of its entry",
        holds=not wrong and bool(letters),
        found=f"{len(letters) - len(wrong)} of {len(letters)}{show_example(wrong)}",
    )


def check_counts(outcome: RecoveryOutcome) -> Check:
    """Status and ledger agree, and the ledgers have a line for each dead letter that there was."""
    recovery = outcome.status.get("recovery") or {}
    traces = outcome.traces
    requeued = count_operator_moves(traces.moves, LedgerKind.REQUEUED)
    given_up = count_operator_moves(traces.moves, LedgerKind.DEAD_LETTERED)
    dead = count_moves(traces.moves, LedgerKind.DEAD_LETTERED)
    shown = (recovery.get("requeued"), recovery.get("deadLettered"))
    length = (outcome.status.get("deadLetter") or {}).get("length")
    return Check(
        claim="the counts in the status equal those of the ledger",
        holds=shown == (requeued, given_up)
        and dead == len(outcome.redriven)
        and length == len(traces.letters) == 0,
        found=f"requeued {shown[0]} and {requeued}, dead letters {dead}, {length} left",
    )


def _kind_of_error(poison: Counts, path: str) -> str | None:
    counts = poison.get(path)
    return counts.error.partition(":")[0] if counts and counts.error else None
