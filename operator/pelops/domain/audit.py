"""The summary of one audit for one group and window, which the pipeline writes to Redis.

The pipeline and the operator share this schema. Each entry of the window has exactly one status, so
the counts add up to the number of produced entries. Building or parsing a summary that does not
balance raises InvalidSpec.

Fields of the audit hash:

<audit>               the summary of its newest window
totals:<audit>        "at_ms lost_found lost": the end of the window, the lost entries that its run
                      found, and the lost entries of all runs.
acknowledged:<audit>  the number of lost entries that a person has acknowledged
archived              "<audit> <ledger ID> ...": the last ledger entry that each audit has archived
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from pelops.clock import MILLISECOND, from_ms, to_ms
from pelops.domain.condition import shorten
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.json_fields import JsonFields, load_json_object
from pelops.errors import InvalidSpec

VERSION: Final = 1
SUMMARY_LIMIT: Final = 16 * 1024  # bytes of a rendered summary; the script refuses more
MOST_FINDINGS: Final = 16
SENTENCE_LIMIT: Final = 400  # characters


class EntryStatus(StrEnum):
    """What became of an entry, for one group."""

    ACKNOWLEDGED_PROVEN = "acknowledged_proven"  # shown by an AOF or by a worker's record
    ACKNOWLEDGED_INFERRED = "acknowledged_inferred"  # at or before the position, not pending
    IN_FLIGHT = "in_flight"  # pending for less than the limit
    STUCK = "stuck"  # pending for longer than the limit
    UNDELIVERED = "undelivered"  # after the group's position, and still in the stream
    DEAD_LETTERED = "dead_lettered"
    REQUEUED = "requeued"  # copied; the copy has a status of its own
    REDRIVEN = "redriven"  # its dead letter was copied back; the copy has a status of its own
    DISCARDED = "discarded"  # its dead letter was discarded, and was not restored
    PAYLOAD_GONE = "payload_gone"  # pending, and its body was deleted or trimmed
    LOST = "lost"  # proven: deleted or trimmed before it was delivered
    INDETERMINATE = "indeterminate"  # delivered and then trimmed, or lost: no evidence decides


# Statuses that need no action. Every other status is a finding.
EXPECTED_STATUSES: Final = frozenset(
    {
        EntryStatus.ACKNOWLEDGED_PROVEN,
        EntryStatus.ACKNOWLEDGED_INFERRED,
        EntryStatus.IN_FLIGHT,
        EntryStatus.UNDELIVERED,
        EntryStatus.REQUEUED,
        EntryStatus.REDRIVEN,
        EntryStatus.DISCARDED,
    }
)


class AuditVerdict(StrEnum):
    """The overall result of an audit, from best to worst."""

    BALANCED = "balanced"  # every entry is accounted for, without findings
    UNKNOWN = "unknown"  # no findings, but the outcome of at least one entry is unknown
    FINDINGS = "findings"  # every entry is accounted for, with findings
    FAILING = "failing"  # the audit could not read what it needs to account for every entry


class Certainty(StrEnum):
    """How certain the acknowledgements of an audit are, from best to worst."""

    PROVEN = "proven"  # evidence shows each of them
    INFERRED = "inferred"  # some have no evidence, or nothing proves that there were none
    UNKNOWN = "unknown"  # at least one entry may or may not have been acknowledged


_SEVERITY: Final = {verdict: place for place, verdict in enumerate(AuditVerdict)}
_DOUBT: Final = {certainty: place for place, certainty in enumerate(Certainty)}
# Findings of these kinds mean only that the outcome of entries is unknown.
UNKNOWN_KINDS: Final = frozenset(
    {
        "indeterminate",
        "indeterminate-later",
        "indeterminate-copies",
        "removed-before-archive",
        "stream-in-doubt",
    }
)


class EvidenceKind(StrEnum):
    """The evidence that the audit had in addition to the stream itself."""

    AOF = "aof"
    LEDGER = "ledger"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a stream: after `from_id`, up to and including `to_id`."""

    number: int  # from 0, without gaps, in one archive
    from_id: EntryId
    to_id: EntryId
    from_added: int  # the stream's entries-added at each end
    to_added: int
    at: datetime  # when it was closed, on the server's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """Something that a person should examine."""

    kind: str  # a word for programs
    count: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTimes:
    """From the first observation of a stuck entry until it was acknowledged or moved."""

    p50: timedelta
    p99: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSummary:
    """One group in one window. Make it with `build_summary`, which checks that it balances."""

    stream: str
    group: str
    window: Window
    produced: int
    archived: int  # of `produced`; the rest was deleted or trimmed before it could be read
    counts: Mapping[EntryStatus, int]  # every status; their sum is `produced`
    open: int = 0  # entries of this and earlier windows without a final status
    lost_earlier: int = 0  # of earlier windows: undelivered before, and now proven lost
    stuck_earlier: int = 0  # of earlier windows: pending for longer than the limit
    findings: tuple[AuditFinding, ...] = ()
    verdict: AuditVerdict
    certainty: Certainty = Certainty.PROVEN  # includes entries settled from earlier windows
    sentence: str
    oldest_stuck: timedelta | None = None
    recovery: RecoveryTimes | None = None
    # The archived share of the entries that the stream holds; negative: some were trimmed before
    # they were archived.
    retention_margin: float | None = None
    evidence: EvidenceKind = EvidenceKind.NONE

    @property
    def lost(self) -> int:
        """Number of entries of this window that were proven lost."""
        return self.counts[EntryStatus.LOST]


def build_summary(summary: AuditSummary) -> AuditSummary:
    """The summary with a count for every status, and with texts cut to their limits.

    The verdict is never better than the counts and findings allow, and the certainty never better
    than the counts and evidence allow.

    Raises InvalidSpec when the counts do not add up to `produced`, when `archived` exceeds
    `produced`, or when the window goes backward.
    """
    counts = {status: summary.counts.get(status, 0) for status in EntryStatus}
    total, window = sum(counts.values()), summary.window
    if any(count < 0 for count in counts.values()) or total != summary.produced:
        raise InvalidSpec(
            f"the statuses of {total} entries do not account for {summary.produced} produced ones"
        )
    if summary.archived > summary.produced:
        raise InvalidSpec(f"{summary.archived} of {summary.produced} entries cannot be archived")
    if window.from_id > window.to_id or window.from_added > window.to_added:
        raise InvalidSpec(f"window {window.number} goes backward")
    certainty = worst_certainty([summary.certainty, find_certainty(counts, summary.evidence)])
    findings = [*summary.findings, *list_counted(replace(summary, counts=counts))]
    least = decide_verdict(findings, certainty=certainty)
    return replace(
        summary,
        counts=counts,
        verdict=worst_verdict([summary.verdict, least]) or least,
        certainty=certainty,
        sentence=shorten(summary.sentence, SENTENCE_LIMIT),
        findings=tuple(
            replace(finding, sentence=shorten(finding.sentence, SENTENCE_LIMIT))
            for finding in summary.findings[:MOST_FINDINGS]
        ),
    )


def render_summary(summary: AuditSummary) -> dict[str, Any]:
    """The summary as a JSON object, without the statuses whose count is 0."""
    window, recovery = summary.window, summary.recovery
    return {
        "version": VERSION,
        "stream": summary.stream,
        "group": summary.group,
        "window": {
            "number": window.number,
            "from_id": str(window.from_id),
            "to_id": str(window.to_id),
            "from_added": window.from_added,
            "to_added": window.to_added,
            "at_ms": to_ms(window.at),
        },
        "produced": summary.produced,
        "archived": summary.archived,
        "counts": {status.value: n for status, n in sorted(summary.counts.items()) if n},
        "open": summary.open,
        "lost_earlier": summary.lost_earlier,
        "stuck_earlier": summary.stuck_earlier,
        "findings": [
            {"kind": finding.kind, "count": finding.count, "sentence": finding.sentence}
            for finding in summary.findings
        ],
        "verdict": summary.verdict.value,
        "certainty": summary.certainty.value,
        "sentence": summary.sentence,
        "oldest_stuck_s": None if summary.oldest_stuck is None else _seconds(summary.oldest_stuck),
        "time_to_recovery_ms": None
        if recovery is None
        else {"p50": recovery.p50 // MILLISECOND, "p99": recovery.p99 // MILLISECOND},
        "retention_margin": summary.retention_margin,
        "evidence": summary.evidence.value,
    }


def render_summary_text(summary: AuditSummary) -> str:
    """The summary as the text that is recorded: equal summaries give equal bytes.

    Findings are dropped from the end of the list until the text fits into `SUMMARY_LIMIT`.
    """
    while True:
        text = json.dumps(
            render_summary(summary), ensure_ascii=False, separators=(",", ":"), sort_keys=True
        )
        if len(text.encode(errors="replace")) <= SUMMARY_LIMIT or not summary.findings:
            return text
        summary = replace(summary, findings=summary.findings[:-1])


def parse_summary(text: str | bytes) -> AuditSummary:
    """The summary that a text holds; unknown fields are ignored.

    Raises InvalidSpec when the text is not a summary, has another version, or does not balance. The
    message names the field.
    """
    return _parse_summary(load_json_object(text, "the summary", limit=SUMMARY_LIMIT))


def parse_summary_object(content: Mapping[str, Any]) -> AuditSummary:
    """The summary from a JSON object that `render_summary` made. Raises InvalidSpec."""
    return _parse_summary(JsonFields(content=content))


def _parse_summary(fields: JsonFields) -> AuditSummary:
    if fields.number("version") != VERSION:
        raise InvalidSpec(
            f"the summary has version {fields.number('version')}, and this version of Pelops reads "
            f"{VERSION}: use the same release of operator and pipeline"
        )
    return build_summary(
        AuditSummary(
            stream=fields.text("stream"),
            group=fields.text("group"),
            window=_parse_window(fields.inner("window")),
            produced=fields.number("produced"),
            archived=fields.number("archived"),
            counts=_parse_counts(fields.inner("counts")),
            open=fields.number("open"),
            lost_earlier=fields.number("lost_earlier"),
            stuck_earlier=fields.number("stuck_earlier"),
            findings=_parse_findings(fields.content.get("findings")),
            verdict=fields.word("verdict", AuditVerdict),
            certainty=_parse_certainty(fields),
            sentence=fields.text("sentence"),
            oldest_stuck=_parse_span(fields.ratio("oldest_stuck_s"), timedelta(seconds=1)),
            recovery=_parse_recovery(fields),
            retention_margin=fields.ratio("retention_margin"),
            evidence=fields.word("evidence", EvidenceKind),
        )
    )


def worst_verdict(verdicts: Sequence[AuditVerdict]) -> AuditVerdict | None:
    """The worst of these verdicts; None when there are none."""
    return max(verdicts, key=_SEVERITY.__getitem__, default=None)


def decide_verdict(
    findings: Iterable[AuditFinding],
    failures: Sequence[AuditFinding] = (),
    *,
    certainty: Certainty = Certainty.PROVEN,
) -> AuditVerdict:
    """The verdict from the findings; `failures` are reasons why entries are not accounted for."""
    kinds = {one.kind for one in findings}
    if failures:
        return AuditVerdict.FAILING
    if kinds - UNKNOWN_KINDS:
        return AuditVerdict.FINDINGS
    is_known = not kinds and certainty is not Certainty.UNKNOWN
    return AuditVerdict.BALANCED if is_known else AuditVerdict.UNKNOWN


def list_counted(summary: AuditSummary) -> Iterator[AuditFinding]:
    """The findings that follow from the counts of a summary, each with an empty sentence."""
    counted = {
        kind_of(status): count
        for status, count in summary.counts.items()
        if status not in EXPECTED_STATUSES
    }
    counted |= {"stuck-earlier": summary.stuck_earlier, "lost-later": summary.lost_earlier}
    for kind, count in counted.items():
        if count:
            yield AuditFinding(kind=kind, count=count, sentence="")


def kind_of(status: EntryStatus) -> str:
    """The kind of finding for entries with this status."""
    return status.value.replace("_", "-")


def find_certainty(counts: Mapping[EntryStatus, int], evidence: EvidenceKind) -> Certainty:
    """The certainty of the acknowledgements among entries with these statuses.

    When none was acknowledged, only an AOF proves that.
    """
    if counts.get(EntryStatus.INDETERMINATE):
        return Certainty.UNKNOWN
    if counts.get(EntryStatus.ACKNOWLEDGED_INFERRED):
        return Certainty.INFERRED
    is_shown = evidence is EvidenceKind.AOF or counts.get(EntryStatus.ACKNOWLEDGED_PROVEN)
    return Certainty.PROVEN if is_shown else Certainty.INFERRED


def worst_certainty(certainties: Iterable[Certainty]) -> Certainty:
    """The worst of these certainties; inferred when there are none."""
    return max(certainties, key=_DOUBT.__getitem__, default=Certainty.INFERRED)


def _parse_window(fields: JsonFields) -> Window:
    return Window(
        number=fields.number("number"),
        from_id=parse_entry_id(fields.text("from_id", 41)),
        to_id=parse_entry_id(fields.text("to_id", 41)),
        from_added=fields.number("from_added"),
        to_added=fields.number("to_added"),
        at=from_ms(fields.number("at_ms")),
    )


def _parse_certainty(fields: JsonFields) -> Certainty:
    """The field `certainty`; without it (earlier releases), the counts and evidence decide."""
    if "certainty" not in fields.content:
        return Certainty.PROVEN
    return fields.word("certainty", Certainty)


def _parse_counts(fields: JsonFields) -> dict[EntryStatus, int]:
    unknown = fields.content.keys() - set(EntryStatus)
    if unknown:
        raise InvalidSpec(f"counts contains {shorten(min(unknown), 64)!r}, which is not a status")
    return {EntryStatus(name): fields.number(name) for name in fields.content}


def _parse_findings(found: object) -> tuple[AuditFinding, ...]:
    if not isinstance(found, list):
        raise InvalidSpec("findings is not a list")
    return tuple(_parse_finding(one) for one in found)


def _parse_finding(value: object) -> AuditFinding:
    if not isinstance(value, Mapping):
        raise InvalidSpec("findings must be a list of objects")
    fields = JsonFields(content=value, at="findings[].")
    return AuditFinding(
        kind=fields.text("kind", 64),
        count=fields.number("count"),
        sentence=fields.text("sentence"),
    )


def _parse_recovery(fields: JsonFields) -> RecoveryTimes | None:
    if fields.content.get("time_to_recovery_ms") is None:
        return None
    inner = fields.inner("time_to_recovery_ms")
    p50, p99 = (_parse_span(inner.number(name), MILLISECOND) for name in ("p50", "p99"))
    return RecoveryTimes(p50=p50 or timedelta(), p99=p99 or timedelta())


def _parse_span(value: float | None, unit: timedelta) -> timedelta | None:
    return None if value is None else min(max(value, 0.0), 1e12) * unit


def _seconds(span: timedelta) -> float:
    return round(span / timedelta(seconds=1), 3)


MOST_AUDITS: Final = 16  # audits that record on one group
MOST_GROUPS: Final = 1000  # groups that one audit records on
# Other fields of the audit hash. No audit has such a name: names hold no colon, and `archived` is
# refused.
ARCHIVED_FIELD: Final = "archived"
TOTALS_PREFIX: Final = "totals:"
ACKNOWLEDGED_PREFIX: Final = "acknowledged:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """What an audit has written about a group, and what people have acknowledged of it."""

    summary: AuditSummary
    lost: int = 0  # entries that all runs of the audit found lost
    acknowledged: int = 0  # of `lost`

    @property
    def unacknowledged(self) -> int:
        """Number of lost entries that no person has acknowledged yet."""
        return max(0, self.lost - self.acknowledged)


def check_audit_name(name: str) -> str:
    """The name under which an audit records; the operator uses `namespace/name` of the StreamAudit.

    Raises InvalidSpec for a name that could be mistaken for another field of the hash.
    """
    if not _NAME.fullmatch(name) or name == ARCHIVED_FIELD:
        raise InvalidSpec(
            f"{shorten(name, 64)!r} cannot name an audit: letters, digits and . _ / - only, 317 at "
            f"most, beginning with a letter or digit, and not the word {ARCHIVED_FIELD}"
        )
    return name
