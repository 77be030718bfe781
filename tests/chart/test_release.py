"""The chart on a real control plane: installed, upgraded, rolled back, and uninstalled.

The operator runs as pods of a node that starts their commands as processes, with the rights that
the chart gives it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from local_cluster.nodes import Node, start_nodes
from local_cluster.operators import ALLOWED_NETWORKS
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.api_objects import create_namespace
from tests.chart import test_values
from tests.chart.helm import CHART, NAMESPACE, RELEASE, Helm, Object, Renderer, write_values
from tests.operators import ROOT, Resources

WAIT: Final = "180s"
SHOP: Final = "shop"
# Nodes and Redis are on this machine.
LOCAL: Final[Mapping[str, Any]] = {
    "config": {
        "allowedNetworks": ALLOWED_NETWORKS.split(","),
        "clockSkewSeconds": 0,
        "observeIntervalSeconds": 1,
        "statusIntervalSeconds": 1,
        "logFormat": "console",
    }
}
QUICKSTART: Final = (ROOT / "examples" / "quickstart.yaml").read_text()
NAME: Final = "order-processing"
CRD: Final = "streamconsumergroups.pelops.dev"
STUBS: Final = ("ServiceMonitor", "PodMonitor", "PrometheusRule")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without anything of Pelops."""
    plane = ControlPlane.start(tmp_path_factory.mktemp("release") / "control-plane")
    try:
        for namespace in (NAMESPACE, SHOP, "billing", "monitoring", "grafana"):
            create_namespace(plane, namespace)
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    (node,) = start_nodes(plane, 1, tmp_path_factory.mktemp("nodes"))
    yield node
    node.stop()


@pytest.fixture
def cluster(helm: Helm, plane: ControlPlane, node: Node) -> Iterator[Helm]:
    """Helm of the administrator; what it installed is removed afterwards, with the CRDs."""
    yield Helm(program=helm.program, home=helm.home, kubeconfig=plane.kubeconfig)
    admin = Helm(program=helm.program, home=helm.home, kubeconfig=plane.kubeconfig)
    admin.run("uninstall", RELEASE, "-n", NAMESPACE, "--ignore-not-found", "--wait")
    crds = json.loads(plane.kubectl("get", "crd", "-o", "json").stdout)["items"]
    ours = [one["metadata"]["name"] for one in crds if one["spec"]["group"] == "pelops.dev"]
    if ours:
        plane.kubectl("delete", "crd", *ours, "--timeout=60s")


@pytest.fixture
def resources(plane: ControlPlane) -> Resources:
    return Resources(plane, SHOP)


def install(
    helm: Helm, directory: Path, values: Mapping[str, Any], *more: str, release: str = RELEASE
) -> None:
    """Install or upgrade the release, and wait until its pods are ready."""
    file = write_values(directory, {**LOCAL, **values})
    helm.run(
        *("upgrade", "--install", release, str(CHART), "-n", NAMESPACE, "-f", str(file)),
        *("--wait", "--timeout", WAIT, *more),
    )


def declare_quickstart(resources: Resources, redis: StandaloneServers) -> None:
    """The Secret and the resource of the quickstart, on a server without an earlier group."""
    redis.cli("FLUSHALL")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "orders-redis"}}
    resources.apply_raw({**secret, "stringData": {"url": redis.url}})
    resources.apply_raw(yaml.safe_load(QUICKSTART))
    resources.await_condition(NAME, reason="Ready")


def deployment(plane: ControlPlane, name: str = RELEASE) -> Object:
    found: Object = json.loads(
        plane.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}")
    )
    return found


def test_a_group_is_ready_soon_after_the_install_and_outlives_the_uninstall(
    cluster: Helm,
    plane: ControlPlane,
    resources: Resources,
    redis_86: StandaloneServers,
    tmp_path: Path,
) -> None:
    began = time.monotonic()
    install(cluster, tmp_path, {"replicaCount": 1})
    installed = time.monotonic()
    declare_quickstart(resources, redis_86)
    ready = time.monotonic()
    print(f"helm install {installed - began:.1f} s, quickstart Ready {ready - installed:.1f} s")
    notes = cluster.run("get", "notes", RELEASE, "-n", NAMESPACE)
    assert "kubectl get scg -A" in notes and "namespace: shop" in notes
    cluster.run("uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--timeout", WAIT)
    left = plane.kubectl(
        *("get", "clusterroles,clusterrolebindings,validatingadmissionpolicies", "-o", "name")
    ).stdout
    assert "pelops" not in left
    kinds = "all,pdb,serviceaccounts,roles,rolebindings"
    wait_until(
        lambda: "pelops" not in plane.kubectl("get", kinds, "-n", NAMESPACE, "-o", "name").stdout,
        timeout_s=60.0,
        what="the last pod to end",
        every_s=0.2,
    )
    # The CRDs stay, and with them the resource and the workers that belong to it.
    assert resources.get("scg", NAME) is not None
    assert resources.get("deployment", f"{NAME}-workers") is not None


@pytest.mark.full
@pytest.mark.parametrize(("release", "values", "name"), test_values.RELEASES)
def test_the_pods_of_a_release_are_ready_whatever_its_name(
    cluster: Helm,
    plane: ControlPlane,
    release: str,
    values: Mapping[str, Any],
    name: str,
    tmp_path: Path,
) -> None:
    install(cluster, tmp_path, {"replicaCount": 1, **values}, release=release)
    try:
        found = deployment(plane, name)
        assert found["status"]["readyReplicas"] == 1
        notes = cluster.run("get", "notes", release, "-n", NAMESPACE)
        assert f"deployment/{name}" in notes
    finally:
        cluster.run("uninstall", release, "-n", NAMESPACE, "--wait", "--timeout", WAIT)


@pytest.mark.full
def test_a_release_without_replicas_says_so(cluster: Helm, tmp_path: Path) -> None:
    install(cluster, tmp_path, {"replicaCount": 0})
    notes = cluster.run("get", "notes", RELEASE, "-n", NAMESPACE)
    assert "no operator runs" in notes


@pytest.mark.full
def test_a_release_is_upgraded_and_rolled_back_while_a_group_stays_ready(
    cluster: Helm,
    plane: ControlPlane,
    resources: Resources,
    redis_86: StandaloneServers,
    tmp_path: Path,
) -> None:
    install(cluster, tmp_path, {})
    declare_quickstart(resources, redis_86)
    # As if an earlier version had left the CRD with a column less, which the upgrade brings back.
    columns = len(_columns(plane))
    column = "/spec/versions/0/additionalPrinterColumns/0"
    patch = json.dumps([{"op": "remove", "path": column}])
    plane.kubectl("patch", "crd", CRD, "--type=json", "-p", patch)
    assert len(_columns(plane)) == columns - 1
    install(
        *(cluster, tmp_path, {"replicaCount": 1, "podLabels": {"upgraded": "yes"}}),
        "--force-conflicts",
    )
    upgraded = deployment(plane)["spec"]
    assert upgraded["replicas"] == 1
    assert upgraded["template"]["metadata"]["labels"]["upgraded"] == "yes"
    assert len(_columns(plane)) == columns
    resources.await_condition(NAME, reason="Ready")
    cluster.run("rollback", RELEASE, "1", "-n", NAMESPACE, "--wait", "--timeout", WAIT)
    rolled_back = deployment(plane)["spec"]
    assert rolled_back["replicas"] == 2
    assert "upgraded" not in rolled_back["template"]["metadata"]["labels"]
    _await_workers_scaled(resources, 1)
    cluster.run("uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--timeout", WAIT)
    # The same release finds its CRDs and the resource again.
    install(cluster, tmp_path, {"replicaCount": 1})
    _await_workers_scaled(resources, 2)
    resources.await_condition(NAME, reason="Ready")


@pytest.mark.full
def test_a_release_needs_no_right_outside_its_namespaces(
    cluster: Helm,
    plane: ControlPlane,
    resources: Resources,
    redis_86: StandaloneServers,
    tmp_path: Path,
) -> None:
    """An administrator installs CRDs and policies; a user of two namespaces installs the rest."""
    for part in ("crds", "manifests/admission"):
        plane.kubectl("apply", "--server-side", "-k", str(ROOT / part))
    for namespace in (NAMESPACE, SHOP):
        plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=_rights_of_team())
    kubeconfig = plane.kubeconfig_for("team")
    team = Helm(program=cluster.program, home=cluster.home, kubeconfig=kubeconfig)
    values = {"watchNamespaces": [SHOP], "clusterResources": False, "replicaCount": 1}
    install(team, tmp_path, values)
    declare_quickstart(resources, redis_86)
    other = Resources(plane, "billing")
    other.apply_raw(
        {**yaml.safe_load(QUICKSTART), "metadata": {"name": NAME, "namespace": "billing"}}
    )
    _await_workers_scaled(resources, 1)
    untouched = other.get("scg", NAME)
    assert untouched is not None
    assert untouched["status"]["observedGeneration"] == -1  # as the CRD has it
    team.run("uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--timeout", WAIT)
    plane.kubectl("delete", "-k", str(ROOT / "manifests" / "admission"))


def test_the_api_server_accepts_the_objects_of_each_set_of_values(
    plane: ControlPlane, render: Renderer
) -> None:
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(map(_stub, STUBS)))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    sets = [one for one in test_values.ALL if one not in (test_values.MONITORED,)]
    if (ROOT / "manifests" / "monitoring" / "rules.yaml").exists():
        sets.append(test_values.MONITORED)
    for values in sets:
        objects = [
            {**one, "metadata": {"namespace": NAMESPACE, **one["metadata"]}}
            if one["kind"] in {"ConfigMap", "Secret"}
            else one
            for one in render(values)
        ]
        answer = plane.kubectl(
            *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
            stdin=yaml.safe_dump_all(objects),
        )
        assert answer.stdout.count("serverside-applied") == len(objects), answer.stdout


def _await_workers_scaled(resources: Resources, replicas: int) -> None:
    """Have the group scaled, which an operator that manages it does."""
    resources.plane.kubectl(
        *("patch", "scg", NAME, "-n", SHOP, "--type=merge", "-p"),
        json.dumps({"spec": {"scaling": {"mode": "Manual"}, "replicas": replicas}}),
    )

    def scaled() -> bool:
        found = resources.get("deployment", f"{NAME}-workers")
        return found is not None and found["spec"]["replicas"] == replicas

    wait_until(scaled, timeout_s=120.0, what=f"{replicas} workers", every_s=0.2)


def _columns(plane: ControlPlane) -> list[Object]:
    crd = json.loads(plane.kubectl("get", "crd", CRD, "-o", "json").stdout)
    found: list[Object] = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    return found


def _rights_of_team() -> str:
    """All of a namespace, and to give a Role rights that the user does not have."""
    api = "rbac.authorization.k8s.io"
    escalate = {"apiGroups": [api], "resources": ["roles"], "verbs": ["escalate", "bind"]}
    user = [{"apiGroup": api, "kind": "User", "name": "team"}]
    role = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": {"name": "team"}}
    binding = {"apiVersion": f"{api}/v1", "kind": "RoleBinding", "subjects": user}
    return yaml.safe_dump_all(
        [
            {**role, "rules": [escalate]},
            {
                **{**binding, "metadata": {"name": "team"}},
                "roleRef": {"apiGroup": api, "kind": "Role", "name": "team"},
            },
            {
                **{**binding, "metadata": {"name": "team-admin"}},
                "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "admin"},
            },
        ]
    )


def _stub(kind: str) -> Object:
    """A CRD of the Prometheus Operator that accepts any spec."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
