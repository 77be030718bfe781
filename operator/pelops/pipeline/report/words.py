"""Words of the report: names and meanings, numbers, times, and payloads as visible text.

Payloads, names and errors are untrusted texts. Characters that are invisible or change the text
direction (control characters, bidirectional marks, lone surrogates) are escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from pelops.clock import from_ms, is_time
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditVerdict, Certainty

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


def join_words(words: Iterable[str]) -> str:
    """`a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def as_sentence(text: str) -> str:
    """The text with a capital letter and a final period."""
    text = text.strip()
    end = "" if not text or text[-1] in ".!?…" else "."
    return f"{text[:1].upper()}{text[1:]}{end}"
