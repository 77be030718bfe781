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

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pelops.domain.condition import shorten
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.json_codec import (
    Codec,
    Count,
    Id,
    Milliseconds,
    Moment,
    Ratio,
    Seconds,
    Stored,
    Word,
    names,
    only_version,
)
from pelops.errors import InvalidSpec

VERSION: Final = 1
SUMMARY_LIMIT: Final = 16 * 1024  # bytes of a rendered summary; the script refuses more
MOST_FINDINGS: Final = 16
SENTENCE_LIMIT: Final = 400  # characters


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


class AuditEvidence(StrEnum):
    """The evidence that the audit had in addition to the stream itself."""

    AOF = "aof"
    LEDGER = "ledger"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a stream: after `from_id`, up to and including `to_id`."""

    number: Count  # from 0, without gaps, in one archive
    from_id: Id
    to_id: Id
    from_added: Count  # the stream's entries-added at each end
    to_added: Count
    at: Moment  # when it was closed, on the server's clock
    __pydantic_config__: ClassVar[Any] = names(at="at_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """Something that a person should examine."""

    kind: Word  # for programs
    count: Count
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTimes:
    """From the first observation of a stuck entry until it was acknowledged or moved."""

    p50: Milliseconds
    p99: Milliseconds


def _without_zeros(counts: Mapping[EntryStatus, int]) -> dict[EntryStatus, int]:
    return {status: count for status, count in counts.items() if count}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSummary:
    """One group in one window; the same object in Redis and in reports.

    `counts` add up to `produced`; JSON leaves out statuses without entries. `open` counts entries
    of all windows that can still change, `lost_earlier` and `stuck_earlier` those of earlier
    windows. `build_summary` checks that it balances.
    """

    # First, so that a record of another version is refused for its version.
    version: Annotated[int, only_version(VERSION, "the summary")] = VERSION
    stream: str
    group: str
    window: Window
    produced: Count
    archived: Count  # of `produced`; the rest was deleted or trimmed before it could be read
    counts: Annotated[  # every status, in JSON those with entries; their sum is `produced`
        Mapping[EntryStatus, int],
        Stored(dict[EntryStatus, Count], dict, _without_zeros),
    ]
    open: Count = 0  # entries of this and earlier windows without a final status
    lost_earlier: Count = 0  # of earlier windows: undelivered before, and now proven lost
    stuck_earlier: Count = 0  # of earlier windows: pending for longer than the limit
    findings: tuple[AuditFinding, ...] = ()
    verdict: AuditVerdict
    # Includes entries settled from earlier windows. Earlier releases did not write it: the counts
    # and the evidence decide then.
    certainty: Certainty = Certainty.PROVEN
    sentence: str
    oldest_stuck: Seconds | None = None
    recovery: RecoveryTimes | None = None
    # The archived share of the entries that the stream holds; negative: some were trimmed before
    # they were archived.
    retention_margin: Ratio | None = None
    evidence: AuditEvidence = AuditEvidence.NONE
    __pydantic_config__: ClassVar[Any] = names(
        oldest_stuck="oldest_stuck_s", recovery="time_to_recovery_ms"
    )

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


_CODEC: Final = Codec(AuditSummary, "the summary", limit=SUMMARY_LIMIT)


def render_summary_text(summary: AuditSummary) -> str:
    """The summary as the text that is recorded: equal summaries give equal bytes.

    Findings are dropped from the end of the list until the text fits into `SUMMARY_LIMIT`.
    """
    while True:
        text = _CODEC.render(summary, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        if len(text.encode(errors="replace")) <= SUMMARY_LIMIT or not summary.findings:
            return text
        summary = replace(summary, findings=summary.findings[:-1])


def parse_summary(text: str | bytes) -> AuditSummary:
    """The summary that a text holds; unknown fields are ignored.

    Raises InvalidSpec when the text is not a summary, has another version, or does not balance. The
    message names the field.
    """
    return build_summary(_CODEC.parse(text))


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


def find_certainty(counts: Mapping[EntryStatus, int], evidence: AuditEvidence) -> Certainty:
    """The certainty of the acknowledgements among entries with these statuses.

    When none was acknowledged, only an AOF proves that.
    """
    if counts.get(EntryStatus.INDETERMINATE):
        return Certainty.UNKNOWN
    if counts.get(EntryStatus.ACKNOWLEDGED_INFERRED):
        return Certainty.INFERRED
    is_shown = evidence is AuditEvidence.AOF or counts.get(EntryStatus.ACKNOWLEDGED_PROVEN)
    return Certainty.PROVEN if is_shown else Certainty.INFERRED


def worst_certainty(certainties: Iterable[Certainty]) -> Certainty:
    """The worst of these certainties; inferred when there are none."""
    return max(certainties, key=_DOUBT.__getitem__, default=Certainty.INFERRED)


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
