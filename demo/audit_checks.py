"""What the demo claims of its audit, checked against what the demo itself knows. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from demo.checks import Check
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditSummary

ACKNOWLEDGED = (EntryStatus.ACKNOWLEDGED_PROVEN, EntryStatus.ACKNOWLEDGED_INFERRED)
MOVED = (EntryStatus.REQUEUED, EntryStatus.REDRIVEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOutcome:
    """The results of an audit for one group, and what they must agree with."""

    summary: AuditSummary  # that the Job recorded
    entries: int  # in the stream, copies included
    copies: int  # that the operator made, by its ledger
    redriven: int  # dead letters that were moved back
    reported: Mapping[str, Any]  # of the group, by the StreamAudit's status
    page: str  # the report

    def count(self, *statuses: EntryStatus) -> int:
        """The entries that have one of these statuses."""
        return sum(self.summary.counts[status] for status in statuses)


def check_audit(outcome: AuditOutcome) -> list[Check]:
    """Every claim, in the order in which they are printed."""
    return [
        check_balance(outcome),
        check_moves(outcome),
        check_losses(outcome),
        check_reported(outcome),
        check_page(outcome),
    ]


def check_balance(outcome: AuditOutcome) -> Check:
    """Every entry of the stream is in exactly one status, and all were archived."""
    summary, total = outcome.summary, outcome.count(*EntryStatus)
    return Check(
        claim="every entry of the stream has exactly one status",
        holds=total == summary.produced == summary.archived == outcome.entries > 0,
        found=f"{total:,} in all statuses, {summary.archived:,} archived,"
        f" {outcome.entries:,} in the stream",
    )


def check_moves(outcome: AuditOutcome) -> Check:
    """What was moved is known as such."""
    requeued, redriven = (outcome.count(status) for status in MOVED)
    return Check(
        claim="every entry that was copied or redriven has its status",
        holds=(requeued, redriven) == (outcome.copies, outcome.redriven),
        found=f"{requeued:,} requeued for {outcome.copies:,} copies,"
        f" {redriven:,} redriven for {outcome.redriven:,} dead letters",
    )


def check_losses(outcome: AuditOutcome) -> Check:
    """Nothing is lost, and every other entry is accounted for."""
    lost = outcome.count(EntryStatus.LOST)
    others = outcome.summary.produced - outcome.count(*ACKNOWLEDGED, *MOVED)
    return Check(
        claim="no entry is lost: all others were acknowledged",
        holds=lost == 0 and others == 0,
        found=f"{outcome.count(*ACKNOWLEDGED):,} acknowledged, {lost:,} lost, {others:,} others",
    )


def check_reported(outcome: AuditOutcome) -> Check:
    """The resource's status has it."""
    summary, reported = outcome.summary, outcome.reported
    shown = [reported.get(name) for name in ("produced", "deadLettered", "stuck", "lost")]
    dead, stuck = EntryStatus.DEAD_LETTERED, EntryStatus.STUCK
    known = [summary.produced, outcome.count(dead), outcome.count(stuck), summary.lost]
    words = (reported.get("verdict"), reported.get("message"))
    return Check(
        claim="the status of the StreamAudit shows the same",
        holds=shown == known and words == (summary.verdict.value.capitalize(), summary.sentence),
        found=f"{reported.get('verdict', 'nothing')}: {reported.get('produced', 0):,} produced,"
        f" {reported.get('lost', 0):,} lost",
    )


def check_page(outcome: AuditOutcome) -> Check:
    """The report has the same sentence, and loads no external resource."""
    has_sentence = escape(outcome.summary.sentence) in outcome.page
    loads = sum(outcome.page.count(word) for word in ('src="http', 'href="http', "@import"))
    return Check(
        claim="the report shows the same and loads no external resource",
        holds=has_sentence and not loads,
        found=f"{len(outcome.page):,} characters, {loads} to load"
        + ", the sentence is missing" * (not has_sentence),
    )
