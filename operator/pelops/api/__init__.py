"""What users write: the kinds of the group `pelops.dev` as frozen models, and their schema."""

from pelops.api.audit.archive import ArchiveSpec, ClaimSpec, EvidenceSpec, Payload, S3Spec
from pelops.api.audit.job import BackendSpec, BackendType, SparkOperator
from pelops.api.audit.status import (
    AuditedGroupStatus,
    AuditRunStatus,
    AuditSummaryStatus,
    StreamAuditStatus,
)
from pelops.api.audit.stream_audit import StreamAudit, StreamAuditSpec
from pelops.api.group.dead_letter import DeadLetterSpec, RetentionSpec
from pelops.api.group.recovery import (
    BackoffSpec,
    LocksSpec,
    RecoverySpec,
    RecoveryStrategy,
    RequeueTo,
)
from pelops.api.group.scaling import (
    BehaviorSpec,
    PolicySelect,
    PolicyType,
    ScaleDownRules,
    ScaleUpRules,
    ScalingMode,
    ScalingPolicy,
    ScalingSpec,
)
from pelops.api.group.status import (
    ConditionStatus,
    DeadLetterStatus,
    GroupStatus,
    RecoveryStatus,
    RedisStatus,
    StatusCondition,
    StreamConsumerGroupStatus,
    StreamStatus,
    Summary,
)
from pelops.api.group.stream_consumer_group import (
    DeletionPolicy,
    StreamConsumerGroup,
    StreamConsumerGroupSpec,
)
from pelops.api.group.workload import PodTemplate, TargetRef
from pelops.api.meta import ObjectMeta
from pelops.api.redis import RedisSpec, SecretRef, SentinelSpec
from pelops.api.schema.kind import API_VERSION, GROUP, VERSION, KindDefinition
from pelops.api.schema.kinds import KINDS, STREAM_AUDIT, STREAM_CONSUMER_GROUP

__all__ = [
    "API_VERSION",
    "GROUP",
    "KINDS",
    "STREAM_AUDIT",
    "STREAM_CONSUMER_GROUP",
    "VERSION",
    "ArchiveSpec",
    "AuditRunStatus",
    "AuditSummaryStatus",
    "AuditedGroupStatus",
    "BackendSpec",
    "BackendType",
    "BackoffSpec",
    "BehaviorSpec",
    "ClaimSpec",
    "ConditionStatus",
    "DeadLetterSpec",
    "DeadLetterStatus",
    "DeletionPolicy",
    "EvidenceSpec",
    "GroupStatus",
    "KindDefinition",
    "LocksSpec",
    "ObjectMeta",
    "Payload",
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
    "S3Spec",
    "ScaleDownRules",
    "ScaleUpRules",
    "ScalingMode",
    "ScalingPolicy",
    "ScalingSpec",
    "SecretRef",
    "SentinelSpec",
    "SparkOperator",
    "StatusCondition",
    "StreamAudit",
    "StreamAuditSpec",
    "StreamAuditStatus",
    "StreamConsumerGroup",
    "StreamConsumerGroupSpec",
    "StreamConsumerGroupStatus",
    "StreamStatus",
    "Summary",
    "TargetRef",
]
