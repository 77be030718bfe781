"""The kind `StreamAudit`: a scheduled account of what became of every entry.

Its archive says where the audit keeps what it read and for how long, its backend how the audit
runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, ValidationError

from pelops.api.audit.audit_status_model import StreamAuditStatus
from pelops.api.redis import RedisSpec, SecretRef
from pelops.api.schema.base import (
    API_VERSION,
    LONGEST_WAIT_SECONDS,
    MAX_SECONDS,
    ApiModel,
    ObjectMeta,
    ObjectName,
    RedisName,
    Rule,
    RuleReason,
    cel,
    render_errors,
)
from pelops.errors import InvalidSpec

_PATH_RULES = cel(
    Rule(
        rule="self.matches('^(/|[a-z][a-z0-9+.-]*://)') && !self.matches('(^|/)[.][.](/|$)')",
        message="path must begin with / or with a scheme such as s3a://, and must not contain ..",
    ),
    Rule(
        rule="!self.matches('^[a-z0-9+.-]+://[^/]*@')",
        message="path must not contain credentials: use archive.s3 with a Secret",
        reason=RuleReason.FORBIDDEN,
    ),
)
_SUB_PATH_RULES = cel(
    Rule(
        rule="!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",
        message="subPath must be relative and must not contain ..",
    )
)
_ENDPOINT_RULES = cel(
    Rule(
        rule="self.matches('^https?://[^/?#@]+/?$')",
        message="endpoint must be https://HOST[:PORT], without credentials and without a path",
    )
)

ArchivePath = Annotated[
    str,
    Field(min_length=1, max_length=1024, pattern=r"^[^\x00\s]+$", json_schema_extra=_PATH_RULES),
]
SubPath = Annotated[
    str,
    Field(min_length=1, max_length=512, pattern=r"^[^\x00]+$", json_schema_extra=_SUB_PATH_RULES),
]


class Payload(StrEnum):
    """What of an entry's fields is archived."""

    NONE = "None"
    HASH = "Hash"
    FULL = "Full"


class ClaimSpec(ApiModel):
    """A PersistentVolumeClaim in the same namespace."""

    claim_name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")
    sub_path: SubPath | None = Field(
        default=None, description="Directory in the volume. Default: the root of the volume."
    )


class S3Spec(ApiModel):
    """A bucket, written to through s3a."""

    bucket: Annotated[
        str, Field(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$")
    ] = Field(description="Name of the bucket.")
    prefix: SubPath | None = Field(
        default=None, description="Prefix of all keys. Default: no prefix."
    )
    endpoint: (
        Annotated[str, Field(min_length=1, max_length=512, json_schema_extra=_ENDPOINT_RULES)]
        | None
    ) = Field(
        default=None,
        description=(
            "Address of S3-compatible storage, such as https://minio.storage:9000. Default: AWS."
        ),
    )
    region: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9-]+$")] | None = (
        Field(default=None, description="Region of the bucket. Default: that of the AWS SDK.")
    )
    secret_ref: SecretRef | None = Field(
        default=None,
        description=(
            "Secret with the keys accessKeyId and secretAccessKey, and optionally "
            "sessionToken. Default: the identity of the pod."
        ),
    )


class ArchiveSpec(ApiModel):
    """Where the windows of an audit are kept, as Parquet. Windows are written once each."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="(has(self.path) ? 1 : 0) + (has(self.persistentVolumeClaim) ? 1 : 0)"
                " + (has(self.s3) ? 1 : 0) == 1",
                message="exactly one of path, persistentVolumeClaim and s3 is required",
                reason=RuleReason.REQUIRED,
            )
        )
    )

    path: ArchivePath | None = Field(
        default=None,
        description=(
            "Path that Spark can write to: a directory that spec.template mounts, or "
            "an address such as s3a://bucket/audits. A directory that no volume "
            "provides is lost when the container ends."
        ),
    )
    persistent_volume_claim: ClaimSpec | None = Field(
        default=None, description="PersistentVolumeClaim that is mounted at /archive."
    )
    s3: S3Spec | None = Field(
        default=None, description="Bucket of AWS S3 or of S3-compatible storage."
    )


class AofSpec(ApiModel):
    """The append-only files of Redis, as the job can read them."""

    path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^\x00]*$")] = Field(
        description=(
            "Directory with the append-only files (appenddirname of Redis), as a path "
            "in the container."
        ),
    )
    persistent_volume_claim: ClaimSpec | None = Field(
        default=None,
        description=(
            "Volume with the append-only files, which is mounted read-only at path. "
            "If absent, spec.template must mount it."
        ),
    )


class EvidenceSpec(ApiModel):
    """Further evidence of what became of entries."""

    aof: AofSpec = Field(
        description=(
            "Append-only files of Redis. They contain every delivery and "
            "acknowledgement since the last rewrite, so that the audit proves what it "
            "can only infer without them."
        ),
    )


_NUMBERS: Final = {
    "minute": "[0-5]?[0-9]",
    "hour": "([01]?[0-9]|2[0-3])",
    "day": "(0?[1-9]|[12][0-9]|3[01])",
    "month": "(0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))",
    "weekday": "([0-6]|(?i:sun|mon|tue|wed|thu|fri|sat))",
}


def _cron_field(number: str) -> str:
    one = f"([*?]|{number}(-{number})?)(/[1-9][0-9]?)?"
    return f"{one}(,{one})*"


_CRON: Final = " +".join(_cron_field(number) for number in _NUMBERS.values())
CRON_PATTERN: Final = f"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|{_CRON})$"
_SCHEDULE_RULES = cel(
    Rule(
        rule="!self.contains('TZ=')",
        message="schedule must not contain a time zone: set spec.timeZone",
        reason=RuleReason.FORBIDDEN,
    ),
    Rule(
        rule=f"self.contains('TZ=') || self.matches('{CRON_PATTERN}')",
        message="schedule must be a cron expression of five fields (minute, hour, day, month,"
        " weekday), such as */15 * * * *, or one of @hourly, @daily, @weekly, @monthly, @yearly",
    ),
)
Schedule = Annotated[str, Field(min_length=1, max_length=128, json_schema_extra=_SCHEDULE_RULES)]
_ZONE_RULES = cel(
    Rule(
        rule="self.matches('^(UTC|[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)+)$')",
        message="timeZone must be UTC or a name such as Europe/Berlin",
    )
)
TimeZone = Annotated[str, Field(min_length=1, max_length=64, json_schema_extra=_ZONE_RULES)]
OpenObject = Annotated[dict[str, Any], Field(max_length=64)]


class BackendType(StrEnum):
    """What runs the job."""

    CRON_JOB = "CronJob"
    SPARK_APPLICATION = "SparkApplication"


class SparkOperator(StrEnum):
    """Whose SparkApplication it is."""

    KUBEFLOW = "Kubeflow"
    APACHE = "Apache"


class BackendSpec(ApiModel):
    """What runs the job: one pod, or a Spark operator."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="self.type != 'SparkApplication' || has(self.sparkOperator)",
                message="sparkOperator is required with type SparkApplication: set Kubeflow or "
                "Apache",
                field_path=".sparkOperator",
                reason=RuleReason.REQUIRED,
            ),
            Rule(
                rule="self.type != 'CronJob' || (!has(self.sparkOperator) && !has(self.executors))",
                message="sparkOperator and executors are only allowed with type SparkApplication",
                field_path=".type",
                reason=RuleReason.FORBIDDEN,
            ),
            Rule(
                rule="!has(self.sparkOperator) || self.sparkOperator != 'Apache'"
                " || !has(self.executors)",
                message="with sparkOperator Apache the job runs in its driver alone: leave out"
                " executors",
                field_path=".executors",
                reason=RuleReason.FORBIDDEN,
            ),
        )
    )

    type: BackendType = Field(
        default=BackendType.CRON_JOB,
        description=(
            "Kind of object that runs the audit. CronJob: one pod with Spark in local "
            "mode, enough for a billion entries a day. SparkApplication: an "
            "application of a Spark operator, which must be installed and whose kinds "
            "the operator's role must allow."
        ),
    )
    spark_operator: SparkOperator | None = Field(
        default=None,
        description=(
            "Spark operator of type SparkApplication. Kubeflow: a "
            "ScheduledSparkApplication of sparkoperator.k8s.io/v1beta2. Apache: a "
            "SparkApplication of spark.apache.org/v1 for each run."
        ),
    )
    executors: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description=(
            "Number of executor pods of a Kubeflow SparkApplication. If absent, the "
            "driver does all the work."
        ),
    )


AUDIT_KIND: Final = "StreamAudit"
LONGEST_NAME: Final = 46  # a CronJob's has at most 52


class PullPolicy(StrEnum):
    """When the image is pulled."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


_SPEC_RULES = cel(
    Rule(
        rule="has(self.groups) != has(self.streamPattern)",
        message="exactly one of groups (names of StreamConsumerGroups) and streamPattern is "
        "required",
        field_path=".groups",
    ),
    Rule(
        rule="!has(self.groups) || !has(self.redis)",
        message="redis is only allowed with streamPattern: groups have their own spec.redis",
        field_path=".redis",
        reason=RuleReason.FORBIDDEN,
    ),
    Rule(
        rule="!has(self.streamPattern) || has(self.groups) || has(self.redis)",
        message="redis is required with streamPattern",
        field_path=".redis",
        reason=RuleReason.REQUIRED,
    ),
    Rule(
        rule="self.backend.type == 'CronJob' || !has(self.archive.path)"
        " || !self.archive.path.startsWith('/') || !has(self.backend.executors)",
        message="executors on other nodes cannot write to a directory of the driver: use"
        " archive.persistentVolumeClaim, archive.s3 or an address with a scheme",
        field_path=".archive.path",
    ),
)


class StreamAuditSpec(ApiModel):
    """Desired state of an audit."""

    model_config = ConfigDict(json_schema_extra=_SPEC_RULES)

    groups: Annotated[tuple[ObjectName, ...], Field(min_length=1, max_length=100)] | None = Field(
        default=None,
        description=(
            "Names of StreamConsumerGroups in the same namespace, which must have the "
            "same spec.redis. Set either groups or streamPattern."
        ),
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    stream_pattern: RedisName | None = Field(
        default=None,
        description=(
            "Glob-style pattern of stream keys, such as orders:*, of which every "
            "group is audited. No StreamConsumerGroup is needed, but without one less "
            "can be proven. Set either groups or streamPattern."
        ),
    )
    redis: RedisSpec | None = Field(
        default=None,
        description=(
            "Address and credentials of the Redis that streamPattern is about; "
            "required with streamPattern."
        ),
    )
    job_secret_ref: SecretRef | None = Field(
        default=None,
        description=(
            "Secret with the username and password of the job, which must be allowed "
            "to read the streams and to write one key per group. Default: the Secret "
            "of redis."
        ),
    )
    schedule: Schedule = Field(
        description=(
            "Schedule of the runs as a cron expression of five fields; */15 * * * * "
            "is every 15 minutes. A run does not start while the previous one is "
            "active. Entries that are trimmed before a run has archived them cannot "
            "be accounted for."
        )
    )
    time_zone: TimeZone | None = Field(
        default=None,
        description="Time zone of the schedule, such as Europe/Berlin. Default: UTC.",
    )
    window_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] = Field(
        default=900,
        description=(
            "Length of a window, the part of a stream that is audited at a time, in "
            "seconds. One run closes all windows that have passed."
        ),
    )
    stuck_after_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] | None = Field(
        default=None,
        description=(
            "Idle time, in seconds, after which a pending entry counts as stuck. "
            "Default: processingTimeoutSeconds of the StreamConsumerGroup, or 300 s "
            "without one."
        ),
    )
    archive: ArchiveSpec = Field(
        description=(
            "Storage of the archive. After a change the audit begins a new archive, "
            "and the previous one stays as it is."
        )
    )
    payload: Payload = Field(
        default=Payload.HASH,
        description=(
            "Part of each entry that is archived besides its ID. None: nothing. Hash: "
            "a hash, which finds duplicates. Full: all fields, so that entries can be "
            "restored."
        ),
    )
    retention_seconds: Annotated[int, Field(ge=60, le=MAX_SECONDS)] = Field(
        default=2_592_000,
        description=(
            "Seconds for which the archive keeps a window after it was closed "
            "(2592000 s are 30 days)."
        ),
    )
    evidence: EvidenceSpec | None = Field(
        default=None,
        description=(
            "Further evidence of what became of entries. If absent, only Redis and "
            "the ledger are used."
        ),
    )
    active_deadline_seconds: Annotated[int, Field(ge=10, le=LONGEST_WAIT_SECONDS)] = Field(
        default=3600,
        description="Seconds after which a run is stopped and counts as failed.",
    )
    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\S+$")] | None = Field(
        default=None,
        description="Image of the job. Default: PELOPS_AUDIT_IMAGE of the operator.",
    )
    image_pull_policy: PullPolicy | None = Field(
        default=None,
        description=(
            "Pull policy of the image. Default: that of Kubernetes, which depends on the tag."
        ),
    )
    resources: OpenObject | None = Field(
        default=None,
        description=(
            "Resource requests and limits of the container, such as {requests: {cpu: "
            "1, memory: 2Gi}, limits: {memory: 2Gi}}; Spark uses three quarters of "
            "the memory limit. The fields are those of kubectl explain "
            "pod.spec.containers.resources. Default: none."
        ),
    )
    template: OpenObject | None = Field(
        default=None,
        description=(
            "Pod template of the job, for node selectors, tolerations, volumes and "
            "image pull Secrets; variables and volume mounts of a container named "
            "audit are added to the job's. The fields are those of kubectl explain "
            "podtemplate.template; the API server checks them when the job is "
            "created."
        ),
    )
    backend: BackendSpec = Field(
        default=BackendSpec(),
        description=(
            "Object that runs the audit: a CronJob, or an application of a Spark operator."
        ),
    )
    suspend: bool = Field(
        default=False,
        description=(
            "Suspension of further runs. An active run is not stopped, and the "
            "results in the status stay."
        ),
    )


class StreamAudit(ApiModel):
    """One audit, as a user declared it and the operator last saw it."""

    api_version: str = API_VERSION
    kind: str = AUDIT_KIND
    metadata: ObjectMeta
    spec: StreamAuditSpec
    status: StreamAuditStatus | None = None

    @classmethod
    def parse(cls, obj: Mapping[str, Any]) -> StreamAudit:
        """Return the resource that the API server's JSON describes.

        A status that another version wrote and this one cannot read counts as absent. Rules between
        fields are the API server's to check.

        Raises:
            InvalidSpec: a field is missing or out of bounds; the message names it, never its value.
        """
        try:
            resource = cls.model_validate({**obj, "status": None})
        except ValidationError as error:
            raise InvalidSpec(render_errors(error)) from error
        return resource.model_copy(update={"status": _parse_status(obj.get("status"))})

    @property
    def audit_name(self) -> str:
        """The name under which its job records in Redis."""
        return self.metadata.key


def _parse_status(status: object) -> StreamAuditStatus | None:
    try:
        return None if not status else StreamAuditStatus.model_validate(status)
    except ValidationError:
        return None
