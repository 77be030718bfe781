"""What there is at the end, in Redis and on the API server, gathered for the checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.checks import Check, Counts, Outcome, check_all
from demo.effects import results_of
from demo.recovery import (
    Rescue,
    Traces,
    Victim,
    assess_rescue,
    count_moves,
    find_robberies,
    list_delays,
)
from demo.recovery_checks import RecoveryOutcome, check_recovery
from demo.scaling import Course
from demo.scaling_checks import ScalingOutcome, check_scaling
from demo.stage import Stage
from demo.team import Deeds, Team
from demo.workers import End, History
from pelops.domain.entry_id import parse_entry_id
from pelops.domain.records.ledger import LedgerKind


class EndUnseen(Exception):
    """A worker was killed and the API server never reported its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that was found of one team."""

    team: Team
    outcome: Outcome
    recovery: RecoveryOutcome
    history: History

    def check(self) -> list[Check]:
        """Every claim, in the order in which they are printed."""
        return check_all(self.outcome) + check_recovery(self.recovery)

    @property
    def delays(self) -> list[int]:
        """As `list_delays` has them."""
        return list_delays(self.recovery.traces.moves, self.history)


def find_outcome(stage: Stage, team: Team, deeds: Deeds, expected: Counts) -> Findings:
    """Everything that is checked of a team. Raises EndUnseen."""
    history = stage.observe_workers(team)
    status, traces = stage.status(team), team.store.read_traces()
    own = {path: expected[path] for path in deeds.ids}
    bad = {path: counts for path, counts in own.items() if counts.error is not None}
    return Findings(
        team=team,
        outcome=_find_work(team, own, status, traces, len(deeds.redriven.letters)),
        recovery=RecoveryOutcome(
            redriven=deeds.redriven.letters,
            poison={} if team.keeps_errors else bad,
            ids=deeds.ids,
            rescues=[_find_rescue(victim, traces, history) for victim in deeds.victims],
            traces=traces,
            robberies=find_robberies(traces.moves, history),
            crashes=find_crashes(history, deeds.victims),
            status=status,
        ),
        history=history,
    )


def find_scaling(stage: Stage, team: Team, deeds: Deeds, found: Findings) -> ScalingOutcome:
    """How the number of the team's workers followed the backlog."""
    return ScalingOutcome(
        course=Course(
            first_ms=min(parse_entry_id(entry_id).ms for entry_id in deeds.ids.values()),
            looks=stage.sampling.looks,
            counts=stage.count_workers(team),
        ),
        most=team.declaration.most,
        pods=len(stage.list_pods(team)),
        status=stage.status(team),
        history=found.history,
        moves=found.recovery.traces.moves,
    )


def check_found(found: Sequence[Findings], scaling: ScalingOutcome) -> Mapping[str, list[Check]]:
    """Every claim, by the words that stand above it."""
    claims = {f"Checked, {one.team.label}:": one.check() for one in found}
    return claims | {"Checks of scaling, workers with the SDK:": check_scaling(scaling)}


def find_crashes(history: History, victims: Sequence[Victim]) -> list[End]:
    """The failures of workers that the demo did not kill."""
    killed = {victim.process for victim in victims}
    return [end for end in history.ends.values() if end.exit_code and end.process not in killed]


def _find_work(
    team: Team, own: Counts, status: Mapping[str, Any], traces: Traces, redriven: int
) -> Outcome:
    group = team.store.observe_group()
    return Outcome(
        expected=own,
        results=results_of(traces.effects),
        entries=team.store.count_entries(),
        copies=count_moves(traces.moves, LedgerKind.REQUEUED),
        redriven=redriven,
        pending=group.pending,
        lag=group.lag,
        status=status,
    )


def _find_rescue(victim: Victim, traces: Traces, history: History) -> Rescue:
    rescue = assess_rescue(victim, traces, history)
    if rescue is None:
        raise EndUnseen(
            f"the API server did not report the end of {victim.consumer}, {victim.process}"
        )
    return rescue
