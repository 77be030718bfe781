"""Numbers as Grafana writes them, and the ticks of an axis."""

from __future__ import annotations

import math
from typing import Final

from tools.dashboards.model import Unit

_TIMES: Final = (
    *((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (60.0, 1.0, "s"), (3600.0, 1 / 60, "min")),
    *((86400.0, 1 / 3600, "h"), (math.inf, 1 / 86400, "d")),
)
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIME_STEPS: Final = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


def render_number(value: float, unit: Unit) -> str:
    """Write a value with its unit, in three digits."""
    if math.isnan(value):
        return "NaN"
    if unit is Unit.SECONDS:
        return _render_seconds(value)
    if unit is Unit.RATIO:
        return f"{_trim(value * 100)}%"
    if unit is Unit.BYTES:
        return _render_bytes(value)
    suffix = {Unit.PER_SECOND: " /s", Unit.SECONDS_PER_SECOND: " s/s"}.get(unit, "")
    return f"{_render_short(value)}{suffix}"


def find_ticks(highest: float, unit: Unit, count: int = 4) -> list[float]:
    """Return round values from 0 to at least the highest one."""
    if highest <= 0 or not math.isfinite(highest):
        return [0.0, 1.0]
    rough = highest / count
    if unit is Unit.SECONDS and 1 <= rough <= 3600:
        step = next(step for step in _TIME_STEPS if step >= rough)
    elif unit is Unit.BYTES:
        step = 2.0 ** math.ceil(math.log2(rough))
    else:
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(factor for factor in _STEPS if factor * size >= rough * 0.999) * size
    if unit is Unit.COUNT and highest >= 1:
        step = max(step, 1.0) if step < 1 else step
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def _render_seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    for limit, factor, name in _TIMES:
        if abs(value) < limit:
            return f"{_trim(value * factor)} {name}"
    raise AssertionError("the last limit is infinite")


def _render_bytes(value: float) -> str:
    power = min(int(math.log(value, 1024)), len(_SIZES) - 1) if value >= 1 else 0
    return f"{_trim(value / 1024**power)} {_SIZES[power]}"


def _render_short(value: float) -> str:
    for limit, name in ((1e9, "Bil"), (1e6, "Mil"), (1e3, "K")):
        if abs(value) >= limit:
            return f"{_trim(value / limit)} {name}"
    return _trim(value)


def _trim(value: float) -> str:
    """Write three significant digits, and no zeros behind the point."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(digits, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
