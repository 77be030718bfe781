"""The definition of StreamAudit on a real API server: what it accepts, refuses and prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.plane import ControlPlane
from pelops.api import STREAM_AUDIT, StreamAudit
from pelops.api.crd import build_root_schema
from tests.api_objects import Answer, create_object, delete_object, patch_object
from tests.control_plane.crd_cases import list_messages, list_settings

ROOT = Path(__file__).resolve().parents[2]
NAME = "nightly"
PATTERN = {"groups": None, "streamPattern": "orders:*", "redis": {"url": "redis://redis"}}
KUBEFLOW = {"type": "SparkApplication", "sparkOperator": "Kubeflow"}
S3 = {"bucket": "audits"}


def build_audit(name: str = NAME, **spec: Any) -> dict[str, Any]:
    """The smallest audit, with these fields of the spec besides; None leaves one out."""
    fields = {
        "groups": ["orders"],
        "schedule": "*/15 * * * *",
        "archive": {"path": "/archive"},
        **spec,
    }
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamAudit",
        "metadata": {"name": name},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def url(value: str) -> dict[str, Any]:
    return {**PATTERN, "redis": {"url": value}}


REF = {"name": "redis"}


def of_redis(**redis: Any) -> dict[str, Any]:
    return {**PATTERN, "redis": redis}


def at(schedule: str) -> dict[str, Any]:
    return {"schedule": schedule}


def path(value: str) -> dict[str, Any]:
    return {"archive": {"path": value}}


# For every rule of the schema: its message, what breaks it, what keeps to it, the field named.
RULES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("exactly one of groups", {"groups": None}, {}, "spec.groups"),
    ("exactly one of groups", {"streamPattern": "x"}, PATTERN, "spec.groups"),
    ("redis is only allowed", {"redis": {"url": "redis://r"}}, PATTERN, "spec.redis"),
    ("redis is required", {**PATTERN, "redis": None}, PATTERN, "spec.redis"),
    (
        "executors on other nodes",
        {"backend": {**KUBEFLOW, "executors": 2}},
        {"backend": {**KUBEFLOW, "executors": 2}, "archive": {"s3": S3}},
        "spec.archive.path",
    ),
    ("schedule must not", at("TZ=UTC 0 3 * * *"), {"timeZone": "UTC"}, "spec.schedule"),
    ("schedule must be a cron", at("61 * * * *"), at("59 23 31 DEC sat"), "spec.schedule"),
    ("schedule must be a cron", at("* * * *"), at("*/5 1-4,8 ? * MON-FRI"), "spec.schedule"),
    ("schedule must be a cron", at("@never"), at("@hourly"), "spec.schedule"),
    ("timeZone must be", {"timeZone": "Local"}, {"timeZone": "Europe/Berlin"}, "spec.timeZone"),
    ("exactly one of path", {"archive": {}}, {"archive": {"s3": S3}}, "spec.archive"),
    (
        "exactly one of path",
        {"archive": {"s3": S3, "path": "/a"}},
        {"archive": {"persistentVolumeClaim": {"claimName": "c"}}},
        "spec.archive",
    ),
    ("path must begin", path("archive"), path("hdfs://namenode/audits"), "spec.archive.path"),
    ("path must begin", path("/a/../b"), path("/a..b"), "spec.archive.path"),
    ("path must not contain", path("s3a://k:s@b/x"), path("s3a://b/x@y"), "spec.archive.path"),
    (
        "subPath must be relative",
        {"archive": {"persistentVolumeClaim": {"claimName": "c", "subPath": "../up"}}},
        {"archive": {"persistentVolumeClaim": {"claimName": "c", "subPath": "a/b"}}},
        "spec.archive.persistentVolumeClaim.subPath",
    ),
    (
        "endpoint must be",
        {"archive": {"s3": {**S3, "endpoint": "minio:9000"}}},
        {"archive": {"s3": {**S3, "endpoint": "https://minio:9000"}}},
        "spec.archive.s3.endpoint",
    ),
    (
        "sparkOperator is required",
        {"backend": {"type": "SparkApplication"}},
        {"backend": KUBEFLOW},
        "spec.backend.sparkOperator",
    ),
    (
        "sparkOperator and executors are",
        {"backend": {"sparkOperator": "Apache"}},
        {"backend": {"type": "SparkApplication", "sparkOperator": "Apache"}},
        "spec.backend.type",
    ),
    (
        "with sparkOperator Apache",
        {"backend": {**KUBEFLOW, "sparkOperator": "Apache", "executors": 1}},
        {"backend": KUBEFLOW},
        "spec.backend.executors",
    ),
    ("url must begin", url("unix://x"), url("redis://r"), "spec.redis.url"),
    ("url must not contain", url("redis://u:p@r"), url("rediss://r"), "spec.redis.url"),
    ("url must be redis", url("redis://r:65536"), url("redis://r:65535"), "spec.redis.url"),
    ("url must not have", url("redis://r?x=1"), url("redis://r/1"), "spec.redis.url"),
    ("one of url, secretRef", {**PATTERN, "redis": {}}, PATTERN, "spec.redis"),
    (
        "secretRef is the short form of url, authSecretRef and tls: set",
        of_redis(secretRef=REF, authSecretRef=REF),
        of_redis(url="redis://r", authSecretRef=REF),
        "spec.redis.authSecretRef",
    ),
    (
        "secretRef is the short form of url, authSecretRef and tls: put",
        of_redis(secretRef=REF, tls={"caSecretRef": REF}),
        of_redis(url="rediss://r", tls={"caSecretRef": REF}),
        "spec.redis.tls",
    ),
    (
        "url must begin with rediss:// when tls",
        of_redis(url="redis://r", tls={}),
        of_redis(url="rediss://r", tls={}),
        "spec.redis.url",
    ),
]
_PARTS = of_redis(url="rediss://a")
_SENTINEL = {"masterName": "m", "nodes": ["s-0:26379"]}
_CLAIM = {"claimName": "a"}
_AOF = {"path": "/aof", "persistentVolumeClaim": _CLAIM}
# Every field that a user sets, by its path: what it is first, and then, as a merge patch.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "groups": ({}, {"groups": ["orders", "bills"]}),
    "streamPattern": (PATTERN, {"streamPattern": "bills:*"}),
    "redis.url": (_PARTS, {"redis": {"url": "rediss://b"}}),
    "redis.secretRef": (_PARTS, {"redis": {"secretRef": REF}}),
    "redis.authSecretRef": (_PARTS, {"redis": {"authSecretRef": REF}}),
    "redis.tls.caSecretRef": (_PARTS, {"redis": {"tls": {"caSecretRef": REF}}}),
    "redis.tls.certSecretRef": (_PARTS, {"redis": {"tls": {"certSecretRef": REF}}}),
    "redis.tls.serverName": (_PARTS, {"redis": {"tls": {"serverName": "redis.shop"}}}),
    "redis.sentinel.masterName": (
        of_redis(sentinel=_SENTINEL),
        {"redis": {"sentinel": {"masterName": "n"}}},
    ),
    "redis.sentinel.nodes": (
        of_redis(sentinel=_SENTINEL),
        {"redis": {"sentinel": {"nodes": ["s-1:26379"]}}},
    ),
    "redis.sentinel.authSecretRef": (
        of_redis(sentinel=_SENTINEL),
        {"redis": {"sentinel": {"authSecretRef": REF}}},
    ),
    "jobSecretRef": ({}, {"jobSecretRef": REF}),
    "schedule": ({}, {"schedule": "@daily"}),
    "timeZone": ({}, {"timeZone": "Europe/Berlin"}),
    "windowSeconds": ({}, {"windowSeconds": 60}),
    "stuckAfterSeconds": ({}, {"stuckAfterSeconds": 60}),
    "archive.path": ({}, {"archive": {"path": "/elsewhere"}}),
    "archive.persistentVolumeClaim.claimName": (
        {"archive": {"persistentVolumeClaim": _CLAIM}},
        {"archive": {"persistentVolumeClaim": {"claimName": "b"}}},
    ),
    "archive.persistentVolumeClaim.subPath": (
        {"archive": {"persistentVolumeClaim": _CLAIM}},
        {"archive": {"persistentVolumeClaim": {"subPath": "b"}}},
    ),
    **{
        f"archive.s3.{field}": ({"archive": {"s3": S3}}, {"archive": {"s3": {field: value}}})
        for field, value in {
            "bucket": "others",
            "prefix": "p",
            "endpoint": "https://minio:9000",
            "region": "eu-1",
            "secretRef": REF,
        }.items()
    },
    "payload": ({}, {"payload": "Full"}),
    "retentionSeconds": ({}, {"retentionSeconds": 60}),
    "evidence.aof.path": ({"evidence": {"aof": _AOF}}, {"evidence": {"aof": {"path": "/b"}}}),
    **{
        f"evidence.aof.persistentVolumeClaim.{field}": (
            {"evidence": {"aof": _AOF}},
            {"evidence": {"aof": {"persistentVolumeClaim": {field: "b"}}}},
        )
        for field in ("claimName", "subPath")
    },
    "activeDeadlineSeconds": ({}, {"activeDeadlineSeconds": 60}),
    "image": ({}, {"image": "other"}),
    "imagePullPolicy": ({}, {"imagePullPolicy": "Never"}),
    "resources": ({}, {"resources": {"limits": {"memory": "2Gi"}}}),
    "template": ({}, {"template": {"spec": {}}}),
    "backend.type": ({}, {"backend": KUBEFLOW}),
    "backend.sparkOperator": ({"backend": KUBEFLOW}, {"backend": {"sparkOperator": "Apache"}}),
    "backend.executors": (
        {"backend": KUBEFLOW, "archive": {"s3": S3}},
        {"backend": {"executors": 2}},
    ),
    "suspend": ({}, {"suspend": True}),
}
RULES_ELSEWHERE = ("metadata.name must have",)

BOUNDS = [
    ({"groups": []}, "spec.groups"),
    ({"groups": ["a", "a"]}, "spec.groups[1]"),
    ({"groups": ["A"]}, "spec.groups[0]"),
    ({"groups": [f"g-{n}" for n in range(101)]}, "spec.groups"),
    ({"schedule": None}, "spec.schedule"),
    ({"archive": None}, "spec.archive"),
    ({"payload": "Everything"}, "spec.payload"),
    ({"windowSeconds": 0}, "spec.windowSeconds"),
    ({"retentionSeconds": 59}, "spec.retentionSeconds"),
    ({"retentionDays": 30}, "spec.retentionDays"),
    ({"archive": {"pvc": {"claimName": "c"}}}, "spec.archive.pvc"),
    ({"activeDeadlineSeconds": 1}, "spec.activeDeadlineSeconds"),
    ({"deadlineSeconds": 60}, "spec.deadlineSeconds"),
    ({"image": "two words"}, "spec.image"),
    ({"imagePullPolicy": "Sometimes"}, "spec.imagePullPolicy"),
    ({"evidence": {"aof": {"path": "relative"}}}, "spec.evidence.aof.path"),
    ({"evidence": {}}, "spec.evidence.aof"),
    ({"archive": {"s3": {"bucket": "A"}}}, "spec.archive.s3.bucket"),
    ({"backend": {**KUBEFLOW, "executors": 0}}, "spec.backend.executors"),
    ({"backend": {"type": "Job"}}, "spec.backend.type"),
]

FULL_STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Scheduled",
            "message": "",
            "lastTransitionTime": "2026-11-20T10:00:00Z",
            "observedGeneration": 1,
        }
    ],
    "jobRef": {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly-audit"},
    "run": {
        "lastStartTime": "2026-11-20T10:00:00Z",
        "lastSuccessfulTime": "2026-11-20T10:01:00Z",
        "active": False,
    },
    "summary": {
        "window": 412,
        "verdict": "Findings",
        "produced": 10000,
        "lost": 2,
        "stuck": 1,
        "deadLettered": 3,
        "groups": "1/1",
    },
    "groups": [
        {
            "stream": "orders:events",
            "group": "order-processing",
            "name": "orders",
            "window": 412,
            "windowEndTime": "2026-11-20T10:00:00Z",
            "verdict": "Findings",
            "certainty": "Inferred",
            "message": "2 are lost.",
            "produced": 10000,
            "stuck": 1,
            "deadLettered": 3,
            "lost": 2,
            "behindRetention": True,
            "failing": True,
        }
    ],
}


def offer(plane: ControlPlane, audit: dict[str, Any]) -> Answer:
    """Ask whether the audit would be accepted, and as what."""
    return create_object(plane, "default", "saudit", audit, dry_run=True)


@pytest.mark.parametrize(("message", "bad", "good", "field"), RULES)
def test_a_broken_rule_names_the_field_and_says_what_to_do(
    plane: ControlPlane, message: str, bad: dict[str, Any], good: dict[str, Any], field: str
) -> None:
    refused, accepted = offer(plane, build_audit(**bad)), offer(plane, build_audit(**good))
    assert not refused.accepted
    assert f"{field}: " in refused.message and message in refused.message
    assert accepted.accepted, accepted.message


def test_every_rule_of_the_schema_has_a_case() -> None:
    tested = {message for message, *_ in RULES}.union(RULES_ELSEWHERE)
    written = list(list_messages(build_root_schema(STREAM_AUDIT)))
    assert [one for one in written if not any(one.startswith(t) for t in tested)] == []


@pytest.mark.parametrize(("spec", "field"), BOUNDS)
def test_a_value_out_of_bounds_is_refused_by_name(
    plane: ControlPlane, spec: dict[str, Any], field: str
) -> None:
    refused = offer(plane, build_audit(**spec))
    assert not refused.accepted
    assert field in refused.message


def test_a_name_leaves_room_for_suffixes(plane: ControlPlane) -> None:
    assert offer(plane, build_audit("n" * 46)).accepted
    assert "metadata.name must have at most 46" in offer(plane, build_audit("n" * 47)).message


def test_the_server_and_the_models_agree_on_every_default(plane: ControlPlane) -> None:
    specs: list[dict[str, Any]] = [{}, PATTERN, {"backend": {}, "template": {"spec": {}}}]
    for spec in specs:
        accepted = offer(plane, build_audit(**spec))
        assert accepted.accepted, accepted.message
        parsed = StreamAudit.parse(build_audit(**spec))
        assert parsed.spec.to_wire() == accepted.resource["spec"]


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_of_an_audit_can_be_changed(plane: ControlPlane, field: str) -> None:
    before, after = CHANGES[field]
    created = create_object(plane, "default", "saudit", build_audit("changed", **before))
    assert created.accepted, created.message
    try:
        answer = patch_object(plane, "default", "saudit", "changed", {"spec": after})
    finally:
        delete_object(plane, "default", "saudit", "changed")
    assert answer.accepted, answer.message
    assert answer.resource["metadata"]["generation"] == 2


def test_every_field_of_an_audit_has_a_change() -> None:
    spec = build_root_schema(STREAM_AUDIT)["properties"]["spec"]
    fields = dict(list_settings(spec, ""))
    assert fields.keys() == CHANGES.keys()
    assert not [name for name, text in fields.items() if "Immutable" in text]


def test_the_full_sample_shows_every_field_but_the_alternatives() -> None:
    (full,) = yaml.safe_load_all((ROOT / "manifests/samples/full-audit.yaml").read_text())
    spec = build_root_schema(STREAM_AUDIT)["properties"]["spec"]
    missing = set(_list_paths(spec, "")) - set(_list_paths_of(full["spec"], ""))
    alternatives = (".redis", ".streamPattern", ".archive.path", ".archive.s3")
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
def audit(plane: ControlPlane) -> Iterator[str]:
    """The name of an audit that exists for one test."""
    assert create_object(plane, "default", "saudit", build_audit()).accepted
    yield NAME
    delete_object(plane, "default", "saudit", NAME)


def write_status(plane: ControlPlane, name: str, status: dict[str, Any]) -> None:
    assert patch_object(plane, "default", "saudit", f"{name}/status", {"status": status}).accepted


def test_a_status_may_say_all_that_the_schema_knows(plane: ControlPlane, audit: str) -> None:
    write_status(plane, audit, FULL_STATUS)
    shown = json.loads(plane.kubectl("get", "saudit", audit, "-o", "json").stdout)
    parsed = StreamAudit.parse(shown)
    assert shown["status"] == FULL_STATUS
    assert parsed.status is not None and parsed.status.to_wire() == FULL_STATUS


def test_the_columns_report_the_verdict(plane: ControlPlane, audit: str) -> None:
    before = plane.kubectl("get", "pelops").stdout.splitlines()
    assert before[1].split()[0].endswith(audit) and len(before[1].split()) == 2
    write_status(plane, audit, FULL_STATUS)
    heading, row = plane.kubectl("get", "saudit", "-o", "wide").stdout.splitlines()
    assert heading.split() == [
        *("NAME", "READY", "REASON", "VERDICT", "LOST", "STUCK", "DEAD", "WINDOW"),
        *("GROUPS", "SCHEDULE", "LAST-RUN", "AGE"),
    ]
    words = [audit, "True", "Scheduled", "Findings", "2", "1", "3", "412", "1/1"]
    assert row.split()[:9] == words


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"summary": {"verdict": "findings"}}, "status.summary.verdict"),
        ({"summary": {"certainty": "Sure"}}, "status.summary.certainty"),
        ({"summary": {"window": "412"}}, "status.summary.window"),
        ({"groups": [FULL_STATUS["groups"][0]] * 2}, "status.groups[1]"),
        ({"groups": [{"stream": "s"}]}, "status.groups[0].group"),
        ({"jobRef": {"kind": "CronJob"}}, "status.jobRef.apiVersion"),
    ],
)
def test_a_status_that_programs_would_misread_is_refused(
    plane: ControlPlane, audit: str, change: dict[str, Any], field: str
) -> None:
    body = json.dumps({"status": change})
    flags = ("--subresource=status", "--type=merge", "-p", body)
    refused = plane.kubectl("patch", "saudit", audit, *flags, check=False)
    assert refused.returncode != 0
    assert field in refused.stderr


def test_explain_shows_a_person_every_field(plane: ControlPlane) -> None:
    recursive = plane.kubectl("explain", "saudit.spec", "--recursive").stdout
    for path in _list_paths(build_root_schema(STREAM_AUDIT)["properties"]["spec"], ""):
        assert f"{path.rsplit('.', 1)[-1]}\t" in recursive
