"""Whether the verdict that is shown can still be believed: did the last run do its work?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from pelops.api.audit.status import AuditRunStatus
from pelops.api.audit.stream_audit import StreamAudit
from pelops.domain.condition import Finding, render_time
from pelops.domain.entry_id import EntryId
from pelops.policy.audit.facts import GroupAudit, Runs
from pelops.policy.status.reasons import Reason

# Between the control plane's clock and Redis', and for a run's end to be told.
GRACE: Final = timedelta(seconds=60)
# An entry's ID that lies before is no time: it was given by hand.
_FIRST_TIME_MS: Final = 1_000_000_000_000
_LAST_TIME_MS: Final = 253_370_764_800_000


def find_run_problem(audit: StreamAudit, runs: Runs, *, now: datetime) -> Finding | None:
    """Why the last run did not do its work; None while it goes on, or before the first."""
    if runs.last_start is None or is_successful(runs):
        return None
    if runs.failed_start is None and _may_end_well(audit, runs, runs.last_start, now):
        return None
    began = runs.failed_start or runs.last_start
    metadata = audit.metadata
    return Finding(
        reason=Reason.RUN_FAILED,
        message=(
            f"The run of {render_time(began)} did not end well; see kubectl logs -n "
            f"{metadata.namespace} -l pelops.dev/stream-audit={metadata.name} --tail=50, and if it "
            "never began kubectl describe pods with the same label. Until one ends well, what is "
            "told is of an older window"
        ),
    )


def _may_end_well(audit: StreamAudit, runs: Runs, began: datetime, now: datetime) -> bool:
    # What ends runs at their deadline needs a moment to do so.
    patience = timedelta(seconds=audit.spec.deadline_seconds) if runs.is_active else timedelta()
    return now - began <= patience + GRACE


def find_failed_start(runs: Runs, reported: AuditRunStatus | None) -> datetime | None:
    """When the first run began of those that failed since one ended well; None without.

    `told` is what the status says of the runs: one that was the last then, and is not any more, has
    ended, and what runs them keeps only the time of a good end. A schedule may be so dense that no
    run is ever seen to have ended.
    """
    if reported is None or runs.last_start is None:
        return None
    for began in (reported.failed_start_time, reported.last_start_time):
        if began is None or began >= runs.last_start:
            continue
        if runs.last_success is None or runs.last_success < began:
            return began
    return None


def is_successful(runs: Runs) -> bool:
    """Whether the run that began last has ended well."""
    began, ended = runs.last_start, runs.last_success
    return began is not None and ended is not None and ended >= began


def report_incomplete(audit: StreamAudit, runs: Runs, group: GroupAudit) -> str | None:
    """A clause about a group that the last run should have accounted for and did not."""
    if not is_successful(runs) or runs.last_start is None or group.problem is not None:
        return None
    if group.record is None:
        # An empty stream has no window to record.
        is_empty = group.ends is not None and group.ends.added == 0
        return None if is_empty else f"{group.group} of {group.stream} has no window"
    waiting = None if group.ends is None else _time_of(group.ends.first_unaudited)
    window = timedelta(seconds=audit.spec.window_seconds)
    if waiting is None or waiting >= runs.last_start - window - GRACE:
        return None
    return f"{group.group} of {group.stream} has entries of {render_time(waiting)} in no window"


def _time_of(entry_id: EntryId | None) -> datetime | None:
    if entry_id is None or not _FIRST_TIME_MS <= entry_id.ms <= _LAST_TIME_MS:
        return None
    return datetime.fromtimestamp(entry_id.ms / 1000, UTC)
