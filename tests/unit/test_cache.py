"""What a replica's cache holds of the cluster, and which resources each change concerns."""

from __future__ import annotations

import pytest

from pelops.controller.runtime.cache import Name, find_deleted
from pelops.controller.workload.sharing import SharedWorkloads
from pelops.controller.workload.workload_cache import MOST_SHARING, WorkloadCache, target_of
from pelops.kube.client import AUTOSCALER, DEPLOYMENT, NODE, POD, STREAM_CONSUMER_GROUP, Kind
from pelops.kube.worker_deployment import RESOURCE_LABEL
from tests.cached_objects import (
    ORDERS,
    RETURNS,
    WORKERS,
    Manifest,
    autoscaler,
    build,
    deployment,
    known,
    node,
    pod,
    resource,
    shop,
)


@pytest.fixture
def cache() -> WorkloadCache:
    return shop()


def test_a_resource_concerns_itself(cache: WorkloadCache) -> None:
    assert cache.put(STREAM_CONSUMER_GROUP, resource("new")) == {("shop", "new")}
    assert cache.remove(STREAM_CONSUMER_GROUP, ("shop", "new"), "uid-new") == {("shop", "new")}
    assert ("shop", "new") not in cache.resources


@pytest.mark.parametrize(
    ("kind", "manifest", "concerned"),
    [
        (DEPLOYMENT, deployment("workers", {"app": "w", "more": "x"}, version=2), {ORDERS}),
        (DEPLOYMENT, deployment("returns-workers", {"app": "r"}), {RETURNS}),
        (DEPLOYMENT, deployment("somebody-elses", {"app": "x"}), set()),
        (DEPLOYMENT, deployment("workers", {"app": "w"}, namespace="other"), set()),
        (POD, pod("w-1", {"app": "w", "more": "x"}), {ORDERS}),
        (POD, pod("r-1", {RESOURCE_LABEL: "returns"}), {RETURNS}),
        (POD, pod("x-1", {"app": "x"}), set()),
        (POD, pod("g-1", {RESOURCE_LABEL: "gone"}), set()),
        (POD, pod("w-1", {"app": "w"}, namespace="other"), set()),
        (AUTOSCALER, autoscaler("hpa", "workers"), {ORDERS}),
        (AUTOSCALER, autoscaler("hpa", "workers", api="apps/v2beta1"), {ORDERS}),
        (AUTOSCALER, autoscaler("hpa", "workers", api="example.com/v1"), set()),
    ],
)
def test_an_object_concerns_the_resources_whose_workers_it_is_about(
    cache: WorkloadCache, kind: Kind, manifest: Manifest, concerned: set[Name]
) -> None:
    assert cache.put(kind, manifest) == concerned


def test_an_unchanged_pod_concerns_no_resource(cache: WorkloadCache) -> None:
    cache.put(POD, pod("w-1", {"app": "w"}))
    assert cache.put(POD, pod("w-1", {"app": "w"}, version=2)) == set()
    assert cache.put(POD, pod("w-1", {"app": "w"}, phase="Failed", version=3)) == {ORDERS}


def test_a_change_of_unread_deployment_fields_concerns_no_resource(
    cache: WorkloadCache,
) -> None:
    same, labels = deployment("workers", {"app": "w"}, version=2), {"app": "w"}
    same["status"]["conditions"] = [{"type": "Progressing", "status": "True"}]
    assert cache.put(DEPLOYMENT, same) == set()
    ready = deployment("workers", labels, version=3)
    ready["status"]["readyReplicas"] = 2
    assert cache.put(DEPLOYMENT, ready) == {ORDERS}


@pytest.mark.parametrize("part", ["metadata", "spec"])
def test_a_change_of_a_deployment_that_a_resource_owns_concerns_it(
    cache: WorkloadCache, part: str
) -> None:
    def written(version: int) -> Manifest:
        made = deployment("returns-workers", {"app": "r"}, version=version)
        made["metadata"]["labels"] = {RESOURCE_LABEL: "returns"}
        return made

    assert cache.put(DEPLOYMENT, written(1)) == {RETURNS}
    assert cache.put(DEPLOYMENT, written(1)) == {RETURNS}  # the event of an own write
    assert cache.put(DEPLOYMENT, written(2)) == set()
    changed = written(3)
    changed[part]["annotations"] = {"by": "somebody"}
    assert cache.put(DEPLOYMENT, changed) == {RETURNS}


def test_an_older_version_of_an_object_is_not_taken_in(cache: WorkloadCache) -> None:
    cache.put(STREAM_CONSUMER_GROUP, resource("orders", "others", version=9))
    assert cache.put(STREAM_CONSUMER_GROUP, resource("orders", "workers", version=8)) == set()
    assert target_of(cache.resources[ORDERS]).name == "others"


def test_versions_are_numbers_and_not_texts(cache: WorkloadCache) -> None:
    cache.put(STREAM_CONSUMER_GROUP, resource("orders", "others", version=9))
    assert cache.put(STREAM_CONSUMER_GROUP, resource("orders", "workers", version=10)) == {ORDERS}


def test_the_event_of_an_own_write_still_concerns_its_resource(cache: WorkloadCache) -> None:
    # The answer of a write may include a change of the user whose event has not arrived yet.
    assert cache.put(STREAM_CONSUMER_GROUP, resource("orders", "workers", version=5)) == {ORDERS}
    assert cache.put(STREAM_CONSUMER_GROUP, resource("orders", "workers", version=5)) == {ORDERS}


def test_an_object_recreated_under_the_same_name_replaces_the_former(cache: WorkloadCache) -> None:
    cache.put(STREAM_CONSUMER_GROUP, resource("orders", "others", uid="second", version=2))
    assert cache.remove(STREAM_CONSUMER_GROUP, ORDERS, "uid-orders") == set()
    assert cache.objects.names(STREAM_CONSUMER_GROUP)[ORDERS] == "second"


def test_a_late_answer_does_not_bring_back_a_removed_object(
    cache: WorkloadCache,
) -> None:
    cache.remove(STREAM_CONSUMER_GROUP, ORDERS, "uid-orders")
    assert cache.put(STREAM_CONSUMER_GROUP, resource("orders", "workers", version=7)) == set()
    assert ORDERS not in cache.resources


def test_an_object_that_was_removed_before_it_was_known_stays_away(cache: WorkloadCache) -> None:
    cache.remove(POD, ("shop", "w-1"), "uid-w-1")
    assert cache.put(POD, pod("w-1", {"app": "w"})) == set()
    assert ("shop", "w-1") not in cache.objects.names(POD)


def test_after_a_change_of_target_only_the_new_target_concerns_the_resource(
    cache: WorkloadCache,
) -> None:
    cache.put(STREAM_CONSUMER_GROUP, resource("orders", "others", version=2))
    assert cache.put(DEPLOYMENT, deployment("workers", {"app": "w"}, version=2)) == set()
    assert cache.put(DEPLOYMENT, deployment("others", {"app": "o"})) == {ORDERS}


def test_two_resources_on_one_target_are_both_concerned(cache: WorkloadCache) -> None:
    cache.put(STREAM_CONSUMER_GROUP, resource("second", "workers"))
    assert cache.resources_of(WORKERS) == {ORDERS, ("shop", "second")}
    assert cache.put(POD, pod("w-1", {"app": "w"})) == {ORDERS, ("shop", "second")}


def test_a_pod_of_a_template_concerns_who_names_its_deployment_as_well(
    cache: WorkloadCache,
) -> None:
    cache.put(STREAM_CONSUMER_GROUP, resource("guest", "returns-workers"))
    found = cache.put(POD, pod("r-1", {RESOURCE_LABEL: "returns"}))
    assert found == {RETURNS, ("shop", "guest")}


def test_resources_sharing_a_workload_are_due_on_spec_changes_of_each_other(
    cache: WorkloadCache,
) -> None:
    due: list[set[Name]] = []
    cache.objects.listen(STREAM_CONSUMER_GROUP, lambda _, names: due.append(set(names)))
    second = resource("second", "workers")
    cache.put(STREAM_CONSUMER_GROUP, second)
    first_version = cache.sharing_version(WORKERS)
    reported = {**second, "metadata": {**second["metadata"], "resourceVersion": "2"}, "status": {}}
    cache.put(STREAM_CONSUMER_GROUP, reported)
    assert (due, cache.sharing_version(WORKERS)) == ([{ORDERS}], first_version)
    cache.put(STREAM_CONSUMER_GROUP, resource("second", "others", version=3))
    assert due == [{ORDERS}, {ORDERS}]
    assert cache.sharing_version(WORKERS) != first_version
    cache.put(STREAM_CONSUMER_GROUP, resource("second", "workers", version=4))
    cache.remove(STREAM_CONSUMER_GROUP, ("shop", "second"), "uid-second")
    assert due == [{ORDERS}] * 4


def test_the_number_of_counted_resources_that_share_a_workload_is_bounded(
    cache: WorkloadCache,
) -> None:
    for number in range(MOST_SHARING - 2):
        cache.put(STREAM_CONSUMER_GROUP, resource(f"more-{number:03}", "workers"))
    due: list[set[Name]] = []
    cache.objects.listen(STREAM_CONSUMER_GROUP, lambda _, names: due.append(set(names)))
    cache.put(STREAM_CONSUMER_GROUP, resource("last-counted", "workers"))
    assert [len(names) for names in due] == [MOST_SHARING - 1]
    cache.put(STREAM_CONSUMER_GROUP, resource("one-too-many", "workers"))
    assert len(due) == 1
    sharing = SharedWorkloads(cache).sharing(ORDERS)
    assert sharing is not None and len(sharing.others) in (MOST_SHARING - 1, MOST_SHARING)


def test_a_workload_that_is_targeted_again_gets_a_new_sharing_version(
    cache: WorkloadCache,
) -> None:
    versions = {cache.sharing_version(WORKERS)}
    for version in (2, 4):
        cache.put(STREAM_CONSUMER_GROUP, resource("orders", "others", version=version))
        cache.put(STREAM_CONSUMER_GROUP, resource("orders", "workers", version=version + 1))
        versions.add(cache.sharing_version(WORKERS))
    assert len(versions) == 3


def test_a_workload_has_the_pods_that_its_selector_names(cache: WorkloadCache) -> None:
    for manifest in (
        pod("w-2", {"app": "w"}),
        pod("w-1", {"app": "w", "more": "x"}),
        pod("x-1", {"app": "x"}),
        pod("w-3", {"app": "w"}, namespace="other"),
    ):
        cache.put(POD, manifest)
    workload = cache.workload(WORKERS)
    assert workload is not None
    assert [one.name for one in workload.pods] == ["w-1", "w-2"]


def test_a_pod_that_lost_its_label_is_no_worker_any_more(cache: WorkloadCache) -> None:
    owned = {"selector": {"matchLabels": {RESOURCE_LABEL: "returns"}}}
    cache.put(DEPLOYMENT, build("returns-workers", labels={RESOURCE_LABEL: "returns"}, spec=owned))
    cache.put(POD, pod("r-1", {RESOURCE_LABEL: "returns"}))
    target = target_of(cache.resources[RETURNS])
    assert [one.name for one in known(cache, target).pods] == ["r-1"]
    cache.put(POD, pod("r-1", {}, version=2))
    assert known(cache, target).pods == ()


def test_a_removed_pod_concerns_its_resource_and_is_no_worker_any_more(
    cache: WorkloadCache,
) -> None:
    cache.put(POD, pod("w-1", {"app": "w"}))
    assert cache.remove(POD, ("shop", "w-1"), "uid-w-1") == {ORDERS}
    assert known(cache, WORKERS).pods == ()


def test_a_removed_deployment_concerns_its_resource_and_is_not_known_any_more(
    cache: WorkloadCache,
) -> None:
    assert cache.remove(DEPLOYMENT, ("shop", "workers"), "uid-workers") == {ORDERS}
    assert cache.workload(WORKERS) is None


def test_a_node_that_turns_concerns_the_resources_with_pods_on_it(cache: WorkloadCache) -> None:
    cache.put(NODE, node("node-1", "True"))
    cache.put(POD, pod("w-1", {"app": "w"}))
    assert cache.put(NODE, node("node-1", "Unknown", version=2)) == {ORDERS}
    assert known(cache, WORKERS).unready_nodes == {"node-1"}
    assert cache.put(NODE, node("node-1", "False", version=3)) == set()
    assert cache.put(NODE, node("node-1", "True", version=4)) == {ORDERS}
    assert known(cache, WORKERS).unready_nodes == set()


def test_a_node_that_is_gone_is_not_unready(cache: WorkloadCache) -> None:
    cache.put(POD, pod("w-1", {"app": "w"}))
    cache.put(NODE, node("node-1", "False"))
    assert cache.remove(NODE, ("", "node-1"), "uid-node-1") == {ORDERS}
    assert known(cache, WORKERS).unready_nodes == set()


def test_a_node_reports_whether_it_is_there_and_vouched_to_be_off(cache: WorkloadCache) -> None:
    assert cache.node("node-1") is None
    assert not cache.are_all_nodes_ready()
    cache.put(NODE, node("node-1", "True"))
    assert cache.are_all_nodes_ready()
    gone = cache.node("node-2")
    assert gone is not None
    assert (gone.exists, gone.is_ready) == (False, None)
    taint = {"key": "node.kubernetes.io/out-of-service"}
    cache.put(NODE, {**node("node-1", "Unknown", version=2), "spec": {"taints": [taint]}})
    found = cache.node("node-1")
    assert found is not None
    assert (found.exists, found.is_ready, found.is_out_of_service) == (True, False, True)
    assert not cache.are_all_nodes_ready()
    cache.put(NODE, node("node-2", "True"))
    cache.remove(NODE, ("", "node-1"))
    assert cache.are_all_nodes_ready()


def test_an_autoscaler_is_reported_until_it_turns_to_another_target(cache: WorkloadCache) -> None:
    cache.put(AUTOSCALER, autoscaler("hpa", "workers"))
    assert known(cache, WORKERS).autoscaler == "hpa"
    moved = autoscaler("hpa", "returns-workers", version=2)
    assert cache.put(AUTOSCALER, moved) == {ORDERS, RETURNS}
    assert known(cache, WORKERS).autoscaler is None
    assert cache.remove(AUTOSCALER, ("shop", "hpa"), "uid-hpa") == {RETURNS}


def test_ghosts_are_what_was_known_before_and_is_not_listed() -> None:
    before = {ORDERS: "uid-orders", RETURNS: "first"}
    listed = {"uid-orders", "second"}
    assert find_deleted(before, listed) == [(RETURNS, "first")]
    assert find_deleted(before, set()) == [(ORDERS, "uid-orders"), (RETURNS, "first")]
    assert find_deleted({}, listed) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"template": {}}, ("apps/v1", "Deployment", "orders-workers")),
        ({"targetRef": {"name": "mine"}}, ("apps/v1", "Deployment", "mine")),
        (
            {"targetRef": {"apiVersion": "example.com/v1", "kind": "Crew", "name": "mine"}},
            ("example.com/v1", "Crew", "mine"),
        ),
    ],
)
def test_the_target_is_the_named_workload_or_the_owned_deployment(
    spec: Manifest, expected: tuple[str, str, str]
) -> None:
    target = target_of(build("orders", spec=spec))
    assert (target.api_version, target.kind, target.name) == expected
    assert target.namespace == "shop"


@pytest.mark.parametrize(
    "reference", [None, "x", [1], {"kind": None}, {"name": {}}, {"name": ["x"]}, {"apiVersion": 5}]
)
def test_a_refused_resource_with_any_target_has_a_key_to_rank_by(
    cache: WorkloadCache, reference: object
) -> None:
    spec = {"targetRef": reference, "template": {}}
    cache.put(STREAM_CONSUMER_GROUP, build("odd", spec=spec))
    assert SharedWorkloads(cache).key(("shop", "odd")).startswith("shop/")
