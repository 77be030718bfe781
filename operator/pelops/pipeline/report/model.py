"""What a report shows: everything counted and cut by whoever computes it, nothing left to Spark.

Only `summary` of a group is always there. What is None was not looked at, and the page says so;
what is empty was looked at, and nothing was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pelops.domain.audit import AuditSummary, EntryStatus, Verdict, worst_verdict
from pelops.domain.entry_id import EntryId
from pelops.pipeline.clusters import Cluster
from pelops.pipeline.report.numbers import show_count


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceptions:
    """Entries that were kept one by one."""

    count: int
    first: tuple[ExceptionalEntry, ...]  # what is worst, first
    path: str = ""  # where all of them are, as Parquet


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
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
    letters: Letters | None = None
    duplicates: Duplicates | None = None
    unproven: tuple[Unproven, ...] = ()
    deliveries: tuple[int, ...] | None = (
        None  # entries delivered once, twice ...; the last: or more
    )
    spreads: tuple[Spread, ...] = ()
    comparisons: tuple[Comparison, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run of an audit found."""

    audit: str  # its name
    at: datetime
    pelops: str  # version of the program
    archive: str  # where the evidence is
    groups: tuple[GroupReport, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of all groups'; `balanced` when there is none."""
        return worst_verdict([one.summary.verdict for one in self.groups]) or Verdict.BALANCED

    @property
    def sentence(self) -> str:
        """The verdict for people."""
        if not self.groups:
            return "There was no group to audit."
        if len(self.groups) == 1:
            return self.groups[0].summary.sentence
        return _sentence_of_many([one.summary for one in self.groups])


def _sentence_of_many(summaries: Sequence[AuditSummary]) -> str:
    produced = sum(one.produced for one in summaries)
    told = {
        "lost": EntryStatus.LOST,
        "stuck": EntryStatus.STUCK,
        "dead letters": EntryStatus.DEAD_LETTERED,
        "without payload": EntryStatus.PAYLOAD_GONE,
        "of unknown fate": EntryStatus.INDETERMINATE,
    }
    sums = {name: sum(one.counts.get(of, 0) for one in summaries) for name, of in told.items()}
    parts = [f"{show_count(count)} {name}" for name, count in sums.items() if count]
    failing = sum(one.verdict is Verdict.FAILING for one in summaries)
    end = _join(parts) if parts else "all of them as they should be"
    tail = f"; {failing} of the groups could not be accounted for" if failing else ""
    return f"{len(summaries)} groups, {show_count(produced)} entries: {end}{tail}."


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
