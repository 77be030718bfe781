"""All that is known of one audit in one pass: the only input of its decisions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pelops.api.audit.stream_audit import StreamAudit
from pelops.domain.condition import Finding
from pelops.domain.entry_id import EntryId
from pelops.domain.records.audit import AuditRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnds:
    """The current state of a stream, to measure an audit's progress."""

    added: int  # entries-added
    length: int
    first_unaudited: EntryId | None = None  # the first entry after the newest window


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGroup:
    """One group, what the audit recorded of it, and the current state of its stream."""

    stream: str
    group: str
    resource: str | None = None  # name of its StreamConsumerGroup in the audit's namespace
    record: AuditRecord | None = None
    ends: StreamEnds | None = None  # None: the stream could not be observed, or does not exist
    problem: Finding | None = None  # why the record cannot be read
    stream_problem: Finding | None = None  # why there is no such stream, and will be none


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs, from the status of the object that starts them, on the control plane's clock."""

    exists: bool = False  # whether that object exists
    last_start: datetime | None = None
    last_success: datetime | None = None  # when it ended
    is_active: bool = False
    # When the first failed run began, if all runs before the last one have failed since then.
    failed_start: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFacts:
    """The resource and what was observed; a problem is why something could not be observed."""

    audit: StreamAudit
    job: str  # KIND/NAME of the object that runs it
    groups: tuple[RecordedGroup, ...] = ()
    runs: Runs = Runs()
    plan_problem: Finding | None = None  # which part of the spec cannot be met
    job_problem: Finding | None = None  # why the object that runs it is not as it should be
    redis_problem: Finding | None = None  # why nothing could be read from Redis
