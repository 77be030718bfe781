"""Facts for tests that need no server. Each case states only what matters to it; all else is well.

`resource(suspend=True)`, `stream(group=None)`, `workload(ready=0)`, `facts(redis_problem=...)`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.records.state import OWNERSHIP_LIFETIME, OwnerRecord, OwnershipRecord
from pelops.domain.stream_observation import GroupObservation, StreamObservation
from pelops.domain.workload import PodObservation, Target, WorkloadObservation
from pelops.policy.scaling.decision import NOT_DECIDED, decide_fixed
from pelops.policy.status.facts import Facts

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
TARGET = Target(api_version="apps/v1", kind="Deployment", namespace="shop", name="order-workers")
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "worker", "image": "orders:1"}]}}


def manifest(
    *, metadata: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A resource as the API server shows it; `spec` takes the fields in snake_case."""
    named = {"redis": {"url": "redis://redis:6379"}, "stream": "orders:events", **spec}
    if "template" not in spec and "target_ref" not in spec:
        named["target_ref"] = {"name": TARGET.name}
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {
            "name": "order-processing",
            "namespace": "shop",
            "uid": "uid-1",
            "generation": 1,
            "creationTimestamp": "2026-05-04T03:02:01Z",
            **(metadata or {}),
        },
        "spec": named,
        "status": status,
    }


def resource(**changes: Any) -> StreamConsumerGroup:
    """A resource with a target of its own; with `template` one whose workers the operator runs."""
    return StreamConsumerGroup.parse(manifest(**changes))


def keys(of: StreamConsumerGroup | None = None) -> GroupKeys:
    """The keys of a resource."""
    of = of or resource()
    return derive_keys(of.spec.stream, of.group_name, dead_letter=of.spec.dead_letter.stream)


def owner(**changes: Any) -> OwnerRecord:
    """The record of `resource()`."""
    usual = OwnerRecord(
        uid="uid-1", cluster="c1", namespace="shop", name="order-processing", created=NOW
    )
    return replace(usual, **changes)


def ownership(**changes: Any) -> OwnershipRecord:
    """A fresh hold of `owner()`."""
    return replace(OwnershipRecord(owner=owner(), owned_until=NOW + OWNERSHIP_LIFETIME), **changes)


def group(**changes: Any) -> GroupObservation:
    """A group that was delivered everything and has no backlog."""
    usual = GroupObservation(
        last_delivered_id=EntryId(1700000000000),
        pending=0,
        lag=0,
        consumers=1,
        entries_read=3,
        lowest_pending=None,
    )
    return replace(usual, **changes)


def stream(**changes: Any) -> StreamObservation:
    """A stream whose group is complete and held by `owner()`."""
    usual = StreamObservation(
        server_time=NOW,
        exists=True,
        length=3,
        last_generated_id=EntryId(1700000000000),
        first_id=EntryId(1600000000000),
        entries_added=3,
        groups=1,
        group=group(),
        dead_letters=0,
        dead_letter_exists=True,
        ledger_exists=True,
        ownership=ownership(),
    )
    return replace(usual, **changes)


def empty_redis(**changes: Any) -> StreamObservation:
    """What is seen before anything was made."""
    return stream(
        **{
            "exists": False,
            "length": 0,
            "last_generated_id": EntryId.MIN,
            "first_id": None,
            "entries_added": None,
            "groups": 0,
            "group": None,
            "dead_letter_exists": False,
            "ledger_exists": False,
            "ownership": None,
            **changes,
        }
    )


def pod(**changes: Any) -> PodObservation:
    """A pod that runs and is ready."""
    usual = PodObservation(
        name="w-1", uid="pod-1", node="n1", phase="Running", is_ready=True, is_deleting=False
    )
    return replace(usual, **changes)


def workload(**changes: Any) -> WorkloadObservation:
    """Two workers of two, both ready."""
    usual = WorkloadObservation(
        target=TARGET,
        exists=True,
        uid="dep-1",
        wished=2,
        current=2,
        ready=2,
        selector="app=orders",
        pods=(pod(), pod(name="w-2", uid="pod-2")),
    )
    return replace(usual, **changes)


def facts(**changes: Any) -> Facts:
    """Everything is well; `scaling` and `keys` follow from the resource unless given."""
    asked = changes.get("resource", resource())
    seen = changes.get("workload", workload())
    usual = Facts(
        resource=asked,
        workload=seen,
        scaling=decide_fixed(asked.spec, seen) or NOT_DECIDED,
        keys=keys(asked),
        stream=stream(),
        server_version="8.6.0",
        topology="Standalone",
    )
    return replace(usual, **changes)


def later(**duration: float) -> datetime:
    """A moment after NOW: `later(seconds=30)`."""
    return NOW + timedelta(**duration)
