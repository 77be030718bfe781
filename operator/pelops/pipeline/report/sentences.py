"""Texts of the report: names and meanings, numbers, times, payloads, and sentences about a group.

Payloads, names and errors are untrusted texts. Characters that are invisible or change the text
direction (control characters, bidirectional marks, lone surrogates) are escaped.
"""

from __future__ import annotations

import re
import unicodedata
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pelops.clock import from_ms, is_time
from pelops.domain.audit import AuditEvidence, AuditSummary, AuditVerdict, Certainty
from pelops.domain.outcome import EntryStatus
from pelops.pipeline.triage.clusters import MOST_RETRIES

if TYPE_CHECKING:  # these modules import this one
    from pelops.pipeline.report.model import (
        AgeBand,
        BytesHead,
        DeadLetterCluster,
        ExceptionalEntry,
        GroupLine,
        GroupReport,
        TextHead,
    )

TITLES: Final = {
    EntryStatus.LOST: "Lost",
    EntryStatus.PAYLOAD_GONE: "Payload gone",
    EntryStatus.STUCK: "Stuck",
    EntryStatus.DEAD_LETTERED: "Dead-lettered",
    EntryStatus.INDETERMINATE: "Indeterminate",
    EntryStatus.DISCARDED: "Discarded",
    EntryStatus.REDRIVEN: "Redriven",
    EntryStatus.REQUEUED: "Requeued",
    EntryStatus.UNDELIVERED: "Undelivered",
    EntryStatus.IN_FLIGHT: "In flight",
    EntryStatus.ACKNOWLEDGED_INFERRED: "Delivered or passed",
    EntryStatus.ACKNOWLEDGED_PROVEN: "Acknowledged",
}  # in the order in which they are shown: the worst first

MEANINGS: Final = {
    EntryStatus.ACKNOWLEDGED_PROVEN: "an append-only file of Redis shows it",
    EntryStatus.ACKNOWLEDGED_INFERRED: "no longer pending; no record shows whether it was "
    "acknowledged or skipped",
    EntryStatus.IN_FLIGHT: "delivered recently, and pending at a consumer",
    EntryStatus.UNDELIVERED: "in the stream, not delivered to the group yet",
    EntryStatus.REQUEUED: "added again as a copy, which has its own status",
    EntryStatus.REDRIVEN: "its dead letter was moved back as a copy, which has its own status",
    EntryStatus.DISCARDED: "its dead letter was discarded by a StreamRedrive",
    EntryStatus.STUCK: "pending for longer than the limit",
    EntryStatus.DEAD_LETTERED: "moved to the dead-letter stream, with its reason",
    EntryStatus.PAYLOAD_GONE: "its body was trimmed or deleted while it was pending",
    EntryStatus.INDETERMINATE: "no record shows whether it was acknowledged",
    EntryStatus.LOST: "deleted or trimmed, and proven never to have been acknowledged",
}

TOTALS: Final = {
    "lost": "lost",
    "payload_gone": "without payload",
    "stuck": "stuck",
    "dead_lettered": "dead-lettered",
    "unknown": "indeterminate",
}  # severities that count entries, the worst first

# Reasons for a status, by `pelops.policy.audit.classification.Why`.
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

VERDICTS: Final = {
    AuditVerdict.BALANCED: ("✓", "Balanced"),
    AuditVerdict.UNKNOWN: ("?", "Unknown"),
    AuditVerdict.FINDINGS: ("!", "Findings"),
    AuditVerdict.FAILING: ("✕", "Not accounted for"),
}


def name_verdict(verdict: AuditVerdict, certainty: Certainty | None) -> str:
    """A verdict in a word; `Balanced` always with its certainty."""
    word = VERDICTS[verdict][1]
    return f"{word}, {certainty}" if verdict is AuditVerdict.BALANCED and certainty else word


EVIDENCE: Final = {
    AuditEvidence.AOF: "append-only files and the ledger",
    AuditEvidence.LEDGER: "the operator's ledger",
    AuditEvidence.NONE: "the stream alone",
}


THIN: Final = "\u202f"  # narrow no-break space
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SIZES: Final = ("KiB", "MiB", "GiB", "TiB")


def show_count(number: int) -> str:
    """`1 234 567`, with narrow spaces."""
    return f"{number:,}".replace(",", THIN)


def count_of(number: int, one: str, many: str | None = None) -> str:
    """`1 entry`, `2 entries`: the plural is `many`, or `one` with an s."""
    return f"{show_count(number)} {one if number == 1 else many or f'{one}s'}"


def count_entries(number: int) -> str:
    """`1 entry`, `2 entries`."""
    return count_of(number, "entry", "entries")


def show_share(part: int, whole: int) -> str:
    """A part in percent. It is never rounded to `0 %` or `100 %`."""
    if whole <= 0 or part <= 0:
        return f"0{THIN}%"
    if part >= whole:
        return f"100{THIN}%"
    percent = 100 * part / whole
    if percent < 0.01:
        return f"<{THIN}0.01{THIN}%"
    if percent > 99.99:
        return f">{THIN}99.99{THIN}%"
    return f"{percent:.2f}{THIN}%"


def show_span(span: timedelta | None) -> str:
    """`5 min 12 s`: the two largest units; `-` for none. Below a second: `40 ms`."""
    if span is None:
        return "-"
    seconds = span / timedelta(seconds=1)
    if seconds < 0:
        return f"-{show_span(-span)}"
    if seconds < 1:
        return f"{round(1000 * seconds)}{THIN}ms"
    if seconds < 10:
        return f"{seconds:.1f}{THIN}s".replace(f".0{THIN}", THIN)
    return _largest_units(round(seconds))


def show_moment(moment: datetime) -> str:
    """`2026-01-31 12:00:00 UTC`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def show_period(start: datetime | None, end: datetime) -> str:
    """`2026-01-31 12:00:00 to 12:15:00 UTC (15 min)`; `closed ...` when no start is known."""
    if start is None or start > end:
        return f"closed {show_moment(end)}"
    begin, close = start.astimezone(UTC), end.astimezone(UTC)
    shown = "%H:%M:%S" if begin.date() == close.date() else "%Y-%m-%d %H:%M:%S"
    span = show_span(end - start)
    return f"{begin:%Y-%m-%d %H:%M:%S} to {close.strftime(shown)} UTC ({span})"


def show_rate(count: int, span: timedelta) -> str:
    """`278 a second`, `4.2 a minute`: with the shortest unit for which it is at least one."""
    seconds = span / timedelta(seconds=1)
    for unit, of_it in (("second", 1), ("minute", 60), ("hour", 3600)):
        rate = count * of_it / seconds
        if rate >= 1:
            return f"{show_count(round(rate)) if rate >= 10 else f'{rate:.1f}'} a {unit}"
    return f"{count * 86_400 / seconds:.1f} a day"


def show_ms(ms: int) -> str:
    """The time of a count of milliseconds; the count itself if it is not a valid time."""
    return show_moment(from_ms(ms)) if is_time(ms) else show_count(ms)


def show_size(size: int) -> str:
    """`1.5 MiB`."""
    if size < 1024:
        return f"{size}{THIN}B"
    number = size / 1024
    for unit in _SIZES[:-1]:
        if number < 1024:
            return f"{number:.1f}{THIN}{unit}"
        number /= 1024
    return f"{number:.1f}{THIN}{_SIZES[-1]}"


def round_up(value: float) -> float:
    """The next round number: one or two digits followed by zeros."""
    step = 1.0
    while step < value:
        for factor in (1, 1.5, 2, 3, 4, 5, 6, 8):
            if step * factor >= value:
                return step * factor
        step *= 10
    return step


def _largest_units(seconds: int) -> str:
    parts: list[str] = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{THIN}{unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


# Categories without a glyph: control, format, surrogate, private, unassigned, line, paragraph.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SUSPECT: Final = re.compile(r"[^\x20-\x7e\n\t]")
_MARKS: Final = re.compile(
    r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{3,}"
)


def make_visible(text: str) -> str:
    """Return the text with invisible characters as `\\u{202e}`, except tabs and line feeds.

    Of several combining marks on one character, the first two are kept.
    """
    return _MARKS.sub(lambda found: found[0][:2], _SUSPECT.sub(_spell, text))


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


def one_line(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, without line feeds and tabs."""
    short = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return " ".join(make_visible(short).split())


def _hexadecimal(head: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in head)


def _spell(found: re.Match[str]) -> str:
    return _spelled(found[0])


@lru_cache(maxsize=4096)
def _spelled(character: str) -> str:
    is_unseen = unicodedata.category(character) in _UNSEEN
    return f"\\u{{{ord(character):x}}}" if is_unseen else character


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


def join_words(words: Iterable[str]) -> str:
    """`a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def as_sentence(text: str) -> str:
    """The text with a capital letter and a final period."""
    text = text.strip()
    end = "" if not text or text[-1] in ".!?…" else "."
    return f"{text[:1].upper()}{text[1:]}{end}"


def describe_group(sentence: str, notes: Sequence[str]) -> str:
    """The sentence of an audit with its notes."""
    return f"{sentence} Beside that: {join_words(notes)}." if notes else sentence


def describe_groups(lines: Sequence[GroupLine]) -> str:
    """The verdict of several groups in words; they are sorted, the worst first."""
    if not lines:
        return "There was no group to audit."
    if len(lines) == 1:
        return lines[0].sentence
    streams = len({one.stream for one in lines})
    of = f" of {count_of(streams, 'stream')}" if streams > 1 else ""
    head = f"{count_of(len(lines), 'group')}{of}, {count_entries(count_produced(lines))}"
    grave_lines = [
        one for one in lines if one.verdict in {AuditVerdict.FINDINGS, AuditVerdict.FAILING}
    ]
    if not grave_lines:
        return f"{head}: {_describe_well(lines)}."
    parts = list_totals(grave_lines)
    failing = sum(one.verdict is AuditVerdict.FAILING for one in grave_lines)
    if failing:
        parts.insert(0, f"{show_count(failing)} not accounted for")
    needs = "needs" if len(grave_lines) == 1 else "need"
    details = f": {join_words(parts)}" if parts else ""
    return f"{head}. {count_of(len(grave_lines), 'group')} {needs} attention{details}."


def describe_basis(balanced: Sequence[GroupLine]) -> str:
    """Numbers of groups that are proven and inferred."""
    proven = sum(one.certainty is Certainty.PROVEN for one in balanced)
    counts = {Certainty.PROVEN: proven, Certainty.INFERRED: len(balanced) - proven}
    return ", ".join(f"{show_count(n)} {of}" for of, n in counts.items() if n)


def list_totals(lines: Iterable[GroupLine]) -> list[str]:
    """Findings of several groups, such as `2 lost`. An entry counts once for each group."""
    totals: dict[str, int] = defaultdict(int)
    for line in lines:
        for one in line.findings:
            totals[one.severity] += one.count
    return [f"{show_count(totals[of])} {word}" for of, word in TOTALS.items() if totals.get(of)]


def count_produced(lines: Iterable[GroupLine]) -> int:
    """Number of entries of all streams; a stream with several groups counts once."""
    most: dict[tuple[str, int], int] = defaultdict(int)
    for line in lines:
        at = line.stream, line.window
        most[at] = max(most[at], line.produced)
    return sum(most.values())


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
    look = whole - done - moving - unknown
    were, are = ("was", "is") if done == 1 else ("were", "are")
    pending = f", and {are} no longer pending" if inferred else ""
    parts = [f"{show_count(done)} of {what} ({show_share(done, whole)}) {were} {ended}{pending}"]
    if moving:
        names = ", ".join(f"{show_count(n)} {word}" for word, n in on_way.items() if n)
        parts.append(f"{count_of(moving, 'is', 'are')} in progress ({names})")
    if unknown:
        parts.append(f"{count_of(unknown, 'is', 'are')} indeterminate")
    if look:
        parts.append(f"{count_of(look, 'needs', 'need')} attention")
    return f"{'; '.join(parts)}."


def _describe_well(lines: Sequence[GroupLine]) -> str:
    unknown = [one for one in lines if one.verdict is not AuditVerdict.BALANCED]
    if unknown:
        totals = "".join(f" and {count} entries" for count in list_totals(unknown))
        balanced = show_count(len(lines) - len(unknown))
        return f"{balanced} balanced, {show_count(len(unknown))} unknown{totals}"
    inferred = sum(one.certainty is not Certainty.PROVEN for one in lines)
    if 0 < inferred < len(lines):
        return f"all balanced, {show_count(inferred)} inferred and the others proven"
    return f"all balanced, {Certainty.INFERRED if inferred else Certainty.PROVEN}"


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
