"""The same seed means the same faults at the same times, in this process and in any other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.faults.faults import FAULTS
from tests.faults.phases import plan_phases
from tests.faults.schedule import Injection, plan_schedule
from tests.history.variants import EVERY_S
from tests.operators import ROOT

pytestmark = pytest.mark.full

RENDER = """
import sys
from tests.unit.test_fault_schedule import plan
print(plan(sys.argv[1], seconds=float(sys.argv[2]), seed=int(sys.argv[3])))
"""


def plan(fault: str, *, seconds: float, seed: int) -> Sequence[tuple[str, Sequence[Injection]]]:
    """Every phase of a run as its summary line, with its schedule of faults."""
    return [
        (
            phase.about,
            plan_schedule(phase.every_s, seconds=phase.seconds, seed=phase.setting.seed),
        )
        for phase in plan_phases(fault, seconds=seconds, seed=seed)
    ]


def plan_elsewhere(fault: str, seconds: float, seed: int, hash_seed: str) -> str:
    """The same in a process of its own, whose sets have another order."""
    return subprocess.run(
        [sys.executable, "-c", RENDER, fault, str(seconds), str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_another_process_has_the_same_schedule() -> None:
    here = str(plan("all", seconds=120, seed=5))
    assert {plan_elsewhere("all", 120, 5, hash_seed) for hash_seed in ("1", "2")} == {here}


@pytest.mark.parametrize("seed", range(10))
def test_every_fault_of_a_phase_comes_within_its_time(seed: int) -> None:
    for phase in plan_phases("all", seconds=120, seed=seed):
        planned = plan_schedule(phase.every_s, seconds=phase.seconds, seed=seed)
        assert {one.fault for one in planned} == set(phase.every_s)
        assert all(0 <= one.at_s < phase.seconds for one in planned)


def test_three_seeds_of_all_cover_every_kind_of_server() -> None:
    names = {
        phase.setting.name
        for seed in range(3)
        for phase in plan_phases("all", seconds=120, seed=seed)
    }
    assert names == {"one-server", "twins", "sentinel", "cluster"}


def test_the_long_form_of_all_has_every_fault() -> None:
    aimed = {"midway", "owed", "phase"}  # each for the one mutation that it is to show
    hindering = set(EVERY_S)  # of the SDK's workers, in a run of their own
    upgrading = {"upgrade"}  # needs the history of Git
    phases = plan_phases("all", seconds=600, seed=1)
    planned = {fault for phase in phases for fault in phase.every_s}
    assert planned == set(FAULTS) - aimed - hindering - upgrading
