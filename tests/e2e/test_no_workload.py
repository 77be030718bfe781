"""A group whose consumer has no workload, such as a Spark job: reconciled, and nothing scaled."""

from __future__ import annotations

from local_cluster.redis_servers import RedisServers
from tests.e2e.declaring import (
    NAME,
    WORKERS,
    a_deployment,
    a_spec,
    await_absence,
    await_object,
    get,
    group_of,
)
from tests.operators import Resources


def test_a_group_without_workers_is_made_and_ready(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply_raw(a_deployment(WORKERS, 1))
    resources.apply(NAME, a_spec(redis_86.url, stream, template=None, replicas=None))
    resources.await_condition(NAME, reason="Ready")
    workload = resources.condition(NAME, "WorkloadReady")
    assert (workload["status"], workload["reason"]) == ("True", "NoWorkload")
    assert resources.condition(NAME, "ScalingActive")["reason"] == "ScalingDisabled"
    assert group_of(redis_86, stream, NAME)
    # A Deployment that has the name which a template's would have is not taken for its workers.
    status = get(resources, "scg", NAME)["status"]
    assert (status["replicas"], "selector" in status) == (0, False)
    assert get(resources, "deployment", WORKERS)["spec"]["replicas"] == 1


def test_a_template_that_is_taken_out_takes_its_deployment_along(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    await_object(resources, "deployment", WORKERS)
    resources.apply(NAME, a_spec(redis_86.url, stream, template=None))
    await_absence(resources, "deployment", WORKERS)
    resources.await_condition(NAME, "WorkloadReady", reason="NoWorkload")
