"""Counts, durations and sizes as messages show them: `1,240 entries`, `14 days`, `8 MiB`."""

from __future__ import annotations

from typing import Final

# The largest unit that gives a whole number is used. Durations below two hours stay in seconds, the
# unit of the spec's fields.
_DURATIONS: Final = ((86_400, "day", 1), (3_600, "hour", 2))
_SIZES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def render_count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> render_count(1, "entry", "entries"), render_count(1240, "entry", "entries")
    ('1 entry', '1,240 entries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def render_seconds(seconds: float) -> str:
    """Return a duration in the largest unit that shows it exactly.

    >>> render_seconds(300), render_seconds(7200), render_seconds(1_209_600), render_seconds(5400)
    ('300 s', '2 hours', '14 days', '5,400 s')
    """
    for size, noun, least in _DURATIONS:
        if seconds >= size * least and seconds % size == 0:
            return render_count(int(seconds // size), noun)
    return f"{int(seconds):,} s" if seconds == int(seconds) else f"{seconds:g} s"


def render_bytes(size: int) -> str:
    """Return a size in the largest unit that shows it exactly.

    >>> render_bytes(8_388_608), render_bytes(8_000_000)
    ('8 MiB', '8,000,000 bytes')
    """
    for unit, name in _SIZES:
        if size >= unit and size % unit == 0:
            return f"{size // unit:,} {name}"
    return render_count(size, "byte")
