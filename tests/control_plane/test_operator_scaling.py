"""Which replica scales, what wakes it, and what becomes of its decisions when it dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from pelops.policy.status.reasons import Reason
from tests.control_plane.counting import await_members
from tests.e2e.declaring import Object
from tests.e2e.recovering import measured
from tests.e2e.scaled_group import PER_REPLICA, ScaledGroup, auto
from tests.operators import Operators, Resources, metrics

WAIT_S = 60.0
WINDOW_S = 10
TAKEOVER_S = 28.0  # a Lease, a look, and a busy machine; less than half a minute
GROUPS = 12
UNTIL_NEXT_LOOK_S = 15.0  # at least, of a group that is woken


@pytest.fixture(autouse=True)
def no_former_members(plane: ControlPlane) -> None:
    plane.kubectl("delete", "leases", "--all", "-n", "pelops-system")


@pytest.fixture
def group(
    plane: ControlPlane, namespace: str, redis_86: StandaloneServers, key_prefix: str
) -> ScaledGroup:
    return ScaledGroup(Resources(plane, namespace), redis_86, f"{key_prefix}orders")


def test_the_first_entry_wakes_an_idle_group_before_its_next_observation(
    operators: Operators, group: ScaledGroup
) -> None:
    # The number of looks is that of all groups which the operator serves.
    operators.start(1, PELOPS_NAMESPACE=group.resources.namespace)
    group.scale_by_backlog()
    group.await_scaling(Reason.IDLE)
    _await_idle(operators)
    group.add(1)
    # The next periodic observation would come later than that.
    group.await_replicas(1, timeout_s=0.9 * UNTIL_NEXT_LOOK_S)


@pytest.mark.full
def test_only_one_replica_scales_and_its_successor_honours_the_stabilization_window(
    operators: Operators, group: ScaledGroup
) -> None:
    operators.start(2)
    await_members(operators, 2)
    window = {"scaleDown": {"stabilizationWindowSeconds": WINDOW_S}}
    group.scale_by_backlog(scaling=auto(behavior=window))
    group.add(2 * PER_REPLICA)
    group.await_replicas(2)
    (first,) = wait_until(
        lambda: _only(_scaling(operators.ports, group)), timeout_s=WAIT_S, what="one to scale"
    )
    others = [port for port in operators.ports if port != first]
    operators.processes[operators.ports.index(first)].kill()
    group.finish_all()
    # It counts as alive until its Lease has run out.
    wait_until(lambda: _scaling(others, group), timeout_s=WAIT_S, what="another to take over")
    assert group.replicas() == 2
    group.await_replicas(0)


@pytest.mark.full
def test_after_a_kill_another_replica_scales_within_seconds(
    operators: Operators, group: ScaledGroup
) -> None:
    operators.start(2)
    await_members(operators, 2)
    group.scale_by_backlog()
    group.add(1)
    group.await_replicas(1)
    (first,) = wait_until(
        lambda: _only(_scaling(operators.ports, group)), timeout_s=WAIT_S, what="one to scale"
    )
    operators.processes[operators.ports.index(first)].kill()
    group.add(2 * PER_REPLICA)
    group.await_replicas(3, timeout_s=TAKEOVER_S)


@pytest.mark.full
def test_a_replica_stopped_for_long_writes_no_earlier_decision(
    operators: Operators, group: ScaledGroup
) -> None:
    operators.start(2)
    await_members(operators, 2)
    group.scale_by_backlog()
    group.add(1)
    group.await_replicas(1)
    (first,) = wait_until(
        lambda: _only(_scaling(operators.ports, group)), timeout_s=WAIT_S, what="one to scale"
    )
    process = operators.processes[operators.ports.index(first)]
    others = [port for port in operators.ports if port != first]
    process.pause()
    try:
        group.add(2 * PER_REPLICA)
        group.await_replicas(3, timeout_s=TAKEOVER_S)
        group.finish_all()
        group.await_replicas(0)
    finally:
        process.resume()
    # It believes that one worker runs and eleven entries wait, until it looks.
    wait_until(lambda: not _scaling([first], group), timeout_s=WAIT_S, what="it to notice")
    assert _scaling(others, group) == others
    assert group.replicas() == 0


@pytest.mark.full
def test_of_replicas_that_start_together_or_later_one_scales_each_group(
    plane: ControlPlane,
    operators: Operators,
    namespace: str,
    redis_86: StandaloneServers,
    key_prefix: str,
) -> None:
    resources = Resources(plane, namespace)
    groups = [
        ScaledGroup(resources, redis_86, f"{key_prefix}orders-{number}", name=f"orders-{number}")
        for number in range(GROUPS)
    ]
    operators.start(1)
    for group in groups:
        group.scale_by_backlog()
        group.add(1)
    for added in (0, 2):  # one joins the first, two more start together
        operators.start(max(1, added))
        seen: set[int] = set()

        def is_divided(seen: set[int] = seen) -> bool:
            held = [name for port in operators.ports for name in _scaled_by(port, namespace)]
            assert len(held) == len(set(held)), "two replicas scale one group"
            seen |= {port for port in operators.ports if _scaled_by(port, namespace)}
            return len(seen) == len(operators.ports) and len(held) == GROUPS

        wait_until(is_divided, timeout_s=WAIT_S, what="all to scale a part", every_s=0.05)


@pytest.mark.full
def test_a_rejected_scale_is_reported_and_retried_until_it_is_permitted(
    operators: Operators, group: ScaledGroup
) -> None:
    operators.start(1)
    group.scale_by_backlog()
    with _forbidden(group):
        group.add(2 * PER_REPLICA)
        reported = group.await_scaling(Reason.REJECTED)
        assert reported["status"] == "False"
        assert (
            "frozen by the platform" in reported["message"] and "Backlog 10:" in reported["message"]
        )
        assert group.replicas() == 0
    group.await_replicas(2)
    group.await_scaling(Reason.SCALED)


def _await_idle(operators: Operators) -> None:
    """Return after the first look of a group that is left alone until it is woken."""
    began, looks = time.monotonic(), 0.0

    def is_rare() -> bool:
        nonlocal began, looks
        now, seen = time.monotonic(), _looks(operators)
        was, began = began, began if seen == looks else now
        rested, looks = seen != looks and now - was > UNTIL_NEXT_LOOK_S, seen
        return rested

    wait_until(is_rare, timeout_s=WAIT_S, what="looks to be rare", every_s=0.1)


def _looks(operators: Operators) -> float:
    """How often the only group there is was looked at in order to scale it."""
    return measured(operators, "pelops_scaling_decisions_total")


@contextmanager
def _forbidden(group: ScaledGroup) -> Iterator[None]:
    """Forbid all scaling in the namespace of the group meanwhile."""
    plane, name = group.resources.plane, f"{group.resources.namespace}.frozen.test"
    group.resources.apply_raw(*_freeze(name, group.resources.namespace))
    where = ("-n", group.resources.namespace)
    workers = f"deployment/{group.name}-workers"

    def is_refused() -> bool:
        answer = plane.kubectl("scale", workers, "--replicas=0", *where, check=False)
        return answer.returncode != 0

    wait_until(is_refused, timeout_s=WAIT_S, what="the policy to be in force", every_s=0.2)
    try:
        yield
    finally:
        plane.kubectl("delete", "validatingadmissionpolicybinding", name)
        plane.kubectl("delete", "validatingadmissionpolicy", name)


def _freeze(name: str, namespace: str) -> list[Object]:
    scale = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["deployments/scale"],
    }
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [scale]},
        "validations": [{"expression": "false", "message": "frozen by the platform"}],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    kinds = {"ValidatingAdmissionPolicy": policy, "ValidatingAdmissionPolicyBinding": binding}
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        for kind, spec in kinds.items()
    ]


def _scaling(ports: list[int], group: ScaledGroup) -> list[int]:
    """The ports of the replicas that export a backlog of the group, since they scale it."""
    return [port for port in ports if f'name="{group.name}"' in _backlog(port)]


def _only(ports: list[int]) -> list[int]:
    """Nothing unless it is one: a replaced replica exports numbers until its next look."""
    return ports if len(ports) == 1 else []


def _scaled_by(port: int, namespace: str) -> list[str]:
    """The groups of a namespace that a replica scales."""
    part = f'namespace="{namespace}",part="pending"'
    lines = [line for line in _backlog(port).splitlines() if part in line]
    return [line.partition('name="')[2].partition('"')[0] for line in lines]


def _backlog(port: int) -> str:
    lines = metrics(port).splitlines()
    return "\n".join(line for line in lines if line.startswith("pelops_backlog_entries{"))
