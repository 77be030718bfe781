"""Kubernetes Events about a resource, each written once even if several replicas report it.

The name contains a hash of the content; a second writer gets Conflict, which is a success.
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
    """The content of an Event about a resource."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str  # what Pelops did or tried
    note: str
    occurrence: str = ""  # distinguishes occurrences: a generation, a transition time


def build_event(
    subject: Manifest,
    happening: EventContent,
    *,
    reporter: str,
    now: datetime,
    kind: Kind = STREAM_CONSUMER_GROUP,
) -> Manifest:
    """Return the Event. Its name depends only on the resource, reason, note and occurrence."""
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
    """Shorten the note to `NOTE_LIMIT` bytes, in whole characters."""
    return note.encode(errors="replace")[:NOTE_LIMIT].decode(errors="ignore")


async def publish_event(api: KubeApi, event: Manifest) -> None:
    """Write the Event; an existing one is not changed."""
    try:
        await api.create(EVENT, event["metadata"]["namespace"], event)
    except Conflict:
        return
