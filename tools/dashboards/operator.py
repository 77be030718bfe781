"""The dashboard of the operator itself: its replicas, its loops, Redis and the API server."""

from __future__ import annotations

from typing import Final

from tools.dashboards.model import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    Dashboard,
    Query,
    Row,
    Unit,
    Variable,
    or_none,
    red_below,
    stat,
    time_series,
    warn_from,
)

_SELECTED: Final = 'pod=~"$pod"'


def _rate(metric: str, by: str = "", more: str = "") -> str:
    grouped = f" by ({by}) " if by else ""
    return f"sum{grouped}(rate({metric}{{{_SELECTED}{more}}}[$__rate_interval]))"


def _quantile(quantile: float, histogram: str) -> str:
    buckets = _rate(f"{histogram}_bucket", "le")
    return f"histogram_quantile({quantile}, {buckets})"


def _quantiles(histogram: str) -> tuple[Query, ...]:
    return (
        Query(expression=_quantile(0.5, histogram), legend="median", color=GREEN),
        Query(expression=_quantile(0.99, histogram), legend="99th percentile", color=ORANGE),
    )


def _of_replica(metric: str, function: str = "") -> str:
    """Select a metric of the processes that are replicas of the operator."""
    selected = f"{metric}{{{_SELECTED}}}"
    value = f"{function}({selected}[$__rate_interval])" if function else selected
    return f"{value} and on (pod) pelops_members{{{_SELECTED}}}"


_FAILED: Final = _rate("pelops_reconciles_total", more=',outcome!="done"')
_API_ERRORS: Final = _rate("pelops_kubernetes_requests_total", more=',code=~"5..|none"')

_TILES: Final = (
    stat(
        "Replicas",
        f"count(pelops_members{{{_SELECTED}}})",
        "Number of replicas that answer to Prometheus.",
        steps=red_below(1, 2),
    ),
    stat(
        "Replicas with a Lease",
        f"max(pelops_members{{{_SELECTED}}})",
        "Number of replicas that renew their Lease. It differs from the replicas that answer "
        "while one starts or hangs.",
    ),
    stat(
        "Version",
        f"max by (version, revision) (pelops_build_info{{{_SELECTED}}})",
        "The version of the replicas. There are two during an upgrade.",
        unit=Unit.NONE,
        show_label="version",
    ),
    stat("Groups", f"max(pelops_resources{{{_SELECTED}}})", "Number of StreamConsumerGroups."),
    stat(
        "Failed reconciles",
        f"{_FAILED} / {_rate('pelops_reconciles_total')}",
        "Share of the reconciles that did not end well.",
        unit=Unit.RATIO,
        steps=warn_from(0.01, 0.1),
    ),
    stat(
        "API errors",
        f"({_API_ERRORS} or vector(0)) / {_rate('pelops_kubernetes_requests_total')}",
        "Share of the requests to the API server that had no answer, or an answer 5xx.",
        unit=Unit.RATIO,
        steps=warn_from(0.01, 0.05),
    ),
    stat(
        "Longest stall",
        f"max(pelops_loop_stalled_seconds{{{_SELECTED}}})",
        "Seconds since a loop last made progress while work waits.",
        unit=Unit.SECONDS,
        steps=warn_from(10, 60),
    ),
    stat(
        "Last watch activity",
        f"time() - min(pelops_watch_last_activity_timestamp_seconds{{{_SELECTED}}})",
        "Seconds since the quietest watch of the API server was last active. A replica that "
        "receives no changes stays far above a minute.",
        unit=Unit.SECONDS,
        steps=warn_from(90, 120),
    ),
)

_LOOPS: Final = (
    time_series(
        "Reconciles by outcome",
        (Query(expression=_rate("pelops_reconciles_total", "outcome"), legend="{{outcome}}"),),
        "Number of reconciles per second, by outcome.",
        unit=Unit.PER_SECOND,
    ),
    time_series(
        "Duration of a reconcile",
        _quantiles("pelops_reconcile_seconds"),
        "Seconds that one reconcile takes.",
        unit=Unit.SECONDS,
    ),
    time_series(
        "Waiting for a reconcile",
        (
            Query(
                expression=f"sum by (kind) (pelops_queue_depth{{{_SELECTED}}})",
                legend="{{kind}}",
            ),
        ),
        "Number of resources that are due and wait to be reconciled, by kind.",
    ),
    time_series(
        "Waiting work items",
        (
            Query(
                expression=f"sum by (loop) (pelops_work_items_waiting{{{_SELECTED}}})",
                legend="{{loop}}",
            ),
        ),
        "Number of work items that are due and wait because a concurrency limit is reached, by "
        "loop.",
    ),
    time_series(
        "Stalled loops",
        (
            Query(
                expression=f"max by (loop) (pelops_loop_stalled_seconds{{{_SELECTED}}})",
                legend="{{loop}}",
            ),
        ),
        "Seconds since each loop last made progress while work waits; 0 when none waits.",
        unit=Unit.SECONDS,
    ),
    time_series(
        "Failures of loops",
        (
            Query(
                expression=or_none(
                    f"{_rate('pelops_work_item_failures_total', 'loop, outcome')} > 0", "loop"
                ),
                legend="work items: {{loop}} {{outcome}}",
            ),
            Query(
                expression=or_none(f"{_rate('pelops_loop_restarts_total', 'loop')} > 0", "loop"),
                legend="restarts: {{loop}}",
            ),
        ),
        "Number of work items per second that did not complete, by loop and outcome, and restarts "
        "of loops after an error.",
        unit=Unit.PER_SECOND,
    ),
)

_RECOVERY: Final = (
    time_series(
        "From the death of a pod to recovery",
        _quantiles("pelops_recovery_latency_seconds"),
        "Seconds from the time at which a replica learned of the death of a pod until the entries "
        "of the pod were deliverable again.",
        unit=Unit.SECONDS,
    ),
    time_series(
        "Scans by trigger",
        (
            Query(
                expression=_rate("pelops_scans_total", "trigger, outcome"),
                legend="{{trigger}}, {{outcome}}",
            ),
        ),
        "Number of scans for stuck entries per second, by trigger and outcome.",
        unit=Unit.PER_SECOND,
    ),
    time_series(
        "Duration of a scan",
        _quantiles("pelops_scan_duration_seconds"),
        "Seconds that one scan of a group takes.",
        unit=Unit.SECONDS,
    ),
    time_series(
        "Results of recovery",
        (
            Query(
                expression=_rate("pelops_recovery_verdicts_total", "verdict"),
                legend="{{verdict}}",
            ),
        ),
        "Number of results of recovery scripts for single entries per second.",
        unit=Unit.PER_SECOND,
    ),
    time_series(
        "Scaling decisions",
        (Query(expression=_rate("pelops_scaling_decisions_total", "reason"), legend="{{reason}}"),),
        "Number of decisions of automatic scaling per second, by reason.",
        unit=Unit.PER_SECOND,
    ),
    time_series(
        "Writes to scale subresources",
        (
            Query(
                expression=_rate("pelops_scale_writes_total", "direction", ',direction="up"'),
                legend="{{direction}}",
                color=BLUE,
            ),
            Query(
                expression=_rate("pelops_scale_writes_total", "direction", ',direction="down"'),
                legend="{{direction}}",
                color=ORANGE,
            ),
        ),
        "Number of changes of the number of workers per second, by direction.",
        unit=Unit.PER_SECOND,
    ),
)

_SERVERS: Final = (
    time_series(
        "Time in Redis by script",
        (
            Query(
                expression=_rate("pelops_redis_call_seconds_total", "script"),
                legend="{{script}}",
            ),
        ),
        "Seconds per second that calls of Lua scripts take.",
        unit=Unit.SECONDS_PER_SECOND,
    ),
    time_series(
        "Calls of scripts that did not end well",
        (
            Query(
                expression=or_none(
                    _rate("pelops_script_outcomes_total", "outcome", ',outcome!="ok"'), "outcome"
                ),
                legend="{{outcome}}",
            ),
        ),
        "Number of calls of Lua scripts per second that Redis refused, that were not executed "
        "(unavailable), or whose outcome is unknown.",
        unit=Unit.PER_SECOND,
    ),
    time_series(
        "API requests by code",
        (Query(expression=_rate("pelops_kubernetes_requests_total", "code"), legend="{{code}}"),),
        "Number of requests to the API server per second, by HTTP status code; none stands for no "
        "answer.",
        unit=Unit.PER_SECOND,
    ),
    time_series(
        "API requests by resource",
        (
            Query(
                expression=_rate("pelops_kubernetes_requests_total", "resource"),
                legend="{{resource}}",
            ),
        ),
        "Number of requests to the API server per second, by resource.",
        unit=Unit.PER_SECOND,
    ),
    time_series(
        "Watches",
        (
            Query(
                expression=f"time() - min by (pod) "
                f"(pelops_watch_last_activity_timestamp_seconds{{{_SELECTED}}})",
                legend="{{pod}}",
            ),
        ),
        "Seconds since the API server last sent anything to the quietest watch of each replica.",
        unit=Unit.SECONDS,
    ),
    time_series(
        "LISTs and restarts of watches",
        (
            Query(
                expression=_rate("pelops_watch_lists_total", "reason"),
                legend="LISTs: {{reason}}",
            ),
            Query(
                expression=or_none(f"{_rate('pelops_watch_restarts_total', 'kind')} > 0", "kind"),
                legend="restarts: {{kind}}",
            ),
        ),
        "Number of full LISTs per second by reason, and restarts of watches by kind after an "
        "error.",
        unit=Unit.PER_SECOND,
    ),
)

_PROCESSES: Final = (
    time_series(
        "CPU",
        (Query(expression=_of_replica("process_cpu_seconds_total", "rate"), legend="{{pod}}"),),
        "Number of cores that each replica uses.",
    ),
    time_series(
        "Memory",
        (Query(expression=_of_replica("process_resident_memory_bytes"), legend="{{pod}}"),),
        "Resident memory of each replica.",
        unit=Unit.BYTES,
    ),
    time_series(
        "Delayed status writes",
        (
            Query(
                expression=or_none(
                    "sum by (namespace, name) (increase(pelops_status_writes_limited_total"
                    f"{{{_SELECTED}}}[$__rate_interval])) > 0",
                    "name",
                ),
                legend="{{namespace}} {{name}}",
                color=RED,
            ),
        ),
        "Number of status writes that the rate limit of a resource delayed, within each interval. "
        "Two writers that disagree about a status cause many.",
    ),
)

OPERATOR: Final = Dashboard(
    name="operator",
    title="Pelops / Operator",
    description="The replicas of the operator: their loops, Redis and the API server.",
    variables=(Variable(name="pod", label="Replica", metric="pelops_members", source="pod"),),
    rows=(
        Row(title="Now", panels=_TILES),
        Row(title="Loops", panels=_LOOPS),
        Row(title="Recovery and scaling", panels=_RECOVERY),
        Row(title="Redis and the API server", panels=_SERVERS),
        Row(title="Processes", panels=_PROCESSES),
    ),
)
