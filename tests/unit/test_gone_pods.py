"""Former pods: how the cache keeps them, and which resources their ends concern."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pelops.controller.runtime.cache import Name
from pelops.controller.workload.pods import KEPT_S, MOST, GonePods, PodChange
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.workload import Target, WorkloadObservation
from pelops.kube.client import POD, STREAM_CONSUMER_GROUP
from pelops.kube.workload_observation import parse_selector
from tests import builders
from tests.cached_objects import ORDERS, WORKERS, Manifest, build, known, pod, shop


@pytest.fixture
def cache() -> WorkloadCache:
    return shop()


class Heard(list[PodChange]):
    """The changes that a cache reports."""

    def __init__(self, cache: WorkloadCache) -> None:
        super().__init__()
        cache.listen(self.append)

    @property
    def ends(self) -> list[tuple[str, set[Name]]]:
        """The pods with an end, and the resources that it concerns; clears all changes."""
        found = [
            ((one.after or one.before).uid, set(one.concerned))  # type: ignore[union-attr]
            for one in self
            if one.is_end
        ]
        self.clear()
        return found


ENDED = {"name": "worker", "state": {"terminated": {"exitCode": 0}}}
RUNS = {"name": "worker", "state": {"running": {"startedAt": "2026-05-04T03:02:01Z"}}}


def pod_with(status: Manifest, name: str = "w-1", **more: Any) -> Manifest:
    """A pod of the Deployment workers with one container."""
    made = pod(name, {"app": "w"}, **more)
    return {**made, "status": {**made["status"], "containerStatuses": [status]}}


def gone(cache: WorkloadCache) -> dict[str, str]:
    """The pods of workers that were, and their last phases, by uid."""
    return {one.pod.uid: one.pod.phase for one in cache.pods_of(known(cache, WORKERS))[1]}


def test_the_end_of_a_deleted_pod_is_kept_from_its_event(
    cache: WorkloadCache,
) -> None:
    cache.put(POD, pod_with(RUNS))
    last = pod_with(ENDED, phase="Failed", version=9)
    assert cache.remove(POD, ("shop", "w-1"), "uid-w-1", last=last) == {ORDERS}
    ((), (found,)) = cache.pods_of(known(cache, WORKERS))
    assert (found.pod.phase, found.pod.containers[0].state) == ("Failed", "terminated")


def test_a_deletion_counts_from_its_first_observed_request(
    cache: WorkloadCache,
) -> None:
    asked = {"deletionTimestamp": "2026-05-04T03:10:00Z", "deletionGracePeriodSeconds": 60}
    again = {"deletionTimestamp": "2026-05-04T03:30:00Z", "deletionGracePeriodSeconds": 0}
    made, ended = pod_with(RUNS), pod_with(ENDED, phase="Failed", version=9)
    cache.put(POD, {**made, "metadata": made["metadata"] | asked})
    for version in (7, 8):
        late = {**made, "metadata": made["metadata"] | again | {"resourceVersion": str(version)}}
        cache.put(POD, late)
    last = {**ended, "metadata": ended["metadata"] | again}
    cache.remove(POD, ("shop", "w-1"), "uid-w-1", last=last)
    ((), (found,)) = cache.pods_of(known(cache, WORKERS))
    assert found.pod.deletion_requested == datetime(2026, 5, 4, 3, 9, tzinfo=UTC)


def test_a_pod_missing_in_a_list_is_kept_as_last_observed(cache: WorkloadCache) -> None:
    cache.put(POD, pod_with(RUNS))
    cache.remove(POD, ("shop", "w-1"), "uid-w-1")
    assert gone(cache) == {"uid-w-1": "Running"}


def test_an_end_that_arrives_after_the_pod_was_missed_is_recorded(cache: WorkloadCache) -> None:
    cache.put(POD, pod_with(RUNS))
    cache.remove(POD, ("shop", "w-1"), "uid-w-1")
    cache.remove(POD, ("shop", "w-1"), "uid-w-1", last=pod_with(ENDED, phase="Failed"))
    assert gone(cache) == {"uid-w-1": "Failed"}


def test_a_pod_that_came_and_went_before_it_was_known_is_remembered(cache: WorkloadCache) -> None:
    cache.remove(POD, ("shop", "w-1"), "uid-w-1", last=pod_with(ENDED, phase="Failed"))
    assert gone(cache) == {"uid-w-1": "Failed"}


def test_a_pod_that_took_the_name_of_another_leaves_that_one_remembered(
    cache: WorkloadCache,
) -> None:
    heard = Heard(cache)
    cache.put(POD, pod_with(RUNS))
    assert cache.put(POD, pod_with(RUNS, uid="second", version=2)) == {ORDERS}
    assert gone(cache) == {"uid-w-1": "Running"}
    assert [one.uid for one in cache.pods_of(known(cache, WORKERS))[0]] == ["second"]
    assert heard.ends == [("uid-w-1", {ORDERS})]


def test_only_the_pods_of_the_workload_are_reported(cache: WorkloadCache) -> None:
    for name, labels, namespace in (
        ("w-1", {"app": "w"}, "shop"),
        ("x-1", {"app": "x"}, "shop"),
        ("w-2", {"app": "w"}, "other"),
    ):
        cache.put(POD, pod(name, labels, namespace=namespace))
        cache.remove(POD, (namespace, name))
    assert gone(cache) == {"uid-w-1": "Running"}
    assert len(cache.pods.gone) == 2  # pods of a namespace without resources are not kept


def test_the_pods_of_a_foreign_target_are_found_by_its_selector(cache: WorkloadCache) -> None:
    target = Target(api_version="example.com/v1", kind="Crew", namespace="shop", name="crew")
    workload = WorkloadObservation(target=target, exists=True, selector="app=c")
    spec = {"targetRef": {"apiVersion": "example.com/v1", "kind": "Crew", "name": "crew"}}
    cache.put(STREAM_CONSUMER_GROUP, build("crewed", spec=spec))
    heard = Heard(cache)
    cache.put(POD, pod("c-1", {"app": "c"}))
    assert [one.name for one in cache.pods_of(workload)[0]] == ["c-1"]
    # Once its selector was seen, an end concerns its resource.
    cache.with_pods(workload)
    assert cache.remove(POD, ("shop", "c-1")) == {("shop", "crewed")}
    assert heard.ends == [("uid-c-1", {("shop", "crewed")})]
    assert [one.pod.name for one in cache.pods_of(workload)[1]] == ["c-1"]
    cache.remove(STREAM_CONSUMER_GROUP, ("shop", "crewed"))
    assert cache.put(POD, pod("c-2", {"app": "c"})) == set()


def test_a_target_without_a_selector_has_no_pods(cache: WorkloadCache) -> None:
    cache.put(POD, pod("w-1", {"app": "w"}))
    cache.remove(POD, ("shop", "w-1"))
    cache.put(POD, pod("w-2", {"app": "w"}))
    absent = Target(api_version="apps/v1", kind="Deployment", namespace="shop", name="absent")
    assert cache.pods_of(WorkloadObservation(target=absent, exists=False)) == ([], ())


def test_ends_are_reported_at_once_and_nothing_else_is_an_end(cache: WorkloadCache) -> None:
    heard = Heard(cache)
    cache.put(POD, pod_with({"name": "worker", "state": {"waiting": {}}}))
    cache.put(POD, pod_with(RUNS, version=2))
    assert [one.is_end for one in heard] == [False, False]
    assert [one.before is None for one in heard] == [True, False]
    heard.clear()
    cache.put(POD, pod_with(ENDED, version=3))
    assert heard.ends == [("uid-w-1", {ORDERS})]
    cache.put(POD, pod_with({**RUNS, "restartCount": 1}, version=4))
    assert heard.ends == [("uid-w-1", {ORDERS})]
    cache.put(POD, pod_with({**RUNS, "restartCount": 1}, version=5))
    assert heard == []
    cache.remove(POD, ("shop", "w-1"))
    assert heard.ends == [("uid-w-1", {ORDERS})]


def test_gone_pods_are_forgotten_after_an_hour_and_beyond_a_number() -> None:
    now = [0.0]
    pods = GonePods(lambda: now[0])
    every = parse_selector("app")

    def bury(uid: str) -> None:
        pods.add("shop", builders.pod(uid=uid, name=f"w-{uid}"), {"app": "w"})

    bury("first")
    now[0] = KEPT_S
    bury("second")
    assert [one.pod.uid for one in pods.select("shop", every)] == ["first", "second"]
    now[0] += 1
    assert [one.pod.uid for one in pods.select("shop", every)] == ["second"]
    for number in range(MOST):
        bury(str(number))
    assert len(pods) == MOST
    assert pods.find("shop", "second") is None
    now[0] += KEPT_S + 1
    assert pods.select("shop", every) == ()
    assert len(pods) == 0
