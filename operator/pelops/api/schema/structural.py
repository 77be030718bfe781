"""What a schema must keep to, checked without an API server.

Three sorts of rules: what the API server refuses, what it drops in silence or dies of, and our own
that every value is bounded and every field described.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pelops.api.schema.base import VALIDATIONS

_TYPES: Final = {"object", "array", "string", "integer", "number", "boolean"}
_NEVER: Final = {
    "$ref", "$defs", "anyOf", "oneOf", "allOf", "not", "uniqueItems", "prefixItems", "const",
    "examples", "patternProperties", "propertyNames", "title", "additionalProperties", "nullable",
}  # fmt: skip
_LOOK_AROUND: Final = ("(?=", "(?!", "(?<=", "(?<!")
_UNBOUNDED: Final = {
    "array": ("maxItems",),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
}
_REASONS: Final = {
    "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate",
}  # fmt: skip

Schema = Mapping[str, Any]


def list_violations(schema: Schema, at: str = "") -> list[str]:
    """Return every rule that the schema breaks, each with the path of the field; empty is good."""
    return [f"{at or '<root>'}: {problem}" for problem in _own_problems(schema)] + [
        violation
        for name, child in _children(schema)
        for violation in list_violations(child, f"{at}.{name}" if at else name)
    ]


def _children(schema: Schema) -> Iterator[tuple[str, Schema]]:
    yield from schema.get("properties", {}).items()
    if "items" in schema:
        yield "[]", schema["items"]


def _own_problems(schema: Schema) -> Iterator[str]:
    yield from (f"{keyword} is not structural" for keyword in sorted(_NEVER & schema.keys()))
    if schema.get("type") not in _TYPES:
        yield f"type {schema.get('type')!r}"
    yield from _shape_problems(schema)
    yield from _bound_problems(schema)
    yield from _default_problems(schema)
    for rule in schema.get(VALIDATIONS, ()):
        yield from _rule_problems(schema, rule)


def _shape_problems(schema: Schema) -> Iterator[str]:
    unknown = set(schema.get("required", ())) - schema.get("properties", {}).keys()
    if unknown:
        yield f"requires undeclared {sorted(unknown)}"
    if schema.get("type") == "array" and "items" not in schema:
        yield "an array without items"
    if any(look in schema.get("pattern", "") for look in _LOOK_AROUND):
        yield "RE2 has no look-around"
    for child, sub in schema.get("properties", {}).items():
        if not sub.get("description"):
            yield f"{child} has no description"


def _bound_problems(schema: Schema) -> Iterator[str]:
    kind = schema.get("type", "")
    if kind == "string" and not {"maxLength", "enum", "format"} & schema.keys():
        yield "a string without maxLength"
    for bound in _UNBOUNDED.get(kind, ()):
        if bound not in schema:
            yield f"no {bound}"
    if kind == "object" and not {"properties", "maxProperties"} & schema.keys():
        yield "a map without maxProperties"


def _default_problems(schema: Schema) -> Iterator[str]:
    default = schema.get("default")
    if default is None:
        return
    if "enum" in schema and default not in schema["enum"]:
        yield f"default {default!r} is not in enum"
    if schema.get("type") == "object":
        # The server validates an object's default before it fills in the defaults inside it.
        inner = {k for k, v in schema.get("properties", {}).items() if "default" in v}
        if inner - default.keys():
            yield f"default lacks {sorted(inner - default.keys())}"


def _rule_problems(schema: Schema, rule: Mapping[str, str]) -> Iterator[str]:
    if not rule.get("message"):
        yield "a rule without a message"
    if "messageExpression" in rule:
        yield "messageExpression exceeds the cost budget"
    if rule.get("reason", "FieldValueInvalid") not in _REASONS:
        yield f"reason {rule['reason']!r}"
    if not _is_declared(schema, rule.get("fieldPath", "")):
        yield f"fieldPath {rule['fieldPath']!r} is not declared"


def _is_declared(schema: Schema, path: str) -> bool:
    for name in filter(None, path.split(".")):
        if name not in schema.get("properties", {}):
            return False
        schema = schema["properties"][name]
    return True
