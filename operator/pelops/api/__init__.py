"""What users write: the kinds of the group `pelops.dev` as frozen models, and their schema."""

from pelops.api.audit_archive import ArchiveSpec, ClaimSpec, EvidenceSpec, Payload, S3Spec
from pelops.api.audit_job import BackendSpec, BackendType, SparkOperator
from pelops.api.audit_status import (
    AuditedGroupStatus,
    AuditRunStatus,
    AuditSummaryStatus,
    StreamAuditStatus,
)
from pelops.api.dead_letter import DeadLetterSpec, RetentionSpec
from pelops.api.kind import API_VERSION, GROUP, VERSION, Kind
from pelops.api.kinds import KINDS, STREAM_AUDIT, STREAM_CONSUMER_GROUP
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
from pelops.api.stream_audit import StreamAudit, StreamAuditSpec
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
    "Condition",
    "ConditionStatus",
    "DeadLetterSpec",
    "DeadLetterStatus",
    "DeletionPolicy",
    "EvidenceSpec",
    "GroupStatus",
    "Kind",
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
