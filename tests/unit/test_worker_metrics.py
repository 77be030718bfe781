"""What a worker counts, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pelops.errors import RedisUnavailable
from pelops.worker import Entry, Observer, Reject, Retry, RetryPolicy, Worker, WorkerSettings
from pelops.worker.entry import Arrival, Terms
from pelops.worker.metrics import HistogramCounts, Metrics, build_metrics, render_metrics
from pelops.worker.server.adapter import DeliverySource
from tests.unit.scripted_adapter import STREAM, ScriptedAdapter, loop_time, raw, run_virtually, work

LABELS = {"stream": "orders", "group": "g"}


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    yield CollectorRegistry()


def _value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"pelops_worker_{name}", {**LABELS, **labels})


def _entry(added_s: float, *more: bytes) -> Entry:
    arrival = Arrival(STREAM, DeliverySource.NEW, 0.0, Terms(time.monotonic, 30.0))
    flat = [b"f", b"v", *more]
    return Entry(arrival, [b"%d-0" % int(added_s * 1000), flat, 0, 0])


def _work(observer: Observer, adapter: ScriptedAdapter, handle: Any, done: Any) -> None:
    async def main() -> int:
        settings = WorkerSettings(retry=RetryPolicy(max_retries=1))
        worker = Worker(lambda: adapter, settings, observer=observer, clock=loop_time)
        worker.handler(handle)
        return await work(worker, done)

    run_virtually(main)


def test_all_that_becomes_of_entries_is_counted(registry: CollectorRegistry) -> None:
    adapter = ScriptedAdapter(fresh=[raw(number) for number in range(1, 11)])

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(0.002)
        if entry.id == "1-0":
            raise Reject("Unwanted")
        if entry.id == "2-0" and not entry.failures:
            raise Retry(after=1)
        if entry.id == "3-0":
            raise ValueError

    metrics = build_metrics("orders", "g", registry=registry)
    _work(metrics, adapter, handle, lambda: len(adapter.acked) == 8 and len(adapter.rejected) == 2)
    assert _value(registry, "processed_total") == 8
    assert _value(registry, "failed_total") == 4  # two of them of the entry 3-0
    assert _value(registry, "retried_total") == 2
    assert _value(registry, "rejected_total", reason="Unwanted") == 1
    assert _value(registry, "rejected_total", reason="HandlerFailed") == 1
    assert _value(registry, "received_total") == 10
    assert _value(registry, "acknowledged_total") == 8
    assert _value(registry, "handler_seconds_count") == 12
    assert _value(registry, "handler_seconds_bucket", le="0.001") == 0
    assert _value(registry, "handler_seconds_bucket", le="0.005") == 12
    assert _value(registry, "entry_age_seconds_count") == 8
    assert (_value(registry, "in_flight"), _value(registry, "waiting")) == (0, 0)


def test_what_runs_is_in_flight(registry: CollectorRegistry) -> None:
    metrics = build_metrics("orders", "g", registry=registry)
    metrics.in_flight(3, 5)
    assert (_value(registry, "in_flight"), _value(registry, "waiting")) == (3, 5)


def test_refusals_are_counted_by_what_was_asked_and_the_error(registry: CollectorRegistry) -> None:
    adapter = ScriptedAdapter(fresh=[raw(1)], errors=[RedisUnavailable("LOADING")] * 2)

    async def handle(entry: Entry) -> None:
        """A handler that is done at once."""

    metrics = build_metrics("orders", "g", registry=registry)
    _work(metrics, adapter, handle, lambda: adapter.acked)
    found = _value(registry, "refused_total", what="exchange", error="RedisUnavailable")
    assert found == 2


def test_lost_entries_and_a_blocked_loop_are_counted(registry: CollectorRegistry) -> None:
    metrics = build_metrics("orders", "g", registry=registry)
    metrics.disowned(_entry(0))
    for seconds in (12.0, 17.0, 11.0):
        metrics.blocked(seconds)
    assert _value(registry, "disowned_total") == 1
    assert _value(registry, "blocked_seconds") == 17.0


def test_the_age_of_a_copy_is_that_of_the_first_entry() -> None:
    now_s = time.time()
    copy = _entry(
        now_s - 1, b"_original_id", b"%d-0" % int((now_s - 100) * 1000), b"_retry_count", b"1"
    )
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


def test_workers_of_several_groups_share_a_registry(registry: CollectorRegistry) -> None:
    one = build_metrics("orders", "g", registry=registry)
    assert build_metrics("orders", "g", registry=registry) is one
    build_metrics("orders", "other", registry=registry).received(2, 1)
    one.received(1, 0)
    assert _value(registry, "received_total") == 1
    assert _value(registry, "reclaimed_total", group="other") == 1
    assert generate_latest(registry).count(b"# TYPE pelops_worker_received_total") == 1


def test_the_text_holds_the_metrics(registry: CollectorRegistry) -> None:
    build_metrics("orders", "g", registry=registry).received(7, 0)
    assert b'pelops_worker_received_total{group="g",stream="orders"} 7.0' in render_metrics(
        registry
    )


def test_without_the_client_nothing_is_counted_and_nothing_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pelops.worker.metrics.find_spec", lambda name: None)
    assert type(build_metrics("orders", "g")) is Observer
    assert render_metrics() == b""
    assert importlib.util.find_spec("prometheus_client") is not None
