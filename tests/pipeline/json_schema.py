"""As much of JSON Schema as the report's schema uses; a keyword that is not known is an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

Schema = dict[str, Any]

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_SILENT = {"$schema", "$defs", "title", "description", "default"}


def violations(value: Any, schema: Schema, root: Schema, at: str = "$") -> Iterator[str]:
    """Every rule that the value breaks, with its place."""
    for keyword, rule in schema.items():
        if keyword in _SILENT:
            continue
        yield from _RULES[keyword](value, rule, root, at)


def _reference(value: Any, rule: str, root: Schema, at: str) -> Iterator[str]:
    yield from violations(value, root["$defs"][rule.removeprefix("#/$defs/")], root, at)


def _type(value: Any, rule: str | list[str], _: Schema, at: str) -> Iterator[str]:
    allowed = [rule] if isinstance(rule, str) else rule
    if not any(_TYPES[name](value) for name in allowed):
        yield f"{at}: {value!r:.40} is no {' or '.join(allowed)}"


def _required(value: Any, rule: list[str], _: Schema, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{at}: lacks {name}" for name in rule if name not in value)


def _properties(value: Any, rule: dict[str, Schema], root: Schema, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name in value.keys() & rule.keys():
            yield from violations(value[name], rule[name], root, f"{at}.{name}")


def _names(value: Any, rule: Schema, root: Schema, at: str) -> Iterator[str]:
    for name in value if isinstance(value, dict) else ():
        yield from violations(name, rule, root, f"{at}.{name}")


def _others(value: Any, rule: Schema, root: Schema, at: str) -> Iterator[str]:
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield from violations(inner, rule, root, f"{at}.{name}")


def _items(value: Any, rule: Schema, root: Schema, at: str) -> Iterator[str]:
    for place, item in enumerate(value) if isinstance(value, list) else ():
        yield from violations(item, rule, root, f"{at}[{place}]")


def _any_of(value: Any, rule: list[Schema], root: Schema, at: str) -> Iterator[str]:
    if all(list(violations(value, one, root, at)) for one in rule):
        yield f"{at}: none of the alternatives"


def _one_of(value: Any, rule: list[Schema], root: Schema, at: str) -> Iterator[str]:
    if sum(not list(violations(value, one, root, at)) for one in rule) != 1:
        yield f"{at}: not exactly one of the alternatives"


def _minimum(value: Any, rule: float, _: Schema, at: str) -> Iterator[str]:
    if isinstance(value, int | float) and value < rule:
        yield f"{at}: {value} is below {rule}"


def _below(value: Any, rule: float, _: Schema, at: str) -> Iterator[str]:
    if isinstance(value, int | float) and value >= rule:
        yield f"{at}: {value} is not below {rule}"


def _above(value: Any, rule: float, _: Schema, at: str) -> Iterator[str]:
    if isinstance(value, int | float) and value <= rule:
        yield f"{at}: {value} is not above {rule}"


def _max_length(value: Any, rule: int, _: Schema, at: str) -> Iterator[str]:
    if isinstance(value, str) and len(value) > rule:
        yield f"{at}: {value!r:.40} has more than {rule} characters"


def _pattern(value: Any, rule: str, _: Schema, at: str) -> Iterator[str]:
    if isinstance(value, str) and not re.search(rule, value):
        yield f"{at}: {value!r} does not match"


def _enum(value: Any, rule: list[Any], _: Schema, at: str) -> Iterator[str]:
    if value not in rule:
        yield f"{at}: {value!r} is none of {rule}"


def _const(value: Any, rule: Any, _: Schema, at: str) -> Iterator[str]:
    if value != rule:
        yield f"{at}: {value!r} is not {rule!r}"


_RULES: dict[str, Callable[[Any, Any, Schema, str], Iterator[str]]] = {
    "$ref": _reference,
    "type": _type,
    "required": _required,
    "properties": _properties,
    "propertyNames": _names,
    "additionalProperties": _others,
    "items": _items,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "minimum": _minimum,
    "exclusiveMaximum": _below,
    "exclusiveMinimum": _above,
    "maxLength": _max_length,
    "pattern": _pattern,
    "enum": _enum,
    "const": _const,
}
