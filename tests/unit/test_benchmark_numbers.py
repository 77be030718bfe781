"""What benchmarks say of their measurements."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.hunt import Kills, Outcome
from benchmarks.numbers import percentile
from benchmarks.pod_death import latency_p99
from benchmarks.pod_watch import ends_shown
from benchmarks.server_time import Call, longest_of, total_ms

pytestmark = pytest.mark.full


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
