"""What keeps a resource from being looked at or acted on, in words for its owner."""

from __future__ import annotations

from pelops.api.redis import RedisSpec
from pelops.api.stream_consumer_group import StreamConsumerGroup
from pelops.domain.condition import Finding
from pelops.domain.workload import WorkloadObservation
from pelops.errors import NotFound, PelopsError
from pelops.policy.diagnosis import diagnose
from pelops.policy.reasons import Reason


def explain(error: PelopsError, redis: RedisSpec, namespace: str) -> Finding:
    """What keeps a Redis that a resource names from being looked at. Total."""
    reference = redis.secret_ref
    if reference is not None and isinstance(error, NotFound):
        return Finding(
            reason=Reason.SECRET_MISSING,
            message=(
                f"Secret {namespace}/{reference.name} does not exist; create it "
                "with the key url, and username and password if Redis wants them. Pelops goes on "
                "by itself when it is there"
            ),
        )
    return diagnose(error)


def find_name_taken(resource: StreamConsumerGroup, workload: WorkloadObservation) -> Finding | None:
    """Why a `template` makes no Deployment when somebody else has one of that name."""
    if not workload.exists or workload.controller_uid == resource.metadata.uid:
        return None
    return Finding(
        reason=Reason.NAME_TAKEN,
        message=(
            f"{workload.target} exists and belongs to somebody else; delete or rename it, or name "
            "it in spec.targetRef instead of spec.template"
        ),
        is_terminal=True,
    )
