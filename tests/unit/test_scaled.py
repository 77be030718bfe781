"""Which resources a replica scales, and what it forgets of those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.controller.runtime.cache import Name
from pelops.controller.scaling.scaled_resources import ScaledResources
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.kube.client import STREAM_CONSUMER_GROUP
from pelops.policy.scaling.decision import NOT_DECIDED
from pelops.policy.scaling.demand import GroupDemand
from pelops.policy.scaling.sharing import Role
from tests.builders import manifest
from tests.leases import KnownMembers

NAME: Name = ("shop", "order-processing")
AUTO = {"scaling": {"mode": "Auto"}}


class Scene:
    """A cache, the members, and what is scaled."""

    def __init__(self) -> None:
        self.version = 0
        self.cache = WorkloadCache()
        self.members = KnownMembers()
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


def test_a_replica_that_stops_deciding_forgets_its_scaling_state(
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
def test_a_decision_is_current_only_without_changes_since(scene: Scene, change: str) -> None:
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


def test_resources_of_one_redis_share_a_queue_within_their_namespace(scene: Scene) -> None:
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


def share(scene: Scene, name: str, mode: str | None, **more: Any) -> Name:
    """Declare a resource that names the Deployment `shared`."""
    metadata = {"name": name, "uid": f"uid-{name}", **more.pop("metadata", {})}
    scaling = {} if mode is None else {"scaling": {"mode": mode}}
    target = {"target_ref": None, "targetRef": {"name": "shared"}}
    scene.declare(metadata=metadata, **target, **scaling, **more)
    return "shop", name


def test_a_follower_is_admitted_only_while_a_leader_scales_automatically(
    scene: Scene,
) -> None:
    follower = share(scene, "follower", "Follow")
    assert scene.scaled.admit(follower) is None, "nobody decides"
    leader = share(scene, "leader", "Auto")
    found = scene.scaled.admit(follower)
    assert found is not None and found.sharing.role is Role.FOLLOWS
    assert scene.scaled.leader_of(found) is None, "it has not been observed yet"
    leading = scene.scaled.admit(leader)
    assert leading is not None and scene.scaled.leader_of(found) is leading
    for metadata, more in (({"generation": 2}, {"suspend": True}), ({"generation": 3}, {})):
        share(scene, "leader", "Auto", metadata=metadata, **more)
        assert (scene.scaled.admit(follower) is None) is bool(more)
    share(scene, "leader", "Manual", metadata={"generation": 4})
    assert scene.scaled.admit(follower) is None, "spec.replicas says the number"


def test_one_that_neither_leads_nor_follows_is_not_looked_at(scene: Scene) -> None:
    share(scene, "a-leader", "Auto")
    assert scene.scaled.admit(share(scene, "b-second", "Auto")) is None
    assert scene.scaled.admit(share(scene, "b-off", "Disabled")) is None
    assert scene.scaled.admit(share(scene, "b-nothing", None)) is None


def test_what_was_decided_is_not_written_once_another_one_leads(scene: Scene) -> None:
    leader = scene.scaled.admit(share(scene, "b-leader", "Auto"))
    assert leader is not None and scene.scaled.is_current(leader)
    share(scene, "older", "Auto", metadata={"creationTimestamp": "2026-05-04T03:02:00Z"})
    assert not scene.scaled.is_current(leader)


def test_a_new_leader_drops_its_demand_and_keeps_its_measurements(
    scene: Scene,
) -> None:
    share(scene, "leader", "Auto")
    follower = scene.scaled.admit(share(scene, "second", "Follow"))
    assert follower is not None
    follower.demand, autoscaler = GroupDemand(name="second"), follower.autoscaler
    share(scene, "leader", "Disabled", metadata={"generation": 2})
    share(scene, "second", "Auto", metadata={"generation": 2})
    again = scene.scaled.admit(("shop", "second"))
    assert again is follower and again.autoscaler is autoscaler
    assert (again.sharing.role, again.demand) == (Role.LEADS, None)


def test_the_demand_of_others_counts_while_it_is_fresh(scene: Scene) -> None:
    leader = scene.scaled.admit(share(scene, "leader", "Auto"))
    names = [share(scene, name, "Follow") for name in ("fresh", "foreign", "new", "old")]
    share(scene, "paused", "Follow", suspend=True)
    fresh, foreign, _, old = (scene.scaled.admit(name) for name in names)
    leader = scene.scaled.admit(("shop", "leader"))
    assert leader and fresh and foreign and old
    for one, until in ((fresh, 20.0), (old, 10.0)):
        one.demand, one.counts_until = GroupDemand(name=one.name[1], in_doubt=7), until
    foreign.is_foreign = True
    found = {one.name: one for one in scene.scaled.demands_of_others(leader, now=15.0)}
    assert found.keys() == {"fresh", "new", "old", "paused"}, "another resource counts the foreign"
    assert found["fresh"].in_doubt == 7
    unknown = {name: one.unknown for name, one in found.items() if name != "fresh"}
    assert unknown == {
        "new": "its last observation is too old",
        "old": "its last observation is too old",
        "paused": "it is suspended",
    }
    assert not any(found[name].is_seen for name in unknown)


def test_a_dry_run_that_follows_has_no_effect_on_the_workers(scene: Scene) -> None:
    leader = scene.scaled.admit(share(scene, "leader", "Auto"))
    name = share(scene, "dry", "Follow", recovery={"dryRun": True})
    assert scene.scaled.admit(name) is None
    leader = scene.scaled.admit(("shop", "leader"))
    assert leader is not None
    assert scene.scaled.demands_of_others(leader, now=15.0) == ()
