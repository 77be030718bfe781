"""The definition on a real API server: what it accepts, refuses, defaults and prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.plane import ControlPlane
from pelops.api import STREAM_CONSUMER_GROUP, StreamConsumerGroup
from pelops.api.crd import build_root_schema
from pelops.api.group.recovery import DEFAULT_RECOVERY_STRATEGY
from tests.api_objects import Answer, create_object, delete_object, patch_object
from tests.control_plane.crd_cases import (
    BOUNDS,
    CHANGES,
    FULL_STATUS,
    IMMUTABLE,
    NAME,
    RULES,
    RULES_ELSEWHERE,
    TEMPLATE,
    build_resource,
    list_messages,
    list_settings,
)
from tests.kstatus import compute

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))


def offer(plane: ControlPlane, resource: dict[str, Any]) -> Answer:
    """Ask whether the resource would be accepted, and as what."""
    return create_object(plane, "default", "scg", resource, dry_run=True)


@pytest.mark.parametrize(("message", "bad", "good", "field"), RULES)
def test_a_broken_rule_names_the_field_and_says_what_to_do(
    plane: ControlPlane, message: str, bad: dict[str, Any], good: dict[str, Any], field: str
) -> None:
    refused = offer(plane, build_resource(**bad))
    accepted = offer(plane, build_resource(**good))

    assert not refused.accepted
    assert f"{field}: " in refused.message
    assert message in refused.message
    assert accepted.accepted, accepted.message


def test_every_rule_of_the_schema_has_a_case() -> None:
    tested = {message for message, *_ in RULES}.union(RULES_ELSEWHERE)
    written = list(list_messages(build_root_schema(STREAM_CONSUMER_GROUP)))

    assert [w for w in written if not any(w.startswith(t) for t in tested)] == []


@pytest.mark.parametrize(("spec", "field"), BOUNDS)
def test_a_value_out_of_bounds_is_refused_by_name(
    plane: ControlPlane, spec: dict[str, Any], field: str
) -> None:
    refused = offer(plane, build_resource(**spec))

    assert not refused.accepted
    assert field in refused.message


def test_a_name_leaves_room_for_suffixes(plane: ControlPlane) -> None:
    assert offer(plane, build_resource("n" * 52)).accepted
    assert "metadata.name must have at most 52" in offer(plane, build_resource("n" * 53)).message


@pytest.mark.parametrize(
    "name", ["{a}:b", "a{}b", "a}b", "a b\t\n", "%:$*'\"\\", "ключ🗝", "\x01", "="]
)
def test_stream_and_group_take_every_character_of_a_key(plane: ControlPlane, name: str) -> None:
    accepted = offer(plane, build_resource(stream=name, group=name))

    assert accepted.accepted, accepted.message
    assert accepted.resource["spec"]["stream"] == name


def test_the_server_and_the_models_agree_on_every_default(plane: ControlPlane) -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 9}]}}
    for spec in (
        {"scaling": {"maxReplicas": 20}},
        {"scaling": {"behavior": behavior}, "recovery": {"locks": {}, "backoff": {"factor": 3}}},
        {"targetRef": None, "template": TEMPLATE, "deadLetter": {}, "recovery": {}},
    ):
        accepted = offer(plane, build_resource(**spec))
        assert accepted.accepted, accepted.message
        parsed = StreamConsumerGroup.parse(build_resource(**spec))

        assert parsed.spec.to_wire() == accepted.resource["spec"]


def test_an_unknown_field_is_refused(plane: ControlPlane) -> None:
    refused = offer(plane, build_resource(scaling={"maxReplica": 3}))
    assert 'unknown field "spec.scaling.maxReplica"' in refused.message


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_accepted(plane: ControlPlane, sample: Path) -> None:
    accepted = plane.kubectl(
        "create", "--dry-run=server", "--validate=strict", "-f", str(sample), check=False
    )
    assert accepted.returncode == 0, accepted.stderr


def test_the_full_sample_shows_every_field_but_the_alternatives() -> None:
    (full,) = yaml.safe_load_all((ROOT / "manifests/samples/full.yaml").read_text())
    spec = build_root_schema(STREAM_CONSUMER_GROUP)["properties"]["spec"]

    missing = set(_list_paths(spec, "")) - set(_list_paths_of(full["spec"], ""))
    alternatives = (".targetRef", ".redis.sentinel", ".redis.secretRef")
    assert [path for path in sorted(missing) if not path.startswith(alternatives)] == []


def _list_paths(schema: dict[str, Any], at: str) -> Iterator[str]:
    for name, child in schema.get("properties", {}).items():
        yield f"{at}.{name}"
        yield from _list_paths(child, f"{at}.{name}")


def _list_paths_of(value: Any, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, child in value.items():
            yield f"{at}.{name}"
            yield from _list_paths_of(child, f"{at}.{name}")


@pytest.fixture
def resource(plane: ControlPlane) -> Iterator[str]:
    """The name of a resource that exists for one test."""
    created = create_object(plane, "default", "scg", build_resource())
    assert created.accepted, created.message
    yield NAME
    delete_object(plane, "default", "scg", NAME)


def change(plane: ControlPlane, name: str, **spec: Any) -> Answer:
    return patch_object(plane, "default", "scg", name, {"spec": spec})


def test_stream_and_group_cannot_be_changed(plane: ControlPlane, resource: str) -> None:
    stream = change(plane, resource, stream="other")
    group = change(plane, resource, group="other")

    assert "spec.stream: Forbidden: stream is immutable" in stream.message
    assert "spec.group: Forbidden: group is immutable" in group.message
    prefix = change(plane, resource, recovery={"tuning": {"fieldPrefix": "x_"}})
    assert "spec.recovery.tuning.fieldPrefix: Forbidden: fieldPrefix is" in prefix.message
    assert change(plane, resource, recovery={"tuning": {"fieldPrefix": "_"}}).accepted
    assert change(plane, resource, recovery=None).accepted
    # Saying what was meant all along changes nothing.
    assert change(plane, resource, group=resource).accepted
    assert change(plane, resource, group=None).accepted
    assert change(plane, resource, suspend=True).accepted


@pytest.fixture
def changed(plane: ControlPlane) -> Iterator[str]:
    """The name of a resource that a test creates."""
    yield "changed"
    delete_object(plane, "default", "scg", "changed")


@pytest.mark.parametrize("field", CHANGES)
def test_a_field_changes_or_says_why_it_does_not(
    plane: ControlPlane, changed: str, field: str
) -> None:
    before, after = CHANGES[field]
    created = create_object(plane, "default", "scg", build_resource(changed, **before))
    assert created.accepted, created.message

    answer = change(plane, changed, **after)

    if field in IMMUTABLE:
        name = field.rsplit(".", 1)[-1]
        assert f"spec.{field}: Forbidden: {name} is immutable: " in answer.message
        return
    assert answer.accepted, answer.message
    assert answer.resource["metadata"]["generation"] == 2


def test_every_field_is_mutable_by_a_case_or_immutable_by_its_description() -> None:
    spec = build_root_schema(STREAM_CONSUMER_GROUP)["properties"]["spec"]
    fields = dict(list_settings(spec, ""))
    described = {name for name, text in fields.items() if "Immutable" in text}

    assert fields.keys() == CHANGES.keys()
    assert described == IMMUTABLE


def test_without_workers_there_is_nothing_to_scale(plane: ControlPlane, resource: str) -> None:
    assert change(plane, resource, replicas=3, targetRef=None).accepted
    refused = plane.kubectl("scale", "scg", resource, "--replicas=5", check=False)
    assert "replicas cannot be changed without targetRef or template" in refused.stderr
    assert change(plane, resource, replicas=5, template=TEMPLATE).accepted


def test_the_scale_subresource_sets_and_shows_replicas(plane: ControlPlane, resource: str) -> None:
    plane.kubectl("scale", "scg", resource, "--replicas=5")
    write_status(plane, resource, {"replicas": 4, "selector": "app=a,b=c"})

    path = "/apis/pelops.dev/v1alpha1/namespaces/default/streamconsumergroups"
    scale = json.loads(plane.get(f"{path}/{resource}/scale"))
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 4, "selector": "app=a,b=c"}


def write_status(plane: ControlPlane, name: str, status: dict[str, Any]) -> None:
    assert patch_object(plane, "default", "scg", f"{name}/status", {"status": status}).accepted


@pytest.mark.full
@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("spec.stream=orders:events", True),
        ("spec.stream=other", False),
        ("spec.suspend=false", True),
        ("spec.redis.secretRef.name=orders-redis", True),
        ("spec.targetRef.name=order-workers", True),
        (f"spec.recovery.strategy={DEFAULT_RECOVERY_STRATEGY}", True),
        ("spec.scaling.mode=Auto", False),
        ("status.group.name=g", True),
    ],
)
def test_resources_are_found_by_field(
    plane: ControlPlane, resource: str, selector: str, found: bool
) -> None:
    write_status(plane, resource, {"group": {"name": "g"}})

    names = plane.kubectl("get", "scg", "-o", "name", "--field-selector", selector).stdout
    assert (resource in names) is found


def test_explain_shows_a_person_every_field(plane: ControlPlane) -> None:
    recursive = plane.kubectl("explain", "streamconsumergroups.spec", "--recursive").stdout
    field = plane.kubectl("explain", "scg.spec.recovery.processingTimeoutSeconds").stdout

    spec = build_root_schema(STREAM_CONSUMER_GROUP)["properties"]["spec"]
    for path in _list_paths(spec, ""):
        assert f"{path.rsplit('.', 1)[-1]}\t" in recursive
    assert "heartbeat" in field
    assert "Default: 300 s." in " ".join(field.split())


def read_columns(plane: ControlPlane, *flags: str) -> dict[str, str]:
    """Return what `kubectl get` prints under each heading, by where the heading stands."""
    heading, row = plane.kubectl("get", "scg", *flags).stdout.splitlines()
    names = heading.split()
    starts = [f" {heading} ".index(f" {name} ") for name in names]
    ends = [*starts[1:], None]
    return {
        name: row[start:end].strip() for name, start, end in zip(names, starts, ends, strict=True)
    }


def test_the_columns_report_the_state(plane: ControlPlane, resource: str) -> None:
    write_status(plane, resource, FULL_STATUS)

    plain, wide = read_columns(plane), read_columns(plane, "-o", "wide")
    assert list(plain) == (
        ["NAME", "READY", "REASON", "LAG", "PENDING", "STUCK", "OLDEST", "DLQ", "REPLICAS", "AGE"]
    )
    assert list(plain.values())[1:6] == ["False", "Starting", "1000", "240", "12"]
    assert plain["OLDEST"].endswith("d")
    assert (plain["DLQ"], plain["REPLICAS"]) == ("2", "2/3")
    assert (wide["STREAM"], wide["GROUP"]) == ("orders:events", resource)
    assert (wide["REDIS"], wide["RECOVERED"], wide["DESIRED"]) == ("8.6.0 Cluster", "37", "4")


def test_columns_are_readable_with_an_empty_or_unknown_backlog(
    plane: ControlPlane, resource: str
) -> None:
    before = read_columns(plane, "-o", "wide")
    write_status(
        plane,
        resource,
        {"group": {"pending": 0}, "deadLetter": {"length": 0}, "summary": {"lag": "unknown"}},
    )
    idle = read_columns(plane)

    reported = {name for name, cell in before.items() if cell}
    assert reported == {"NAME", "STREAM", "AGE"}  # nothing is known yet
    assert (idle["LAG"], idle["PENDING"], idle["OLDEST"], idle["DLQ"]) == ("unknown", "0", "", "0")


def test_a_status_may_say_all_that_the_schema_knows(plane: ControlPlane, resource: str) -> None:
    write_status(plane, resource, FULL_STATUS)

    shown = json.loads(plane.kubectl("get", "scg", resource, "-o", "json").stdout)
    parsed = StreamConsumerGroup.parse(shown)

    assert shown["status"] == FULL_STATUS
    assert parsed.status is not None
    assert parsed.status.to_wire() == FULL_STATUS


def test_two_writers_own_a_condition_each(plane: ControlPlane, resource: str) -> None:
    for kind in ("Ready", "DataLoss"):
        condition = FULL_STATUS["conditions"][1] | {"type": kind}
        body = {
            "apiVersion": "pelops.dev/v1alpha1",
            "kind": "StreamConsumerGroup",
            "metadata": {"name": resource},
            "status": {"conditions": [condition]},
        }
        flags = ("--server-side", "--subresource=status", f"--field-manager={kind}", "-f", "-")
        plane.kubectl("apply", *flags, stdin=json.dumps(body))

    shown = json.loads(plane.kubectl("get", "scg", resource, "-o", "json").stdout)
    assert {c["type"] for c in shown["status"]["conditions"]} == {"Ready", "DataLoss"}


def test_a_new_resource_is_not_taken_for_settled(plane: ControlPlane, resource: str) -> None:
    shown = json.loads(plane.kubectl("get", "scg", resource, "-o", "json").stdout)
    assert shown["status"] == {"observedGeneration": -1}
    assert StreamConsumerGroup.parse(shown).status is not None
    assert compute(shown) == "InProgress"


def test_kubectl_waits_for_readiness_of_the_newest_generation(
    plane: ControlPlane, resource: str
) -> None:
    def wait() -> int:
        flags = ("--for=condition=Ready", f"scg/{resource}", "--timeout=1s")
        return plane.kubectl("wait", *flags, check=False).returncode

    def ready(status: str, generation: int) -> dict[str, Any]:
        stated = {"type": "Ready", "status": status, "reason": "Ready", "message": "m"}
        when = {"lastTransitionTime": "2026-05-04T03:02:01Z", "observedGeneration": generation}
        return {"observedGeneration": generation, "conditions": [{**stated, **when}]}

    assert wait() != 0
    write_status(plane, resource, ready("False", 1))
    assert wait() != 0
    write_status(plane, resource, ready("True", 1))
    assert wait() == 0
    change = json.dumps({"spec": {"replicas": 4}})
    plane.kubectl("patch", "scg", resource, "--type=merge", "-p", change)
    assert wait() != 0
    write_status(plane, resource, ready("True", 2))
    assert wait() == 0
