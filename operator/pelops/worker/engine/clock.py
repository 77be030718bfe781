"""The clock by which a worker judges how old its knowledge is."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

Clock = Callable[[], float]


# It must go on while the machine sleeps: what was asked before that is old afterwards.
steady: Clock = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
