"""What there is at the end, in Redis and on the API server, gathered for the checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.checks import Check, Counts, Outcome, check_all
from demo.recovery import (
    Move,
    Rescue,
    Victim,
    assess_rescue,
    count_moves,
    find_robberies,
    list_delays,
    list_moves,
)
from demo.recovery_checks import RecoveryOutcome, check_recovery
from demo.scaling import Course
from demo.scaling_checks import ScalingOutcome, check_scaling
from demo.stage import Stage
from demo.workers import History
from pelops.domain.entry_id import parse_entry_id
from pelops.domain.ledger import LedgerKind


class EndUnseen(Exception):
    """A worker was killed and the API server never told its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deeds:
    """What the demo did."""

    ids: Mapping[str, str]  # of the entries that it added, by path
    victims: Sequence[Victim]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that was found."""

    outcome: Outcome
    recovery: RecoveryOutcome
    scaling: ScalingOutcome
    history: History

    def check(self) -> list[Check]:
        """Every claim, in the order in which it is told."""
        return check_all(self.outcome) + check_recovery(self.recovery) + check_scaling(self.scaling)

    @property
    def delays(self) -> list[int]:
        """As `list_delays` has them."""
        return list_delays(self.recovery.moves, self.history)

    def describe_crashes(self) -> str:
        """How often workers ended by themselves."""
        crashes = [end for end in self.history.ends.values() if end.exit_code == 1]
        pods = len({end.consumer for end in crashes})
        return f"Dead-lettered, after {len(crashes)} crashes of workers in {pods} pods:"


def find_outcome(stage: Stage, deeds: Deeds, expected: Counts) -> Findings:
    """Everything that is checked. Raises EndUnseen."""
    history = stage.observe_workers()
    moves = list_moves(stage.store.read_ledger())
    status = stage.status()
    return Findings(
        outcome=_find_work(stage, expected, status, moves),
        recovery=RecoveryOutcome(
            expected=expected,
            ids=deeds.ids,
            rescues=[_find_rescue(victim, moves, history) for victim in deeds.victims],
            moves=moves,
            robberies=find_robberies(moves, history),
            letters=stage.store.read_letters(),
            max_retries=stage.declaration.max_retries,
            status=status,
        ),
        scaling=ScalingOutcome(
            course=find_course(stage, deeds),
            most=stage.declaration.most,
            pods=len(stage.list_pods()),
            status=status,
            history=history,
            moves=moves,
        ),
        history=history,
    )


def find_course(stage: Stage, deeds: Deeds) -> Course:
    """How the number of workers followed what was owed."""
    return Course(
        first_ms=min(parse_entry_id(entry_id).ms for entry_id in deeds.ids.values()),
        looks=stage.sampling.looks,
        counts=stage.count_workers(),
    )


def _find_work(
    stage: Stage, expected: Counts, status: Mapping[str, Any], moves: Sequence[Move]
) -> Outcome:
    group = stage.store.observe_group()
    return Outcome(
        expected=expected,
        results=stage.store.read_results(),
        entries=stage.store.count_entries(),
        copies=count_moves(moves, LedgerKind.REQUEUED),
        pending=group.pending,
        lag=group.lag,
        status=status,
    )


def _find_rescue(victim: Victim, moves: Sequence[Move], history: History) -> Rescue:
    rescue = assess_rescue(victim, moves, history)
    if rescue is None:
        raise EndUnseen(f"nobody told the end of {victim.consumer}, {victim.process}")
    return rescue
