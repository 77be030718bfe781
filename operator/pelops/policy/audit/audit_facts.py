"""All that is known of one audit in one turn: the whole world of its decisions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pelops.api.audit.stream_audit import StreamAudit
from pelops.domain.audit import AuditRecord
from pelops.domain.condition import Finding
from pelops.domain.entry_id import EntryId


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnds:
    """A stream as it is now, as far as an audit's progress is measured by it."""

    added: int  # entries-added
    length: int
    first_unaudited: EntryId | None = None  # the first entry after the newest window


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAudit:
    """One group, what the audit recorded of it, and its stream now."""

    stream: str
    group: str
    resource: str | None = None  # name of its StreamConsumerGroup in the audit's namespace
    record: AuditRecord | None = None
    ends: StreamEnds | None = None  # None: the stream could not be seen, or does not exist
    problem: Finding | None = None  # why what was recorded cannot be read
    stream_problem: Finding | None = None  # why there is no such stream, and will be none


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs as what runs them tells, on the clock of the control plane."""

    exists: bool = False  # whether there is something that runs them
    last_start: datetime | None = None
    last_success: datetime | None = None  # when it ended
    is_active: bool = False
    # When the first of the runs began that ended before the last one, none of them well.
    failed_start: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFacts:
    """What was asked for and what was seen; a problem says why something could not be."""

    audit: StreamAudit
    job: str  # KIND/NAME of what runs it
    groups: tuple[GroupAudit, ...] = ()
    runs: Runs = Runs()
    plan_problem: Finding | None = None  # what of the wish cannot be met
    job_problem: Finding | None = None  # why what runs it is not as it should be
    redis_problem: Finding | None = None  # why nothing could be read
