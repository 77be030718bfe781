from __future__ import annotations

from local_cluster.nodes import Node
from local_cluster.redis_servers import RedisServers
from tests.operators import Operators, Resources, sleeping_template
from local_cluster.plane import ControlPlane


def test_a_resource_with_a_template_gets_its_group_and_its_workers(
    plane: ControlPlane, node: Node, operator: Operators, empty_redis_86: RedisServers, namespace: str
) -> None:
    resources = Resources(plane, namespace)
    resources.apply(
        "orders",
        {
            "redis": {"url": empty_redis_86.url},
            "stream": "orders",
            "template": sleeping_template(),
        },
    )
    resources.await_condition("orders", reason="Ready")
    assert "orders" in empty_redis_86.cli("XINFO", "GROUPS", "orders")
