"""Removal of what a support bundle must not contain: credentials, and values of variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

REMOVED: Final = "<removed>"
# Metadata that is long, or repeats the whole object with everything that is removed elsewhere.
_METADATA: Final = frozenset({"managedFields"})
_ANNOTATIONS: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
# Variables whose values explain how Pelops runs; of all others only the name is kept.
_KNOWN_VARIABLE: Final = re.compile(r"PELOPS_(?!.*(PASSWORD|SECRET|TOKEN|KEY$))[A-Z_]+")
_CREDENTIAL_FIELD: Final = re.compile(r"(?i)(password|passwd|token|secret|credential|api_?key)$")
# Up to the last @ of the word: passwords may contain / and @.
_URL_CREDENTIALS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s\"']*@")
_NAMED_CREDENTIALS: Final = re.compile(
    r"(?i)\b((?:[a-z_]*(?:password|passwd|token|secret|credential)|authorization|api_?key)"
    r"[\"']?[ \t]*[:=][ \t]*[\"']?)(?:bearer\s+|basic\s+)?([^\s\"',;}\[{<]+)"
)


def redact_text(text: str) -> str:
    """Return a text, such as a log, without credentials in URLs and after words like password.

    >>> redact_text("connect redis://orders:pw@redis:6379, password=pw")
    'connect redis://<removed>@redis:6379, password=<removed>'
    """
    text = _URL_CREDENTIALS.sub(rf"\1{REMOVED}@", text)
    return _NAMED_CREDENTIALS.sub(rf"\1{REMOVED}", text)


def redact_object(value: Any) -> Any:
    """Return a Kubernetes object without credentials and without values of variables."""
    if isinstance(value, Mapping):
        if value.get("kind") == "Secret":
            return {"kind": "Secret", "metadata": {"name": value.get("metadata", {}).get("name")}}
        kept = {key: item for key, item in value.items() if key not in _METADATA}
        return {key: _redact_field(str(key), item) for key, item in kept.items()}
    if isinstance(value, (list, tuple)):
        return [redact_object(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def _redact_field(key: str, value: Any) -> Any:
    if key == "annotations" and isinstance(value, Mapping):
        value = {name: text for name, text in value.items() if name not in _ANNOTATIONS}
    if isinstance(value, str) and _CREDENTIAL_FIELD.search(key):
        return REMOVED
    if key == "env" and isinstance(value, (list, tuple)):
        return [_redact_variable(one) for one in value]
    return redact_object(value)


def _redact_variable(variable: Any) -> Any:
    if not isinstance(variable, Mapping) or "value" not in variable:
        return redact_object(variable)
    if _KNOWN_VARIABLE.fullmatch(str(variable.get("name"))):
        return redact_object(variable)
    return {**variable, "value": REMOVED}
