"""What tests with many resources or many replicas wait for."""

from __future__ import annotations

import json
import time

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from tests.audit import AuditTrail, Request, writes
from tests.operators import Operators, metrics

WAIT_S = 240.0


def await_ready(plane: ControlPlane, namespace: str, count: int) -> None:
    """Wait until so many resources of the namespace are Ready."""
    path = f"/apis/pelops.dev/v1alpha1/namespaces/{namespace}/streamconsumergroups"

    def ready() -> int:
        conditions = (
            condition
            for item in json.loads(plane.get(path))["items"]
            for condition in item.get("status", {}).get("conditions", [])
        )
        return sum(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    what = f"{count} resources Ready in {namespace}"
    wait_until(lambda: ready() == count, timeout_s=WAIT_S, what=what, every_s=0.5)


def await_members(operators: Operators, count: int) -> None:
    """Wait until each replica that was started knows of so many; none may have ended."""

    def know_each_other() -> bool:
        return all(gauge(port, "pelops_members") == count for port in operators.ports)

    wait_until(know_each_other, timeout_s=WAIT_S, what=f"{count} members", every_s=0.5)


def gauge(port: int, name: str) -> float:
    """The value of a metric without labels."""
    lines = metrics(port).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def await_quiet(trail: AuditTrail, quiet_s: float) -> list[Request]:
    """The requests until the operators have written nothing for so long."""
    seen: list[Request] = []
    quiet_since = time.monotonic()

    def is_quiet() -> bool:
        nonlocal quiet_since
        fresh = trail.read()
        seen.extend(fresh)
        if writes(fresh):
            quiet_since = time.monotonic()
        return time.monotonic() - quiet_since > quiet_s

    wait_until(is_quiet, timeout_s=WAIT_S, what="no more writes", every_s=0.5)
    return seen
