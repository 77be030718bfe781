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
        message="path must begin with / or with a scheme such as hdfs://, and hold no ..",
    ),
    Rule(
        rule="!self.matches('^[a-z0-9+.-]+://[^/]*@')",
        message="path must not hold credentials: use archive.s3 with a Secret",
        reason=RuleReason.FORBIDDEN,
    ),
)
_SUB_PATH_RULES = cel(
    Rule(
        rule="!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",
        message="subPath must be relative and hold no ..",
    )
)
_ENDPOINT_RULES = cel(
    Rule(
        rule="self.matches('^https?://[^/?#@]+/?$')",
        message="endpoint must read https://HOST[:PORT], without credentials and without a path",
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
        default=None, description="Directory in the volume. Default: the whole volume."
    )


class S3Spec(ApiModel):
    """A bucket, written to through s3a."""

    bucket: Annotated[
        str, Field(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$")
    ] = Field(description="Name of the bucket.")
    prefix: SubPath | None = Field(default=None, description="Prefix of all keys. Default: none.")
    endpoint: (
        Annotated[str, Field(min_length=1, max_length=512, json_schema_extra=_ENDPOINT_RULES)]
        | None
    ) = Field(
        default=None,
        description="Address of S3-compatible storage, such as https://minio.storage:9000. Default:"
        " AWS.",
    )
    region: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9-]+$")] | None = (
        Field(default=None, description="Region of the bucket.")
    )
    secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with the keys accessKeyId and secretAccessKey, and sessionToken if"
        " there is one. Default: the identity of the pod.",
    )


class ArchiveSpec(ApiModel):
    """Where the windows of an audit are kept, as Parquet. Windows are written once each."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="(has(self.path) ? 1 : 0) + (has(self.persistentVolumeClaim) ? 1 : 0)"
                " + (has(self.s3) ? 1 : 0) == 1",
                message="exactly one of path, persistentVolumeClaim and s3 is needed",
                reason=RuleReason.REQUIRED,
            )
        )
    )

    path: ArchivePath | None = Field(
        default=None,
        description="A path that Spark can write to: a directory that spec.template mounts, or an"
        " address such as hdfs://namenode/audits. What is written inside of the container alone is"
        " gone with it.",
    )
    persistent_volume_claim: ClaimSpec | None = Field(
        default=None, description="A PersistentVolumeClaim, mounted at /archive."
    )
    s3: S3Spec | None = Field(
        default=None, description="A bucket of AWS or of S3-compatible storage."
    )


class AofSpec(ApiModel):
    """The append-only files of Redis, as the job can read them."""

    path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^\x00]*$")] = Field(
        description="Directory with the append-only files (appenddirname of Redis), as a path"
        " inside of the container.",
    )
    persistent_volume_claim: ClaimSpec | None = Field(
        default=None,
        description="The volume that holds the files, mounted read-only at path. Absent:"
        " spec.template mounts it.",
    )


class EvidenceSpec(ApiModel):
    """Further evidence of what became of entries."""

    aof: AofSpec = Field(
        description="The append-only files of Redis. They hold every delivery and acknowledgement"
        " since the last rewrite, so that what is inferred without them is proven.",
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
        message="the time zone belongs into spec.timeZone",
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
                message="sparkOperator must say whose SparkApplication it is: Kubeflow or Apache",
                field_path=".sparkOperator",
                reason=RuleReason.REQUIRED,
            ),
            Rule(
                rule="self.type != 'CronJob' || (!has(self.sparkOperator) && !has(self.executors))",
                message="sparkOperator and executors belong to type SparkApplication",
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
        description="CronJob: one pod that runs Spark inside of itself (local[*]); enough for a"
        " billion entries a day. SparkApplication: an application of a Spark operator, which must"
        " be installed, and whose kinds the operator's role must allow.",
    )
    spark_operator: SparkOperator | None = Field(
        default=None,
        description="Kubeflow: a ScheduledSparkApplication of sparkoperator.k8s.io/v1beta2. Apache:"
        " a SparkApplication of spark.apache.org/v1 for each run.",
    )
    executors: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description="Number of executor pods of a Kubeflow SparkApplication. Absent: the driver"
        " does all the work.",
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
        message="exactly one of groups (names of StreamConsumerGroups) and streamPattern is needed",
        field_path=".groups",
    ),
    Rule(
        rule="!has(self.groups) || !has(self.redis)",
        message="redis belongs to streamPattern: groups say themselves where their Redis is",
        field_path=".redis",
        reason=RuleReason.FORBIDDEN,
    ),
    Rule(
        rule="!has(self.streamPattern) || has(self.groups) || has(self.redis)",
        message="streamPattern needs redis, where the streams are looked for",
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
        description="Names of StreamConsumerGroups in the same namespace. All of them must be in"
        " one Redis. Either this or streamPattern.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    stream_pattern: RedisName | None = Field(
        default=None,
        description="Audit every group of every stream whose key matches, such as orders:*, with *,"
        " ? and [] as in Redis' KEYS. They need no StreamConsumerGroup; without one less can be"
        " proven.",
    )
    redis: RedisSpec | None = Field(
        default=None, description="Where the streams of streamPattern are."
    )
    job_secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with the username and password that the job uses, which needs to read"
        " streams and to write one key per group. Default: the Secret of redis.",
    )
    schedule: Schedule = Field(
        description="When to run, in cron's five fields: */15 * * * * is every quarter of an hour."
        " A run that is still going keeps the next from starting. Run it more often than the stream"
        " is trimmed: what is gone before it is archived cannot be accounted for."
    )
    time_zone: TimeZone | None = Field(
        default=None,
        description="Time zone of the schedule, such as Europe/Berlin. Default: UTC.",
    )
    window_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] = Field(
        default=900,
        description="Length of a window: the part of a stream that is accounted for at a time. One"
        " run closes as many windows as have passed.",
    )
    stuck_after_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] | None = Field(
        default=None,
        description="Idle time, in seconds, after which a pending entry counts as stuck. Default:"
        " processingTimeoutSeconds of its StreamConsumerGroup, or 300 without one.",
    )
    archive: ArchiveSpec = Field(
        description="Storage of the archive. After a change the audit begins a new archive; the"
        " former one stays as it is."
    )
    payload: Payload = Field(
        default=Payload.HASH,
        description="What of the entries is archived beside their IDs. None: nothing. Hash: a hash"
        " that finds duplicates. Full: all fields as well, so that entries can be restored.",
    )
    retention_seconds: Annotated[int, Field(ge=60, le=MAX_SECONDS)] = Field(
        default=2_592_000,
        description="Seconds for which the archive keeps a window after it was closed; the default"
        " is 30 days.",
    )
    evidence: EvidenceSpec | None = Field(
        default=None, description="Further evidence of what became of entries."
    )
    active_deadline_seconds: Annotated[int, Field(ge=10, le=LONGEST_WAIT_SECONDS)] = Field(
        default=3600,
        description="Seconds after which a run is ended and counts as failed, as in a Job.",
    )
    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\S+$")] | None = Field(
        default=None,
        description="Image of the job. Default: PELOPS_AUDIT_IMAGE of the operator.",
    )
    image_pull_policy: PullPolicy | None = Field(
        default=None,
        description="When the image is pulled. Default: that of Kubernetes, which depends on the"
        " tag.",
    )
    resources: OpenObject | None = Field(
        default=None,
        description="Requests and limits of the container, as in a pod: {requests: {cpu: 1, memory:"
        " 2Gi}, limits: {memory: 2Gi}}. Spark takes three quarters of the memory limit. The fields"
        " are those of kubectl explain pod.spec.containers.resources.",
    )
    template: OpenObject | None = Field(
        default=None,
        description="Pod template that the job's pod begins from, for node selectors, tolerations,"
        " volumes and image pull Secrets. A container named audit in it adds its variables and"
        " volume mounts. The fields are those of kubectl explain podtemplate.template; this schema"
        " does not repeat them, and the API server checks them when the job is created.",
    )
    backend: BackendSpec = Field(default=BackendSpec(), description="What runs the job.")
    suspend: bool = Field(
        default=False,
        description="Start no more runs. A run that goes on is not ended, and what was found stays"
        " visible.",
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
