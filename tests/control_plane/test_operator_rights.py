"""The manifests grant what the operator uses, no more and no less."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.nodes import Node
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from pelops.domain.naming import derive_keys
from pelops.domain.records.redrive import PlanHeader, render_plan
from tests.audit import AuditTrail, Request
from tests.cluster_fixtures import FAST, own_node
from tests.control_plane.counting import gauge
from tests.control_plane.rights import (
    BASE,
    NAMESPACED,
    TENANT,
    TENANTS,
    may,
    namespaced_rights,
    operator_rights,
    optional_rights,
)
from tests.control_plane.rights_cases import (
    MEMBERS,
    acknowledged_audit,
    autoscaler,
    dead_member,
    only,
    owning,
    retargeted,
    secret,
    stateful_set,
    stream,
    targeting,
    wished,
)
from tests.e2e.auditing import await_reason
from tests.e2e.declaring import a_spec, await_absence, await_object
from tests.e2e.recovering import LONG_BEFORE_MS, Group
from tests.operators import SERVICE_ACCOUNT, Operators, Resources, is_ready, metrics

WAIT_S = 60.0
# The parts of a manifest that apply to one namespace alone need no such reads.
WHOLE_CLUSTER = {"nodes", "namespaces"}
MEMBER_RIGHTS = {"leases"}
LISTING = {"list", "watch"}


@pytest.fixture
def node(plane: ControlPlane, tmp_path: Path) -> Iterator[Node]:
    """A node for the one test that needs workers which run."""
    with own_node(plane, tmp_path) as started:
        yield started


def test_every_right_is_used_and_nothing_else_is_asked_for(
    plane: ControlPlane,
    node: Node,
    redis_86: StandaloneServers,
    namespace: str,
    tmp_path: Path,
) -> None:
    trail = AuditTrail(plane, SERVICE_ACCOUNT)
    resources = Resources(plane, namespace)
    with Operators(plane, tmp_path, environment=FAST) as operators:
        _live_through_everything(operators, resources, redis_86.url)
        group = Group(resources, redis_86, f"{namespace}-recovered")
        _recover_a_worker_that_crashed(group)
        _scale_in(group)
    requests = trail.read()
    assert [str(one) for one in requests if one.code == 403] == []
    used = {used for one in requests if one.code < 400 for used in _uses(one)}
    rights = [*operator_rights(), *optional_rights()]
    unused = [str(r) for r in rights if (r.api_group, r.resource, r.verb) not in used]
    assert unused == []


def test_the_rights_of_named_namespaces_end_there(
    plane: ControlPlane, redis_86: StandaloneServers, namespace: str, tmp_path: Path
) -> None:
    elsewhere = f"{namespace}-b"
    plane.kubectl("create", "namespace", elsewhere)
    trail = AuditTrail(plane, SERVICE_ACCOUNT)
    resources = Resources(plane, namespace)
    resources.apply_raw(secret(redis_86.url))
    environment = FAST | {"PELOPS_NAMESPACE": namespace}
    with _tenants(plane, namespace), Operators(plane, tmp_path, environment=environment) as them:
        rights = [r for r in operator_rights() if r.resource not in WHOLE_CLUSTER | MEMBER_RIGHTS]
        wait_until(
            lambda: may(plane, rights[0], namespace) and not may(plane, rights[0], elsewhere),
            timeout_s=WAIT_S,
            what="the rights of the layout",
        )
        for right in rights:
            assert may(plane, right, namespace), right
            assert not may(plane, right, elsewhere), right
            assert not may(plane, right, "kube-system"), right
        them.start(1)
        resources.apply("orders", owning(namespace, deletionPolicy="Delete"))
        resources.await_condition("orders", reason="Ready")
        resources.delete("orders", wait=True)
    assert [str(one) for one in trail.read() if one.code == 403] == []


@pytest.mark.full
def test_named_namespaces_can_be_served_without_any_right_in_others(
    plane: ControlPlane,
    node: Node,
    redis_86: StandaloneServers,
    namespace: str,
    tmp_path: Path,
) -> None:
    """The same life as above, with the layout of overlays/tenants: nothing more is needed."""
    trail = AuditTrail(plane, SERVICE_ACCOUNT)
    resources = Resources(plane, namespace)
    environment = FAST | {"PELOPS_NAMESPACE": namespace}
    with _tenants(plane, namespace), Operators(plane, tmp_path, environment=environment) as them:
        _live_through_everything(them, resources, redis_86.url)
        group = Group(resources, redis_86, f"{namespace}-recovered")
        _recover_a_worker_that_crashed(group)
        _scale_in(group)
    assert [str(one) for one in trail.read() if one.code == 403] == []


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_watch_resumes_when_its_withdrawn_rights_are_granted_again(
    plane: ControlPlane, redis_86: StandaloneServers, namespace: str, tmp_path: Path
) -> None:
    """Of one kind after another, the rights to list and watch it are missing for a minute."""
    resources = Resources(plane, namespace)
    with Operators(plane, tmp_path, environment=FAST) as operators:
        operators.start(1)
        (port,) = operators.ports
        wait_until(lambda: is_ready(port), timeout_s=WAIT_S, what="the operator to be ready")
        for kind in re.findall(r'^pelops_watch_restarts_total{kind="(.*)"}', metrics(port), re.M):
            with _withdrawn(plane, kind):
                wait_until(lambda: not _serves_all(port), timeout_s=150, what=f"no {kind} to come")
            wait_until(lambda: _serves_all(port), timeout_s=30, what=f"{kind} to come again")
            resources.apply(kind, a_spec(redis_86.url, f"{namespace}-{kind}"))
            wait_until(partial(resources.condition, kind), timeout_s=30, what="a status")


def _serves_all(port: int) -> bool:
    optional = ("pelops_audits_served", "pelops_redrives_served")
    return is_ready(port) and all(gauge(port, name) == 1 for name in optional)


@contextmanager
def _withdrawn(plane: ControlPlane, plural: str) -> Iterator[None]:
    """The operator may neither list nor watch a kind meanwhile."""
    name = "pelops-operator"
    role = json.loads(plane.kubectl("get", "clusterrole", name, "-o", "json").stdout)
    rules = [
        {**rule, "resources": [resource], "verbs": verbs}
        for rule in role["rules"]
        for resource in rule.get("resources", ())
        if (verbs := [v for v in rule["verbs"] if resource != plural or v not in LISTING])
    ]
    _replace(plane, {**role, "rules": rules})
    try:
        yield
    finally:
        _replace(plane, role)


def _replace(plane: ControlPlane, role: dict[str, Any]) -> None:
    metadata = {key: role["metadata"][key] for key in ("name", "labels") if key in role["metadata"]}
    plane.kubectl("replace", "-f", "-", stdin=json.dumps({**role, "metadata": metadata}))


@contextmanager
def _tenants(plane: ControlPlane, namespace: str) -> Iterator[None]:
    """The rights of overlays/tenants in place of those of the base, and one tenant."""
    rendered = yaml.safe_load_all(plane.kubectl("kustomize", str(TENANTS)).stdout)
    rights = [one for one in rendered if one["apiVersion"].startswith("rbac.")]
    assert "pelops-operator" not in {
        one["metadata"]["name"] for one in rights if one["kind"] == "ClusterRoleBinding"
    }
    plane.kubectl("delete", "clusterrolebinding", "pelops-operator")
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights))
    plane.kubectl("apply", "-n", namespace, "-k", str(TENANT))
    try:
        yield
    finally:
        plane.kubectl("delete", "clusterrolebinding", "pelops-operator-cluster-reads")
        plane.kubectl("apply", "-f", str(BASE / "cluster_role.yaml"))


def test_one_namespace_can_be_served_with_rights_in_it_alone(
    plane: ControlPlane, redis_86: StandaloneServers, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {"namespace": namespace, "resources": [os.path.relpath(NAMESPACED, tmp_path)]}
        )
    )
    plane.kubectl("apply", "-k", str(tmp_path))
    user = f"system:serviceaccount:{namespace}:pelops-operator"
    trail = AuditTrail(plane, user)
    resources = Resources(plane, namespace)
    resources.apply_raw(secret(redis_86.url), stateful_set("own"))
    with Operators(plane, tmp_path, environment=FAST | only(namespace)) as operators:
        operators.start(1, kubeconfig=plane.kubeconfig_for(user))
        resources.apply("orders", owning(namespace, deletionPolicy="Delete"))
        resources.apply("stateful", targeting(redis_86.url, namespace))
        for name in ("orders", "stateful"):
            resources.await_condition(name, "GroupReady", reason="GroupExists")
        wait_until(
            lambda: wished(resources, "statefulset", "own") == 1, timeout_s=WAIT_S, what="scaled"
        )
        resources.await_condition("orders", reason="Ready")
        resources.delete("orders", wait=True)
    forbidden = {one.resource for one in trail.read() if one.code == 403}
    assert forbidden == WHOLE_CLUSTER


def test_the_rights_in_one_namespace_are_those_of_the_whole_cluster() -> None:
    members = {"leases"}  # have a Role of their own in both
    whole = [r for r in operator_rights() if r.resource not in {"nodes"} | members]
    assert namespaced_rights() == whole


def _live_through_everything(operators: Operators, resources: Resources, url: str) -> None:
    plane, namespace = resources.plane, resources.namespace
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(dead_member()))
    leaving, _ = operators.start(2)
    resources.apply_raw(secret(url), stateful_set("own"), autoscaler("orders-workers"))
    resources.apply("orders", owning(namespace, deletionPolicy="Delete"))
    resources.apply("stateful", targeting(url, namespace))
    resources.apply_raw(acknowledged_audit("orders"))
    resources.await_condition("orders", "ScalingActive", reason="ScaledByAutoscaler")
    resources.await_condition("orders", reason="Ready")
    wait_until(
        lambda: wished(resources, "statefulset", "own") == 1, timeout_s=WAIT_S, what="scaled"
    )
    await_object(resources, "cronjob", "nightly-audit")
    await_reason(resources, "Ready", "Scheduled")
    resources.apply_raw(*a_planned_redrive("orders", namespace))
    await_absence(resources, "streamredrive", "planned", WAIT_S)  # it ends at once, and is deleted
    plane.kubectl("delete", "hpa", "autoscaler", "-n", namespace)
    resources.apply("orders", owning(namespace, deletionPolicy="Delete", replicas=1))
    wait_until(
        lambda: wished(resources, "deployment", "orders-workers") == 1,
        timeout_s=WAIT_S,
        what="the owned Deployment to be scaled",
    )
    await_object(resources, "poddisruptionbudget", "orders-workers")
    resources.apply("orders", retargeted(url, namespace))
    for kind in ("deployment", "poddisruptionbudget"):
        await_absence(resources, kind, "orders-workers", WAIT_S)
    resources.delete("orders", wait=True)
    resources.await_events("orders", "Ready", "GroupRemoved")
    leaving.send_to_leader(signal.SIGTERM)
    wait_until(lambda: _members(plane) == 1, timeout_s=WAIT_S, what="one member is left")


def a_planned_redrive(name: str, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A redrive by a plan that names no dead letter, and the plan."""
    keys = derive_keys(stream(namespace), "workers")
    header = PlanHeader(
        stream=keys.stream,
        group=keys.group,
        dead_letter=keys.dead_letter,
        at=datetime.now(UTC),
        letters=0,
    )
    plan = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "plan"},
        "data": {"plan.jsonl": "".join(render_plan(header, ()))},
    }
    redrive = {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamRedrive",
        "metadata": {"name": "planned"},
        "spec": {
            "groupRef": {"name": name},
            "selection": {"planRef": {"name": "plan"}},
            "ttlSecondsAfterFinished": 0,
        },
    }
    return plan, redrive


def _recover_a_worker_that_crashed(group: Group) -> None:
    pod, _ = group.declare(2)
    lost = group.give(pod.consumer, 1)
    group.await_idle(lost, LONG_BEFORE_MS)
    pod.crash()
    group.await_moved(lost)


def _scale_in(group: Group) -> None:
    group.apply(replicas=1)
    group.await_pods(1)


def _uses(request: Request) -> set[tuple[str, str, str]]:
    """The rights that a request needs: an apply that creates needs two."""
    creates = (request.verb, request.code) == ("patch", 201)
    verbs = {request.verb, "create"} if creates else {request.verb}
    return {(request.api_group, request.resource, verb) for verb in verbs}


def _members(plane: ControlPlane) -> int:
    return len(plane.kubectl("get", "leases", "-n", MEMBERS, "-o", "name").stdout.split())
