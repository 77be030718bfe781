"""Ages as kubectl writes them, and durations as users write them in flags."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import datetime
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_NUMBER: Final = r"[0-9]{1,9}(?:\.[0-9]{1,3})?"
_UNITS: Final = {"s": 1, "m": _MINUTE, "h": _HOUR, "d": 24 * _HOUR}


def render_age(seconds: float) -> str:
    """Return a duration as the AGE column of kubectl shows it.

    >>> render_age(192), render_age(7200), render_age(90000)
    ('3m12s', '120m', '25h')
    """
    for limit, unit, part in _STEPS:
        if seconds < limit:
            return _render_parts(max(0, int(seconds)), unit, part)
    return f"{int(seconds) // (8760 * _HOUR)}y"


# Below the limit in seconds: the unit that is shown, and the smaller one behind it.
_STEPS: Final = (
    (2 * _MINUTE, "s", ""),
    (10 * _MINUTE, "m", "s"),
    (3 * _HOUR, "m", ""),
    (8 * _HOUR, "h", "m"),
    (48 * _HOUR, "h", ""),
    (8 * 24 * _HOUR, "d", "h"),
    (2 * 8760 * _HOUR, "d", ""),
    (8 * 8760 * _HOUR, "y", "d"),
)
_SECONDS: Final = {**_UNITS, "y": 8760 * _HOUR}


def _render_parts(seconds: int, unit: str, part: str) -> str:
    whole, rest = divmod(seconds, _SECONDS[unit])
    smaller = rest // _SECONDS[part] if part else 0
    return f"{whole}{unit}{smaller}{part}" if smaller else f"{whole}{unit}"


def parse_time(text: object) -> datetime | None:
    """Return the time that Kubernetes wrote, or None for anything else."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def render_age_of(time: object, now: datetime) -> str:
    """Return the age of a time that Kubernetes wrote, `<unknown>` if it is none."""
    moment = parse_time(time)
    return "<unknown>" if moment is None else render_age((now - moment).total_seconds())


def parse_duration(text: str) -> float:
    """Return the seconds of `90`, `90s`, `1m30s` or `2h`; for `type=` of a flag.

    Raises:
        ArgumentTypeError: the text is not a duration.
    """
    if re.fullmatch(_NUMBER, text):
        return float(text)
    if not re.fullmatch(f"({_NUMBER}[smhd])+", text):
        raise ArgumentTypeError(f"{text!r} is not a duration such as 90s, 5m or 1h30m")
    parts = re.findall(f"({_NUMBER})([smhd])", text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
