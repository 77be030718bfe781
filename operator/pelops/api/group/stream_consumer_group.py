"""The kind `StreamConsumerGroup`: one consumer group of one stream, and its workers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, cast

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from pelops.api.group.group_status_model import StreamConsumerGroupStatus
from pelops.api.group.recovery import DeadLetterSpec, RecoverySpec, RetentionSpec
from pelops.api.group.scaling import ScalingSpec
from pelops.api.redis import RedisSpec, SecretRef
from pelops.api.schema.base import (
    API_VERSION,
    DNS_LABEL,
    ApiModel,
    ContainerName,
    ObjectMeta,
    ObjectName,
    RedisName,
    Replicas,
    Rule,
    RuleReason,
    cel,
    render_errors,
)
from pelops.errors import InvalidSpec

ApiVersion = Annotated[
    str,
    Field(
        min_length=1,
        max_length=317,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$",
    ),
]
KindName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Z][A-Za-z0-9]*$")]


class TargetRef(ApiModel):
    """A workload in the same namespace that has a scale subresource."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    api_version: ApiVersion = Field(default="apps/v1", description="API version of the workload.")
    kind: KindName = Field(
        default="Deployment",
        description=(
            "Kind of the workload: Deployment, StatefulSet, or another kind that has "
            "a scale subresource and that the operator's role allows."
        ),
    )
    name: ObjectName = Field(description="Name of the workload, in the same namespace.")


_OPEN = {"x-kubernetes-preserve-unknown-fields": True}
_CONTAINER: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {
            "type": "string",
            "minLength": 1,
            "maxLength": 63,
            "pattern": DNS_LABEL,
            "description": "Name of the container.",
        }
    },
    **_OPEN,
}
_TEMPLATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "description": "Specification of the pods, as in kubectl explain pod.spec.",
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "description": "Containers of the pod, at least one.",
                    "minItems": 1,
                    "maxItems": 64,
                    "items": _CONTAINER,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                }
            },
            **_OPEN,
        }
    },
    **_OPEN,
}


class _TemplateSchema:
    """The part of a PodTemplateSpec that the rules of this CRD need, as a schema.

    The API server validates the rest in a dry run of the Deployment.
    """

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return cast(JsonSchemaValue, {**handler(core_schema), **_TEMPLATE_SCHEMA})


PodTemplate = Annotated[dict[str, Any], _TemplateSchema()]


KIND: Final = "StreamConsumerGroup"


class DeletionPolicy(StrEnum):
    """What becomes of the group in Redis when the resource is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


_START_RULES = cel(
    Rule(
        rule="self.matches('^(Beginning|End|[0-9]{1,20}-[0-9]{1,20})$')",
        message="startFrom must be Beginning, End or an entry ID such as 1700000000000-0",
    ),
    Rule(
        # Of 20 digits the text decides as the number does; fewer always fit into 64 bits.
        rule="self.split('-').all(part, size(part) < 20 || part <= '18446744073709551615'"
        " || !part.matches('^[0-9]+$'))",
        message="startFrom must be an entry ID of two 64-bit numbers, such as 1700000000000-0",
    ),
    Rule(
        rule="self == oldSelf",
        message="startFrom is immutable: it applies only when the group is created. Move"
        " the position of a group that exists with XGROUP SETID",
        reason=RuleReason.FORBIDDEN,
    ),
)
_IMMUTABLE_STREAM = cel(
    Rule(
        rule="self == oldSelf",
        message="stream is immutable: create another StreamConsumerGroup for another stream",
        reason=RuleReason.FORBIDDEN,
    )
)
_SPEC_RULES = cel(
    Rule(
        rule="!has(self.targetRef) || !has(self.template)",
        message="targetRef (existing workers) and template (workers that the operator runs) must"
        " not both be set",
        field_path=".targetRef",
    ),
    Rule(
        rule="has(self.targetRef) || has(self.template) || !has(self.scaling)"
        " || self.scaling.mode == 'Disabled'",
        message="scaling needs workers: set targetRef or template, or set scaling.mode: Disabled",
        field_path=".scaling",
        reason=RuleReason.FORBIDDEN,
    ),
    Rule(
        rule="has(self.targetRef) || has(self.template) || has(oldSelf.targetRef)"
        " || has(oldSelf.template) || self.replicas == oldSelf.replicas",
        message="replicas cannot be changed without targetRef or template, because there are no"
        " workers to scale",
        field_path=".replicas",
        reason=RuleReason.FORBIDDEN,
    ),
    Rule(
        rule="!has(self.template) || !has(self.containerName)"
        " || self.template.spec.containers.exists(c, c.name == self.containerName)",
        message="containerName must be the name of a container of template",
        field_path=".containerName",
    ),
    Rule(
        rule="!has(self.template) || has(self.containerName)"
        " || size(self.template.spec.containers) == 1",
        message="containerName is required, because template has several containers: set it to the"
        " container that reads the stream",
        field_path=".containerName",
        reason=RuleReason.REQUIRED,
    ),
    Rule(
        rule="!has(self.deadLetter.stream) || self.deadLetter.stream != self.stream",
        message="deadLetter.stream must not be the stream itself",
        field_path=".deadLetter.stream",
    ),
)


class StreamConsumerGroupSpec(ApiModel):
    """Desired state of a consumer group and its workers."""

    model_config = ConfigDict(json_schema_extra=_SPEC_RULES)

    redis: RedisSpec = Field(
        description=(
            "Address and credentials of Redis (7.0 or later) or Valkey (7.2 or "
            "later). A change to another server creates or adopts the group there; "
            "the group on the previous server stays as it is, and nothing is copied."
        )
    )
    stream: Annotated[RedisName, Field(json_schema_extra=_IMMUTABLE_STREAM)] = Field(
        description=(
            "Key of the stream. If it does not exist, an empty stream is created. Immutable."
        )
    )
    group: RedisName | None = Field(
        default=None,
        description=(
            "Name of the consumer group. If it does not exist, it is created; if it "
            "exists, it is adopted as it is. Immutable. Default: metadata.name."
        ),
    )
    start_from: Annotated[
        str, Field(min_length=1, max_length=41, json_schema_extra=_START_RULES)
    ] = Field(
        default="Beginning",
        description=(
            "Position at which the operator creates a new group: Beginning delivers "
            "all entries of the stream, End only entries that are added later, and an "
            "entry ID the entries after it. The position of an existing group is not "
            "changed. Immutable."
        ),
    )
    target_ref: TargetRef | None = Field(
        default=None,
        description=(
            "Reference to existing workers: a Deployment, or another workload with a "
            "scale subresource. The operator changes only its number of replicas. Set "
            "at most one of targetRef and template; with neither, the group has no "
            "workers here, as for a Spark job."
        ),
    )
    template: PodTemplate | None = Field(
        default=None,
        description=(
            "Pod template of a Deployment that the operator creates and owns, with "
            "PELOPS_* environment variables added to the container that reads the "
            "stream. The fields are those of kubectl explain "
            "deployment.spec.template; the API server checks them when the Deployment "
            "is created, and the condition WorkloadReady reports errors. Set at most "
            "one of targetRef and template."
        ),
    )
    container_name: ContainerName | None = Field(
        default=None,
        description=(
            "Name of the container that reads the stream, required if template has "
            "several containers. With targetRef, a restart of this container is "
            "enough to recover its entries. If absent with targetRef, every container "
            "of the pod must have restarted."
        ),
    )
    worker_secret_ref: SecretRef | None = Field(
        default=None,
        description=(
            "Secret with the username and password of the workers, and their client "
            "certificate if they use one. Default: the Secrets of spec.redis."
        ),
    )
    replicas: Replicas = Field(
        default=1,
        description=(
            "Number of workers if scaling.mode is Manual, or if template is set "
            "without scaling. kubectl scale changes this field."
        ),
    )
    scaling: ScalingSpec | None = Field(
        default=None,
        description=(
            "Rules for the number of workers. If absent, the replicas of targetRef "
            "are not changed, and template runs spec.replicas workers."
        ),
    )
    recovery: RecoverySpec = Field(
        default=RecoverySpec(),
        description=(
            "Rules for stuck entries: when an entry is stuck, and what a scan does with it."
        ),
    )
    dead_letter: DeadLetterSpec = Field(
        default=DeadLetterSpec(),
        description=(
            "Stream for entries that cannot be processed, and the time for which it keeps them."
        ),
    )
    retention: RetentionSpec | None = Field(
        default=None,
        description=(
            "Limits at which the stream is trimmed; undelivered and pending entries "
            "are never trimmed. If several resources have the same stream, the larger "
            "limits apply. If absent, the stream is never trimmed."
        ),
    )
    deletion_policy: DeletionPolicy = Field(
        default=DeletionPolicy.RETAIN,
        description=(
            "Effect of deleting this resource on the group in Redis. Retain: leaves "
            "the group as it is. Delete: destroys the group and the keys that Pelops "
            "created for it, but never the stream or the dead letters."
        ),
    )
    suspend: bool = Field(
        default=False,
        description=(
            "Suspension of all changes to Redis and the workload. Pelops continues to "
            "observe the group and to update the status."
        ),
    )

    @property
    def has_workers(self) -> bool:
        """Whether the spec declares workers; if not, nothing is run or scaled."""
        return self.target_ref is not None or self.template is not None

    def group_name(self, resource_name: str) -> str:
        """Return the group's name in Redis."""
        return self.group or resource_name


class StreamConsumerGroup(ApiModel):
    """One consumer group of one stream, as a user declared it and the operator last saw it."""

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: ObjectMeta
    spec: StreamConsumerGroupSpec
    status: StreamConsumerGroupStatus | None = None

    @classmethod
    def parse(cls, obj: Mapping[str, Any]) -> StreamConsumerGroup:
        """Return the resource that the API server's JSON describes.

        A status that another version wrote and this one cannot read counts as absent: the operator
        writes it again. The API server checks the rules between fields.

        Raises:
            InvalidSpec: a field is missing or out of bounds; the message names it, never its value.
        """
        try:
            resource = cls.model_validate({**obj, "status": None})
        except ValidationError as error:
            raise InvalidSpec(render_errors(error)) from error
        return resource.model_copy(update={"status": _parse_status(obj.get("status"))})

    @property
    def group_name(self) -> str:
        """Return the group's name in Redis."""
        return self.spec.group_name(self.metadata.name)


def _parse_status(status: object) -> StreamConsumerGroupStatus | None:
    try:
        return None if not status else StreamConsumerGroupStatus.model_validate(status)
    except ValidationError:
        return None
