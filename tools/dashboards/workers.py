"""The dashboard of workers on the Python SDK."""

from __future__ import annotations

from typing import Final

from tools.dashboards.model import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Dashboard,
    Query,
    Row,
    Unit,
    Variable,
    or_none,
    stat,
    time_series,
    warn_from,
)

_SELECTED: Final = 'namespace=~"$namespace",stream=~"$stream",group=~"$group"'
_EACH: Final = "stream, group"
_LEGEND: Final = "{{group}}"


def _rate(metric: str, by: str = "") -> str:
    grouped = f" by ({by}) " if by else ""
    return f"sum{grouped}(rate({metric}{{{_SELECTED}}}[$__rate_interval]))"


def _sum(metric: str, by: str = "") -> str:
    grouped = f" by ({by}) " if by else ""
    return f"sum{grouped}({metric}{{{_SELECTED}}})"


def _quantile(quantile: float, histogram: str, by: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({quantile}, {_rate(f'{histogram}_bucket', labels)})"


def _quantiles(histogram: str) -> tuple[Query, ...]:
    shown = ((0.5, "median", GREEN), (0.95, "95th percentile", YELLOW), (0.99, "99th", ORANGE))
    return tuple(
        Query(expression=_quantile(quantile, histogram), legend=legend, color=color)
        for quantile, legend, color in shown
    )


_RUNS: Final = f"({_rate('pelops_worker_processed_total')} + {_rate('pelops_worker_failed_total')})"

_TILES: Final = (
    stat(
        "Workers",
        f"count(pelops_worker_in_flight{{{_SELECTED}}})",
        "Number of workers that answer to Prometheus.",
    ),
    stat(
        "Processed",
        _rate("pelops_worker_processed_total"),
        "Number of entries per second that were handled and acknowledged.",
        unit=Unit.PER_SECOND,
    ),
    stat(
        "Failed runs",
        f"{_rate('pelops_worker_failed_total')} / {_RUNS}",
        "Share of the handler runs that ended in an error, a retry or a rejection.",
        unit=Unit.RATIO,
        steps=warn_from(0.01, 0.05),
    ),
    stat(
        "In flight",
        _sum("pelops_worker_in_flight"),
        "Number of entries whose handler is running.",
    ),
    stat(
        "Duration, 95th percentile",
        _quantile(0.95, "pelops_worker_handler_seconds"),
        "Seconds that 95 of 100 handler runs do not exceed.",
        unit=Unit.SECONDS,
    ),
    stat(
        "Age, 95th percentile",
        _quantile(0.95, "pelops_worker_entry_age_seconds"),
        "Seconds from adding an entry to its acknowledgement that 95 of 100 entries do not exceed.",
        unit=Unit.SECONDS,
    ),
    stat(
        "Dead letters",
        f"round(sum(increase(pelops_worker_rejected_total{{{_SELECTED}}}[$__range]))) or vector(0)",
        "Number of entries that workers moved to the dead-letter stream in the time range shown.",
        steps=warn_from(1),
    ),
    stat(
        "Blocked event loop",
        f"max(pelops_worker_blocked_seconds{{{_SELECTED}}})",
        "Longest time for which the event loop of a worker was blocked.",
        unit=Unit.SECONDS,
        steps=warn_from(1, 10),
    ),
)

WORKERS: Final = Dashboard(
    name="workers",
    title="Pelops / SDK workers",
    description="Workers on the Python SDK: throughput, errors, duration, and saturation.",
    variables=(
        Variable(
            name="namespace",
            label="Namespace",
            metric="pelops_worker_in_flight",
            source="namespace",
        ),
        Variable(
            name="stream",
            label="Stream",
            metric='pelops_worker_in_flight{namespace=~"$namespace"}',
            source="stream",
        ),
        Variable(
            name="group",
            label="Group",
            metric='pelops_worker_in_flight{namespace=~"$namespace",stream=~"$stream"}',
            source="group",
        ),
    ),
    rows=(
        Row(title="Now", panels=_TILES),
        Row(
            title="Throughput",
            panels=(
                time_series(
                    "Processed entries by group",
                    (
                        Query(
                            expression=_rate("pelops_worker_processed_total", _EACH),
                            legend=_LEGEND,
                        ),
                    ),
                    "Number of entries per second that were handled and acknowledged, by group.",
                    unit=Unit.PER_SECOND,
                ),
                time_series(
                    "Processed entries by worker",
                    (
                        Query(
                            expression=_rate("pelops_worker_processed_total", "pod"),
                            legend="{{pod}}",
                        ),
                    ),
                    "Number of entries per second, by worker. Select a group to see fewer.",
                    unit=Unit.PER_SECOND,
                ),
                time_series(
                    "Deliveries",
                    (
                        Query(
                            expression=_rate("pelops_worker_received_total"),
                            legend="received",
                            color=BLUE,
                        ),
                        Query(
                            expression=_rate("pelops_worker_acknowledged_total"),
                            legend="acknowledged",
                            color=GREEN,
                        ),
                        Query(
                            expression=_rate("pelops_worker_reclaimed_total"),
                            legend="delivered before",
                            color=ORANGE,
                        ),
                    ),
                    "Number of entries per second that were delivered to workers, acknowledged, "
                    "and delivered although they had been delivered before.",
                    unit=Unit.PER_SECOND,
                ),
            ),
        ),
        Row(
            title="Errors",
            panels=(
                time_series(
                    "Failed runs",
                    (
                        Query(
                            expression=_rate("pelops_worker_failed_total"),
                            legend="failed",
                            color=RED,
                        ),
                        Query(
                            expression=_rate("pelops_worker_retried_total"),
                            legend="retried",
                            color=ORANGE,
                        ),
                        Query(
                            expression=_rate("pelops_worker_disowned_total"),
                            legend="of another consumer",
                            color=BLUE,
                        ),
                    ),
                    "Number of handler runs per second that failed, that are retried by the same "
                    "worker, and whose entry belonged to another consumer meanwhile.",
                    unit=Unit.PER_SECOND,
                ),
                time_series(
                    "Dead letters by reason",
                    (
                        Query(
                            expression=or_none(
                                _rate("pelops_worker_rejected_total", "group, reason"), "group"
                            ),
                            legend="{{group}}: {{reason}}",
                        ),
                    ),
                    "Number of entries per second that workers moved to the dead-letter stream, by "
                    "group and reason.",
                    unit=Unit.PER_SECOND,
                ),
                time_series(
                    "Requests that Redis refused",
                    (
                        Query(
                            expression=or_none(
                                _rate("pelops_worker_refused_total", "what, error"), "what"
                            ),
                            legend="{{what}} {{error}}",
                        ),
                    ),
                    "Number of requests per second that Redis refused, or whose outcome is "
                    "unknown, by request and error.",
                    unit=Unit.PER_SECOND,
                ),
            ),
        ),
        Row(
            title="Duration",
            panels=(
                time_series(
                    "Duration of a handler run",
                    _quantiles("pelops_worker_handler_seconds"),
                    "Seconds that one run of the handler takes.",
                    unit=Unit.SECONDS,
                ),
                time_series(
                    "95th percentile by group",
                    (
                        Query(
                            expression=_quantile(0.95, "pelops_worker_handler_seconds", _EACH),
                            legend=_LEGEND,
                        ),
                    ),
                    "Seconds that 95 of 100 handler runs do not exceed, by group.",
                    unit=Unit.SECONDS,
                ),
                time_series(
                    "Age of entries at acknowledgement",
                    _quantiles("pelops_worker_entry_age_seconds"),
                    "Seconds from adding an entry to its acknowledgement.",
                    unit=Unit.SECONDS,
                ),
            ),
        ),
        Row(
            title="Saturation",
            panels=(
                time_series(
                    "In flight",
                    (
                        Query(
                            expression=_sum("pelops_worker_in_flight", _EACH),
                            legend=_LEGEND,
                        ),
                    ),
                    "Number of entries whose handler is running, by group.",
                ),
                time_series(
                    "Waiting in workers",
                    (
                        Query(
                            expression=_sum("pelops_worker_waiting", _EACH),
                            legend=_LEGEND,
                        ),
                    ),
                    "Number of entries that wait for a free slot, a backoff or their "
                    "acknowledgement, by group.",
                ),
                time_series(
                    "Blocked event loops",
                    (
                        Query(
                            expression=or_none(
                                f"max by (pod) (pelops_worker_blocked_seconds{{{_SELECTED}}}) > 0",
                                "pod",
                            ),
                            legend="{{pod}}",
                        ),
                    ),
                    "Longest time for which the event loop of each worker was blocked, if it was.",
                    unit=Unit.SECONDS,
                ),
            ),
        ),
    ),
)
