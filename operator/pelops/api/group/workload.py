"""The workers: a workload of the user's own, or one that the operator makes from a template."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from pelops.api.schema.base import ApiModel
from pelops.api.schema.bounds import DNS_LABEL, ObjectName

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

    api_version: ApiVersion = Field(
        default="apps/v1", description="API version of the workload, such as apps/v1."
    )
    kind: KindName = Field(
        default="Deployment",
        description="Kind of the workload: a Deployment, a StatefulSet, or anything else that has"
        " a scale subresource (the operator's role must allow it).",
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
            "description": "A PodSpec.",
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "description": "The containers of the pod; at least one.",
                    "minItems": 1,
                    "maxItems": 64,
                    "items": _CONTAINER,
                }
            },
            **_OPEN,
        }
    },
    **_OPEN,
}


class _TemplateSchema:
    """Says to the API server as much of a PodTemplateSpec as our rules need, and no more.

    The rest is validated where pods are known: by the dry run of the Deployment.
    """

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return cast(JsonSchemaValue, {**handler(core_schema), **_TEMPLATE_SCHEMA})


PodTemplate = Annotated[dict[str, Any], _TemplateSchema()]
