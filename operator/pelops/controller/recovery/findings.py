"""What one scan did and found, for Events, metrics and the report that all replicas read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from pelops.api.group.group_status_model import DryRunAction
from pelops.domain.entry_id import EntryId
from pelops.domain.quantities import render_count
from pelops.domain.records.state import ScanReport
from pelops.domain.recovery import Cutoff, EntryVerdict, LetterReason, Offers, Trigger
from pelops.kube.event_recorder import EventContent
from pelops.metrics import (
    ALREADY_HANDLED,
    DEAD_LETTERED,
    OFFERED,
    PAYLOAD_GONE,
    RELEASED,
    REQUEUED,
    SKIPPED_ALIVE,
    VERDICTS,
)
from pelops.policy.recovery.attempts import OwnerPlan
from pelops.policy.recovery.dry_run import DryRun, decide_dry_run, find_reason
from pelops.policy.recovery.scan_interval import (
    FIRST_PAUSE,
    Unfinished,
    is_not_taken,
    until_next_scan,
)
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.recovery.stuck_entries import Recovered, Stay
from pelops.redis_streams.recovery.suspects import Settled

MOST_EVENTS = 5  # of one scan; more owners share one Event
MOST_NAMES = 5
_UNMOVABLE = frozenset({EntryVerdict.TOO_WIDE, EntryVerdict.TOO_LARGE})
# Verdicts on stuck entries that are not moved. Young and locked entries may not be stuck.
_STUCK = (EntryVerdict.HELD, EntryVerdict.WAITING, EntryVerdict.REFUSED, *_UNMOVABLE)
Severity = Literal["Normal", "Warning"]
for _verdict in EntryVerdict:
    VERDICTS.labels(_verdict.value)


@dataclass(slots=True)
class OwnerTally:
    """What became of one owner's entries."""

    requeued: int = 0
    dead: int = 0
    gone: int = 0
    why: str = ""
    cutoff_reason: str = ""  # of the last batch; empty: its entries idled
    first: EntryId | None = None
    at: datetime | None = None  # the server's time of the last batch

    @property
    def occurrence(self) -> str:
        """An identifier for this recovery, different from the next one of the same owner."""
        return str(self.first or self.at or "")


@dataclass(slots=True)
class Findings:
    """The results of a scan, filled in while it runs."""

    trigger: Trigger
    at: datetime | None = None  # the server's time of its beginning
    by_owner: dict[str, OwnerTally] = field(default_factory=dict)
    verdicts: Counter[EntryVerdict] = field(default_factory=Counter)
    # Entries by action, by the reason of the cutoff or of the dead letter, and by owner.
    decided: Counter[tuple[DryRunAction, str, str]] = field(default_factory=Counter)
    offered: int = 0  # entries offered to workers that claim, by this scan
    offers: Offers | None = None  # what became of those that were offered before
    skipped: int = 0  # idle, but their owners live and are within their limit
    # Stuck entries of streams of which nothing may be recovered: only counted.
    counted: int = 0
    is_counted: bool = True  # False: it is not known which entries are stuck
    waiting: int = 0  # suspects that wait for their retry batch or their backoff
    under_way: int = 0  # of the retry batch
    young: int = (
        0  # delivered too shortly before their worker restarted to know which process has them
    )
    dangling: int = 0  # pending entries whose bodies were deleted, 100 at most
    lowest_dangling: EntryId | None = None
    locked: list[str] = field(default_factory=list)
    unmovable: list[EntryId] = field(default_factory=list)  # too wide, or too large
    unmatched: list[str] = field(default_factory=list)
    is_partial: bool = False  # too many consumers to read all of them
    removed: list[str] = field(default_factory=list)
    earliest: timedelta | None = None  # when the first of those that wait may move
    has_unconfirmed_ends: bool = False  # the API server could not be asked about an end
    problem: tuple[str, str] | None = None  # a reason and a message
    is_complete: bool = True  # False: a stream could not be scanned, or the scan not be ended

    @property
    def moved(self) -> int:
        """Entries that are deliverable again, or on offer now."""
        return self.offered + sum(tally.requeued for tally in self.by_owner.values())

    @property
    def stuck(self) -> int:
        """Stuck entries that this scan left where they are."""
        untaken = self.offers.untaken if self.offers else 0
        left = sum(self.verdicts[verdict] for verdict in _STUCK)
        return self.counted + self.waiting + self.offered + untaken + left

    def unfinished(self, retry_batch: str) -> Unfinished:
        """What a later scan continues. `retry_batch` is the one that this scan found written."""
        return Unfinished(
            retry_batch=retry_batch,
            waiting=self.waiting,
            under_way=self.under_way,
            young=self.young,
            moved=self.moved,
            earliest=self.earliest,
            has_unconfirmed_ends=self.has_unconfirmed_ends,
        )

    def fail(self, reason: str, message: str) -> None:
        """Note what kept the scan from being completed."""
        self.problem = (reason, message)
        self.is_complete = False

    def count_batch(self, owner: str, cutoff: Cutoff | None, batch: Recovered) -> None:
        """Count one batch."""
        tally = self.by_owner.setdefault(owner, OwnerTally())
        tally.requeued += batch.moved
        tally.gone += batch.gone
        if cutoff is not None:
            tally.why = cutoff.message
        elif owner:
            tally.why = "idle for longer than the processing timeout"
        tally.first = tally.first or batch.first
        tally.cutoff_reason = cutoff.reason.value if cutoff is not None else ""
        self.decided[DryRunAction.REQUEUE, tally.cutoff_reason, owner] += batch.moved
        self.decided[DryRunAction.DEAD_LETTER, LetterReason.PAYLOAD_GONE.value, owner] += batch.gone
        if batch.moved or batch.gone:
            tally.at = batch.now
        self._count_stays(batch.stays)

    def count_settled(self, owner: OwnerPlan, done: Settled) -> None:
        """Count what was decided about suspects."""
        tally = self.by_owner.setdefault(owner.owner, OwnerTally())
        tally.requeued += done.copied
        tally.dead += done.dead
        self.decided[DryRunAction.REQUEUE, tally.cutoff_reason, owner.owner] += done.copied
        self.decided[DryRunAction.DEAD_LETTER, LetterReason.MAX_RETRIES.value, owner.owner] += (
            done.dead
        )
        if owner.settlements:
            tally.first = tally.first or owner.settlements[0].entry_id
        self._count_stays(done.stays)

    def record_offers(self, offers: Offers) -> None:
        """Note what became of offers."""
        self.offers = offers
        wait = until_next_scan(offers)
        if wait is not None:
            self.earliest = min(self.earliest or wait, wait)

    def count_offered(self, owner: OwnerPlan, done: Settled) -> None:
        """Count what was offered."""
        reason = self.by_owner.get(owner.owner, OwnerTally()).cutoff_reason
        self.decided[DryRunAction.RELEASE, reason, owner.owner] += done.copied
        self.offered += done.copied
        if done.copied:
            self.earliest = min(self.earliest or FIRST_PAUSE, FIRST_PAUSE)
        self._count_stays(done.stays)

    def dry_run(self) -> DryRun:
        """What a scan that wrote nothing would have done."""
        unmatched = set(self.unmatched)
        moved = [
            (action, find_reason(owner, reason, unmatched), count)
            for (action, reason, owner), count in self.decided.items()
        ]
        return decide_dry_run(
            moved,
            self.verdicts,
            waiting=self.waiting,
            counted=self.counted,
            report=self.report(),
        )

    def await_end(self, cutoff: Cutoff, now: datetime) -> None:
        """Scan again when the passing of time alone may prove the end of a pod."""
        if cutoff.again_at is not None and cutoff.again_at > now:
            self.earliest = min(self.earliest or cutoff.again_at - now, cutoff.again_at - now)

    def report(self) -> ScanReport:
        """What stays as it is, in words that do not change from scan to scan."""
        reason, message = self.problem or ("", "")
        untaken = self.offers.untaken if self.offers else 0
        return ScanReport(
            reason=reason,
            message=message,
            unmovable=len(set(self.unmovable)),
            unmovable_example=str(min(self.unmovable)) if self.unmovable else "",
            unmatched=tuple(sorted(set(self.unmatched))[:MOST_NAMES]),
            is_partial=self.is_partial,
            waiting=self.waiting,
            offered=self.offered + untaken,
            stuck=self.stuck if self.is_counted else None,
            is_not_taken=self.offers is not None and is_not_taken(self.offers),
        )

    def measure(self, namespace: str, name: str) -> None:
        """Add everything to the metrics."""
        tallies = self.by_owner.values()
        trigger = self.trigger.value
        taken = self.offers.taken if self.offers else {}
        handled = self.verdicts[EntryVerdict.NOT_PENDING] + self.verdicts[EntryVerdict.OTHER_OWNER]
        counts = (
            (REQUEUED, (trigger,), sum(tally.requeued for tally in tallies)),
            (OFFERED, (trigger,), self.offered),
            *((RELEASED, (made_by,), count) for made_by, count in taken.items()),
            (DEAD_LETTERED, (LetterReason.MAX_RETRIES.value,), sum(t.dead for t in tallies)),
            (PAYLOAD_GONE, (), sum(tally.gone for tally in tallies)),
            (SKIPPED_ALIVE, (), self.skipped),
            (ALREADY_HANDLED, (), handled),
        )
        for counter, labels, count in counts:
            if count:
                counter.add(namespace, name, *labels, count=count)
        for verdict, count in self.verdicts.items():
            VERDICTS.labels(verdict.value).inc(count)

    def list_events(self) -> list[EventContent]:
        """What people are informed, one Event for each owner; many owners share one."""
        owners = [
            (owner, tally)
            for owner, tally in self.by_owner.items()
            if tally.requeued or tally.dead or tally.gone
        ]
        events = [_report_many(owners)] if len(owners) > MOST_EVENTS else []
        if not events:
            events = [one for owner, tally in owners for one in _report_owner(owner, tally)]
        return [*events, *self._report_rest()]

    def _report_rest(self) -> Iterator[EventContent]:
        if self.dangling:
            note = (
                "Pending entries were trimmed or deleted from the stream while workers process "
                f"them (lowest ID {self.lowest_dangling}): if such a worker fails, its entry "
                "cannot be delivered again. Find out what trims or deletes entries before they are "
                "acknowledged (XADD MAXLEN, XTRIM, XDEL)"
            )
            occurrence = str(self.lowest_dangling)
            yield _report("Warning", Reason.PENDING_ENTRY_DELETED, "Observe", note, occurrence)
        if self.offered:
            note = f"Offered {_entries(self.offered)} to workers that claim entries"
            yield _report("Normal", Reason.RELEASED, "Release", note, str(self.at))
        if self.removed:
            shown = ", ".join(sorted(self.removed)[:MOST_NAMES])
            more = len(self.removed) - MOST_NAMES
            note = (
                f"Removed consumers without pending entries, because their pods have ended: {shown}"
            )
            note += f" and {more:,} more" if more > 0 else ""
            yield _report("Normal", Reason.CONSUMER_REMOVED, "Clean", note, str(self.at))

    def _count_stays(self, stays: Iterable[Stay]) -> None:
        self.verdicts.update(verdict for _, verdict in stays)
        self.unmovable += [entry_id for entry_id, verdict in stays if verdict in _UNMOVABLE]


def _report_owner(owner: str, tally: OwnerTally) -> Iterator[EventContent]:
    shown = f"of consumer {owner}" if owner else "that no consumer holds"
    if tally.requeued:
        note = f"Requeued {_entries(tally.requeued)} {shown}: {tally.why}".rstrip(": ")
        yield _report("Normal", Reason.REQUEUED, "Requeue", note, tally.occurrence)
    if tally.dead:
        note = (
            f"Moved {_entries(tally.dead)} {shown} to the dead-letter stream, because "
            "processing failed more often than spec.recovery.maxRetries allows. See the last "
            "fields of each dead letter for the reason"
        )
        yield _report("Warning", Reason.DEAD_LETTERED, "DeadLetter", note, tally.occurrence)
    if tally.gone:
        note = (
            f"Acknowledged {_entries(tally.gone)} {shown}, because their body had been trimmed "
            "or deleted while they were pending. The dead-letter stream has their IDs, with reason "
            "PayloadGone. Find out what trims or deletes entries before they are acknowledged"
        )
        yield _report("Warning", Reason.PAYLOAD_GONE, "DeadLetter", note, tally.occurrence)


def _report_many(owners: list[tuple[str, OwnerTally]]) -> EventContent:
    tallies = [tally for _, tally in owners]
    note = (
        f"Of {len(owners):,} consumers: requeued {_entries(sum(t.requeued for t in tallies))}, "
        f"moved {sum(t.dead for t in tallies):,} to the dead-letter stream, acknowledged "
        f"{sum(t.gone for t in tallies):,} whose body had been trimmed or deleted while pending"
    )
    is_bad = any(tally.dead or tally.gone for tally in tallies)
    reason = Reason.DEAD_LETTERED if is_bad else Reason.REQUEUED
    kind: Severity = "Warning" if is_bad else "Normal"
    return _report(kind, reason, "Recover", note, tallies[0].occurrence)


def _report(
    kind: Severity, reason: Reason, action: str, note: str, occurrence: str
) -> EventContent:
    return EventContent(type=kind, reason=reason, action=action, note=note, occurrence=occurrence)


def _entries(count: int) -> str:
    return render_count(count, "entry", "entries")
