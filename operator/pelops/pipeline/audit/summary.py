"""The summary of one group in one window: its findings, and what the audit cannot prove. Pure.

Counts that contradict each other are findings, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    EXPECTED_STATUSES,
    AuditEvidence,
    AuditFinding,
    AuditSummary,
    Certainty,
    RecoveryTimes,
    Window,
    build_summary,
    decide_verdict,
    find_certainty,
)
from pelops.pipeline.archive.ledger import WatchedRange
from pelops.pipeline.archive.redis_reader import GroupSnapshot, StreamSnapshot
from pelops.policy.audit.classification import Why

_ONE: Final = {
    "are": "is", "were": "was", "have": "has", "they": "it", "them": "it", "their": "its",
    "lie": "lies", "bodies": "body",
}  # fmt: skip
_MANY: Final = {word: word for word in _ONE}
_RANGES: Final = 3  # observed ranges that are listed


def agree(template: str, n: int, **more: str) -> str:
    """A sentence about `n` entries.

    `{n}` is the number, `{entries}` the number with its noun; `{are}`, `{were}`, `{have}`,
    `{they}`, `{them}`, `{their}`, `{lie}` and `{bodies}` agree with it.

    >>> agree("{entries} {are} stuck", 1)
    '1 entry is stuck'
    >>> agree("{entries} {are} stuck", 2)
    '2 entries are stuck'
    """
    words = _ONE if n == 1 else _MANY
    return template.format(n=n, entries="1 entry" if n == 1 else f"{n} entries", **words, **more)


_WORDS: Final = {
    EntryStatus.IN_FLIGHT: "in flight",
    EntryStatus.STUCK: "stuck",
    EntryStatus.UNDELIVERED: "not delivered yet",
    EntryStatus.DEAD_LETTERED: "dead-lettered",
    EntryStatus.REQUEUED: "requeued",
    EntryStatus.REDRIVEN: "redriven",
    EntryStatus.DISCARDED: "discarded",
    EntryStatus.PAYLOAD_GONE: "without their body",
    EntryStatus.LOST: "lost",
    EntryStatus.INDETERMINATE: "indeterminate",
}
_FINDINGS: Final = {
    EntryStatus.STUCK: "{entries} {are} pending for longer than the limit",
    EntryStatus.DEAD_LETTERED: "{entries} {were} moved to the dead-letter stream",
    EntryStatus.PAYLOAD_GONE: "{entries} lost {their} {bodies} before an acknowledgement, by XDEL "
    "or trimming: workers that had not received {them} before cannot process {them}",
    EntryStatus.LOST: "{entries} {are} lost: {how}",
    EntryStatus.INDETERMINATE: "no record shows whether {entries} {were} acknowledged",
}


# How entries are lost. Those without such a record are from gaps that the operator counted.
_HOW: Final = {
    Why.DROPPED: "{n} {were} delivered, and removed without an acknowledgement: {their} consumer "
    "or group was deleted, or a claim found no body",
    Why.SKIPPED: "{n} {were} skipped without a delivery: the group's position was moved past "
    "{them}, or "
    "{they} {were} deleted first",
}
_GONE: Final = "{n} {were} trimmed or deleted before {they} {were} delivered"


_MOVED: Final = {
    EntryStatus.REDRIVEN: "redriven by now",
    EntryStatus.DISCARDED: "discarded by now",
    EntryStatus.DEAD_LETTERED: "restored to the dead-letter stream",
}
_SETTLED_BADLY: Final = (  # final statuses of earlier entries to report
    EntryStatus.LOST,
    EntryStatus.DEAD_LETTERED,
    EntryStatus.PAYLOAD_GONE,
    EntryStatus.INDETERMINATE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryInput:
    """The input of the summary of one group."""

    stream: str
    group: str
    window: Window
    archived: int
    counts: Mapping[EntryStatus, int]
    settled: Mapping[EntryStatus, int]  # of earlier windows
    # Entries of earlier windows whose dead letters were moved since.
    moved: Mapping[EntryStatus, int] = field(default_factory=dict)
    stuck_earlier: int
    open: int
    oldest_stuck_ms: int | None
    bodiless_earlier: int = 0  # of earlier windows: pending, with deleted bodies
    lost: Mapping[str, int] = field(default_factory=dict)  # by `Why`, if known
    retried: Mapping[EntryStatus, int] = field(default_factory=dict)  # copies in the retry stream
    dropped: int = 0  # upper bound: removed with deleted consumers
    recovery_ms: tuple[int, int] | None  # p50 and p99
    retention_margin: float | None
    evidence: AuditEvidence
    removed_before: int = 0  # removed before the first archive, outcome unknown
    position_doubt: str | None = None  # why entries below the position may be unacknowledged
    findings: tuple[AuditFinding, ...] = ()  # in addition to those from the counts
    failures: tuple[AuditFinding, ...] = ()  # why the entries cannot be accounted for


def build_group_summary(facts: SummaryInput) -> AuditSummary:
    """Build the summary that is recorded. Raises InvalidSpec if it is invalid."""
    findings = (
        *facts.failures,
        *_of_counts(facts),
        *_of_removed(facts),
        *_of_dropped(facts),
        *_of_retried(facts),
        *_of_earlier(facts),
        *facts.findings,
    )
    produced = sum(facts.counts.values())
    return build_summary(
        AuditSummary(
            stream=facts.stream,
            group=facts.group,
            window=facts.window,
            produced=produced,
            archived=facts.archived,
            counts=facts.counts,
            open=facts.open,
            lost_earlier=facts.settled.get(EntryStatus.LOST, 0),
            stuck_earlier=facts.stuck_earlier,
            findings=findings,
            verdict=decide_verdict(findings, facts.failures, certainty=_certainty(facts)),
            certainty=_certainty(facts),
            sentence=_sentence(facts, produced),
            oldest_stuck=_span(facts.oldest_stuck_ms),
            recovery=_recovery(facts.recovery_ms),
            retention_margin=facts.retention_margin,
            evidence=facts.evidence,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """The evidence that an audit of one group had."""

    evidence: AuditEvidence
    has_position: bool  # the position moved only forward
    position_doubt: str | None  # why it may have passed entries that were never delivered
    removed_before: int  # see `SummaryInput`
    has_hashes: bool
    lacks_key: bool  # tables are configured, but no business key was archived
    audited_from: int  # the first window that was audited for the group
    watched: tuple[WatchedRange, ...] = ()  # where the operator observed without a gap


def list_limits(grounds: Grounds) -> list[str]:
    """Sentences about what the audit cannot prove with this evidence."""
    watch = _limits_of_watch(grounds) if grounds.evidence is AuditEvidence.LEDGER else ()
    return [*_limits_of_evidence(grounds.evidence), *watch, *_limits_of_archive(grounds)]


def _limits_of_evidence(evidence: AuditEvidence) -> Iterator[str]:
    if evidence is not AuditEvidence.AOF:
        yield (
            "Redis keeps no record of acknowledgements: an entry that was delivered and is no "
            "longer pending counts as acknowledged. Pending entries of a consumer that is "
            "deleted by hand disappear without a record."
        )
        yield (
            "When a group's position is set by hand past entries that were never delivered, this "
            "shows only until the group reads to the end of the stream. After that, those entries "
            "count as acknowledged."
        )
    if evidence is AuditEvidence.NONE:
        yield (
            "Without the operator's ledger, no record shows which entries were dead-lettered, "
            "requeued or released: such entries count as acknowledged, and their copies as new "
            "entries."
        )
        yield (
            "Without the operator, no observations exist between two audits: an entry that was "
            "trimmed after it was archived, and not delivered before the next audit, is "
            "indeterminate."
        )
        yield (
            "The same holds for the position at which a group was created: earlier entries count "
            "as acknowledged once the group has read to the end of the stream."
        )


def _limits_of_watch(grounds: Grounds) -> Iterator[str]:
    ranges = [f"after {one.after} and up to {one.upto}" for one in grounds.watched]
    hidden = len(ranges) - _RANGES
    more = f"; and {hidden} earlier range{'s' if hidden > 1 else ''}" if hidden > 0 else ""
    where = f"{'; '.join(ranges[-_RANGES:])}{more}" if ranges else "no entries"
    yield (
        "An entry that was archived before its delivery, and trimmed before the next audit, counts "
        "as acknowledged only where the operator observed the group without a gap. Elsewhere it is "
        f"indeterminate. Observed without a gap since the last audit: {where}."
    )


def _limits_of_archive(grounds: Grounds) -> Iterator[str]:
    if grounds.removed_before:
        yield f"{_removed_before(grounds.removed_before)} They are in no window."
    if grounds.position_doubt is not None:
        yield (
            f"Entries below the group's position may never have been delivered: "
            f"{grounds.position_doubt}. Without other evidence they are indeterminate."
        )
    elif not grounds.has_position:
        yield (
            "The group's position changed during the audit: entries that depend on it are "
            "indeterminate."
        )
    if not grounds.has_hashes:
        yield "The payloads were not hashed: duplicates are found by root and business key only."
    if grounds.lacks_key:
        yield (
            "An earlier run planned the window without a business key: it was not compared with "
            "the tables of sent entries and of effects."
        )
    if grounds.audited_from:
        yield (
            f"This group is audited from window {grounds.audited_from} on: its entries in earlier "
            "windows have no status."
        )


def _certainty(facts: SummaryInput) -> Certainty:
    """The certainty of the window's entries, and of earlier ones with a final status."""
    if facts.removed_before:
        return Certainty.UNKNOWN
    entries = Counter(facts.counts)
    entries.update(facts.settled)
    entries.update(facts.retried)
    return find_certainty(entries, facts.evidence)


def _of_counts(facts: SummaryInput) -> Iterator[AuditFinding]:
    for status in EntryStatus:
        count = facts.counts.get(status, 0)
        if count and status not in EXPECTED_STATUSES:
            sentence = agree(_FINDINGS[status], count, how="; ".join(_how_lost(facts)))
            if status is EntryStatus.INDETERMINATE and facts.position_doubt is not None:
                sentence += f": {facts.position_doubt}"
            yield AuditFinding(kind=status.value.replace("_", "-"), count=count, sentence=sentence)


def _how_lost(facts: SummaryInput) -> Iterator[str]:
    ways = {why: facts.lost.get(why, 0) for why in _HOW}
    gone = facts.counts.get(EntryStatus.LOST, 0) - sum(ways.values())
    if gone:
        yield agree(_GONE, gone)
    yield from (agree(_HOW[why], n) for why, n in ways.items() if n)


def _of_dropped(facts: SummaryInput) -> Iterator[AuditFinding]:
    yield from _counted(
        "pending-dropped",
        facts.dropped,
        "consumers were deleted (XGROUP DELCONSUMER) with at most {entries} pending: entries "
        "that were not acknowledged before are not delivered again. Their IDs are unknown: "
        "compare with the effects of processing, or audit with append-only files",
    )


def _counted(kind: str, count: int, sentence: str) -> Iterator[AuditFinding]:
    """A finding about `count` entries; none if 0."""
    if count:
        yield AuditFinding(kind=kind, count=count, sentence=agree(sentence, count))


def _of_retried(facts: SummaryInput) -> Iterator[AuditFinding]:
    """Findings about copies in the group's retry stream, which are not part of the window."""
    for status in EntryStatus:
        count = facts.retried.get(status, 0)
        if count and status not in EXPECTED_STATUSES:
            yield AuditFinding(
                kind=f"{status.value.replace('_', '-')}-copies",
                count=count,
                sentence=f"of the copies in the retry stream {_are(count)} {_WORDS[status]}",
            )


def _of_removed(facts: SummaryInput) -> Iterator[AuditFinding]:
    if facts.removed_before:
        yield AuditFinding(
            kind="removed-before-archive",
            count=facts.removed_before,
            sentence=_removed_before(facts.removed_before).removesuffix("."),
        )


def _removed_before(count: int) -> str:
    entries = "1 entry was" if count == 1 else f"{count} entries were"
    their = "its" if count == 1 else "their"
    return f"{entries} added and removed before the first archive; {their} outcome is unknown."


def _of_earlier(facts: SummaryInput) -> Iterator[AuditFinding]:
    """Findings about entries of earlier windows that were open, or whose dead letters moved."""
    yield from _counted(
        "stuck-earlier",
        facts.stuck_earlier,
        "{entries} of earlier windows {are} pending for longer than the limit",
    )
    yield from _counted(
        "payload-gone-earlier",
        facts.bodiless_earlier,
        "{entries} of earlier windows {are} pending, and {their} {bodies} {are} deleted",
    )
    for status in _SETTLED_BADLY:
        yield from _counted(
            f"{status.value.replace('_', '-')}-later",
            facts.settled.get(status, 0),
            f"{{entries}} of earlier windows, open until now, {{are}} {_WORDS[status]}",
        )
    yield from _counted(
        "restored-letters",
        facts.moved.get(EntryStatus.DEAD_LETTERED, 0),
        "{entries} of earlier windows {are} in the dead-letter stream again: {their} dead letters "
        "were discarded, and restored",
    )


def _sentence(facts: SummaryInput, produced: int) -> str:
    if facts.failures:
        return f"Not accounted for: {facts.failures[0].sentence}"
    earlier = _of_earlier_windows(facts)
    if facts.removed_before:
        earlier += f" {_removed_before(facts.removed_before)}"
    if produced == 0:
        return f"Nothing was added.{earlier}"
    parts = [
        f"{_are(facts.counts[status])} {_WORDS[status]}"
        for status in EntryStatus
        if status in _WORDS and facts.counts.get(status)
    ]
    return ", ".join([_finished(facts.counts, produced), *parts]) + f".{earlier}"


def _finished(counts: Mapping[EntryStatus, int], produced: int) -> str:
    """Number of finished entries, and the evidence for it.

    A group whose position was set to the end has passed entries without an acknowledgement. Without
    evidence, both look the same.
    """
    proven = counts.get(EntryStatus.ACKNOWLEDGED_PROVEN, 0)
    inferred = counts.get(EntryStatus.ACKNOWLEDGED_INFERRED, 0)
    of = "of 1 entry was" if produced == 1 else f"of {produced} entries were"
    passed = "delivered or passed, and {are} no longer pending (inferred)"
    if not inferred:
        return f"{proven} {of} acknowledged{' (proven)' if proven else ''}"
    if not proven:
        return f"{inferred} {of} {agree(passed, produced)}"
    return f"{proven} {of} acknowledged (proven), {agree(f'{{n}} {{were}} {passed}', inferred)}"


def _are(count: int) -> str:
    return "1 is" if count == 1 else f"{count} are"


def _of_earlier_windows(facts: SummaryInput) -> str:
    settled = {status: facts.settled.get(status, 0) for status in _SETTLED_BADLY}
    parts = [
        *(f"{_are(count)} {_WORDS[status]} by now" for status, count in settled.items() if count),
        *([f"{_are(facts.stuck_earlier)} stuck"] if facts.stuck_earlier else []),
        *(f"{_are(count)} {_MOVED[status]}" for status, count in facts.moved.items() if count),
    ]
    return f" Of earlier windows {', '.join(parts)}." if parts else ""


def _span(value_ms: int | None) -> timedelta | None:
    return None if value_ms is None else timedelta(milliseconds=value_ms)


def _recovery(found: tuple[int, int] | None) -> RecoveryTimes | None:
    if found is None:
        return None
    half, most = (timedelta(milliseconds=value) for value in found)
    return RecoveryTimes(p50=half, p99=most)


def find_violations(
    window: Window,
    archived: int,
    counts: Mapping[EntryStatus, int],
    snapshot: GroupSnapshot | None,
    stream: StreamSnapshot,
) -> Iterator[AuditFinding]:
    """A finding for each count that contradicts the others."""
    produced = window.to_added - window.from_added
    if archived > produced:
        yield AuditFinding(
            kind="counters-contradict",
            count=archived - produced,
            sentence=f"{archived} entries were read, but entries-added grew by "
            f"{produced}: the stream's counters were set by hand (XSETID), or it was restored",
        )
    total = sum(counts.values())
    if total != max(produced, archived):
        yield AuditFinding(
            kind="unbalanced",
            count=abs(total - produced),
            sentence=f"{total} entries have a status, but {produced} were produced",
        )
    if snapshot is not None and snapshot.pending < 0:
        yield AuditFinding(kind="unbalanced", count=1, sentence="XINFO GROUPS counts below zero")
    if snapshot is not None and snapshot.position > stream.last_generated:
        yield AuditFinding(
            kind="position-ahead",
            count=1,
            sentence=f"the group's position {snapshot.position} is beyond the end of the stream "
            f"{stream.last_generated}: entries added below it are never delivered",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Two counts that must be equal."""

    name: str
    expected: int
    found: int
    sentence: str  # of the finding if they differ; `expected` precedes it

    @property
    def holds(self) -> bool:
        return self.expected == self.found


def list_broken(identities: Iterable[Identity]) -> Iterator[AuditFinding]:
    """A finding for each identity that does not hold."""
    for identity in identities:
        if not identity.holds:
            yield AuditFinding(
                kind=f"unbalanced-{identity.name}",
                count=abs(identity.expected - identity.found),
                sentence=f"{identity.expected} {identity.sentence.format(found=identity.found)}",
            )
