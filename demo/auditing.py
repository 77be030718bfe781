"""The audit of the demo: a StreamAudit, a run of its Job, and what that found."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.audit_checks import AuditOutcome
from demo.checks import find_condition
from demo.declaration import AUDIT_MANIFEST, read_audit_name, render_audit
from demo.direct import ROOT
from demo.finding import Findings
from demo.stage import Stage
from demo.team import Team
from demo.workers import parse_ms
from local_cluster.java import require_java
from local_cluster.processes import wait_until
from local_cluster.progress import report, step
from pelops.domain.records.audit import AuditSummary
from pelops.errors import InvalidSpec

JOB = "now"
PAGE = ROOT / "build" / "audit.html"
MADE_S = 60.0
RUN_S = 600.0  # on two cores with much else to do
REPORTED_S = 60.0
LOOK_S = 0.25


class AuditFailed(Exception):
    """The audit's Job did not end well; the text is the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A run of the audit that is under way."""

    stage: Stage
    name: str
    archive: Path

    @property
    def page(self) -> Path:
        """Where the Job writes its report."""
        return self.archive / "report" / "audit.html"

    @property
    def key(self) -> str:
        """The name under which the Job records."""
        return f"{self.stage.namespace}/{self.name}"

    def find_reported(self) -> Sequence[Mapping[str, Any]]:
        """The groups in the StreamAudit's status."""
        groups: Sequence[Mapping[str, Any]] = (
            self.stage.get("streamaudits", self.name).get("status", {}).get("groups") or ()
        )
        return groups

    def read_log(self) -> str:
        """The end of the Job's log."""
        where = ("-n", self.stage.namespace, "--tail=30", "--pod-running-timeout=1s")
        return self.stage.cluster.kubectl("logs", f"job/{JOB}", *where, check=False).rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What the audit found."""

    summaries: Mapping[str, AuditSummary]  # by the label of the team
    outcomes: Mapping[str, AuditOutcome]
    took_s: int
    table: str  # what kubectl get shows
    page: Path  # as seen from the repository


def start_audit(stage: Stage) -> Audit:
    """Declare the StreamAudit, and run its Job now. Returns at once when it has begun."""
    archive = stage.cluster.state / "audit"
    manifest = render_audit(AUDIT_MANIFEST.read_text(), archive=archive, java=require_java())
    name = read_audit_name(manifest)
    report(f"applying StreamAudit {stage.namespace}/{name}: kubectl apply -f demo/audit.yaml")
    stage.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
    cron_job = f"{name}-audit"
    wait_until(
        lambda: _is_made(stage, cron_job),
        timeout_s=MADE_S,
        what=f"the CronJob {cron_job}",
        every_s=LOOK_S,
    )
    report(f"starting the audit: kubectl create job {JOB} --from=cronjob/{cron_job}")
    stage.cluster.kubectl("create", "job", JOB, f"--from=cronjob/{cron_job}", "-n", stage.namespace)
    return Audit(stage=stage, name=name, archive=archive)


def await_audit(audit: Audit) -> None:
    """Return when its Job has ended. Raises AuditFailed."""
    with step("waiting for the audit of every entry"):
        _await(lambda: _has_ended(audit), RUN_S, f"the Job {JOB}", audit)


def read_audit(audit: Audit, found: Sequence[Findings]) -> Audited:
    """What it found, once the operator has reported it. Raises AuditFailed."""
    status = audit.stage.get("jobs", JOB)["status"]
    summaries = {one.team.label: _read(audit, one.team) for one in found}
    _await(lambda: _is_reported(audit, summaries), REPORTED_S, "the StreamAudit's status", audit)
    where = ("-n", audit.stage.namespace)
    return Audited(
        summaries=summaries,
        outcomes={one.team.label: _compare(audit, one, summaries) for one in found},
        took_s=(parse_ms(status["completionTime"]) - parse_ms(status["startTime"])) // 1000,
        table=audit.stage.cluster.kubectl("get", "streamaudit", audit.name, *where),
        page=keep_page(audit.page),
    )


def keep_page(written: Path, page: Path = PAGE) -> Path:
    """Copy the report to where it outlives the cluster; the path as seen from the repository."""
    page.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(written, page)
    return page.relative_to(ROOT) if page.is_relative_to(ROOT) else page


def _is_made(stage: Stage, cron_job: str) -> bool:
    return bool(stage.get("cronjobs", fieldSelector=f"metadata.name={cron_job}")["items"])


def _await(condition: Callable[[], bool], timeout_s: float, what: str, audit: Audit) -> None:
    try:
        wait_until(condition, timeout_s=timeout_s, what=what, every_s=LOOK_S)
    except TimeoutError as error:
        raise AuditFailed(f"{error}; its log ends with:\n{audit.read_log()}") from error


def _has_ended(audit: Audit) -> bool:
    status = audit.stage.get("jobs", JOB).get("status", {})
    if find_condition(status, "Failed").get("status") == "True":
        raise AuditFailed(f"the audit's Job failed; its log ends with:\n{audit.read_log()}")
    return find_condition(status, "Complete").get("status") == "True"


def _read(audit: Audit, team: Team) -> AuditSummary:
    try:
        return team.store.read_audit(audit.key)
    except (LookupError, InvalidSpec) as error:
        raise AuditFailed(f"{error}; its log ends with:\n{audit.read_log()}") from error


def _is_reported(audit: Audit, summaries: Mapping[str, AuditSummary]) -> bool:
    reported = {(one["group"], one.get("produced")) for one in audit.find_reported()}
    return reported >= {(one.group, one.produced) for one in summaries.values()}


def _compare(audit: Audit, found: Findings, summaries: Mapping[str, AuditSummary]) -> AuditOutcome:
    summary = summaries[found.team.label]
    reported = [one for one in audit.find_reported() if one["group"] == summary.group]
    return AuditOutcome(
        summary=summary,
        entries=found.outcome.entries,
        copies=found.outcome.copies,
        redriven=len(found.recovery.redriven),
        reported=reported[0] if reported else {},
        page=audit.page.read_text(),
    )
