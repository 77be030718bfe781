"""What audits report about one group, for the conditions of its StreamConsumerGroup.

Read only from the status of the audits, so all replicas report the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pelops.api.audit.audit_status_model import AuditedGroupStatus, StreamAuditStatus
from pelops.api.group.group_status_model import ConditionStatus
from pelops.domain.condition import Condition
from pelops.policy.status.reasons import ConditionType, Reason


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AuditNotice:
    """What one audit reports about one group. It changes only when the audit's results do."""

    audit: str  # name of the StreamAudit
    lost: int = 0  # entries, not acknowledged
    is_behind: bool = False
    is_failing: bool = False
    failure: str = ""  # the reason

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.lost or self.is_behind or self.is_failing)


def read_notices(
    audit: str, named: Sequence[str], status: StreamAuditStatus | None
) -> dict[str, AuditNotice]:
    """Return the notices of an audit that are not empty, by name of StreamConsumerGroup.

    `named` are those that the audit's spec refers to.
    """
    if status is None:
        return {}
    groups = {one.name: one for one in status.groups or () if one.name is not None}
    failure = _failure_of(status)
    notices = {name: _notice(audit, groups.get(name), failure) for name in {*named, *groups}}
    return {name: notice for name, notice in notices.items() if not notice.is_empty}


def _failure_of(status: StreamAuditStatus) -> str:
    """Return the reason of the condition AuditFailing; empty if it is not True."""
    for condition in status.conditions or ():
        is_failing = condition.type == ConditionType.AUDIT_FAILING
        if is_failing and condition.status is ConditionStatus.TRUE:
            return condition.reason
    return ""


def _notice(audit: str, group: AuditedGroupStatus | None, failure: str) -> AuditNotice:
    # A failed run concerns all groups; any other failure only those that it names.
    is_failing = failure == Reason.RUN_FAILED or bool(group and group.failing)
    return AuditNotice(
        audit=audit,
        lost=(group.lost or 0) if group else 0,
        is_behind=bool(group and group.behind_retention),
        is_failing=is_failing,
        failure=failure if is_failing else "",
    )


def decide_audit_alarms(notices: Iterable[AuditNotice]) -> list[Condition]:
    """Return the alarms that audits raise for a group, in the order of `AUDIT_ALARMS`."""
    sorted_notices = sorted(notices)
    lost = [one for one in sorted_notices if one.lost]
    behind = [one.audit for one in sorted_notices if one.is_behind]
    failing = [one for one in sorted_notices if one.is_failing]
    conditions = []
    if lost:
        counts = ", ".join(f"{one.lost:,} according to StreamAudit {one.audit}" for one in lost)
        message = f"Entries of this group are lost: {counts}; {_hint(lost[0].audit)}"
        conditions.append(_true(ConditionType.LOSS_DETECTED, Reason.LOSS_DETECTED, message))
    if behind:
        message = (
            "The stream is trimmed before, or shortly after, its entries are archived by "
            f"StreamAudit {', '.join(behind)}: {_hint(behind[0])}"
        )
        kind = ConditionType.ARCHIVE_BEHIND_RETENTION
        conditions.append(_true(kind, Reason.ARCHIVE_BEHIND_RETENTION, message))
    if failing:
        names = ", ".join(one.audit for one in failing)
        message = (
            f"StreamAudit {names} cannot account for every entry of this group: "
            f"{_hint(failing[0].audit)}"
        )
        reason = failing[0].failure or Reason.AUDIT_INCONCLUSIVE
        conditions.append(_true(ConditionType.AUDIT_FAILING, reason, message))
    return conditions


def _hint(audit: str) -> str:
    return f"see kubectl describe saudit {audit}"


def _true(kind: ConditionType, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True", reason=reason, message=message)
