"""The pod that a consumer was last matched to, as the group's state remembers it."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """One field `pod:<consumer>`: what tells of a pod whose end nobody saw."""

    uid: str
    name: str
    node: str
    grace_s: float
    namespace: str
    cluster: str = ""  # identity of its Kubernetes cluster; empty when unknown
    is_successor: bool = False  # earlier pods of its name were proven to have ended


def parse_pod_record(text: str | None) -> PodRecord | None:
    """The record; None when there is none, or whatever is there does not fit."""
    try:
        fields = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    words = [fields.get(name, "") for name in ("uid", "name", "node", "namespace", "cluster")]
    grace_s = fields.get("grace_s")
    if not all(isinstance(word, str) for word in words) or not all(words[:2]):
        return None
    if isinstance(grace_s, bool) or not isinstance(grace_s, int | float) or not grace_s >= 0:
        return None
    uid, name, node, namespace, cluster = words
    return PodRecord(
        uid=uid,
        name=name,
        node=node,
        grace_s=min(float(grace_s), 1e9),
        namespace=namespace,
        cluster=cluster,
        is_successor=fields.get("is_successor") is True,
    )


def render_pod_record(record: PodRecord) -> str:
    """The field's value: the same record, the same text."""
    fields = {
        "uid": record.uid,
        "name": record.name,
        "node": record.node,
        "grace_s": record.grace_s,
        "namespace": record.namespace,
    }
    if record.cluster:
        fields["cluster"] = record.cluster
    if record.is_successor:
        fields["is_successor"] = True
    return json.dumps(fields, separators=(",", ":"))
