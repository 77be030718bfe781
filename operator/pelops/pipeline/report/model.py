"""What a report shows: everything counted and cut by whoever computes it, nothing left to Spark.

Only `summary` of a group is always there. What is None was not looked at, and the page says so;
what is empty was looked at, and nothing was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from pelops.domain.audit import AuditSummary, AuditVerdict, Certainty, EntryStatus
from pelops.domain.entry_id import EntryId
from pelops.pipeline.triage.clusters import Cluster


class Severity(StrEnum):
    """How grave a finding is, from worst to least."""

    FAILING = "failing"  # the entries cannot be accounted for
    LOST = "lost"
    PAYLOAD_GONE = "payload_gone"
    STUCK = "stuck"
    DEAD_LETTERED = "dead_lettered"
    OTHER = "other"
    UNKNOWN = "unknown"  # nothing is known to be wrong, and nothing shows that it is well


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFinding:
    """Something that somebody should look at, from whichever table of the audit it came."""

    severity: Severity
    kind: str  # a word for programs
    count: int
    sentence: str
    part: str = ""  # of the group's report, that shows more of it


class EntrySource(StrEnum):
    """Where an entry that was kept one by one belongs."""

    WINDOW = "window"  # the window of the report
    EARLIER = "earlier"  # windows before it, and it can still change
    SETTLED = "settled"  # windows before it, open until this one
    COPY = "copy"  # copies in the group's own retry stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Counts over time, in steps of equal length. The sequences are equally long."""

    start: datetime
    step: timedelta
    arrivals: Sequence[int]
    recoveries: Sequence[int]  # requeued or released
    dead_letters: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeBand:
    """Stuck entries by the time since their last delivery."""

    at_least: timedelta
    below: timedelta | None  # None: however old
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionalEntry:
    """One entry that somebody may have to look at."""

    entry_id: EntryId
    status: EntryStatus
    why: str
    consumer: str = ""
    idle: timedelta | None = None
    deliveries: int | None = None
    root_id: EntryId | None = None  # of a copy
    source: EntrySource = EntrySource.WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceptions:
    """Entries that were kept one by one and need a look, from all tables of the audit."""

    count: int
    counts: Mapping[EntrySource, Mapping[EntryStatus, int]] = field(default_factory=dict)
    first: tuple[ExceptionalEntry, ...]  # what is worst, first
    path: str = ""  # where all of them are, as Parquet


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Dead letters of the group, whatever window they came from."""

    count: int
    clusters: tuple[Cluster, ...]  # the largest first
    plan: str = ""  # path of the redrive plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """Several entries that seem to be the same one."""

    by: str  # `root`, `payload`, or the name of the user's business key
    key: str
    copies: int
    examples: tuple[EntryId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Entries that came more than once."""

    entries: int  # beyond the first of each
    first: tuple[Duplicate, ...]  # those with most copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Unproven:
    """Something that the audit could not prove, and what would have proven it."""

    why: str  # a word for programs
    entries: int | None  # None: it concerns the audit as a whole
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountCheck:
    """Two ways of counting the same."""

    name: str
    expected: int
    found: int

    @property
    def holds(self) -> bool:
        return self.expected == self.found


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a time, or a number of deliveries, is distributed."""

    name: str
    entries: int
    p50: timedelta
    p90: timedelta
    p99: timedelta
    most: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a join with the user's own table found."""

    kind: str  # such as `never-arrived`, `arrived-twice`, `without-effect`
    count: int
    sentence: str
    examples: tuple[str, ...] = ()  # business keys


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One group in its newest window."""

    summary: AuditSummary
    earlier: tuple[AuditSummary, ...] = ()  # windows before it, the oldest first
    checks: tuple[CountCheck, ...] = ()
    roots: dict[EntryStatus, int] | None = None  # outcomes of what users added; copies left out
    timeline: Timeline | None = None
    stuck_ages: tuple[AgeBand, ...] | None = None
    exceptions: Exceptions | None = None
    letters: DeadLetters | None = None
    duplicates: Duplicates | None = None
    unproven: tuple[Unproven, ...] = ()
    deliveries: tuple[int, ...] | None = (
        None  # entries delivered once, twice ...; the last: or more
    )
    spreads: tuple[Spread, ...] = ()
    comparisons: tuple[Comparison, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """One group in an overview: its verdict, and what it has of each severity."""

    stream: str
    group: str
    verdict: AuditVerdict
    certainty: Certainty | None  # of `balanced`; None for every other verdict
    sentence: str
    findings: tuple[ReportFinding, ...]  # the worst first
    window: int
    closed: datetime
    produced: int
    open: int  # entries of this and earlier windows that have not come to an end
    href: str = ""  # of the part of a page that tells more


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run of an audit found, and what the archive has beside it."""

    audit: str  # its name
    at: datetime
    pelops: str  # version of the program
    archive: str  # where the evidence is
    groups: tuple[GroupReport, ...] = ()
    stream: str | None = None  # the report of one stream; None: of all that the archive holds
    others: tuple[GroupLine, ...] = ()  # groups of the archive that have a report of their own
    unread: tuple[str, ...] = ()  # reports of the archive that cannot be read
