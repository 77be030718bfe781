"""The conditions of a StreamAudit: what holds, why, and what to do when it does not.

    Ready                   it runs as asked
    Suspended               present when spec.suspend is true
    LossDetected            entries are proven lost; until acknowledged
    ArchiveBehindRetention  trimming is about to overtake the archive, or has
    AuditFailing            it does not run, or cannot account for every entry

The last three are alarms: present while they hold, with no effect on Ready. While Redis cannot be
read they stay as they were informed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from pelops.api.audit.stream_audit import StreamAudit
from pelops.api.group.status import ConditionStatus
from pelops.domain.audit import AuditVerdict
from pelops.domain.condition import Condition, Finding
from pelops.policy.audit.facts import AuditFacts, GroupAudit
from pelops.policy.audit.freshness import find_run_problem, report_incomplete
from pelops.policy.audit.retention import report_behind
from pelops.policy.status.alarms import ACKNOWLEDGE
from pelops.policy.status.reasons import AUDIT_ALARMS, ConditionType, Reason


def report_unmounted(audit: StreamAudit) -> str | None:
    """A clause about an archive that is a directory of the container alone; None otherwise.

    That is no error: a node may run its pods without containers, as the local cluster's do.
    """
    path = audit.spec.archive.path
    if path is None or not path.startswith("/"):
        return None
    if any(_holds(mount, path) for mount in _mount_paths(audit.spec.template or {})):
        return None
    return (
        f"No volume of spec.template is mounted at {path}: a container cannot write there, or what "
        "it writes goes with it. Mount one, or use archive.pvc"
    )


def _holds(mount: str, path: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{mount.rstrip('/')}/")


def _mount_paths(template: dict[str, Any]) -> Iterator[str]:
    """Where containers mount volumes. A template may have any shape: what is none is left out."""
    for container in _objects(_object(template.get("spec")).get("containers")):
        for mount in _objects(container.get("volumeMounts")):
            if isinstance(mount.get("mountPath"), str):
                yield mount["mountPath"]


def _object(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _objects(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


_GROUPS_REPORTED: Final = 5


def decide_audit_conditions(facts: AuditFacts, *, now: datetime) -> list[Condition]:
    """All conditions of an audit, Ready first. Total."""
    return [_ready(facts), *_suspended(facts), *_alarms(facts, now)]


def find_failure(facts: AuditFacts, group: GroupAudit) -> Finding | None:
    """Why a group cannot be accounted for, whatever becomes of the runs; None when it can."""
    if group.problem is not None:
        return Finding(
            reason=Reason.SUMMARY_UNREADABLE,
            message=f"{group.group} of {group.stream}: {group.problem.message}",
        )
    if group.stream_problem is not None:
        return Finding(
            reason=Reason.NOT_ACCOUNTED,
            message=f"{group.group} of {group.stream}: {group.stream_problem.message}",
        )
    if group.record is not None and group.record.summary.verdict is AuditVerdict.FAILING:
        return Finding(
            reason=Reason.NOT_ACCOUNTED,
            message=f"{group.group} of {group.stream}: {group.record.summary.sentence}",
        )
    incomplete = report_incomplete(facts.audit, facts.runs, group)
    if incomplete is None:
        return None
    return Finding(
        reason=Reason.RUN_INCOMPLETE,
        message=f"The last run ended well, and {incomplete}: see its log",
    )


def _ready(facts: AuditFacts) -> Condition:
    problem = facts.plan_problem or facts.job_problem or facts.redis_problem
    if problem is None and not facts.runs.exists:
        problem = Finding(reason=Reason.CREATING, message=f"{facts.job} is being created")
    if problem is not None:
        return Condition(
            type=ConditionType.READY,
            status="False",
            reason=problem.reason,
            message=problem.message,
        )
    spec = facts.audit.spec
    if spec.suspend:
        message = f"{facts.job} is complete, and spec.suspend keeps it from starting runs"
        return _true(ConditionType.READY, Reason.SUSPENDED, message)
    reported = f"{facts.job} runs at {spec.schedule} ({spec.time_zone or 'UTC'})"
    doubt = report_unmounted(facts.audit)
    return _true(
        ConditionType.READY, Reason.SCHEDULED, f"{reported}. {doubt}" if doubt else reported
    )


def _suspended(facts: AuditFacts) -> list[Condition]:
    if not facts.audit.spec.suspend:
        return []
    message = "spec.suspend is true: no further run starts"
    return [_true(ConditionType.SUSPENDED, Reason.SUSPENDED, message)]


def _alarms(facts: AuditFacts, now: datetime) -> list[Condition]:
    if facts.redis_problem is not None:
        return _reported_before(facts)
    findings = {
        ConditionType.LOSS_DETECTED: _loss(facts),
        ConditionType.ARCHIVE_BEHIND_RETENTION: _behind(facts),
        ConditionType.AUDIT_FAILING: _failing(facts, now),
    }
    return [
        _true(kind, Reason(finding.reason), finding.message)
        for kind, finding in findings.items()
        if finding is not None
    ]


def _reported_before(facts: AuditFacts) -> list[Condition]:
    status = facts.audit.status
    reported = {c.type: c for c in (status.conditions or () if status else ())}
    return [
        Condition(
            type=kind, status="True", reason=reported[kind].reason, message=reported[kind].message
        )
        for kind in AUDIT_ALARMS
        if kind in reported and reported[kind].status is ConditionStatus.TRUE
    ]


def _loss(facts: AuditFacts) -> Finding | None:
    lost = [g for g in facts.groups if g.record is not None and g.record.unacknowledged]
    if not lost:
        return None
    reported = _list(f"{g.record.unacknowledged if g.record else 0} of {g.stream}" for g in lost)
    metadata = facts.audit.metadata
    return Finding(
        reason=Reason.LOSS_DETECTED,
        message=(
            f"Entries are proven lost, gone before any worker was given them: {reported}. The "
            "archive "
            "and the report name each; send them again from where they came from. Acknowledge it "
            f"with kubectl annotate --overwrite saudit -n {metadata.namespace} {metadata.name} "
            f"{ACKNOWLEDGE}={ConditionType.LOSS_DETECTED}"
        ),
    )


def _behind(facts: AuditFacts) -> Finding | None:
    reported = [clause for group in facts.groups if (clause := report_behind(group)) is not None]
    if not reported:
        return None
    return Finding(
        reason=Reason.ARCHIVE_BEHIND_RETENTION,
        message=(
            f"Trimming is close to what is not archived yet, or has passed it: {_list(reported)}. "
            "Run "
            "the audit more often, or keep more of the stream (XADD MAXLEN, spec.retention)"
        ),
    )


def _failing(facts: AuditFacts, now: datetime) -> Finding | None:
    run = find_run_problem(facts.audit, facts.runs, now=now)
    if run is not None:
        return run
    failures = [find_failure(facts, group) for group in facts.groups]
    found = [failure for failure in failures if failure is not None]
    if not found:
        return None
    return Finding(reason=found[0].reason, message=_list(one.message for one in found))


def _true(kind: ConditionType, reason: Reason, message: str) -> Condition:
    return Condition(type=kind, status="True", reason=reason, message=message)


def _list(clauses: Iterable[str]) -> str:
    reported = list(clauses)
    more = len(reported) - _GROUPS_REPORTED
    return "; ".join(reported[:_GROUPS_REPORTED]) + (f"; and {more} more" if more > 0 else "")
