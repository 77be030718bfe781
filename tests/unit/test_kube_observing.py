"""What objects of the API server say about workers."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.domain.workload import PodObservation
from pelops.kube.observing import (
    autoscaler_target,
    is_node_ready,
    observe_deployment,
    observe_pod,
    observe_scale,
)
from pelops.kube.resources import DEPLOYMENT, NODE, POD, STREAM_CONSUMER_GROUP
from tests.builders import TARGET

METADATA = {"namespace": "shop", "name": "order-workers", "uid": "dep-1", "generation": 2}


def deployment(**parts: Any) -> dict[str, Any]:
    return {"metadata": METADATA, "spec": {"replicas": 3}, "status": {}, **parts}


def test_a_deployment_that_its_controller_has_not_seen_is_not_rolled_out() -> None:
    seen = observe_deployment(deployment(status={"observedGeneration": 1, "readyReplicas": 3}))
    assert not seen.is_rolled_out
    assert observe_deployment(deployment(status={"observedGeneration": 2})).is_rolled_out


def test_a_deployment_tells_who_controls_it_and_what_it_lacks() -> None:
    references = [{"uid": "other"}, {"uid": "uid-1", "controller": True}]
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    seen = observe_deployment(
        deployment(
            metadata={**METADATA, "ownerReferences": references},
            spec={"replicas": 3, "selector": {"matchLabels": {"app": "orders"}}},
            status={"replicas": 2, "readyReplicas": 1, "conditions": [failure]},
        )
    )
    assert (seen.wished, seen.current, seen.ready) == (3, 2, 1)
    assert (seen.controller_uid, seen.failure) == ("uid-1", "exceeded quota")
    assert (seen.target, seen.selector) == (TARGET, "app=orders")


def test_a_deployment_without_a_status_yet_has_no_workers() -> None:
    seen = observe_deployment({"metadata": METADATA, "spec": None, "status": None})
    assert (seen.wished, seen.current, seen.ready) == (1, 0, 0)


def test_a_failure_that_is_over_is_no_failure() -> None:
    over = {"type": "ReplicaFailure", "status": "False", "message": "exceeded quota"}
    assert observe_deployment(deployment(status={"conditions": [over]})).failure is None


def test_a_scale_tells_its_numbers_and_selector() -> None:
    scale = {
        "metadata": {"uid": "set-1"},
        "spec": {"replicas": 3},
        "status": {"replicas": 2, "selector": "app in (a,b)"},
    }
    seen = observe_scale(TARGET, scale)
    assert (seen.wished, seen.current, seen.selector) == (3, 2, "app in (a,b)")
    assert observe_scale(TARGET, {"spec": {}}).wished == 0


def state(**of: Any) -> dict[str, Any]:
    return {"status": {"phase": "Running", "containerStatuses": [of]}}


PODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing is known yet": ({"metadata": {"name": "w"}}, {"phase": "Unknown", "is_ready": False}),
    "it is ready": (
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"is_ready": True},
    ),
    "it is ending": ({"metadata": {"deletionTimestamp": "now"}}, {"is_deleting": True}),
    "a container waits": (
        state(state={"waiting": {"reason": "ErrImagePull", "message": "no"}}),
        {"waiting_reason": "ErrImagePull", "waiting_message": "no"},
    ),
    "a container waits without saying why": (
        state(state={"waiting": {}}),
        {"waiting_reason": None},
    ),
    "a container crashed before": (
        state(
            restartCount=4,
            state={"waiting": {"reason": "CrashLoopBackOff"}},
            lastState={"terminated": {"exitCode": 137}},
        ),
        {"restarts": 4, "exit_code": 137},
    ),
    "a container has ended": (state(state={"terminated": {"exitCode": 0}}), {"exit_code": 0}),
    "a container runs for the first time": (
        state(state={"running": {}}, lastState={}),
        {"exit_code": None},
    ),
}


@pytest.mark.parametrize("case", PODS.values(), ids=PODS)
def test_a_pod_shows_that(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    manifest, expected = case
    seen: PodObservation = observe_pod(manifest)
    assert {name: getattr(seen, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "MemoryPressure", "status": "True"}], False),
        (None, False),
    ],
)
def test_a_node_is_ready_only_when_its_kubelet_says_so(conditions: Any, expected: bool) -> None:
    assert is_node_ready({"status": {"conditions": conditions}}) is expected


def test_an_autoscaler_names_its_target() -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "order-workers"}
    manifest = {"metadata": METADATA, "spec": {"scaleTargetRef": reference}}
    assert autoscaler_target(manifest) == TARGET
    assert autoscaler_target({"metadata": METADATA}).kind == ""


def test_paths_lead_to_lists_objects_and_subresources() -> None:
    assert POD.path() == "/api/v1/pods"
    assert POD.path("shop", "w-1") == "/api/v1/namespaces/shop/pods/w-1"
    assert NODE.path(None, "n1") == "/api/v1/nodes/n1"
    assert (
        DEPLOYMENT.path("shop", "w", "scale") == "/apis/apps/v1/namespaces/shop/deployments/w/scale"
    )
    assert POD.path("../x", "a b") == "/api/v1/namespaces/..%2Fx/pods/a%20b"
    assert STREAM_CONSUMER_GROUP.api_version == "pelops.dev/v1alpha1"
