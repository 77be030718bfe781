"""What scaling knows of a group: what it owes, how fast that moves, and which pods hold entries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The backlog of a group at one instant, of its stream and of its retry stream together."""

    at: datetime  # server time of the look
    exists: bool  # the group does
    undelivered: int  # exact, or at least so many
    is_exact: bool  # whether `undelivered` is all
    held: int  # pending entries that workers may be processing
    waiting: int  # pending entries that no worker can help now: backoff, their turn, a dead owner
    added: int | None  # entries ever added, copies left out; a counter that may jump. None: unknown
    dead_letters: int  # length of the dead-letter stream
    holding: int | None = None  # consumers that hold entries; None: not known

    @property
    def deliverable(self) -> int:
        """Entries that workers are needed for."""
        return self.undelivered + self.held

    @property
    def is_empty(self) -> bool:
        """Whether workers are certainly not needed; an unknown number is no zero."""
        return self.exists and self.is_exact and self.deliverable == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast entries come and go, per second. None: not measured yet."""

    arrivals: float | None = None
    acknowledged: float | None = None
    per_replica: float | None = None  # what one worker finishes while there is enough to do
    is_proven: bool = False  # per_replica was seen so; else it is what a worker does at least


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPending:
    """How many entries one worker pod holds."""

    pod: str  # name
    uid: str
    pending: int
    at_work: int = 0  # of these, what handlers are still busy with
    created: datetime | None = None
    cost: int | None = None  # its annotation controller.kubernetes.io/pod-deletion-cost
