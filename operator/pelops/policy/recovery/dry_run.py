"""What a dry run of recovery found: the stuck entries, what would become of them, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pelops.api.group.group_status_model import DryRunAction, RecoveryStatus
from pelops.domain.quantities import render_count
from pelops.domain.records.state import ScanReport
from pelops.domain.recovery import EntryVerdict
from pelops.policy.status.reasons import Reason


class StuckReason(StrEnum):
    """Why an entry would be moved or stay, if neither a pod nor a dead letter is the reason."""

    TIMEOUT = "ProcessingTimeout"  # its worker holds it for longer than it may
    NO_POD = "NoPod"  # the same, and no pod matches the name of its consumer
    GIVEN_BACK = "GivenBack"  # by XNACK
    OTHER_SUSPECTS = "OtherSuspects"  # others that failed as well are retried first


_KEPT: Final[Mapping[EntryVerdict, str]] = {
    EntryVerdict.LOCKED: "Locked",
    EntryVerdict.HELD: "PositionWentBack",
    EntryVerdict.WAITING: "Backoff",
    EntryVerdict.TOO_LARGE: "TooLarge",
    EntryVerdict.TOO_WIDE: "TooManyFields",
}
_VERBS: Final[Mapping[DryRunAction, str]] = {
    DryRunAction.REQUEUE: "requeue",
    DryRunAction.RELEASE: "offer to other workers",
    DryRunAction.DEAD_LETTER: "dead-letter",
    DryRunAction.KEEP: "leave for now",
}

_WORKS: Final = ScanReport()

Outcomes = Mapping[tuple[DryRunAction, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """One dry run of a group; two that found the same are equal."""

    outcomes: Outcomes = field(default_factory=dict)  # entries, by action and reason
    report: ScanReport = _WORKS  # what keeps recovery from working, or works in part only

    @property
    def stuck(self) -> int:
        """Number of stuck entries, whatever the outcome."""
        return sum(self.outcomes.values())

    def rows(self) -> list[tuple[DryRunAction, str, int]]:
        """Action, reason and entries, in a fixed order."""
        return [(*key, count) for key, count in sorted(self.outcomes.items()) if count]

    def describe(self) -> str:
        """A sentence for users: what recovery would do with how many entries, and why."""
        rows = self.rows()
        parts = []
        for action, verb in _VERBS.items():
            some = [(reason, count) for one, reason, count in rows if one is action]
            if some:
                why = ", ".join(f"{reason} {count:,}" for reason, count in some)
                parts.append(f"{verb} {sum(count for _, count in some):,} ({why})")
        entries = render_count(self.stuck, "stuck entry", "stuck entries")
        return f"Dry run: {entries} found; recovery would {', '.join(parts)}. Nothing was written"


def decide_dry_run(
    moved: Iterable[tuple[DryRunAction, str, int]],
    verdicts: Mapping[EntryVerdict, int],
    *,
    waiting: int,
    counted: int = 0,
    report: ScanReport,
) -> DryRun:
    """Sum up one dry run: `moved` would be moved, entries with these verdicts would stay.

    `waiting` failed before and wait until others that failed are retried; `counted` are in a former
    retry stream whose copies other groups would get as well. Total.
    """
    outcomes: Counter[tuple[DryRunAction, str]] = Counter()
    for action, reason, count in moved:
        outcomes[action, reason] += count
    for verdict, reason in _KEPT.items():
        outcomes[DryRunAction.KEEP, reason] += verdicts.get(verdict, 0)
    outcomes[DryRunAction.KEEP, StuckReason.OTHER_SUSPECTS.value] += waiting
    outcomes[DryRunAction.KEEP, Reason.REQUEUE_WOULD_DUPLICATE.value] += counted
    works = report.reason in ("", Reason.KEYSPACE_NOTIFICATIONS_UNAVAILABLE)
    return DryRun(
        outcomes={key: count for key, count in outcomes.items() if count},
        # Entries in `outcomes` do not raise alarms as well.
        report=ScanReport(
            reason=report.reason,
            message=report.message,
            unmatched=report.unmatched,
            waiting=waiting,
            stuck=outcomes.total() if works else None,
        ),
    )


def find_reason(owner: str, cutoff_reason: str, unmatched: Iterable[str]) -> str:
    """Return why entries of this consumer are stuck; `cutoff_reason` is empty if they idled."""
    if cutoff_reason:
        return cutoff_reason
    if not owner:
        return StuckReason.GIVEN_BACK.value
    return (StuckReason.NO_POD if owner in unmatched else StuckReason.TIMEOUT).value


def read_dry_run(status: RecoveryStatus | None) -> DryRun | None:
    """Read the last dry run from the status; None if there was none.

    One replica makes the dry runs of a group, and the others repeat what it has reported.
    """
    dry_run = status.dry_run if status else None
    if status is None or dry_run is None:
        return None
    return DryRun(
        outcomes={(row.action, row.reason): row.entries for row in dry_run.outcomes or ()},
        report=ScanReport(
            reason=dry_run.reason or "",
            message=dry_run.message or "",
            unmatched=status.unmatched_consumers or (),
            waiting=status.waiting or 0,
            stuck=status.stuck,
        ),
    )
