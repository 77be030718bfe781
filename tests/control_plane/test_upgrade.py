"""Operators of two versions side by side, and a group whose state a newer version wrote."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from pelops.domain.records.ledger import LedgerKind
from pelops.domain.records.state import FORMAT, FORMAT_VERSION
from tests.cluster_fixtures import own_plane
from tests.control_plane.counting import WAIT_S, await_members
from tests.e2e.declaring import await_absence, get, group_of
from tests.e2e.recovering import Group, measured
from tests.operators import ROOT, Operators, Resources
from tests.versions import NoFormerVersion, apply_version, build_newer, extract_former

pytestmark = pytest.mark.full

# An entry without a lock is stuck a second after its delivery, and one with a lock never.
RECOVERY = {"locks": {"keyTemplate": "lock:{$tag}:$id", "graceSeconds": 1}}
PASSES = 5  # so many looks at a resource by each replica
MOST_WRITES = 3  # of a status while nothing changes but the replicas
NEWER = str(FORMAT_VERSION + 1)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, since no other operator may act; without a node."""
    with own_plane(tmp_path_factory.mktemp("upgrade")) as plane:
        yield plane


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """Code and manifests of the former version."""
    try:
        return extract_former(tmp_path)
    except NoFormerVersion as error:
        pytest.skip(f"the history of the repository is not complete: {error}")


@pytest.fixture
def group(plane: ControlPlane, redis_86: StandaloneServers, namespace: str) -> Group:
    stream = f"orders-{uuid.uuid4().hex[:12]}"
    return Group(Resources(plane, namespace), redis_86, stream)


def declare(group: Group) -> None:
    """A group without workers, whose stuck entries only their age shows."""
    group.declare(recovery=RECOVERY)


def give_locked(group: Group, count: int) -> list[str]:
    """Entries that a live worker holds."""
    ids = group.add(count)
    for one in ids:
        group.redis.set(f"lock:{{{group.stream}}}:{one}", "joan")
    assert group.deliver("joan", count) == ids
    return ids


def recover(group: Group, count: int = 5) -> list[str]:
    """Entries that were stuck, once they are copied; the copies are acknowledged."""
    ids = group.give("jane", count)
    group.await_moved(ids)
    copies = group.read("a worker", count)
    assert {fields["_original_id"] for _, fields in copies} == set(ids)
    group.acknowledge(entry_id for entry_id, _ in copies)
    return ids


def await_passes(operators: Operators, count: int = PASSES) -> None:
    """Wait until all replicas that run have looked at their resources so many times."""

    def passes() -> list[float]:
        return [
            measured_at(port, "pelops_reconciles_total")
            for process, port in zip(operators.processes, operators.ports, strict=True)
            if process.is_alive()
        ]

    before = passes()
    wait_until(
        lambda: all(now >= was + count for was, now in zip(before, passes(), strict=True)),
        timeout_s=WAIT_S,
        what=f"{count} passes of each replica",
        every_s=0.5,
    )


def measured_at(port: int, metric: str, **labels: str) -> float:
    """A metric of one replica, summed over the labels that are not given."""

    class One:
        ports = (port,)

    return measured(One(), metric, **labels)  # type: ignore[arg-type]


class Statuses:
    """What the status of a resource was, each time that it was written."""

    def __init__(self, plane: ControlPlane, namespace: str, name: str) -> None:
        path = f"/apis/pelops.dev/v1alpha1/namespaces/{namespace}/streamconsumergroups"
        listed = json.loads(plane.get(path))["metadata"]["resourceVersion"]
        self._plane = plane
        self._query = f"{path}?watch=1&timeoutSeconds=1&resourceVersion={listed}"
        self._name = name

    def written(self) -> list[dict[str, str]]:
        """The reason of each condition, for each write since the beginning."""
        lines = self._plane.get(self._query).splitlines()
        found = [event["object"] for event in map(json.loads, lines)]
        return [
            {one["type"]: one["reason"] for one in each["status"]["conditions"]}
            for each in found
            if each["metadata"]["name"] == self._name
        ]


def test_two_versions_recover_each_entry_once_and_agree_on_statuses(
    plane: ControlPlane, operators: Operators, former: Path, group: Group
) -> None:
    resources = group.resources
    apply_version(plane, former)
    (old,) = operators.start(1, PYTHONPATH=str(former / "operator"))
    declare(group)
    resources.apply("quiet", {**get(resources, "scg", group.name)["spec"], "stream": "quiet"})
    resources.await_condition("quiet", reason="Ready")
    stuck = recover(group)

    apply_version(plane, ROOT)
    operators.start(1)
    await_members(operators, 2)
    await_passes(operators, 2)
    statuses = Statuses(plane, resources.namespace, "quiet")
    held = give_locked(group, 7)
    for _ in range(3):
        stuck += recover(group)
    await_passes(operators)
    written = statuses.written()
    assert len(written) <= MOST_WRITES, written

    old.stop()
    stuck += recover(group)
    # Entries of live workers stay; each other one was copied once, by one of the two versions.
    assert set(held) <= group.pending().keys()
    assert set(group.copies()) == set(stuck)
    assert sorted(group.recorded(LedgerKind.REQUEUED)) == sorted(stuck)
    resources.await_condition(group.name, reason="Ready")


def test_a_group_of_a_newer_format_is_reported_and_not_touched(
    operators: Operators, group: Group, redis_86: StandaloneServers
) -> None:
    resources, state = group.resources, group.keys.state
    operators.start(1)
    policies = {"deletionPolicy": "Delete", "retention": {"maxLength": 1}}
    group.apply(recovery=RECOVERY, **policies, replicas=None, scaling={"maxReplicas": 3})
    resources.await_condition(group.name, reason="Ready")
    former_format = group.redis.hget(state, FORMAT)
    with group.redis.pipeline(transaction=True) as together:
        together.hset(state, FORMAT, NEWER)
        for number in range(20):  # work, and more than is to be kept
            together.xadd(group.stream, {"n": str(number)})
        together.execute()
    stuck = group.deliver("jane", 5)
    ready = resources.await_condition(group.name, reason="NewerFormat")
    assert ready["status"] == "False"
    assert f"format {NEWER} by a newer version of Pelops" in ready["message"]
    assert resources.condition(group.name, "Stalled")["status"] == "True"

    before = contents(group)
    failed = measured(operators, "pelops_scans_total", outcome="failed")
    # Another resource must not adopt it either.
    resources.apply("another", get(resources, "scg", group.name)["spec"])
    resources.await_condition("another", reason="NewerFormat")
    await_passes(operators, 3)
    group.until(
        lambda: measured(operators, "pelops_scans_total", outcome="failed") >= failed + 3,
        "three attempts to scan",
    )
    resources.delete("another")
    await_absence(resources, "scg", "another")
    resources.plane.kubectl("delete", "pods", "--all", "-n", resources.namespace)
    assert contents(group) == before
    assert group_of(redis_86, group.stream, group.keys.group)["pending"] == str(len(stuck))
    assert get(resources, "deployment", f"{group.name}-workers")["spec"]["replicas"] == 0

    group.redis.hset(state, FORMAT, former_format)
    resources.await_condition(group.name, "GroupReady", reason="GroupExists")
    group.await_moved(stuck)


def test_an_older_replica_leaves_newer_groups_to_running_newer_replicas(
    plane: ControlPlane, operators: Operators, group: Group, tmp_path: Path
) -> None:
    resources, state = group.resources, group.keys.state
    operators.start(1)
    declare(group)
    statuses = Statuses(plane, resources.namespace, group.name)
    (newer,) = operators.start(1, PYTHONPATH=str(build_newer(tmp_path)))
    group.until(lambda: group.redis.hget(state, FORMAT) == NEWER, "the newer format")
    recover(group)
    await_passes(operators)
    reasons = [one["Ready"] for one in statuses.written()]
    assert set(reasons) <= {"Ready"}, reasons

    newer.stop()
    resources.await_condition(group.name, reason="NewerFormat")
    # The way back, as the runbook has it.
    group.redis.delete(state)
    resources.await_condition(group.name, reason="Ready")
    recover(group)


def contents(group: Group) -> dict[str, object]:
    """Everything in Redis that belongs to the group, byte by byte."""
    names = group.redis.keys(f"*{group.stream}*")
    assert len(names) >= 5
    return {name: (group.redis.type(name), read_key(group, name)) for name in sorted(names)}


def read_key(group: Group, name: str) -> object:
    if group.redis.type(name) == "hash":
        return group.redis.hgetall(name)
    groups = [
        {field: value for field, value in one.items() if field != "lag"}
        for one in group.redis.xinfo_groups(name)
    ]
    return group.redis.xrange(name), groups
