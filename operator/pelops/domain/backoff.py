"""How long to wait after consecutive failures."""

from __future__ import annotations


def backoff_s(failures: int, *, first_s: float, longest_s: float, factor: float = 2.0) -> float:
    """Seconds to wait: `first_s` after the first failure, then `factor` times as long each time.

    At most `longest_s`; 0 without a failure. Callers that retry in parallel must add jitter.
    """
    if failures <= 0 or first_s == 0:
        return 0.0
    try:
        return min(first_s * factor ** (failures - 1), longest_s)
    except OverflowError:
        return longest_s
