"""Whether trimming is about to overtake the archive, or has.

What is trimmed before it was archived cannot be accounted for by anybody. The stream's counters
tell how far off that is: of all entries ever added, `added - length` are gone, and the archive has
`to_added` of them. An entry that was deleted out of the middle counts as trimmed: the alarm may
come early, never late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pelops.domain.audit import AuditSummary
from pelops.policy.audit.facts import GroupAudit, StreamEnds

LEAST_MARGIN: Final = 0.25  # of what the stream retains


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """How far the archive is ahead of trimming."""

    entries: int  # below 0: so many may have gone unseen
    share: float  # of what the stream retains; 1: nothing can be missed


def find_margin(summary: AuditSummary, ends: StreamEnds | None) -> Margin | None:
    """The margin now; None when it cannot be told: the stream is not seen, or another one.

    An archive that has everything is never behind, nor is one of a stream that nobody trims.
    """
    if ends is None or ends.added < summary.window.to_added:
        return None
    archived, gone = summary.window.to_added, ends.added - ends.length
    if ends.added == archived or gone == 0:
        return Margin(entries=max(0, archived - gone), share=1.0)
    return Margin(entries=archived - gone, share=(archived - gone) / max(1, ends.length))


def is_behind(group: GroupAudit) -> bool:
    """Whether the archive is behind now, or was when the last run began.

    The latter keeps an alarm from coming before each run and going after it.
    """
    if group.record is None:
        return False
    recorded = group.record.summary.retention_margin
    margin = find_margin(group.record.summary, group.ends)
    return (margin is not None and margin.share < LEAST_MARGIN) or (
        recorded is not None and recorded < LEAST_MARGIN
    )


def report_behind(group: GroupAudit) -> str | None:
    """A clause about a group whose archive is behind; None when it is not, or nothing is known."""
    if group.record is None or not is_behind(group):
        return None
    margin = find_margin(group.record.summary, group.ends)
    if margin is not None and margin.entries < 0:
        return f"entries of {group.stream} are gone that were not archived"
    return f"less than a quarter of {group.stream} is left between the two"
