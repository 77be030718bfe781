"""Entries pass through the SDK's workers, to which everything happens, and each is accounted for.

    python -m tests.history.run [--variant NAME|all] [--entries N] [--seconds S] [--mutation NAME]

Workers are killed, stopped, terminated and cut off from Redis, all the time. What each of them
wrote down about every entry is laid beside what Redis has. The same seed gives the same schedule.
The last line of each variant begins with PASS or FAIL; exit 1 unless all passed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from local_cluster.plane import ControlPlane
from tests.faults.mutations import build_mutant
from tests.faults.phases import Phase
from tests.faults.running import Outcome, Say, run_phase, run_phase_in
from tests.faults.without_operator import open_alone
from tests.faults.world import Ground
from tests.history.judging import Verdict, judge
from tests.history.mutations import MUTATIONS
from tests.history.variants import VARIANTS, Size, plan_variant
from tests.operators import ROOT, install


def run_variants(
    names: Sequence[str], size: Size, *, mutation: str | None = None, say: Say = print
) -> list[Verdict]:
    """Run one variant after the other, those with an operator on one control plane."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pelops-history-"))
        directory = Path(folder)
        path = _worker_path(mutation, directory)
        verdicts = []

        @cache
        def find_ground() -> Ground:
            plane = ControlPlane.start(directory / "control-plane")
            stack.callback(plane.stop)
            install(plane)
            return Ground(plane=plane, directory=directory, operator_environment={})

        for name in names:
            phase = plan_variant(name, size, worker_path=path)
            outcome = _run(name, phase, directory, find_ground, say)
            verdicts.append(judge(name, outcome.histories[0]))
            say(verdicts[-1].render())
        return verdicts


def _run(
    name: str, phase: Phase, directory: Path, find_ground: Callable[[], Ground], say: Say
) -> Outcome:
    if VARIANTS[name].strategy is None:
        return run_phase_in(open_alone(phase.setting, directory / name), phase, say)
    return run_phase(find_ground(), phase, say)


def _worker_path(mutation: str | None, directory: Path) -> str:
    if mutation is None:
        return str(ROOT)
    mutant = build_mutant(mutation, directory, MUTATIONS)
    return os.pathsep.join((str(mutant), str(ROOT)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print progress and verdicts."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.history.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--variant", choices=(*VARIANTS, "all"), default="all")
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutation", choices=tuple(MUTATIONS), help="of the SDK: it has to fail")
    given = parser.parse_args(arguments)
    # Child processes end with this one in any case; its files are removed only on a normal exit.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:6.1f}] {text}", flush=True)

    names = tuple(VARIANTS) if given.variant == "all" else (given.variant,)
    size = Size(entries=given.entries, seconds=given.seconds, seed=given.seed)
    verdicts = run_variants(names, size, mutation=given.mutation, say=say)
    for verdict in verdicts:
        print(verdict.line, flush=True)
    return 0 if all(verdict.passed for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
