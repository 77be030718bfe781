"""What is said of a handful of measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any


def percentile(values: Iterable[float], percent: float) -> float | None:
    """The smallest value that `percent` of all do not exceed (nearest rank); None without any."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(1, math.ceil(percent / 100 * len(ordered))) - 1]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Each measurement by the one of the same round: what slows a round down slows both."""
    return [a / b for a, b in zip(above, below, strict=True)]


def describe(values: Sequence[float]) -> dict[str, Any]:
    """How values are spread, for the figures of a report."""
    if not values:
        return {"count": 0}
    return {
        "count": len(values),
        "min": min(values),
        "median": median(values),
        "p99": percentile(values, 99),
        "max": max(values),
    }
