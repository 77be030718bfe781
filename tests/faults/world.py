"""What a phase with operators runs in: a control plane, nodes, operators and their resources."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_cluster.plane import ControlPlane
from tests.faults.fleet import Fleet
from tests.faults.groups_under_fault import GroupUnderFault
from tests.faults.proxy import Proxy
from tests.faults.scene import Scene, Setting, connect_to, send
from tests.faults.upgrading import Upgrade
from tests.operators import Resources

__all__ = ["Ground", "Setting", "World", "connect_to", "send"]

PATIENCE_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What phases share: a control plane, and a directory for all they write."""

    plane: ControlPlane
    directory: Path
    operator_environment: Mapping[str, str]  # of a mutant


@dataclass(kw_only=True)
class World(Scene):
    """Everything that a fault can hit, and what it did."""

    ground: Ground
    to_api: Proxy
    fleets: list[Fleet]
    resources: Resources
    upgrade: Upgrade | None = None  # of the operators, from the former version
    dead_since: dict[tuple[str, int], float] = field(default_factory=dict)  # by pod and restarts

    @property
    def namespace(self) -> str:
        """Where the resources are."""
        return self.resources.namespace

    def pods(self) -> list[dict[str, Any]]:
        """The pods as the API server has them; none when it does not answer."""
        try:
            answer = self.ground.plane.get(f"/api/v1/namespaces/{self.namespace}/pods")
        except OSError:
            return []
        items: list[dict[str, Any]] = json.loads(answer)["items"]
        return items

    def kubectl(self, *words: str) -> None:
        """As an administrator; what fails, fails: the API server may be a victim, too."""
        self.ground.plane.kubectl(*words, "-n", self.namespace, check=False)

    def tend(self) -> None:
        """Replace pods that wait long for their next start, once the operator has had its time."""
        alive = {one.consumer for one in self.living()}
        for pod in self.pods():
            meta, statuses = pod["metadata"], pod.get("status", {}).get("containerStatuses") or []
            restarts = max((one.get("restartCount", 0) for one in statuses), default=0)
            if f"{meta['name']}:{meta['uid']}" in alive or meta.get("deletionTimestamp"):
                continue
            since = self.dead_since.setdefault((meta["uid"], restarts), time.monotonic())
            if restarts >= 3 and time.monotonic() - since > PATIENCE_S:
                self.kubectl("delete", "pod", meta["name"], "--wait=false")

    def ask_for(self, lane: GroupUnderFault, *, strategy: str) -> None:
        """Have stuck entries of a lane copied to the stream, or to its retry stream."""
        patch = json.dumps({"spec": {"recovery": {"strategy": strategy}}})
        self.kubectl("patch", "streamconsumergroup", lane.name, "--type=merge", "-p", patch)

    def read_retry_streams(self) -> None:
        """Retry streams are asked for and read as they were in the beginning."""
        for lane in self.lanes:
            if lane.strategy == "RetryStream":
                self.ask_for(lane, strategy=lane.strategy)
                self.place.unread(lane).unlink(missing_ok=True)

    def heal(self) -> None:
        """End every fault; whatever was ended or paused runs again."""
        self.to_api.heal()
        super().heal()
        api = self.ground.plane.process("kube-apiserver")
        api.resume()
        if not api.is_alive():
            self.ground.plane.restart("kube-apiserver")
        for fleet in self.fleets:
            fleet.replace()
        if self.upgrade is not None:
            self.upgrade.finish(self.fleets[0])
            self.disagreements += self.upgrade.disagreements
        self.read_retry_streams()
