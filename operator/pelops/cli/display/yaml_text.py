"""YAML from JSON values, without a package: the command line may run where PyYAML is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

# Texts that every YAML parser reads as the same text without quotes. A number, a date, `on`, `~`
# and the like are quoted.
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
# YAML 1.1 reads them as other values.
_WORDS: Final = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})


def render_yaml(value: Any) -> str:
    """Return a JSON value as YAML, with a line break at the end."""
    return "\n".join(_render(value)) + "\n"


def render_scalar(value: Any) -> str:
    """Return a text, number, bool or None as YAML on one line."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, str):
        return "".join(map(_escape, json.dumps(value, ensure_ascii=False)))
    return json.dumps(value)


def _escape(character: str) -> str:
    """A character of a JSON string; YAML does not join the surrogates that JSON writes."""
    if " " <= character <= "~":
        return character
    return f"\\U{ord(character):08x}"


def _render(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _render_item(f"{render_scalar(str(key))}:", item)
    elif isinstance(value, (list, tuple)) and value:
        for item in value:
            first, *rest = _render(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    elif isinstance(value, (Mapping, list, tuple)):
        yield "{}" if isinstance(value, Mapping) else "[]"
    else:
        yield render_scalar(value)


def _render_item(key: str, item: Any) -> Iterator[str]:
    if item and isinstance(item, (Mapping, list, tuple)):
        indent = "  " if isinstance(item, Mapping) else ""
        yield key
        yield from (f"{indent}{line}" for line in _render(item))
    else:
        yield f"{key} {next(_render(item))}"
