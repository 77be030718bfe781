"""The history of entries under faults in a short form, with an operator and without, and a mutant.

`python -m tests.history.run` is the long form, `--mutation` takes other rules out.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.history.judging import Verdict
from tests.history.run import run_variants
from tests.history.variants import Size

SHORT = Size(entries=20_000, seconds=10, seed=1, limit_s=2, slow_per_s=1)
# What is wrong shows at once; what is left over is of no interest.
MUTANT = replace(SHORT, drain_s=1)


def judge(name: str, size: Size, mutation: str | None = None) -> tuple[Verdict, str]:
    """The verdict, and all that was said on the way to it."""
    said: list[str] = []
    verdicts = run_variants([name], size, mutation=mutation, say=said.append)
    return verdicts[0], "\n".join(said)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("requeue", marks=pytest.mark.full),
        pytest.param("alone-8.6", marks=pytest.mark.full),
        pytest.param("alone-7.0", marks=pytest.mark.full),
    ],
)
def test_every_entry_is_handled_acknowledged_and_repeated_only_for_a_reason(name: str) -> None:
    verdict, said = judge(name, SHORT)
    assert verdict.passed, said


@pytest.mark.full
def test_an_sdk_that_acknowledges_first_is_found_out() -> None:
    verdict, said = judge("alone-8.6", MUTANT, "acknowledge-first")
    assert verdict.counts["acknowledged without effect"], said
