"""The kind `StreamAudit`: a scheduled account of what became of every entry."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, ValidationError

from pelops.api.audit.archive import ArchiveSpec, EvidenceSpec, Payload
from pelops.api.audit.job import BackendSpec, OpenObject, Schedule, TimeZone
from pelops.api.audit.status import StreamAuditStatus
from pelops.api.meta import ObjectMeta
from pelops.api.redis import RedisSpec, SecretRef
from pelops.api.schema.base import ApiModel, Rule, RuleReason, cel
from pelops.api.schema.bounds import LONGEST_WAIT_SECONDS, ObjectName, RedisName
from pelops.api.schema.kind import API_VERSION
from pelops.api.schema.validation import render_errors
from pelops.errors import InvalidSpec

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
        " archive.pvc, archive.s3 or an address with a scheme",
        field_path=".archive.path",
    ),
)


class StreamAuditSpec(ApiModel):
    """What is asked for."""

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
        " streams and to write one key per group; redis.secretRef unless said.",
    )
    schedule: Schedule = Field(
        description="When to run, in cron's five fields: */15 * * * * is every quarter of an hour."
        " A run that is still going keeps the next from starting. Run it more often than the stream"
        " is trimmed: what is gone before it is archived cannot be accounted for."
    )
    time_zone: TimeZone | None = Field(
        default=None,
        description="Time zone of the schedule, such as Europe/Berlin; UTC unless said.",
    )
    window_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] = Field(
        default=900,
        description="Length of a window: the part of a stream that is accounted for at a time. One"
        " run closes as many windows as have passed.",
    )
    stuck_after_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] | None = Field(
        default=None,
        description="A pending entry that idles for so long counts as stuck. Unless said, the"
        " processingTimeoutSeconds of its StreamConsumerGroup; 300 where there is none.",
    )
    archive: ArchiveSpec = Field(description="Where the windows are kept.")
    payload: Payload = Field(
        default=Payload.HASH,
        description="What of the entries is archived beside their IDs. None: nothing. Hash: a hash"
        " that finds duplicates. Full: all fields as well, so that entries can be restored.",
    )
    retention_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        default=30, description="For how many days the archive keeps its windows."
    )
    evidence: EvidenceSpec | None = Field(
        default=None, description="What else may prove what became of entries."
    )
    deadline_seconds: Annotated[int, Field(ge=10, le=LONGEST_WAIT_SECONDS)] = Field(
        default=3600, description="A run that takes longer is ended and counts as failed."
    )
    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\S+$")] | None = Field(
        default=None,
        description="Image of the job; unless said, the one that the operator was informed"
        " (PELOPS_AUDIT_IMAGE).",
    )
    image_pull_policy: PullPolicy | None = Field(
        default=None, description="When the image is pulled; Kubernetes' own rule unless said."
    )
    resources: OpenObject | None = Field(
        default=None,
        description="Requests and limits of the container, as in a pod: {requests: {cpu: 1, memory:"
        " 2Gi}, limits: {memory: 2Gi}}. Spark takes three quarters of the memory limit.",
    )
    template: OpenObject | None = Field(
        default=None,
        description="What the job's pod is made from, where a cluster asks for more: a pod template"
        " with node selectors, tolerations, volumes, an image pull Secret. A container named audit"
        " in it adds its variables and volume mounts to ours.",
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
