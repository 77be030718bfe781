"""How far a node's clock may run ahead of Redis', from the Leases that its kubelet renews.

The time at which a container started stands on the node's clock; which entries its process could
hold stands on Redis'. If the node's clock runs ahead, the start seems later than it was, and an
entry that the new process was given would seem older than the process: entries of a live worker
would be recovered. So the cutoff must be earlier by at least as much as the clock runs ahead.

    node's clock   ------ renewTime ------------------------
    Redis' clock   --------- renewed ---- read -------------      renewed is not known, but
                             |<- age  ->|                         0 <= age <= a lease period

    ahead = renewTime - renewed = renewTime - read + age

Every sample `renewTime - read` is thus a lower bound, whatever happened on the way, and while the
kubelet renews as it should, one lease period more is an upper bound. The greatest sample is the
nearest to the truth. One that is not above zero proves nothing: the default then stands, which an
installation's own time synchronisation must keep. A clock that runs behind only makes the cutoff
earlier than it need be: an entry moves later, and nobody is recovered prematurely.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

LEASE_PERIOD: Final = timedelta(seconds=10)  # a kubelet renews after a quarter of its lease of 40 s
KEPT: Final = timedelta(hours=1)  # a clock that was set right is believed after this


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSample:
    """One reading of a node's Lease."""

    renewed: datetime  # renewTime, on the node's clock
    read: datetime  # Redis' time when the Lease had been read, so after the renewal

    @property
    def ahead(self) -> timedelta:
        """How far ahead of Redis the node's clock is at least; negative proves nothing."""
        return self.renewed - self.read


def remember_sample(samples: Iterable[ClockSample], latest: ClockSample) -> tuple[ClockSample, ...]:
    """The samples that still can decide: not older than an hour, and not surpassed by a later one.

    Their `ahead` falls from the first to the last.
    """
    known = (sample for sample in samples if _is_kept(sample, latest.read))
    return (*(sample for sample in known if sample.ahead > latest.ahead), latest)


def decide_allowance(
    samples: Iterable[ClockSample], now: datetime, *, default: timedelta
) -> timedelta:
    """By how much a cutoff from this node's clock must be earlier; `now` is Redis' time.

    The default, unless a sample of the last hour proves that the clock runs ahead: then by how
    much, a lease period, and the default for what neither can tell.
    """
    proven = max(
        (sample.ahead for sample in samples if _is_kept(sample, now)), default=timedelta(0)
    )
    return default if proven <= timedelta(0) else proven + LEASE_PERIOD + default


def _is_kept(sample: ClockSample, now: datetime) -> bool:
    # Redis' own clock may go back, at a failover: a sample of the far future counts as old.
    return abs(now - sample.read) <= KEPT
