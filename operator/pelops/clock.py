"""Moments and spans as whole milliseconds, and jitter.

Redis, the IDs of streams, and all records of Pelops count milliseconds since 1970-01-01 UTC. A
number that was damaged or chosen by a producer may be later than any calendar: such moments end
with the year 9999.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
LATEST_MS: Final = 253_370_764_800_000  # the beginning of the year 9999

SpanT = TypeVar("SpanT", float, timedelta)


def from_ms(ms: int) -> datetime:
    """The moment so many milliseconds after the epoch, from the year 1970 to the year 9999."""
    return EPOCH + min(max(ms, 0), LATEST_MS) * MILLISECOND


def from_time(seconds: int | str | bytes, microseconds: int | str | bytes = 0) -> datetime:
    """The moment of a reply to TIME. Raises ValueError or OverflowError for what is none."""
    return EPOCH + timedelta(seconds=int(seconds), microseconds=int(microseconds))


def to_ms(moment: datetime) -> int:
    """Whole milliseconds from the epoch to an aware moment."""
    return (moment - EPOCH) // MILLISECOND


def is_time(ms: int) -> bool:
    """Whether a number of milliseconds is a moment between the epoch and the year 9999."""
    return 0 < ms < LATEST_MS


def with_jitter(span: SpanT, share: float = 0.2) -> SpanT:
    """The span, up to a share longer or shorter, so that replicas do not act at the same time."""
    return span * random.uniform(1 - share, 1 + share)
