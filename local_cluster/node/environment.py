"""The environment and command line of a container, by the kubelet's rules. Pure."""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from local_cluster.node.fields import KubeObject, UnknownField, field_value, resource_value

# (plural of the kind, name); None in `objects` means that the API server has no such object.
Reference = tuple[str, str]
Objects = Mapping[Reference, KubeObject | None]

_ESCAPE_OR_VARIABLE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SOURCE_FIELDS = {
    "secretRef": "secrets",
    "secretKeyRef": "secrets",
    "configMapRef": "configmaps",
    "configMapKeyRef": "configmaps",
}
_KINDS = {"secrets": "Secret", "configmaps": "ConfigMap"}


class ConfigError(Exception):
    """The container cannot be configured yet; the text is shown as the waiting message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """What a pod may ask about itself."""

    pod: KubeObject
    addresses: Mapping[str, str]  # by fieldPath: status.podIP, status.hostIP, ...
    allocatable: Mapping[str, str]  # of the node


def expand(text: str, values: Mapping[str, str]) -> str:
    """`text` with each $(NAME) replaced; an unknown name stays as written, and $$ means one $."""

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return values.get(match[1], match[0])

    return _ESCAPE_OR_VARIABLE.sub(replace, text)


def find_references(container: KubeObject) -> set[Reference]:
    """The Secrets and ConfigMaps that the container's environment is made of."""
    found = {
        reference for source in container.get("envFrom") or [] for reference, _ in _sources(source)
    }
    for variable in container.get("env") or []:
        found |= {reference for reference, _ in _sources(variable.get("valueFrom") or {})}
    return found


def _sources(source: KubeObject) -> Iterator[tuple[Reference, KubeObject]]:
    for field, kind in _SOURCE_FIELDS.items():
        if source.get(field):
            yield (kind, source[field].get("name", "")), source[field]


def build_environment(container: KubeObject, facts: PodFacts, objects: Objects) -> dict[str, str]:
    """The variables that the pod gives this container; raises ConfigError."""
    values: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        prefix = source.get("prefix") or ""
        for reference, wanted in _sources(source):
            content = _content(reference, objects, optional=bool(wanted.get("optional")))
            values |= {
                prefix + key: value.decode(errors="replace") for key, value in content.items()
            }
    for variable in container.get("env") or []:
        value = _variable(variable, values, container, facts, objects)
        if value is not None:
            values[variable["name"]] = value
    return values


def _variable(
    variable: KubeObject,
    values: Mapping[str, str],
    container: KubeObject,
    facts: PodFacts,
    objects: Objects,
) -> str | None:
    source = variable.get("valueFrom")
    if not source:
        return expand(variable.get("value") or "", values)
    for reference, wanted in _sources(source):
        return _key(reference, wanted, facts, objects)
    try:
        if "fieldRef" in source:
            return field_value(facts.pod, source["fieldRef"]["fieldPath"], facts.addresses)
        if "resourceFieldRef" in source:
            return resource_value(
                facts.pod, container, source["resourceFieldRef"], facts.allocatable
            )
    except (UnknownField, ValueError) as error:
        raise ConfigError(str(error)) from error
    raise ConfigError(f"{variable['name']}: unsupported valueFrom: {', '.join(source)}")


def _key(reference: Reference, wanted: KubeObject, facts: PodFacts, objects: Objects) -> str | None:
    content = _content(reference, objects, optional=bool(wanted.get("optional")))
    value = content.get(wanted["key"])
    if value is None and not wanted.get("optional"):
        kind, namespace = _KINDS[reference[0]], facts.pod["metadata"]["namespace"]
        raise ConfigError(f"couldn't find key {wanted['key']} in {kind} {namespace}/{reference[1]}")
    return None if value is None else value.decode(errors="replace")


def _content(reference: Reference, objects: Objects, *, optional: bool) -> dict[str, bytes]:
    found = objects.get(reference)
    if found is None and not optional:
        raise ConfigError(f'{_KINDS[reference[0]].lower()} "{reference[1]}" not found')
    return read_content(reference, found)


def read_content(reference: Reference, found: KubeObject | None) -> dict[str, bytes]:
    """The keys and values of a Secret or ConfigMap; empty for one that is not there."""
    if found is None:
        return {}
    if reference[0] == "secrets":
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    texts = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    return texts | {
        key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()
    }


def build_command(container: KubeObject, values: Mapping[str, str]) -> list[str]:
    """Command and args, expanded; empty when the container leaves the command to its image."""
    command = container.get("command") or []
    return (
        [expand(part, values) for part in [*command, *(container.get("args") or [])]]
        if command
        else []
    )
