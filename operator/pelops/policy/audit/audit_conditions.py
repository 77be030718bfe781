"""The conditions of a StreamAudit: what holds, why, and what to do when it does not.

    Ready                   It runs as specified.
    Suspended               Present while spec.suspend is true.
    LossDetected            Entries are proven lost; present until acknowledged.
    ArchiveBehindRetention  Trimming is about to overtake the archive, or has overtaken it.
    AuditFailing            It does not run, or cannot account for every entry.

The last three are alarms: present while they hold, with no effect on Ready. While Redis cannot be
read they stay as they were reported.

Entries that are trimmed before they are archived cannot be accounted for. The stream's counters
show how close that is: of all entries ever added, the first `added - length` were removed, and the
first `to_added` are archived. A deleted entry in the middle of the stream counts as trimmed, so the
alarm may come early, never late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pelops.api.audit.audit_status_model import AuditRunStatus
from pelops.api.audit.stream_audit import StreamAudit
from pelops.api.group.group_status_model import ConditionStatus
from pelops.clock import LATEST_MS, from_ms
from pelops.domain.condition import Condition, Finding, render_time
from pelops.domain.entry_id import EntryId
from pelops.domain.records.audit import AuditSummary, AuditVerdict
from pelops.domain.records.packed_parts import part_of
from pelops.policy.audit.audit_facts import AuditFacts, RecordedGroup, Runs, StreamEnds
from pelops.policy.status.alarms import ACKNOWLEDGE
from pelops.policy.status.reasons import AUDIT_ALARMS, ConditionType, Reason

# For the skew between the control plane's clock and Redis', and until a run's end is reported.
GRACE: Final = timedelta(seconds=60)
# A lower entry ID is not a time: its producer set it explicitly.
_FIRST_TIME_MS: Final = 1_000_000_000_000


def find_run_problem(audit: StreamAudit, runs: Runs, *, now: datetime) -> Finding | None:
    """Return why the last run failed; None while it continues, or before the first."""
    if runs.last_start is None or is_successful(runs):
        return None
    if runs.failed_start is None and _may_end_well(audit, runs, runs.last_start, now):
        return None
    began = runs.failed_start or runs.last_start
    metadata = audit.metadata
    return Finding(
        reason=Reason.RUN_FAILED,
        message=(
            f"The run of {render_time(began)} failed; see kubectl logs -n {metadata.namespace} -l "
            f"pelops.dev/stream-audit={metadata.name} --tail=50, or kubectl describe pods with the "
            "same label if it did not start. Until a run succeeds, the status reports an older "
            "window"
        ),
    )


def _may_end_well(audit: StreamAudit, runs: Runs, began: datetime, now: datetime) -> bool:
    # The controller that ends runs at their deadline needs some time.
    patience = (
        timedelta(seconds=audit.spec.active_deadline_seconds) if runs.is_active else timedelta()
    )
    return now - began <= patience + GRACE


def find_failed_start(runs: Runs, run_status: AuditRunStatus | None) -> datetime | None:
    """Return when the first run began that failed since the last success; None without one.

    `run_status` is from the resource: a run that was the last then, and is not any more, has ended.
    The object that starts runs records only the end of a successful one. A schedule may be so dense
    that no run is ever observed to have ended.
    """
    if run_status is None or runs.last_start is None:
        return None
    for began in (run_status.failed_start_time, run_status.last_start_time):
        if began is None or began >= runs.last_start:
            continue
        if runs.last_success is None or runs.last_success < began:
            return began
    return None


def is_successful(runs: Runs) -> bool:
    """Whether the run that began last was successful."""
    began, ended = runs.last_start, runs.last_success
    return began is not None and ended is not None and ended >= began


def report_incomplete(audit: StreamAudit, runs: Runs, group: RecordedGroup) -> str | None:
    """Return a clause about a group that the last run did not account for; None if it did."""
    if not is_successful(runs) or runs.last_start is None or group.problem is not None:
        return None
    if group.record is None:
        # An empty stream has no window to record.
        is_empty = group.ends is not None and group.ends.added == 0
        return None if is_empty else f"{_name(group)} has no audited window"
    waiting = None if group.ends is None else _time_of(group.ends.first_unaudited)
    window = timedelta(seconds=audit.spec.window_seconds)
    if waiting is None or waiting >= runs.last_start - window - GRACE:
        return None
    return f"{_name(group)} has entries of {render_time(waiting)} that no audited window contains"


def _name(group: RecordedGroup) -> str:
    return f"group {group.group} of stream {group.stream}"


def _time_of(entry_id: EntryId | None) -> datetime | None:
    if entry_id is None or not _FIRST_TIME_MS <= entry_id.ms <= LATEST_MS:
        return None
    return from_ms(entry_id.ms)


LEAST_MARGIN: Final = 0.25  # of what the stream retains


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """How far the archive is ahead of trimming."""

    entries: int  # negative: so many may have been trimmed before they were archived
    share: float  # of the entries in the stream; 1: none can be missed


def find_margin(summary: AuditSummary, ends: StreamEnds | None) -> Margin | None:
    """Return the current margin; None if the stream is not observed, or was created again.

    A complete archive is never behind, nor is one of a stream that is not trimmed.
    """
    if ends is None or ends.added < summary.window.to_added:
        return None
    archived, gone = summary.window.to_added, ends.added - ends.length
    if ends.added == archived or gone == 0:
        return Margin(entries=max(0, archived - gone), share=1.0)
    return Margin(entries=archived - gone, share=(archived - gone) / max(1, ends.length))


def is_behind(group: RecordedGroup) -> bool:
    """Whether the archive is behind now, or was when the last run began.

    The latter prevents an alarm that starts before each run and ends after it.
    """
    if group.record is None:
        return False
    recorded = group.record.summary.retention_margin
    margin = find_margin(group.record.summary, group.ends)
    return (margin is not None and margin.share < LEAST_MARGIN) or (
        recorded is not None and recorded < LEAST_MARGIN
    )


def report_behind(group: RecordedGroup) -> str | None:
    """Return a clause about a group whose archive is behind; None if it is not, or not known."""
    if group.record is None or not is_behind(group):
        return None
    margin = find_margin(group.record.summary, group.ends)
    if margin is not None and margin.entries < 0:
        return f"entries of {group.stream} were trimmed before they were archived"
    return (
        f"the oldest entry of {group.stream} that is not archived is close to the trimmed entries "
        "(less than 25% of the stream between them)"
    )


def report_unmounted(audit: StreamAudit) -> str | None:
    """Return a clause about an archive in a container's own file system; None otherwise.

    That is not an error: a node may run pods without containers, as those of the local cluster do.
    """
    path = audit.spec.archive.path
    if path is None or not path.startswith("/"):
        return None
    if any(_holds(mount, path) for mount in _mount_paths(part_of(audit.spec.template, "spec"))):
        return None
    return (
        f"No volume of spec.template is mounted at {path}: the archive is lost when the "
        "container ends. Mount a volume there, or use spec.archive.persistentVolumeClaim"
    )


def _holds(mount: str, path: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{mount.rstrip('/')}/")


def _mount_paths(pod: object) -> Iterator[str]:
    """Return where containers mount volumes. Parts of the pod with an invalid type are skipped."""
    for container in _objects(_object(pod).get("containers")):
        for mount in _objects(container.get("volumeMounts")):
            if isinstance(mount.get("mountPath"), str):
                yield mount["mountPath"]


def _object(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _objects(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


_GROUPS_REPORTED: Final = 5


def decide_audit_conditions(facts: AuditFacts, *, now: datetime) -> list[Condition]:
    """Return all conditions of an audit, Ready first. Total."""
    return [_ready(facts), *_suspended(facts), *_alarms(facts, now)]


def find_failure(facts: AuditFacts, group: RecordedGroup) -> Finding | None:
    """Return why a group cannot be accounted for, even if runs succeed; None if it can."""
    if group.problem is not None:
        return Finding(
            reason=Reason.SUMMARY_UNREADABLE,
            message=f"The result for {_name(group)} in Redis cannot be read: "
            f"{group.problem.message}. The "
            "next run writes it again",
        )
    if group.stream_problem is not None:
        return Finding(
            reason=Reason.AUDIT_INCONCLUSIVE,
            message=f"The audit cannot account for {_name(group)}: {group.stream_problem.message}",
        )
    if group.record is not None and group.record.summary.verdict is AuditVerdict.FAILING:
        return Finding(
            reason=Reason.AUDIT_INCONCLUSIVE,
            message=f"The audit cannot account for {_name(group)}, see its report: "
            f"{group.record.summary.sentence}",
        )
    incomplete = report_incomplete(facts.audit, facts.runs, group)
    if incomplete is None:
        return None
    return Finding(
        reason=Reason.RUN_INCOMPLETE,
        message=f"The last run succeeded, but {incomplete}: see the log of the run",
    )


def _ready(facts: AuditFacts) -> Condition:
    problem = facts.plan_problem or facts.job_problem or facts.redis_problem
    if problem is None and not facts.runs.exists:
        problem = Finding(reason=Reason.CREATING, message=f"Creating {facts.job}")
    if problem is not None:
        return Condition(
            type=ConditionType.READY,
            status="False",
            reason=problem.reason,
            message=problem.message,
        )
    spec = facts.audit.spec
    if spec.suspend:
        message = f"{facts.job} exists, but starts no runs because spec.suspend is true"
        return _true(ConditionType.READY, Reason.SUSPENDED, message)
    schedule = f"{facts.job} runs on the schedule {spec.schedule} ({spec.time_zone or 'UTC'})"
    doubt = report_unmounted(facts.audit)
    return _true(
        ConditionType.READY, Reason.SCHEDULED, f"{schedule}. {doubt}" if doubt else schedule
    )


def _suspended(facts: AuditFacts) -> list[Condition]:
    if not facts.audit.spec.suspend:
        return []
    message = "spec.suspend is true: no further run is started"
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
    conditions = {c.type: c for c in (status.conditions or () if status else ())}
    return [
        Condition(
            type=kind,
            status="True",
            reason=conditions[kind].reason,
            message=conditions[kind].message,
        )
        for kind in AUDIT_ALARMS
        if kind in conditions and conditions[kind].status is ConditionStatus.TRUE
    ]


def _loss(facts: AuditFacts) -> Finding | None:
    lost = [g for g in facts.groups if g.record is not None and g.record.unacknowledged]
    if not lost:
        return None
    counts = _list(f"{g.record.unacknowledged if g.record else 0:,} of {g.stream}" for g in lost)
    metadata = facts.audit.metadata
    return Finding(
        reason=Reason.LOSS_DETECTED,
        message=(
            f"Entries are lost: they were deleted before a worker received them: {counts}. The "
            "archive and the report list each of them. Add them again from their source, then "
            "acknowledge this condition with kubectl annotate --overwrite saudit -n "
            f"{metadata.namespace} {metadata.name} {ACKNOWLEDGE}={ConditionType.LOSS_DETECTED}"
        ),
    )


def _behind(facts: AuditFacts) -> Finding | None:
    clauses = [clause for group in facts.groups if (clause := report_behind(group)) is not None]
    if not clauses:
        return None
    return Finding(
        reason=Reason.ARCHIVE_BEHIND_RETENTION,
        message=(
            f"The stream is trimmed before, or shortly after, its entries are archived: "
            f"{_list(clauses)}. Run the audit more often (spec.schedule), or keep more entries "
            "(XADD MAXLEN, or spec.retention of the StreamConsumerGroup)"
        ),
    )


def _failing(facts: AuditFacts, now: datetime) -> Finding | None:
    run = find_run_problem(facts.audit, facts.runs, now=now)
    if run is not None:
        return run
    failures = [find_failure(facts, group) for group in facts.groups]
    findings = [failure for failure in failures if failure is not None]
    if not findings:
        return None
    return Finding(reason=findings[0].reason, message=_list(one.message for one in findings))


def _true(kind: ConditionType, reason: Reason, message: str) -> Condition:
    return Condition(type=kind, status="True", reason=reason, message=message)


def _list(clauses: Iterable[str]) -> str:
    items = list(clauses)
    more = len(items) - _GROUPS_REPORTED
    return "; ".join(items[:_GROUPS_REPORTED]) + (f"; and {more} more" if more > 0 else "")
