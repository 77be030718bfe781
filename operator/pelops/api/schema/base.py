"""The base of all models: bounded types, rules for the API server, and how a kind is served.

Every string, number, list and map of the schema has bounds. Without them the API server cannot
estimate what a CEL rule costs and refuses the whole schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel

VALIDATIONS = "x-kubernetes-validations"


class ApiModel(BaseModel):
    """An immutable part of a resource: snake_case here, camelCase on the wire.

    Unknown fields are ignored, because an older version must be able to read a resource of a newer
    one. The API server prunes or refuses fields that its schema does not contain.
    """

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        use_attribute_docstrings=False,
    )

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form, camelCase, without absent fields; equal models give equal bytes."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class RuleReason(StrEnum):
    """How the API server files a violation."""

    INVALID = "FieldValueInvalid"
    FORBIDDEN = "FieldValueForbidden"
    REQUIRED = "FieldValueRequired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One CEL rule that the API server checks.

    The message is static on purpose: an expression that builds it from values exceeds the API
    server's cost budget a hundredfold.
    """

    rule: str
    message: str
    field_path: str | None = None  # relative to where the rule sits, with a leading dot
    reason: RuleReason = RuleReason.INVALID


def cel(*rules: Rule, **extra: Any) -> dict[str, Any]:
    """Return the schema additions that carry these rules, beside other `x-kubernetes-*` keys."""
    return {VALIDATIONS: [_render_rule(rule) for rule in rules], **extra}


def _render_rule(rule: Rule) -> dict[str, Any]:
    rendered = {"rule": rule.rule, "message": rule.message}
    if rule.field_path is not None:
        rendered["fieldPath"] = rule.field_path
    if rule.reason is not RuleReason.INVALID:
        rendered["reason"] = rule.reason.value
    return rendered


MAX_REPLICAS = 10_000
MAX_SECONDS = 10 * 365 * 24 * 3600
LONGEST_WAIT_SECONDS = 7 * 24 * 3600
MAX_EXACT_INTEGER = 2**53 - 1  # the largest that every JSON parser reads exactly

DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
HOST = r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)"
PORT = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"

# Redis keys may contain any byte, but a Kubernetes string contains Unicode. Workers read the name
# from an environment variable, which cannot contain NUL.
RedisName = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00]+$")]
# A derived key contains the stream twice and the group once; % and : take three characters each.
KeyName = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
ContainerName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
Text = Annotated[str, Field(max_length=1024)]

Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
Count = Annotated[int, Field(ge=0, le=MAX_EXACT_INTEGER)]
# The value before the first pass, so that no tool considers the resource reconciled.
UNOBSERVED = -1
ObservedGeneration = Annotated[int, Field(ge=UNOBSERVED, le=MAX_EXACT_INTEGER)]
PositiveCount = Annotated[int, Field(ge=1, le=MAX_EXACT_INTEGER)]


def render_time(moment: datetime) -> str:
    """Return RFC 3339 in UTC with whole seconds, as Kubernetes writes times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Timestamp = Annotated[AwareDatetime, PlainSerializer(render_time, when_used="json")]


GROUP: Final = "pelops.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column of `kubectl get`.

    The API server prints nothing where the path is absent; a column of type `string` prints any
    scalar it finds.
    """

    name: str
    type: str
    path: str
    description: str
    is_wide: bool = False  # only with -o wide


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Where the scale subresource finds its numbers."""

    spec_replicas: str
    status_replicas: str
    label_selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDefinition:
    """A kind of the group `pelops.dev`, complete enough to write its definition."""

    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    description: str
    spec: type[ApiModel]
    status: type[ApiModel]
    rules: tuple[Rule, ...]  # those that compare the spec with the metadata
    columns: tuple[PrinterColumn, ...]
    selectable_fields: tuple[str, ...]
    scale: ScalePaths | None

    @property
    def definition_name(self) -> str:
        """Return the name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


_MAX_ERRORS_REPORTED: Final = 5


def render_errors(error: ValidationError) -> str:
    """Return the first problems, each with the path of its field.

    Values are left out: a user may have put a password into the wrong field.
    """
    details = error.errors(include_url=False, include_context=False, include_input=False)
    problems = [f"{_render_path(d['loc'])}: {d['msg']}" for d in details[:_MAX_ERRORS_REPORTED]]
    if len(details) > _MAX_ERRORS_REPORTED:
        problems.append(f"and {len(details) - _MAX_ERRORS_REPORTED} more")
    return "; ".join(problems)


def _render_path(location: tuple[int | str, ...]) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return path.lstrip(".")


class ObjectMeta(ApiModel):
    """Who and what an object is; the API server validates it, so there are no bounds here."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    finalizers: tuple[str, ...] = ()
    annotations: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_being_deleted(self) -> bool:
        return self.deletion_timestamp is not None
