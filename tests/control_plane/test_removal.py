"""Removing resources, namespaces and Pelops itself, with an operator and without: nothing hangs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from pelops.domain.naming import derive_keys
from tests.api_objects import create_namespace
from tests.cluster_fixtures import own_plane
from tests.control_plane.counting import WAIT_S
from tests.e2e.declaring import a_deployment, a_spec, await_absence, get, group_of, patch, secret
from tests.operators import ROOT, Operators, Resources, install

BASE = str(ROOT / "manifests" / "base")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: Pelops is removed from it."""
    with own_plane(tmp_path_factory.mktemp("removal")) as plane:
        yield plane


@pytest.fixture
def plane(bare: ControlPlane) -> ControlPlane:
    """The same, with Pelops installed again by each test."""
    install(bare)
    return bare


@pytest.fixture
def resources(plane: ControlPlane, namespace: str) -> Resources:
    return Resources(plane, namespace)


@pytest.fixture
def stream() -> str:
    return f"orders-{uuid.uuid4().hex[:12]}"


def declare(resources: Resources, url: str, stream: str) -> None:
    """Three resources: one that keeps its group, one that destroys it, and one of a user's own."""
    resources.apply_raw(a_deployment("mine"))
    resources.apply("retained", a_spec(url, stream))
    resources.apply("destroyed", a_spec(url, stream, deletionPolicy="Delete", recovery=RETRY))
    own = a_spec(url, stream, template=None, targetRef={"name": "mine"}, recovery=RETRY)
    resources.apply("own", {**own, "scaling": {"mode": "Manual"}})
    for name in ("retained", "destroyed", "own"):
        resources.await_condition(name, "GroupReady", reason="GroupExists")


RETRY = {"strategy": "RetryStream"}  # the stream has several groups


@pytest.mark.full
def test_without_an_operator_only_resources_with_finalizers_wait_for_deletion(
    resources: Resources, operators: Operators, redis_86: StandaloneServers, stream: str
) -> None:
    (operator,) = operators.start(1)
    declare(resources, redis_86.url, stream)
    letters = derive_keys(stream, "destroyed").dead_letter
    redis_86.cli("XADD", letters, "*", "n", "1")
    operator.stop()

    for name in ("retained", "own", "destroyed"):
        resources.delete(name)
    for name in ("retained", "own"):
        await_absence(resources, "scg", name)
    await_absence(resources, "deployment", "retained-workers")  # by the garbage collector
    assert get(resources, "deployment", "mine")
    waiting = get(resources, "scg", "destroyed")
    assert waiting["metadata"]["finalizers"] == ["pelops.dev/group"]
    assert group_of(redis_86, stream, "destroyed")

    operators.start(1)
    await_absence(resources, "scg", "destroyed")
    assert not group_of(redis_86, stream, "destroyed")
    for group in ("retained", "own"):
        assert group_of(redis_86, stream, group)
    assert redis_86.cli("XLEN", letters) == "1"


@pytest.mark.full
def test_a_namespace_deleted_without_an_operator_goes_when_one_is_back(
    plane: ControlPlane, operators: Operators, redis_86: StandaloneServers, stream: str
) -> None:
    name = f"leaving-{stream}"
    create_namespace(plane, name)
    resources = Resources(plane, name)
    (operator,) = operators.start(1)
    resources.apply_raw(secret("redis", url=redis_86.url))
    spec = a_spec("", stream, redis={"secretRef": {"name": "redis"}}, deletionPolicy="Delete")
    resources.apply("destroyed", spec)
    resources.await_condition("destroyed", reason="Ready")
    operator.stop()
    plane.kubectl("delete", "namespace", name, "--wait=false")
    await_absence(resources, "secret", "redis")
    operators.start(1)

    def is_gone() -> bool:
        return not plane.kubectl("get", "namespace", name, "--ignore-not-found").stdout.strip()

    # The new operator has neither the Secret nor a connection: it lets go after 30 s.
    wait_until(is_gone, timeout_s=WAIT_S, what="the namespace to be gone", every_s=0.5)
    assert group_of(redis_86, stream, "destroyed")


@pytest.mark.full
def test_uninstalling_as_documented_removes_pelops_and_keeps_objects_of_users(
    plane: ControlPlane,
    resources: Resources,
    operators: Operators,
    redis_86: StandaloneServers,
    stream: str,
) -> None:
    operators.start(1)
    declare(resources, redis_86.url, stream)
    redis_86.cli("XADD", stream, "*", "n", "1")
    namespace = ("-n", resources.namespace)
    plane.kubectl("delete", "scg", "retained", "--cascade=orphan", *namespace)
    plane.kubectl("delete", "scg", "destroyed", *namespace, "--timeout=60s")
    operators.stop()
    # What is left goes with the CRDs, also one with a finalizer once that is taken away.
    patch(resources, "scg", "own", {"metadata": {"finalizers": ["pelops.dev/group"]}})
    plane.kubectl("delete", "scg", "own", "--wait=false", *namespace)
    patch(resources, "scg", "own", {"metadata": {"finalizers": None}})
    await_absence(resources, "scg", "own")
    plane.kubectl("delete", "-k", BASE, "--ignore-not-found", "--timeout=120s")

    listed = plane.kubectl(
        "get", "crd,namespace,clusterrole,validatingadmissionpolicy", "-o", "name"
    )
    left = [one for one in listed.stdout.split() if "pelops" in one]
    assert left == []
    assert get(resources, "deployment", "mine")
    orphan = get(resources, "deployment", "retained-workers")
    assert not orphan["metadata"].get("ownerReferences")
    assert redis_86.cli("XLEN", stream) == "1"
    for group, is_there in (("retained", True), ("own", True), ("destroyed", False)):
        assert bool(group_of(redis_86, stream, group)) is is_there
