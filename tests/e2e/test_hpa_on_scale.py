"""Autoscalers of others decide: through the resource, or, left to it, on its workers directly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from local_cluster.nodes import Node
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from tests.e2e.declaring import (
    NAME,
    WAIT_S,
    WORKERS,
    Object,
    a_spec,
    await_observed,
    get,
    patch,
)
from tests.external_metrics import ExternalMetrics, Metric, serve_external_metrics
from tests.operators import ROOT, Resources

CONTROLLER = "system:kube-controller-manager"
DOCUMENTATION = ROOT / "docs" / "guides" / "autoscalers.md"
# The target of the documentation's autoscaler.
PER_WORKER = 100
MANUAL = {"scaling": {"mode": "Manual"}}


@pytest.fixture(scope="module")
def metrics(plane: ControlPlane) -> Iterator[ExternalMetrics]:
    """A metrics adapter of the shared control plane."""
    with serve_external_metrics(plane) as served:
        yield served


@pytest.fixture
def owed(resources: Resources) -> Metric:
    """The metric of the documentation, for the resource of this test."""
    return (resources.namespace, "pelops_lag_and_pending_entries", f"name={NAME}")


@pytest.mark.full
def test_the_autoscaler_of_the_documentation_scales_the_workers_through_the_resource(
    resources: Resources,
    node: Node,
    redis_86: RedisServers,
    stream: str,
    metrics: ExternalMetrics,
    owed: Metric,
) -> None:
    metrics.report(owed, PER_WORKER)
    resources.apply(NAME, a_spec(redis_86.url, stream, replicas=1, **MANUAL))
    _await_ready(resources, 1)
    resources.apply_raw(_documented())
    _await_autoscaler(resources, "ScalingActive", "ValidMetricFound")
    assert CONTROLLER in metrics.askers
    metrics.report(owed, 3 * PER_WORKER - 50)
    _await_ready(resources, 3)
    assert get(resources, "scg", NAME)["spec"]["replicas"] == 3
    scaling = resources.condition(NAME, "ScalingActive")
    assert (scaling["status"], scaling["reason"]) == ("True", "Manual")
    status = _await_autoscaler(resources, "AbleToScale", "ReadyForNewScale")["status"]
    assert (status["currentReplicas"], status["desiredReplicas"]) == (3, 3)
    metrics.report(owed, 0)
    _await_ready(resources, 1)
    assert get(resources, "scg", NAME)["spec"]["replicas"] == 1


@pytest.mark.full
def test_the_resource_keeps_its_workers_while_the_autoscaler_has_no_metric(
    resources: Resources,
    node: Node,
    redis_86: RedisServers,
    stream: str,
    metrics: ExternalMetrics,
    owed: Metric,
) -> None:
    metrics.report(owed, 2 * PER_WORKER)
    resources.apply(NAME, a_spec(redis_86.url, stream, replicas=1, **MANUAL))
    resources.apply_raw(_documented())
    _await_ready(resources, 2)
    metrics.forget(owed)
    _await_autoscaler(resources, "ScalingActive", "FailedGetExternalMetric")
    assert get(resources, "scg", NAME)["spec"]["replicas"] == 2
    metrics.report(owed, PER_WORKER)
    _await_ready(resources, 1)


@pytest.mark.full
def test_a_resource_at_zero_stays_there_until_kubectl_scales_it(
    resources: Resources,
    node: Node,
    redis_86: RedisServers,
    stream: str,
    metrics: ExternalMetrics,
    owed: Metric,
) -> None:
    metrics.report(owed, 2 * PER_WORKER)
    resources.apply(NAME, a_spec(redis_86.url, stream, replicas=0, **MANUAL))
    resources.await_condition(NAME, reason="Ready")
    resources.apply_raw(_documented())
    _await_autoscaler(resources, "ScalingActive", "ScalingDisabled")
    # What KEDA does itself: its HorizontalPodAutoscaler takes over from one.
    resources.plane.kubectl("scale", "scg", NAME, "--replicas=1", "-n", resources.namespace)
    _await_ready(resources, 2)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["Manual", "Auto"])
def test_an_autoscaler_on_the_workers_alone_decides_their_number(
    resources: Resources,
    node: Node,
    redis_86: RedisServers,
    stream: str,
    metrics: ExternalMetrics,
    owed: Metric,
    mode: str,
) -> None:
    metrics.report(owed, PER_WORKER)
    autoscaler = f"keda-hpa-{WORKERS}"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": WORKERS}
    resources.apply_raw(_documented(name=autoscaler, target=target))
    resources.apply(NAME, a_spec(redis_86.url, stream, replicas=1, scaling={"mode": mode}))
    scaled = resources.await_condition(NAME, "ScalingActive", reason="ScaledByAutoscaler")
    assert (scaled["status"], autoscaler in scaled["message"]) == ("True", True)
    _scale_workers(resources, 1)
    metrics.report(owed, 3 * PER_WORKER)
    _await_ready(resources, 3)
    patch(resources, "scg", NAME, {"spec": {"replicas": 2}})
    await_observed(resources)
    assert get(resources, "deployment", WORKERS)["spec"]["replicas"] == 3


def _documented(*, name: str = NAME, target: Object | None = None) -> Object:
    """The autoscaler of the documentation, without the pause before it removes workers."""
    text = DOCUMENTATION.read_text().replace("order-processing", NAME)
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    found = (yaml.safe_load(block) for block in blocks)
    manifest: Object = next(m for m in found if m.get("kind") == "HorizontalPodAutoscaler")
    manifest["metadata"] = {"name": name}
    spec: dict[str, Any] = manifest["spec"]
    spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    if target is not None:
        spec["scaleTargetRef"] = target
    return manifest


def _scale_workers(resources: Resources, replicas: int) -> None:
    where = ("-n", resources.namespace)
    resources.plane.kubectl("scale", "deployment", WORKERS, f"--replicas={replicas}", *where)


def _await_ready(resources: Resources, count: int) -> None:
    text = f"{count} of {count} workers are ready"
    wait_until(
        lambda: resources.condition(NAME, "WorkloadReady").get("message") == text,
        timeout_s=WAIT_S,
        what=text,
        every_s=0.2,
    )


def _await_autoscaler(resources: Resources, kind: str, reason: str) -> Object:
    """The HorizontalPodAutoscaler, once a condition of it has this reason."""

    def reported() -> Object | None:
        found = get(resources, "hpa", NAME)
        conditions = found.get("status", {}).get("conditions") or []
        has = any((c["type"], c["reason"]) == (kind, reason) for c in conditions)
        return found if has else None

    found = wait_until(reported, timeout_s=WAIT_S, what=f"{kind} {reason}", every_s=0.2)
    assert found is not None
    return found
