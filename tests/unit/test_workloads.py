"""The worker Deployment: how it is built, and when it counts as applied."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pelops.errors import InvalidSpec
from pelops.kube.container_environment import WorkerAccess
from pelops.kube.worker_deployment import build_deployment, is_applied, replicas_owner
from tests.builders import TEMPLATE, keys, resource

NO_SECRET = WorkerAccess()
TLS = WorkerAccess(url="rediss://r", secret="r", secret_keys=frozenset({"ca.crt"}))


def built(
    template: dict[str, Any] = TEMPLATE, access: WorkerAccess = NO_SECRET, **spec: Any
) -> dict[str, Any]:
    asked = resource(template=template, **spec)
    return build_deployment(asked, keys(asked), access)


def containers(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    return found


def with_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "worker", **fields}]}}


def test_the_deployment_goes_with_its_resource() -> None:
    metadata = built()["metadata"]
    assert metadata["name"] == "order-processing-workers"
    (reference,) = metadata["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == ("uid-1", True)


def test_a_built_workload_does_not_set_replicas() -> None:
    assert "replicas" not in built(replicas=7)["spec"]


def test_the_template_of_the_resource_is_not_changed_by_building() -> None:
    before = copy.deepcopy(TEMPLATE)
    built(access=TLS)
    assert before == TEMPLATE


def test_labels_of_the_user_stay_except_the_one_that_selects() -> None:
    deployment = built(
        {
            "metadata": {
                "labels": {
                    "app": "orders",
                    "app.kubernetes.io/managed-by": "me",
                    "pelops.dev/stream-consumer-group": "another",
                }
            },
            **TEMPLATE,
        }
    )
    selector = deployment["spec"]["selector"]["matchLabels"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= selector.items()
    assert labels["app"] == "orders"
    assert labels["app.kubernetes.io/managed-by"] == "me"


def test_user_variables_take_precedence_and_precede_their_references() -> None:
    theirs = [
        {"name": "GREETING", "value": "$(PELOPS_STREAM)"},
        {"name": "POD_NAME", "value": "me"},
        {"name": "PELOPS_MAX_RETRIES", "value": "9"},
    ]
    (worker,) = containers(built(with_container(env=theirs)))
    names = [variable["name"] for variable in worker["env"]]
    assert len(set(names)) == len(names)
    assert names.index("POD_NAME") < names.index("PELOPS_CONSUMER")
    assert names.index("PELOPS_STREAM") < names.index("GREETING")
    assert {"name": "PELOPS_MAX_RETRIES", "value": "9"} in worker["env"]


def test_only_the_container_that_reads_is_given_variables() -> None:
    template = {"spec": {"containers": [{"name": "proxy"}, {"name": "worker"}]}}
    proxy, worker = containers(built(template, container_name="worker"))
    assert "env" not in proxy
    assert worker["env"]


def test_certificates_are_mounted_where_the_variables_say() -> None:
    pod = built(access=TLS)["spec"]["template"]["spec"]
    (volume,), (mount,) = pod["volumes"], pod["containers"][0]["volumeMounts"]
    assert volume["secret"]["secretName"] == "r"
    assert volume["secret"]["optional"] is True
    assert mount == {"name": volume["name"], "mountPath": "/etc/pelops/redis", "readOnly": True}


def test_volumes_of_the_user_stay_and_take_precedence() -> None:
    theirs = [{"name": "cache", "emptyDir": {}}]
    template = {"spec": {**TEMPLATE["spec"], "volumes": theirs}}
    pod = built(template, TLS)["spec"]["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["cache", "pelops-redis-tls"]
    own = {"spec": {**TEMPLATE["spec"], "volumes": [{"name": "pelops-redis-tls"}]}}
    assert len(built(own, TLS)["spec"]["template"]["spec"]["volumes"]) == 1


WORKER: dict[str, Any] = {"name": "worker"}
# The CRD leaves most of a template unchecked: empty is well, another shape is the author's.
SHAPES: dict[str, tuple[dict[str, Any], str | None]] = {
    "no metadata": ({"metadata": None, **TEMPLATE}, None),
    "no labels": ({"metadata": {"labels": None}, **TEMPLATE}, None),
    "no volumes": ({"spec": {"containers": [WORKER], "volumes": None}}, None),
    "no variables": ({"spec": {"containers": [{**WORKER, "env": None}]}}, None),
    "metadata in words": (
        {"metadata": "orders", **TEMPLATE},
        "in spec.template, metadata must be an object",
    ),
    "labels in a list": ({"metadata": {"labels": ["a"]}, **TEMPLATE}, "labels must be an object"),
    "volumes in an object": (
        {"spec": {"containers": [WORKER], "volumes": {"a": 1}}},
        "volumes must be a list",
    ),
    "variables in words": (
        {"spec": {"containers": [{**WORKER, "env": ["A=b"]}]}},
        "env must be a list of objects",
    ),
    "no containers": ({"spec": {"containers": []}}, "add the container of the worker"),
}


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_a_template_of_any_shape_is_built_or_refused_in_words(
    case: tuple[dict[str, Any], str | None],
) -> None:
    template, problem = case
    if problem is None:
        assert built(template, TLS)
        return
    with pytest.raises(InvalidSpec, match=problem):
        built(template, TLS)


def test_a_container_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(InvalidSpec, match=r"'reader', but spec.template has the containers worker"):
        built(container_name="reader")


# wished, live, whether an apply may be left out
APPLIED: dict[str, tuple[Any, Any, bool]] = {
    "what others added is left alone": ({"a": 1}, {"a": 1, "b": 2}, True),
    "another value": ({"a": 1}, {"a": 2}, False),
    "a missing value": ({"a": {"b": 1}}, {"a": {}}, False),
    "what is empty may be missing": ({"a": {}, "b": [], "c": "", "d": None}, {}, True),
    "an item that others put first": ([{"name": "a"}], [{"name": "b"}, {"name": "a"}], True),
    "an item that is gone": ([{"name": "a"}, {"name": "b"}], [{"name": "a"}], False),
    "the same arguments": ({"args": ["a", "b"]}, {"args": ["a", "b"]}, True),
    "arguments in another order": ({"args": ["a", "b"]}, {"args": ["b", "a"]}, False),
    "one argument more": ({"args": ["a"]}, {"args": ["a", "--dry-run"]}, False),
    "an object where a list should be": ({"args": ["a"]}, {"args": {"a": 1}}, False),
    "text where an object should be": ({"a": {"b": 1}}, {"a": "b"}, False),
}


@pytest.mark.parametrize("case", APPLIED.values(), ids=APPLIED)
def test_an_apply_is_left_out_only_when_everything_is_there(case: tuple[Any, Any, bool]) -> None:
    wished, live, expected = case
    assert is_applied(wished, live) is expected


def managed(manager: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"manager": manager, "fieldsV1": {"f:spec": fields}}


OWNERS: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "nobody": ([], None),
    "ourselves": ([managed("pelops", {"f:replicas": {}})], None),
    "an autoscaler": ([managed("pelops", {}), managed("hpa", {"f:replicas": {}})], "hpa"),
    "a person who changed something else": ([managed("kubectl-edit", {"f:paused": {}})], None),
}


@pytest.mark.parametrize("case", OWNERS.values(), ids=OWNERS)
def test_the_replicas_belong_to(case: tuple[list[dict[str, Any]], str | None]) -> None:
    entries, manager = case
    assert replicas_owner({"metadata": {"managedFields": entries}}) == manager
