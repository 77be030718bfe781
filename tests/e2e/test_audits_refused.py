"""What keeps an audit from running is reported, with what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster.redis_servers import RedisServers
from tests.api_objects import ApplyRefused
from tests.e2e.auditing import JOB, an_audit, apply_audit, await_reason, env_of
from tests.e2e.declaring import NAME, a_spec, get, secret
from tests.operators import Resources


@pytest.fixture
def declared(resources: Resources, redis_86: RedisServers, stream: str) -> str:
    """The stream of a group that is declared and ready."""
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    return stream


def test_a_missing_group_is_reported_and_audited_once_it_exists(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    apply_audit(resources, an_audit(NAME))
    missing = await_reason(resources, "Ready", "GroupMissing")
    assert NAME in missing["message"]
    assert resources.get("cronjob", JOB) is None
    resources.apply(NAME, a_spec(redis_86.url, stream))
    await_reason(resources, "Ready", "Scheduled")


def test_a_secret_that_is_missing_is_named_and_its_content_followed(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    reference = {"secretRef": {"name": "redis"}}
    apply_audit(resources, an_audit(groups=None, streamPattern=f"{stream}*", redis=reference))
    missing = await_reason(resources, "Ready", "SecretMissing")
    assert f"{resources.namespace}/redis" in missing["message"]
    assert resources.get("cronjob", JOB) is None
    resources.apply_raw(secret("redis", url=redis_86.url))
    await_reason(resources, "Ready", "Scheduled")
    variable = env_of(get(resources, "cronjob", JOB))["PELOPS_REDIS_URL"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "redis", "key": "url"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"jobSecretRef": {"name": "keys"}}, "spec.jobSecretRef"),
        (
            {"archive": {"s3": {"bucket": "audits", "secretRef": {"name": "keys"}}}},
            "spec.archive.s3.secretRef",
        ),
    ],
    ids=["of the job", "of the archive"],
)
def test_a_secret_that_only_the_job_needs_is_missed_before_it_runs(
    declared: str,
    resources: Resources,
    redis_86: RedisServers,
    spec: dict[str, Any],
    field: str,
) -> None:
    apply_audit(resources, an_audit(NAME, **spec))
    missing = await_reason(resources, "Ready", "SecretMissing")
    assert f"{resources.namespace}/keys of {field}" in missing["message"]
    assert resources.get("cronjob", JOB) is None
    resources.apply_raw(
        secret("keys", accessKeyId="a", secretAccessKey="s", password="p", url=redis_86.url)
    )
    await_reason(resources, "Ready", "Scheduled")


@pytest.mark.parametrize("limits", [5, {"memory": "lots"}], ids=str)
def test_resources_that_are_none_are_reported_by_their_field(
    declared: str, resources: Resources, limits: object
) -> None:
    apply_audit(resources, an_audit(NAME, resources={"limits": limits}))
    refused = await_reason(resources, "Ready", "InvalidSpec")
    assert "spec.resources, limits" in refused["message"]


def test_a_key_that_is_no_stream_is_reported(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    redis_86.cli("SET", stream, "no stream")
    resources.apply(NAME, a_spec(redis_86.url, stream))
    apply_audit(resources, an_audit(NAME))
    failing = await_reason(resources, "AuditFailing", "AuditInconclusive")
    assert f"{stream} contains a string" in failing["message"]
    redis_86.cli("DEL", stream)
    await_reason(resources, "AuditFailing", None)


def test_a_foreign_cron_job_of_the_same_name_is_unchanged(
    declared: str, resources: Resources
) -> None:
    command = ("create", "cronjob", JOB, "--image=i", "--schedule=@daily")
    resources.plane.kubectl(*command, "-n", resources.namespace)
    apply_audit(resources, an_audit(NAME))
    taken = await_reason(resources, "Ready", "NameTaken")
    assert JOB in taken["message"]
    assert get(resources, "cronjob", JOB)["spec"]["schedule"] == "@daily"
    resources.plane.kubectl("delete", "cronjob", JOB, "-n", resources.namespace)
    await_reason(resources, "Ready", "Scheduled")


def test_without_its_spark_operator_an_audit_says_what_to_install(
    declared: str, resources: Resources
) -> None:
    for operator in ("Kubeflow", "Apache"):
        backend = {"type": "SparkApplication", "sparkOperator": operator}
        apply_audit(resources, an_audit(NAME, backend=backend), name=operator.lower())
        of = ("saudit", operator.lower())
        missing = await_reason(resources, "Ready", "BackendMissing", of=of)
        assert "manifests/overlays/spark-operators" in missing["message"]


def test_what_a_spec_cannot_mean_is_reported_by_the_api_server(resources: Resources) -> None:
    with pytest.raises(ApplyRefused, match="exactly one of path, persistentVolumeClaim and s3"):
        apply_audit(resources, an_audit(NAME, archive={}))


def test_an_invalid_pod_template_is_reported_with_the_api_servers_error(
    declared: str, resources: Resources
) -> None:
    apply_audit(resources, an_audit(NAME, template={"spec": {"volumes": [{"name": "_"}]}}))
    refused = await_reason(resources, "Ready", "Rejected")
    assert "volumes[" in refused["message"]


def test_an_invalid_quantity_is_reported_with_the_api_servers_error(
    declared: str, resources: Resources
) -> None:
    sidecar = {"name": "sidecar", "image": "i", "resources": {"limits": {"cpu": "lots"}}}
    apply_audit(resources, an_audit(NAME, template={"spec": {"containers": [sidecar]}}))
    refused = await_reason(resources, "Ready", "Rejected")
    assert "quantities must match" in refused["message"]


_MORE_THAN_A_JOB_MAY: dict[str, tuple[dict[str, Any], str]] = {
    "token": (
        {"volumes": [{"name": "id", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
        "projects a serviceAccountToken",
    ),
    "certificate": (
        {"volumes": [{"name": "id", "projected": {"sources": [{"podCertificate": {}}]}}]},
        "podCertificate",
    ),
    "mounted": ({"automountServiceAccountToken": True}, ""),
    "host": ({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}, "hostPath"),
    "root": ({"securityContext": {"runAsNonRoot": False}}, "runAsNonRoot"),
    "privileged": (
        {"containers": [{"name": "audit", "securityContext": {"privileged": True}}]},
        "privileged",
    ),
}


@pytest.mark.parametrize("asked", sorted(_MORE_THAN_A_JOB_MAY))
def test_a_template_cannot_give_the_job_a_token_or_more_privileges(
    declared: str, resources: Resources, asked: str
) -> None:
    """M6."""
    pod, named = _MORE_THAN_A_JOB_MAY[asked]
    apply_audit(resources, an_audit(NAME, template={"spec": pod}))
    if named:
        refused = await_reason(resources, "Ready", "InvalidSpec")
        assert named in refused["message"]
        assert resources.get("cronjob", JOB) is None
        return
    await_reason(resources, "Ready", "Scheduled")
    job = get(resources, "cronjob", JOB)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert job["automountServiceAccountToken"] is False
