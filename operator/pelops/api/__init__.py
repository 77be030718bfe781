"""What users write: the kinds of the group `pelops.dev` as frozen models, and their schema."""

from pelops.api.dead_letter import DeadLetterSpec, RetentionSpec
from pelops.api.kind import API_VERSION, GROUP, VERSION, Kind
from pelops.api.kinds import KINDS, STREAM_CONSUMER_GROUP
from pelops.api.meta import ObjectMeta
from pelops.api.recovery import BackoffSpec, LocksSpec, RecoverySpec, RecoveryStrategy, RequeueTo
from pelops.api.redis import RedisSpec, SecretRef, SentinelSpec
from pelops.api.scaling import (
    BehaviorSpec,
    PolicySelect,
    PolicyType,
    ScaleDownRules,
    ScaleUpRules,
    ScalingMode,
    ScalingPolicy,
    ScalingSpec,
)
from pelops.api.status import (
    Condition,
    ConditionStatus,
    DeadLetterStatus,
    GroupStatus,
    RecoveryStatus,
    RedisStatus,
    StreamConsumerGroupStatus,
    StreamStatus,
    Summary,
)
from pelops.api.stream_consumer_group import (
    DeletionPolicy,
    StreamConsumerGroup,
    StreamConsumerGroupSpec,
)
from pelops.api.workload import PodTemplate, TargetRef

__all__ = [
    "API_VERSION",
    "GROUP",
    "KINDS",
    "STREAM_CONSUMER_GROUP",
    "VERSION",
    "BackoffSpec",
    "BehaviorSpec",
    "Condition",
    "ConditionStatus",
    "DeadLetterSpec",
    "DeadLetterStatus",
    "DeletionPolicy",
    "GroupStatus",
    "Kind",
    "LocksSpec",
    "ObjectMeta",
    "PodTemplate",
    "PolicySelect",
    "PolicyType",
    "RecoverySpec",
    "RecoveryStatus",
    "RecoveryStrategy",
    "RedisSpec",
    "RedisStatus",
    "RequeueTo",
    "RetentionSpec",
    "ScaleDownRules",
    "ScaleUpRules",
    "ScalingMode",
    "ScalingPolicy",
    "ScalingSpec",
    "SecretRef",
    "SentinelSpec",
    "StreamConsumerGroup",
    "StreamConsumerGroupSpec",
    "StreamConsumerGroupStatus",
    "StreamStatus",
    "Summary",
    "TargetRef",
]
