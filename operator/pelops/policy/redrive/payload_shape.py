"""The shape of a payload, without its values: field names, and the kind of each value.

    amount=number body={"id":number,"lines":[{"sku":text}]} tenant=text

Payloads that differ only in values, the order of fields or the length of lists have equal shapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

SHAPE_LIMIT: Final = 400  # characters
_MOST_FIELDS: Final = 40
_MOST_KEYS: Final = 12  # of an object
_MOST_KINDS: Final = 3  # of a list's items
_MOST_ITEMS: Final = 50  # of a list; further ones are ignored
_DEEPEST: Final = 4
_NAME_LIMIT: Final = 48
_JSON_LIMIT: Final = 64 * 1024  # bytes; more is not parsed
_NUMBER: Final = re.compile(
    rb"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,6})?"
)
_DIGITS: Final = re.compile(r"[0-9]+")
_OPENS: Final = (b"{", b"[")

Fields = Sequence[tuple[bytes, bytes]]  # names and values in their order


def describe_shape(fields: Fields) -> str:
    """Return the shape of an entry's fields, at most `SHAPE_LIMIT` characters. Total.

    Numbers within names count as values: `item1` and `item2` are the same name.
    """
    kinds: dict[str, set[str]] = {}
    for name, value in fields:
        kinds.setdefault(_show_name(name.decode("utf-8", "replace")), set()).add(value_kind(value))
    shown = [f"{name}={'|'.join(sorted(kinds[name]))}" for name in sorted(kinds)[:_MOST_FIELDS]]
    if len(kinds) > _MOST_FIELDS:
        shown.append("…")
    return _cut(" ".join(shown))


def value_kind(value: bytes) -> str:
    """`empty`, `number`, `true/false`, `text`, `binary`, `large`, or the shape of a JSON value."""
    if not value:
        return "empty"
    if len(value) > _JSON_LIMIT:
        return "large"
    if _NUMBER.fullmatch(value):
        return "number"
    if value.lower() in {b"true", b"false"}:
        return "true/false"
    if value.lstrip()[:1] in _OPENS:
        return _json_shape(value)
    return "text" if _is_text(value) else "binary"


def _json_shape(value: bytes) -> str:
    try:
        return _cut(_shape_of(json.loads(value, parse_constant=_refuse), 0))
    except (ValueError, RecursionError):
        return "text" if _is_text(value) else "binary"


def _shape_of(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        return _object_shape(value, depth)
    if isinstance(value, list):
        return _list_shape(value, depth)
    return _scalar_kind(value)


def _scalar_kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true/false"
    return "number" if isinstance(value, int | float) else "text"


def _object_shape(value: Mapping[str, Any], depth: int) -> str:
    if depth >= _DEEPEST:
        return "{…}"
    kinds: dict[str, set[str]] = {}
    for name, inner in value.items():
        kinds.setdefault(_show_name(name), set()).add(_shape_of(inner, depth + 1))
    shown = [f"{_quote(name)}:{'|'.join(sorted(kinds[name]))}" for name in sorted(kinds)]
    return f"{{{','.join(_some(shown, _MOST_KEYS))}}}"


def _list_shape(value: Sequence[Any], depth: int) -> str:
    if depth >= _DEEPEST:
        return "[…]"
    kinds = sorted({_shape_of(item, depth + 1) for item in value[:_MOST_ITEMS]})
    return f"[{'|'.join(_some(kinds, _MOST_KINDS))}]"


def _some(texts: Sequence[str], most: int) -> Iterable[str]:
    return texts if len(texts) <= most else [*texts[:most], "…"]


def _show_name(name: str) -> str:
    shown = _DIGITS.sub("#", name[: 4 * _NAME_LIMIT])
    return shown if len(shown) <= _NAME_LIMIT else f"{shown[: _NAME_LIMIT - 1]}…"


def _quote(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _is_text(value: bytes) -> bool:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return "\0" not in text


def _cut(text: str) -> str:
    return text if len(text) <= SHAPE_LIMIT else f"{text[: SHAPE_LIMIT - 1]}…"


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
