"""Evidence about pods, from a real API server: what the watch reported, what a live look adds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from pelops.controller.recovery.pod_evidence import LivenessEvidence
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.recovery import Death, LivenessReason
from pelops.kube.client import NODE, POD, Address, KubeApi
from pelops.policy.recovery.liveness import REPORTS_WITHIN
from tests.control_plane.evidence_scene import (
    NODE_NAME,
    SKEW,
    Scene,
    ended,
    record_of,
    restarted,
    running,
    text,
)

LONG_S = 30 + REPORTS_WITHIN.total_seconds()


@pytest.fixture
async def scene(plane: ControlPlane, namespace: str) -> AsyncIterator[Scene]:
    account = ("-n", namespace, "get", "serviceaccount", "default")
    wait_until(
        lambda: plane.kubectl(*account, check=False).returncode == 0,
        timeout_s=60,
        what="default account",
    )
    api = await KubeApi.connect(str(plane.kubeconfig))
    try:
        yield Scene(plane, api, namespace)
    finally:
        await api.close()


@pytest.fixture
async def deaf(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[KubeApi]:
    """A client of an API server that does not answer."""
    known = plane.kubeconfig.read_text()
    path = tmp_path / "kubeconfig"
    path.write_text(known.replace(plane.url, "https://127.0.0.1:1"))
    api = await KubeApi.connect(str(path))
    yield api
    await api.close()


async def test_an_ended_and_deleted_pod_is_dead_with_or_without_uid(scene: Scene) -> None:
    made = await scene.pod(**running(datetime.now(UTC)))
    scene.cache.put(POD, made)
    last = await scene.report(phase="Failed", state=ended(datetime.now(UTC)))
    scene.remove()
    scene.bury(last)
    for consumer in (f"web-0:{made['metadata']['uid']}", "web-0-17"):
        before = datetime.now(UTC)
        liveness = await scene.find_liveness(consumer)
        assert liveness.cutoff.reason is LivenessReason.GONE
        assert liveness.cutoff.at is not None
        assert before <= liveness.cutoff.at <= datetime.now(UTC)


async def test_a_pod_that_took_the_name_unseen_is_not_recovered_prematurely(scene: Scene) -> None:
    made = await scene.pod(**running(datetime.now(UTC)))
    scene.cache.put(POD, made)
    last = await scene.report(phase="Failed", state=ended(datetime.now(UTC)))
    scene.remove()
    scene.bury(last)
    successor = await scene.pod(**running(datetime.now(UTC)))
    began = datetime.fromisoformat(
        successor["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    )
    by_name = await scene.find_liveness("web-0")
    assert (by_name.cutoff.at, by_name.cutoff.reason) == (began - SKEW, LivenessReason.REPLACED)
    by_uid = await scene.find_liveness(f"web-0:{made['metadata']['uid']}")
    assert by_uid.cutoff.reason is LivenessReason.GONE
    # What was proven once is written down, and needs no memory of the former pod.
    assert by_name.record == record_of(successor, is_successor=True)
    scene.cache.put(POD, successor)
    cache = WorkloadCache()
    cache.put(POD, successor)
    fresh = LivenessEvidence(scene.api, cache, cluster="here")
    again = await scene.find_liveness("web-0", evidence=fresh, pod=by_name.record)
    assert (again.cutoff.at, again.record) == (began - SKEW, None)


async def test_a_vanished_pod_is_dead_after_its_node_reported_for_long(
    scene: Scene,
) -> None:
    # The cache does not hear that it went; a live look finds it.
    scene.cache.put(POD, await scene.pod(**restarted(datetime.now(UTC))))
    scene.remove()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}}
    made = json.loads(
        scene.plane.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(node)).stdout
    )
    address = Address(kind=NODE, namespace=None, name=NODE_NAME, subresource="status")

    async def turn(status: str) -> None:
        since = text(datetime.now(UTC) - timedelta(hours=1))
        ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
        await scene.api.merge(address, {"status": {"conditions": [ready]}})

    try:
        scene.cache.put(NODE, made)
        await turn("True")
        first = await scene.find_liveness("web-0")
        assert (first.cutoff.at, first.cutoff.reason) == (None, LivenessReason.MAYBE_ALIVE)
        scene.now_s += LONG_S - 1
        assert (await scene.find_liveness("web-0")).cutoff.at is None
        scene.now_s += 1
        await turn("False")
        assert (await scene.find_liveness("web-0")).cutoff.at is None
        await turn("True")
        assert (await scene.find_liveness("web-0")).cutoff.reason is LivenessReason.VANISHED
    finally:
        scene.plane.kubectl("delete", "node", NODE_NAME)
    # The cache has not heard that the node was deleted; a live look finds it so.
    assert (await scene.find_liveness("web-0")).cutoff.reason is LivenessReason.VANISHED


async def test_a_pod_that_only_the_group_remembers_is_judged_by_its_record(scene: Scene) -> None:
    made = await scene.pod(**running(datetime.now(UTC)))
    consumer = f"web-0:{made['metadata']['uid']}"
    alive = await scene.find_liveness(consumer, pod=record_of(made))
    assert alive.cutoff.reason is LivenessReason.ALIVE
    scene.remove()
    # Some node is known, so that one which is not there counts as deleted.
    scene.cache.put(NODE, {"metadata": {"name": "n2", "uid": "uid-n2"}})
    for record in ({"cluster": "there"}, {"namespace": "elsewhere"}, {"uid": "another"}):
        stranger = await scene.find_liveness(consumer, pod=record_of(made, **record))
        assert (stranger.cutoff.reason, stranger.match.is_unknown) == (
            LivenessReason.NEVER_SEEN,
            False,
        )
    assert (
        await scene.find_liveness(consumer, pod="no JSON")
    ).cutoff.reason is LivenessReason.NEVER_SEEN
    for name in (consumer, "web-0-17"):
        assert (await scene.find_liveness(name, pod=record_of(made))).cutoff.at is None
    scene.now_s += LONG_S
    for name in (consumer, "web-0-17"):
        liveness = await scene.find_liveness(name, pod=record_of(made))
        assert liveness.cutoff.reason is LivenessReason.VANISHED
        assert not liveness.match.is_unknown


async def test_an_api_server_that_does_not_answer_gives_no_cutoff(
    scene: Scene, deaf: KubeApi
) -> None:
    began = datetime.now(UTC)
    evidence = LivenessEvidence(deaf, scene.cache, cluster="here")
    scene.cache.put(POD, await scene.pod("web-0", **running(began)))
    scene.cache.put(POD, await scene.pod("web-1", **restarted(began)))
    scene.cache.put(POD, last := await scene.pod("web-2", phase="Failed", state=ended(began)))
    scene.bury(last)
    reasons = {
        name: (await scene.find_liveness(name, evidence=evidence)).cutoff.reason
        for name in ("web-0", "web-1", "web-2", "laptop")
    }
    # And the API server is not asked about a pod that never ended.
    assert reasons == {
        "web-0": LivenessReason.ALIVE,
        "web-1": LivenessReason.UNREADABLE,
        "web-2": LivenessReason.UNREADABLE,
        "laptop": LivenessReason.UNKNOWN,
    }


async def test_what_a_live_look_confirmed_is_not_looked_at_again(
    scene: Scene, deaf: KubeApi
) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
    scene.cache.put(POD, await scene.pod("web-1", **restarted(began)))
    scene.cache.put(POD, last := await scene.pod("web-2", phase="Failed", state=ended(began)))
    scene.remove("web-2")
    scene.bury(last)
    consumers = ("web-1", f"web-2:{last['metadata']['uid']}")
    for consumer in consumers:
        assert (await scene.find_liveness(consumer)).cutoff.at is not None
    scene.asked.api = deaf
    assert (await scene.find_liveness(consumers[0])).cutoff.at == began - SKEW
    assert (await scene.find_liveness(consumers[1])).cutoff.reason is LivenessReason.GONE
    # A name without a uid may have been taken meanwhile.
    assert (await scene.find_liveness("web-2")).cutoff.reason is LivenessReason.UNREADABLE


async def test_without_the_right_to_read_pods_there_is_no_cutoff(scene: Scene) -> None:
    scene.cache.put(POD, await scene.pod(**restarted(datetime.now(UTC))))
    api = await KubeApi.connect(str(scene.plane.kubeconfig_for("nobody")))
    try:
        liveness = await scene.find_liveness("web-0", evidence=LivenessEvidence(api, scene.cache))
    finally:
        await api.close()
    assert (liveness.cutoff.at, liveness.cutoff.reason) == (None, LivenessReason.FORBIDDEN)


async def test_only_container_starts_seen_by_the_watch_are_remembered(
    scene: Scene,
) -> None:
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    scene.cache.put(POD, await scene.pod("web-0", **running(ahead - timedelta(hours=1))))
    for name in ("web-0", "web-1"):
        made = await (scene.report if name == "web-0" else scene.pod)(
            name, phase="Running", **restarted(ahead)
        )
        scene.cache.put(POD, made)
    scene.now_s += 5
    assert (await scene.find_liveness("web-1")).cutoff.at == ahead - SKEW
    watched = (await scene.find_liveness("web-0")).cutoff.at
    assert watched is not None
    assert watched < ahead - SKEW - timedelta(seconds=3)


async def test_a_measured_clock_takes_the_place_of_the_greatest_skew(scene: Scene) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
    scene.cache.put(POD, await scene.pod(**restarted(began)))

    class Measured:
        async def allowance(
            self, node: str | None, redis_time: datetime, default: timedelta, *, server: str = ""
        ) -> timedelta:
            assert (node, default) == (NODE_NAME, SKEW)
            return timedelta(seconds=9)

    evidence = LivenessEvidence(scene.api, scene.cache, clocks=Measured())
    liveness = await scene.find_liveness("web-0", evidence=evidence)
    assert liveness.cutoff.at == began - timedelta(seconds=9)


async def test_a_live_pod_is_recorded_once_and_boot_records_are_used(scene: Scene) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
    made = await scene.pod(**restarted(began))
    scene.cache.put(POD, made)
    boot = str(int(began.timestamp() * 1000) - 700)
    liveness = await scene.find_liveness("web-0", boot=boot)
    assert liveness.record == record_of(made)
    assert liveness.cutoff.at == began - timedelta(milliseconds=700)
    again = await scene.find_liveness("web-0", boot="no number", pod=liveness.record)
    assert (again.record, again.cutoff.at) == (None, began - SKEW)


async def test_a_pod_that_its_kubelet_removes_late_died_as_planned(scene: Scene) -> None:
    # After a removal without grace, the object no longer shows when the deletion was asked for.
    made = await scene.pod(**running(datetime.now(UTC)))
    scene.cache.put(POD, made)
    await scene.report(phase="Failed", state=ended(datetime.now(UTC) - timedelta(seconds=20)))
    await scene.api.merge(scene.address("web-0"), {"metadata": {"finalizers": ["test/held"]}})
    force = ("--grace-period=0", "--force", "--wait=false")
    scene.plane.kubectl("-n", scene.namespace, "delete", "pod", "web-0", *force)
    removed = await scene.api.get(scene.address("web-0"))
    await scene.api.merge(scene.address("web-0"), {"metadata": {"finalizers": []}})
    assert removed["metadata"]["deletionGracePeriodSeconds"] == 0
    scene.bury(removed)
    liveness = await scene.find_liveness(f"web-0:{made['metadata']['uid']}")
    assert liveness.cutoff.death is Death.PLANNED
