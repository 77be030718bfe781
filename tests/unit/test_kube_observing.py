"""What objects of the API server say about workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pelops.domain.workload import ContainerObservation, NodeObservation, PodObservation
from pelops.kube.client import DEPLOYMENT, NODE, POD, STREAM_CONSUMER_GROUP
from pelops.kube.workload_observation import (
    Requirement,
    Selector,
    autoscaler_target,
    observe_deployment,
    observe_node,
    observe_pod,
    observe_scale,
    parse_label_selector,
    parse_selector,
)
from tests.builders import TARGET

METADATA = {"namespace": "shop", "name": "order-workers", "uid": "dep-1", "generation": 2}


def deployment(**parts: Any) -> dict[str, Any]:
    return {"metadata": METADATA, "spec": {"replicas": 3}, "status": {}, **parts}


def test_a_deployment_that_its_controller_has_not_seen_is_not_rolled_out() -> None:
    seen = observe_deployment(deployment(status={"observedGeneration": 1, "readyReplicas": 3}))
    assert not seen.is_rolled_out
    assert observe_deployment(deployment(status={"observedGeneration": 2})).is_rolled_out


def test_a_deployment_is_observed_with_its_controller_and_failure() -> None:
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


def test_a_scale_reports_its_numbers_and_selector() -> None:
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


AT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
TIME = "2026-05-04T03:02:01Z"
ENDED = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": TIME}}
CONTAINERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "runs": (
        {"state": {"running": {"startedAt": TIME}}},
        {"state": "running", "started": AT, "has_restarted": False},
    ),
    "runs again": (
        {"state": {"running": {"startedAt": TIME}}, "lastState": ENDED, "restartCount": 1},
        {
            "state": "running",
            "last_finished": AT,
            "last_exit_code": 137,
            "last_reason": "OOMKilled",
            "restarts": 1,
            "has_restarted": True,
        },
    ),
    "has ended": (
        {"state": ENDED},
        {"state": "terminated", "finished": AT, "exit_code": 137, "reason": "OOMKilled"},
    ),
    "has ended, nobody knows when": (
        {"state": {"terminated": {"exitCode": 137, "finishedAt": None}}},
        {"state": "terminated", "finished": None},
    ),
    "waits in a crash loop": (
        {
            "state": {
                "waiting": {
                    "reason": "CrashLoopBackOff",
                    "message": "back-off 2m40s restarting failed container=worker pod=w_shop(1)",
                }
            },
            "lastState": ENDED,
        },
        {"state": "waiting", "waiting_reason": "CrashLoopBackOff", "back_off_s": 160.0},
    ),
    "waits for its image": (
        {"state": {"waiting": {"reason": "ErrImagePull", "message": "back-off pulling image"}}},
        {"state": "waiting", "back_off_s": None},
    ),
    "has no state yet": ({"state": {}}, {"state": "unknown", "has_restarted": False}),
}


@pytest.mark.parametrize("case", CONTAINERS.values(), ids=CONTAINERS)
def test_a_container_shows_that_it(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    status, expected = case
    (seen,) = observe_pod(state(name="worker", **status)).containers
    assert {name: getattr(seen, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("said", "seconds"), [("10s", 10.0), ("1.5s", 1.5), ("5m0s", 300.0), ("1h0m0s", 3600.0)]
)
def test_the_pause_of_a_crash_loop_is_read_from_its_message(said: str, seconds: float) -> None:
    message = f"back-off {said} restarting failed container=worker pod=w_shop(1)"
    waiting = {"reason": "CrashLoopBackOff", "message": message}
    (seen,) = observe_pod(state(name="worker", state={"waiting": waiting})).containers
    assert seen.back_off_s == seconds


def test_a_container_without_a_status_is_not_forgotten_and_init_containers_are() -> None:
    manifest = {
        "spec": {
            "containers": [{"name": "worker"}, {"name": "proxy"}],
            "initContainers": [{"name": "sidecar", "restartPolicy": "Always"}],
        },
        "status": {
            "containerStatuses": [{"name": "proxy", "state": ENDED}],
            "initContainerStatuses": [{"name": "sidecar", "state": ENDED}],
        },
    }
    seen = {one.name: one.state for one in observe_pod(manifest).containers}
    assert seen == {"worker": "unknown", "proxy": "terminated"}
    assert observe_pod({}).containers == ()


def test_a_deletion_was_requested_when_its_grace_began() -> None:
    metadata = {"deletionTimestamp": TIME, "deletionGracePeriodSeconds": 30}
    assert observe_pod({"metadata": metadata}).deletion_requested == AT - timedelta(seconds=30)
    now = {"deletionTimestamp": TIME, "deletionGracePeriodSeconds": 1}
    assert observe_pod({"metadata": now}).deletion_requested == AT - timedelta(seconds=1)
    assert observe_pod({"metadata": {}}).deletion_requested is None
    assert observe_pod({"metadata": {"creationTimestamp": TIME}}).created == AT


def test_a_kubelet_removes_a_pod_up_to_a_grace_after_the_request() -> None:
    removed = {"deletionTimestamp": TIME, "deletionGracePeriodSeconds": 0}
    assert observe_pod({"metadata": removed}).deletion_requested == AT - timedelta(seconds=30)
    manifest = {"metadata": removed, "spec": {"terminationGracePeriodSeconds": 600}}
    assert observe_pod(manifest).deletion_requested == AT - timedelta(minutes=10)


@pytest.mark.parametrize(
    ("spec", "metadata", "expected"),
    [
        ({}, {}, 30.0),
        ({"terminationGracePeriodSeconds": 0}, {}, 0.0),
        ({"terminationGracePeriodSeconds": 5}, {"deletionGracePeriodSeconds": 0}, 5.0),
        ({"terminationGracePeriodSeconds": 5}, {"deletionGracePeriodSeconds": 90}, 90.0),
    ],
)
def test_the_longest_grace_that_was_given_counts(
    spec: dict[str, Any], metadata: dict[str, Any], expected: float
) -> None:
    assert observe_pod({"spec": spec, "metadata": metadata}).grace_period_s == expected


@pytest.mark.parametrize(
    ("status", "is_disrupted", "is_collected"),
    [
        ({}, False, False),
        ({"reason": "Evicted"}, True, False),
        ({"reason": "Terminated"}, True, False),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, True, False),
        ({"conditions": [{"type": "DisruptionTarget", "status": "False"}]}, False, False),
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
                ]
            },
            True,
            True,
        ),
    ],
)
def test_a_requested_end_is_observed_as_a_disruption(
    status: dict[str, Any], is_disrupted: bool, is_collected: bool
) -> None:
    seen = observe_pod({"status": status})
    assert (seen.is_disrupted, seen.is_collected) == (is_disrupted, is_collected)


def test_a_hostname_defaults_to_the_first_63_characters_of_the_name() -> None:
    name = "a" * 62 + "-7d9f"
    assert observe_pod({"metadata": {"name": name}}).hostname == "a" * 62
    assert observe_pod({"metadata": {"name": name}, "spec": {"hostname": "h"}}).hostname == "h"


def test_a_node_has_its_readiness_since_when_and_out_of_service_taint() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": TIME}
    seen = observe_node({"metadata": {"name": "n1"}, "status": {"conditions": [ready]}})
    assert seen == NodeObservation(name="n1", is_ready=True, ready_since=AT)
    taints = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
    off = observe_node({"metadata": {"name": "n1"}, "spec": {"taints": taints}})
    assert (off.is_ready, off.is_out_of_service, off.exists) == (None, True, True)


def test_the_same_words_of_many_pods_take_memory_once() -> None:
    def seen(name: str) -> ContainerObservation:
        # Each as if it came in an answer of its own.
        status = {"name": "".join(["wor", "ker"]), "state": {"waiting": {"reason": name + "Off"}}}
        return observe_pod({"status": {"containerStatuses": [status]}}).containers[0]

    assert seen("Back").name is seen("Back").name
    assert seen("Back").waiting_reason is seen("Back").waiting_reason


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "MemoryPressure", "status": "True"}], None),
        (None, None),
    ],
)
def test_a_node_is_ready_only_when_its_kubelet_says_so(conditions: Any, expected: bool) -> None:
    manifest = {"metadata": METADATA, "status": {"conditions": conditions}}
    assert observe_node(manifest).is_ready is expected


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


# --- Label selectors in both of their forms


LABELS = {"app": "orders", "tier": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app=orders", True),
        ("app==orders", True),
        ("app = orders , tier", True),
        ("app!=orders", False),
        ("other!=x", True),
        ("app in (a, orders)", True),
        ("app notin (orders)", False),
        ("other notin (x,y)", True),
        ("app", True),
        ("!app", False),
        ("!other", True),
        ("tier=", True),
        ("app in (orders),!tier", False),
        ("", False),
        (",", False),
    ],
)
def test_a_selector_in_text_selects(text: str, expected: bool) -> None:
    assert parse_selector(text).matches(LABELS) is expected


def test_a_label_selector_keeps_all_its_requirements() -> None:
    selector = parse_label_selector(
        {
            "matchLabels": {"tier": "web", "app": "orders"},
            "matchExpressions": [
                {"key": "zone", "operator": "NotIn", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }
    )
    assert str(selector) == "app=orders,tier=web,zone notin (a,b),!old"
    assert parse_selector(str(selector)) == selector


@pytest.mark.parametrize("empty", [None, {}, {"matchLabels": None, "matchExpressions": None}])
def test_an_empty_selector_selects_nothing(empty: dict[str, None] | None) -> None:
    assert parse_label_selector(empty) == Selector()
    assert not parse_label_selector(empty).matches(LABELS)


def test_only_a_single_value_is_required() -> None:
    several = Selector((Requirement("app", "In", ("a", "b")), Requirement("app", "Exists")))
    assert several.required_value("app") is None
    assert parse_selector("tier,app=a").required_value("app") == "a"
