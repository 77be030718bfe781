"""How a benchmark answers: one JSON object or a table, whatever was met."""

import json
import math
import os
import time

import pytest

from benchmarks.report import (
    Better,
    Report,
    Target,
    render_json,
)
from benchmarks.usage import observe_cpu, observe_memory

pytestmark = pytest.mark.full


def a_report(*targets: Target, **figures: object) -> Report:
    return Report(benchmark="sweep", server="redis 8.6.3", targets=targets, figures=figures)


@pytest.mark.parametrize(
    ("value", "target", "better", "met"),
    [
        (0.3, 0.3, "lower", True),
        (0.31, 0.3, "lower", False),
        (40, 40, "higher", True),
        (39.9, 40, "higher", False),
        (0, 0, "lower", True),
        (None, 0, "lower", False),
        (math.nan, 1, "lower", False),
        (math.inf, 1, "higher", True),
        (1e9, None, "lower", True),
        (None, None, "lower", False),
    ],
)
def test_a_target_is_met_by_an_equal_value_and_never_without_one(
    value: float | None, target: float | None, better: Better, met: bool
) -> None:
    assert Target(name="any", value=value, target=target, better=better).met is met


def test_the_json_is_one_strict_line_also_with_odd_numbers_and_texts() -> None:
    odd = a_report(
        Target(name="ratio", value=math.inf, target=math.nan, better="higher"),
        nested={"list": [math.nan, {"deep": -math.inf}]},
        text="two\nlines",
    )
    (line,) = render_json(odd).splitlines()
    answer = json.loads(line, parse_constant=pytest.fail)
    assert answer["targets"][0]["value"] is None
    assert answer["figures"] == {"nested": {"list": [None, {"deep": None}]}, "text": "two\nlines"}


def test_cpu_that_this_process_uses_is_its_own_and_not_others() -> None:
    pid = os.getpid()
    before = observe_cpu([pid])
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    after = observe_cpu([pid])
    used_s = after.by_pid_s[pid] - before.by_pid_s[pid]
    assert used_s == pytest.approx(after.share(before, pid) * (after.at_s - before.at_s))
    assert used_s >= 0.25
    others_s = after.others_share(before) * (after.at_s - before.at_s)
    assert used_s + others_s == pytest.approx(after.machine_s - before.machine_s)


def test_a_process_that_has_ended_is_not_measured_as_zero() -> None:
    with pytest.raises(FileNotFoundError):
        observe_memory(2**22 + 1)
    with pytest.raises(FileNotFoundError):
        observe_cpu([2**22 + 1])
