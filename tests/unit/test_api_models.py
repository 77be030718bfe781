"""What a reader of a resource gets from `StreamConsumerGroup.parse`."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from pelops.api import (
    ConditionStatus,
    GroupStatus,
    ScalingSpec,
    StatusCondition,
    StreamConsumerGroup,
    StreamConsumerGroupStatus,
)
from pelops.api.group.recovery import DEFAULT_RECOVERY_STRATEGY, RecoverySpec, RecoveryStrategy
from pelops.api.group.scaling import DEFAULT_SCALING_MODE
from pelops.errors import InvalidSpec


def build_resource(**spec: Any) -> dict[str, Any]:
    """Return the smallest resource, with these fields of the spec besides."""
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": "order-processing", "namespace": "shop", "uid": "u1", "generation": 3},
        "spec": {
            "redis": {"secretRef": {"name": "orders-redis"}},
            "stream": "orders:events",
            "targetRef": {"name": "order-workers"},
            **spec,
        },
    }


def test_the_smallest_resource_has_every_default() -> None:
    parsed = StreamConsumerGroup.parse(build_resource(scaling={"maxReplicas": 20}))

    assert parsed.spec.target_ref is not None
    assert parsed.spec.target_ref.kind == "Deployment"
    assert parsed.spec.start_from == "Beginning"
    assert parsed.spec.replicas == 1
    assert parsed.spec.scaling is not None
    assert parsed.spec.scaling.mode is DEFAULT_SCALING_MODE
    assert parsed.spec.scaling.max_replicas == 20
    assert parsed.spec.scaling.behavior.scale_down.stabilization_window_seconds == 60
    assert parsed.spec.recovery.strategy is DEFAULT_RECOVERY_STRATEGY is RecoveryStrategy.REQUEUE
    assert parsed.spec.dead_letter.retention_seconds == 14 * 24 * 3600
    assert parsed.spec.retention is None
    assert parsed.status is None


def test_the_group_is_named_after_the_resource_unless_it_says_otherwise() -> None:
    assert StreamConsumerGroup.parse(build_resource()).group_name == "order-processing"
    assert StreamConsumerGroup.parse(build_resource(group="g 1")).group_name == "g 1"


def test_metadata_is_read_with_aware_times() -> None:
    resource = build_resource()
    resource["metadata"] |= {
        "creationTimestamp": "2026-11-20T10:00:00Z",
        "deletionTimestamp": "2026-11-20T11:00:00Z",
        "finalizers": ["pelops.dev/group"],
        "annotations": {"a": "b"},
        "managedFields": [{"manager": "kubectl"}],
    }

    metadata = StreamConsumerGroup.parse(resource).metadata

    assert metadata.creation_timestamp == datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert metadata.is_being_deleted
    assert metadata.finalizers == ("pelops.dev/group",)
    assert (metadata.key, metadata.uid, metadata.generation) == ("shop/order-processing", "u1", 3)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"stream": ""}, "spec.stream"),
        ({"stream": "a\0b"}, "spec.stream"),
        ({"scaling": {"maxReplicas": 0}}, "spec.scaling.maxReplicas"),
        ({"scaling": {"mode": False}}, "spec.scaling.mode"),
        ({"recovery": {"tuning": {"batchSize": 5000}}}, "spec.recovery.tuning.batchSize"),
        ({"redis": {"sentinel": {"masterName": "m", "nodes": ["a"]}}}, "sentinel.nodes[0]"),
        ({"targetRef": {}}, "spec.targetRef.name"),
    ],
)
def test_a_field_out_of_bounds_is_named(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSpec, match=field.replace("[", r"\[")):
        StreamConsumerGroup.parse(build_resource(**spec))


def test_a_refusal_never_repeats_the_value() -> None:
    with pytest.raises(InvalidSpec) as refusal:
        StreamConsumerGroup.parse(build_resource(redis={"url": "redis://:secret@" + "h" * 600}))

    assert "spec.redis.url" in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_many_mistakes_are_counted_not_listed() -> None:
    fields = ["maxEntryBytes", "maxRetries", "scanPeriodSeconds", "processingTimeoutSeconds"]
    recovery = {**dict.fromkeys(fields, -1), "tuning": {"batchSize": -1}}
    with pytest.raises(InvalidSpec, match=r"and 2 more$"):
        StreamConsumerGroup.parse(build_resource(recovery=recovery, replicas=-1, suspend=7))


def test_what_a_newer_version_wrote_is_still_readable() -> None:
    resource = build_resource(fieldOfTomorrow={"a": 1})
    resource["status"] = {"observedGeneration": "not a number"}

    parsed = StreamConsumerGroup.parse(resource)

    assert parsed.spec.stream == "orders:events"
    assert parsed.status is None


def test_the_status_that_was_written_is_read_back() -> None:
    status = StreamConsumerGroupStatus(
        observed_generation=3,
        conditions=(
            StatusCondition(
                type="Ready",
                status=ConditionStatus.TRUE,
                reason="AllWell",
                message="",
                last_transition_time=datetime(2026, 11, 20, 10, 0, 0, 999, tzinfo=UTC),
            ),
        ),
        group=GroupStatus(name="g", pending=0, lag=0, lag_known=True),
    )
    wire = status.to_wire()

    assert wire["conditions"][0]["lastTransitionTime"] == "2026-11-20T10:00:00Z"
    assert wire["group"] == {"name": "g", "pending": 0, "lag": 0, "lagKnown": True}
    reread = StreamConsumerGroup.parse({**build_resource(), "status": wire}).status
    assert reread is not None
    assert reread.to_wire() == wire


def test_the_template_stays_as_the_user_wrote_it() -> None:
    template = {"spec": {"containers": [{"name": "w", "image": "i"}], "x": None}}
    resource = build_resource(template=template)

    assert StreamConsumerGroup.parse(resource).spec.template == template


def test_a_resource_cannot_be_changed() -> None:
    parsed = StreamConsumerGroup.parse(build_resource())
    with pytest.raises(ValidationError, match="frozen"):
        parsed.spec.stream = "other"


@pytest.mark.parametrize(
    ("recovery", "seconds"),
    [
        ({"locks": {}}, 30),
        ({"locks": {"graceSeconds": 5}}, 5),
        ({"processingTimeoutSeconds": 10, "locks": {}}, 10),
        ({"locks": {}, "unmatchedConsumerTimeoutSeconds": 5}, 30),
    ],
)
def test_a_missing_lock_frees_after_thirty_seconds_or_what_is_said(
    recovery: dict[str, Any], seconds: int
) -> None:
    assert RecoverySpec.model_validate(recovery).lock_free_seconds == seconds


def test_python_names_and_wire_names_mean_the_same() -> None:
    assert ScalingSpec(max_replicas=7) == ScalingSpec.model_validate({"maxReplicas": 7})


def test_reading_resources_needs_no_client_library() -> None:
    listing = "import pelops.api, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True
    )
    assert {"kopf", "kubernetes", "redis", "pyspark", "aiohttp"}.isdisjoint(loaded.stdout.split())
