"""Two resources that want the same group or the same workers: the older acts."""

from __future__ import annotations

from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import derive_keys
from tests.e2e.declaring import (
    NAME,
    a_deployment,
    a_spec,
    acts_of,
    await_absence,
    get,
    group_of,
)
from tests.operators import Operators, Resources, count_exporting

OLDER, YOUNGER = "zz-older", "aa-younger"


def _apply_in_order(
    resources: Resources, older: dict[str, object], younger: dict[str, object]
) -> None:
    """The API server's creation times have whole seconds: let them differ."""
    resources.apply(OLDER, older)
    resources.await_condition(OLDER, reason="Ready")
    await_next_second(resources, OLDER)
    resources.apply(YOUNGER, younger)


def await_next_second(resources: Resources, name: str) -> None:
    """Return once what is created is younger than this resource by the API server's clock."""
    born = get(resources, "scg", name)["metadata"]["creationTimestamp"]
    marker = {"apiVersion": "v1", "kind": "ConfigMap"}

    def is_later() -> bool:
        resources.plane.kubectl(
            "delete", "configmap", "clock", "-n", resources.namespace, "--ignore-not-found"
        )
        resources.apply_raw({**marker, "metadata": {"name": "clock"}})
        now = get(resources, "configmap", "clock")["metadata"]["creationTimestamp"]
        return bool(now > born)

    wait_until(is_later, timeout_s=60, what="the next second")


def test_the_older_of_two_resources_on_one_group_acts_until_deleted(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    """Invariant 10."""
    spec = a_spec(redis_86.url, stream, group=NAME)
    other_spelling = a_spec(redis_86.url.replace("127.0.0.1", "localhost"), stream, group=NAME)
    _apply_in_order(resources, spec, other_spelling)
    conflict = resources.await_condition(YOUNGER, reason="Conflict")
    assert f"{resources.namespace}/{OLDER}" in conflict["message"]
    status = get(resources, "scg", YOUNGER)["status"]
    assert status["group"]["ownedBy"] == f"{resources.namespace}/{OLDER}"
    assert resources.get("deployment", f"{YOUNGER}-workers") is None
    assert resources.condition(OLDER)["reason"] == "Ready"

    resources.delete(OLDER)
    resources.await_condition(YOUNGER, reason="Ready")
    assert "ownedBy" not in get(resources, "scg", YOUNGER)["status"]["group"]
    assert resources.get("deployment", f"{YOUNGER}-workers") is not None


def test_deleting_the_younger_of_two_leaves_the_group_to_the_older(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    """C6."""
    spec = a_spec(redis_86.url, stream, group=NAME, deletionPolicy="Delete")
    _apply_in_order(resources, spec, spec)
    resources.await_condition(YOUNGER, reason="Conflict")
    resources.delete(YOUNGER)
    await_absence(resources, "scg", YOUNGER)
    assert group_of(redis_86, stream, NAME)
    acts = acts_of(redis_86, derive_keys(stream, NAME).ledger)
    assert [event["kind"] for event in acts] == ["group-created"]
    resources.await_condition(OLDER, reason="Ready")


def test_the_older_of_two_resources_on_one_target_scales_until_deleted(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply_raw(a_deployment("workers"))
    target = {"name": "workers"}
    manual = {"mode": "Manual"}
    spec = a_spec(redis_86.url, stream, template=None, targetRef=target, scaling=manual)
    scaled = {**spec, "replicas": 3}
    _apply_in_order(resources, spec, scaled)
    conflict = resources.await_condition(YOUNGER, reason="Conflict")
    assert OLDER in conflict["message"]
    assert "Deployment" in conflict["message"]
    assert resources.condition(YOUNGER, "ScalingActive")["reason"] == "Conflict"
    assert resources.condition(YOUNGER, "GroupReady")["status"] == "True"
    assert resources.condition(YOUNGER, "WorkloadReady")["reason"] == "ScaledToZero"
    assert get(resources, "deployment", "workers")["spec"]["replicas"] == 0

    resources.delete(OLDER)
    wait_until(
        lambda: get(resources, "deployment", "workers")["spec"]["replicas"] == 3,
        timeout_s=60,
        what="the younger to act",
        every_s=0.2,
    )


def test_the_former_deployment_goes_even_when_the_new_target_is_anothers(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply_raw(a_deployment("workers"))
    spec = a_spec(redis_86.url, stream, recovery={"strategy": "RetryStream"})
    guest = {**spec, "targetRef": {"name": "workers"}, "scaling": {"mode": "Manual"}}
    del guest["template"]
    _apply_in_order(resources, guest, spec)
    resources.await_condition(YOUNGER, reason="Ready")
    resources.apply(YOUNGER, guest)
    resources.await_condition(YOUNGER, reason="Conflict")
    await_absence(resources, "deployment", f"{YOUNGER}-workers")


def test_a_resource_in_conflict_shows_no_numbers_of_the_group(
    resources: Resources, operator: Operators, redis_86: RedisServers, stream: str
) -> None:
    spec = a_spec(redis_86.url, stream, group=NAME)
    _apply_in_order(resources, spec, spec)
    resources.await_condition(YOUNGER, reason="Conflict")
    status = get(resources, "scg", YOUNGER)["status"]
    assert status["group"].keys() == {"name", "ownedBy"}
    assert not {"stream", "recovery"} & status.keys()
    assert "lag" not in status["summary"]
    lag = f'pelops_lag_entries{{name="{YOUNGER}",namespace="{resources.namespace}"}} NaN'
    wait_until(lambda: count_exporting(operator, lag) == 1, timeout_s=60, what=lag)
