"""Mode Auto: the number of workers follows the backlog of the group, from zero and back to zero."""

from __future__ import annotations

import pytest

from local_cluster.nodes import Node
from local_cluster.redis_servers import RedisServers, ServerOptions
from pelops.policy.status.reasons import Reason
from tests.control_plane.counting import await_members
from tests.e2e.declaring import WORKERS, Object, a_deployment, a_workload, get
from tests.e2e.scaled_group import PER_REPLICA, ScaledGroup, auto, working_template
from tests.e2e.test_conflicts import await_next_second
from tests.operators import Operators, Resources
from tests.redis_fixtures import RunRedis

OWN = "my-workers"


@pytest.fixture
def group(resources: Resources, redis_86: RedisServers, stream: str) -> ScaledGroup:
    return ScaledGroup(resources, redis_86, stream)


def test_workers_come_from_zero_do_the_work_and_go_again(
    group: ScaledGroup, node: Node, operator: Operators
) -> None:
    # Replicas that do not know of each other yet may both scale, and both report it.
    await_members(operator, 2)
    group.scale_by_backlog(template=working_template())
    group.await_scaling(Reason.IDLE)
    assert group.replicas() == 0
    group.hold(2 * PER_REPLICA + 1)
    group.await_replicas(3)
    group.await_pods(3)
    group.until(lambda: len(set(group.owners().values())) == 3, "three busy workers")
    scaled = group.await_scaling(Reason.SCALED)
    assert (scaled["status"], "backlog" in scaled["message"]) == ("True", True)
    # However long the three take to finish: it is decided when all have.
    group.change(suspend=True)
    group.await_scaling(Reason.SUSPENDED)
    group.let_go()
    group.until(lambda: not group.pending(), "all to be acknowledged")
    group.change(suspend=False)
    group.await_replicas(0)
    group.await_scaling(Reason.IDLE)
    (seen,) = group.redis.xinfo_groups(group.stream)
    assert (seen["lag"], seen["pending"]) == (0, 0)
    assert get(group.resources, "scg", group.name)["status"]["desiredReplicas"] == 0
    group.resources.await_events(group.name, Reason.SCALED_UP, Reason.SCALED_DOWN)
    assert (len(group.events(Reason.SCALED_UP)), len(group.events(Reason.SCALED_DOWN))) == (1, 1)


def test_workers_that_hold_entries_are_kept_and_the_others_go(
    group: ScaledGroup, node: Node
) -> None:
    group.scale_by_backlog(template=working_template())
    (slow,) = group.add(1, hold=f"{group.stream}:slow")
    group.until(lambda: slow in group.pending(), "the slow one to be taken")
    group.hold(2 * PER_REPLICA)
    group.await_pods(3)
    group.let_go()
    group.await_replicas(1)
    group.until(lambda: len(group.pods()) == 1, "one pod")
    (pod,) = group.pods()
    assert group.owners() == {slow: pod.consumer}
    group.redis.set(f"{group.stream}:slow", "open")
    group.await_replicas(0)


def test_suspending_freezes_the_replicas_and_resuming_goes_on(group: ScaledGroup) -> None:
    group.scale_by_backlog()
    group.change(suspend=True)
    suspended = group.await_scaling(Reason.SUSPENDED)
    assert suspended["status"] == "False"
    group.add(PER_REPLICA)
    group.await_seen(PER_REPLICA)
    assert group.replicas() == 0
    assert group.resources.condition(group.name)["status"] == "True"
    group.change(suspend=False)
    group.await_replicas(1)


def test_a_mode_of_off_leaves_the_replicas_alone(group: ScaledGroup) -> None:
    group.scale_by_backlog()
    group.change(scaling={"mode": "Disabled"})
    group.await_scaling(Reason.SCALING_DISABLED)
    group.add(PER_REPLICA)
    group.await_seen(PER_REPLICA)
    assert group.replicas() == 0
    group.change(scaling={"mode": "Auto"})
    group.await_replicas(1)


def test_an_autoscaler_on_the_workers_has_them_to_itself_until_it_goes(group: ScaledGroup) -> None:
    group.scale_by_backlog()
    group.resources.apply_raw(_autoscaler(WORKERS))
    group.await_scaling(Reason.SCALED_BY_AUTOSCALER)
    group.add(2 * PER_REPLICA)
    group.await_seen(2 * PER_REPLICA)
    assert group.replicas() == 0
    group.resources.plane.kubectl("delete", "hpa", "theirs", "-n", group.resources.namespace)
    group.await_replicas(2)


def test_a_deployment_scaled_by_hand_returns_to_the_desired_replicas(group: ScaledGroup) -> None:
    group.scale_by_backlog()
    group.add(2 * PER_REPLICA)
    group.await_replicas(2)
    _scale_by_hand(group, 0)
    group.await_replicas(2)


@pytest.mark.full
def test_new_limits_count_at_once(group: ScaledGroup) -> None:
    group.scale_by_backlog()
    group.add(10 * PER_REPLICA)
    group.await_replicas(3)
    limited = group.await_scaling(Reason.LIMITED)
    assert "maxReplicas" in limited["message"]
    group.change(scaling=auto(maxReplicas=4, minReplicas=2))
    group.await_replicas(4)
    group.finish_all()
    group.await_replicas(2)


def test_a_group_started_at_the_end_scales_up_at_its_first_entry(
    group: ScaledGroup,
) -> None:
    group.add(3 * PER_REPLICA)
    group.scale_by_backlog(startFrom="End")
    group.await_scaling(Reason.IDLE)
    assert group.replicas() == 0
    group.add(1)
    group.await_replicas(1)


def test_deleted_entries_do_not_count_for_scaling(group: ScaledGroup, node: Node) -> None:
    group.scale_by_backlog(template=working_template())
    group.await_scaling(Reason.IDLE)
    group.change(suspend=True)
    group.await_scaling(Reason.SUSPENDED)
    group.redis.xdel(group.stream, *group.add(2 * PER_REPLICA))
    group.change(suspend=False)
    group.await_scaling(Reason.IDLE)
    assert group.replicas() == 0
    group.hold(1)
    group.await_replicas(1)
    group.let_go()
    group.await_replicas(0)
    (seen,) = group.redis.xinfo_groups(group.stream)
    assert (seen["lag"], seen["pending"]) == (0, 0), "the server counts again"


def test_a_redis_that_is_gone_holds_the_replicas_until_it_is_back(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis(options=ServerOptions(append_only="always"))
    group = ScaledGroup(resources, servers, stream)
    group.scale_by_backlog()
    group.add(2 * PER_REPLICA)
    group.await_replicas(2)
    servers.servers[0].kill()
    held = group.await_scaling(Reason.BACKLOG_UNKNOWN)
    assert (held["status"], "held at 2" in held["message"]) == ("False", True)
    assert group.replicas() == 2
    servers.servers[0].start()
    group.add(PER_REPLICA)
    group.await_replicas(3)
    group.finish_all()
    group.await_replicas(0)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_deleted_target_is_scaled_once_it_is_recreated(group: ScaledGroup, kind: str) -> None:
    group.resources.apply_raw(a_workload(kind, OWN, 0))
    group.target = (kind, OWN)
    group.scale_by_backlog(template=None, targetRef={"kind": kind, "name": OWN})
    group.add(2 * PER_REPLICA)
    group.await_replicas(2)
    group.resources.plane.kubectl("delete", kind, OWN, "-n", group.resources.namespace)
    group.add(PER_REPLICA)
    group.resources.await_condition(group.name, reason=Reason.TARGET_MISSING)
    group.await_scaling(Reason.BACKLOG_UNKNOWN)
    group.resources.apply_raw(a_workload(kind, OWN, 0))
    group.await_replicas(3)


def test_workers_that_a_quota_forbids_are_reported_as_ineffective_scaling(
    group: ScaledGroup, node: Node
) -> None:
    group.resources.apply_raw(_quota(1))
    group.scale_by_backlog(scaling=auto(maxReplicas=10))
    group.add(10 * PER_REPLICA)
    reported = group.await_scaling(Reason.SCALING_INEFFECTIVE)
    assert (reported["status"], "quota" in reported["message"]) == ("False", True)


@pytest.mark.full
def test_a_group_of_a_cluster_wakes_and_goes_to_sleep_again(
    resources: Resources, redis_cluster: RedisServers, stream: str
) -> None:
    group = ScaledGroup(resources, redis_cluster, stream)
    group.scale_by_backlog()
    group.await_scaling(Reason.IDLE)
    for _ in range(2):
        redis_cluster.cli("XADD", stream, "*", "n", "1")
        group.await_replicas(1)
        redis_cluster.cli("XGROUP", "SETID", stream, group.keys.group, "$")
        group.await_replicas(0)


@pytest.mark.full
def test_of_two_resources_on_one_target_only_the_older_scales_it(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply_raw(a_deployment(OWN))
    older = ScaledGroup(resources, redis_86, stream, name="older")
    younger = ScaledGroup(resources, redis_86, f"{stream}-2", name="younger")
    for one in (older, younger):
        one.target = ("deployment", OWN)
        one.apply(scaling=auto(), template=None, targetRef={"name": OWN})
        await_next_second(resources, one.name)
    younger.await_scaling(Reason.CONFLICT)
    older.await_scaling(Reason.IDLE)
    younger.add(3 * PER_REPLICA)
    younger.await_seen(3 * PER_REPLICA)
    assert younger.replicas() == 0
    older.add(PER_REPLICA)
    older.await_replicas(1)
    resources.delete(older.name)
    younger.await_replicas(3)


def test_of_two_resources_on_one_group_only_the_older_scales_its_workers(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    older, younger = (
        ScaledGroup(resources, redis_86, stream, name=name, group="shared")
        for name in ("older", "younger")
    )
    for one in (older, younger):
        resources.apply_raw(a_deployment(f"{one.name}-own"))
        one.target = ("deployment", f"{one.name}-own")
        one.apply(scaling=auto(), template=None, targetRef={"name": f"{one.name}-own"})
        await_next_second(resources, one.name)
    younger.await_scaling(Reason.CONFLICT)
    older.add(2 * PER_REPLICA)
    older.await_replicas(2)
    older.await_seen(2 * PER_REPLICA)
    assert younger.reported("group").get("lag") is None, "the group is another resource's"
    assert younger.replicas() == 0
    resources.delete(older.name)
    younger.await_replicas(2)


def test_a_lag_unknown_to_redis_is_counted_and_repaired(group: ScaledGroup) -> None:
    group.scale_by_backlog()
    group.change(suspend=True)
    group.await_scaling(Reason.SUSPENDED)
    ids = group.add(3 * PER_REPLICA)
    group.redis.xgroup_setid(group.stream, group.keys.group, ids[PER_REPLICA - 1])
    assert group.reported_lag() is None
    group.change(suspend=False)
    group.await_replicas(2)
    group.until(lambda: group.reported_lag() == 2 * PER_REPLICA, "the lag to be told")


def _scale_by_hand(group: ScaledGroup, replicas: int) -> None:
    where = ("-n", group.resources.namespace)
    group.resources.plane.kubectl("scale", *group.target, f"--replicas={replicas}", *where)


def _autoscaler(deployment: str) -> Object:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "theirs"},
        # There is no metrics server: it looks, and scales nothing.
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "maxReplicas": 9,
        },
    }


def _quota(pods: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": str(pods)}},
    }
