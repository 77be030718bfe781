"""Prometheus metrics of a worker. Names begin with `pelops_worker_`.

Values are plain numbers, updated once for many entries: the counters of prometheus-client would
cost as much as a quick handler. They become metrics when they are collected.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pelops.worker.engine.observer import Observer
from pelops.worker.entry import Entry

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

HANDLER_BOUNDS_S: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
AGE_BOUNDS_S: Final = (0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
_MOST_REASONS: Final = 30  # handlers choose them: the number of series must be bounded
_OTHER: Final = "other"
_LABELS: Final = ("stream", "group")

_COUNTERS: Final = {
    "processed": "Number of entries that were handled without an error and acknowledged.",
    "failed": "Number of handler runs that ended in an error, a retry or a rejection.",
    "retried": "Number of failed runs after which this worker retries the entry.",
    "disowned": (
        "Number of entries that belonged to another consumer before this worker settled them."
    ),
    "received": "Number of entries delivered to this worker.",
    "reclaimed": "Number of entries delivered to this worker that had been delivered before.",
    "acknowledged": (
        "Number of acknowledgements sent, including those of entries that were not pending."
    ),
}
_GAUGES: Final = {
    "in_flight": "Number of entries whose handler was running at the last exchange with Redis.",
    "waiting": "Number of entries that wait for a free slot, a backoff or their acknowledgement.",
    "blocked_seconds": "Longest time that the event loop was blocked, in seconds.",
}


class HistogramCounts:
    """Number of values up to each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.sum = 0.0
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # the last: all values

    def add(self, values: Iterable[float]) -> None:
        """Count these values; several in one call are cheaper."""
        ordered = sorted(values)
        counts = self._counts
        for at, bound in enumerate(self._bounds):
            counts[at] += bisect_right(ordered, bound)
        counts[-1] += len(ordered)
        self.sum += sum(ordered)

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds, each with the number of values that do not exceed it."""
        names = [*map(str, self._bounds), "+Inf"]
        return list(zip(names, self._counts, strict=True))


class Metrics(Observer):
    """Counts what one worker does.

    The age of a copy is that of the entry that a producer added.
    """

    def __init__(self, *, stream: str = "", group: str = "") -> None:
        self.labels = (stream, group)
        self.counts = dict.fromkeys(_COUNTERS, 0)
        self.gauges = dict.fromkeys(_GAUGES, 0.0)
        self.rejections: dict[str, int] = {}
        self.refusals: dict[tuple[str, str], int] = {}
        self.seconds = HistogramCounts(HANDLER_BOUNDS_S)
        self.ages = HistogramCounts(AGE_BOUNDS_S)

    def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
        self.counts["processed"] += len(entries)
        self.seconds.add(seconds)
        self.ages.add(_ages_s(entries, time.time()))

    def failed(self, entry: Entry, seconds: float, error: BaseException) -> None:
        self.counts["failed"] += 1
        self.seconds.add((seconds,))

    def retried(self, entry: Entry, wait_s: float) -> None:
        self.counts["retried"] += 1

    def rejected(self, entry: Entry, reason: str) -> None:
        known = self.rejections
        name = reason if reason in known or len(known) < _MOST_REASONS else _OTHER
        known[name] = known.get(name, 0) + 1

    def disowned(self, entry: Entry) -> None:
        self.counts["disowned"] += 1

    def acknowledged(self, sent: int, pending: int) -> None:
        self.counts["acknowledged"] += sent

    def received(self, entries: int, reclaimed: int) -> None:
        self.counts["received"] += entries
        self.counts["reclaimed"] += reclaimed

    def in_flight(self, running: int, waiting: int) -> None:
        self.gauges["in_flight"] = running
        self.gauges["waiting"] = waiting

    def refused(self, what: str, error: BaseException) -> None:
        key = (what, type(error).__name__)
        self.refusals[key] = self.refusals.get(key, 0) + 1

    def blocked(self, seconds: float) -> None:
        self.gauges["blocked_seconds"] = max(self.gauges["blocked_seconds"], seconds)


def _ages_s(entries: Sequence[Entry], now_s: float) -> list[float]:
    now_ms = now_s * 1000
    ages_s = [
        # Only an entry that runs in isolation may be a copy, whose original ID is older. The ID
        # `ms-seq` is parsed as `ms.seq`, the fastest way; the error is below 1 ms.
        entry.age_s
        if entry.runs_isolated
        else (now_ms - float(entry.raw_id.replace(b"-", b"."))) / 1000
        for entry in entries
    ]
    return ages_s if min(ages_s, default=0) >= 0 else [max(age_s, 0.0) for age_s in ages_s]


class Exposition:
    """The collector for prometheus-client: metrics of all workers of this process."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Metrics] = {}

    def of(self, stream: str, group: str) -> Metrics:
        """The metrics of this group; all its workers in this process share them."""
        return self._known.setdefault((stream, group), Metrics(stream=stream, group=group))

    def describe(self) -> Iterator[Metric]:
        """Return the metrics, from which prometheus-client registers the names."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client, perhaps from another thread."""
        all_of_them = list(self._known.values())
        yield from _counters(all_of_them)
        yield from _gauges(all_of_them)
        yield from _histograms(all_of_them)


def _counters(known: list[Metrics]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, help_text in _COUNTERS.items():
        family = CounterMetricFamily(f"pelops_worker_{name}", help_text, labels=_LABELS)
        for one in known:
            family.add_metric(one.labels, one.counts[name])
        yield family
    rejected = CounterMetricFamily(
        "pelops_worker_rejected",
        "Number of entries that this worker moved to the dead-letter stream, by reason.",
        labels=(*_LABELS, "reason"),
    )
    refused = CounterMetricFamily(
        "pelops_worker_refused",
        "Number of requests that Redis refused, or whose outcome is unknown, by request and error.",
        labels=(*_LABELS, "what", "error"),
    )
    for metrics in known:
        for reason, count in metrics.rejections.copy().items():
            rejected.add_metric((*metrics.labels, reason), count)
        for what, count in metrics.refusals.copy().items():
            refused.add_metric((*metrics.labels, *what), count)
    yield from (rejected, refused)


def _gauges(known: list[Metrics]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for name, help_text in _GAUGES.items():
        family = GaugeMetricFamily(f"pelops_worker_{name}", help_text, labels=_LABELS)
        for one in known:
            family.add_metric(one.labels, one.gauges[name])
        yield family


def _histograms(known: list[Metrics]) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    seconds = HistogramMetricFamily(
        "pelops_worker_handler_seconds",
        "Duration of one run of the handler, in seconds.",
        labels=_LABELS,
    )
    ages = HistogramMetricFamily(
        "pelops_worker_entry_age_seconds",
        "Age of entries when they were acknowledged, in seconds, by this machine's clock.",
        labels=_LABELS,
    )
    for one in known:
        seconds.add_metric(one.labels, one.seconds.buckets(), one.seconds.sum)
        ages.add_metric(one.labels, one.ages.buckets(), one.ages.sum)
    yield from (seconds, ages)


_EXPOSITIONS: Final[dict[int, tuple[Any, Exposition]]] = {}  # by id() of the registry


def build_metrics(
    stream: str, group: str, *, registry: CollectorRegistry | None = None
) -> Observer:
    """Return an observer that counts for Prometheus. Without prometheus-client it does nothing.

    Args:
        registry: default: the default registry of prometheus-client.
    """
    if find_spec("prometheus_client") is None:
        return Observer()
    return _expose(registry).of(stream, group)


def _expose(registry: CollectorRegistry | None) -> Exposition:
    # Imported late: it would add a third to the import time of the worker.
    from prometheus_client import REGISTRY

    where = REGISTRY if registry is None else registry
    if id(where) not in _EXPOSITIONS:
        exposition = Exposition()
        where.register(exposition)
        _EXPOSITIONS[id(where)] = (where, exposition)
    return _EXPOSITIONS[id(where)][1]


def render_metrics(registry: CollectorRegistry | None = None) -> bytes:
    """Return all metrics of this process as text; empty without prometheus-client."""
    if find_spec("prometheus_client") is None:
        return b""
    from prometheus_client import REGISTRY, generate_latest

    return generate_latest(REGISTRY if registry is None else registry)
