"""Who sets the number of workers: a person, kubectl scale, an autoscaler, or none of them."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster.nodes import Node
from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from tests.e2e.declaring import (
    NAME,
    WAIT_S,
    WORKERS,
    Object,
    a_deployment,
    a_spec,
    a_workload,
    await_observed,
    get,
    patch,
)
from tests.operators import Resources

OWN = "my-workers"


def test_kubectl_scale_of_the_resource_scales_its_workers(
    resources: Resources, node: Node, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream, replicas=1))
    resources.await_condition(NAME, reason="Ready")
    _scale(resources, "scg", NAME, 2)
    _await_replicas(resources, "deployment", WORKERS, 2)
    ready = _await_message(resources, "2 of 2 workers are ready")
    assert ready["status"] == "True"
    status = await_observed(resources)["status"]
    assert (status["replicas"], status["readyReplicas"], status["desiredReplicas"]) == (2, 2, 2)
    scaling = resources.condition(NAME, "ScalingActive")
    assert (scaling["status"], scaling["reason"]) == ("True", "Manual")
    _scale(resources, "scg", NAME, 0)
    resources.await_condition(NAME, "WorkloadReady", reason="ScaledToZero")
    assert resources.condition(NAME)["status"] == "True"


def test_a_deployment_scaled_behind_the_resource_goes_back_to_the_declared_number(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    _scale(resources, "deployment", WORKERS, 3)
    _await_replicas(resources, "deployment", WORKERS, 0)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_workers_of_the_users_own_are_scaled_and_otherwise_left_alone(
    resources: Resources, node: Node, redis_86: RedisServers, stream: str, kind: str
) -> None:
    resources.apply_raw(a_workload(kind, OWN, 0))
    before = get(resources, kind, OWN)
    resources.apply(NAME, _targeting(redis_86, stream, kind=kind, mode="Manual", replicas=1))
    _await_replicas(resources, kind, OWN, 1)
    ready = _await_message(resources, "1 of 1 workers are ready")
    assert ready["status"] == "True"
    after = get(resources, kind, OWN)
    assert after["spec"] == {**before["spec"], "replicas": 1}
    assert after["metadata"].get("labels") == before["metadata"].get("labels")
    assert "ownerReferences" not in after["metadata"]
    assert f"app={OWN}" in get(resources, "scg", NAME)["status"]["selector"]


def test_without_scaling_a_target_keeps_its_own_number(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply_raw(a_deployment(OWN))
    resources.apply(NAME, _targeting(redis_86, stream, replicas=5))
    resources.await_condition(NAME, reason="Ready")
    assert resources.condition(NAME, "ScalingActive")["reason"] == "ScalingDisabled"
    assert get(resources, "deployment", OWN)["spec"]["replicas"] == 0


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_missing_target_is_reported_and_taken_up_when_it_appears(
    resources: Resources, redis_86: RedisServers, stream: str, kind: str
) -> None:
    resources.apply(NAME, _targeting(redis_86, stream, kind=kind))
    missing = resources.await_condition(NAME, reason="TargetMissing")
    assert f"{kind} {resources.namespace}/{OWN}" in missing["message"]
    assert resources.condition(NAME, "GroupReady")["status"] == "True"
    resources.apply_raw(a_workload(kind, OWN, 0))
    resources.await_condition(NAME, reason="Ready")


def test_a_target_of_an_unknown_kind_is_reported(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    target = {"apiVersion": "shop.example/v1", "kind": "Crew", "name": OWN}
    resources.apply(NAME, a_spec(redis_86.url, stream, template=None, targetRef=target))
    missing = resources.await_condition(NAME, reason="TargetMissing")
    assert "Crew" in missing["message"]


def test_a_forbidden_target_is_reported_with_the_missing_permission(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    spec = _targeting(redis_86, stream, kind="ReplicaSet", mode="Manual", replicas=0)
    resources.apply(NAME, spec)
    forbidden = resources.await_condition(NAME, reason="TargetForbidden")
    assert "bound to the operator's ServiceAccount" in forbidden["message"]
    assert "'apps'" in forbidden["message"]


def test_the_number_of_an_autoscaled_deployment_is_left_to_its_autoscaler(
    resources: Resources, node: Node, redis_86: RedisServers, stream: str
) -> None:
    resources.apply_raw(_autoscaler(WORKERS))
    resources.apply(NAME, a_spec(redis_86.url, stream, replicas=1))
    scaled = resources.await_condition(NAME, "ScalingActive", reason="ScaledByAutoscaler")
    assert (scaled["status"], "autoscaler" in scaled["message"]) == ("True", True)
    resources.await_condition(NAME, reason="Ready")
    _scale(resources, "deployment", WORKERS, 2)
    # Neither another wish nor a repair of something else touches the number.
    patch(resources, "scg", NAME, {"spec": {"replicas": 5}})
    kubectl = resources.plane.kubectl
    kubectl("set", "image", f"deployment/{WORKERS}", "worker=x", "-n", resources.namespace)
    wait_until(lambda: _image(resources) == "local/worker", timeout_s=WAIT_S, what="the image")
    _await_message(resources, "2 of 2 workers are ready")
    await_observed(resources)
    assert get(resources, "deployment", WORKERS)["spec"]["replicas"] == 2
    kubectl("delete", "hpa", "autoscaler", "-n", resources.namespace)
    _await_replicas(resources, "deployment", WORKERS, 5)


def test_the_smallest_resource_of_the_documentation_works(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply_raw(a_deployment("order-workers"))
    resources.apply(
        "order-processing",
        {
            "redis": {"url": redis_86.url},
            "stream": stream,
            "targetRef": {"name": "order-workers"},
            "scaling": {"maxReplicas": 20},
        },
    )
    resources.await_condition("order-processing", reason="Ready")
    scaling = resources.await_condition("order-processing", "ScalingActive", reason="Idle")
    assert scaling["status"] == "True"


def _targeting(
    servers: RedisServers, stream: str, *, kind: str = "Deployment", **more: Any
) -> Object:
    mode = more.pop("mode", None)
    target = {"kind": kind, "name": OWN}
    scaling = {"mode": mode} if mode else None
    return a_spec(servers.url, stream, template=None, targetRef=target, scaling=scaling, **more)


def _autoscaler(deployment: str) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "autoscaler"},
        # There is no metrics server: it looks, and scales nothing.
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9},
    }


def _scale(resources: Resources, kind: str, name: str, replicas: int) -> None:
    where = ("-n", resources.namespace)
    resources.plane.kubectl("scale", kind, name, f"--replicas={replicas}", *where)


def _await_replicas(resources: Resources, kind: str, name: str, replicas: int) -> None:
    wait_until(
        lambda: get(resources, kind, name)["spec"]["replicas"] == replicas,
        timeout_s=WAIT_S,
        what=f"{replicas} replicas of {name}",
        every_s=0.2,
    )


def _await_message(resources: Resources, text: str) -> Object:
    def reported() -> Object | None:
        condition = resources.condition(NAME, "WorkloadReady")
        return condition if condition.get("message") == text else None

    condition = wait_until(reported, timeout_s=WAIT_S, what=text, every_s=0.2)
    assert condition is not None
    return condition


def _image(resources: Resources) -> str:
    pod = get(resources, "deployment", WORKERS)["spec"]["template"]["spec"]
    return str(pod["containers"][0]["image"])
