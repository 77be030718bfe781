"""Which resources a replica scales, and what it forgets of those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.leases import Members
from pelops.controller.scaling.scaled_resources import ScaledResources
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.kube.client import STREAM_CONSUMER_GROUP
from pelops.policy.scaling.decision import NOT_DECIDED
from tests.builders import manifest

NAME: Name = ("shop", "order-processing")
AUTO = {"scaling": {"mode": "Auto"}}


class Deciding(Members):
    """A replica that decides, until another one does."""

    def __init__(self) -> None:
        self.is_deciding = True

    def decides(self, key: str) -> bool:
        assert "/" in key, "a namespace and a name"
        return self.is_deciding


class Scene:
    """A cache, the members, and what is scaled."""

    def __init__(self) -> None:
        self.version = 0
        self.cache = WorkloadCache()
        self.members = Deciding()
        self.forgotten: list[Name] = []
        self.scaled = ScaledResources(self.cache, self.members, self.forgotten.append)

    def declare(self, metadata: dict[str, Any] | None = None, **spec: Any) -> None:
        """Have the resource asked for like this."""
        self.version += 1
        seen = manifest(metadata={"resourceVersion": str(self.version), **(metadata or {})}, **spec)
        self.cache.put(STREAM_CONSUMER_GROUP, seen)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_remembered_stays_while_the_resource_changes(scene: Scene) -> None:
    scene.declare(**AUTO)
    first = scene.scaled.admit(NAME)
    assert first is not None
    first.decision = NOT_DECIDED
    scene.declare(scaling={"mode": "Auto", "max_replicas": 3}, metadata={"generation": 2})
    second = scene.scaled.admit(NAME)
    assert second is first and second.decision is NOT_DECIDED
    assert second.resource.spec.scaling is not None
    assert second.resource.spec.scaling.max_replicas == 3


def test_a_replica_that_decides_no_more_forgets_and_begins_anew_when_it_does_again(
    scene: Scene,
) -> None:
    scene.declare(**AUTO)
    first = scene.scaled.admit(NAME)
    assert first is not None
    scene.members.is_deciding = False
    assert scene.scaled.admit(NAME) is None
    assert (scene.forgotten, scene.scaled.get(NAME)) == ([NAME], None)
    scene.members.is_deciding = True
    again = scene.scaled.admit(NAME)
    assert again is not None and again is not first


@pytest.mark.parametrize(
    "spec",
    [
        {"scaling": {"mode": "Manual"}},
        {"scaling": {"mode": "Disabled"}},
        {},
        {"suspend": True, **AUTO},
        {"metadata": {"deletionTimestamp": "2026-05-04T03:02:01Z"}, **AUTO},
        {"stream": 7, **AUTO},
    ],
    ids=["Manual", "Disabled", "no scaling", "suspended", "being deleted", "not readable"],
)
def test_what_is_not_to_be_scaled_is_forgotten(scene: Scene, spec: dict[str, Any]) -> None:
    scene.declare(**AUTO)
    assert scene.scaled.admit(NAME) is not None
    scene.declare(**spec)
    assert scene.scaled.admit(NAME) is None
    assert scene.forgotten == [NAME]


def test_a_namesake_has_a_memory_of_its_own(scene: Scene) -> None:
    scene.declare(**AUTO)
    first = scene.scaled.admit(NAME)
    scene.declare(metadata={"uid": "uid-2"}, **AUTO)
    second = scene.scaled.admit(NAME)
    assert second is not None and second is not first
    assert scene.forgotten == [NAME]


@pytest.mark.parametrize("change", ["another spec", "deletion", "rank", "nothing"])
def test_a_decision_is_written_only_while_nobody_asks_for_anything_else(
    scene: Scene, change: str
) -> None:
    scene.declare(**AUTO)
    scaled = scene.scaled.admit(NAME)
    assert scaled is not None
    if change == "another spec":
        scene.declare(metadata={"generation": 2}, suspend=True, **AUTO)
    elif change == "deletion":
        scene.declare(metadata={"deletionTimestamp": "2026-05-04T03:02:01Z"}, **AUTO)
    elif change == "rank":
        scene.members.is_deciding = False
    assert scene.scaled.is_current(scaled) is (change == "nothing")


def test_resources_of_one_redis_share_a_lane_within_their_namespace(scene: Scene) -> None:
    lanes = {}
    for case, redis in {
        "one": {"url": "redis://a:6379"},
        "same": {"url": "redis://a:6379"},
        "other": {"url": "redis://b:6379"},
        "secret": {"secret_ref": {"name": "redis"}},
    }.items():
        for namespace in ("shop", "stock"):
            metadata = {"namespace": namespace, "name": case, "uid": f"{namespace}-{case}"}
            scene.declare(metadata=metadata, redis=redis, **AUTO)
            scaled = scene.scaled.admit((namespace, case))
            assert scaled is not None
            lanes[case, namespace] = scaled.endpoint_queue
    for place in ("shop", "stock"):
        assert lanes["one", place] == lanes["same", place]
        assert len({lanes[case, place] for case in ("one", "other", "secret")}) == 3
    # Nothing in one namespace delays the looks of another.
    assert not {lane for (_, place), lane in lanes.items() if place == "shop"} & {
        lane for (_, place), lane in lanes.items() if place == "stock"
    }
