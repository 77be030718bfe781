"""What runs an audit: the same bytes from the same facts, restricted, and without rights."""

import argparse
import json
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from pelops.domain.destinations import parse_address_rules
from pelops.errors import InvalidSpec
from pelops.kube.audit_cron_job import build_cron_job
from pelops.kube.client import Manifest
from pelops.kube.container_environment import WorkerAccess
from pelops.kube.worker_deployment import is_applied
from pelops.pipeline.main import add_arguments
from pelops.pipeline.settings import read_settings
from tests.audit_facts import ACCESS, a_plan, an_audit

ROOT = Path(__file__).parents[2]
IMAGE = "pelops-pipeline:1"
BUCKET = {"bucket": "audits", "prefix": "shop/", "secretRef": {"name": "keys"}, "region": "eu-1"}
PVC = {"claimName": "audits", "subPath": "orders"}


def job(access: WorkerAccess = ACCESS, **spec: Any) -> Manifest:
    audit = an_audit(**spec)
    return build_cron_job(audit, a_plan(audit), access, image=IMAGE)


def pod(of: Manifest) -> Manifest:
    found: Manifest = of["spec"]["jobTemplate"]["spec"]["template"]
    return found


def container(of: Manifest) -> Manifest:
    found: Manifest = pod(of)["spec"]["containers"][0]
    return found


def env(of: Manifest) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(of)["env"]}


def test_equal_facts_give_equal_bytes() -> None:
    assert json.dumps(job()) == json.dumps(job())


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": "@daily"},
        {"timeZone": "Europe/Berlin"},
        {"suspend": True},
        {"activeDeadlineSeconds": 60},
        {"windowSeconds": 60},
        {"payload": "Full"},
        {"retentionSeconds": 86400},
        {"image": "mine:2"},
        {"imagePullPolicy": "Always"},
        {"resources": {}},
        {"stuckAfterSeconds": 9},
        {"archive": {"persistentVolumeClaim": PVC}},
        {"archive": {"s3": BUCKET}},
        {"evidence": {"aof": {"path": "/aof"}}},
        {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}},
    ],
    ids=str,
)
def test_every_setting_changes_the_job_when_added_or_removed(
    changes: dict[str, Any],
) -> None:
    assert not is_applied(job(**changes), job())
    assert not is_applied(job(), job(**changes))


def test_the_job_runs_alone_restricted_and_without_a_token() -> None:
    made = job()
    assert made["spec"]["concurrencyPolicy"] == "Forbid"
    spec = pod(made)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = container(made)["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False


def test_a_pod_that_failed_shows_the_end_of_its_log() -> None:
    assert container(job())["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_settings_that_cannot_be_used_are_not_tried_again() -> None:
    (rule,) = job()["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2, 3, 4])


def test_the_environment_says_everything_and_holds_no_secret() -> None:
    access = WorkerAccess(url_secret="redis", secret="redis", secret_keys=frozenset({"ca.crt"}))
    reported = env(job(access, archive={"s3": BUCKET}, payload="None"))
    assert reported["PELOPS_AUDIT_NAME"] == "shop/nightly"
    assert reported["PELOPS_AUDIT_ARCHIVE"] == "s3a://audits/shop"
    assert reported["PELOPS_AUDIT_PAYLOAD"] == "none"
    assert reported["PELOPS_AUDIT_WINDOW_SECONDS"] == "900"
    assert reported["PELOPS_AUDIT_S3_REGION"] == "eu-1"
    assert reported["PELOPS_AUDIT_FINDINGS_EXIT"] == "0"
    assert reported["PELOPS_REDIS_URL"] == {"secretKeyRef": {"name": "redis", "key": "url"}}
    assert reported["AWS_SECRET_ACCESS_KEY"] == {
        "secretKeyRef": {"name": "keys", "key": "secretAccessKey"}
    }
    assert reported["PELOPS_AUDIT_MEMORY_MIB"]["resourceFieldRef"]["resource"] == "limits.memory"
    assert "PELOPS_AUDIT_AOF_PATH" not in reported and "PELOPS_AUDIT_STREAM_PATTERN" not in reported
    (group,) = json.loads(reported["PELOPS_AUDIT_GROUPS"])
    assert group == {
        "resource": "order-processing",
        "stream": "orders:events",
        "group": "order-processing",
        "dead_letter": "{orders:events}:order-processing:dlq",
        "field_prefix": "_",
        "stuck_after_ms": 300_000,
    }


def test_the_job_understands_all_its_environment_variables() -> None:
    s3 = {**BUCKET, "endpoint": "https://minio:9000"}
    made = job(
        archive={"s3": s3},
        payload="Full",
        retentionSeconds=604800,
        windowSeconds=60,
        activeDeadlineSeconds=120,
        stuckAfterSeconds=9,
        evidence={"aof": {"path": "/aof"}},
    )
    values = {name: value for name, value in env(made).items() if isinstance(value, str)}
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with patch.dict(os.environ, {**values, "PELOPS_AUDIT_MEMORY_MIB": "2048"}):
        read = read_settings(parser.parse_args([]))
    assert (read.name, read.archive) == ("shop/nightly", "s3a://audits/shop")
    assert (read.retention, read.window) == (timedelta(days=7), timedelta(seconds=60))
    assert (read.deadline, read.memory_mib) == (timedelta(seconds=120), 2048)
    assert (read.payload, read.aof_path, read.findings_exit) == ("full", "/aof", 0)
    assert (read.s3_endpoint, read.s3_region) == ("https://minio:9000", "eu-1")
    (target,) = read.targets
    assert (target.stream, target.group) == ("orders:events", "order-processing")
    assert (target.dead_letter, target.stuck_after_ms) == (
        "{orders:events}:order-processing:dlq",
        9_000,
    )


def test_a_dollar_in_a_name_reaches_the_job_as_it_is() -> None:
    audit = an_audit(
        groups=None,
        streamPattern="$(HOME)*",
        redis={"url": "redis://redis"},
        archive={"path": "/$"},
    )
    made = build_cron_job(audit, a_plan(audit), ACCESS, image=IMAGE)
    assert env(made)["PELOPS_AUDIT_STREAM_PATTERN"] == "$$(HOME)*"
    assert env(made)["PELOPS_AUDIT_ARCHIVE"] == "/$$"
    assert "PELOPS_AUDIT_GROUPS" not in env(made)


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"limits": 5}, r"in spec\.resources, limits"),
        ({"limits": {"memory": "lots"}}, r"in spec\.resources, limits\.memory"),
        ({"requests": {"cpu": [1]}}, r"in spec\.resources, requests\.cpu"),
        ({"requests": {"cpu": True}}, r"in spec\.resources, requests\.cpu"),
    ],
    ids=str,
)
def test_resources_that_are_none_are_refused_by_their_field(
    resources: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSpec, match=f"{field} must be"):
        job(resources=resources)


def test_without_a_memory_limit_nothing_is_said_of_memory() -> None:
    assert "PELOPS_AUDIT_MEMORY_MIB" not in env(job(resources={"requests": {"cpu": "1"}}))


def test_volumes_are_mounted_where_the_environment_says() -> None:
    evidence = {"aof": {"path": "/redis/aof", "persistentVolumeClaim": {"claimName": "data"}}}
    access = WorkerAccess(url="rediss://redis", secret="s", secret_keys=frozenset({"ca.crt"}))
    made = job(access, archive={"persistentVolumeClaim": PVC}, evidence=evidence)
    mounts = {one["mountPath"]: one for one in container(made)["volumeMounts"]}
    volumes = {one["name"]: one for one in pod(made)["spec"]["volumes"]}
    assert mounts.keys() == {"/var/lib/pelops", "/archive", "/redis/aof", "/etc/pelops/redis"}
    assert mounts["/archive"]["subPath"] == "orders"
    assert mounts["/redis/aof"]["readOnly"] is True
    assert {one["name"] for one in mounts.values()} == volumes.keys()
    assert env(made)["PELOPS_AUDIT_ARCHIVE"] == "/archive"
    assert env(made)["PELOPS_AUDIT_AOF_PATH"] == "/redis/aof"


def test_the_template_is_what_the_pod_begins_from() -> None:
    template = {
        "metadata": {"labels": {"team": "orders"}, "annotations": {"a": "b"}},
        "spec": {
            "nodeSelector": {"disk": "fast"},
            "securityContext": {"runAsUser": 7},
            "containers": [
                {"name": "sidecar", "image": "s"},
                {
                    "name": "audit",
                    "env": [{"name": "PELOPS_AUDIT_PAYLOAD", "value": "full"}],
                    "volumeMounts": [{"name": "nfs", "mountPath": "/archive"}],
                },
            ],
            "volumes": [{"name": "nfs", "nfs": {"server": "n", "path": "/"}}],
        },
    }
    made = job(template=template)
    assert pod(made)["metadata"]["labels"]["team"] == "orders"
    assert pod(made)["metadata"]["labels"]["pelops.dev/stream-audit"] == "nightly"
    spec = pod(made)["spec"]
    assert [one["name"] for one in spec["containers"]] == ["audit", "sidecar"]
    assert (spec["nodeSelector"], spec["securityContext"]) == ({"disk": "fast"}, {"runAsUser": 7})
    assert env(made)["PELOPS_AUDIT_PAYLOAD"] == "full"
    assert {one["name"] for one in spec["volumes"]} == {"work", "nfs"}
    assert container(made)["command"] == ["python", "-m", "pelops.pipeline", "audit"]


@pytest.mark.parametrize(
    "template", [{"metadata": [1]}, {"spec": {"containers": "x"}}, {"spec": {"volumes": [1]}}]
)
def test_a_template_of_another_shape_is_refused_by_name(template: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=r"in spec\.template"):
        job(template=template)


def test_the_page_about_audits_has_exactly_the_variables_that_a_job_gets() -> None:
    page = (ROOT / "docs" / "audits" / "index.md").read_text(encoding="utf-8")
    evidence = {"aof": {"path": "/aof"}}
    s3 = {**BUCKET, "endpoint": "https://minio"}
    audits: list[dict[str, Any]] = [
        {"archive": {"s3": s3}, "evidence": evidence, "stuckAfterSeconds": 1},
        {"groups": None, "streamPattern": "x", "redis": {"url": "redis://r"}},
    ]
    access = WorkerAccess(rules=parse_address_rules("10.0.0.0/8", "*.test"))
    given = {
        name for one in audits for name in env(job(access, **one)) if "PELOPS_REDIS" not in name
    }
    rows = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    reported = {name for row in rows for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", row)}
    assert {name for name in reported if "PELOPS_REDIS" not in name} == given


@pytest.mark.parametrize("identity", ["serviceAccountToken", "podCertificate"])
def test_no_volume_of_the_template_gives_the_job_an_identity(identity: str) -> None:
    sources = [{"configMap": {"name": "a"}}, {identity: {"path": "token"}}]
    volumes = [{"name": "mine", "projected": {"sources": sources}}]
    with pytest.raises(InvalidSpec, match=rf"volume mine projects a {identity}"):
        job(template={"spec": {"volumes": volumes}})
    del sources[1]
    assert {"name": "mine", "projected": {"sources": sources}} in pod(
        job(template={"spec": {"volumes": volumes}})
    )["spec"]["volumes"]


def test_the_template_cannot_ask_for_the_token_of_its_account() -> None:
    asked = {"automountServiceAccountToken": True, "serviceAccountName": "admin"}
    assert pod(job(template={"spec": asked}))["spec"]["automountServiceAccountToken"] is False


def test_a_job_obeys_the_rules_of_the_operator_about_addresses_and_credentials() -> None:
    rules = parse_address_rules("10.0.0.0/8", "*.test")
    reported = env(job(WorkerAccess(url="redis://r", rules=rules, credential_hosts="a,b")))
    assert reported["PELOPS_ALLOWED_NETWORKS"] == "10.0.0.0/8"
    assert reported["PELOPS_ALLOWED_HOSTS"] == "*.test"
    assert reported["PELOPS_REDIS_HOSTS"] == "a,b"
