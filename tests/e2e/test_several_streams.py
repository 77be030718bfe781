"""Several resources with one workload: one of them leads its scaling, each is recovered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from local_cluster.nodes import Node
from local_cluster.redis_servers import RedisServers, ServerOptions
from pelops.domain.records.ledger import LedgerKind
from pelops.policy.status.reasons import Reason
from tests.api_objects import list_objects
from tests.control_plane.counting import await_members
from tests.e2e.declaring import NAME, WAIT_S, Object, a_deployment, get
from tests.e2e.scaled_group import PER_REPLICA, ScaledGroup, auto, working_template
from tests.e2e.test_conflicts import await_next_second
from tests.e2e.test_recovery import BY_DEATH_ALONE
from tests.e2e.worker_pods import Pod
from tests.operators import Operators, Resources
from tests.redis_fixtures import RunRedis

OWN = "several-workers"
FOLLOW: Object = {"mode": "Follow", "backlogPerReplica": PER_REPLICA}
# With five entries for each worker: 1.2 workers, so that the sum of two is 2.4.
SOME = PER_REPLICA + 1


class Sharer(ScaledGroup):
    """A resource whose workers are a Deployment that others name as well."""

    def __init__(
        self, resources: Resources, servers: RedisServers, stream: str, name: str, **more: Any
    ) -> None:
        super().__init__(resources, servers, stream, name=name, **more)
        self.target = ("deployment", OWN)

    def share(self, scaling: Object | None, **more: Any) -> None:
        """Declare it, and wait until its group is there."""
        spec: Object = {"template": None, "targetRef": {"name": OWN}, "scaling": scaling, **more}
        self.apply(**spec)
        self.resources.await_condition(self.name, "GroupReady", reason="GroupExists")

    def manifests(self) -> list[Object]:
        items = list_objects(self.resources.plane, self.resources.namespace, "pod")
        return [one for one in items if one["metadata"]["name"].startswith(f"{OWN}-")]

    def await_asked(self, workers: str, reporter: Sharer | None = None) -> None:
        """Return once it is said to ask for so many, by its own status or that of another one."""

        def asked() -> bool:
            shown = (reporter or self).reported("scaling")
            others = {one["name"]: one for one in shown.get("sharedWith", ())}
            own = shown if reporter is None else others.get(self.name, {})
            return bool(own.get("demand") == workers)

        self.until(asked, f"{self.name} to ask for {workers}")


@pytest.fixture
def lead(resources: Resources, redis_86: RedisServers, stream: str) -> Sharer:
    resources.apply_raw(a_deployment(OWN))
    return Sharer(resources, redis_86, stream, "lead")


@pytest.fixture
def mailing(resources: Resources, redis_86: RedisServers, stream: str) -> Sharer:
    return Sharer(resources, redis_86, f"{stream}-mails", "mailing")


def test_workers_are_scaled_by_the_sum_or_maximum_of_all_demands(
    lead: Sharer, mailing: Sharer, operator: Operators
) -> None:
    lead.share(auto())
    mailing.share(FOLLOW)
    following = mailing.await_scaling(Reason.FOLLOWING)
    assert (following["status"], "lead leads" in following["message"]) == ("True", True)
    for one in (lead, mailing):
        one.resources.await_condition(one.name, reason="Ready")
        _await_leader(one, "lead")
    mailing.add(SOME)
    lead.await_replicas(2)  # 1.2 of one group alone: any of them wakes the workers
    lead.add(SOME)
    lead.await_replicas(3)  # 2.4, of which each rounded alone would be 4
    for one in (lead, mailing):
        one.await_asked("1.2")
    lead.await_asked("1.2", mailing)
    mailing.await_asked("1.2", lead)
    for one in (lead, mailing):
        assert one.measured(operator, "pelops_scaling_demand") == pytest.approx(1.2)

    lead.change(scaling=auto(combine="Max"))
    lead.await_replicas(2)
    lead.change(scaling=auto(combine="Sum"))
    lead.await_replicas(3)

    lead.finish_all()
    lead.await_replicas(2)
    mailing.finish_all()
    lead.await_replicas(0)


def test_entries_of_a_deleted_pod_are_requeued_in_each_stream(
    resources: Resources, redis_86: RedisServers, stream: str, node: Node, operator: Operators
) -> None:
    await_members(operator, 2)
    resources.apply_raw(a_deployment(OWN, replicas=2))
    # One XREADGROUP names one group: the resources differ by their streams.
    groups = [
        Sharer(resources, redis_86, f"{stream}-{name}", name, group="workers")
        for name in ("lead", "mailing", "returns")
    ]
    first = groups[0]
    for one in groups:
        one.share(None, recovery=BY_DEATH_ALONE)
    first.until(lambda: len(first.pods()) == 2, "two pods")
    gone, alive = first.pods()
    lost = _read_all(groups, gone)
    kept = _read_all(groups, alive)
    first.delete_pod(gone)
    for one in groups:
        one.await_moved(lost[one.name])
        assert one.owners() == dict.fromkeys(kept[one.name], alive.consumer)
        assert one.recorded(LedgerKind.REQUEUED) == lost[one.name]
        one.await_reported(requeued=2)
        # By whichever comes first: the scan after the pod's death, or the periodic one.
        assert one.measured(operator, "pelops_requeued_total") == 2


def _await_leader(one: Sharer, name: str) -> None:
    one.until(lambda: one.reported("scaling").get("leader") == name, f"{name} to lead")


def _read_all(groups: Iterable[Sharer], pod: Pod) -> dict[str, list[str]]:
    """Add two entries to each stream and have a pod read all by one call: their IDs by resource."""
    added = {one.name: one.add(2) for one in groups}
    first = next(iter(groups))
    streams = {one.stream: ">" for one in groups}
    answer = first.redis.xreadgroup(first.keys.group, pod.consumer, streams, 10)
    read = {stream: [entry_id for entry_id, _ in entries] for stream, entries in answer}
    assert read == {one.stream: added[one.name] for one in groups}
    return added


def test_pods_that_hold_entries_of_any_group_stay_in_a_scale_in(
    lead: Sharer, mailing: Sharer, node: Node
) -> None:
    lead.share({"mode": "Manual"}, replicas=4)
    mailing.share(None)
    lead.until(lambda: len(lead.pods()) == 4, "four pods")
    pods = lead.pods()
    busy = {pods[0], pods[2]}
    lead.give(pods[0].consumer, 1)
    mailing.give(pods[2].consumer, 1)
    lead.change(replicas=2)
    lead.until(lambda: len(lead.pods()) == 2, "two pods")
    assert set(lead.pods()) == busy


@pytest.mark.full
def test_of_two_leaders_the_older_scales_and_the_younger_still_recovers(
    lead: Sharer, mailing: Sharer, node: Node
) -> None:
    lead.share(auto(minReplicas=1))
    await_next_second(lead.resources, lead.name)
    mailing.share(auto(minReplicas=3), recovery=BY_DEATH_ALONE)
    conflict = mailing.await_scaling(Reason.CONFLICT)
    assert (conflict["status"], "lead leads" in conflict["message"]) == ("False", True)
    lead.until(lead.pods, "a pod")
    healthy = {"GroupReady": "GroupExists", "WorkloadReady": "WorkersReady"}
    for kind, reason in {**healthy, "RecoveryHealthy": "Scanning"}.items():
        mailing.resources.await_condition(mailing.name, kind, reason=reason)
    (pod,) = lead.pods()
    lost = mailing.give(pod.consumer, 2)
    mailing.delete_pod(pod)
    mailing.await_moved(lost)
    assert lead.replicas() == 1

    mailing.change(scaling=FOLLOW)
    mailing.await_scaling(Reason.FOLLOWING)
    mailing.resources.await_condition(mailing.name, reason="Ready")


@pytest.mark.full
def test_without_a_leader_the_replicas_stay_and_the_next_one_goes_on(
    lead: Sharer, mailing: Sharer, node: Node
) -> None:
    lead.share(auto())
    mailing.share(FOLLOW)
    mailing.await_scaling(Reason.FOLLOWING)
    lead.add(2 * PER_REPLICA)
    lead.await_replicas(2)
    lead.resources.delete(lead.name, wait=True)
    missing = mailing.await_scaling(Reason.LEADER_MISSING)
    assert missing["status"] == "False"
    mailing.resources.await_condition(mailing.name, reason=Reason.LEADER_MISSING)
    mailing.add(3 * PER_REPLICA)
    mailing.await_seen(3 * PER_REPLICA)
    assert mailing.replicas() == 2
    mailing.change(scaling=auto(mode="Auto"))
    mailing.await_replicas(3)


def test_one_of_the_two_may_be_deleted_and_the_other_goes_on(lead: Sharer, mailing: Sharer) -> None:
    lead.share(auto())
    mailing.share(FOLLOW, deletionPolicy="Delete")
    mailing.await_scaling(Reason.FOLLOWING)
    mailing.add(2 * PER_REPLICA)
    lead.await_replicas(2)
    mailing.resources.delete(mailing.name, wait=True)
    lead.await_replicas(0)
    lead.until(lambda: not lead.reported("scaling"), "nobody to share with")
    lead.add(PER_REPLICA)
    lead.await_replicas(1)


@pytest.mark.full
def test_an_unreachable_redis_of_one_group_prevents_scaling_down_not_up(
    resources: Resources, lead: Sharer, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis(options=ServerOptions(append_only="always"))
    mailing = Sharer(resources, servers, stream, "mailing")
    lead.share(auto())
    mailing.share(FOLLOW)
    mailing.add(2 * PER_REPLICA)
    lead.await_replicas(2)
    servers.servers[0].kill()
    unknown = lead.await_scaling(Reason.LAG_UNKNOWN)
    assert "the backlog of mailing is unknown" in unknown["message"]
    assert unknown["status"] == "True", "the trouble is the other's"
    assert lead.replicas() == 2
    lead.add(3 * PER_REPLICA)
    lead.await_replicas(3)
    lead.finish_all()
    lead.await_asked("0")
    assert lead.replicas() == 3
    servers.servers[0].start()
    mailing.finish_all()
    lead.await_replicas(0)


@pytest.mark.full
def test_a_resource_can_follow_the_deployment_of_another_resource(
    resources: Resources, redis_86: RedisServers, stream: str, node: Node
) -> None:
    host = ScaledGroup(resources, redis_86, stream)
    guest = ScaledGroup(resources, redis_86, f"{stream}-mails", name="mailing")
    host.scale_by_backlog(template=working_template())
    guest.target = host.target
    guest.apply(template=None, targetRef={"name": f"{NAME}-workers"}, scaling=FOLLOW)
    guest.await_scaling(Reason.FOLLOWING)
    guest.add(PER_REPLICA)
    host.await_replicas(1)
    host.until(host.pods, "a pod")
    (pod,) = host.pods()
    lost = guest.deliver(pod.consumer, 2)
    host.delete_pod(pod)
    guest.await_moved(lost, timeout_s=WAIT_S)
    assert get(resources, "deployment", f"{NAME}-workers")["spec"]["replicas"] == 1


def test_two_groups_of_one_stream_share_their_workers(
    resources: Resources, redis_86: RedisServers, stream: str, node: Node
) -> None:
    resources.apply_raw(a_deployment(OWN))
    lead, audit = (Sharer(resources, redis_86, stream, name) for name in ("lead", "audit"))
    # A copy at the end of the stream would reach the other group as well.
    recovery = {**BY_DEATH_ALONE, "strategy": "RetryStream"}
    lead.share(auto(), recovery=recovery)
    audit.share(FOLLOW, recovery=recovery)
    audit.await_scaling(Reason.FOLLOWING)
    lead.add(SOME)  # 1.2 workers for each of the groups
    lead.await_replicas(3)
    lead.until(lambda: len(lead.pods()) == 3, "three pods")
    pod = lead.pods()[0]
    lost = {one.name: one.deliver(pod.consumer, 1) for one in (lead, audit)}
    assert lost["lead"] == lost["audit"]
    lead.delete_pod(pod)
    for one in (lead, audit):
        one.await_moved(lost[one.name])
        assert one.copies(one.keys.retry).keys() == set(lost[one.name])
