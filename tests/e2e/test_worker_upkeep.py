"""The workers' Deployment stays as declared, and what other people own in it stays theirs."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from local_cluster.nodes import Node
from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from tests.e2e.declaring import (
    NAME,
    WAIT_S,
    WORKERS,
    Object,
    a_deployment,
    a_spec,
    await_observed,
    env_of,
    get,
    patch,
)
from tests.operators import Resources, sleeping_template


@pytest.fixture
def declared(resources: Resources, redis_86: RedisServers, stream: str) -> Object:
    """The Deployment of a group that is ready, without pods."""
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    return get(resources, "deployment", WORKERS)


def test_a_deleted_deployment_comes_back(resources: Resources, declared: Object) -> None:
    resources.plane.kubectl("delete", "deployment", WORKERS, "-n", resources.namespace)

    def is_back() -> bool:
        found = resources.get("deployment", WORKERS)
        return found is not None and found["metadata"]["uid"] != declared["metadata"]["uid"]

    wait_until(is_back, timeout_s=WAIT_S, what="another Deployment")
    resources.await_condition(NAME, reason="Ready")
    assert get(resources, "deployment", WORKERS)["spec"]["template"] == declared["spec"]["template"]


def test_an_edited_deployment_is_restored_and_foreign_notes_on_it_stay(
    resources: Resources, declared: Object
) -> None:
    kubectl, where = resources.plane.kubectl, ("-n", resources.namespace)
    kubectl("annotate", "deployment", WORKERS, "team=shop", *where)
    kubectl("label", "deployment", WORKERS, "cost-centre=7", *where)
    edit = {"spec": {"template": {"metadata": {"annotations": {"restarted": "today"}}}}}
    patch(resources, "deployment", WORKERS, edit)
    kubectl("set", "image", f"deployment/{WORKERS}", "worker=local/other", *where)
    kubectl("set", "env", f"deployment/{WORKERS}", "PELOPS_STREAM-", "POD_NAME-", "MINE=1", *where)
    wanted = env_of(declared)

    def is_restored() -> Object | None:
        found = get(resources, "deployment", WORKERS)
        container = found["spec"]["template"]["spec"]["containers"][0]
        restored = container["image"] == "local/worker" and wanted.items() <= env_of(found).items()
        return found if restored else None

    restored = wait_until(is_restored, timeout_s=WAIT_S, what="the Deployment as declared")
    assert restored is not None
    assert restored["metadata"]["annotations"]["team"] == "shop"
    assert restored["metadata"]["labels"]["cost-centre"] == "7"
    assert restored["spec"]["template"]["metadata"]["annotations"] == {"restarted": "today"}
    names = list(env_of(restored))
    assert "MINE" in names
    # A variable may only refer to those before it.
    assert max(names.index("POD_NAME"), names.index("POD_UID")) < names.index("PELOPS_CONSUMER")


def test_a_changed_template_reaches_the_deployment_and_what_it_leaves_out_goes(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    template = sleeping_template(priorityClassName="system-cluster-critical")
    template["spec"]["containers"][0]["env"] = [{"name": "OLD", "value": "1"}]
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template))
    resources.await_condition(NAME, reason="Ready")
    template = sleeping_template()
    template["spec"]["containers"][0]["image"] = "local/newer"
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template))

    def is_changed() -> bool:
        pod = get(resources, "deployment", WORKERS)["spec"]["template"]["spec"]
        container = pod["containers"][0]
        names = {variable["name"] for variable in container["env"]}
        is_old = "OLD" in names or "priorityClassName" in pod
        return container["image"] == "local/newer" and not is_old

    wait_until(is_changed, timeout_s=WAIT_S, what="the newer template")
    resources.await_condition(NAME, reason="Ready")


def test_a_settled_deployment_is_not_written_again_however_its_template_is_spelled(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    template = sleeping_template(securityContext={}, volumes=[], hostNetwork=False)
    limits = {"cpu": "1000m", "memory": "1024Mi"}
    template["metadata"] = {"labels": {"tier": "x"}, "annotations": {}}
    template["spec"]["containers"][0] |= {
        "resources": {"limits": limits},
        "env": [{"name": "EMPTY", "value": ""}],
        "args": [],
    }
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template))
    resources.await_condition(NAME, reason="Ready")
    # Once the operator reports this entry it has looked at everything again.
    for entry, lag in (("1-0", 1), ("2-0", 2), ("3-0", 3)):
        redis_86.cli("XADD", stream, entry, "sku", "A")
        _await_lag(resources, lag)
        if lag == 1:
            version = get(resources, "deployment", WORKERS)["metadata"]["resourceVersion"]
    assert get(resources, "deployment", WORKERS)["metadata"]["resourceVersion"] == version


def _await_lag(resources: Resources, lag: int) -> None:
    def is_reported() -> bool:
        return bool(get(resources, "scg", NAME)["status"]["group"]["lag"] == lag)

    wait_until(is_reported, timeout_s=WAIT_S, what=f"lag {lag}", every_s=0.1)


def test_a_foreign_deployment_of_the_same_name_is_unchanged(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply_raw(a_deployment(WORKERS))
    before = get(resources, "deployment", WORKERS)["spec"]
    resources.apply(NAME, a_spec(redis_86.url, stream))
    taken = resources.await_condition(NAME, reason="NameTaken")
    assert WORKERS in taken["message"] and "targetRef" in taken["message"]
    assert get(resources, "deployment", WORKERS)["spec"] == before
    resources.plane.kubectl("delete", "deployment", WORKERS, "-n", resources.namespace)
    resources.await_condition(NAME, reason="Ready")
    assert "PELOPS_STREAM" in env_of(get(resources, "deployment", WORKERS))


def test_a_template_that_the_api_server_refuses_is_reported_with_the_field(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    template = sleeping_template()
    template["spec"]["containers"][0]["imagePullPolicy"] = "Sometimes"
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template))
    refused = resources.await_condition(NAME, reason="Rejected")
    assert "imagePullPolicy" in refused["message"] and "Sometimes" in refused["message"]
    assert resources.condition(NAME, "GroupReady")["status"] == "True"
    assert resources.condition(NAME, "WorkloadReady")["reason"] == "Rejected"
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("ports", "8080", "Rejected"),
        ("volumeMounts", "/data", "Rejected"),
        ("env", [{"value": "fast"}], "Rejected"),
        ("env", {"MODE": "fast"}, "InvalidSpec"),
        ("env", ["MODE=fast"], "InvalidSpec"),
        ("env", "MODE=fast", "InvalidSpec"),
    ],
)
def test_a_template_with_a_field_of_the_wrong_shape_is_reported(
    resources: Resources,
    redis_86: RedisServers,
    stream: str,
    field: str,
    value: Any,
    reason: str,
) -> None:
    template = sleeping_template()
    template["spec"]["containers"][0][field] = value
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template))
    refused = resources.await_condition(NAME, "WorkloadReady", reason=reason)
    assert field in refused["message"]


@pytest.mark.parametrize("metadata", ["none", {"labels": "none"}, {"labels": ["none"]}])
def test_a_template_with_metadata_of_the_wrong_shape_is_reported(
    resources: Resources, redis_86: RedisServers, stream: str, metadata: Any
) -> None:
    template = {**sleeping_template(), "metadata": metadata}
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template))
    refused = resources.await_condition(NAME, "WorkloadReady", reason="InvalidSpec")
    assert ("metadata" if metadata == "none" else "labels") in refused["message"]


def test_fields_of_a_template_that_are_left_empty_count_as_absent(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    template = {**sleeping_template(volumes=None), "metadata": None}
    template["spec"]["containers"][0] |= {"env": None, "volumeMounts": None}
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template))
    resources.await_condition(NAME, reason="Ready")
    template["metadata"] = {"labels": None}
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template))
    await_observed(resources)
    resources.await_condition(NAME, reason="Ready")


def test_a_template_with_a_field_that_no_pod_has_is_reported(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream, template=sleeping_template(replica=2)))
    refused = resources.await_condition(NAME, "WorkloadReady", reason="Rejected")
    assert "replica" in refused["message"]


def test_crashing_workers_are_reported_with_the_command_that_shows_why(
    resources: Resources, node: Node, redis_86: RedisServers, stream: str
) -> None:
    template = _running("import sys; sys.exit(3)")
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template, replicas=1))
    message = resources.await_condition(NAME, reason="CrashLooping")["message"]
    assert "exit code 3" in message
    assert f"kubectl logs -n {resources.namespace} {WORKERS}-" in message
    assert message.startswith("0 of 1 workers are ready")


def test_a_quota_that_forbids_pods_is_reported(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    quota: Any = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    resources.apply_raw({**quota, "spec": {"hard": {"pods": "0"}}})
    resources.apply(NAME, a_spec(redis_86.url, stream, replicas=1))
    refused = resources.await_condition(NAME, reason="PodsRefused")
    assert "quota" in refused["message"]


def _running(program: str) -> Object:
    template = sleeping_template()
    template["spec"]["containers"][0]["command"] = [sys.executable, "-c", program]
    return template
