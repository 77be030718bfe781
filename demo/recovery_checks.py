"""What the demo claims of deaths and of poison, each claim checked. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.checks import Check, Counts, show_example
from demo.recovery import Letter, Move, Rescue, count_moves
from pelops.domain.ledger import LedgerKind
from pelops.domain.recovery import LetterReason

AT_ONCE_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOutcome:
    """What was found of deaths and dead letters when the work was done."""

    expected: Counts  # computed directly; what does not parse has an error
    ids: Mapping[str, str]  # of the entries that were added, by path
    rescues: Sequence[Rescue]  # one for each worker that was killed
    moves: Sequence[Move]  # by the ledger
    robberies: Sequence[Move]  # from workers that nobody saw end
    letters: Sequence[Letter]
    max_retries: int
    status: Mapping[str, Any]  # of the resource

    @property
    def poison(self) -> set[str]:
        """The files that do not parse."""
        return {path for path, counts in self.expected.items() if counts.error is not None}


def check_recovery(outcome: RecoveryOutcome) -> list[Check]:
    """Every claim, in the order in which it is told."""
    return [
        check_rescues(outcome.rescues),
        check_speed(outcome.rescues),
        check_charges(outcome.rescues),
        check_robberies(outcome),
        check_letters(outcome),
        check_reasons(outcome),
        check_counts(outcome),
    ]


def check_rescues(rescues: Sequence[Rescue]) -> Check:
    """What the killed ones held was moved."""
    held = [len(rescue.victim.held) for rescue in rescues]
    lost = sum(rescue.lost for rescue in rescues)
    return Check(
        claim="all that the killed workers held was deliverable again",
        holds=lost == 0 and bool(held) and all(held),
        found=f"{' and '.join(map(str, held))} entries held, {lost} not moved",
    )


def check_speed(rescues: Sequence[Rescue]) -> Check:
    """It was moved within a second, as far as that is promised."""
    late = sum(rescue.late for rescue in rescues)
    slowest = [rescue.told_to_deliverable_ms for rescue in rescues]
    words = f", {late} more later: given out in the second of the restart" * bool(late)
    return Check(
        claim="within a second of the news of their death",
        holds=all(rescue.at_once for rescue in rescues) and max(slowest, default=0) <= AT_ONCE_MS,
        found=f"after {' and '.join(map(str, slowest))} ms{words or ', none later'}",
    )


def check_charges(rescues: Sequence[Rescue]) -> Check:
    """A pod that somebody deleted is nobody's failure; a killed process may be."""
    wanted = [frozenset({int(rescue.victim.is_to_blame)}) for rescue in rescues]
    found = [rescue.charges for rescue in rescues]
    words = [", ".join(map(str, sorted(charges))) or "nothing" for charges in found]
    return Check(
        claim="a deleted pod is held against no entry, a killed process once",
        holds=found == wanted,
        found=f"charged {' and '.join(words)}",
    )


def check_robberies(outcome: RecoveryOutcome) -> Check:
    """Whatever was moved belonged to a process that had ended."""
    robbed = {move.entry_id for move in outcome.robberies}
    return Check(
        claim="no entry was taken from a worker that lived",
        holds=not robbed,
        found=f"{len(outcome.moves)} moves, {len(robbed)} from the living{show_example(robbed)}",
    )


def check_letters(outcome: RecoveryOutcome) -> Check:
    """The dead letters are the poison."""
    paths = [letter.path for letter in outcome.letters]
    wrong = outcome.poison ^ set(paths)
    return Check(
        claim="the dead letters are the files that do not parse, each once",
        holds=not wrong and len(paths) == len(set(paths)) and bool(paths),
        found=f"{len(paths)} dead letters, {len(outcome.poison)} such files{show_example(wrong)}",
    )


def check_reasons(outcome: RecoveryOutcome) -> Check:
    """Each says why and what it was."""
    wrong = {
        letter.path
        for letter in outcome.letters
        if letter.reason != LetterReason.MAX_RETRIES
        or not letter.error
        or letter.retry_count <= outcome.max_retries
        or letter.original_id != outcome.ids.get(letter.path)
    }
    return Check(
        claim="each says why, after how many failures, and which entry it was",
        holds=not wrong and bool(outcome.letters),
        found=f"{len(outcome.letters) - len(wrong)} of {len(outcome.letters)}{show_example(wrong)}",
    )


def check_counts(outcome: RecoveryOutcome) -> Check:
    """Status and ledger agree, and the ledger has a line for each letter."""
    recovery = outcome.status.get("recovery") or {}
    requeued = count_moves(outcome.moves, LedgerKind.REQUEUED)
    dead = count_moves(outcome.moves, LedgerKind.DEAD_LETTERED)
    shown = (recovery.get("requeued"), recovery.get("deadLettered"))
    length = (outcome.status.get("deadLetter") or {}).get("length")
    return Check(
        claim="the resource's status counts what the ledger tells",
        holds=shown == (requeued, dead) and length == dead == len(outcome.letters),
        found=f"requeued {shown[0]} and {requeued}, dead letters {length} and {dead}",
    )
