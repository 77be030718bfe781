"""Sentences about the report of one group."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditEvidence, AuditSummary
from pelops.pipeline.report.model import (
    AgeBand,
    BytesHead,
    DeadLetterCluster,
    ExceptionalEntry,
    GroupReport,
    TextHead,
)
from pelops.pipeline.report.words import (
    _hexadecimal,
    count_entries,
    count_of,
    make_visible,
    one_line,
    show_count,
    show_period,
    show_rate,
    show_share,
    show_span,
)
from pelops.pipeline.triage.clusters import MOST_RETRIES

REASONS: Final = {
    "ledger": "recorded in the operator's ledger",
    "pending": "pending for longer than the limit",
    "body-gone": "pending, and trimmed or deleted",
    "gone-undelivered": "trimmed or deleted before it was delivered",
    "position-in-doubt": "the group's position was moved by hand, went back, or is new",
    "passed-meanwhile": "delivered during the audit, and no longer pending after it",
    "dropped": "removed from the PEL with a deleted consumer or group",
    "skipped": "the group's position was moved past it",
    "consumer-deleted": "pending until its consumer was deleted",
    "loss-seen": "recorded by the operator as lost",
    "trimmed-meanwhile": "trimmed or delivered first: no record shows which",
}

EVIDENCE: Final = {
    AuditEvidence.AOF: "append-only files and the ledger",
    AuditEvidence.LEDGER: "the operator's ledger",
    AuditEvidence.NONE: "the stream alone",
}


def show_head(head: TextHead | BytesHead) -> str:
    """Return the beginning of a value in one line; bytes that are not text as `\\x00`."""
    text = getattr(head, "text", None)
    if text is None:
        text = _hexadecimal(b64decode(getattr(head, "base64", "")))
    return make_visible(text).replace("\n", "\u23ce").replace("\t", "\u21e5")


def is_cut(head: TextHead | BytesHead, limit: int) -> bool:
    """Whether showing `limit` characters of the beginning leaves out a part of the value."""
    text = getattr(head, "text", None)
    known = len(b64decode(getattr(head, "base64", ""))) if text is None else len(text.encode())
    return head.size > known or len(show_head(head)) > limit


_SOURCES: Final = {
    "window": "",
    "earlier": "earlier window: ",
    "settled": "earlier window, open until this one: ",
    "copy": "copy in the retry stream: ",
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


def outcomes_of(group: GroupReport) -> dict[EntryStatus, int]:
    """The outcomes of entries that users added; if unknown, the statuses of all entries."""
    roots = {status: count for status, count in (group.roots or {}).items() if count}
    return roots or {status: count for status, count in group.summary.counts.items() if count}


def describe_outcomes(group: GroupReport) -> str:
    """Numbers of entries that are finished, in progress, indeterminate or need attention."""
    counts = outcomes_of(group)
    is_roots = any((group.roots or {}).values())
    whole = sum(counts.values())
    copies = group.summary.produced - whole if is_roots else 0
    beside = (
        f" The stream holds {count_of(copies, 'copy', 'copies')} of requeued or redriven entries"
        " beside them."
    )
    users = " that producers added" if is_roots else ""
    return f"{_describe_progress(counts, whole, users)}{beside if copies > 0 else ''}"


def _describe_progress(counts: Mapping[EntryStatus, int], whole: int, users: str) -> str:
    proven = counts.get(EntryStatus.ACKNOWLEDGED_PROVEN, 0)
    inferred = counts.get(EntryStatus.ACKNOWLEDGED_INFERRED, 0)
    done = proven + inferred
    ended = "delivered or passed" if inferred else "acknowledged"
    what = f"{count_entries(whole)}{users}"
    if done == whole:
        subject = f"The one entry{users} was" if whole == 1 else f"All {what} were"
        return f"{subject} {ended}{', and none is pending' if inferred else ''}."
    on_way = {word: counts.get(status, 0) for status, word in _ON_THEIR_WAY.items()}
    moving = sum(on_way.values())
    unknown = counts.get(EntryStatus.INDETERMINATE, 0)
    attention = whole - done - moving - unknown
    were, are = ("was", "is") if done == 1 else ("were", "are")
    pending = f", and {are} no longer pending" if inferred else ""
    parts = [f"{show_count(done)} of {what} ({show_share(done, whole)}) {were} {ended}{pending}"]
    if moving:
        names = ", ".join(f"{show_count(n)} {word}" for word, n in on_way.items() if n)
        parts.append(f"{count_of(moving, 'is', 'are')} in progress ({names})")
    if unknown:
        parts.append(f"{count_of(unknown, 'is', 'are')} indeterminate")
    if attention:
        parts.append(f"{count_of(attention, 'needs', 'need')} attention")
    return f"{'; '.join(parts)}."


def describe_window(group: GroupReport) -> str:
    """The window in one line: its number, period, entries and rate."""
    summary = group.summary
    window, begin = summary.window, _begin(group)
    parts = [f"Window {show_count(window.number)}: {show_period(begin, window.at)}"]
    parts.append(count_entries(summary.produced))
    if begin is not None and summary.produced and window.at > begin:
        parts.append(f"{show_rate(summary.produced, window.at - begin)} on average")
    return " · ".join(parts)


def _begin(group: GroupReport) -> datetime | None:
    """When the previous window was closed; for the first, the time of its first entry."""
    window = group.summary.window
    if group.earlier and group.earlier[-1].window.number == window.number - 1:
        return group.earlier[-1].window.at
    if group.timeline is not None and group.timeline.start <= window.at:
        return group.timeline.start
    return None


def describe_archive(summary: AuditSummary) -> str:
    """The distance between archive and trimming, in words."""
    missing, margin = summary.produced - summary.archived, summary.retention_margin
    advice = "audit more often, or keep more entries in the stream"
    if missing > 0:
        were = "was" if missing == 1 else "were"
        return (
            f"behind trimming: {count_entries(missing)} of this window {were} removed before they "
            f"could be archived; {advice}"
        )
    if margin is None or margin >= 1:
        return "complete: nothing of this window was removed before it was archived"
    if margin < 0:
        return (
            "behind trimming when this run began: entries were removed before they could be "
            f"archived; {advice}"
        )
    room = show_share(round(1000 * margin), 1000)
    return f"complete; when this run began, {room} of what the stream held was archived already"


def describe_check(name: str) -> str:
    """The description of a check of two counts that must be equal."""
    return _CHECKED.get(name, name)


def describe_stuck(summary: AuditSummary) -> str:
    """Number of stuck entries of the window, and of earlier windows."""
    stuck = summary.counts.get(EntryStatus.STUCK, 0)
    earlier = summary.stuck_earlier
    more = f", and {show_count(earlier)} of earlier windows" if earlier else ""
    return f"{count_entries(stuck)} of this window {'is' if stuck == 1 else 'are'} stuck{more}."


def describe_band(band: AgeBand) -> str:
    """The limits of an age band."""
    if band.below is None:
        return f"{show_span(band.at_least)} or more"
    if not band.at_least:
        return f"below {show_span(band.below)}"
    return f"{show_span(band.at_least)} to {show_span(band.below)}"


def describe_reason(entry: ExceptionalEntry) -> str:
    """The reason for an entry's status, and its source."""
    return f"{_SOURCES[entry.source]}{REASONS.get(entry.why, one_line(entry.why, 200))}"


def describe_cluster(cluster: DeadLetterCluster) -> str:
    """The headline of a cluster: the error that its dead letters have in common."""
    return cluster.error or cluster.exception or cluster.reason or "nothing was reported"


def describe_attempts(cluster: DeadLetterCluster) -> str:
    """Numbers of dead letters by failed attempts."""
    names = {0: "never", 1: "once", 2: "twice", MOST_RETRIES: f"{MOST_RETRIES} times or more"}
    counts = enumerate(cluster.retries)
    shown = [f"{names.get(n, f'{n} times')}: {show_count(count)}" for n, count in counts if count]
    return ", ".join(shown) or "-"
