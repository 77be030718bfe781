"""A group at which nothing happens is read at each interval, and gets hardly a pass."""

from __future__ import annotations

from functools import partial
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.control_plane.counting import WAIT_S, await_ready
from tests.operators import Operators, Resources, metrics

GROUPS = 5


def total(port: int, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(metrics(port))
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def group_of(number: int, url: str, prefix: str) -> dict[str, Any]:
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": f"orders-{number}"},
        "spec": {
            "redis": {"url": url},
            "stream": f"{prefix}-{number}",
            "recovery": {"scanPeriodSeconds": 3600},
        },
    }


def test_an_idle_group_is_read_and_not_passed_until_something_changes(
    plane: ControlPlane, operators: Operators, redis_86: StandaloneServers, namespace: str
) -> None:
    operators.start(1)
    (port,) = operators.ports
    resources = Resources(plane, namespace)
    resources.apply_raw(*(group_of(one, redis_86.url, namespace) for one in range(GROUPS)))
    await_ready(plane, namespace, GROUPS)
    reads = partial(total, port, "pelops_script_outcomes_total", script="observe_group")
    passes = partial(total, port, "pelops_reconciles_total", outcome="done")

    def count_passes_of(wanted: int) -> float:
        """Passes while groups are read so often."""
        before = (reads(), passes())
        wait_until(lambda: reads() - before[0] >= wanted, timeout_s=WAIT_S, what="reads")
        return passes() - before[1]

    wait_until(lambda: count_passes_of(20 * GROUPS) <= 5 * GROUPS, timeout_s=WAIT_S, what="rest")

    redis_86.cli("XADD", f"{namespace}-0", "*", "sku", "A")
    wait_until(
        lambda: _lag(resources, "orders-0") == 1, timeout_s=WAIT_S, what="the lag in the status"
    )
    redis_86.cli("XGROUP", "DESTROY", f"{namespace}-1", "orders-1")
    wait_until(
        lambda: "orders-1" in redis_86.cli("XINFO", "GROUPS", f"{namespace}-1"),
        timeout_s=WAIT_S,
        what="the group to be created again",
    )


def _lag(resources: Resources, name: str) -> int | None:
    found = resources.get("scg", name)
    return found["status"].get("group", {}).get("lag") if found else None
