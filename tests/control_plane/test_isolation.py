"""What a hostile author of resources, or a hostile server, cannot do to the resources of others."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hostile_servers import HostileServers
from benchmarks.usage import observe_memory
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from pelops.kube.client import STREAM_CONSUMER_GROUP
from tests.api_objects import create_namespace
from tests.cluster_fixtures import FAST
from tests.operators import Operators, Resources, is_ready, metrics

HOSTILE, HEALTHY = "hostile", "healthy"
SOON_S = 20.0  # a group is provisioned within 2 to 3 s without hostile tenants
DEEP = 1_100
MAX_RSS_MIB = 300


@pytest.fixture(scope="module")
def servers() -> Iterator[HostileServers]:
    with HostileServers() as servers:
        yield servers


@pytest.fixture(scope="module")
def namespaces(plane: ControlPlane) -> None:
    """The tenants'; each test empties them."""
    for namespace in (HOSTILE, HEALTHY):
        create_namespace(plane, namespace)


@pytest.fixture
def operators(plane: ControlPlane, namespaces: None, tmp_path: Path) -> Iterator[Operators]:
    with Operators(plane, tmp_path, environment=FAST) as started:
        yield started
        for namespace in (HOSTILE, HEALTHY):
            path = STREAM_CONSUMER_GROUP.path(namespace)
            plane.kubectl("delete", "--raw", path)  # one request, which reads none of them


def hostile(plane: ControlPlane, *specs: dict[str, Any]) -> None:
    items = [
        {
            "apiVersion": "pelops.dev/v1alpha1",
            "kind": "StreamConsumerGroup",
            "metadata": {"name": f"evil-{number}"},
            "spec": {"stream": f"evil-{number}", **spec},
        }
        for number, spec in enumerate(specs)
    ]
    create(plane, json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def create(plane: ControlPlane, text: str) -> None:
    plane.kubectl("create", "-n", HOSTILE, "-f", "-", "--validate=false", stdin=text)


def await_healthy(plane: ControlPlane, redis: StandaloneServers, name: str) -> None:
    """Declare a resource of another namespace, and wait for its group."""
    Resources(plane, HEALTHY).apply(name, {"redis": {"url": redis.url}, "stream": name})
    wait_until(
        lambda: redis.cli("EXISTS", name) == "1",
        timeout_s=SOON_S,
        what="the group of a healthy resource",
        every_s=0.1,
    )
    Resources(plane, HEALTHY).await_condition(name, reason="Ready", timeout_s=SOON_S)


def is_alive(operators: Operators) -> bool:
    return all(one.is_alive() for one in operators.processes)


@pytest.mark.parametrize("sort", ["odd_config", "slot_bomb", "flapping"])
def test_a_server_with_malformed_replies_ends_no_operator(
    plane: ControlPlane,
    operators: Operators,
    servers: HostileServers,
    redis_86: StandaloneServers,
    sort: str,
) -> None:
    operators.start(1)
    locks = {"locks": {}, "tuning": {"keyspaceNotifications": True}}
    hostile(plane, *({"redis": {"url": servers.url(sort, n)}, "recovery": locks} for n in range(5)))
    evil = Resources(plane, HOSTILE)
    wait_until(lambda: evil.condition("evil-0"), timeout_s=30, what="an answer about it")
    if sort == "odd_config":
        wait_until(lambda: servers.asked["CONFIG"], timeout_s=30, what="the odd reply")
    await_healthy(plane, redis_86, f"orders-{sort.replace('_', '-')}")
    assert is_alive(operators)
    assert all(map(is_ready, operators.ports))


@pytest.mark.full
def test_eighty_clusters_of_silent_nodes_delay_no_other_namespace(
    plane: ControlPlane,
    operators: Operators,
    servers: HostileServers,
    redis_86: StandaloneServers,
) -> None:
    operators.start(1)
    await_healthy(plane, redis_86, "orders-before")
    hostile(plane, *({"redis": {"url": servers.url("silent_cluster", n)}} for n in range(80)))
    for number in range(3):
        await_healthy(plane, redis_86, f"orders-beside-{number}")
    reason = "RedisUnreachable"
    Resources(plane, HOSTILE).await_condition("evil-0", reason=reason, timeout_s=40)
    assert all(map(is_ready, operators.ports))


def test_a_resource_nested_too_deeply_is_refused_and_operators_start(
    plane: ControlPlane, operators: Operators, redis_86: StandaloneServers
) -> None:
    deep = '{"a":' * DEEP + "1" + "}" * DEEP
    containers = '"containers":[{"name":"worker","image":"worker"}]'
    create(
        plane,
        '{"apiVersion":"pelops.dev/v1alpha1","kind":"StreamConsumerGroup","metadata":{"name":"deep"},'
        f'"spec":{{"redis":{{"url":"{redis_86.url}"}},"stream":"deep",'
        f'"template":{{"spec":{{{containers},"deep":{deep}}}}}}}}}',
    )
    operators.start(1)
    await_healthy(plane, redis_86, "orders-beside-deep")
    refused = Resources(plane, HOSTILE)
    answer = wait_until(
        lambda: (
            plane.kubectl(
                *("get", "scg", "deep", "-n", HOSTILE, "-o"),
                'jsonpath={.status.conditions[?(@.type=="Ready")].message}',
            ).stdout
        ),
        timeout_s=SOON_S,
        what="a condition that says why",
    )
    assert "nested deeper than 64 levels" in str(answer)
    wait_until(lambda: refused.events("deep"), timeout_s=SOON_S, what="an Event about it")
    assert is_alive(operators)


@pytest.mark.full
def test_large_manifests_do_not_fill_the_memory_of_an_operator(
    plane: ControlPlane, operators: Operators, redis_86: StandaloneServers
) -> None:
    pairs = [{"name": f"A{number}", "value": "b"} for number in range(27_000)]
    container = {"name": "worker", "image": "worker", "env": pairs}
    noise = random.Random(1)
    for number in range(24):
        container["command"] = [noise.randbytes(16).hex()]
        large = {
            "apiVersion": "pelops.dev/v1alpha1",
            "kind": "StreamConsumerGroup",
            "metadata": {"name": f"large-{number}"},
            "spec": {
                "redis": {"url": redis_86.url},
                "stream": f"large-{number}",
                "suspend": True,
                "template": {"spec": {"containers": [container]}},
            },
        }
        create(plane, json.dumps(large))
    operators.start(1)
    await_healthy(plane, redis_86, "orders-beside-large")
    refused = Resources(plane, HOSTILE)
    condition = refused.await_condition("large-7", reason="InvalidSpec", timeout_s=SOON_S)
    assert "of which at most 256 KiB are allowed" in condition["message"]
    labels = f'{{name="large-7",namespace="{HOSTILE}"}}'
    assert f"pelops_ready{labels} 0.0" in metrics(operators.ports[0])
    (process,) = operators.processes
    assert observe_memory(process.pid).rss_mib < MAX_RSS_MIB
