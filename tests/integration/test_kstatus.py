"""The rules in `tests/kstatus.py` are those of kstatus itself, a Go library."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pelops.policy.status.reasons import Reason
from tests.kstatus import compute
from tests.unit.test_health import LATE, seen

PROGRAM = Path(__file__).parents[1] / "kstatus_program"
NAMED = {"apiVersion": "pelops.dev/v1alpha1", "kind": "StreamConsumerGroup"}
BUILD_S = 1_200


@pytest.fixture(scope="module")
def kstatus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that asks kstatus; the test is skipped where it cannot be built."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    built = tmp_path_factory.mktemp("kstatus") / "kstatus"
    argv = [go, "build", "-o", str(built), "."]
    answer = subprocess.run(
        argv, cwd=PROGRAM, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if answer.returncode:
        pytest.skip(f"kstatus cannot be built: {answer.stderr[-500:]}")
    return built


@pytest.mark.full
@pytest.mark.timeout(BUILD_S)
def test_the_rules_are_those_of_kstatus(kstatus: Path) -> None:
    first = [seen(reason) for reason in Reason]
    late = [seen(reason, before=seen(reason), now=LATE) for reason in Reason]
    deleted = {"generation": 1, "deletionTimestamp": "2026-05-04T03:02:01Z"}
    others: list[dict[str, Any]] = [
        {"metadata": {"generation": 1}},
        {"metadata": {"generation": 1}, "status": {"observedGeneration": -1}},
        {**seen(Reason.READY), "metadata": {"generation": 2}},
        {**seen(Reason.READY), "metadata": deleted},
    ]
    things = [*first, *late, *others]
    objects = [
        {**NAMED, **thing, "metadata": {"name": "orders", **thing["metadata"]}} for thing in things
    ]
    answer = subprocess.run(
        [kstatus], input=json.dumps(objects), capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == [compute(thing) for thing in things]
    assert set(answer.stdout.split()) == {"InProgress", "Failed", "Current", "Terminating"}
