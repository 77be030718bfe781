"""Tells people what happened: Kubernetes Events and metrics of facts. Never fails a turn."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Literal

from pelops.api.meta import ObjectMeta
from pelops.controller.group.status import Status
from pelops.domain.observation import (
    GroupBacklog,
    GroupObservation,
    RetryObservation,
    StreamObservation,
)
from pelops.errors import KubernetesError
from pelops.kube.client import KubeApi
from pelops.kube.events import Happening, build_event, publish_event
from pelops.kube.resources import STREAM_CONSUMER_GROUP, Kind
from pelops.metrics import GROUP_FACTS, STREAM_FACTS, forget_stream
from pelops.policy.status.facts import Facts
from pelops.policy.status.reasons import ALARMS, AUDIT_ALARMS, UNDER_WAY, ConditionType

log = logging.getLogger(__name__)

_PARTS: Final = ("main", "retry")  # values of the label `stream`


class Reporter:
    """Writes Events and sets gauges."""

    def __init__(self, api: KubeApi, *, identity: str, kind: Kind = STREAM_CONSUMER_GROUP) -> None:
        """`kind` is that of the resources that it speaks of."""
        self._api = api
        self._identity = identity
        self._kind = kind

    async def tell(self, metadata: ObjectMeta, happening: Happening) -> None:
        """Publish an Event about a resource once; a failure is logged and nothing more."""
        subject = {
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            }
        }
        event = build_event(
            subject, happening, reporter=self._identity, now=datetime.now(UTC), kind=self._kind
        )
        try:
            await publish_event(self._api, event)
        except KubernetesError as error:
            log.warning("cannot publish the event %s: %s", happening.reason, error)

    async def tell_transition(self, metadata: ObjectMeta, before: Status, after: Status) -> None:
        """An Event when Ready flips or finds another reason, and one for each alarm that begins."""
        for happening in list_transitions(before, after):
            await self.tell(metadata, happening)

    def measure(self, facts: Facts, *, is_ready: bool) -> None:
        """Set the gauges of one resource."""
        metadata = facts.resource.metadata
        name = (metadata.namespace, metadata.name)
        values = {
            "ready": float(is_ready),
            "replicas": float(facts.workload.current),
            "desired": float(_desired(facts)),
        }
        for fact, value in values.items():
            GROUP_FACTS[fact].labels(*name).set(value)
        measure_group(name, None if facts.is_foreign else facts.stream)


def _desired(facts: Facts) -> int:
    """The replicas wanted. A replica of the operator that does not decide repeats the status."""
    status, decision = facts.resource.status, facts.scaling
    told = status.desired_replicas if status and decision is None else None
    decided = decision.replicas if decision is not None else told
    return facts.workload.wished or 0 if decided is None else decided


def measure_group(name: tuple[str, str], stream: StreamObservation | None) -> None:
    """Set the gauges of what a look at Redis found; None: it could not be looked at."""
    for fact, value in _group_values(stream).items():
        GROUP_FACTS[fact].labels(*name).set(value)
    if stream is None or stream.group is None:
        for part in [label for label in _PARTS if _is_measured(name, label)]:
            _measure_part(name, part, dict.fromkeys(STREAM_FACTS, math.nan))
        return
    _measure_part(name, "main", _backlog_values(stream.group, stream.server_time))
    if stream.retry is None:
        forget_stream(*name, "retry")
    else:
        _measure_part(name, "retry", _backlog_values(stream.retry, stream.server_time))


def _is_measured(name: tuple[str, str], part: str) -> bool:
    return (*name, part) in STREAM_FACTS["lag"]._metrics


def _measure_part(name: tuple[str, str], part: str, values: dict[str, float]) -> None:
    for fact, value in values.items():
        STREAM_FACTS[fact].labels(*name, part).set(value)


def _group_values(stream: StreamObservation | None) -> dict[str, float]:
    backlog = None if stream is None else stream.backlog
    if stream is None or stream.group is None or backlog is None:
        # What cannot be seen is not what was seen last.
        return dict.fromkeys(
            ("lag", "pending", "oldest", "consumers", "dead_letters", "offered"), math.nan
        )
    return {
        **_backlog_values(backlog, stream.server_time),
        "consumers": float(stream.group.consumers),
        "dead_letters": float(stream.dead_letters),
        "offered": float(stream.state.report.offered),
    }


def _backlog_values(
    of: GroupBacklog | GroupObservation | RetryObservation, now: datetime
) -> dict[str, float]:
    oldest = of.lowest_pending
    return {
        "lag": math.nan if of.lag is None else float(of.lag),
        "pending": float(of.pending),
        "oldest": 0.0 if oldest is None else max(0.0, now.timestamp() - oldest.ms / 1000),
    }


def list_transitions(before: Status, after: Status) -> Iterator[Happening]:
    """What became of a resource from one status to the next, for people. Depends on these alone."""
    ready = _find(after, ConditionType.READY)
    if ready and ready["reason"] != _find(before, ConditionType.READY).get("reason"):
        is_well = ready["status"] == "True" or ready["reason"] in UNDER_WAY
        yield _happening(ready, action="Reconcile", severity="Normal" if is_well else "Warning")
    for kind in (*ALARMS, *AUDIT_ALARMS):
        alarm = _find(after, kind)
        if alarm and not _find(before, kind):
            yield _happening(alarm, action="Observe", severity="Warning")


def _happening(
    condition: Status, *, action: str, severity: Literal["Normal", "Warning"]
) -> Happening:
    return Happening(
        type=severity,
        reason=condition["reason"],
        action=action,
        note=condition["message"],
        occurrence=f"{condition['lastTransitionTime']}/{condition['observedGeneration']}",
    )


def _find(status: Status, kind: str) -> Status:
    conditions = status.get("conditions") or ()
    return next((dict(c) for c in conditions if c.get("type") == kind), {})
