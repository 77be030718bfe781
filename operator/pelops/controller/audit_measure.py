"""The gauges of audits."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pelops.domain.audit_record import AuditRecord
from pelops.domain.condition import Condition
from pelops.metrics import (
    AUDIT_ALARM,
    AUDIT_ENTRIES,
    AUDIT_GROUP_FACTS,
    AUDIT_RECOVERY_SECONDS,
    forget_audit,
)
from pelops.policy.audit_facts import AuditFacts, GroupAudit
from pelops.policy.audit_retention import find_margin
from pelops.policy.reasons import AUDIT_ALARMS


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


def _measure_group(labels: tuple[str, ...], group: GroupAudit, record: AuditRecord) -> None:
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
