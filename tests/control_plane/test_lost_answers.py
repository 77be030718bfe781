"""A scale write by Pelops whose answer is lost counts as its own, whatever is observed next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from pelops.controller.group.group_observer import RedisObservation
from pelops.controller.group.victims import Victims
from pelops.controller.runtime.events import Reporter
from pelops.controller.scaling.scale_writes import ScaleWrites
from pelops.controller.scaling.scaled_resources import Scaled, ScaledResources
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.kube.client import DEPLOYMENT, STREAM_CONSUMER_GROUP, Address, KubeApi
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.status.reasons import Reason
from tests.builders import resource
from tests.e2e.declaring import a_deployment
from tests.faults.proxy import Proxy
from tests.operators import Resources

NAME = "workers"
WAIT_S = 60


@pytest.fixture
def proxy(plane: ControlPlane) -> Iterator[Proxy]:
    """A network between the operator and the API server."""
    made = Proxy(int(plane.url.rpartition(":")[2]))
    yield made
    made.close()


@pytest.fixture
async def api(plane: ControlPlane, proxy: Proxy, tmp_path: Path) -> AsyncIterator[KubeApi]:
    """A client behind the proxy."""
    behind = tmp_path / "kubeconfig"
    through = plane.url.rpartition(":")[0] + f":{proxy.port}"
    behind.write_text(plane.kubeconfig.read_text().replace(plane.url, through))
    made = await KubeApi.connect(str(behind))
    yield made
    await made.close()


class Deciding(ScaledResources):
    """This replica decides, whatever it knows."""

    def __init__(self) -> None:
        pass

    def is_current(self, scaled: Scaled) -> bool:
        return True

    def left_s(self) -> float:
        return 60.0


async def test_a_write_whose_answer_was_lost_is_no_move_of_a_stranger(
    plane: ControlPlane, namespace: str, api: KubeApi, proxy: Proxy
) -> None:
    Resources(plane, namespace).apply_raw(a_deployment(NAME, 1))
    address = Address(kind=DEPLOYMENT, namespace=namespace, name=NAME)
    cache = WorkloadCache()
    cache.put(DEPLOYMENT, await api.get(address))
    asked = resource(
        metadata={"namespace": namespace}, target_ref={"name": NAME}, scaling={"mode": "Auto"}
    )
    targets = Targets(api, cache, lambda: 0.0)
    reporter = Reporter(api, STREAM_CONSUMER_GROUP, identity="a")
    writes = ScaleWrites(Deciding(), targets, Victims(api, cache), reporter, lambda: 0.0)
    scaled = Scaled(resource=asked, manifest={})
    workload, _ = await targets.observe(asked)
    known = scaled.autoscaler.writes
    known.uid, known.written = workload.uid, 1
    decision = ScalingDecision(replicas=3, reason=Reason.SCALED, message="", current=1)
    await targets.scale(workload.target, 1)  # what must be asked before a write is known now
    proxy.mute()
    sending = asyncio.create_task(writes.carry_out(scaled, decision, workload, RedisObservation()))
    asking = ("get", "deploy", NAME, "-n", namespace, "-o", "jsonpath={.spec.replicas}")
    await asyncio.to_thread(
        wait_until,
        lambda: plane.kubectl(*asking).stdout == "3",
        timeout_s=WAIT_S,
        what="the write to arrive",
    )
    proxy.heal()
    await sending
    assert scaled.problem is not None
    assert known.observe(replace(workload, wished=3), now=60) == 2
    assert (known.written, known.foreign) == (3, ())
