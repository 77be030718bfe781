"""The summary and the report of the audit of one group, built from counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pelops.clock import from_ms
from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    EXPECTED_STATUSES,
    AuditEvidence,
    AuditFinding,
    AuditSummary,
)
from pelops.domain.records.ledger import LedgerKind
from pelops.pipeline.archive.records import AuditedGroup, GroupRecord
from pelops.pipeline.audit.act_times import count_steps, list_spreads, measure_times
from pelops.pipeline.audit.cases import Case
from pelops.pipeline.audit.exceptional_entries import list_duplicates, read_entry, source_of
from pelops.pipeline.audit.gone_entries import Gone, account_for_gone, count_undelivered
from pelops.pipeline.audit.group_share import Balance, close_balance
from pelops.pipeline.audit.known_entries import is_at_or_before
from pelops.pipeline.audit.measures import AGES_MS, Count, Measures, StreamMeasures, Ways
from pelops.pipeline.audit.rules import RowOrigin
from pelops.pipeline.audit.summary import (
    Grounds,
    Identity,
    SummaryInput,
    agree,
    build_group_summary,
    find_violations,
    list_broken,
    list_limits,
)
from pelops.pipeline.audit.user_tables import Compared
from pelops.pipeline.report.model import (
    AgeBand,
    Comparison,
    CountCheck,
    EntrySource,
    Exceptions,
    GroupReport,
    Timeline,
    Unproven,
)
from pelops.pipeline.settings import ArchivedPayload
from pelops.policy.audit.classification import Why

_COPIED: Final = (EntryStatus.REQUEUED, EntryStatus.REDRIVEN)  # a copy continues it
_UNSURE: Final = (EntryStatus.INDETERMINATE, EntryStatus.ACKNOWLEDGED_INFERRED)
_OF_WINDOW: Final = (RowOrigin.WINDOW, RowOrigin.GONE)
_INDETERMINATE: Final = {
    Why.POSITION_IN_DOUBT: "The group's position was moved by hand, went back, or is new.",
    Why.PASSED_MEANWHILE: "Delivered during the audit, and no longer pending after it.",
    Why.CONSUMER_DELETED: "Delivered at about the time at which a consumer with pending entries "
    "was deleted.",
    Why.TRIMMED_MEANWHILE: "Trimmed and delivered between two audits: no record shows the order.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAudit:
    """One group in one window, with its counts."""

    case: Case
    measures: Measures
    stream: StreamMeasures
    compared: Compared
    statuses_path: str  # of the table of statuses, to display

    def build(self) -> AuditedGroup:
        """Build the summary, record and report. Raises InvalidSpec if the summary is invalid."""
        counts, balance = self._balance()
        identities = [*self._identities(counts), *self._root_identities(counts)]
        times = measure_times(self.case)
        summary = self._summary(counts, balance, identities, times)
        return AuditedGroup(
            summary=summary,
            record=self._record(),
            report=self._report(summary, balance, identities, times).model_dump_json(),
        )

    # Counts.

    @property
    def _settled(self) -> dict[EntryStatus, int]:
        """Entries of earlier windows that reached a final status."""
        return _by_status(one for one in self.measures.of(RowOrigin.EARLIER) if not one.is_open)

    @property
    def _open(self) -> list[Count]:
        """Entries of this and earlier windows whose status can still change."""
        return [one for one in self.measures.of(*_OF_WINDOW, RowOrigin.EARLIER) if one.is_open]

    @property
    def _retried(self) -> dict[EntryStatus, int]:
        """Copies in the group's own retry stream."""
        return self.measures.by_status(RowOrigin.COPY, RowOrigin.EARLIER, copy=True)

    @property
    def _moved(self) -> dict[EntryStatus, int]:
        """Entries of earlier windows whose dead letters were moved."""
        return self.measures.by_status(RowOrigin.MOVED, copy=None)

    @property
    def _copies(self) -> dict[EntryStatus, int]:
        """Copies among the entries of the window."""
        return _by_status(one for one in self.measures.of(*_OF_WINDOW) if one.is_copy)

    def _balance(self) -> tuple[dict[EntryStatus, int], Balance]:
        """The statuses of all entries, and the window that they add up to."""
        case = self.case
        share = case.share
        archived = self.measures.by_status(RowOrigin.WINDOW)
        unarchived = self.measures.by_status(RowOrigin.GONE)
        unseen = max(0, share.produced - share.archived + share.removed - sum(unarchived.values()))
        beyond = min(unseen, self._beyond)
        missing = unseen - beyond
        seen = sum(one.rows for one in self.measures.of(RowOrigin.WINDOW) if one.is_in_gap)
        gone = Gone(
            missing=missing,
            removed=case.plan.removed,
            seen=seen if missing else 0,
            undelivered=self._undelivered(missing),
        )
        rest = account_for_gone(gone, share.whole, case.history, case.plan.stream)
        parts = (archived, unarchived, rest, {EntryStatus.INDETERMINATE: beyond})
        counts = {status: sum(part.get(status, 0) for part in parts) for status in EntryStatus}
        unaccounted = rest.get(EntryStatus.INDETERMINATE, 0)
        balance = close_balance(share, sum(counts.values()), unaccounted)
        counts[EntryStatus.INDETERMINATE] -= balance.unknown_before
        return counts, balance

    @property
    def _beyond(self) -> int:
        """Entries of the group's share whose IDs the archive cannot hold."""
        counts, share = self.case.counts, self.case.share
        beyond = counts.beyond + counts.beyond_seq
        return min(beyond, max(0, share.produced - share.archived))

    def _undelivered(self, missing: int) -> int:
        """Missing entries that were never delivered, according to the group's counters."""
        case = self.case
        snapshot, window = case.snapshots.before, case.share.whole
        if (
            not missing
            or snapshot is None
            or snapshot.position >= window.to_id
            or not case.position_holds
        ):
            return 0
        known = sum(one.ahead for one in self.measures.of(*_OF_WINDOW)) + self._beyond
        trimmed = case.window_snapshot.counts_trimmed
        return count_undelivered(
            snapshot, window, counts_trimmed=trimmed, known=known, missing=missing
        )

    @property
    def _produced(self) -> int:
        window = self._balance()[1].window
        return max(window.to_added - window.from_added, self.case.share.archived)

    def _identities(self, counts: Mapping[EntryStatus, int]) -> Iterator[Identity]:
        """Counts of Redis or of an earlier window, and the audit's counts of the same entries."""
        case, measures = self.case, self.measures
        yield Identity(
            name="produced",
            expected=self._produced,
            found=sum(counts.values()),
            sentence="entries were produced, but {found} have a status",
        )
        again = [one for one in measures.of(RowOrigin.EARLIER) if one.is_known]
        pending = case.snapshots.pending
        after, upto = case.audited_after, case.plan.window.to_id
        in_range = pending.filter(~is_at_or_before(after) & is_at_or_before(upto)).num_rows
        open_count = sum(one.rows for one in measures.of(*_OF_WINDOW) if one.is_pending)
        open_count += sum(one.rows for one in again if one.is_audited and one.is_pending)
        yield Identity(
            name="pending",
            expected=in_range,
            found=open_count,
            sentence="entries are pending in Redis, and the archive has {found} of them open: the "
            "group was created again, its position went back, or a file of the archive is missing. "
            "The next window includes them",
        )
        looked_at = sum(one.rows for one in again)
        yield Identity(
            name="open",
            expected=looked_at if case.record is None else case.record.open,
            found=looked_at,
            sentence="entries were left open by the previous window, but {found} were audited "
            "again",
        )

    @property
    def _root_counts(self) -> dict[EntryStatus, int]:
        """Outcomes of the entries that users added, by their last copies."""
        counts, copies = self._balance()[0], self._copies
        own = {status: counts.get(status, 0) - copies.get(status, 0) for status in EntryStatus}
        copied = sum(own[status] for status in _COPIED)
        followed: dict[EntryStatus, int] = {}
        for one in self.measures.of(*_OF_WINDOW):
            if one.outcome is not None:
                followed[one.outcome] = followed.get(one.outcome, 0) + one.rows
        own |= {EntryStatus.REDRIVEN: 0, EntryStatus.REQUEUED: copied - sum(followed.values())}
        total = {status: own[status] + followed.get(status, 0) for status in EntryStatus}
        return {status: n for status, n in total.items() if n}

    def _root_identities(self, counts: Mapping[EntryStatus, int]) -> Iterator[Identity]:
        copies = self._copies
        copied = sum(counts.get(one, 0) - copies.get(one, 0) for one in _COPIED)
        followed = sum(one.rows for one in self.measures.of(*_OF_WINDOW) if one.outcome is not None)
        yield Identity(
            name="roots",
            expected=self._produced - sum(copies.values()),
            found=sum(n for n in self._root_counts.values() if n > 0),
            sentence="entries were added by users, and {found} have an outcome: copies of"
            " requeued or redriven entries were counted as entries, or entries as copies",
        )
        yield Identity(
            name="requeued",
            expected=copied,
            found=followed,
            sentence="entries were requeued or redriven, and {found} were followed to their"
            " last copy",
        )

    def _dropped(self, counts: Mapping[EntryStatus, int]) -> int:
        """Maximum number of entries removed with deleted consumers; 0 if files show which.

        An event of the ledger belongs to the window whose audit reads it first.
        """
        case = self.case
        if case.has_files:
            return 0
        since = EntryId.MIN
        record = case.known.record
        if case.record is not None and record is not None:
            end = record.ledgers.get(case.target.group)
            since = EntryId.MIN if end is None else end.last
        at_most = sum(one.at_most for one in case.history.dropped if one.at > since)
        parts = (counts, self._settled)
        return min(at_most, sum(part.get(status, 0) for part in parts for status in _UNSURE))

    # Summary.

    def _summary(
        self,
        counts: Mapping[EntryStatus, int],
        balance: Balance,
        identities: Sequence[Identity],
        times: Mapping[str, Any],
    ) -> AuditSummary:
        case, earlier = self.case, [one for one in self._open if one.is_earlier]
        retried_open = [
            one
            for one in self.measures.of(RowOrigin.COPY, RowOrigin.EARLIER, copy=True)
            if one.is_open
        ]
        lost: dict[str, int] = {}
        for one in self.measures.of(*_OF_WINDOW):
            if one.status is EntryStatus.LOST:
                lost[one.why] = lost.get(one.why, 0) + one.rows
        recovery = times.get("recovery_ms")
        stuck = [one.oldest_ms for one in self._open if one.status is EntryStatus.STUCK]
        return build_group_summary(
            SummaryInput(
                stream=case.plan.stream,
                group=case.target.group,
                window=balance.window,
                archived=case.share.archived,
                removed_before=balance.unknown_before,
                counts=counts,
                settled=self._settled,
                moved=self._moved,
                stuck_earlier=_count(earlier, EntryStatus.STUCK),
                bodiless_earlier=_count(earlier, EntryStatus.PAYLOAD_GONE),
                lost=lost,
                dropped=self._dropped(counts),
                retried=self._retried,
                open=sum(one.rows for one in (*self._open, *retried_open)),
                oldest_stuck_ms=max((one for one in stuck if one is not None), default=None),
                recovery_ms=None if recovery is None else (recovery["p50"], recovery["p99"]),
                retention_margin=case.plan.retention_margin,
                evidence=self._evidence,
                position_doubt=case.position_doubt,
                findings=(
                    *self._findings(counts, balance),
                    *list_broken(identities),
                    *self._of_tables(),
                ),
                failures=tuple(self._failures()),
            )
        )

    @property
    def _evidence(self) -> AuditEvidence:
        """The best evidence that exists beside the stream."""
        if self.case.has_files:
            return AuditEvidence.AOF
        history = self.case.history
        return (
            AuditEvidence.LEDGER if history.exists and history.checkpoints else AuditEvidence.NONE
        )

    def _findings(
        self, counts: Mapping[EntryStatus, int], balance: Balance
    ) -> Iterator[AuditFinding]:
        case = self.case
        share, snapshot = case.share, case.snapshots.before
        stream = case.window_snapshot.stream
        yield from find_violations(balance.window, share.archived, counts, snapshot, stream)
        for why in case.plan.doubts:
            yield AuditFinding(kind="stream-in-doubt", count=1, sentence=why)
        beyond = self._beyond
        if beyond:
            yield AuditFinding(
                kind="ids-beyond-range",
                count=beyond,
                sentence=f"{beyond} of {share.produced} entries have IDs with a number of 2^63 or"
                " more, which the archive cannot hold: their outcome is unknown",
            )
        missing = share.produced - share.archived - beyond
        if missing > 0:
            yield AuditFinding(
                kind="unarchived",
                count=missing,
                sentence=f"{missing} of {share.produced} entries were trimmed or deleted before "
                "they could be archived",
            )

    def _failures(self) -> Iterator[AuditFinding]:
        for why in self.case.plan.breaks:
            yield AuditFinding(kind="epoch-break", count=1, sentence=why)
        if not self.case.window_snapshot.stream.exists:
            yield AuditFinding(kind="stream-missing", count=1, sentence="the stream does not exist")
        elif self.case.snapshots.before is None:
            yield AuditFinding(kind="group-missing", count=1, sentence="the group does not exist")

    def _of_tables(self) -> Iterator[AuditFinding]:
        ways, compared = self.stream.duplicates, self.compared
        findings = {
            "duplicates-by-root": (
                ways.get("root", Ways()).entries,
                "{entries} {were} added although the same copy existed already",
            ),
            "duplicates-by-key": (
                ways.get("key", Ways()).entries,
                "{entries} {have} a business key that an earlier entry has",
            ),
            "never-arrived": (
                0 if compared.sent is None else compared.sent.count,
                "{entries} {were} sent and never arrived",
            ),
            "without-effect": (
                0 if compared.effects is None else compared.effects.count,
                "{entries} {were} acknowledged and had no effect",
            ),
        }
        for kind, (count, sentence) in findings.items():
            if count:
                yield AuditFinding(kind=kind, count=count, sentence=agree(sentence, count))

    # Record and report.

    def _record(self) -> GroupRecord:
        case, record, counts = self.case, self.case.record, self.measures.counts
        undelivered = [one for one in self._open if one.status is EntryStatus.UNDELIVERED]
        return GroupRecord(
            audited_after=case.audited_after,
            audited_from=case.plan.number if record is None else record.audited_from,
            open=sum(one.rows for one in self._open),
            left=sum(one.rows for one in counts if one.is_open or one.is_followed),
            followed=sum(one.rows for one in counts if one.is_followed),
            lowest_open=min((one.lowest for one in self._open), default=None),
            lowest_undelivered=min((one.lowest for one in undelivered), default=None),
            left_out=case.share.left_out,
            gone_before=case.share.gone_before,
        )

    def _report(
        self,
        summary: AuditSummary,
        balance: Balance,
        identities: Sequence[Identity],
        times: Mapping[str, Any],
    ) -> GroupReport:
        return GroupReport(
            summary=summary,
            checks=tuple(
                CountCheck(name=identity.name, expected=identity.expected, found=identity.found)
                for identity in identities
            ),
            roots=self._root_counts,
            timeline=self._timeline(),
            stuck_ages=self._stuck_ages(),
            exceptions=self._exceptions(),
            duplicates=list_duplicates(self.stream.duplicates),
            unproven=(*self._limits(summary, balance), *self._indeterminate()),
            deliveries=times.get("deliveries"),
            times=tuple(list_spreads(times)),
            comparisons=tuple(self._comparisons()),
        )

    def _limits(self, summary: AuditSummary, balance: Balance) -> Iterator[Unproven]:
        case = self.case
        grounds = Grounds(
            evidence=summary.evidence,
            has_position=case.position_holds,
            position_doubt=case.position_doubt,
            removed_before=balance.unknown_before,
            has_hashes=case.plan.payload is not ArchivedPayload.NONE,
            lacks_key=self.compared.lacks_key,
            audited_from=self._record().audited_from,
            watched=case.history.watched,
        )
        for sentence in list_limits(grounds):
            yield Unproven(why="limit", entries=None, sentence=sentence)

    def _indeterminate(self) -> Iterator[Unproven]:
        """Reasons why entries are indeterminate."""
        counts: dict[str, int] = {}
        for one in self._kept():
            if one.status is EntryStatus.INDETERMINATE:
                counts[one.why] = counts.get(one.why, 0) + one.rows
        for why, count in sorted(counts.items()):
            text = next((text for one, text in _INDETERMINATE.items() if one == why), None)
            yield Unproven(
                why=why, entries=count, sentence=text or "No record shows their outcome."
            )

    def _kept(self) -> list[Count]:
        """Counts of the entries that the report lists, if they need attention."""
        origins = (*_OF_WINDOW, RowOrigin.COPY, RowOrigin.EARLIER)
        return self.measures.of(*origins, copy=None)

    def _exceptions(self) -> Exceptions:
        counts: dict[EntrySource, dict[EntryStatus, int]] = {}
        for count in self._kept():
            if count.status not in EXPECTED_STATUSES:
                of_source = counts.setdefault(
                    source_of(count.copy, count.origin, count.is_open), {}
                )
                of_source[count.status] = of_source.get(count.status, 0) + count.rows
        return Exceptions(
            count=sum(sum(by_status.values()) for by_status in counts.values()),
            counts=counts,
            first=tuple(map(read_entry, self.measures.worst)),
            path=self.statuses_path,
        )

    def _stuck_ages(self) -> tuple[AgeBand, ...]:
        """Stuck entries by time since their last delivery, without empty bands at both ends."""
        edges = [0, *AGES_MS]
        rows = [0] * len(edges)
        for one in self._open:
            if one.status is EntryStatus.STUCK:
                rows[one.age] += one.rows
        bands = [
            AgeBand(
                at_least=timedelta(milliseconds=edge),
                below=timedelta(milliseconds=edges[at + 1]) if at + 1 < len(edges) else None,
                entries=rows[at],
            )
            for at, edge in enumerate(edges)
        ]
        held = [at for at, band in enumerate(bands) if band.entries]
        return tuple(bands[held[0] : held[-1] + 1]) if held else ()

    def _timeline(self) -> Timeline | None:
        """Arrivals, recoveries and dead letters of the window; None without any."""
        step = self.stream.step_ms
        recoveries = count_steps(self.case, (LedgerKind.REQUEUED, LedgerKind.RELEASED), step)
        letters = count_steps(self.case, (LedgerKind.DEAD_LETTERED,), step)
        places = [*self.stream.arrivals, *recoveries, *letters]
        if not places:
            return None
        first = min(places)
        steps = range(first, max(places) + 1)
        arrivals, recovered, lettered = (
            tuple(counts.get(at, 0) for at in steps)
            for counts in (self.stream.arrivals, recoveries, letters)
        )
        return Timeline(
            start=from_ms(first * step),
            step=timedelta(milliseconds=step),
            arrivals=arrivals,
            recoveries=recovered,
            dead_letters=lettered,
        )

    def _comparisons(self) -> Iterator[Comparison]:
        comparisons = {
            "never-arrived": (
                self.compared.sent,
                "Sent according to your table, but not in the stream.",
            ),
            "without-effect": (self.compared.effects, "Acknowledged, but not in your table."),
        }
        for kind, (missing, sentence) in comparisons.items():
            if missing is not None:
                yield Comparison(
                    kind=kind, count=missing.count, sentence=sentence, examples=missing.examples
                )


def _by_status(counts: Iterable[Count]) -> dict[EntryStatus, int]:
    found: dict[EntryStatus, int] = {}
    for one in counts:
        found[one.status] = found.get(one.status, 0) + one.rows
    return found


def _count(counts: Iterable[Count], status: EntryStatus) -> int:
    return sum(one.rows for one in counts if one.status is status)
