"""What benchmarks say of their measurements."""

import math
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.hunt import Kills, Outcome
from benchmarks.numbers import describe, percentile, ratios
from benchmarks.pod_death import latency_p99
from benchmarks.pod_watch import consumer_of, ends_shown, is_running, pid_of
from benchmarks.raw_redis import pack
from benchmarks.recovery import WAYS, Speeds, in_turn
from benchmarks.replies import ReplyStream
from benchmarks.scan_load import Load
from benchmarks.scanning_replica import worker_names
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


def test_a_description_without_values_says_only_that() -> None:
    assert describe([]) == {"count": 0}
    assert describe([1, 2, 6]) == {"count": 3, "min": 1, "median": 2, "p99": 6, "max": 6}


def test_ratios_compare_measurements_of_one_round() -> None:
    assert ratios([10, 30], [5, 10]) == [2, 3]
    with pytest.raises(ValueError, match="shorter"):
        ratios([1, 2], [1])


def test_our_speed_is_reported_in_multiples_of_another_way_round_by_round() -> None:
    speeds = Speeds()
    speeds.by_way["operator"] += [100, 90]
    speeds.by_way["loop"] += [2, 3]
    assert speeds.against("loop") == [50, 30]


def test_every_way_comes_first_in_some_round() -> None:
    ways = list(WAYS)
    assert {in_turn(ways, number)[0] for number in range(len(ways))} == set(ways)
    assert all(sorted(in_turn(ways, number)) == sorted(ways) for number in range(5))


def test_the_load_of_three_replicas_counts_in_the_worse_case() -> None:
    load = Load(idle={1: [10, 20], 3: [15, 15]}, recovering={1: [100], 3: [120]})
    assert load.worst_ratio == 1.2


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


def test_answers_are_read_in_whatever_pieces_they_come() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"+OK\r\n:7\r\n$3\r\nab")
        replies = ReplyStream(here)
        assert replies.take(2) == [b"OK", 7]
        there.sendall(b"c\r\n*2\r\n:1\r\n-ERR no\r\n")
        text, (number, error) = replies.take(2)
        assert (text, number, str(error)) == (b"abc", 1, "ERR no")


def test_reply_lines_are_counted_and_early_ones_are_kept() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"$3\r\n1-1\r\n:1\r\n$3\r\n1-2\r\n")
        replies = ReplyStream(here)
        replies.skip_lines(3)
        there.sendall(b":1\r\n")
        replies.skip_lines(3)
        here.setblocking(False)
        with pytest.raises(BlockingIOError):
            replies.skip_lines(1)


def test_a_server_that_hangs_up_is_not_waited_for() -> None:
    here, there = socket.socketpair()
    with here:
        there.close()
        with pytest.raises(ConnectionError):
            ReplyStream(here).take(1)


def test_a_command_is_packed_as_redis_reads_it() -> None:
    assert pack("XLEN", b"s") == b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n"
    assert pack("TTL", 12) == b"*2\r\n$3\r\nTTL\r\n$2\r\n12\r\n"


def test_consumers_have_the_names_and_uids_of_pods_that_differ() -> None:
    names = worker_names(100)
    assert len(set(names)) == 100
    assert all(name.count(":") == 1 and len(name.partition(":")[2]) == 36 for name in names)
    assert names[:3] == worker_names(3)
    assert not set(names) & set(worker_names(100, of="others"))


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


def test_only_a_started_pod_that_is_not_being_deleted_is_running() -> None:
    assert is_running(a_pod({"running": {}}))
    assert not is_running(a_pod({"running": {}}, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert not is_running(a_pod({"waiting": {"reason": "CrashLoopBackOff"}}))
    assert not is_running({"metadata": {}, "status": {}})


def test_a_pod_reports_its_process_and_its_consumer() -> None:
    assert pid_of(a_pod({"running": {}})) == 4711
    assert consumer_of(a_pod({"running": {}})) == "w-1:u-1"
