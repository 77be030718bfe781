"""Groups in mode Auto, whose windows are so short that tests need not wait for them."""

from __future__ import annotations

import sys
from typing import Any

from local_cluster.redis_servers import RedisServers
from tests.e2e.declaring import NAME, WAIT_S, Object, get, patch
from tests.e2e.recovering import Group
from tests.operators import ROOT, Resources, sleeping_template

PER_REPLICA = 5
MOST = 3


def auto(**more: Any) -> Object:
    """`spec.scaling` that follows the backlog almost at once. Auto is the default."""
    return {
        "maxReplicas": MOST,
        "backlogPerReplica": PER_REPLICA,
        "cooldownSeconds": 1,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 1}},
        **more,
    }


def working_template() -> Object:
    """A template whose worker reads, and finishes what it may."""
    template = sleeping_template()
    container = template["spec"]["containers"][0]
    container["command"] = [sys.executable, str(ROOT / "tests" / "e2e" / "scaled_worker.py")]
    return template


class ScaledGroup(Group):
    """A resource whose number of workers follows the backlog of its group."""

    def __init__(
        self,
        resources: Resources,
        servers: RedisServers,
        stream: str,
        *,
        name: str = NAME,
        group: str | None = None,
    ) -> None:
        super().__init__(resources, servers, stream, name=name, group=group or name)
        self.gate = f"{stream}:gate"
        self.target = ("deployment", f"{name}-workers")

    def scale_by_backlog(self, scaling: Object | None = None, **more: Any) -> None:
        """Declare it, and wait until it is ready."""
        self.apply(scaling=scaling or auto(), **more)
        self.resources.await_condition(self.name, reason="Ready")

    def replicas(self) -> int:
        """The replicas that the target's spec asks for."""
        return int(get(self.resources, *self.target)["spec"]["replicas"])

    def await_replicas(self, count: int, timeout_s: float = WAIT_S) -> None:
        """Return once the target's spec asks for so many."""
        self.until(lambda: self.replicas() == count, f"{count} replicas", timeout_s)

    def await_scaling(self, reason: str) -> Object:
        """The condition ScalingActive, once it has this reason."""
        return self.resources.await_condition(self.name, "ScalingActive", reason=reason)

    def await_seen(self, lag: int) -> None:
        """Return once the operator has seen that so many are undelivered."""
        self.until(lambda: self.reported("group").get("lag") == lag, f"a lag of {lag} in status")

    def hold(self, count: int) -> list[str]:
        """Add entries that workers finish when they are let go."""
        return self.add(count, hold=self.gate)

    def let_go(self) -> None:
        """Have all that is held finished."""
        self.redis.set(self.gate, "open")

    def finish_all(self) -> None:
        """Skip all undelivered entries, in place of workers that do not read."""
        self.redis.xgroup_setid(self.stream, self.keys.group, "$")

    def reported_lag(self) -> int | None:
        """The lag that XINFO GROUPS reports."""
        (seen,) = self.redis.xinfo_groups(self.stream)
        lag: int | None = seen["lag"]
        return lag

    def change(self, **spec: Any) -> None:
        """kubectl patch of the spec."""
        patch(self.resources, "scg", self.name, {"spec": spec})

    def events(self, reason: str) -> list[str]:
        """The notes of the Events of this reason."""
        reported = self.resources.events(self.name)
        return [str(one["note"]) for one in reported if one["reason"] == reason]
