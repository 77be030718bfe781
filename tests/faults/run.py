"""Faults against real processes, and a verdict on what became of every entry.

    python -m tests.faults.run --fault NAME|mixed|all --seconds N --seed S [--mutation NAME]

The same seed gives the same schedule. The last line is one JSON object; exit 1 unless it passed.

all      below 400 s: one phase of all that a single server can meet, with a node whose clock is
         wrong (ahead for odd seeds); and a shorter one that the seed chooses by its rest modulo 3:
         0 two operators, 1 Sentinel, 2 Redis Cluster. From 400 s on: a phase for each of these;
         and phases for skew both ways, for faults by hand, for redrives, for pods that reuse names,
         and for poison alone;
upgrade  operators of the former version become this one, go back, and become it again, while
         workers die;
redrive  dead letters are discarded, restored and redriven while workers, replicas and Redis die;
mixed    what ends and hinders workers, operators, Redis and the API server, with some poison;
poison   two poison entries among 4,000, for each of three kinds of worker; nothing else fails.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster.plane import ControlPlane
from tests.faults.checker import ANOMALIES, OTHERS
from tests.faults.evidence import Evidence
from tests.faults.history import History
from tests.faults.mutations import MUTATIONS, build_mutant
from tests.faults.phases import NAMES, plan_phases
from tests.faults.running import Outcome, Say, run_phase
from tests.faults.skewing import NoFaketime
from tests.faults.world import Ground
from tests.operators import install
from tests.versions import NoFormerVersion

SHOWN = 8


@dataclass(slots=True)
class Report:
    """The sum of all phases."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ANOMALIES, 0))
    entries: int = 0
    faults: int = 0
    others: int = 0  # evidence that has no field of its own
    evidence: list[Evidence] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong, and there was something that could have been."""
        was_tried = self.entries > 0 and self.faults > 0
        return was_tried and not any(self.counts.values()) and not self.others

    def add(self, history: History) -> None:
        """Judge one lane's history."""
        for name, check in ANOMALIES.items():
            found = check(history)
            self.counts[name] += len(found)
            self.evidence += found
        others = [evidence for check in OTHERS for evidence in check(history)]
        self.others += len(others)
        self.evidence += others
        self.entries += len(history.produced)

    def render(self) -> str:
        """The last line."""
        rest = {"entries": self.entries, "faults": self.faults, "passed": self.passed}
        return json.dumps({**self.counts, **rest})


def run_faults(
    fault: str, *, seconds: float, seed: int, mutation: str | None = None, say: Say = print
) -> Report:
    """Run one fault, or several, on a control plane of their own, and judge what came of it."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="pelops-faults-") as folder:
        directory = Path(folder)
        environment = _mutant_environment(mutation, directory)
        plane = ControlPlane.start(directory / "control-plane")
        try:
            install(plane)
            ground = Ground(plane=plane, directory=directory, operator_environment=environment)
            phases = plan_phases(fault, seconds=seconds, seed=seed)
            for phase in phases:
                say(f"planned: {phase.about}")
            for phase in phases:
                _add_phase(report, run_phase(ground, phase, say), say)
        finally:
            plane.stop()
    return report


def _add_phase(report: Report, outcome: Outcome, say: Say) -> None:
    before = len(report.evidence)
    for history in outcome.histories:
        report.add(history)
        say(_summary(history))
    report.faults += outcome.faults
    shown: dict[str, int] = {}
    for evidence in report.evidence[before:]:
        shown[evidence.anomaly] = shown.get(evidence.anomaly, 0) + 1
        if shown[evidence.anomaly] <= SHOWN:
            say(f"  {evidence}")
    say(f"phase {outcome.name} took {outcome.seconds:.1f} s")


def _summary(history: History) -> str:
    acts: dict[str, int] = {}
    for event in history.events:
        acts[event.act] = acts.get(event.act, 0) + 1
    moves: dict[str, int] = {}
    for move in history.moves:
        moves[move.kind] = moves.get(move.kind, 0) + 1
    return (
        f"{history.name}: {len(history.produced)} entries, {acts.get('effect', 0)} effects by "
        f"{acts.get('boot', 0)} processes, {acts.get('crash', 0)} crashes, moves {moves}, "
        f"{len(history.letters)} dead letters"
    )


def _mutant_environment(mutation: str | None, directory: Path) -> Mapping[str, str]:
    if mutation is None:
        return {}
    return {"PYTHONPATH": str(build_mutant(mutation, directory))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print progress and the report."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fault", choices=NAMES, help="default: all, or what shows the mutation")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutation", choices=tuple(MUTATIONS))
    given = parser.parse_args(arguments)
    # Child processes end with this one in any case; its files are removed only on a normal exit.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    shown = MUTATIONS[given.mutation].fault if given.mutation else "all"
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:6.1f}] {text}", flush=True)

    try:
        report = run_faults(
            given.fault or shown,
            seconds=given.seconds,
            seed=given.seed,
            mutation=given.mutation,
            say=say,
        )
    except (NoFaketime, NoFormerVersion) as error:
        parser.exit(1, f"{error}\n")
    print(report.render(), flush=True)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
