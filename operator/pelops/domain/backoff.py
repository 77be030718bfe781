"""How long to wait after failures in a row."""

from __future__ import annotations


def backoff_s(failures: int, *, first_s: float, longest_s: float, factor: float = 2.0) -> float:
    """Seconds to wait: `first_s` after the first failure, `factor` times as long after each more.

    At most `longest_s`; 0 before anything failed. Whoever waits beside others adds jitter.
    """
    if failures <= 0 or first_s == 0:
        return 0.0
    try:
        return min(first_s * factor ** (failures - 1), longest_s)
    except OverflowError:
        return longest_s
