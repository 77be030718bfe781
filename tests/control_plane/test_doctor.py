"""`pelops doctor` on real servers: it finds each planted problem, and none on a healthy set-up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from local_cluster.operators import ALLOWED_NETWORKS
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import ServerOptions, StandaloneServers, start_standalone
from pelops.cli.doctor.report import page_of
from pelops.domain.naming import derive_keys
from pelops.redis_streams.access import Feature, UserRole, acl_rules
from tests.cluster_fixtures import FAST
from tests.operators import GROUPS, ROOT, SERVICE_ACCOUNT, Operators, Resources, install

WAIT_S = 60.0
FEATURES = (Feature.RECOVERY, Feature.SCALING, Feature.WAKE, Feature.CLEANUP)
PASSWORD = "of-the-operator"
NODE = "worker-2"
POD = "orders-workers-abcde"
# What `kubectl exec` would do: the container has the operator's rights and settings.
EXEC = """\
#!{python}
import os, subprocess, sys
words = sys.argv[1:]
if words[0] != "exec":
    os.execv({kubectl!r}, [{kubectl!r}, *words])
command = words[words.index("--") + 1:]
code = subprocess.call([sys.executable, "-m", "pelops.cli", *command[1:]], env={{
    **os.environ, "PELOPS_KUBECONFIG": {operator!r}, "PELOPS_ALLOWED_NETWORKS": {networks!r},
}})
if code:
    print(f"command terminated with exit code {{code}}", file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run printed."""

    code: int
    checks: dict[str, dict[str, Any]]

    def results(self, *results: str) -> dict[str, str]:
        """The messages of the checks with these results."""
        return {
            name: one["message"] for name, one in self.checks.items() if one["result"] in results
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """Runs the command as an administrator."""

    plane: ControlPlane
    bin: Path

    def run(self, *words: str) -> Report:
        """Run it for scripts."""
        done = self.call(*words)
        assert done.stdout, done.stderr
        document = json.loads(done.stdout)
        assert document["kind"] == "DoctorReport"
        return Report(code=done.returncode, checks={one["id"]: one for one in document["checks"]})

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run it as a user does."""
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [sys.executable, "-m", "pelops.cli", "doctor", *words, "-o", "json"],
            env={
                **os.environ,
                "PATH": path,
                "KUBECONFIG": str(self.plane.kubeconfig),
                "PYTHONPATH": str(ROOT / "operator"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Reports in the order in which a cluster comes to these states."""

    before: Report
    empty: Report
    healthy: Report
    missing: subprocess.CompletedProcess[str]  # of a resource that does not exist
    sick: Report
    unreachable: Report
    by_own_kubectl: Report | None  # of the kubectl on the PATH, None without one


@pytest.fixture(scope="module")
def redis() -> Iterator[StandaloneServers]:
    with start_standalone("8.6", options=ServerOptions(append_only="everysec")) as servers:
        yield servers


@pytest.fixture(scope="module")
def reports(
    redis: StandaloneServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reports]:
    """One cluster that is installed, used, and then spoiled."""
    directory = tmp_path_factory.mktemp("doctor")
    # Without controllers: pods and nodes are what the test says that they are.
    plane = ControlPlane.start(directory / "control-plane", controllers=False)
    try:
        doctor = Doctor(plane=plane, bin=_write_kubectl(plane, directory / "bin"))
        before, empty = doctor.run("--pre"), doctor.run()
        own = shutil.which("kubectl")
        by_own = None
        if own is not None:
            by_own = Doctor(plane=plane, bin=Path(own).parent).run("--pre")
        install(plane)
        with Operators(plane, directory, environment=FAST) as operators:
            operators.start(1)
            _plant_operator(plane, "pelops-system", operators.ports[0])
            resources = _declare(plane, redis)
            with _renewed(plane):
                healthy = doctor.run("orders", "-n", "shop")
            missing = doctor.call("nobody", "-n", "shop")
            _spoil(resources, redis)
            sick = doctor.run("orders", "-n", "shop")
            plane.kubectl("delete", "crd", "streamaudits.pelops.dev", "--wait=false")
            wait_until(
                lambda: "streamaudits" not in plane.kubectl("api-resources").stdout,
                timeout_s=WAIT_S,
                what="the kind to be gone",
            )
            plane.kubectl("delete", "pod", "-n", "pelops-system", "--all", "--force")
            unreachable = doctor.run("orders", "-n", "shop")
        yield Reports(
            before=before,
            empty=empty,
            healthy=healthy,
            missing=missing,
            sick=sick,
            unreachable=unreachable,
            by_own_kubectl=by_own,
        )
    finally:
        plane.stop()


def _write_kubectl(plane: ControlPlane, directory: Path) -> Path:
    """kubectl, whose `exec` runs the command as the container of the operator would.

    No kubelet is there that could: the request would end at the API server.
    """
    directory.mkdir()
    program = directory / "kubectl"
    program.write_text(
        EXEC.format(
            python=sys.executable,
            operator=str(plane.kubeconfig_for(SERVICE_ACCOUNT, GROUPS)),
            networks=ALLOWED_NETWORKS,
            kubectl=str(plane.kubectl_path),
        )
    )
    program.chmod(0o755)
    return directory


def _plant_operator(plane: ControlPlane, namespace: str, port: int) -> None:
    """The Deployment and a pod of an operator whose process runs beside the cluster."""
    resources = Resources(plane, namespace)
    labels = {"app.kubernetes.io/name": "pelops", "app.kubernetes.io/component": "operator"}
    account = {"serviceAccountName": "pelops-operator"}
    pod = _pod("pelops-operator-0", labels, port=port)
    resources.apply_raw(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "pelops-operator", "labels": labels},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod["spec"] | account},
            },
        },
        pod,
    )
    _set_running(plane, namespace, "pelops-operator-0")


def _pod(name: str, labels: dict[str, str], *, port: int = 8080, node: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "containers": [
            {
                "name": "operator",
                "image": "registry.pelops.dev/pelops-operator:0.1.0",
                "ports": [{"name": "http", "containerPort": port}],
            }
        ]
    }
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


def _set_running(plane: ControlPlane, namespace: str, pod: str) -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    plane.kubectl(
        *("patch", "pod", pod, "-n", namespace, "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": status})),
    )


def _declare(plane: ControlPlane, redis: StandaloneServers) -> Resources:
    """A resource with the least rights in Redis, its Deployment, and a worker on a node."""
    resources = Resources(plane, "shop")
    rules = acl_rules(derive_keys("orders", "workers"), UserRole.OPERATOR, FEATURES)
    redis.cli("ACL", "SETUSER", "pelops", "on", f">{PASSWORD}", *rules)
    labels = {"app": "orders"}
    resources.apply_raw(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "orders-redis"},
            "stringData": {"url": redis.url, "username": "pelops", "password": PASSWORD},
        },
        _pod(POD, labels, node=NODE),
    )
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "orders-workers", "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(POD, labels)["spec"]},
        },
    }
    plane.kubectl("create", "-f", "-", stdin=json.dumps(deployment))
    _set_running(plane, "shop", POD)
    resources.apply(
        "orders",
        {
            "redis": {"secretRef": {"name": "orders-redis"}},
            "stream": "orders",
            "group": "workers",
            "targetRef": {"name": "orders-workers"},
            "scaling": {"maxReplicas": 5},
        },
    )
    resources.await_condition("orders", "GroupReady", reason="GroupExists")
    wait_until(
        lambda: ((resources.get("scg", "orders") or {}).get("status") or {}).get("selector"),
        timeout_s=WAIT_S,
        what="the selector of the workers",
    )
    redis.cli("XADD", "orders", "*", "n", "1")
    redis.cli("XREADGROUP", "GROUP", "workers", POD, "STREAMS", "orders", ">")
    return resources


def _lease(namespace: str, name: str, renewed: datetime, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


@contextmanager
def _renewed(plane: ControlPlane) -> Iterator[None]:
    """Renew the Lease of the node as its kubelet does."""
    ended, leases = Event(), Resources(plane, "kube-node-lease")

    def renew() -> None:
        while not ended.wait(5):
            leases.apply_raw(_lease("kube-node-lease", NODE, datetime.now(UTC)))

    leases.apply_raw(_lease("kube-node-lease", NODE, datetime.now(UTC)))
    renewing = Thread(target=renew)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()


def _spoil(resources: Resources, redis: StandaloneServers) -> None:
    """Plant one problem for each check."""
    plane, keys = resources.plane, derive_keys("orders", "workers")
    redis.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    redis.cli("ACL", "SETUSER", "pelops", "-xautoclaim", "-xpending", "-hset")
    redis.cli("DEL", keys.retry)
    redis.cli("SET", keys.retry, "a string")
    redis.cli("XGROUP", "CREATE", "orders", "foreign", "0")
    redis.cli("XADD", "orders", "*", "n", "2")
    redis.cli("XREADGROUP", "GROUP", "workers", "laptop", "STREAMS", "orders", ">")
    now = datetime.now(UTC)
    member = {"app.kubernetes.io/name": "pelops", "app.kubernetes.io/component": "member"}
    resources_of_other = Resources(plane, "pelops-other")
    plane.kubectl("create", "namespace", "pelops-other")
    resources_of_other.apply_raw(_lease("pelops-other", "replica-0", now, **member))
    plane.kubectl(
        *("patch", "lease", NODE, "-n", "kube-node-lease", "--type=merge", "-p"),
        json.dumps({"spec": _lease("", NODE, now + timedelta(hours=1))["spec"]}),
    )
    resources.apply_raw(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "orders-hpa"},
            "spec": {
                "scaleTargetRef": {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": "orders-workers",
                },
                "maxReplicas": 3,
            },
        }
    )
    _use_keda(resources)
    _own_replicas(plane)
    _remove_field(plane)
    _remove_right(plane)


def _use_keda(resources: Resources) -> None:
    """A kind as KEDA installs it, and a ScaledObject that leaves out the kind of its target."""
    kind = {"kind": "ScaledObject", "listKind": "ScaledObjectList", "plural": "scaledobjects"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True}
    resources.apply_raw(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "scaledobjects.keda.sh"},
            "spec": {
                "group": "keda.sh",
                "scope": "Namespaced",
                "names": kind,
                "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
            },
        }
    )
    resources.plane.kubectl(
        "wait", "--for=condition=Established", "crd/scaledobjects.keda.sh", "--timeout=60s"
    )
    resources.apply_raw(
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": "orders-keda"},
            "spec": {"scaleTargetRef": {"name": "orders-workers"}},
        }
    )


def _own_replicas(plane: ControlPlane) -> None:
    labels = {"app": "orders"}
    applied = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "orders-workers", "namespace": "shop"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(POD, labels)["spec"]},
        },
    }
    plane.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller"),
        *("-f", "-"),
        stdin=json.dumps(applied),
    )


def _remove_field(plane: ControlPlane) -> None:
    """The CRD of an older version, which does not have a field."""
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/workerSecretRef"
    change = [{"op": "remove", "path": path}]
    plane.kubectl(
        *("patch", "crd", "streamconsumergroups.pelops.dev", "--type=json", "-p"),
        json.dumps(change),
    )
    openapi = "/openapi/v3/apis/pelops.dev/v1alpha1"
    wait_until(
        lambda: '"workerSecretRef"' not in plane.kubectl("get", "--raw", openapi).stdout,
        timeout_s=WAIT_S,
        what="the API server to publish the older schema",
    )


def _remove_right(plane: ControlPlane) -> None:
    found = json.loads(plane.kubectl("get", "clusterrole", "pelops-operator", "-o", "json").stdout)
    rules = [one for one in found["rules"] if "deployments/scale" not in one["resources"]]
    plane.kubectl(
        *("patch", "clusterrole", "pelops-operator", "--type=merge", "-p"),
        json.dumps({"rules": rules}),
    )


def test_before_the_installation_nothing_is_wrong(reports: Reports) -> None:
    assert reports.before.results("warning", "error", "unknown") == {}
    assert reports.before.code == 0
    assert set(reports.before.checks) == {"kubernetes", "crds", "operators", "rights"}


def test_on_an_empty_cluster_kinds_rights_and_an_operator_are_missing(reports: Reports) -> None:
    assert reports.empty.code == 1
    found = reports.empty.results("error")
    assert found.keys() == {"crds", "operators", "rights"}
    assert "StreamConsumerGroup" in found["crds"]


def test_on_a_healthy_set_up_nothing_is_wrong(reports: Reports) -> None:
    assert reports.healthy.results("warning", "error") == {}
    # The least rights in Redis do not include CONFIG.
    assert reports.healthy.results("unknown").keys() == {"output-buffers"}
    assert reports.healthy.code == 0
    assert reports.healthy.checks["rights"]["message"].startswith("the operator has all")


def test_a_resource_that_does_not_exist_is_reported_by_the_exit_code(reports: Reports) -> None:
    assert reports.missing.returncode == 3
    assert "StreamConsumerGroup shop/nobody does not exist" in reports.missing.stderr


@pytest.mark.parametrize(
    ("check", "result", "words"),
    [
        ("eviction", "warning", "allkeys-lru"),
        ("acl", "error", "xpending on orders"),
        ("key-types", "error", "retry is a string"),
        ("other-groups", "error", "'foreign'"),
        ("node-clocks", "error", f"node {NODE} (3"),
        ("consumer-names", "warning", "1 of 2 consumers in use match no pod"),
        ("autoscalers", "error", "HorizontalPodAutoscaler orders-hpa, ScaledObject orders-keda"),
        ("replicas-owner", "warning", "argocd-controller"),
        ("crds", "error", "spec.workerSecretRef"),
        ("operators", "warning", "operator in namespace pelops-other (1 replica)"),
        ("rights", "error", "patch deployments/scale"),
    ],
)
def test_each_planted_problem_is_found(
    reports: Reports, check: str, result: str, words: str
) -> None:
    found = reports.sick.checks[check]
    assert found["result"] == result, found["message"]
    assert words in found["message"]
    assert found["hint"]
    assert found["page"] == page_of(check)


def test_one_problem_hides_no_other_check(reports: Reports) -> None:
    assert reports.sick.checks.keys() == reports.healthy.checks.keys()
    assert reports.sick.code == 1


def test_a_kind_that_is_not_served_is_found(reports: Reports) -> None:
    assert "StreamAudit" in reports.unreachable.results("error")["crds"]


def test_without_an_operator_to_ask_the_checks_of_the_cluster_are_made(reports: Reports) -> None:
    found = reports.unreachable
    assert found.checks.keys() >= reports.healthy.checks.keys() - {"connection", "slots"}
    assert "--redis-url" in found.results("unknown")["eviction"]
    assert "autoscalers" in found.results("error")


def test_rights_are_reviewed_through_the_kubectl_of_the_machine(reports: Reports) -> None:
    """It is older than the control plane on most machines: before 1.33, it reads one document."""
    if reports.by_own_kubectl is None:
        pytest.skip("kubectl is not on the PATH")
    assert reports.by_own_kubectl.checks["rights"] == reports.before.checks["rights"]
    assert reports.before.checks["rights"]["result"] == "ok"
