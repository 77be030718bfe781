"""A pod that comes back under its old name, as in a StatefulSet, while no watch reports it.

Its worker calls itself by that name alone. A replica that knows only the end of the former pod
could take its successor's entries for those of the dead.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

from local_cluster.processes import wait_until
from pelops.kube.worker_deployment import RESOURCE_LABEL
from tests.faults.groups_under_fault import GroupUnderFault, Place
from tests.faults.world import World

WAIT_S = 20.0
REPORTING_S = 1.5  # until all replicas have heard of the end
SCANS_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLane(GroupUnderFault):
    """A group whose only worker is a pod that is made by hand, under the same name each time."""

    @property
    def pod(self) -> str:
        """The pod, and the consumer."""
        return f"{self.name}-0"

    def manifest(self, place: Place) -> dict[str, Any]:
        """Of the pod. What the operator injects into workers of its own is all there."""
        spec = self.spec(place)["template"]["spec"]
        spec["containers"][0]["env"] += [
            {"name": name, "value": value} for name, value in self._variables().items()
        ]
        labels = {RESOURCE_LABEL: self.name}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.pod, "labels": labels},
            "spec": spec,
        }

    def _variables(self) -> dict[str, str]:
        keys = self.keys
        return {
            "PELOPS_STREAM": keys.stream,
            "PELOPS_GROUP": keys.group,
            "PELOPS_CONSUMER": self.pod,
            "PELOPS_RETRY_STREAM": keys.retry,
            "PELOPS_HANDOVER_STREAM": keys.offer_stream,
            "PELOPS_STARTED_KEY": keys.started,
            "PELOPS_WORKER_STATE_KEY": keys.worker_state,
        }


NAMED = (NamedLane(name="named", kind="plain-each", replicas=0, handler_ms=20, per_second=30),)


def reuse_names(world: World, dice: random.Random) -> str:
    """Pods end, and come back under their names while the operators' watches carry nothing."""
    lanes = [lane for lane in world.lanes if isinstance(lane, NamedLane)]
    for lane in lanes:
        world.resources.apply_raw(lane.manifest(world.place))
        _await_worker(world, lane)
        time.sleep(dice.uniform(1, 2))
        world.kubectl("delete", "pod", lane.pod, "--wait=true")
    time.sleep(REPORTING_S)
    with world.to_api.stalling():
        for lane in lanes:
            world.resources.apply_raw(lane.manifest(world.place))
            _await_worker(world, lane)
        time.sleep(SCANS_S)
    world.to_api.cut()
    return ", ".join(lane.pod for lane in lanes)


def _await_worker(world: World, lane: NamedLane) -> None:
    wait_until(lambda: world.living(lane), timeout_s=WAIT_S, what=f"pod {lane.pod}", every_s=0.1)
