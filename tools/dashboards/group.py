"""The dashboard of one group: what happens to its entries, and why."""

from __future__ import annotations

from typing import Final

from tools.dashboards.fleet import READY_TEXTS, prefer_bad
from tools.dashboards.model import (
    BLUE,
    GRAY,
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
    red_below,
    stat,
    table,
    time_series,
    warn_from,
)

_SELECTED: Final = 'namespace="$namespace",name="$name"'


def _fact(metric: str, by: str = "", more: str = "") -> str:
    """Select the largest of what the replicas of the operator export."""
    grouped = f" by ({by}) " if by else ""
    return f"max{grouped}({metric}{{{_SELECTED}{more}}})"


def _increase(metric: str, by: str = "") -> str:
    grouped = f" by ({by}) " if by else ""
    return f"sum{grouped}(increase({metric}{{{_SELECTED}}}[$__rate_interval]))"


def _fact_rate(metric: str) -> str:
    return f"max(rate({metric}{{{_SELECTED}}}[$__rate_interval]))"


_REQUEUED: Final = _increase("pelops_requeued_total", "trigger")
_RELEASED: Final = _increase("pelops_released_total", "trigger")
_BACKLOG: Final = f"({_fact('pelops_lag_entries')} >= 0) + {_fact('pelops_pending_entries')}"

_TILES: Final = (
    stat(
        "Ready",
        f"min(pelops_ready{{{_SELECTED}}})",
        "The condition Ready. The table of conditions shows the reason.",
        unit=Unit.NONE,
        steps=red_below(1),
        texts=READY_TEXTS,
    ),
    stat("Backlog", _BACKLOG, "Number of undelivered and pending entries."),
    stat(
        "Oldest undelivered",
        _fact("pelops_oldest_undelivered_seconds"),
        "Seconds since the oldest undelivered entry was added.",
        unit=Unit.SECONDS,
        steps=warn_from(60, 600),
    ),
    stat(
        "Oldest pending",
        _fact("pelops_oldest_pending_seconds"),
        "Seconds since the oldest pending entry was added.",
        unit=Unit.SECONDS,
        steps=warn_from(300, 3600),
    ),
    stat(
        "Stuck entries",
        _fact("pelops_stuck_entries"),
        "Number of stuck entries that the last scan left pending.",
        steps=warn_from(1),
    ),
    stat(
        "Since the last scan",
        f"time() - {_fact('pelops_last_scan_timestamp_seconds')}",
        "Seconds since the last scan for stuck entries began.",
        unit=Unit.SECONDS,
        steps=warn_from(120, 300),
    ),
    stat(
        "Dead letters",
        _fact("pelops_dead_letters"),
        "Number of entries in the dead-letter stream.",
        steps=warn_from(1),
    ),
    stat("Workers", _fact("pelops_worker_replicas"), "Number of worker pods."),
)

_BACKLOG_PANELS: Final = (
    time_series(
        "Backlog",
        (
            Query(expression=_fact("pelops_lag_entries"), legend="undelivered", color=BLUE),
            Query(expression=_fact("pelops_pending_entries"), legend="pending", color=GREEN),
            Query(expression=_fact("pelops_stuck_entries"), legend="stuck", color=RED),
        ),
        "Number of entries by state. Pending entries include the stuck ones.",
        width=12,
    ),
    time_series(
        "Ages",
        (
            Query(
                expression=_fact("pelops_oldest_undelivered_seconds"),
                legend="oldest undelivered",
                color=BLUE,
            ),
            Query(
                expression=_fact("pelops_oldest_pending_seconds"),
                legend="oldest pending",
                color=GREEN,
            ),
            Query(
                expression=_fact("pelops_oldest_pending_idle_seconds"),
                legend="without a heartbeat",
                color=ORANGE,
            ),
            Query(
                expression=_fact("pelops_processing_timeout_seconds"),
                legend="processing timeout",
                color=RED,
                dashed=True,
            ),
        ),
        "Seconds since the oldest entries were added, and since the last delivery or heartbeat of "
        "the pending entry with the lowest ID. An entry of a live worker is stuck when it reaches "
        "the processing timeout.",
        unit=Unit.SECONDS,
        width=12,
    ),
    time_series(
        "Entries per second",
        (
            Query(expression=_fact_rate("pelops_entries_added_total"), legend="added", color=BLUE),
            Query(
                expression=_fact_rate("pelops_entries_read_total"), legend="delivered", color=GREEN
            ),
            Query(expression=_fact("pelops_acknowledge_rate"), legend="acknowledged", color=YELLOW),
        ),
        "Number of entries per second. Redis counts added and delivered entries. The rate of "
        "acknowledgements is measured for groups with scaling in mode Auto only.",
        unit=Unit.PER_SECOND,
        width=12,
    ),
    time_series(
        "Entries by stream",
        (
            Query(
                expression=_fact("pelops_stream_lag_entries", "stream"),
                legend="undelivered, {{stream}}",
            ),
            Query(
                expression=_fact("pelops_stream_pending_entries", "stream"),
                legend="pending, {{stream}}",
            ),
        ),
        "Number of undelivered and pending entries of the stream (main) and of the retry stream, "
        "if there is one.",
        width=12,
    ),
)

_WORKERS: Final = (
    time_series(
        "Workers",
        (
            Query(expression=_fact("pelops_worker_replicas"), legend="pods", color=GREEN),
            Query(expression=_fact("pelops_desired_replicas"), legend="wanted", color=BLUE),
            Query(
                expression=_fact("pelops_min_replicas"),
                legend="minimum",
                color=GRAY,
                dashed=True,
            ),
            Query(
                expression=_fact("pelops_max_replicas"),
                legend="maximum",
                color=RED,
                dashed=True,
            ),
        ),
        "Number of worker pods that exist and that are wanted, and the limits of scaling.",
    ),
    time_series(
        "Demand for workers",
        (
            Query(expression=_fact("pelops_scaling_demand"), legend="demand", color=ORANGE),
            Query(
                expression=_fact("pelops_max_replicas"), legend="maximum", color=RED, dashed=True
            ),
        ),
        "Number of workers that the backlog calls for, before rounding and limits. A demand above "
        "the maximum means that more workers would help.",
    ),
    time_series(
        "Backlog that scaling counts",
        (
            Query(
                expression=_fact("pelops_backlog_entries", "part", ',part="undelivered"'),
                legend="{{part}}",
                color=BLUE,
            ),
            Query(
                expression=_fact("pelops_backlog_entries", "part", ',part="pending"'),
                legend="{{part}}",
                color=GREEN,
            ),
            Query(
                expression=_fact("pelops_backlog_entries", "part", ',part="waiting"'),
                legend="{{part}}",
                color=ORANGE,
            ),
        ),
        "Number of entries by part: undelivered, held by workers that may be alive, and waiting "
        "for recovery.",
        stacked=True,
    ),
)

_RECOVERY: Final = (
    time_series(
        "Recovered entries by trigger",
        (
            Query(
                expression=f"({_REQUEUED} + {_RELEASED}) or {_REQUEUED} or {_RELEASED}",
                legend="{{trigger}}",
            ),
        ),
        "Number of entries that were requeued or released within each interval, by the trigger of "
        "the scan.",
    ),
    time_series(
        "Entries left to live workers",
        (
            Query(
                expression=_increase("pelops_skipped_alive_total"),
                legend="worker may be alive",
                color=GREEN,
            ),
            Query(
                expression=_increase("pelops_already_handled_total"),
                legend="handled by another client",
                color=BLUE,
            ),
            Query(
                expression=_increase("pelops_payload_gone_total"),
                legend="body deleted",
                color=RED,
            ),
        ),
        "Number of pending entries that scans left alone, that another client moved first, or "
        "whose body had been deleted, within each interval.",
    ),
    time_series(
        "Dead letters by reason",
        (
            Query(
                expression=_increase("pelops_dead_lettered_total", "reason"),
                legend="{{reason}}",
            ),
        ),
        "Number of dead letters that the operator made within each interval, by reason. Those of "
        "workers are on the dashboard of workers.",
    ),
    time_series(
        "Age of the oldest dead letter",
        (
            Query(
                expression=_fact("pelops_oldest_dead_letter_seconds"),
                legend="oldest dead letter",
                color=ORANGE,
            ),
            Query(
                expression=_fact("pelops_dead_letter_retention_seconds"),
                legend="retention",
                color=RED,
                dashed=True,
            ),
        ),
        "Seconds since the oldest dead letter was added. At the retention it is deleted.",
        unit=Unit.SECONDS,
    ),
    time_series(
        "Offered entries",
        (
            Query(expression=_fact("pelops_offered_entries"), legend="on offer", color=ORANGE),
            Query(
                expression=f"{_increase('pelops_offered_total')} or vector(0)",
                legend="offered",
                color=BLUE,
            ),
        ),
        "Number of stuck entries that are offered to claiming workers and not taken yet, and that "
        "were offered within each interval (strategy Release).",
    ),
    time_series(
        "Consumers",
        (
            Query(expression=_fact("pelops_consumers"), legend="consumers", color=BLUE),
            Query(expression=_fact("pelops_worker_replicas"), legend="pods", color=GREEN),
        ),
        "Number of consumers of the group in Redis, beside the worker pods. The operator deletes "
        "consumers of ended pods when they have no pending entries.",
    ),
)

_CONDITIONS: Final = (
    table(
        "Conditions",
        (
            Query(
                expression=prefer_bad(
                    "type",
                    f'pelops_condition{{{_SELECTED},kind="StreamConsumerGroup"',
                    "type, status, reason",
                ),
                legend="",
            ),
        ),
        "All conditions of the resource with their reasons.",
        labels={"type": "Condition", "status": "Status", "reason": "Reason"},
        width=12,
    ),
    time_series(
        "Dry run",
        (
            Query(
                expression=or_none(
                    f"sum by (action, reason) (pelops_dry_run_entries{{{_SELECTED}}})", "action"
                ),
                legend="{{action}} {{reason}}",
            ),
        ),
        "Number of stuck entries that recovery would move or keep, by action and reason; 0 unless "
        "spec.recovery.dryRun is true.",
        width=12,
    ),
)

GROUP: Final = Dashboard(
    name="group",
    title="Pelops / Group",
    description="One StreamConsumerGroup: what happens to its entries, and why.",
    variables=(
        Variable(
            name="namespace",
            label="Namespace",
            metric="pelops_ready",
            source="namespace",
            several=False,
            sample="shop",
        ),
        Variable(
            name="name",
            label="Name",
            metric='pelops_ready{namespace="$namespace"}',
            source="name",
            several=False,
            sample="order-processing",
        ),
    ),
    rows=(
        Row(title="Now", panels=_TILES),
        Row(title="Entries", panels=_BACKLOG_PANELS),
        Row(title="Workers", panels=_WORKERS),
        Row(title="Recovery and dead letters", panels=_RECOVERY),
        Row(title="Conditions", panels=_CONDITIONS),
    ),
)
