"""The `status` of a group, whether writing it is worth a request, and the gauges of a group.

Numbers that change all the time are written rarely, and by one replica. The rest is a pure function
of the facts: all replicas render the same facts as the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from pelops.api.group.recovery import RecoveryStrategy
from pelops.api.group.scaling import ScalingMode
from pelops.api.schema.base import MAX_EXACT_INTEGER
from pelops.clock import from_ms
from pelops.controller.runtime.kind import Difference, PreviousStatus, Status, render_heading
from pelops.domain.condition import Condition, render_time, shorten
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import OwnerRecord
from pelops.domain.recovery import LetterReason, Trigger
from pelops.domain.stream_observation import (
    GroupBacklog,
    GroupObservation,
    StreamObservation,
)
from pelops.metrics import (
    ALREADY_HANDLED,
    DEAD_LETTERED,
    ENTRIES_ADDED,
    ENTRIES_READ,
    GROUP_FACTS,
    GROUP_LIMITS,
    OFFERED,
    PAYLOAD_GONE,
    RELEASED,
    REQUEUED,
    SKIPPED_ALIVE,
    STREAM_FACTS,
    forget_stream,
)
from pelops.policy.recovery.dry_run import DryRun
from pelops.policy.recovery.processing_timeouts import decide_processing_timeouts
from pelops.policy.scaling.demand import show_demand
from pelops.policy.scaling.sharing import Role
from pelops.policy.status.facts import Facts, printable
from pelops.policy.status.reasons import ConditionType

# Paths of what moves with every entry.
_MOVING = (
    ("group", "lastDeliveredId"),
    ("group", "pending"),
    ("group", "lag"),
    ("group", "lagKnown"),
    ("group", "oldestPendingTime"),
    ("group", "consumers"),
    ("stream", "length"),
    ("retryStream", "pending"),
    ("retryStream", "lag"),
    ("retryStream", "lagKnown"),
    ("retryStream", "oldestPendingTime"),
    ("stream", "entriesAdded"),
    ("stream", "lastGeneratedId"),
    ("deadLetter", "length"),
    ("recovery", "requeued"),
    ("recovery", "released"),
    ("recovery", "deadLettered"),
    ("recovery", "payloadGone"),
    ("recovery", "waiting"),
    ("recovery", "offered"),
    ("recovery", "unmovable"),
    ("recovery", "stuck"),
    ("summary", "lag"),
    ("summary", "recovered"),
)

_FIRST_TIME_MS: Final = 1_000_000_000_000  # 2001: a lower ID was given by hand
# What is NaN while Redis cannot be observed.
_OBSERVED: Final = (
    *("lag", "pending", "oldest", "oldest_idle", "oldest_undelivered", "stuck", "last_scan"),
    *("consumers", "dead_letters", "oldest_dead_letter", "offered"),
)
_STREAM_LABELS: Final = ("main", "retry")  # values of the label `stream`
_REPORTS_SCALING: Final = frozenset(
    {
        ConditionType.SCALING_ACTIVE,
        *(ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED),
    }
)


def compare(wished: Status, live: Mapping[str, Any]) -> Difference:
    """Whether the status has to be written, and how urgently."""
    wished, live = _without_scan_time(wished), _without_scan_time(live)
    if wished == live:
        return Difference.NONE
    if _without_numbers(wished) == _without_numbers(live):
        return Difference.NUMBERS
    return Difference.FACTS


def render_status(
    facts: Facts, conditions: list[Condition], previous: PreviousStatus, now: datetime
) -> Status:
    """The whole status. Fields without a value are left out.

    No numbers are shown of a group that another resource acts on. This resource observes it rarely,
    and outdated numbers would look like those of an idle group.
    """
    workload = facts.workload
    group = _render_group(facts, previous.status.get("group") or {}, now)
    if facts.is_foreign:
        facts = replace(facts, stream=None)
    status: Status = {
        **render_heading(conditions, previous, now),
        "replicas": workload.current,
        "readyReplicas": workload.ready,
        "desiredReplicas": _desired(facts, previous.status),
        "selector": workload.selector,
        "group": group,
        "stream": _render_stream(facts.stream),
        "retryStream": _render_retry(facts, now),
        "deadLetter": _render_dead_letter(facts),
        "recovery": _render_recovery(facts),
        "scaling": _render_sharing(facts, previous.status.get("scaling") or {}),
        "redis": _present({"topology": facts.topology, "version": facts.server_version}),
        "summary": _render_summary(facts),
    }
    return _present(status)


def _desired(facts: Facts, before: Mapping[str, Any]) -> int | None:
    if facts.scaling is None:
        reported: int | None = before.get("desiredReplicas")
        return facts.workload.wished if reported is None else reported
    return facts.workload.wished if facts.scaling.replicas is None else facts.scaling.replicas


def _render_group(facts: Facts, before: Mapping[str, Any], now: datetime) -> Status:
    name = facts.keys.group if facts.keys else facts.resource.group_name
    # lastDeliveredId stays: it decides the position at which a lost group is created again.
    known = {"name": name, "lastDeliveredId": before.get("lastDeliveredId")}
    if facts.is_foreign:
        ownership = facts.stream.ownership if facts.stream else None
        return _present({**known, "ownedBy": _name_owner(ownership.owner) if ownership else None})
    if facts.stream is None or facts.stream.group is None:
        return _present(known)
    return _present({"name": name, **_render_numbers(facts.stream.group, facts.stream, now)})


def _name_owner(owner: OwnerRecord) -> str:
    # Any client with access to the key may have written it.
    return shorten(f"{owner.namespace}/{owner.name}", 1024)


def _render_numbers(group: GroupObservation, stream: StreamObservation, now: datetime) -> Status:
    return {
        "lastDeliveredId": str(group.last_delivered_id),
        **_render_backlog(stream.backlog or group, now),
        "consumers": group.consumers,
    }


def _render_backlog(of: GroupBacklog, now: datetime) -> Status:
    lowest = of.lowest_pending
    return {
        "pending": of.pending,
        "lag": _exact(of.at_least) if of.lag is not None or of.at_least else None,
        "lagKnown": of.lag is not None,
        "oldestPendingTime": None if lowest is None else _added_at(lowest, now),
    }


def _render_retry(facts: Facts, now: datetime) -> Status | None:
    """What the retry stream alone holds; None without one."""
    retry = None if facts.stream is None else facts.stream.retry
    if facts.keys is None or retry is None or not (retry.exists or retry.length):
        return None
    return _present({"name": facts.keys.retry, **_render_backlog(retry, now)})


def _added_at(entry_id: EntryId, now: datetime) -> str | None:
    """The time in the ID of an entry; None if it is in the future.

    The ID may have been chosen by the producer, or the clock of Redis may be ahead. kubectl would
    show the age of a time in the future as <invalid>.
    """
    added = from_ms(entry_id.ms)
    return render_time(added) if added <= now else None


def _render_stream(stream: StreamObservation | None) -> Status | None:
    if stream is None:
        return None
    return _present(
        {
            "length": stream.length,
            "entriesAdded": None if stream.entries_added is None else _exact(stream.entries_added),
            "lastGeneratedId": str(stream.last_generated_id) if stream.exists else None,
        }
    )


def _render_dead_letter(facts: Facts) -> Status | None:
    if facts.keys is None:
        return None
    length = facts.stream.dead_letters if facts.stream else None
    return _present({"stream": facts.keys.dead_letter, "length": length})


def _render_recovery(facts: Facts) -> Status | None:
    if facts.stream is None or facts.stream.group is None:
        return None
    totals, report = facts.state.totals, facts.state.report
    return _present(
        {
            "requeued": _exact(totals.requeued),
            "released": _exact(totals.released),
            "deadLettered": _exact(totals.dead_lettered),
            "payloadGone": _exact(totals.payload_gone),
            "stuck": None if report.stuck is None else _exact(report.stuck),
            "waiting": _exact(report.waiting) if facts.recovers else None,
            "offered": _exact(report.offered) if facts.recovers else None,
            "unmovable": _exact(report.unmovable) if facts.recovers else None,
            "lastScanTime": _render_scan_time(facts.state.scanned_at),
            "unmatchedConsumers": list(facts.unmatched_consumers),
            "dryRun": _render_dry_run(facts.dry_run),
        }
    )


def _render_dry_run(dry_run: DryRun | None) -> Status | None:
    if dry_run is None:
        return None
    outcomes = [
        {"action": action.value, "reason": reason, "entries": _exact(count)}
        for action, reason, count in dry_run.rows()
    ]
    report = dry_run.report
    return {"stuck": _exact(dry_run.stuck)} | _present(
        {
            "outcomes": outcomes,
            "reason": report.reason,
            "message": printable(report.message, 1024),
        }
    )


SHOWN: Final = 20  # resources with the same workers


def _render_sharing(facts: Facts, before: Mapping[str, Any]) -> Status | None:
    """The leader, and the demand of each group; None if no other group has these workers.

    A replica that does not know the demands repeats the reported ones.
    """
    sharing, own = facts.sharing, facts.resource.metadata.name
    if sharing is None or not sharing.is_shared:
        return None
    asked: dict[str, str | None] = {}
    if sharing.leader is None or not sharing.leader.counts:
        pass  # there are no demands
    elif facts.demands is None:
        each = (before, *(before.get("sharedWith") or ()))
        asked = {one.get("name", own): one.get("demand") for one in each}
    else:
        known = facts.demands.items()
        asked = {name: None if one is None else show_demand(one) for name, one in known}
    leader = sharing.leader
    leads = "" if leader is None else leader.uid
    others = sorted(sharing.others, key=lambda one: (one.uid != leads, one.name))[:SHOWN]
    return _present(
        {
            "leader": None if leader is None else leader.name,
            "demand": asked.get(own),
            "sharedWith": [
                _present({"name": one.name, "mode": one.mode, "demand": asked.get(one.name)})
                for one in others
            ],
        }
    )


def _render_scan_time(scanned_at: datetime | None) -> str | None:
    return None if scanned_at is None else render_time(scanned_at)


def _render_summary(facts: Facts) -> Status:
    workload = facts.workload
    return _present(
        {
            "lag": _lag_cell(facts.stream),
            "replicas": f"{workload.ready}/{workload.wished or 0}" if workload.exists else None,
            "recovered": _recovered(facts),
            "redis": _present_text(facts.server_version, facts.topology),
        }
    )


def _lag_cell(stream: StreamObservation | None) -> str | None:
    if stream is None or stream.group is None:
        return None
    backlog = stream.backlog or stream.group
    lag, at_least = backlog.lag, backlog.at_least
    if lag is None:
        return f">={at_least}" if at_least else "unknown"
    return str(lag)


def _recovered(facts: Facts) -> int | None:
    if facts.stream is None or facts.stream.group is None:
        return None
    totals = facts.state.totals
    return _exact(totals.requeued + totals.released)


def _exact(number: int) -> int:
    # Redis counts to 2**63; a status with more than JSON holds exactly would be refused.
    return max(0, min(number, MAX_EXACT_INTEGER))


def _present_text(*parts: str | None) -> str | None:
    return " ".join(part for part in parts if part) or None


def _present(fields: Mapping[str, Any]) -> Status:
    return {key: value for key, value in fields.items() if value not in (None, "", {}, [])}


def _without_scan_time(status: Mapping[str, Any]) -> Status:
    """The status but for the time of the last scan, which passes while nothing happens."""
    recovery = dict(status.get("recovery") or {})
    recovery.pop("lastScanTime", None)
    return {**status, "recovery": recovery}


def _without_numbers(status: Mapping[str, Any]) -> Status:
    rest: Status = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in status.items()
    }
    rest.pop("replicas", None)  # pods come and go; `readyReplicas` is a fact
    for part, field in _MOVING:
        if isinstance(rest.get(part), dict):
            rest[part].pop(field, None)
            if not rest[part]:
                del rest[part]
    dry_run = rest.get("recovery", {}).get("dryRun")
    if dry_run:
        alike = [{**row, "entries": 0} for row in dry_run.get("outcomes") or ()]
        rest["recovery"]["dryRun"] = {**dry_run, "stuck": 0, "outcomes": alike}
    if isinstance(rest.get("scaling"), dict):
        rest["scaling"] = _without_demands(rest["scaling"])
    rest["conditions"] = _without_scaling_message(rest.get("conditions") or ())
    return rest


def _without_demands(scaling: Mapping[str, Any]) -> Status:
    shared = scaling.get("sharedWith") or ()
    names = [(one.get("name"), one.get("mode")) for one in shared]
    return {"leader": scaling.get("leader"), "sharedWith": names}


def _without_scaling_message(conditions: Iterable[Mapping[str, Any]]) -> list[Status]:
    """The conditions but for the numbers that decided about scaling, which Ready may repeat."""
    copies = [dict(condition) for condition in conditions]
    messages = tuple(
        c["message"]
        for c in copies
        if c.get("type") == ConditionType.SCALING_ACTIVE and c.get("message")
    )
    for condition in copies:
        repeats = bool(messages) and str(condition.get("message")).endswith(messages)
        if repeats and condition.get("type") in _REPORTS_SCALING:
            condition["message"] = ""
    return copies


def measure_resource(facts: Facts, *, is_ready: bool) -> None:
    """Set the gauges of one resource."""
    metadata = facts.resource.metadata
    name = (metadata.namespace, metadata.name)
    values = {
        "ready": float(is_ready),
        "replicas": float(facts.workload.current),
        "desired": float(_desired_replicas(facts)),
    }
    for fact, value in values.items():
        GROUP_FACTS[fact].set(value, *name)
    seen = None if facts.is_foreign else facts.stream
    measure_group(name, None if seen is None else replace(seen, state=facts.state))
    _measure_limits(name, facts)
    if not facts.is_dry:
        _begin_counters(name, facts.resource.spec.recovery.strategy)


def _measure_limits(name: tuple[str, str], facts: Facts) -> None:
    limits = _limits(facts)
    for limit, gauge in GROUP_LIMITS.items():
        if limit in limits:
            gauge.set(limits[limit], *name)
        else:
            gauge.forget(*name)


def _limits(facts: Facts) -> dict[str, float]:
    """What the spec sets and is in force; without the limits that have no effect."""
    spec, created = facts.resource.spec, facts.resource.metadata.creation_timestamp
    timeouts = decide_processing_timeouts(spec.recovery)
    timeout = timeouts.limit(is_unknown=False, is_unowned=False)
    limits: dict[str, float] = {"processing_timeout": timeout.total_seconds()}
    if created is not None:
        limits["created"] = created.timestamp()
    acts = not (spec.suspend or facts.is_dry)
    if acts and not facts.is_foreign:
        limits["scan_interval"] = spec.recovery.scan_period_seconds
        limits["dead_letter_retention"] = spec.dead_letter.retention_seconds
    leads = facts.sharing is not None and facts.sharing.role is Role.LEADS
    if acts and leads and spec.scaling is not None and spec.scaling.mode is ScalingMode.AUTO:
        limits["min_replicas"] = spec.scaling.min_replicas
        limits["max_replicas"] = spec.scaling.max_replicas
    return limits


def _begin_counters(name: tuple[str, str], strategy: RecoveryStrategy) -> None:
    """Have series at 0 of what recovery may count, so that the first event is an increase."""
    if strategy is RecoveryStrategy.DISABLED:
        return
    by_trigger = {
        RecoveryStrategy.REQUEUE: (REQUEUED,),
        RecoveryStrategy.RETRY_STREAM: (REQUEUED,),
        RecoveryStrategy.RELEASE: (OFFERED, RELEASED),
    }
    for counter in by_trigger[strategy]:
        for trigger in Trigger:
            counter.begin(*name, trigger.value)
    DEAD_LETTERED.begin(*name, LetterReason.MAX_RETRIES.value)
    for counter in (PAYLOAD_GONE, SKIPPED_ALIVE, ALREADY_HANDLED):
        counter.begin(*name)


def _desired_replicas(facts: Facts) -> int:
    """The replicas wanted. A replica of the operator that does not decide repeats the status."""
    status, decision = facts.resource.status, facts.scaling
    reported = status.desired_replicas if status and decision is None else None
    decided = decision.replicas if decision is not None else reported
    return facts.workload.wished or 0 if decided is None else decided


def measure_group(name: tuple[str, str], stream: StreamObservation | None) -> None:
    """Set the gauges of what was observed in Redis; None: it could not be observed."""
    for fact, value in _group_values(stream).items():
        GROUP_FACTS[fact].set(value, *name)
    if stream is None or stream.group is None:
        for part in [label for label in _STREAM_LABELS if _is_measured(name, label)]:
            _measure_part(name, part, dict.fromkeys(STREAM_FACTS, math.nan))
        return
    if stream.entries_added is not None:
        ENTRIES_ADDED.follow(stream.entries_added, *name)
    if stream.group.entries_read is not None:
        ENTRIES_READ.follow(stream.group.entries_read, *name)
    _measure_part(name, "main", _backlog_values(stream.group, stream.server_time))
    if stream.retry is None:
        forget_stream(*name, "retry")
    else:
        _measure_part(name, "retry", _backlog_values(stream.retry, stream.server_time))


def _is_measured(name: tuple[str, str], part: str) -> bool:
    return STREAM_FACTS["lag"].value(*name, part) is not None


def _measure_part(name: tuple[str, str], part: str, values: dict[str, float]) -> None:
    for fact, value in values.items():
        STREAM_FACTS[fact].set(value, *name, part)


def _group_values(stream: StreamObservation | None) -> dict[str, float]:
    backlog = None if stream is None else stream.backlog
    if stream is None or stream.group is None or backlog is None:
        # What cannot be seen is not what was seen last.
        return dict.fromkeys(_OBSERVED, math.nan)
    now, state, idle = stream.server_time, stream.state, backlog.lowest_idle
    values = {
        **_backlog_values(backlog, now),
        "oldest_idle": 0.0 if idle is None else idle.total_seconds(),
        "oldest_undelivered": _undelivered_s(backlog, now),
        "stuck": math.nan if state.report.stuck is None else float(state.report.stuck),
        "last_scan": math.nan if state.scanned_at is None else state.scanned_at.timestamp(),
        "consumers": float(stream.group.consumers),
        "dead_letters": float(stream.dead_letters),
        "offered": float(state.report.offered),
    }
    if stream.first_dead_letter is not None:
        values["oldest_dead_letter"] = _age_s(stream.first_dead_letter, now)
    elif not stream.dead_letters:
        values["oldest_dead_letter"] = 0.0
    return values  # observations for scaling do not read the first dead letter: its age stays


def _undelivered_s(backlog: GroupBacklog, now: datetime) -> float:
    if backlog.first_undelivered is not None:
        return _age_s(backlog.first_undelivered, now)
    return 0.0 if backlog.lag == 0 else math.nan


def _age_s(entry_id: EntryId, now: datetime) -> float:
    """Seconds since the entry was added; NaN if the ID is not a time, since a user chose it."""
    if entry_id.ms < _FIRST_TIME_MS:
        return math.nan
    return max(0.0, now.timestamp() - entry_id.ms / 1000)


def _backlog_values(of: GroupBacklog, now: datetime) -> dict[str, float]:
    oldest = of.lowest_pending
    return {
        "lag": math.nan if of.lag is None else float(of.lag),
        "pending": float(of.pending),
        "oldest": 0.0 if oldest is None else max(0.0, now.timestamp() - oldest.ms / 1000),
    }
