"""The parts of a group's report: which of them have something to show, and its sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pelops.domain.audit import EXPECTED_STATUSES, AuditSummary, EntryStatus
from pelops.pipeline.report.model import (
    AgeBand,
    EntrySource,
    ExceptionalEntry,
    GroupReport,
    ReportFinding,
)
from pelops.pipeline.report.severity import ACKNOWLEDGED
from pelops.pipeline.report.words import (
    REASONS,
    count_entries,
    count_of,
    one_line,
    show_count,
    show_period,
    show_rate,
    show_share,
    show_span,
)
from pelops.pipeline.triage.clusters import MOST_RETRIES, Cluster

_SOURCES: Final = {
    EntrySource.WINDOW: "",
    EntrySource.EARLIER: "earlier window: ",
    EntrySource.SETTLED: "earlier window, open until this one: ",
    EntrySource.COPY: "copy in the retry stream: ",
}
_CHECKED: Final = {
    "produced": "Produced, and with a status",
    "pending": "Pending in Redis, and open in the archive",
    "open": "Left open by the previous window, and audited again",
    "roots": "Added by users, and with an outcome",
    "requeued": "Requeued or redriven, and followed to the last copy",
}
_ON_THEIR_WAY: Final = {
    EntryStatus.IN_FLIGHT: "in flight",
    EntryStatus.UNDELIVERED: "not delivered yet",
    EntryStatus.REQUEUED: "requeued as copies",
    EntryStatus.REDRIVEN: "redriven as copies",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """A part of a group's report. One that has something to show is folded under its title."""

    name: str  # the end of its anchor, and its template
    title: str = ""
    gist: str = ""  # a summary beside the title
    nothing: str = ""  # what was looked for, if there is nothing to show
    is_shown: bool = True
    is_unseen: bool = False  # it was not looked for


def list_parts(group: GroupReport) -> list[ReportPart]:
    """Return the parts of a group's report, in their order on the page."""
    parts = (
        _exceptions(group),
        _letters(group),
        _stuck(group),
        _comparisons(group),
        _duplicates(group),
        _balance(group),
        _unproven(group),
        _time(group),
        _windows(group),
    )
    return [part for part in parts if part is not None]


def find_worst_part(shown: Sequence[ReportPart], findings: Sequence[ReportFinding]) -> str:
    """Return the name of the part that shows the worst of the findings; empty without any."""
    names = {part.name for part in shown}
    return next((one.part for one in findings if one.part in names), "")


def count_unlisted(group: GroupReport) -> int:
    """Return the entries of the window that need a look and were not kept one by one."""
    if group.exceptions is None:
        return 0
    counts = group.summary.counts
    known = sum(counts.get(status, 0) for status in EntryStatus if status not in EXPECTED_STATUSES)
    tables = group.exceptions.counts.get(EntrySource.WINDOW, {})
    return max(0, known - sum(tables.values()))


def outcomes_of(group: GroupReport) -> dict[EntryStatus, int]:
    """Return the outcomes of what users added; where they are not known, of all entries."""
    roots = {status: count for status, count in (group.roots or {}).items() if count}
    return roots or {status: count for status, count in group.summary.counts.items() if count}


def describe_outcomes(group: GroupReport) -> str:
    """Return how many are done, what the rest is, and what of it needs a look: they add up."""
    counts = outcomes_of(group)
    is_roots = any((group.roots or {}).values())
    whole = sum(counts.values())
    copies = group.summary.produced - whole if is_roots else 0
    beside = (
        f" The stream holds {count_of(copies, 'copy', 'copies')} of requeued or redriven entries"
        " beside them."
    )
    return f"{_progress(counts, whole, is_roots=is_roots)}{beside if copies > 0 else ''}"


def describe_window(group: GroupReport) -> str:
    """Return the window in one line: its number, period, entries and rate."""
    summary = group.summary
    window, begin = summary.window, _begin(group)
    reported = [f"Window {show_count(window.number)}: {show_period(begin, window.at)}"]
    reported.append(count_entries(summary.produced))
    if begin is not None and summary.produced and window.at > begin:
        reported.append(f"{show_rate(summary.produced, window.at - begin)} on average")
    return " · ".join(reported)


def describe_archive(summary: AuditSummary) -> str:
    """Return how far the archive is ahead of trimming, in words."""
    missing, margin = summary.produced - summary.archived, summary.retention_margin
    if missing > 0:
        were = "was" if missing == 1 else "were"
        return (
            f"behind trimming: {count_entries(missing)} of this window {were} removed before they "
            "could be archived; audit more often, or keep more entries in the stream"
        )
    if margin is None or margin >= 1:
        return "complete: nothing of this window was removed before it was archived"
    if margin < 0:
        return (
            "behind trimming when this run began: entries were removed before they could be "
            "archived; audit more often, or keep more entries in the stream"
        )
    room = show_share(round(1000 * margin), 1000)
    return f"complete; when this run began, {room} of what the stream held was archived already"


def describe_check(name: str) -> str:
    """Return what a pair of counts that must be equal counts."""
    return _CHECKED.get(name, name)


def describe_stuck(summary: AuditSummary) -> str:
    """Return how many entries are stuck, and how many of them are of earlier windows."""
    stuck = summary.counts.get(EntryStatus.STUCK, 0)
    earlier = summary.stuck_earlier
    more = f", and {show_count(earlier)} of earlier windows" if earlier else ""
    return f"{count_entries(stuck)} of this window {_are(stuck)} stuck{more}."


def describe_inferred(summary: AuditSummary) -> str:
    """Return how many acknowledgements are inferred; empty without any."""
    inferred = summary.counts.get(EntryStatus.ACKNOWLEDGED_INFERRED, 0)
    return f"{count_of(inferred, 'acknowledgement')} {_are(inferred)} inferred" if inferred else ""


def describe_band(band: AgeBand) -> str:
    """Return the limits of a band of ages."""
    if band.below is None:
        return f"{show_span(band.at_least)} or more"
    if not band.at_least:
        return f"below {show_span(band.below)}"
    return f"{show_span(band.at_least)} to {show_span(band.below)}"


def describe_reason(one: ExceptionalEntry) -> str:
    """Return why an entry has its status, and where it belongs."""
    return f"{_SOURCES[one.source]}{REASONS.get(one.why, one_line(one.why, 200))}"


def describe_cluster(cluster: Cluster) -> str:
    """Return what the dead letters of a cluster have in common, as its headline."""
    signature = cluster.signature
    return signature.error or signature.exception or signature.reason or "nothing was reported"


def describe_attempts(cluster: Cluster) -> str:
    """Return how many letters failed how often."""
    counts = enumerate(cluster.retries)
    return ", ".join(f"{_times(n)}: {show_count(count)}" for n, count in counts if count) or "-"


def _balance(group: GroupReport) -> ReportPart:
    gist = f"outcome of {count_entries(group.summary.produced)}"
    return ReportPart(name="balance", title="Balance", gist=gist)


def _stuck(group: GroupReport) -> ReportPart:
    oldest = group.summary.oldest_stuck
    held = (group.summary.stuck_earlier, *(band.entries for band in group.stuck_ages or ()))
    return ReportPart(
        name="stuck",
        title="Ages of stuck entries",
        gist=f"the oldest for {show_span(oldest)}" if oldest is not None else "",
        nothing="stuck entries",
        is_shown=any((group.summary.counts.get(EntryStatus.STUCK, 0), *held)),
        is_unseen=group.stuck_ages is None,
    )


def _unproven(group: GroupReport) -> ReportPart:
    inferred = describe_inferred(group.summary)
    return ReportPart(
        name="unproven",
        title="What could not be proven",
        gist=inferred or count_of(len(group.unproven), "limit"),
        nothing="statements without proof",
        is_shown=bool(inferred or group.unproven),
    )


def _exceptions(group: GroupReport) -> ReportPart:
    found, unlisted = group.exceptions, count_unlisted(group)
    listed, count = (0, 0) if found is None else (len(found.first), found.count)
    gist = count_entries(count + unlisted)
    if 0 < listed < count:
        gist += f", the worst {show_count(listed)} listed" if listed > 1 else ", the worst listed"
    return ReportPart(
        name="entries",
        title="Entries to check",
        gist=gist,
        nothing="entries to check",
        is_shown=bool(unlisted or count),
        is_unseen=found is None,
    )


def _letters(group: GroupReport) -> ReportPart:
    letters = group.letters
    count, clusters = (0, 0) if letters is None else (letters.count, len(letters.clusters))
    return ReportPart(
        name="letters",
        title="Dead letters",
        gist=f"{show_count(count)} in {count_of(clusters, 'cluster')}",
        nothing="dead letters",
        is_shown=bool(count),
        is_unseen=letters is None,
    )


def _duplicates(group: GroupReport) -> ReportPart:
    entries = 0 if group.duplicates is None else group.duplicates.entries
    return ReportPart(
        name="duplicates",
        title="Duplicates",
        gist=f"{count_entries(entries)} beyond the first of each",
        nothing="duplicates",
        is_shown=bool(entries),
        is_unseen=group.duplicates is None,
    )


def _comparisons(group: GroupReport) -> ReportPart | None:
    if not group.comparisons:
        return None
    gist = count_of(sum(one.count for one in group.comparisons), "difference")
    return ReportPart(name="compared", title="Compared with your table", gist=gist)


def _time(group: GroupReport) -> ReportPart:
    recovery = group.summary.recovery
    known = [one for one in group.spreads if one.entries]
    return ReportPart(
        name="time",
        title="Over time",
        gist=f"recovered within {show_span(recovery.p99)} (99 %)" if recovery is not None else "",
        nothing="times",
        is_shown=bool(group.timeline is not None or known or any(group.deliveries or ())),
        is_unseen=True,
    )


def _windows(group: GroupReport) -> ReportPart | None:
    if not group.earlier:
        return None
    gist = f"{count_of(len(group.earlier), 'window')} before this one"
    return ReportPart(name="windows", title="Windows", gist=gist)


def _progress(counts: Mapping[EntryStatus, int], whole: int, *, is_roots: bool) -> str:
    done = sum(counts.get(status, 0) for status in ACKNOWLEDGED)
    what = count_of(whole, "entry", "entries")
    users = " that producers added" if is_roots else ""
    if done == whole:
        were = "The one entry" if whole == 1 else f"All {what}"
        return f"{were}{users} {'was' if whole == 1 else 'were'} acknowledged."
    on_way = {word: counts.get(status, 0) for status, word in _ON_THEIR_WAY.items()}
    moving = sum(on_way.values())
    unknown = counts.get(EntryStatus.INDETERMINATE, 0)
    look = whole - done - moving - unknown
    were = "was" if done == 1 else "were"
    reported = [
        f"{show_count(done)} of {what}{users} ({show_share(done, whole)}) {were} acknowledged"
    ]
    if moving:
        names = ", ".join(f"{show_count(n)} {word}" for word, n in on_way.items() if n)
        reported.append(f"{count_of(moving, 'is', 'are')} in progress ({names})")
    if unknown:
        reported.append(f"{count_of(unknown, 'is', 'are')} indeterminate")
    if look:
        reported.append(f"{count_of(look, 'needs', 'need')} attention")
    return f"{'; '.join(reported)}."


def _begin(group: GroupReport) -> datetime | None:
    """Return when the window before was closed; of the first one, when its first entry came."""
    window = group.summary.window
    if group.earlier and group.earlier[-1].window.number == window.number - 1:
        return group.earlier[-1].window.at
    if group.timeline is not None and group.timeline.start <= window.at:
        return group.timeline.start
    return None


def _times(number: int) -> str:
    if number == MOST_RETRIES:
        return f"{number} times or more"
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
