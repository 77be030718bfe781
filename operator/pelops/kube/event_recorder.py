"""Kubernetes Events about a resource, each written once however many replicas see the cause.

The name is a hash of what happened; a second writer gets Conflict, which is success.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pelops.errors import Conflict
from pelops.kube.client import EVENT, STREAM_CONSUMER_GROUP, Kind, KubeApi, Manifest

NOTE_LIMIT = 1024  # bytes, by events.k8s.io/v1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventContent:
    """Something worth telling about a resource."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str  # what Pelops did or tried
    note: str
    occurrence: str = ""  # tells one occurrence from the next: a generation, a transition time


def build_event(
    subject: Manifest,
    happening: EventContent,
    *,
    reporter: str,
    now: datetime,
    kind: Kind = STREAM_CONSUMER_GROUP,
) -> Manifest:
    """The Event. Its name depends on the resource, the happening and its occurrence alone."""
    metadata = subject["metadata"]
    seed = "\0".join((metadata["uid"], happening.reason, happening.note, happening.occurrence))
    digest = hashlib.blake2b(seed.encode(errors="backslashreplace"), digest_size=8).hexdigest()
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "name": f"{metadata['name']}.{digest}",
            "namespace": metadata["namespace"],
        },
        # A MicroTime without a fraction is refused.
        "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": happening.type,
        "reason": happening.reason,
        "action": happening.action,
        "note": _shorten(happening.note),
        "regarding": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "reportingController": "pelops.dev/operator",
        "reportingInstance": reporter[:128],
    }


def _shorten(note: str) -> str:
    """As much of the note as fits, in whole characters."""
    return note.encode(errors="replace")[:NOTE_LIMIT].decode(errors="ignore")


async def publish_event(api: KubeApi, event: Manifest) -> None:
    """Write the Event; one that is already there is left as it is."""
    try:
        await api.create(EVENT, event["metadata"]["namespace"], event)
    except Conflict:
        return
