"""Replicas and the API server come and go; what was asked for is done, and done once."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.control_plane.counting import WAIT_S, await_members, await_ready, gauge
from tests.operators import Operators, Resources, metrics, sleeping_template

MEMBERS = "pelops-system"
SOON_S = 15.0  # the Deployment gives it 20 s until it is killed


@pytest.fixture(autouse=True)
def no_former_members(plane: ControlPlane) -> None:
    """Those that were killed count as alive for some seconds."""
    plane.kubectl("delete", "leases", "--all", "-n", MEMBERS)


def test_sigterm_ends_a_replica_at_once_and_takes_its_lease_along(
    plane: ControlPlane, operators: Operators, redis_86: StandaloneServers, namespace: str
) -> None:
    (process,) = operators.start(1)
    resources = Resources(plane, namespace)
    resources.apply_raw(_resource("orders", redis_86.url, namespace))
    resources.await_condition("orders", reason="Ready")
    wait_until(lambda: len(_leases(plane)) == 1, timeout_s=WAIT_S, what="its Lease")
    process.send_to_leader(signal.SIGTERM)
    assert process.ends_within(SOON_S), process.tail()
    assert process.exit_code == 0
    assert _leases(plane) == []


def test_replicas_killed_amid_the_work_leave_nothing_undone_and_nothing_done_twice(
    plane: ControlPlane, operators: Operators, redis_86: StandaloneServers, namespace: str
) -> None:
    operators.start(3)
    await_members(operators, 3)
    names = [f"orders-{number}" for number in range(50)]
    manifests = [_resource(name, redis_86.url, namespace) for name in names]
    chance = random.Random()
    with ThreadPoolExecutor() as beside:
        applied = beside.submit(Resources(plane, namespace).apply_raw, *manifests)
        for victim, least in ((operators.processes[0], 1), (operators.processes[1], 20)):
            # Whenever that is, some resources are under way.
            groups = chance.randint(least, least + 10)
            _await_groups(redis_86, namespace, groups)
            victim.kill()
        applied.result()
    await_ready(plane, namespace, len(names))
    times = {name: _times_created(redis_86, f"{namespace}-{name}") for name in names}
    assert {name: count for name, count in times.items() if count != 1} == {}


@pytest.mark.full
def test_a_hanging_replica_blocks_nothing_before_its_lease_expires(
    plane: ControlPlane, operators: Operators, redis_86: StandaloneServers, namespace: str
) -> None:
    hangs, _ = operators.start(2)
    await_members(operators, 2)
    hangs.pause()
    with _renewed(plane, operators.ports[0]):
        resources = Resources(plane, namespace)
        names = [f"orders-{number}" for number in range(12)]
        resources.apply_raw(*(_resource(name, redis_86.url, namespace) for name in names))
        await_ready(plane, namespace, len(names))
        # Half of them belong to it by rank: the other did not wait until its Lease ran out.
        assert gauge(operators.ports[1], "pelops_members") == 2
    hangs.resume()


@pytest.mark.full
def test_an_api_server_that_dies_and_returns_is_caught_up_with(
    plane: ControlPlane, operators: Operators, redis_86: StandaloneServers, namespace: str
) -> None:
    (process,) = operators.start(1, PELOPS_RESYNC_INTERVAL="3")
    resources = Resources(plane, namespace)
    resources.apply_raw(*(_resource(n, redis_86.url, namespace) for n in ("kept", "removed")))
    await_ready(plane, namespace, 2)
    process.pause()  # so that no watch can report the deletion
    plane.process("kube-apiserver").kill()
    plane.restart("kube-apiserver")
    resources.delete("removed")
    process.resume()
    resources.apply_raw(_resource("added", redis_86.url, namespace))
    resources.await_condition("added", reason="Ready")
    wait_until(
        lambda: _reported(operators.ports[0], namespace) == {"kept", "added"},
        timeout_s=WAIT_S,
        what="the removed resource to be forgotten",
        every_s=0.5,
    )
    resources.apply_raw(_resource("kept", redis_86.url, namespace, replicas=2))
    wait_until(
        lambda: _wished(resources, "kept-workers") == 2, timeout_s=WAIT_S, what="a change is done"
    )
    assert process.is_alive()


@pytest.mark.full
def test_sigterm_ends_a_replica_while_the_api_server_is_away(
    plane: ControlPlane, operators: Operators, redis_86: StandaloneServers, namespace: str
) -> None:
    (process,) = operators.start(1)
    resources = Resources(plane, namespace)
    resources.apply_raw(_resource("orders", redis_86.url, namespace))
    resources.await_condition("orders", reason="Ready")
    plane.process("kube-apiserver").kill()
    try:
        wait_until(
            lambda: "Could not renew the Lease of this replica" in process.tail(200),
            timeout_s=WAIT_S,
            what="the operator to notice",
        )
        process.send_to_leader(signal.SIGTERM)
        assert process.ends_within(SOON_S), process.tail()
        assert process.exit_code == 0
    finally:
        plane.restart("kube-apiserver")


@pytest.mark.full
def test_five_hundred_resources_applied_at_once_become_ready(
    plane: ControlPlane, operators: Operators, redis_86: StandaloneServers, namespace: str
) -> None:
    operators.start(2)
    await_members(operators, 2)
    resources = Resources(plane, namespace)
    resources.apply_raw(
        *(_resource(f"orders-{number}", redis_86.url, namespace) for number in range(500))
    )
    await_ready(plane, namespace, 500)


def _resource(name: str, url: str, namespace: str, replicas: int = 0) -> dict[str, Any]:
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": name},
        "spec": {
            "redis": {"url": url},
            "stream": f"{namespace}-{name}",
            "group": "workers",
            "template": sleeping_template(),
            "replicas": replicas,
        },
    }


def _leases(plane: ControlPlane) -> list[str]:
    answer = plane.kubectl("get", "leases", "-n", MEMBERS, "-o", "name")
    return answer.stdout.split()


@contextmanager
def _renewed(plane: ControlPlane, port: int) -> Iterator[None]:
    """Renew the Lease of the replica on this port in its name."""
    (lease,) = (name for name in _leases(plane) if name.endswith(f"-{port}"))
    is_over = Event()

    def renew() -> None:
        while not is_over.wait(1.0):
            time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            body = json.dumps({"spec": {"renewTime": time}})
            plane.kubectl("patch", lease, "-n", MEMBERS, "--type=merge", "-p", body)

    with ThreadPoolExecutor() as beside:
        renewing = beside.submit(renew)
        try:
            yield
        finally:
            is_over.set()
    renewing.result()


def _await_groups(redis: StandaloneServers, namespace: str, count: int) -> None:
    """Wait for so many groups of a namespace, by their ledgers."""

    def exist() -> bool:
        return len(redis.cli("KEYS", f"*{namespace}-*:ledger").split()) >= count

    wait_until(exist, timeout_s=WAIT_S, what=f"{count} groups")


def _times_created(redis: StandaloneServers, stream: str) -> int:
    """How often the group was created, by its ledger."""
    ledger = redis.cli("XRANGE", f"{{{stream}}}:workers:ledger", "-", "+")
    return ledger.split().count("group-created")


def _reported(port: int, namespace: str) -> set[str]:
    """The resources of a namespace that the metrics speak of."""
    pattern = rf'^pelops_ready{{name="(.*)",namespace="{namespace}"}} '
    return set(re.findall(pattern, metrics(port), re.MULTILINE))


def _wished(resources: Resources, deployment: str) -> int | None:
    found = resources.get("deployment", deployment)
    return found["spec"]["replicas"] if found else None
