"""What `pelops adopt` finds in a workload, and what it doubts."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.cli.commands.adopt import build_resource, choose_redis, choose_value, find_doubts
from pelops.cli.display.workload_facts import WorkloadFacts, read_workload, remove_credentials
from pelops.cli.errors import CommandFailed, ExitCode

POD_NAME = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def from_secret(name: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def a_workload(*containers: list[dict[str, Any]], **more: Any) -> WorkloadFacts:
    """A Deployment with a container for each list of variables."""
    return read_workload(
        {
            "apiVersion": "apps/v1",
            "kind": more.pop("kind", "Deployment"),
            "metadata": {"name": "order-workers", "namespace": "shop", **more},
            "spec": {
                "replicas": 4,
                "template": {
                    "spec": {
                        "containers": [
                            {"name": f"c{at}", "env": env} for at, env in enumerate(containers)
                        ]
                    }
                },
            },
        }
    )


def built(facts: WorkloadFacts) -> dict[str, Any]:
    reference = choose_redis(facts)
    resource = build_resource(facts, reference, name="orders", stream="s", group="g")
    StreamConsumerGroup.parse(resource)
    spec: dict[str, Any] = resource["spec"]
    return spec


def doubts_of(facts: WorkloadFacts) -> str:
    return "\n".join(find_doubts(facts, choose_redis(facts)))


def test_a_secret_is_named_and_no_value_of_it_is_read() -> None:
    facts = a_workload([from_secret("REDIS_URL", "orders-redis", "url"), POD_NAME])
    assert built(facts)["redis"] == {"secretRef": {"name": "orders-redis"}}
    assert doubts_of(facts) == ""


def test_the_resource_changes_nothing_when_it_is_applied() -> None:
    spec = built(a_workload([POD_NAME]))
    assert spec["recovery"] == {"dryRun": True}
    assert "scaling" not in spec


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        (
            [{"name": "REDIS_URL", "value": "redis://redis.shop:6379/1"}],
            "redis://redis.shop:6379/1",
        ),
        ([{"name": "CACHE", "value": "rediss://redis.shop"}], "rediss://redis.shop"),
        ([{"name": "REDIS_HOST", "value": "redis.shop"}], "redis://redis.shop:6379"),
        (
            [
                {"name": "REDIS_HOST", "value": "redis.shop"},
                {"name": "REDIS_PORT", "value": "7000"},
            ],
            "redis://redis.shop:7000",
        ),
    ],
)
def test_the_address_is_taken_from_a_plain_variable(
    variables: list[dict[str, Any]], url: str
) -> None:
    assert built(a_workload(variables))["redis"] == {"url": url}


def test_credentials_in_a_plain_variable_never_get_into_the_resource() -> None:
    facts = a_workload([{"name": "REDIS_URL", "value": "redis://u:secret@redis:6379"}])
    assert built(facts)["redis"] == {"url": "redis://redis:6379"}
    assert "authSecretRef" in doubts_of(facts)
    assert "secret@" not in doubts_of(facts)
    assert remove_credentials("redis://redis") == ("redis://redis", False)


def test_a_stateful_set_and_one_of_several_containers_are_named() -> None:
    facts = a_workload([], [from_secret("REDIS_URL", "r", "url")], kind="StatefulSet")
    spec = built(facts)
    assert spec["targetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "order-workers",
    }
    assert spec["containerName"] == "c1"


def manager(name: str, **more: Any) -> dict[str, Any]:
    return {"manager": name, "fieldsV1": {"f:spec": {"f:replicas": {}}}, **more}


def test_doubts_name_what_a_person_has_to_decide() -> None:
    facts = a_workload(
        [],
        [],
        managedFields=[
            manager("argocd-controller"),
            manager("kubectl-create"),
            manager("kubectl", operation="Apply"),
            manager("hpa", subresource="scale"),
        ],
        ownerReferences=[{"kind": "Rollout", "name": "orders", "controller": True}],
    )
    doubts = doubts_of(facts)
    assert "no variable of the pods names a Redis" in doubts
    assert "fieldRef metadata.name" in doubts
    assert "set spec.containerName" in doubts
    assert "Rollout orders made it" in doubts
    assert "is applied by argocd-controller" in doubts
    assert "is applied by kubectl:" in doubts
    assert "kubectl-create" not in doubts
    assert "hpa" not in doubts


def test_stream_and_group_come_from_a_variable_if_only_one_names_them() -> None:
    env = [
        {"name": "ORDERS_STREAM", "value": "orders:events"},
        {"name": "CONSUMER_GROUP", "value": "processing"},
    ]
    facts = a_workload(env)
    assert choose_value("--stream", None, facts.streams)[0] == "orders:events"
    assert choose_value("--group", "other", facts.groups) == ("other", "argument")
    assert choose_value("--group", None, facts.groups) == ("processing", "variable CONSUMER_GROUP")
    several = a_workload([*env, {"name": "OUTPUT_STREAM", "value": "results"}])
    for found in ([], several.streams):
        with pytest.raises(CommandFailed, match="--stream is required") as failed:
            choose_value("--stream", None, found)
        assert failed.value.code == ExitCode.USAGE
