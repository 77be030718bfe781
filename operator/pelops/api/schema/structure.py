"""pydantic's JSON schema → the structural schema that the API server accepts whole.

The API server refuses some of what pydantic writes and silently drops some more; an unknown
keyword is therefore an error here, never passed through.

`list_violations` checks the result without an API server. It finds what the API server refuses,
silently drops or crashes on. It also requires bounds for every value and a description of every
field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pelops.api.schema.base import VALIDATIONS, ApiModel

_DROPPED: Final = {"title", "discriminator", "examples", "$defs"}
_KEPT: Final = {
    "default", "description", "enum", "items", "maxItems", "maxLength", "maxProperties", "maximum",
    "minItems", "minLength", "minimum", "pattern", "properties", "required", "type",
}  # fmt: skip
_FORMATS: Final = {"date-time", "int32", "int64"}
LIST_TYPE: Final = "x-kubernetes-list-type"
_LARGEST_INT32: Final = 2**31 - 1
_ORDER: Final = (
    "description", "type", "format", "default", "enum", "required", "properties", "items",
)  # fmt: skip

Schema = dict[str, Any]


class UnsupportedSchemaError(ValueError):
    """A model uses something that a structural schema cannot express; the message has its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SchemaPlace:
    """A position in the document that is converted."""

    definitions: Mapping[str, Any]
    path: str
    inside: frozenset[str] = frozenset()  # the references that led here

    def below(self, name: str) -> _SchemaPlace:
        return replace(self, path=f"{self.path}.{name}")

    def through(self, reference: str) -> _SchemaPlace:
        if reference in self.inside:
            raise self.error(f"{reference} contains itself")
        return replace(self, inside=self.inside | {reference})

    def error(self, problem: str) -> UnsupportedSchemaError:
        return UnsupportedSchemaError(f"{self.path}: {problem}")


def build_structural_schema(model: type[ApiModel]) -> Schema:
    """Return the model's structural schema.

    Raises:
        UnsupportedSchemaError: the model is recursive, a true union, or uses an unknown keyword.
    """
    document = model.model_json_schema(by_alias=True, mode="validation")
    place = _SchemaPlace(definitions=document.get("$defs", {}), path=model.__name__)
    return _convert(document, place)


def _convert(node: Mapping[str, Any], place: _SchemaPlace) -> Schema:
    flat, place = _flatten(dict(node), place)
    converted: Schema = {}
    for keyword, value in flat.items():
        converted.update(_convert_keyword(keyword, value, place))
    if converted.get("type") == "integer":
        converted.setdefault("format", _integer_format(converted))
    if "description" in converted:
        converted["description"] += render_default_sentence(converted, place.path)
    return _in_order(converted)


def _integer_format(schema: Mapping[str, Any]) -> str:
    return "int32" if schema.get("maximum", _LARGEST_INT32 + 1) <= _LARGEST_INT32 else "int64"


def _flatten(node: Schema, place: _SchemaPlace) -> tuple[Schema, _SchemaPlace]:
    """Return the node with references inlined and `T | None` unwrapped; its own keywords win."""
    if "$ref" in node:
        reference = str(node.pop("$ref")).rsplit("/", 1)[-1]
        inlined = _merge(place.definitions[reference], node)
        return _flatten(inlined, place.through(reference))
    if "anyOf" in node:
        options = [option for option in node.pop("anyOf") if option.get("type") != "null"]
        if len(options) != 1:
            raise place.error("a union of types")
        return _flatten(_merge(options[0], node), place)
    return node, place


def _merge(inner: Mapping[str, Any], beside: Mapping[str, Any]) -> Schema:
    merged = {**inner, **beside}
    if VALIDATIONS in inner and VALIDATIONS in beside:
        merged[VALIDATIONS] = [*inner[VALIDATIONS], *beside[VALIDATIONS]]
    return merged


def _convert_keyword(keyword: str, value: Any, place: _SchemaPlace) -> Schema:
    if keyword in _DROPPED or (keyword == "default" and value is None):
        return {}
    if keyword == "properties":
        return {keyword: {name: _convert(v, place.below(name)) for name, v in value.items()}}
    if keyword == "items":
        return {keyword: _convert(value, place.below("[]"))}
    if keyword == "default":
        return {"default": _without_none(value)}
    if keyword == "description":
        return {"description": " ".join(value.split())}
    return _convert_plain(keyword, value, place)


def _convert_plain(keyword: str, value: Any, place: _SchemaPlace) -> Schema:
    if keyword == "const":
        return {"enum": [value]}
    if keyword == "additionalProperties" and value is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if keyword in {"exclusiveMinimum", "exclusiveMaximum"}:
        return {keyword.replace("exclusiveM", "m"): value, keyword: True}
    if keyword == "format" and value in _FORMATS:
        return {"format": value}
    if keyword in _KEPT or keyword.startswith("x-kubernetes-"):
        return {keyword: value}
    raise place.error(f"{keyword}={value!r} means nothing to Kubernetes")


def render_default_sentence(schema: Mapping[str, Any], path: str) -> str:
    """Return the sentence with the default that ends a field's description.

    `kubectl explain` does not show defaults otherwise. The unit is derived from the name of the
    field, the last part of `path`.
    """
    default = schema.get("default")
    if default is None or isinstance(default, Mapping | list | tuple):
        return ""
    if isinstance(default, str) and _PLAIN.fullmatch(default):
        return f" Default: {default}."
    unit = next((unit for ending, unit in _UNITS.items() if path.endswith(ending)), "")
    return f" Default: {json.dumps(default, ensure_ascii=False)}{unit}."


_PLAIN: Final = re.compile(r"[A-Za-z0-9/.]+")  # a text that needs no quotes in a sentence
_UNITS: Final = {"Seconds": " s", "Bytes": " bytes", "Percent": "%"}


def _without_none(value: Any) -> Any:
    """Return the default as the API server needs it: absent, not null."""
    if isinstance(value, Mapping):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value


def _in_order(schema: Schema) -> Schema:
    first = {key: schema[key] for key in _ORDER if key in schema}
    return first | {key: schema[key] for key in sorted(schema.keys() - first.keys())}


_TYPES: Final = {"object", "array", "string", "integer", "boolean"}
_NEVER: Final = {
    "$ref", "$defs", "anyOf", "oneOf", "allOf", "not", "uniqueItems", "prefixItems", "const",
    "examples", "patternProperties", "propertyNames", "title", "additionalProperties", "nullable",
}  # fmt: skip
_LOOK_AROUND: Final = ("(?=", "(?!", "(?<=", "(?<!")
_UNBOUNDED: Final = {
    "array": ("maxItems",),
    "integer": ("minimum", "maximum"),
}
_REASONS: Final = {
    "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate",
}  # fmt: skip

SchemaView = Mapping[str, Any]


def list_violations(schema: SchemaView, at: str = "") -> list[str]:
    """Return every rule that the schema breaks, each with the path of the field; empty is good."""
    return [f"{at or '<root>'}: {problem}" for problem in _own_problems(schema)] + [
        violation
        for name, child in _children(schema)
        for violation in list_violations(child, f"{at}.{name}" if at else name)
    ]


def _children(schema: SchemaView) -> Iterator[tuple[str, SchemaView]]:
    yield from schema.get("properties", {}).items()
    if "items" in schema:
        yield "[]", schema["items"]


def _own_problems(schema: SchemaView) -> Iterator[str]:
    yield from (f"{keyword} is not structural" for keyword in sorted(_NEVER & schema.keys()))
    if schema.get("type") not in _TYPES:
        yield f"type {schema.get('type')!r}"
    yield from _shape_problems(schema)
    yield from _bound_problems(schema)
    yield from _default_problems(schema)
    for rule in schema.get(VALIDATIONS, ()):
        yield from _rule_problems(schema, rule)


def _shape_problems(schema: SchemaView) -> Iterator[str]:
    unknown = set(schema.get("required", ())) - schema.get("properties", {}).keys()
    if unknown:
        yield f"requires undeclared {sorted(unknown)}"
    if schema.get("type") == "array" and "items" not in schema:
        yield "an array without items"
    if schema.get("type") == "array":
        yield from _list_problems(schema)
    if any(look in schema.get("pattern", "") for look in _LOOK_AROUND):
        yield "RE2 has no look-around"
    for child, sub in schema.get("properties", {}).items():
        if not sub.get("description"):
            yield f"{child} has no description"


def _list_problems(schema: SchemaView) -> Iterator[str]:
    kind = schema.get(LIST_TYPE)
    if kind not in {"atomic", "set", "map"}:
        yield f"an array without {LIST_TYPE}"
    keys = set(schema.get("x-kubernetes-list-map-keys", ()))
    if (kind == "map") != bool(keys):
        yield "x-kubernetes-list-map-keys go with a list of type map"
    missing = keys - set(schema.get("items", {}).get("required", ()))
    if missing:
        yield f"keys {sorted(missing)} of a map are not required"


def _bound_problems(schema: SchemaView) -> Iterator[str]:
    kind = schema.get("type", "")
    if kind == "integer" and schema.get("format") not in {"int32", "int64"}:
        yield "an integer without the format int32 or int64"
    if kind == "string" and not {"maxLength", "enum", "format"} & schema.keys():
        yield "a string without maxLength"
    for bound in _UNBOUNDED.get(kind, ()):
        if bound not in schema:
            yield f"no {bound}"
    if kind == "object" and not {"properties", "maxProperties"} & schema.keys():
        yield "a map without maxProperties"


def _default_problems(schema: SchemaView) -> Iterator[str]:
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


def _rule_problems(schema: SchemaView, rule: Mapping[str, str]) -> Iterator[str]:
    if not rule.get("message"):
        yield "a rule without a message"
    if "messageExpression" in rule:
        yield "messageExpression exceeds the cost budget"
    if rule.get("reason", "FieldValueInvalid") not in _REASONS:
        yield f"reason {rule['reason']!r}"
    if not _is_declared(schema, rule.get("fieldPath", "")):
        yield f"fieldPath {rule['fieldPath']!r} is not declared"


def _is_declared(schema: SchemaView, path: str) -> bool:
    for name in filter(None, path.split(".")):
        if name not in schema.get("properties", {}):
            return False
        schema = schema["properties"][name]
    return True
