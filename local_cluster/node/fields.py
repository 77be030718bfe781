"""Values a pod can ask for about itself: fieldRef, resourceFieldRef, and the quantities in them."""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

KubeObject = dict[str, Any]

_SUFFIXES = {
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("num", -3)},
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate(["", *"kMGTPE"])},
    **{f"{suffix}i": Decimal(2) ** (10 * power) for power, suffix in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class UnknownField(Exception):
    """The pod asks for a field that this node cannot give."""


def parse_quantity(text: str) -> Decimal:
    """A Kubernetes quantity ("250m", "1Gi") as a number; raises ValueError."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in _SUFFIXES:
        raise ValueError(f"not a quantity: {text!r}")
    return Decimal(match[1]) * _SUFFIXES[match[2]]


def field_value(pod: KubeObject, path: str, addresses: Mapping[str, str]) -> str:
    """What `fieldRef.fieldPath` stands for; `addresses` holds status.podIP and status.hostIP."""
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript is not None:
        return str((pod["metadata"].get(subscript[1]) or {}).get(subscript[2], ""))
    if path in addresses:
        return addresses[path]
    meta, spec = pod["metadata"], pod["spec"]
    known = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "metadata.labels": _render_map(meta.get("labels")),
        "metadata.annotations": _render_map(meta.get("annotations")),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
    }
    if path not in known:
        raise UnknownField(f"unsupported fieldPath: {path}")
    return str(known[path])


def _render_map(pairs: Mapping[str, str] | None) -> str:
    escaped = (
        (key, value.replace("\\", "\\\\").replace('"', '\\"'))
        for key, value in sorted((pairs or {}).items())
    )
    return "\n".join(f'{key}="{value}"' for key, value in escaped)


def resource_value(
    pod: KubeObject, container: KubeObject, ref: KubeObject, node: Mapping[str, str]
) -> str:
    """What `resourceFieldRef` stands for, in units of its divisor and rounded up.

    A limit that is not set is the node's allocatable amount, a request that is not set is zero.
    """
    owner = container
    if ref.get("containerName"):
        owner = next(
            one for one in pod["spec"]["containers"] if one["name"] == ref["containerName"]
        )
    kind, _, resource = ref["resource"].partition(".")
    resources = owner.get("resources") or {}
    asked = (resources.get(kind) or {}).get(resource)
    if asked is None and kind == "limits":
        asked = node.get(resource)
    divisor = parse_quantity(str(ref.get("divisor") or "1")) or Decimal(1)
    amount = parse_quantity(str(asked or "0")) / divisor
    return str(amount.to_integral_value(ROUND_CEILING))
