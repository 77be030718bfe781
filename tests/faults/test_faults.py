"""Truth under failure, in a short form: everything mixed for a while, and poison among many.

`python -m tests.faults.run --fault all` is the long form. It runs on a control plane of its own:
the faults hit that, too.
"""

from __future__ import annotations

import pytest

from tests.faults.run import Report, run_faults
from tests.versions import NoFormerVersion, find_former


def judge(fault: str, *, seconds: float, seed: int) -> tuple[Report, str]:
    """The report, and all that was said on the way to it."""
    said: list[str] = []
    report = run_faults(fault, seconds=seconds, seed=seed, say=said.append)
    return report, "\n".join(said)


@pytest.mark.parametrize("seconds", [12, pytest.param(60, marks=pytest.mark.full)])
def test_no_entry_is_lost_robbed_or_doubled_whatever_fails(seconds: int) -> None:
    report, said = judge("mixed", seconds=seconds, seed=7)
    assert report.passed, said


@pytest.mark.full
def test_two_poison_entries_take_no_innocent_along() -> None:
    report, said = judge("poison", seconds=40, seed=7)
    assert report.passed, said


@pytest.mark.full
def test_an_upgrade_from_the_former_version_and_back_loses_and_robs_nothing() -> None:
    try:
        find_former()
    except NoFormerVersion as error:
        pytest.skip(f"the history of the repository is not complete: {error}")
    report, said = judge("upgrade", seconds=150, seed=7)
    assert report.passed, said
