"""The definition of StreamRedrive on a real API server: what it accepts, refuses and prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster.plane import ControlPlane
from pelops.api import STREAM_REDRIVE, StreamRedrive
from pelops.api.crd import build_root_schema
from tests.api_objects import Answer, create_object, delete_object, patch_object
from tests.control_plane.crd_cases import list_messages

NAME = "after-fix"
MUTABLE = {"suspend": True, "ratePerSecond": 7, "approved": True}
FULL_SPEC: dict[str, Any] = {
    "groupRef": {"name": "orders"},
    "action": "Redrive",
    "selection": {
        "reasons": ["MaxRetriesExceeded"],
        "clusters": ["9f00"],
        "errorContains": "Timeout",
        "errorMatches": "Timeout: [0-9]+",
        "fields": [{"name": "sku", "value": "A"}],
        "deadLetteredAfter": "2026-05-04T00:00:00Z",
        "deadLetteredBefore": "2026-05-05T00:00:00Z",
        "ids": ["1760000000000-0"],
        "planRef": {"name": "plan", "key": "plan.jsonl"},
        "maxReturned": 0,
    },
    "maxEntries": 5000,
    "ratePerSecond": 50,
    "maxBacklog": 10_000,
    "trial": {"entries": 10, "waitSeconds": 60},
    "stopOnFailedAgainPercent": 20,
    "destination": "RetryStream",
    "mode": "Move",
    "approval": "Required",
    "approved": False,
    "suspend": False,
    "ttlSecondsAfterFinished": 3600,
}
# For each field that is immutable: another value.
OTHERS: dict[str, Any] = {
    "groupRef": {"name": "others"},
    "action": "Discard",
    "selection": {"reasons": ["Rejected"]},
    "maxEntries": 1,
    "maxBacklog": 1,
    "trial": {"entries": 1},
    "stopOnFailedAgainPercent": 1,
    "destination": "Stream",
    "mode": "DryRun",
    "approval": "NotRequired",
    "ttlSecondsAfterFinished": 1,
}
FULL_STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Running",
            "message": "Moving",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-05-04T03:02:01Z",
        }
    ],
    "selected": 30,
    "moved": 20,
    "skipped": 1,
    "failedAgain": 2,
    "acknowledged": 1,
    "lost": 6,
    "unknown": 8,
    "remaining": 9,
    "source": {
        "server": "redis:6379/0",
        "stream": "orders:events:dlq",
        "groupUid": "5f1c3c52-8a1f-4f3e-9d55-0d8e0c1d2b3a",
    },
    "untilId": "1760000910000-0",
    "lastId": "1760000900000-0",
    "startTime": "2026-05-04T03:02:01Z",
    "completionTime": "2026-05-04T03:03:01Z",
    "estimatedCompletionTime": "2026-05-04T03:04:01Z",
    "samples": ["1760000000000-0"],
    "message": "Moved 20 of 30 dead letters",
}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"groupRef": None}, "spec.groupRef"),
    ({"action": "Purge"}, "spec.action"),
    ({"ratePerSecond": 0}, "spec.ratePerSecond"),
    ({"stopOnFailedAgainPercent": 101}, "spec.stopOnFailedAgainPercent"),
    ({"selection": {"ids": ["1760000000000"]}}, "spec.selection.ids"),
    ({"selection": {"ids": [f"{n}-0" for n in range(1001)]}}, "spec.selection.ids"),
    (
        {"selection": {"fields": [{"name": "f", "value": "v"}] * 9}},
        "spec.selection.fields",
    ),
    (
        {
            "selection": {
                "deadLetteredAfter": "2026-05-05T00:00:00Z",
                "deadLetteredBefore": "2026-05-04T00:00:00Z",
            }
        },
        "deadLetteredAfter must be before deadLetteredBefore",
    ),
    ({"action": "Discard", "destination": "RetryStream"}, "applies to the action Redrive only"),
    ({"action": "Restore", "trial": {}}, "apply to the action Redrive only"),
    ({"action": "Discard", "maxBacklog": 5}, "apply to the action Redrive only"),
]


def build_redrive(name: str = NAME, **spec: Any) -> dict[str, Any]:
    """The smallest redrive, with these fields of the spec besides; None leaves one out."""
    fields = {"groupRef": {"name": "orders"}, **spec}
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamRedrive",
        "metadata": {"name": name},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


@pytest.fixture
def redrive(plane: ControlPlane) -> Iterator[str]:
    """The name of a redrive with every field, for one test."""
    created = create_object(plane, "default", "srd", build_redrive(**FULL_SPEC))
    assert created.accepted, created.message
    yield NAME
    delete_object(plane, "default", "srd", NAME)


def offer(plane: ControlPlane, redrive: dict[str, Any]) -> Answer:
    """Ask whether the redrive would be accepted, and as what."""
    return create_object(plane, "default", "srd", redrive, dry_run=True)


@pytest.mark.parametrize(("spec", "words"), REFUSED)
def test_a_wrong_spec_is_refused_by_name(
    plane: ControlPlane, spec: dict[str, Any], words: str
) -> None:
    refused = offer(plane, build_redrive(**spec))
    assert not refused.accepted
    assert words in refused.message


def test_the_server_and_the_models_agree_on_every_default(plane: ControlPlane) -> None:
    specs: list[dict[str, Any]] = [
        {},
        {"trial": {}, "selection": {"planRef": {"name": "p"}}},
        FULL_SPEC,
    ]
    for spec in specs:
        accepted = offer(plane, build_redrive(**spec))
        assert accepted.accepted, accepted.message
        parsed = StreamRedrive.parse(build_redrive(**spec))
        assert parsed.spec.to_wire() == accepted.resource["spec"]


def test_only_the_pace_the_approval_and_the_suspension_can_be_changed(
    plane: ControlPlane, redrive: str
) -> None:
    fields = build_root_schema(STREAM_REDRIVE)["properties"]["spec"]["properties"]
    assert fields.keys() == MUTABLE.keys() | OTHERS.keys()

    def change(**spec: Any) -> str:
        return patch_object(plane, "default", "srd", redrive, {"spec": spec}).message

    for name, value in OTHERS.items():
        wanted = f"spec.{name}: Forbidden: {name} is immutable: create another StreamRedrive"
        assert wanted in change(**{name: value})
        is_optional = name in {"selection", "maxEntries", "maxBacklog", "trial"}
        if is_optional or name == "ttlSecondsAfterFinished":
            assert f"{name} is immutable" in change(**{name: None})
    for name, value in MUTABLE.items():
        assert change(**{name: value}) == ""


def test_every_rule_of_the_schema_is_tested() -> None:
    said = [words for _, words in REFUSED]
    for message in list_messages(build_root_schema(STREAM_REDRIVE)):
        is_tested = message.split(" is immutable")[0] in OTHERS or message.startswith("metadata.")
        assert is_tested or any(words in message for words in said), message


def test_a_name_has_its_longest(plane: ControlPlane) -> None:
    assert offer(plane, build_redrive("n" * 63)).accepted
    assert "metadata.name must have at most 63" in offer(plane, build_redrive("n" * 64)).message


def test_a_status_can_have_every_schema_field_and_columns_show_it(
    plane: ControlPlane, redrive: str
) -> None:
    properties = build_root_schema(STREAM_REDRIVE)["properties"]["status"]["properties"]
    assert properties.keys() == FULL_STATUS.keys()
    status = {"status": FULL_STATUS}
    assert patch_object(plane, "default", "srd", f"{redrive}/status", status).accepted
    shown = json.loads(plane.kubectl("get", "srd", redrive, "-o", "json").stdout)
    parsed = StreamRedrive.parse(shown)
    assert shown["status"] == FULL_STATUS
    assert parsed.status is not None and parsed.status.to_wire() == FULL_STATUS
    heading, row = plane.kubectl("get", "srd").stdout.splitlines()
    assert heading.split() == [
        *("NAME", "MODE", "STATE", "SELECTED", "MOVED", "FAILED-AGAIN", "REMAINING", "AGE")
    ]
    assert row.split()[:7] == [redrive, "Move", "Running", "30", "20", "2", "9"]
