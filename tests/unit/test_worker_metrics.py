"""What a worker counts, as Prometheus reads it, and which refusals it logs."""

from __future__ import annotations

import asyncio
import importlib.util
import time

import pytest
from prometheus_client import CollectorRegistry

from pelops.errors import PermissionDenied, RedisUnavailable
from pelops.worker import Entry, Observer, Reject, Retry, RetryPolicy
from pelops.worker.engine.shared import RefusalLog
from pelops.worker.entry import Arrival, Terms
from pelops.worker.metrics import HistogramCounts, Metrics, build_metrics, render_metrics
from pelops.worker.server.adapter import DeliverySource, NameTaken
from tests.unit.scripted_adapter import STREAM, ScriptedAdapter, nothing, raw, serve

LABELS = {"stream": "orders", "group": "g"}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Observer:
    return build_metrics("orders", "g", registry=registry)


def _value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"pelops_worker_{name}", {**LABELS, **labels})


def _entry(added_s: float, *more: bytes) -> Entry:
    arrival = Arrival(STREAM, DeliverySource.NEW, 0.0, Terms(time.monotonic, 30.0))
    return Entry(arrival, raw(int(added_s * 1000), b"f", b"v", *more))


def test_all_that_becomes_of_entries_is_counted(
    registry: CollectorRegistry, metrics: Observer
) -> None:
    adapter = ScriptedAdapter(fresh=[raw(number) for number in range(1, 11)])

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(0.002)
        if entry.id == "1-0":
            raise Reject("Unwanted")
        if entry.id == "2-0" and not entry.failures:
            raise Retry(after=1)
        if entry.id == "3-0":
            raise ValueError

    policy = RetryPolicy(max_retries=1)
    serve(
        adapter,
        handle,
        lambda: (len(adapter.acked), len(adapter.rejected)) == (8, 2),
        observer=metrics,
        retry=policy,
    )
    counts = {
        "processed_total": 8,
        "failed_total": 4,  # two of them of the entry 3-0
        "retried_total": 2,
        "received_total": 10,
        "acknowledged_total": 8,
        "handler_seconds_count": 12,
        "entry_age_seconds_count": 8,
        "in_flight": 0,
        "waiting": 0,
    }
    assert {name: _value(registry, name) for name in counts} == counts
    for reason in ("Unwanted", "HandlerFailed"):
        assert _value(registry, "rejected_total", reason=reason) == 1
    for bucket, count in (("0.001", 0), ("0.005", 12)):
        assert _value(registry, "handler_seconds_bucket", le=bucket) == count


def test_refusals_are_counted_by_call_and_error(
    registry: CollectorRegistry, metrics: Observer
) -> None:
    adapter = ScriptedAdapter(fresh=[raw(1)], errors=[RedisUnavailable("LOADING")] * 2)
    serve(adapter, nothing, lambda: adapter.acked, observer=metrics)
    assert _value(registry, "refused_total", what="exchange", error="RedisUnavailable") == 2


def test_running_and_lost_entries_and_a_blocked_loop_are_shown(
    registry: CollectorRegistry, metrics: Observer
) -> None:
    metrics.in_flight(3, 5)
    metrics.disowned(_entry(0))
    for seconds in (12.0, 17.0, 11.0):
        metrics.blocked(seconds)
    names = ("in_flight", "waiting", "disowned_total", "blocked_seconds")
    assert [_value(registry, name) for name in names] == [3, 5, 1, 17.0]


def test_the_age_of_a_copy_is_that_of_the_first_entry() -> None:
    now_s = time.time()
    original_id = b"%d-0" % int((now_s - 100) * 1000)
    copy = _entry(now_s - 1, b"_original_id", original_id, b"_retry_count", b"1")
    copy.runs_isolated = True
    metrics = Metrics()
    metrics.finished([_entry(now_s - 10), copy], [0.0, 0.0])
    assert 110 <= metrics.ages.sum < 170


def test_a_histogram_counts_each_value_in_all_buckets_that_hold_it() -> None:
    tally = HistogramCounts((1.0, 2.0))
    tally.add([3.0, 1.0, 1.5])
    tally.add([0.0])
    assert tally.buckets() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert tally.sum == 5.5


def test_reasons_without_end_make_no_series_without_end() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.rejected(_entry(0), f"Reason{number}")
    assert len(metrics.rejections) <= 31
    assert sum(metrics.rejections.values()) == 1000


def test_workers_of_several_groups_share_a_registry(
    registry: CollectorRegistry, metrics: Observer
) -> None:
    assert build_metrics("orders", "g", registry=registry) is metrics
    build_metrics("orders", "other", registry=registry).received(2, 1)
    metrics.received(7, 0)
    assert _value(registry, "reclaimed_total", group="other") == 1
    text = render_metrics(registry)
    assert b'pelops_worker_received_total{group="g",stream="orders"} 7.0' in text
    assert text.count(b"# TYPE pelops_worker_received_total") == 1


def test_without_the_client_nothing_is_counted_and_nothing_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pelops.worker.metrics.find_spec", lambda name: None)
    assert type(build_metrics("orders", "g")) is Observer
    assert render_metrics() == b""
    assert importlib.util.find_spec("prometheus_client") is not None


# The log.


def _build_log() -> tuple[RefusalLog, list[float]]:
    now = [0.0]
    return RefusalLog(Observer(), lambda: now[0]), now


def test_what_goes_on_being_refused_is_said_from_time_to_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals, now = _build_log()
    for at_s in (0.0, 1.0, 29.0, 31.0, 32.0):
        now[0] = at_s
        refusals.report("read", RedisUnavailable(f"no answer, try {at_s:g}"))
    assert [record.message for record in caplog.records] == [
        "read: RedisUnavailable: no answer, try 0; retrying",
        "read: RedisUnavailable: no answer, try 31; retrying",
    ]
    assert refusals.current == ["read: RedisUnavailable: no answer, try 32"]


def test_another_key_or_command_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals, _ = _build_log()
    for key in ("a", "a", "b"):
        refusals.report("read", PermissionDenied(f"xack on {key}", command="xack", key=key))
    assert [record.message for record in caplog.records] == [
        "read: PermissionDenied: xack on a; retrying",
        "read: PermissionDenied: xack on b; retrying",
    ]
    refusals.end("read")
    assert refusals.current == []


def test_a_name_that_is_taken_no_more_is_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    refusals, now = _build_log()
    refusals.report("read", NameTaken("another process has it"))
    now[0] = 4.0
    refusals.report("exchange", NameTaken("another process has it"))
    now[0] = 8.0
    assert refusals.current == ["name: NameTaken: another process has it"]
    now[0] = 10.0
    assert refusals.current == []
    assert caplog.records[-1].message == "name: succeeded after an error"
