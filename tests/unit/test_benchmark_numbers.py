"""The figures of benchmarks: what they say of measurements, and whether a target is met."""

import json
import math
import os
import time
from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.hunt import Kills, Outcome
from benchmarks.numbers import percentile
from benchmarks.pod_death import latency_p99
from benchmarks.pod_watch import ends_shown
from benchmarks.report import (
    Better,
    Report,
    Target,
    render_json,
)
from benchmarks.server_time import Call, longest_of, total_ms
from benchmarks.usage import observe_cpu, observe_memory
from benchmarks.worker import MAX_IMPORT_CPU_S
from benchmarks.worker_import import measure_import

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


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [
        ([], 99, None),
        ([7], 99, 7),
        ([3, 1, 2], 50, 2),
        (range(1, 101), 99, 99),
        (range(1, 51), 99, 50),
        (range(1, 1001), 99, 990),
        ([1, math.inf], 99, math.inf),
    ],
)
def test_a_percentile_is_one_of_the_values(
    values: list[float], percent: float, found: float | None
) -> None:
    assert percentile(values, percent) == found


def test_an_entry_that_was_never_recovered_leaves_no_latency_figure() -> None:
    assert latency_p99(Kills(latencies_s=[0.1, 0.2])) == 0.2
    assert latency_p99(Kills(latencies_s=[0.1] * 9 + [math.inf])) is None
    assert latency_p99(Outcome().restarts) is None


def test_one_stall_is_the_longest_call_but_not_the_99th_percentile() -> None:
    few = [Call("open_scan", 0.1)] * 9 + [Call("open_scan", 30)]
    many = [Call("find_idle", 0.2)] * 98 + [Call("find_idle", 5)] * 2
    assert longest_of([*few, *many], 99) == {"find_idle": 5, "open_scan": 0.1}
    assert longest_of([*few, *many]) == {"find_idle": 5, "open_scan": 30}
    assert longest_of([Call("find_idle", 7)], 99) == {"find_idle": 7}
    assert total_ms(few) == pytest.approx(30.9)


def a_pod(state: Mapping[str, Any], *, restarts: int = 0, **metadata: str) -> dict[str, Any]:
    report = {"state": state, "restartCount": restarts, "containerID": "process://4711-90210"}
    return {
        "metadata": {"name": "w-1", "uid": "u-1", **metadata},
        "status": {"containerStatuses": [report]},
    }


def test_an_end_shows_as_a_terminated_or_restarted_container_or_deleted_pod() -> None:
    running: Mapping[str, Any] = {"running": {}}
    ended: Mapping[str, Any] = {"terminated": {"exitCode": 137}}
    assert ends_shown(a_pod(running)) == 0
    assert ends_shown(a_pod(ended)) == 1
    assert ends_shown(a_pod(running, restarts=1)) == 1
    assert ends_shown(a_pod(ended, restarts=1)) == 2
    assert ends_shown(a_pod(running, restarts=1), is_gone=True) == 2
    assert ends_shown({"metadata": {}, "status": {}}) == 0


def test_importing_the_worker_takes_no_more_cpu_than_is_promised() -> None:
    assert 0 < measure_import() < MAX_IMPORT_CPU_S
