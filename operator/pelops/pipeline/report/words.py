"""Texts of the report: names and meanings of statuses and verdicts, numbers, times, payloads.

Foreign texts come from payloads, names and errors. Characters that are invisible or change the
direction of the text (control characters, bidirectional marks, half of a surrogate pair) are
written out.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from pelops.domain.audit import AuditVerdict, Certainty, EntryStatus, EvidenceKind

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
    EntryStatus.ACKNOWLEDGED_INFERRED: "Acknowledged, inferred",
    EntryStatus.ACKNOWLEDGED_PROVEN: "Acknowledged, proven",
}  # in the order in which they are shown: the worst first

MEANINGS: Final = {
    EntryStatus.ACKNOWLEDGED_PROVEN: "an append-only file of Redis shows it",
    EntryStatus.ACKNOWLEDGED_INFERRED: "delivered, and no longer pending",
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

# What decided, in the words of `pelops.policy.audit.classification.Why`.
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
    """A verdict in a word; `Balanced` never without what it rests on."""
    word = VERDICTS[verdict][1]
    return f"{word}, {certainty}" if verdict is AuditVerdict.BALANCED and certainty else word


EVIDENCE: Final = {
    EvidenceKind.AOF: "append-only files and the ledger",
    EvidenceKind.LEDGER: "the operator's ledger",
    EvidenceKind.NONE: "the stream alone",
}


THIN: Final = "\u202f"  # a narrow space at which no line breaks
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_370_764_800_000  # the year 9999
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
    """A part in percent. Only nothing is `0 %`, and only all of it is `100 %`."""
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


def show_seconds(span: timedelta | None) -> str:
    """`312.040`: a number of seconds for the copy of a table; empty for none."""
    return "" if span is None else f"{span / timedelta(seconds=1):.3f}"


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
    """`278 a second`, `4.2 a minute`: in the shortest unit in which it is at least one."""
    seconds = span / timedelta(seconds=1)
    for unit, of_it in (("second", 1), ("minute", 60), ("hour", 3600)):
        rate = count * of_it / seconds
        if rate >= 1:
            return f"{show_count(round(rate)) if rate >= 10 else f'{rate:.1f}'} a {unit}"
    return f"{count * 86_400 / seconds:.1f} a day"


def show_ms(ms: int) -> str:
    """The moment of a count of milliseconds; the count itself when it is no time of a calendar."""
    if not 0 < ms < _LAST_MS:
        return show_count(ms)
    return show_moment(_EPOCH + timedelta(milliseconds=ms))


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
    """The next number that reads well: one or two digits with zeros, not much above."""
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


# Categories of what nobody sees: control, format, surrogate, private, unassigned, line, paragraph.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SUSPECT: Final = re.compile(r"[^\x20-\x7e\n\t]")
_MARKS: Final = re.compile(
    r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{3,}"
)
_MOST_COPIED: Final = 2000  # characters of a cell
_NUMBER: Final = re.compile(r"-?[0-9]*(\.[0-9]+)?")


def make_visible(text: str) -> str:
    """Return the text with everything invisible as `\\u{202e}`; tabs and line feeds stay.

    Of combining marks that pile up on one letter, two stay.
    """
    return _MARKS.sub(lambda found: found[0][:2], _SUSPECT.sub(_spell, text))


def show_bytes(head: bytes, size: int) -> str:
    """Return the beginning of a value of `size` bytes as text, or as `\\x00` if it is not text."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The last letter may have been cut in two.
        is_cut = size > len(head) and error.start >= len(head) - 3 and "end" in error.reason
        text = head[: error.start].decode("utf-8") if is_cut else _hexadecimal(head)
    return make_visible(text).replace("\n", "\u23ce").replace("\t", "\u21e5")


def one_line(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, without line feeds and tabs."""
    short = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return " ".join(make_visible(short).split())


def copied_cell(text: object) -> str:
    """Return the text of a cell for a tab-separated table; a spreadsheet does not evaluate it."""
    flat = " ".join(make_visible(str(text)[:_MOST_COPIED]).split())
    is_formula = flat[:1] in {"=", "+", "-", "@"} and not _NUMBER.fullmatch(flat)
    return f"'{flat}" if is_formula else flat


def _hexadecimal(head: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in head)


def _spell(found: re.Match[str]) -> str:
    return _spelled(found[0])


@lru_cache(maxsize=4096)
def _spelled(character: str) -> str:
    is_unseen = unicodedata.category(character) in _UNSEEN
    return f"\\u{{{ord(character):x}}}" if is_unseen else character
