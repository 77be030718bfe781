"""One write that brings what is toward what is asked, not yet done.

Each step repeats safely. If the process dies after one, the next look of any replica finds the
rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from pelops.kube.events import Happening


class Part(StrEnum):
    """What a step belongs to: its failure is told in that condition."""

    RESOURCE = "resource"
    GROUP = "group"
    WORKLOAD = "workload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One write, not yet done."""

    part: Part
    what: str  # for the log
    do: Callable[[], Awaitable[Happening | None]]  # answers what people are told about it
    reads_secrets: bool = False  # what is written depends on Secrets, which must be fresh
    is_routine: bool = False  # happens all the time and is not worth a line in the log
