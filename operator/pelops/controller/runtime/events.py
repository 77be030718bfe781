"""Kubernetes Events about resources of any kind. Reporting never fails a pass."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pelops.api.schema.base import ObjectMeta
from pelops.errors import KubernetesError
from pelops.kube.client import Kind, KubeApi
from pelops.kube.event_recorder import EventContent, build_event, publish_event
from pelops.policy.status.reasons import BEGINNING, UNDER_WAY, ConditionType

log = logging.getLogger(__name__)


class Reporter:
    """Writes Events about the resources of one kind."""

    def __init__(self, api: KubeApi, kind: Kind, *, identity: str) -> None:
        """`identity` is that of this replica."""
        self._api = api
        self._kind = kind
        self._identity = identity

    async def report(self, metadata: ObjectMeta, content: EventContent) -> None:
        """Publish an Event about a resource once; a failure is logged and nothing more."""
        subject = {
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            }
        }
        event = build_event(
            subject, content, reporter=self._identity, now=datetime.now(UTC), kind=self._kind
        )
        try:
            await publish_event(self._api, event)
        except KubernetesError as error:
            log.warning("Could not write the Event %s: %s", content.reason, error)


def list_transitions(
    before: Mapping[str, Any], after: Mapping[str, Any], alarms: Iterable[str]
) -> Iterator[EventContent]:
    """The Events for the change from one status to another, derived from the two alone.

    One if the reason of Ready has changed, and one for each of these conditions that has begun. No
    Event reports that the workers of a new resource are not ready yet.
    """
    ready, former = _find(after, ConditionType.READY), _find(before, ConditionType.READY)
    is_beginning = not former and ready.get("reason") in BEGINNING
    if ready and ready["reason"] != former.get("reason") and not is_beginning:
        is_well = ready["status"] == "True" or ready["reason"] in UNDER_WAY
        yield _build_event(ready, action="Reconcile", severity="Normal" if is_well else "Warning")
    for kind in alarms:
        alarm = _find(after, kind)
        if alarm and not _find(before, kind):
            yield _build_event(alarm, action="Observe", severity="Warning")


def _build_event(
    condition: Mapping[str, Any], *, action: str, severity: Literal["Normal", "Warning"]
) -> EventContent:
    return EventContent(
        type=severity,
        reason=condition["reason"],
        action=action,
        note=condition["message"],
        occurrence=f"{condition['lastTransitionTime']}/{condition['observedGeneration']}",
    )


def _find(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = status.get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})
