"""Tells people what happened: Kubernetes Events and metrics of facts. Never fails a turn."""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime

from pelops.api.meta import ObjectMeta
from pelops.controller.status import Status
from pelops.errors import KubernetesError
from pelops.kube.client import KubeApi
from pelops.kube.events import Happening, build_event, publish_event
from pelops.metrics import GROUP_FACTS
from pelops.policy.facts import Facts
from pelops.policy.reasons import UNDER_WAY

log = logging.getLogger(__name__)


class Reporter:
    """Writes Events and sets gauges."""

    def __init__(self, api: KubeApi, *, identity: str) -> None:
        self._api = api
        self._identity = identity

    async def tell(self, metadata: ObjectMeta, happening: Happening) -> None:
        """Publish an Event about a resource once; a failure is logged and nothing more."""
        subject = {
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            }
        }
        event = build_event(subject, happening, reporter=self._identity, now=datetime.now(UTC))
        try:
            await publish_event(self._api, event)
        except KubernetesError as error:
            log.warning("cannot publish the event %s: %s", happening.reason, error)

    async def tell_transition(self, metadata: ObjectMeta, before: Status, after: Status) -> None:
        """An Event when Ready flips or finds another reason."""
        old, new = _ready(before), _ready(after)
        if new is None or (old or {}).get("reason") == new["reason"]:
            return
        happening = Happening(
            type="Normal" if new["status"] == "True" or new["reason"] in UNDER_WAY else "Warning",
            reason=new["reason"],
            action="Reconcile",
            note=new["message"],
            occurrence=f"{new['lastTransitionTime']}/{new['observedGeneration']}",
        )
        await self.tell(metadata, happening)

    def measure(self, facts: Facts, *, is_ready: bool, now: datetime) -> None:
        """Set the gauges of one resource."""
        metadata = facts.resource.metadata
        labels = (metadata.namespace, metadata.name)
        values = {
            "ready": float(is_ready),
            "replicas": float(facts.workload.current),
            "desired": float(
                facts.scaling.replicas
                if facts.scaling.replicas is not None
                else facts.workload.wished or 0
            ),
            **_group_values(facts, now),
        }
        for name, value in values.items():
            GROUP_FACTS[name].labels(*labels).set(value)


def _group_values(facts: Facts, now: datetime) -> dict[str, float]:
    if facts.stream is None or facts.stream.group is None:
        # What cannot be seen is not what was seen last.
        return dict.fromkeys(("lag", "pending", "oldest", "consumers", "dead_letters"), math.nan)
    group = facts.stream.group
    oldest = group.lowest_pending
    age = 0.0 if oldest is None else max(0.0, now.timestamp() - oldest.ms / 1000)
    return {
        "lag": math.nan if group.lag is None else float(group.lag),
        "pending": float(group.pending),
        "oldest": age,
        "consumers": float(group.consumers),
        "dead_letters": float(facts.stream.dead_letters),
    }


def _ready(status: Status) -> Status | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            return dict(condition)
    return None
