"""Recovery with three replicas: they die amid the work, and the API server does too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster.nodes import Node, start_nodes
from local_cluster.plane import ControlPlane
from local_cluster.processes import Process
from local_cluster.redis_servers import RedisServers
from pelops.domain.records.ledger import LedgerKind
from tests.cluster_fixtures import FAST, own_plane
from tests.control_plane.counting import await_members
from tests.e2e.declaring import Object
from tests.e2e.recovering import LONG_BEFORE_MS, Group, paused, retries
from tests.operators import Operators, Resources

REPLICAS = 3
BY_DEATH_ALONE: Object = {"scanPeriodSeconds": 3600, "processingTimeoutSeconds": 3600}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, to break."""
    with own_plane(tmp_path_factory.mktemp("outages")) as plane:
        yield plane


@pytest.fixture(scope="module")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Its node."""
    (started,) = start_nodes(plane, 1, tmp_path_factory.mktemp("outages-nodes"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def fleet(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    """Three replicas; a test that ends one starts another."""
    directory: Path = tmp_path_factory.mktemp("outages-operators")
    with Operators(plane, directory, environment=FAST) as operators:
        operators.start(REPLICAS)
        await_members(operators, REPLICAS)
        yield operators


@pytest.fixture
def group(
    plane: ControlPlane,
    fleet: Operators,
    node: Node,
    redis_86: RedisServers,
    namespace: str,
    stream: str,
) -> Group:
    """A group that is yet to be declared."""
    return Group(Resources(plane, namespace), redis_86, stream)


@pytest.mark.full
def test_three_replicas_requeue_each_entry_once(group: Group, fleet: Operators) -> None:
    gone, other = group.declare(2, recovery={**BY_DEATH_ALONE, "tuning": {"batchSize": 10}})
    lost = group.give(gone.consumer, 300)
    group.delete_pod(gone)
    group.await_moved(lost)
    group.until(lambda: gone.consumer not in group.consumers(), "its consumer to go")
    assert group.copies().keys() == set(lost)
    assert sorted(group.recorded(LedgerKind.REQUEUED)) == sorted(lost)
    group.await_reported(requeued=300)
    group.until(
        lambda: group.measured(fleet, "pelops_requeued_total") == 300, "the replicas to count 300"
    )
    assert len(group.ledger(LedgerKind.CONSUMER_REMOVED)) == 1
    assert other.consumer not in group.recorded(LedgerKind.CONSUMER_REMOVED)


@pytest.mark.full
def test_a_replica_killed_during_recovery_neither_loses_nor_duplicates_entries(
    group: Group, fleet: Operators
) -> None:
    (gone,) = group.declare(1, recovery={**BY_DEATH_ALONE, "tuning": {"batchSize": 1}})
    lost = group.give(gone.consumer, 6_000)
    group.delete_pod(gone)
    killed = group.await_act(LedgerKind.REQUEUED).details["actor"]
    _process_of(fleet, killed).kill()
    group.await_moved(lost)
    assert group.copies().keys() == set(lost)
    assert sorted(group.recorded(LedgerKind.REQUEUED)) == sorted(lost)
    group.until(lambda: gone.consumer not in group.consumers(), "its consumer to go")
    actors = {act.details["actor"] for act in group.ledger(LedgerKind.REQUEUED)}
    assert actors > {killed}, "it was killed too late to mean anything"


def _process_of(fleet: Operators, identity: str) -> Process:
    found = re.fullmatch(r"replica-\d+-(\d+)", identity)
    assert found is not None, identity
    return fleet.processes[fleet.ports.index(int(found[1]))]


def test_during_an_api_server_outage_only_idle_entries_are_recovered(
    plane: ControlPlane, group: Group
) -> None:
    timeout = {"scanPeriodSeconds": 1, "unmatchedConsumerTimeoutSeconds": 2}
    recovery = {**BY_DEATH_ALONE, **timeout}
    (pod,) = group.declare(1, recovery=recovery)
    lost = group.give(pod.consumer, 2)
    group.await_idle(lost, LONG_BEFORE_MS)
    plane.process("kube-apiserver").kill()
    try:
        pod.crash()
        stuck = group.give("laptop", 2)
        group.await_moved(stuck)
        group.await_scans()
        assert group.owners() == dict.fromkeys(lost, pod.consumer)
        assert group.copies().keys() == set(stuck)
    finally:
        plane.restart("kube-apiserver")
    group.await_moved(lost)
    assert group.copies().keys() == {*lost, *stuck}
    assert retries(group.copies(), lost) == {"1"}


@pytest.mark.full
def test_an_unconfirmed_death_is_judged_once_the_api_server_is_back(
    plane: ControlPlane, group: Group, fleet: Operators
) -> None:
    (pod,) = group.declare(1, recovery=BY_DEATH_ALONE)
    lost = group.give(pod.consumer, 2)
    group.await_idle(lost, LONG_BEFORE_MS)
    with paused(fleet):
        pod.crash()
        group.await_restart(pod)
        # The watches have reported it, and no API server is left to confirm it.
        plane.process("kube-apiserver").kill()
        resumed_ms = group.now_ms()
    try:
        group.await_scan_since(resumed_ms)
        assert group.owners() == dict.fromkeys(lost, pod.consumer)
    finally:
        plane.restart("kube-apiserver")
    group.await_moved(lost)
    assert retries(group.copies(), lost) == {"1"}
