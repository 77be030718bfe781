"""The base of all models that users write or read, and how they carry rules for the API server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

VALIDATIONS = "x-kubernetes-validations"


class ApiModel(BaseModel):
    """An immutable part of a resource: snake_case here, camelCase on the wire.

    Unknown fields are ignored, not refused: the API server prunes or refuses what its schema does
    not know, and a resource that a newer version wrote must stay readable by an older one.
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
