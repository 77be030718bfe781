"""The parts of an object that the cache keeps, with large ones compressed and a limit on its size.

As dicts an object takes up to 25 times the memory of its JSON. Therefore objects share equal
strings. Large pod templates are kept compressed, because they are read only to
build workloads. An object above the size limit is kept without its content, and refused when it is
used.
"""

from __future__ import annotations

import copy
import json
import sys
import zlib
from collections.abc import Mapping
from typing import Any, Final

from pelops.domain.records.packed_parts import PACKED, unpack
from pelops.errors import InvalidSpec
from pelops.kube.json_text import MOST_DEPTH, TOO_DEEP

SMALL_BYTES: Final = 8 * 1024  # of JSON; up to here an object is kept as it is
# The limit of kubectl apply too, which keeps the whole object in an annotation.
MOST_TEMPLATE_BYTES: Final = 256 * 1024
MOST_OTHER_BYTES: Final = 128 * 1024  # of the rest, without the status

MOST_FINALIZERS: Final = 100

_TEMPLATES: Final = ("template", "jobTemplate")  # of the spec
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_OURS: Final = ("pelops.dev/", "app.kubernetes.io/")
_STUB: Final = (
    *("name", "namespace", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp"),
)
# Fields of the specs of pelops.dev that are read without parsing the object first. The schemas of
# the CRDs have these types; those of another version may differ.
_TEXT: Final = str
_OBJECTS: Final[Mapping[str, Any]] = {
    "redis": {
        "url": _TEXT,
        "secretRef": {},
        "sentinel": {"masterName": _TEXT, "nodes": [_TEXT]},
    },
    "retention": {},
    "scaling": {},
    "targetRef": {"apiVersion": _TEXT, "kind": _TEXT, "name": _TEXT},
    "template": {},
    "recovery": {"locks": {}, "tuning": {}},
    "deadLetter": {},
    "stream": _TEXT,
    "group": _TEXT,
    "groups": [_TEXT],
    "groupRef": {"name": _TEXT},
}
_REFUSED: Final = "pelops.dev/refused"

Manifest = dict[str, Any]


def trim(manifest: Manifest) -> Manifest:
    """Return what is kept of an object, without its field managers."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    annotations = metadata.get("annotations")
    if annotations and _LAST_APPLIED in annotations:
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != _LAST_APPLIED}
    spec = manifest.get("spec")
    trimmed = {**manifest, "metadata": metadata}
    if "spec" in manifest and spec is None:
        trimmed["spec"] = {}
    misshapen = _find_misshapen(_OBJECTS, spec, "spec")
    if misshapen:
        return _stub(trimmed, f"has another type in {misshapen} than it has to have")
    text = json.dumps({**trimmed, "status": None})
    if len(text) <= SMALL_BYTES and TOO_DEEP not in text:
        return {key: _share(value) for key, value in trimmed.items()}
    return _trim_large(trimmed, text)


def pack(manifest: Manifest) -> Manifest:
    """Return what is kept of an object that is only compared after a change: no status."""
    kept = {key: value for key, value in trim(manifest).items() if key != "status"}
    return {**kept, "spec": _compress(unpack(kept["spec"]))} if "spec" in kept else kept


def is_kept(manifest: Mapping[str, Any]) -> bool:
    """Whether the content of an object was kept, not only its name."""
    return _REFUSED not in manifest


def check_kept(manifest: Mapping[str, Any]) -> None:
    """Raise InvalidSpec for an object of which only the name was kept."""
    if not is_kept(manifest):
        raise InvalidSpec(str(manifest[_REFUSED]))


def copy_template(template: Mapping[str, Any] | None) -> Manifest:
    """Return the whole pod template of a kept resource, as a copy; empty for None."""
    copied: Manifest = copy.deepcopy(unpack(template or {}))
    return copied


def _find_misshapen(wanted: Any, value: Any, path: str) -> str:
    """Return the path of the first field with a wrong type; empty if there is none."""
    if value is None:
        return ""
    if isinstance(wanted, Mapping):
        if not isinstance(value, Mapping):
            return path
        parts = (
            _find_misshapen(one, value.get(name), f"{path}.{name}") for name, one in wanted.items()
        )
        return next(filter(None, parts), "")
    if isinstance(wanted, list):
        fits = isinstance(value, list) and all(isinstance(one, wanted[0]) for one in value)
        return "" if fits else path
    return "" if isinstance(value, wanted) else path


def _trim_large(manifest: Manifest, text: str) -> Manifest:
    if TOO_DEEP in text:
        return _stub(manifest, f"is nested deeper than {MOST_DEPTH} levels: make it flatter")
    metadata, spec = dict(manifest["metadata"]), dict(manifest.get("spec") or {})
    for field in ("annotations", "labels"):
        pairs = metadata.get(field) or {}
        metadata[field] = {k: v for k, v in pairs.items() if k.startswith(_OURS)}
    for field in _TEMPLATES:
        template = spec.pop(field, None)
        if template is None:
            continue
        size = len(json.dumps(template))
        if size > MOST_TEMPLATE_BYTES:
            why = f"has {_kib(size)} in spec.{field}, of which at most {_kib(MOST_TEMPLATE_BYTES)}"
            return _stub(manifest, f"{why} are allowed: move large values into ConfigMaps")
        manifest = {**manifest, "spec": {**(manifest["spec"]), field: _pack(template)}}
    size = len(json.dumps({"metadata": metadata, "spec": spec}))
    if size > MOST_OTHER_BYTES:
        why = f"has {_kib(size)} beside its pod template, of which at most"
        return _stub(manifest, f"{why} {_kib(MOST_OTHER_BYTES)} are allowed: make it smaller")
    return {**manifest, "metadata": metadata}


def _pack(template: Any) -> Any:
    """Return the parts of a template, each compressed if it is large."""
    if not isinstance(template, Mapping):
        return template
    if len(template) > len(("metadata", "spec")):
        return _packed(template)
    return {key: _packed(value) for key, value in template.items()}


def _packed(value: Any) -> Any:
    return _compress(value) if len(json.dumps(value)) > SMALL_BYTES / 2 else value


def _compress(value: Any) -> Manifest:
    return {PACKED: zlib.compress(json.dumps(value).encode(), 1)}


def _share(value: Any) -> Any:
    """Return the value with interned keys and words, which most objects have in common."""
    if isinstance(value, dict):
        return {sys.intern(key): _share(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_share(item) for item in value]
    return sys.intern(value) if isinstance(value, str) and value.isalpha() else value


def _stub(manifest: Manifest, why: str) -> Manifest:
    """Return the object without its content, and with the reason for its refusal."""
    metadata = manifest["metadata"]
    kept = {key: metadata[key] for key in _STUB if key in metadata}
    for field in ("annotations", "labels"):
        pairs = metadata.get(field) or {}
        kept[field] = {k: v for k, v in pairs.items() if k.startswith("pelops.dev/")}
    finalizers = metadata.get("finalizers") or ()
    kept["finalizers"] = list(finalizers) if len(finalizers) <= MOST_FINALIZERS else []
    owners = metadata.get("ownerReferences") or ()
    kept["ownerReferences"] = [one for one in owners if one.get("controller")]
    refusal = f"the {manifest.get('kind') or 'object'} {why}"
    return {
        "apiVersion": manifest.get("apiVersion"),
        "kind": manifest.get("kind"),
        "metadata": kept,
        "spec": {},
        "status": manifest.get("status"),
        _REFUSED: refusal,
    }


def _kib(size: int) -> str:
    return f"{-(-size // 1024)} KiB"
