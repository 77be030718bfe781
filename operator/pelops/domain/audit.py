"""What an audit says about one group in one window: the summary that the pipeline writes to Redis.

The one schema that the pipeline and the operator share. Every entry of the window ends in exactly
one status, so the counts add up to what was produced: a summary that does not balance cannot be
made, and is not believed when it is read.

<audit>               the summary of its newest window (domain/audit.py)
totals:<audit>        "at_ms lost_found lost": the window's end, entries that its run found lost,
                      and those of all runs
acknowledged:<audit>  how many of the lost entries a person has acknowledged
archived              "<audit> <ledger ID> ...", up to where each audit has archived the ledger
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

    ACKNOWLEDGED_PROVEN = "acknowledged_proven"  # an AOF, or a worker of ours, says so
    ACKNOWLEDGED_INFERRED = "acknowledged_inferred"  # delivered or passed; no longer pending
    IN_FLIGHT = "in_flight"  # pending, and not for long
    STUCK = "stuck"  # pending for longer than the limit
    UNDELIVERED = "undelivered"  # after the group's position, and still there
    DEAD_LETTERED = "dead_lettered"
    REQUEUED = "requeued"  # its copy is counted where the copy is
    REDRIVEN = "redriven"  # its dead letter was moved back: the copy is counted where the copy is
    DISCARDED = "discarded"  # its dead letter was discarded, and was not restored
    PAYLOAD_GONE = "payload_gone"  # pending, and its body was deleted or trimmed
    LOST = "lost"  # proven: never delivered, and gone
    INDETERMINATE = "indeterminate"  # delivered and then trimmed, or lost: nothing tells which


# What ends by itself, or as was asked for; every other status is worth a look.
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
    """An audit in a word, from best to worst."""

    BALANCED = "balanced"  # every entry is accounted for, and none needs a look
    UNKNOWN = "unknown"  # none needs a look, but the end of at least one entry cannot be told
    FINDINGS = "findings"  # every entry is accounted for, and some need a look
    FAILING = "failing"  # the audit could not see what it needs to account for them


class Certainty(StrEnum):
    """What the acknowledgements of an audit rest on, from best to worst."""

    PROVEN = "proven"  # evidence shows each of them
    INFERRED = "inferred"  # for some, or where there are none, no evidence exists
    UNKNOWN = "unknown"  # of at least one entry nothing tells whether it was acknowledged


_SEVERITY: Final = {verdict: place for place, verdict in enumerate(AuditVerdict)}
_DOUBT: Final = {certainty: place for place, certainty in enumerate(Certainty)}
# Findings of these kinds say only that the end of entries cannot be told.
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
    """What the audit could rest on beside the stream itself."""

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
    """Something that somebody should look at."""

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
    """One group in one window. Make it with `build_summary`, which sees that it balances."""

    stream: str
    group: str
    window: Window
    produced: int
    archived: int  # of them; the rest was gone before it could be read
    counts: Mapping[EntryStatus, int]  # every status; their sum is `produced`
    open: int = 0  # entries of this and earlier windows that have not come to an end
    lost_earlier: int = 0  # of earlier windows: undelivered until now, and proven lost since
    stuck_earlier: int = 0  # of earlier windows: pending for longer than the limit
    findings: tuple[AuditFinding, ...] = ()
    verdict: AuditVerdict
    certainty: Certainty = Certainty.PROVEN  # also of what was settled of earlier windows
    sentence: str
    oldest_stuck: timedelta | None = None
    recovery: RecoveryTimes | None = None
    # What of the stream's retained part the archive is ahead of trimming: 1 all, below 0 too late.
    retention_margin: float | None = None
    evidence: EvidenceKind = EvidenceKind.NONE

    @property
    def lost(self) -> int:
        """Entries that were proven lost in this window."""
        return self.counts[EntryStatus.LOST]


def build_summary(summary: AuditSummary) -> AuditSummary:
    """The summary with every status counted and its texts cut to what may be recorded.

    Its verdict is never better than its counts and findings, and its certainty never better than
    its counts and evidence.

    Raises InvalidSpec when its statuses do not add up to what was produced, when more was archived
    than produced, or when the window goes backward.
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
    found = [*summary.findings, *list_counted(replace(summary, counts=counts))]
    least = decide_verdict(found, certainty=certainty)
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
    """The summary as a JSON object. Statuses that no entry has are left out."""
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
            {"kind": one.kind, "count": one.count, "sentence": one.sentence}
            for one in summary.findings
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

    It fits into `SUMMARY_LIMIT`; findings at the end of the list give way.
    """
    while True:
        text = json.dumps(
            render_summary(summary), ensure_ascii=False, separators=(",", ":"), sort_keys=True
        )
        if len(text.encode(errors="replace")) <= SUMMARY_LIMIT or not summary.findings:
            return text
        summary = replace(summary, findings=summary.findings[:-1])


def parse_summary(text: str | bytes) -> AuditSummary:
    """The summary that a text holds; fields that are not known are ignored.

    Raises InvalidSpec, which names the field, when the text is none, is of another version, or does
    not balance.
    """
    return _parse_summary(load_json_object(text, "the summary", limit=SUMMARY_LIMIT))


def parse_summary_object(content: Mapping[str, Any]) -> AuditSummary:
    """The summary that a JSON object holds, which `render_summary` made. Raises InvalidSpec."""
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
    """The verdict of all of them together; None without any."""
    return max(verdicts, key=_SEVERITY.__getitem__, default=None)


def decide_verdict(
    findings: Iterable[AuditFinding],
    failures: Sequence[AuditFinding] = (),
    *,
    certainty: Certainty = Certainty.PROVEN,
) -> AuditVerdict:
    """The verdict that findings lead to; failures are why entries cannot be accounted for."""
    kinds = {one.kind for one in findings}
    if failures:
        return AuditVerdict.FAILING
    if kinds - UNKNOWN_KINDS:
        return AuditVerdict.FINDINGS
    is_known = not kinds and certainty is not Certainty.UNKNOWN
    return AuditVerdict.BALANCED if is_known else AuditVerdict.UNKNOWN


def list_counted(summary: AuditSummary) -> Iterator[AuditFinding]:
    """The findings that the counts of a summary show by themselves, without a sentence."""
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
    """The kind of a finding about entries of this status."""
    return status.value.replace("_", "-")


def find_certainty(counts: Mapping[EntryStatus, int], evidence: EvidenceKind) -> Certainty:
    """The certainty of the acknowledgements among entries of these statuses.

    Without acknowledgements, only append-only files prove that there were none.
    """
    if counts.get(EntryStatus.INDETERMINATE):
        return Certainty.UNKNOWN
    if counts.get(EntryStatus.ACKNOWLEDGED_INFERRED):
        return Certainty.INFERRED
    is_shown = evidence is EvidenceKind.AOF or counts.get(EntryStatus.ACKNOWLEDGED_PROVEN)
    return Certainty.PROVEN if is_shown else Certainty.INFERRED


def worst_certainty(certainties: Iterable[Certainty]) -> Certainty:
    """The certainty of all of them together; of none, nothing is proven: inferred."""
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
    """Summaries of earlier releases lack it: then the counts alone decide."""
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


def _parse_finding(found: object) -> AuditFinding:
    if not isinstance(found, Mapping):
        raise InvalidSpec("findings must be a list of objects")
    fields = JsonFields(content=found, at="findings[].")
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


MOST_AUDITS: Final = 16  # that record on one group
MOST_GROUPS: Final = 1000  # that one audit records on
# Fields of the hash that are no audit's name: names hold no colon and no space.
ARCHIVED_FIELD: Final = "archived"
TOTALS_PREFIX: Final = "totals:"
ACKNOWLEDGED_PREFIX: Final = "acknowledged:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """What an audit has written about a group, and what people have acknowledged of it."""

    summary: AuditSummary
    lost: int = 0  # entries lost in all windows, whichever run has found it
    acknowledged: int = 0  # of them

    @property
    def unacknowledged(self) -> int:
        """Lost entries that nobody has acknowledged yet."""
        return max(0, self.lost - self.acknowledged)


def check_audit_name(name: str) -> str:
    """The name under which an audit records; the operator uses `namespace/name` of the StreamAudit.

    Raises InvalidSpec for anything that could be taken for another field of the hash.
    """
    if not _NAME.fullmatch(name) or name == ARCHIVED_FIELD:
        raise InvalidSpec(
            f"{shorten(name, 64)!r} cannot name an audit: letters, digits and . _ / - only, 317 at "
            f"most, beginning with a letter or digit, and not the word {ARCHIVED_FIELD}"
        )
    return name
