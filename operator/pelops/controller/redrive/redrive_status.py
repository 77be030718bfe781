"""The `status` of a redrive, the Events of its progress, and its gauges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pelops.api.redrive.redrive_status_model import MOST_SAMPLES
from pelops.api.redrive.stream_redrive import RedriveAction, StreamRedrive, StreamRedriveSpec
from pelops.api.schema.base import MAX_EXACT_INTEGER
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.kind import Difference, PreviousStatus, Status, render_heading
from pelops.domain.condition import Condition, render_time, shorten
from pelops.kube.event_recorder import EventContent
from pelops.metrics import REDRIVE_ENTRIES, REDRIVE_FAILED
from pelops.policy.redrive.redrive_facts import (
    Origin,
    Phase,
    RedriveCounts,
    RedriveFacts,
    find_ending,
)
from pelops.policy.status.reasons import ConditionType, Reason

# Fields that change with every dead letter.
_MOVING: Final = (
    "moved",
    "skipped",
    "failedAgain",
    "acknowledged",
    "lost",
    "unknown",
    "remaining",
    "lastId",
    "estimatedCompletionTime",
)
_STATES: Final = {
    "selected": "selected",
    "moved": "moved",
    "skipped": "skipped",
    "remaining": "remaining",
    "failedAgain": "failed_again",
    "acknowledged": "acknowledged",
    "lost": "lost",
    "unknown": "unknown",
}
_MESSAGE_LIMIT: Final = 1024
_TENTHS: Final = 10


def compare_redrives(wished: Status, live: Mapping[str, Any]) -> Difference:
    """Whether the status has to be written, and how urgently."""
    if wished == live:
        return Difference.NONE
    is_alike = _without_numbers(wished) == _without_numbers(live)
    return Difference.NUMBERS if is_alike else Difference.FACTS


def render_redrive_status(
    facts: RedriveFacts, conditions: list[Condition], previous: PreviousStatus, now: datetime
) -> Status:
    """The whole status. What is not known now stays as it was reported."""
    kept = {key: value for key, value in previous.status.items() if key not in _HEADING}
    heading = render_heading(conditions, previous, now)
    if find_ending(facts.redrive) is not None:
        return {**kept, **heading}  # it ends once
    kept.pop("estimatedCompletionTime", None)
    counts = facts.counts
    if counts is not None:
        kept = _render_counts(facts.redrive.spec, facts, counts)
    if facts.origin is not None:
        kept["source"] = render_origin(facts.origin)
    if facts.verdict is not None:
        kept["completionTime"] = render_time(now)
        kept["message"] = shorten(facts.verdict.finding.message, _MESSAGE_LIMIT)
    return {**kept, **heading}


def render_origin(origin: Origin) -> dict[str, str]:
    """`status.source`."""
    return {
        "server": origin.server,
        "stream": origin.stream,
        "groupUid": origin.group_uid,
    }


def read_origin(redrive: StreamRedrive) -> Origin | None:
    """Where the redrive has started, by its status; None when it has not."""
    source = redrive.status.source if redrive.status else None
    if source is None or not (source.server and source.stream and source.group_uid):
        return None
    return Origin(server=source.server, stream=source.stream, group_uid=source.group_uid)


def report_progress(before: Status, after: Status) -> Iterator[EventContent]:
    """The Event for each further tenth of the dead letters that was handled."""
    tenth = _tenth(after)
    if not 0 < tenth < _TENTHS or tenth <= _tenth(before):
        return
    parts = [f"{after.get('moved', 0):,} of {after['selected']:,} dead letters are moved"]
    if after.get("skipped"):
        parts.append(f"{after['skipped']:,} skipped")
    if after.get("failedAgain"):
        parts.append(f"{after['failedAgain']:,} failed again")
    yield EventContent(
        type="Normal",
        reason=Reason.REDRIVE_PROGRESS,
        action="Redrive",
        note=f"{10 * tenth}%: {', '.join(parts)}",
        occurrence=str(tenth),
    )


def measure_redrive(name: Name, status: Status) -> None:
    """Set the gauges of a redrive to what its status reports."""
    for field, state in _STATES.items():
        if field in status:
            REDRIVE_ENTRIES.set(float(status[field]), *name, state)
    conditions = status.get("conditions") or ()
    has_failed = any(one["type"] == ConditionType.FAILED for one in conditions)
    REDRIVE_FAILED.set(float(has_failed), *name)


_HEADING: Final = frozenset({"observedGeneration", "conditions"})


def _render_counts(
    spec: StreamRedriveSpec, facts: RedriveFacts, counts: RedriveCounts
) -> dict[str, Any]:
    is_complete = facts.verdict is not None and not facts.verdict.is_failure
    if is_complete and not spec.is_dry_run:
        counts = counts.finalize()
    outcomes = counts.outcomes if spec.action is RedriveAction.REDRIVE else None
    is_counted = counts.selected is not None
    end = _estimate(spec, facts, counts)
    fields = {
        "selected": counts.selected,
        "moved": counts.moved if is_counted else None,
        "skipped": counts.skips if is_counted else None,
        "failedAgain": outcomes.failed_again if outcomes else None,
        "acknowledged": outcomes.acknowledged if outcomes else None,
        "lost": outcomes.lost if outcomes else None,
        "unknown": outcomes.unknown if outcomes else None,
        "remaining": _remaining(facts, counts),
        "untilId": str(counts.until) if counts.until is not None else None,
        "lastId": str(counts.cursor) if is_counted else None,
        "startTime": render_time(counts.started),
        "estimatedCompletionTime": render_time(end) if end else None,
        "samples": [str(one) for one in counts.samples[:MOST_SAMPLES]] if is_counted else None,
    }
    return {
        name: min(value, MAX_EXACT_INTEGER) if isinstance(value, int) else value
        for name, value in fields.items()
        if value is not None
    }


def _remaining(facts: RedriveFacts, counts: RedriveCounts) -> int | None:
    is_complete = facts.verdict is not None and not facts.verdict.is_failure
    if is_complete and not facts.redrive.spec.is_dry_run:
        return 0
    return counts.remaining


def _estimate(
    spec: StreamRedriveSpec, facts: RedriveFacts, counts: RedriveCounts
) -> datetime | None:
    """When the last dead letter will be moved, at the rate so far and within the limit."""
    remaining, handled = counts.remaining, counts.moved + counts.skips
    if facts.phase is not Phase.MOVING or facts.verdict is not None or facts.problem is not None:
        return None
    if not remaining or not handled:
        return None
    elapsed = max((counts.now - counts.started).total_seconds(), 1.0)
    per_second = min(float(spec.rate_per_second), handled / elapsed)
    return counts.now + min(timedelta(seconds=remaining / per_second), timedelta(days=3650))


def _tenth(status: Mapping[str, Any]) -> int:
    selected = status.get("selected") or 0
    handled = (status.get("moved") or 0) + (status.get("skipped") or 0)
    return _TENTHS * handled // selected if selected else 0


def _without_numbers(status: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name not in _MOVING}
