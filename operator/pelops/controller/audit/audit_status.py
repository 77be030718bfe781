"""The `status` of an audit, the Event of each new window, and the gauges of audits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from pelops.api.audit.audit_status_model import MOST_GROUPS_REPORTED, ReportedVerdict
from pelops.api.schema.base import MAX_EXACT_INTEGER
from pelops.controller.audit.audit_observer import job_reference
from pelops.controller.runtime.kind import PreviousStatus, Status, render_heading
from pelops.domain.condition import Condition, render_time, shorten
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    AuditRecord,
    AuditVerdict,
    Certainty,
    worst_certainty,
    worst_verdict,
)
from pelops.kube.event_recorder import EventContent
from pelops.metrics import (
    AUDIT_ALARM,
    AUDIT_ENTRIES,
    AUDIT_GROUP_FACTS,
    AUDIT_RECOVERY_SECONDS,
    forget_audit,
)
from pelops.policy.audit.audit_conditions import find_failure, find_margin, is_behind
from pelops.policy.audit.audit_facts import AuditFacts, RecordedGroup, Runs
from pelops.policy.status.reasons import AUDIT_ALARMS, Reason


def measure_audit(facts: AuditFacts, conditions: Iterable[Condition]) -> None:
    """Set the gauges of one audit. While Redis cannot be read they stay as they are."""
    metadata = facts.audit.metadata
    name = (metadata.namespace, metadata.name)
    if facts.redis_problem is None:
        # Groups that are no longer audited must not linger.
        forget_audit(*name)
        for group in facts.groups:
            if group.record is not None:
                _measure_group((*name, group.stream, group.group), group, group.record)
    raised = {condition.type for condition in conditions}
    for alarm in AUDIT_ALARMS:
        AUDIT_ALARM.labels(*name, alarm.value).set(float(alarm in raised))


def _measure_group(labels: tuple[str, ...], group: RecordedGroup, record: AuditRecord) -> None:
    summary = record.summary
    for status, count in summary.counts.items():
        AUDIT_ENTRIES.labels(*labels, status.value).set(count)
    if summary.recovery is not None:
        for quantile, span in (("0.5", summary.recovery.p50), ("0.99", summary.recovery.p99)):
            AUDIT_RECOVERY_SECONDS.labels(*labels, quantile).set(span.total_seconds())
    margin = find_margin(summary, group.ends)
    values = {
        "lost": float(record.unacknowledged),
        "window": summary.window.at.timestamp(),
        "stuck": summary.oldest_stuck.total_seconds() if summary.oldest_stuck else 0.0,
        "margin": math.nan if margin is None else margin.share,
    }
    for fact, value in values.items():
        AUDIT_GROUP_FACTS[fact].labels(*labels).set(value)


def render_audit_status(
    facts: AuditFacts, conditions: list[Condition], previous: PreviousStatus, now: datetime
) -> Status:
    """The whole status. Parts that cannot be observed now are kept."""
    status: Status = {
        **render_heading(conditions, previous, now),
        "jobRef": job_reference(facts.audit) if facts.runs.exists else None,
        "run": _render_runs(facts.runs),
    }
    if facts.redis_problem is not None:
        seen = {name: previous.status.get(name) for name in ("summary", "groups")}
    else:
        seen = {"summary": _render_summary(facts), "groups": _render_groups(facts)}
    return _present({**status, **seen})


def report_windows(before: Status, after: Status) -> EventContent | None:
    """The Event for windows that were accounted for since the status before."""
    new = _newest(after)
    if not new or new == _newest(before):
        return None
    summary = after.get("summary") or {}
    verdict = summary.get("verdict", "")
    severity: Literal["Normal", "Warning"] = (
        "Normal" if verdict == ReportedVerdict.BALANCED else "Warning"
    )
    numbers = ", ".join(
        f"{summary[name]:,} {word}"
        for name, word in (
            ("produced", "produced"),
            ("lost", "lost"),
            ("stuck", "stuck"),
            ("deadLettered", "dead-lettered"),
        )
        if name in summary
    )
    sentences = [group.get("message", "") for group in (after.get("groups") or ())[:1]]
    certainty = summary.get("certainty")
    message = (
        f"{verdict} ({certainty})" if verdict == ReportedVerdict.BALANCED and certainty else verdict
    )
    note = f"Window {summary.get('window')}: {message.lower()}; {numbers}. {' '.join(sentences)}"
    return EventContent(
        type=severity,
        reason=Reason.WINDOW_AUDITED,
        action="Audit",
        note=note.strip(),
        occurrence=new,
    )


def _newest(status: Status) -> str:
    times = [one["windowEndTime"] for one in status.get("groups") or () if one.get("windowEndTime")]
    return max(times, default="")


def _render_runs(runs: Runs) -> Status:
    return _present(
        {
            "lastStartTime": render_time(runs.last_start) if runs.last_start else None,
            "lastSuccessfulTime": render_time(runs.last_success) if runs.last_success else None,
            "active": runs.is_active if runs.last_start else None,
            "failedStartTime": render_time(runs.failed_start) if runs.failed_start else None,
        }
    )


def _render_summary(facts: AuditFacts) -> Status:
    records = [group.record for group in facts.groups if group.record is not None]
    audited = f"{len(records)}/{len(facts.groups)}" if facts.groups else None
    if not records:
        return _present({"groups": audited})
    verdict = worst_verdict([record.summary.verdict for record in records])
    return _present(
        {
            "window": min(record.summary.window.number for record in records),
            "verdict": _word(verdict) if verdict else None,
            "certainty": _word(worst_certainty(one.summary.certainty for one in records)),
            "produced": _sum(record.summary.produced for record in records),
            "lost": _sum(record.unacknowledged for record in records),
            "stuck": _sum(_stuck(record) for record in records),
            "deadLettered": _sum(_count(record, EntryStatus.DEAD_LETTERED) for record in records),
            "groups": audited,
        }
    )


def _render_groups(facts: AuditFacts) -> list[Status]:
    """Those that need attention first, in an order that their facts alone decide."""
    rendered = [_render_group(facts, group) for group in facts.groups]
    rendered.sort(key=_place)
    return rendered[:MOST_GROUPS_REPORTED]


def _place(group: Status) -> tuple[bool, bool, bool, str, str]:
    return (
        not group.get("lost"),
        not (group.get("failing") or group.get("behindRetention")),
        group.get("verdict") == ReportedVerdict.BALANCED,
        group["stream"],
        group["group"],
    )


def _render_group(facts: AuditFacts, group: RecordedGroup) -> Status:
    status: Status = {
        "stream": group.stream,
        "group": group.group,
        "name": group.resource,
        # Absent is well: a status that is well is short.
        "behindRetention": is_behind(group) or None,
        "failing": find_failure(facts, group) is not None or None,
    }
    record = group.record
    if record is None:
        return _present(status)
    summary = record.summary
    return _present(
        {
            **status,
            "window": summary.window.number,
            "windowEndTime": render_time(summary.window.at),
            "verdict": _word(summary.verdict),
            "certainty": _word(summary.certainty),
            "message": shorten(_printable(summary.sentence), 512),
            "produced": summary.produced,
            "stuck": _stuck(record),
            "deadLettered": _count(record, EntryStatus.DEAD_LETTERED),
            # Absent is well, as above.
            "indeterminate": _count(record, EntryStatus.INDETERMINATE) or None,
            "lost": record.unacknowledged,
        }
    )


def _word(one: AuditVerdict | Certainty) -> str:
    """A word of the pipeline as the API writes it."""
    return one.value.capitalize()


def _count(record: AuditRecord, status: EntryStatus) -> int:
    return record.summary.counts[status]


def _stuck(record: AuditRecord) -> int:
    return _count(record, EntryStatus.STUCK) + record.summary.stuck_earlier


def _sum(numbers: Iterable[int]) -> int:
    return min(sum(numbers), MAX_EXACT_INTEGER)


def _printable(text: str) -> str:
    # Any client with access to the key may have written it.
    return text.encode(errors="replace").decode()


def _present(fields: dict[str, Any]) -> Status:
    return {name: value for name, value in fields.items() if value not in (None, "", {}, [])}
