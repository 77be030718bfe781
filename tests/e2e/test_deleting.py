"""Deletion ends what the resource has made, keeps what belongs to the user, and never hangs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from local_cluster.errors import KubectlError
from local_cluster.nodes import Node
from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import derive_keys
from tests.api_objects import list_objects
from tests.e2e.declaring import (
    NAME,
    WAIT_S,
    WORKERS,
    Object,
    a_spec,
    acts_of,
    await_absence,
    get,
    group_of,
    patch,
    secret,
)
from tests.operators import Resources
from tests.redis_fixtures import RunRedis

PATIENCE_S = 60.0  # the operator waits for 30 s


def test_a_retained_group_is_unchanged_and_can_be_adopted_at_once(
    resources: Resources, node: Node, redis_86: RedisServers, stream: str
) -> None:
    redis_86.cli("XADD", stream, "5-0", "sku", "A")
    resources.apply("former", a_spec(redis_86.url, stream, group=NAME, replicas=1))
    resources.await_condition("former", reason="Ready")
    redis_86.cli("XREADGROUP", "GROUP", NAME, "jane", "STREAMS", stream, ">")
    before = group_of(redis_86, stream, NAME)
    resources.delete("former")
    await_absence(resources, "scg", "former")
    resources.apply("next", a_spec(redis_86.url, stream, group=NAME))
    # Far sooner than an ownership record that was not released expires, which takes ten minutes.
    resources.await_condition("next", reason="Ready")
    assert group_of(redis_86, stream, NAME) == before
    assert before["pending"] == "1"
    await_absence(resources, "deployment", "former-workers")
    _await_no_pods(resources)
    acts = acts_of(redis_86, derive_keys(stream, NAME).ledger)
    assert [event["name"] for event in acts] == ["former", "next"]


def test_the_hold_of_a_deleted_resource_is_released(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    state = derive_keys(stream, NAME).state
    assert redis_86.cli("HGET", state, "owner:name") == NAME
    resources.delete(NAME)
    wait_until(
        lambda: redis_86.cli("HGET", state, "owner:name") == "",
        timeout_s=WAIT_S,
        what="the release",
    )


def test_a_destroyed_group_leaves_its_stream_and_its_dead_letters(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    keys = derive_keys(stream, NAME)
    redis_86.cli("XADD", stream, "5-0", "sku", "A")
    redis_86.cli("XGROUP", "CREATE", stream, "neighbour", "0")
    recovery = {"strategy": "RetryStream"}
    spec = a_spec(redis_86.url, stream, deletionPolicy="Delete", recovery=recovery)
    resources.apply(NAME, spec)
    resources.await_condition(NAME, reason="Ready")
    assert get(resources, "scg", NAME)["metadata"]["finalizers"] == ["pelops.dev/group"]
    redis_86.cli("XADD", keys.dead_letter, "*", "sku", "B")
    resources.delete(NAME)
    await_absence(resources, "scg", NAME)
    assert not group_of(redis_86, stream, NAME)
    assert group_of(redis_86, stream, "neighbour")
    assert (redis_86.cli("XLEN", stream), redis_86.cli("XLEN", keys.dead_letter)) == ("1", "1")
    own = set(keys.derived()) - {keys.dead_letter}
    assert redis_86.cli("EXISTS", *own) == "0"
    removed = resources.await_events(NAME, "GroupRemoved")
    assert [(event["type"], "Destroyed" in event["note"]) for event in removed] == [
        ("Normal", True)
    ]


def test_a_policy_that_changes_back_to_retain_gives_the_finalizer_up(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream, deletionPolicy="Delete"))
    resources.await_condition(NAME, reason="Ready")
    resources.apply(NAME, a_spec(redis_86.url, stream, deletionPolicy="Retain"))
    wait_until(
        lambda: "finalizers" not in get(resources, "scg", NAME)["metadata"],
        timeout_s=WAIT_S,
        what="no finalizer",
    )
    resources.delete(NAME)
    await_absence(resources, "scg", NAME)
    assert group_of(redis_86, stream, NAME)


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_resource_that_is_made_again_under_its_name_is_ready_again(
    resources: Resources, redis_86: RedisServers, stream: str, policy: str
) -> None:
    spec = a_spec(redis_86.url, stream, deletionPolicy=policy)
    resources.apply(NAME, spec)
    resources.await_condition(NAME, reason="Ready")
    former = get(resources, "deployment", WORKERS)["metadata"]["uid"]
    resources.delete(NAME, wait=True)
    resources.apply(NAME, spec)
    resources.await_condition(NAME, reason="Ready")
    resource = get(resources, "scg", NAME)

    def is_ours() -> bool:
        metadata = (resources.get("deployment", WORKERS) or {}).get("metadata") or {}
        owners = [owner["uid"] for owner in metadata.get("ownerReferences") or ()]
        return metadata.get("uid") != former and owners == [resource["metadata"]["uid"]]

    wait_until(is_ours, timeout_s=WAIT_S, what="a Deployment of the new resource")


@pytest.mark.full
def test_deletion_does_not_wait_for_an_unreachable_redis_or_missing_secret(
    resources: Resources, run_redis: RunRedis, redis_86: RedisServers, stream: str
) -> None:
    """Invariant 8."""
    mortal = run_redis()
    resources.apply_raw(secret("redis", url=redis_86.url))
    resources.apply("no-redis", a_spec(mortal.url, stream, deletionPolicy="Delete"))
    spec = a_spec("", stream, redis={"secretRef": {"name": "redis"}}, deletionPolicy="Delete")
    resources.apply("no-secret", spec)
    for name in ("no-redis", "no-secret"):
        resources.await_condition(name, reason="Ready")
    mortal.servers[0].kill()
    resources.plane.kubectl("delete", "secret", "redis", "-n", resources.namespace)
    # The Secret's content is remembered for a minute; another Redis is not.
    spec["redis"] = {"secretRef": {"name": "never-there"}}
    resources.apply("no-secret", spec)
    resources.await_condition("no-secret", reason="SecretMissing")
    for name in ("no-redis", "no-secret"):
        resources.delete(name)
    for name in ("no-redis", "no-secret"):
        await_absence(resources, "scg", name, PATIENCE_S)
        left = resources.await_events(name, "GroupNotDestroyed")
        assert [event["type"] for event in left] == ["Warning"]
    assert group_of(redis_86, stream, "no-secret")


@pytest.mark.full
def test_a_deleted_namespace_goes_with_all_that_is_declared_in_it(
    resources: Resources, node: Node, redis_86: RedisServers, stream: str
) -> None:
    resources.apply_raw(secret("redis", url=redis_86.url))
    recovery = {"strategy": "RetryStream"}  # there are two groups
    redis = {"secretRef": {"name": "redis"}}
    spec = a_spec("", stream, redis=redis, replicas=1, recovery=recovery)
    resources.apply("retained", spec)
    resources.apply("destroyed", {**spec, "deletionPolicy": "Delete"})
    for name in ("retained", "destroyed"):
        resources.await_condition(name, reason="Ready")
    kubectl = resources.plane.kubectl
    kubectl("delete", "namespace", resources.namespace, "--wait=false")
    wait_until(
        lambda: (
            not kubectl(
                "get", "namespace", resources.namespace, "--ignore-not-found"
            ).stdout.strip()
        ),
        timeout_s=90,
        what="the namespace to be gone",
        every_s=0.5,
    )
    assert group_of(redis_86, stream, "retained")


def _await_no_pods(resources: Resources) -> None:
    wait_until(
        lambda: not list_objects(resources.plane, resources.namespace, "pod"),
        timeout_s=WAIT_S,
        what="no pods",
        every_s=0.2,
    )


def test_a_resource_whose_spec_cannot_be_read_is_reported_and_still_goes(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream, deletionPolicy="Delete"))
    resources.await_condition(NAME, reason="Ready")
    recovery = (
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/recovery/properties"
    )
    bound = f"{recovery}/tuning/properties"
    with _patched_crd(resources, f"{bound}/batchSize/maximum", 9999):
        _patch_when_served(resources, {"spec": {"recovery": {"tuning": {"batchSize": 5000}}}})
        reported = resources.await_condition(NAME, reason="InvalidSpec")
        assert "batchSize" in reported["message"]
        resources.delete(NAME)
        await_absence(resources, "scg", NAME)
    resources.await_events(NAME, "GroupNotDestroyed")
    assert group_of(redis_86, stream, NAME)


def _patch_when_served(resources: Resources, change: Object) -> None:
    """Patch the resource as soon as the API server goes by the changed CRD."""

    def is_accepted() -> bool:
        with suppress(KubectlError):
            patch(resources, "scg", NAME, change)
            return True
        return False

    wait_until(is_accepted, timeout_s=WAIT_S, what="the changed CRD", every_s=0.2)


@contextmanager
def _patched_crd(resources: Resources, path: str, value: int) -> Iterator[None]:
    """A CRD of another version than the operator's: it lets more through."""

    def replace(number: int) -> None:
        change = json.dumps([{"op": "replace", "path": path, "value": number}])
        name = "streamconsumergroups.pelops.dev"
        resources.plane.kubectl("patch", "crd", name, "--type=json", "-p", change)

    replace(value)
    try:
        yield
    finally:
        replace(1000)
