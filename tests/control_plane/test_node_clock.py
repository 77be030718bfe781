"""The Lease of a real API server, against the clock that Redis would have."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

from local_cluster.plane import ControlPlane
from pelops.controller.recovery.pod_evidence import NodeClocks
from pelops.kube.client import KubeApi
from pelops.policy.recovery.liveness import LEASE_PERIOD

DEFAULT = timedelta(seconds=2)


def renew(plane: ControlPlane, node: str, at: datetime) -> None:
    """Renew a node's Lease as its kubelet does, with the time of its clock."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": 40,
            "renewTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(lease))


async def test_a_lease_from_the_future_proves_a_clock_that_runs_ahead(
    plane: ControlPlane,
) -> None:
    now = datetime.now(UTC)
    renew(plane, "ahead", now + timedelta(hours=1))
    renew(plane, "right", now)
    api = await KubeApi.connect(str(plane.kubeconfig))
    try:
        clocks = NodeClocks(api, asyncio.get_running_loop().time)
        ahead = await clocks.allowance("ahead", now + timedelta(minutes=1), DEFAULT)
        assert timedelta(minutes=58) < ahead <= timedelta(minutes=59) + LEASE_PERIOD + DEFAULT
        for node in ("right", "nobody"):
            assert await clocks.allowance(node, now + timedelta(minutes=1), DEFAULT) == DEFAULT
    finally:
        await api.close()
        plane.kubectl("delete", "lease", "-n", "kube-node-lease", "ahead", "right")
