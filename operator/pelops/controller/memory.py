"""What one replica remembers of a resource between turns. Losing it costs time, nothing else."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pelops.api.redis import RedisSpec
from pelops.controller.versions import Name
from pelops.domain.naming import GroupKeys
from pelops.domain.ownership import OwnerRecord
from pelops.kube.environment import WorkerAccess
from pelops.policy.position import LastSeen
from pelops.policy.turn import wait_for_turn
from pelops.redis_streams.server import Server

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 5.0
LONGEST_TERMINAL_RETRY_S = 15.0  # somebody must change something, often where no watch tells


@dataclass(slots=True)
class WriteBudget:
    """A token bucket: an unforeseen ping-pong between writers becomes slow and visible."""

    capacity: float = 30.0
    per_second: float = 0.5
    tokens: float = 30.0
    updated: float = 0.0

    def take(self, now_s: float) -> bool:
        """Whether one more write is allowed now."""
        refill = (now_s - self.updated) * self.per_second
        self.tokens = min(self.capacity, self.tokens + refill)
        self.updated = now_s
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(frozen=True, slots=True)
class Hold:
    """A group that a resource acts on, and the way to it."""

    server: Server
    keys: GroupKeys
    owner: OwnerRecord
    redis: RedisSpec  # what the resource said of its Redis then


@dataclass(slots=True)
class Memory:
    """One resource's memory."""

    differing: dict[str, datetime] = field(default_factory=dict)  # what differs, and since when
    failures: int = 0
    numbers_written: float = float("-inf")
    # An apply that changed nothing: the uid, generation and content that need no second one.
    settled: tuple[str, int, str] | None = None
    # A look at the Deployment that found nothing to apply: spares building it again every time.
    confirmed: tuple[str, int, WorkerAccess, str] | None = None
    # The same for the PodDisruptionBudget, and until when a refusal of it counts, on our clock.
    budget_settled: tuple[str, int, str] | None = None
    budget_refused_until: float = float("-inf")
    budget: WriteBudget = field(default_factory=WriteBudget)
    cleanup_failure: str | None = None
    held: Hold | None = None  # the group that this resource acts on, to be let go at its end
    is_leaving: bool = False  # the resource is gone; its hold is let go in the next turn
    told: str | None = None  # the last failure that was logged
    expired_at: datetime | None = None  # when old letters were looked for, by Redis' clock
    last_seen: LastSeen | None = None  # where the group stood at the last look
    return_after: datetime | None = (
        None  # copies of a retry stream could not be moved; Redis' clock
    )

    def wait(self, what: str, rank: int, now: datetime) -> timedelta:
        """How long this replica leaves a difference that it sees to others; starts the wait."""
        return wait_for_turn(rank, self.differing.setdefault(what, now), now)

    def sees_only(self, *differences: str) -> None:
        """Forget all other differences: somebody has mended them."""
        self.differing = {
            what: since for what, since in self.differing.items() if what in differences
        }

    def retry_s(self, *, is_terminal: bool = False) -> float:
        """How long to wait after one more failure."""
        self.failures += 1
        longest = LONGEST_TERMINAL_RETRY_S if is_terminal else LONGEST_RETRY_S
        return float(min(FIRST_RETRY_S * 2 ** min(self.failures - 1, 10), longest))

    def is_news(self, failure: str) -> bool:
        """Whether this failure is another one than the last that was asked about."""
        was, self.told = self.told, failure
        return was != failure


class Memories(defaultdict[Name, Memory]):
    """Memories by resource."""

    def __init__(self) -> None:
        super().__init__(Memory)
