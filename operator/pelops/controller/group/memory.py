"""What one replica remembers of a group between passes. Losing it costs time, nothing else."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.redis import RedisSpec
from pelops.controller.group.observation import RedisObservation
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.kind import Memory
from pelops.domain.naming import GroupKeys
from pelops.domain.observation import StreamObservation
from pelops.domain.ownership import OwnerRecord
from pelops.kube.worker_environment import WorkerAccess
from pelops.policy.group.losses import Holders, find_vanished
from pelops.policy.group.position import LastSeen, decide_went_back
from pelops.redis_core.server import Server


@dataclass(frozen=True, slots=True)
class OwnedGroup:
    """A group that a resource acts on, and the way to it."""

    server: Server
    keys: GroupKeys
    owner: OwnerRecord
    redis: RedisSpec  # what the resource said of its Redis then


@dataclass(slots=True)
class GroupMemory(Memory):
    """One group's memory."""

    # An apply that changed nothing: the uid, generation and content that need no second one.
    settled: tuple[str, int, str] | None = None
    # An observation of the Deployment with nothing to apply: spares building it again every time.
    confirmed: tuple[str, int, WorkerAccess, str] | None = None
    # The same for the PodDisruptionBudget, and until when a refusal of it counts, on our clock.
    budget_settled: tuple[str, int, str] | None = None
    budget_refused_until: float = float("-inf")
    owned: OwnedGroup | None = None  # the group that this resource acts on, to be let go at its end
    is_leaving: bool = False  # the resource is gone; its hold is let go in the next pass
    expired_at: datetime | None = None  # when old letters were looked for, by Redis' clock
    last_seen: LastSeen | None = None  # where the group stood at the last observation
    # Copies of a retry stream could not be moved before; by Redis' clock.
    return_after: datetime | None = None
    # Which group that was: the resource's uid, the server, the stream and the group. Of another one
    # neither this nor the resource's status tells anything.
    seen_of: tuple[str, ...] | None = None
    holders: Holders | None = None  # who had entries pending then
    is_elsewhere: bool = False  # another one than at first: the status may speak of that

    def look_at(self, group: tuple[str, ...]) -> None:
        """Forget where another group stood: the resource names this one now."""
        if self.seen_of != group:
            self.is_elsewhere = self.seen_of is not None
            self.last_seen, self.holders, self.seen_of = None, None, group

    def note(self, group: tuple[str, ...], stream: StreamObservation) -> None:
        """Keep a newer observation of a group that goes on as it was.

        One that shows a loss or a group that went back is left to the pass that records it, and so
        is the first one, which is compared with what the status says.
        """
        before = self.last_seen
        if before is None or self.seen_of != group or stream.group is None:
            return
        if before.at is not None and before.at > stream.server_time:
            return
        if decide_went_back(before, stream) is None and find_vanished(before, stream) is None:
            self.last_seen = LastSeen.of(stream)


def identify(resource: StreamConsumerGroup, server: Server, keys: GroupKeys) -> tuple[str, ...]:
    """Name the group that a resource acts on, wherever it is."""
    return resource.metadata.uid, server.address, keys.stream, keys.group


class GroupMemories(defaultdict[Name, GroupMemory]):
    """Memories by resource."""

    def __init__(self) -> None:
        super().__init__(GroupMemory)

    def note(self, resource: StreamConsumerGroup, redis: RedisObservation) -> None:
        """Keep an observation that another loop of this replica made, if it is newer."""
        memory = self.get((resource.metadata.namespace, resource.metadata.name))
        stream, server, keys = redis.stream, redis.server, redis.keys
        if memory is None or stream is None or server is None or keys is None:
            return
        memory.note(identify(resource, server, keys), stream)
