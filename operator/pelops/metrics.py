"""Every metric of the operator, in one place. Names begin with `pelops_`.

The replica that observes a group exports its facts, and two replicas may do so for a short time.
Use `max by (namespace, name)` for facts, and `sum` for counters of work done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

OTHER_REASON: Final = "Other"  # in place of a reason that is not one of Pelops' own


class GroupSeries(Collector):
    """The series of all resources of one metric, each stored as a number.

    With thousands of resources and twenty metrics each, this costs a third of what objects of
    prometheus_client would.
    """

    family: ClassVar[type[GaugeMetricFamily | CounterMetricFamily]]

    def __init__(self, name: str, documentation: str, labels: Iterable[str] = ()) -> None:
        """`labels` are the labels in addition to namespace and name."""
        self.name = name
        self.labelnames = ("namespace", "name", *labels)
        self._documentation = documentation
        self._values: dict[tuple[str, ...], float] = {}
        self._more: set[tuple[str, ...]] = set()  # values of the other labels that were ever used
        REGISTRY.register(self)

    def value(self, namespace: str, name: str, *labels: str) -> float | None:
        """Return the number; None if there is no such series."""
        return self._values.get((namespace, name, *labels))

    def forget(self, namespace: str, name: str, *labels: str) -> None:
        """Drop the series with these labels; without labels, all series of the resource."""
        for more in (labels,) if labels else self._more:
            self._values.pop((namespace, name, *more), None)

    def describe(self) -> Iterator[Metric]:
        """The family without series."""
        yield self.family(self.name, self._documentation, labels=self.labelnames)

    def collect(self) -> Iterator[Metric]:
        """The family with all series."""
        family = self.family(self.name, self._documentation, labels=self.labelnames)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        yield family

    def _put(self, labels: tuple[str, ...], value: float) -> None:
        self._values[labels] = value
        self._more.add(labels[2:])


class GroupGauge(GroupSeries):
    """A gauge with a series for each resource."""

    family = GaugeMetricFamily

    def set(self, value: float, namespace: str, name: str, *labels: str) -> None:
        """Set the number."""
        self._put((namespace, name, *labels), value)


class GroupCounter(GroupSeries):
    """A counter with a series for each resource, which can begin at 0.

    Prometheus does not count the first value of a counter as an increase. If that were 1, the first
    dead letter of a group would raise no alert.
    """

    family = CounterMetricFamily

    def begin(self, namespace: str, name: str, *labels: str) -> None:
        """Create the series with these labels at 0, unless it exists."""
        self._put((namespace, name, *labels), self.value(namespace, name, *labels) or 0.0)

    def add(self, namespace: str, name: str, *labels: str, count: float = 1.0) -> None:
        """Increase the counter."""
        before = self.value(namespace, name, *labels) or 0.0
        self._put((namespace, name, *labels), before + count)

    def follow(self, total: float, namespace: str, name: str) -> None:
        """Set the counter to a total that the server has counted."""
        self._put((namespace, name), total)


class ConditionMetric(Collector):
    """The conditions of each resource: 1 for each that it has."""

    labelnames = ("kind", "namespace", "name", "type", "status", "reason")

    def __init__(self) -> None:
        self._conditions: dict[tuple[str, str, str], tuple[tuple[str, str, str], ...]] = {}
        self._shared: dict[tuple[str, str, str], tuple[str, str, str]] = {}
        REGISTRY.register(self)

    def show(
        self, kind: str, namespace: str, name: str, conditions: Iterable[tuple[str, str, str]]
    ) -> None:
        """Replace the conditions of a resource, each given as type, status and reason.

        Reasons must be from a fixed set, because each is a label value.
        """
        shown = tuple(self._shared.setdefault(one, one) for one in conditions)
        self._conditions[kind, namespace, name] = shown

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Drop the series of a resource."""
        self._conditions.pop((kind, namespace, name), None)

    def describe(self) -> Iterator[Metric]:
        """The family without series."""
        yield self._family()

    def collect(self) -> Iterator[Metric]:
        """The family with all series."""
        family = self._family()
        for resource, conditions in list(self._conditions.items()):
            for condition in conditions:
                family.add_metric((*resource, *condition), 1.0)
        yield family

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "pelops_condition",
            "1 for each condition that a resource has, by type, status and reason; the reason is "
            "Other for a reason that Kubernetes gave.",
            labels=self.labelnames,
        )


CONDITIONS = ConditionMetric()

BUILD_INFO = Gauge(
    "pelops_build_info",
    "Always 1, with these labels: version of Pelops, commit (unknown if it was not built from a "
    "release), and version of Python.",
    ["version", "revision", "python"],
)
KUBERNETES_REQUESTS = Counter(
    "pelops_kubernetes_requests_total",
    "Number of requests to the API server, by HTTP status code; the code is none without an "
    "answer.",
    ["verb", "resource", "code"],
)
RECONCILES = Counter(
    "pelops_reconciles_total",
    "Number of reconciles of a resource, by outcome: done, failed, timeout or error (unexpected).",
    ["outcome"],
)
RECONCILE_SECONDS = Histogram(
    "pelops_reconcile_seconds",
    "Duration of one reconcile of a resource, in seconds.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
WORK_ITEM_FAILURES = Counter(
    "pelops_work_item_failures_total",
    "Number of work items (the work of a loop on one resource) that did not complete, by outcome: "
    "error (unexpected) or timeout (cancelled at the deadline).",
    ["loop", "outcome"],
)
WORK_ITEMS_WAITING = Gauge(
    "pelops_work_items_waiting",
    "Number of work items of a loop that are due and wait because a concurrency limit is reached.",
    ["loop"],
)
LOOP_STALLED = Gauge(
    "pelops_loop_stalled_seconds",
    "Seconds since a loop last made progress while work items wait; 0 when none waits.",
    ["loop"],
)
LOOP_RESTARTS = Counter(
    "pelops_loop_restarts_total", "Number of restarts of a loop after an error.", ["loop"]
)
QUEUE_DEPTH = Gauge(
    "pelops_queue_depth",
    "Number of resources of a kind that are due and wait to be reconciled.",
    ["kind"],
)
RESOURCES = Gauge("pelops_resources", "Number of StreamConsumerGroups in the cache.")
MEMBERS = Gauge(
    "pelops_members", "Number of operator replicas that renew their Lease, including this one."
)
STATUS_WRITES_LIMITED = GroupCounter(
    "pelops_status_writes_limited_total",
    "Number of status writes that the rate limit of a resource delayed.",
)
RESYNC_AGE = Gauge(
    "pelops_resync_timestamp_seconds",
    "Unix time of the last comparison of the cache with a full LIST, in seconds.",
    ["kind"],
)
WATCH_ACTIVITY = Gauge(
    "pelops_watch_last_activity_timestamp_seconds",
    "Unix time of the last event, watch response or LIST of a kind, in seconds.",
    ["kind"],
)
WATCH_RESTARTS = Counter(
    "pelops_watch_restarts_total",
    "Number of restarts of the watch of a kind after an error.",
    ["kind"],
)
WATCH_LISTS = Counter(
    "pelops_watch_lists_total",
    "Number of full LISTs of a kind, by reason: gap (watch events were missed) or resync.",
    ["kind", "reason"],
)

GROUP_FACTS = {
    "ready": GroupGauge("pelops_ready", "1 when the condition Ready is True, else 0."),
    "lag": GroupGauge(
        "pelops_lag_entries",
        "Number of undelivered entries of the stream and the retry stream; NaN when unknown.",
    ),
    "pending": GroupGauge(
        "pelops_pending_entries",
        "Number of pending entries (delivered, not acknowledged) of the stream and the retry "
        "stream.",
    ),
    "oldest": GroupGauge(
        "pelops_oldest_pending_seconds",
        "Seconds since the oldest pending entry of the stream and the retry stream was added, by "
        "its ID; 0 when no entry is pending.",
    ),
    "oldest_idle": GroupGauge(
        "pelops_oldest_pending_idle_seconds",
        "Seconds since the last delivery or heartbeat of the pending entry with the lowest ID; the "
        "longer of the stream and the retry stream; 0 when no entry is pending.",
    ),
    "oldest_undelivered": GroupGauge(
        "pelops_oldest_undelivered_seconds",
        "Seconds since the oldest undelivered entry of the stream and the retry stream was added, "
        "by its ID; 0 when every entry was delivered, NaN when unknown.",
    ),
    "stuck": GroupGauge(
        "pelops_stuck_entries",
        "Number of stuck entries that the last scan left pending; NaN when unknown.",
    ),
    "last_scan": GroupGauge(
        "pelops_last_scan_timestamp_seconds",
        "Unix time of the start of the last scan of the group that any operator replica completed, "
        "up to 30 s late, in seconds on the clock of Redis; NaN when unknown.",
    ),
    "oldest_dead_letter": GroupGauge(
        "pelops_oldest_dead_letter_seconds",
        "Seconds since the oldest dead letter was added to the dead-letter stream; 0 when there is "
        "none.",
    ),
    "consumers": GroupGauge("pelops_consumers", "Number of consumers of the group."),
    "dead_letters": GroupGauge(
        "pelops_dead_letters", "Number of entries in the dead-letter stream."
    ),
    "offered": GroupGauge(
        "pelops_offered_entries",
        "Number of stuck entries that are offered to claiming workers and not taken yet.",
    ),
    "replicas": GroupGauge("pelops_worker_replicas", "Number of worker pods that exist."),
    "desired": GroupGauge("pelops_desired_replicas", "Number of worker pods that are wanted."),
}

# What the spec of a resource sets, so that alerts and dashboards can compare with it. A series is
# absent while its limit has no effect.
GROUP_LIMITS = {
    "created": GroupGauge(
        "pelops_created_timestamp_seconds",
        "Unix time at which the resource was created, in seconds.",
    ),
    "scan_interval": GroupGauge(
        "pelops_scan_interval_seconds",
        "Seconds between two scans of the group (spec.recovery.scanPeriodSeconds); absent while "
        "scans are not recorded: with spec.suspend, with spec.recovery.dryRun, and while another "
        "resource manages the group.",
    ),
    "processing_timeout": GroupGauge(
        "pelops_processing_timeout_seconds",
        "Seconds after which a pending entry of a running worker without a heartbeat is stuck: "
        "spec.recovery.processingTimeoutSeconds, or with spec.recovery.locks the time without a "
        "lock.",
    ),
    "dead_letter_retention": GroupGauge(
        "pelops_dead_letter_retention_seconds",
        "Seconds after which a dead letter is deleted (spec.deadLetter.retentionSeconds); absent "
        "while no dead letter is deleted: with spec.suspend, with spec.recovery.dryRun, and while "
        "another resource manages the group.",
    ),
    "min_replicas": GroupGauge(
        "pelops_min_replicas",
        "Number of workers that scaling keeps at least (spec.scaling.minReplicas); absent "
        "unless this resource sets the number of workers in mode Auto.",
    ),
    "max_replicas": GroupGauge(
        "pelops_max_replicas",
        "Number of workers that scaling allows at most (spec.scaling.maxReplicas); absent "
        "unless this resource sets the number of workers in mode Auto.",
    ),
}

# The same for each stream, under separate names: if one name had both the total and its parts, a
# sum over `stream` would count entries twice.
STREAM_FACTS = {
    "lag": GroupGauge(
        "pelops_stream_lag_entries",
        "Number of undelivered entries of one stream (main or retry); NaN when unknown.",
        ["stream"],
    ),
    "pending": GroupGauge(
        "pelops_stream_pending_entries",
        "Number of pending entries (delivered, not acknowledged) of one stream (main or retry).",
        ["stream"],
    ),
    "oldest": GroupGauge(
        "pelops_stream_oldest_pending_seconds",
        "Seconds since the oldest pending entry of one stream (main or retry) was added, by its "
        "ID; 0 when no entry is pending.",
        ["stream"],
    ),
}

# Counters of Redis itself, for the rates of groups that no replica scales.
ENTRIES_ADDED = GroupCounter(
    "pelops_entries_added_total",
    "Number of entries that were ever added to the stream, as counted by Redis.",
)
ENTRIES_READ = GroupCounter(
    "pelops_entries_read_total",
    "Number of entries of the stream that were ever delivered to the group, as counted by Redis; "
    "unchanged while Redis does not know it.",
)
GROUP_TOTALS = (ENTRIES_ADDED, ENTRIES_READ)

# Inputs and results of scaling; only the replica that scales a resource exports them.
SCALING_FACTS = {
    "arrivals": Gauge(
        "pelops_arrival_rate",
        "Number of entries added per second; NaN until measured.",
        ["namespace", "name"],
    ),
    "acknowledged": Gauge(
        "pelops_acknowledge_rate",
        "Number of entries acknowledged per second; NaN until measured.",
        ["namespace", "name"],
    ),
    "demand": Gauge(
        "pelops_scaling_demand",
        "Number of workers that the backlog of the group calls for, before rounding and limits; "
        "NaN when unknown.",
        ["namespace", "name"],
    ),
}
BACKLOG = Gauge(
    "pelops_backlog_entries",
    "Number of entries of the backlog, by part: undelivered, pending (with workers that may "
    "be alive) or waiting (pending until recovery).",
    ["namespace", "name", "part"],
)
SCALE_WRITES = Counter(
    "pelops_scale_writes_total",
    "Number of writes to scale subresources, by direction: up or down.",
    ["direction"],
)
for _direction in ("up", "down"):
    SCALE_WRITES.labels(_direction)
SCALING_DECISIONS = Counter(
    "pelops_scaling_decisions_total",
    "Number of decisions of automatic scaling, by reason of the condition ScalingActive.",
    ["reason"],
)

# Actions on groups. A trigger is what caused a scan: lock-expiry, pod-death, scan (the timer) or
# start-up.
REQUEUED = GroupCounter(
    "pelops_requeued_total",
    "Number of stuck entries that were copied to the end of the stream or to the retry stream and "
    "acknowledged, by trigger of the scan.",
    ["trigger"],
)
RELEASED = GroupCounter(
    "pelops_released_total",
    "Number of stuck entries that claiming workers took after they were offered, by trigger of the "
    "scan.",
    ["trigger"],
)
OFFERED = GroupCounter(
    "pelops_offered_total",
    "Number of stuck entries that were offered to claiming workers, counted once per delivery, by "
    "trigger of the scan.",
    ["trigger"],
)
SKIPPED_ALIVE = GroupCounter(
    "pelops_skipped_alive_total",
    "Number of times that a scan left a pending entry because its worker may be alive.",
)
ALREADY_HANDLED = GroupCounter(
    "pelops_already_handled_total",
    "Number of entries that another client, such as another operator replica, moved or "
    "acknowledged before this one did.",
)
DEAD_LETTERED = GroupCounter(
    "pelops_dead_lettered_total",
    "Number of entries that the operator moved to the dead-letter stream, by reason.",
    ["reason"],
)
PAYLOAD_GONE = GroupCounter(
    "pelops_payload_gone_total",
    "Number of pending entries that were acknowledged because their body had been deleted.",
)
DRY_RUN_ENTRIES = GroupGauge(
    "pelops_dry_run_entries",
    "Number of stuck entries that recovery would move or keep, by action (Requeue, Release, "
    "DeadLetter or Keep) and reason, while spec.recovery.dryRun is true; exported by one operator "
    "replica.",
    ["action", "reason"],
)
GROUP_ACTS = (
    *(REQUEUED, OFFERED, RELEASED, SKIPPED_ALIVE, ALREADY_HANDLED, DEAD_LETTERED, PAYLOAD_GONE),
)

SCANS = Counter(
    "pelops_scans_total",
    "Number of scans of a group, by trigger and outcome.",
    ["trigger", "outcome"],
)
SCAN_SECONDS = Histogram(
    "pelops_scan_duration_seconds",
    "Duration of one scan of a group, in seconds.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
RECOVERY_LATENCY = Histogram(
    "pelops_recovery_latency_seconds",
    "Seconds from the time at which this operator replica learned of the death of a pod until the "
    "entries of the pod were deliverable again.",
    buckets=(0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30, 60, 300),
)
VERDICTS = Counter(
    "pelops_recovery_verdicts_total",
    "Number of results of recovery scripts for single entries, by result.",
    ["verdict"],
)
SCRIPT_OUTCOMES = Counter(
    "pelops_script_outcomes_total",
    "Number of calls of Lua scripts, by outcome: ok, refused, unavailable (not executed) or "
    "unknown.",
    ["script", "outcome"],
)
SERVER_SECONDS = Counter(
    "pelops_redis_call_seconds_total",
    "Number of seconds that calls of Lua scripts took, measured at the client.",
    ["script"],
)


def measure_script(script: str, outcome: str, seconds: float) -> None:
    """Count one call of a Lua script."""
    SCRIPT_OUTCOMES.labels(script, outcome).inc()
    SERVER_SECONDS.labels(script).inc(seconds)


# Results of audits: of each group in its newest window, and of the audit as a whole.
AUDITS_SERVED = Gauge(
    "pelops_audits_served",
    "1 while StreamAudits are reconciled, 0 while their CRD or the permissions for them are "
    "missing.",
)
AUDIT_ENTRIES = Gauge(
    "pelops_audit_entries",
    "Number of entries of the newest window, by status.",
    ["namespace", "name", "stream", "group", "status"],
)
AUDIT_RECOVERY_SECONDS = Gauge(
    "pelops_audit_recovery_seconds",
    "Seconds from the first observation of a stuck entry until it was recovered, in the newest "
    "window, by quantile.",
    ["namespace", "name", "stream", "group", "quantile"],
)
AUDIT_GROUP_FACTS = {
    "lost": Gauge(
        "pelops_audit_lost_entries",
        "Number of entries that are proven lost, in all windows, and not acknowledged by a person.",
        ["namespace", "name", "stream", "group"],
    ),
    "window": Gauge(
        "pelops_audit_window_timestamp_seconds",
        "Unix time at which the newest window was closed, in seconds.",
        ["namespace", "name", "stream", "group"],
    ),
    "stuck": Gauge(
        "pelops_audit_oldest_stuck_seconds",
        "Seconds since the oldest stuck entry was added; 0 when there is none.",
        ["namespace", "name", "stream", "group"],
    ),
    "margin": Gauge(
        "pelops_audit_retention_margin_ratio",
        "Ratio of the archived entries in the stream to all entries in the stream; negative when "
        "entries were trimmed before they were archived, NaN when unknown.",
        ["namespace", "name", "stream", "group"],
    ),
}
AUDIT_ALARM = Gauge(
    "pelops_audit_alarm",
    "1 while a StreamAudit has the alarm condition of this type, else 0.",
    ["namespace", "name", "type"],
)


def forget_audit(namespace: str, name: str) -> None:
    """Drop the series of an audit that was deleted, or is about to be exported again."""
    series = (AUDIT_ENTRIES, AUDIT_RECOVERY_SECONDS, *AUDIT_GROUP_FACTS.values(), AUDIT_ALARM)
    for gauge in series:
        for labels in [
            reported for reported in list(gauge._metrics) if reported[:2] == (namespace, name)
        ]:
            gauge.remove(*labels)


# Progress of redrives, from their status: every replica exports the same numbers.
REDRIVES_SERVED = Gauge(
    "pelops_redrives_served",
    "1 while StreamRedrives are reconciled, 0 while their CRD or the permissions for them are "
    "missing.",
)
REDRIVE_ENTRIES = GroupGauge(
    "pelops_redrive_entries",
    "Number of dead letters of a StreamRedrive, by state: selected, moved, skipped, remaining, "
    "failed_again, acknowledged, lost or unknown.",
    ["state"],
)
REDRIVE_FAILED = GroupGauge(
    "pelops_redrive_failed",
    "1 if a StreamRedrive has ended without moving all that it selected, else 0.",
)


def forget_redrive(namespace: str, name: str) -> None:
    """Drop the series of a redrive that was deleted."""
    for series in (REDRIVE_ENTRIES, REDRIVE_FAILED):
        series.forget(namespace, name)


def forget_group(namespace: str, name: str) -> None:
    """Drop the series of a resource that was deleted."""
    forget_scaling(namespace, name)
    forget_group_facts(namespace, name)
    for series in (*GROUP_ACTS, STATUS_WRITES_LIMITED):
        series.forget(namespace, name)


def forget_group_facts(namespace: str, name: str) -> None:
    """Drop the series that a pass measures; counters of this replica's own actions stay."""
    for stream in ("main", "retry"):
        forget_stream(namespace, name, stream)
    for series in (*GROUP_FACTS.values(), *GROUP_LIMITS.values(), *GROUP_TOTALS):
        series.forget(namespace, name)


def forget_stream(namespace: str, name: str, stream: str) -> None:
    """Drop the series of one stream of a group, such as a retry stream that was deleted."""
    for series in STREAM_FACTS.values():
        series.forget(namespace, name, stream)


def forget_scaling(namespace: str, name: str) -> None:
    """Drop the series of a resource that this replica does not scale any more."""
    for series in SCALING_FACTS.values():
        if (namespace, name) in series._metrics:
            series.remove(namespace, name)
    for labels in [
        reported for reported in list(BACKLOG._metrics) if reported[:2] == (namespace, name)
    ]:
        BACKLOG.remove(*labels)
