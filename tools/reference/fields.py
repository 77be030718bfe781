"""Tables of the fields, rules and columns of each kind, from the schemas of the CRDs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pelops.api.crd import build_root_schema
from pelops.api.schema.base import VALIDATIONS, KindDefinition
from pelops.api.schema.structure import render_default_sentence
from tools.reference.tables import render_table

SchemaView = Mapping[str, Any]

REQUIRED: Final = "*required*"
NONE: Final = "none"
_DEFAULT: Final = re.compile(r"\s*Default: (.+?)\.(?=\s+[A-Z]|$)")


def render_fields(kind: KindDefinition, part: str) -> Iterator[str]:
    """Yield the table of all fields of the spec or of the status."""
    schema = build_root_schema(kind)
    fields = _list_fields(schema["properties"][part], part)
    if part == "status":
        rows = (
            (f"`{path}`", _render_type(field), _describe(path, field)[0])
            for path, field, _ in fields
        )
        return render_table(("field", "type", "what it holds"), rows)
    immutable = {path for path, message in _list_rules(schema, "") if " is immutable:" in message}
    immutable.discard("spec.replicas")  # only without workers
    return render_table(
        ("field", "type", "default", "can be changed", "what it does"),
        (
            (f"`{path}`", _render_type(field), *_render_spec(path, field, is_required, immutable))
            for path, field, is_required in fields
        ),
    )


def render_rules(kind: KindDefinition) -> Iterator[str]:
    """Yield one line for each rule between fields."""
    for path, message in _list_rules(build_root_schema(kind), ""):
        yield f"- `{path}`: {message}."


def render_columns(kind: KindDefinition) -> Iterator[str]:
    """Yield the table of the columns of `kubectl get`, and what can be selected."""
    yield from render_table(
        ("column", "from", "shows"),
        (
            (
                f"{column.name}{' (wide)' if column.is_wide else ''}",
                f"`{column.path}`",
                column.description,
            )
            for column in kind.columns
        ),
    )
    yield ""
    fields = ", ".join(f"`{field[1:]}`" for field in kind.selectable_fields)
    yield f"Fields for `--field-selector`: {fields}."


def list_spec_fields(kind: KindDefinition) -> list[tuple[str, str, str]]:
    """Return each field of the spec: its path, its default or `none` or `*required*`, its text."""
    schema = build_root_schema(kind)["properties"]["spec"]
    return [
        (path, _render_default(path, field, is_required), _describe(path, field)[0])
        for path, field, is_required in _list_fields(schema, "spec")
    ]


def _list_fields(schema: SchemaView, at: str) -> Iterator[tuple[str, SchemaView, bool]]:
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        path = f"{at}.{name}"
        yield path, child, name in required
        yield from _list_fields(child, path)
        if "properties" in child.get("items", {}):
            yield from _list_fields(child["items"], f"{path}[]")


def _list_rules(schema: SchemaView, at: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get(VALIDATIONS, ()):
        yield (f"{at}{rule.get('fieldPath', '')}".lstrip(".") or "metadata.name", rule["message"])
    for name, child in schema.get("properties", {}).items():
        yield from _list_rules(child, f"{at}.{name}")


def _render_spec(
    path: str, field: SchemaView, is_required: bool, immutable: set[str]
) -> tuple[str, str, str]:
    text = _describe(path, field)[0].removesuffix(" Immutable.")
    return (
        _render_default(path, field, is_required),
        "no" if _is_within(path, immutable) else "yes",
        text,
    )


def _describe(path: str, field: SchemaView) -> tuple[str, str | None]:
    """The description without its default, and the default if it is said in words."""
    text = str(field.get("description", "")).removesuffix(render_default_sentence(field, path))
    found = _DEFAULT.search(text)
    if found is None:
        return text, None
    return (text[: found.start()] + text[found.end() :]).strip(), found[1]


def _render_default(path: str, field: SchemaView, is_required: bool) -> str:
    if is_required:
        return REQUIRED
    # The defaults inside an object are in its own rows.
    if "default" in field and field["type"] != "object":
        return f"`{json.dumps(field['default'], ensure_ascii=False)}`"
    return _describe(path, field)[1] or NONE


def _render_type(field: SchemaView) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "array":
        return f"list of {field['items']['type']}, {_render_range(field, 'minItems', 'maxItems')}"
    if field["type"] == "integer":
        return f"integer, {_render_range(field, 'minimum', 'maximum')}"
    if "maxLength" in field:
        return f"string, {_render_range(field, 'minLength', 'maxLength')} characters"
    return str(field.get("format", field["type"]))


def _render_range(field: SchemaView, lower: str, upper: str) -> str:
    return f"{field.get(lower, 0)} to {field[upper]}"


def _is_within(path: str, parents: set[str]) -> bool:
    """Whether a field is one of these, or a part of one."""
    return any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in parents)
