"""All that is known of one resource in one turn: the whole world of its decisions."""

from __future__ import annotations

from dataclasses import dataclass

from pelops.api.stream_consumer_group import StreamConsumerGroup
from pelops.domain.condition import Finding
from pelops.domain.naming import GroupKeys
from pelops.domain.observation import StreamObservation
from pelops.domain.workload import WorkloadObservation
from pelops.policy.scaling import ScalingDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was asked for and what was seen; a problem says why something could not be."""

    resource: StreamConsumerGroup
    workload: WorkloadObservation
    scaling: ScalingDecision
    keys: GroupKeys | None = None
    stream: StreamObservation | None = None
    server_version: str | None = None
    topology: str | None = None
    redis_problem: Finding | None = None
    workload_problem: Finding | None = None

    @property
    def is_group_ready(self) -> bool:
        """Whether the group exists with all that belongs to it, and is ours."""
        return self.redis_problem is None and self.stream is not None and self.stream.is_provisioned
