"""A suspended resource is looked at and changes nothing."""

from __future__ import annotations

from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import derive_keys
from tests.e2e.declaring import (
    NAME,
    WORKERS,
    a_spec,
    await_absence,
    await_observed,
    get,
    group_of,
    patch,
)
from tests.operators import Resources


def test_a_resource_that_begins_suspended_makes_nothing_until_it_is_let_go(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    spec = a_spec(redis_86.url, stream, suspend=True, deletionPolicy="Delete")
    resources.apply(NAME, spec)
    suspended = resources.await_condition(NAME, "Suspended", reason="Suspended")
    assert suspended["status"] == "True"
    not_ready = resources.await_condition(NAME, reason="Suspended")
    assert (not_ready["status"], "spec.suspend" in not_ready["message"]) == ("False", True)
    keys = derive_keys(stream, NAME)
    assert redis_86.cli("EXISTS", stream, *keys.derived()) == "0"
    assert resources.get("deployment", WORKERS) is None
    assert "finalizers" not in get(resources, "scg", NAME)["metadata"]

    patch(resources, "scg", NAME, {"spec": {"suspend": False}})
    resources.await_condition(NAME, reason="Ready")
    assert group_of(redis_86, stream, NAME)
    assert not resources.condition(NAME, "Suspended")


def test_a_suspended_resource_mends_nothing_and_goes_on_reporting(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    patch(resources, "scg", NAME, {"spec": {"suspend": True}})
    resources.await_condition(NAME, "Suspended", reason="Suspended")
    assert resources.condition(NAME)["reason"] == "Suspended"
    redis_86.cli("XGROUP", "DESTROY", stream, NAME)
    kubectl, where = resources.plane.kubectl, ("-n", resources.namespace)
    kubectl("scale", "deployment", WORKERS, "--replicas=1", *where)
    kubectl("set", "image", f"deployment/{WORKERS}", "worker=local/other", *where)
    resources.await_condition(NAME, "GroupReady", reason="Suspended")
    assert not group_of(redis_86, stream, NAME)
    workers = get(resources, "deployment", WORKERS)["spec"]
    image = workers["template"]["spec"]["containers"][0]["image"]
    assert (workers["replicas"], image) == (1, "local/other")

    patch(resources, "scg", NAME, {"spec": {"suspend": False}})
    resources.await_condition(NAME, reason="Ready")
    assert group_of(redis_86, stream, NAME)["last-delivered-id"] == "0-0"
    assert get(resources, "deployment", WORKERS)["spec"]["replicas"] == 0


def test_a_resource_that_is_deleted_while_suspended_leaves_its_group(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream, deletionPolicy="Delete"))
    resources.await_condition(NAME, reason="Ready")
    patch(resources, "scg", NAME, {"spec": {"suspend": True}})
    await_observed(resources)
    resources.delete(NAME)
    await_absence(resources, "scg", NAME)
    assert group_of(redis_86, stream, NAME)
