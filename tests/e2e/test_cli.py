"""The command line against a real API server with a real operator."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.cluster_fixtures import FAST
from tests.e2e.command_line import CommandLine
from tests.e2e.declaring import (
    NAME,
    WAIT_S,
    Object,
    a_deployment,
    a_letter,
    a_spec,
    get,
    patch,
    secret,
)
from tests.e2e.recovering import Group
from tests.operators import Operators, Resources

EVA = "eva"  # she may read in the namespace, and change nothing


@pytest.fixture
def cli(resources: Resources) -> CommandLine:
    return CommandLine(resources.plane, resources.namespace, resources.plane.kubeconfig)


@pytest.fixture
def viewer(cli: CommandLine) -> CommandLine:
    cli.plane.kubectl(
        *("create", "rolebinding", "viewer", "-n", cli.namespace),
        *("--clusterrole=view", f"--user={EVA}"),
    )
    return cli.as_user(EVA)


@pytest.mark.full
def test_status_waits_until_a_group_is_ready_and_shows_it(
    cli: CommandLine, resources: Resources, redis_86: StandaloneServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    waited = cli("status", NAME, "--wait", "--timeout", "2m")
    assert waited.code == 0, waited.err
    redis_86.cli("XADD", f"{{{stream}}}:{NAME}:dlq", "*", *flat(a_letter(stream, NAME)))

    def shown() -> str:
        found = cli("status", NAME)
        assert found.code == 0, found.err
        return found.out if "1 dead letter in" in found.out else ""

    text = wait_until(shown, timeout_s=WAIT_S, what="the dead letter in the status")
    assert text.startswith(f"{resources.namespace}/{NAME}   √ Ready\n")
    assert f"Stream    {stream}, group {NAME} at Redis 8.6" in text
    assert "Backlog   0: undelivered 0, pending 0" in text
    assert f"next  pelops dlq list {NAME} -n {resources.namespace}" in text
    wide = cli("status", NAME, "-o", "wide").out
    assert "RecoveryHealthy  True" in wide
    wait_until(
        lambda: "GroupCreated" in cli("status", NAME).out, timeout_s=WAIT_S, what="the Event"
    )


def flat(fields: dict[str, str]) -> list[str]:
    return [word for pair in fields.items() for word in pair]


def test_status_shows_all_groups_and_exits_with_1_unless_all_are_ready(
    cli: CommandLine, resources: Resources, redis_86: StandaloneServers, stream: str
) -> None:
    none = cli("status")
    assert (none.code, none.out) == (0, "")
    assert none.err == f"No StreamConsumerGroups found in namespace {resources.namespace}.\n"
    resources.apply("good", a_spec(redis_86.url, stream))
    resources.apply("bad", a_spec("redis://127.0.0.1:1", f"{stream}-b"))
    resources.await_condition("good", reason="Ready")
    resources.await_condition("bad", reason="RedisUnreachable")
    table = cli("status")
    header, bad, good, _, following = table.out.splitlines()
    assert table.code == 1
    assert header.split()[:3] == ["NAME", "READY", "REASON"]
    assert bad.split()[:3] == ["bad", "False", "RedisUnreachable"]
    assert good.split()[:3] == ["good", "True", "Ready"]
    assert following == f"next  pelops status bad -n {resources.namespace}"
    everywhere = cli("status", "-A", namespaced=False)
    assert everywhere.out.splitlines()[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert resources.namespace in everywhere.out
    report = cli("status", "-o", "json").document
    assert (report["apiVersion"], report["kind"]) == ("cli.pelops.dev/v1alpha1", "StatusReport")
    assert {one["name"]: one["ready"] for one in report["groups"]} == {
        "good": "True",
        "bad": "False",
    }
    assert cli("status", "-o", "name").out.splitlines() == [
        "streamconsumergroup.pelops.dev/bad",
        "streamconsumergroup.pelops.dev/good",
    ]
    late = cli("status", "bad", "--wait", "--timeout=1s")
    assert late.code == 124
    assert "waiting for bad: RedisUnreachable: " in late.err
    assert "bad   ‼ Not ready: RedisUnreachable" in late.out


def test_what_is_missing_or_forbidden_is_one_sentence_and_exit_code_3(
    cli: CommandLine, viewer: CommandLine
) -> None:
    missing = cli("status", "nothing")
    assert (missing.code, missing.out) == (3, "")
    assert missing.err == 'pelops: streamconsumergroups.pelops.dev "nothing" not found\n'
    assert viewer("status").code == 0
    refused = viewer("status", "-A", namespaced=False)
    assert (refused.code, refused.out) == (3, "")
    assert "cannot list resource" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert cli("status", "--context=nowhere").code == 2
    assert cli("status", "a", "-A", namespaced=False).code == 2


def test_pause_says_who_and_why_and_resume_removes_it(
    cli: CommandLine,
    viewer: CommandLine,
    resources: Resources,
    redis_86: StandaloneServers,
    stream: str,
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    refused = viewer("pause", NAME)
    assert refused.code == 3
    assert "cannot patch resource" in refused.err
    paused = cli("pause", NAME, "--reason", "schema migration")
    assert paused.code == 0, paused.err
    assert paused.out.splitlines() == [
        f"streamconsumergroup/{NAME} paused (nothing is recovered, scaled or trimmed; "
        "workers keep running)",
        f"next  pelops resume {NAME} -n {resources.namespace}",
    ]
    resources.await_condition(NAME, reason="Suspended")
    seen = viewer("status", NAME)
    assert "‼ Paused\n" in seen.out
    assert "Paused    spec.suspend is true, set by kubernetes-admin " in seen.out
    assert " ago: schema migration\n" in seen.out
    again = cli("pause", NAME)
    assert (again.code, "is paused already" in again.err) == (0, True)
    report = cli("status", NAME, "-o", "json").document["groups"][0]
    assert (report["pausedBy"], report["pauseReason"]) == ("kubernetes-admin", "schema migration")

    resumed = cli("resume", NAME)
    assert resumed.code == 0, resumed.err
    resources.await_condition(NAME, reason="Ready")
    found = get(resources, "scg", NAME)
    assert found["spec"]["suspend"] is False
    assert not [name for name in found["metadata"].get("annotations", {}) if "pause" in name]
    assert "is not paused" in cli("resume", NAME).err


def test_pause_names_who_can_set_it_back(
    cli: CommandLine, resources: Resources, redis_86: StandaloneServers, stream: str
) -> None:
    manifest = {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": NAME},
        "spec": a_spec(redis_86.url, stream, suspend=False),
    }
    resources.plane.kubectl(
        *("apply", "--server-side", "--field-manager=argocd-controller", "-f", "-"),
        *("-n", resources.namespace),
        stdin=yaml.safe_dump(manifest),
    )
    paused = cli("pause", NAME)
    assert paused.code == 0
    assert "argocd-controller applies spec.suspend too" in paused.err


def test_top_shows_the_rates_that_the_operator_measures(
    cli: CommandLine, viewer: CommandLine, group: Group, operator: Operators
) -> None:
    group.apply(scaling={"maxReplicas": 1})  # the operator measures what it scales
    for number in range(50):
        group.redis.xadd(group.stream, {"n": number})
    urls = [f"--metrics-url=http://127.0.0.1:{port}/metrics" for port in operator.ports]

    def measured() -> Object | None:
        top = cli("top", "-o", "json", *urls)
        assert top.code == 0, top.err
        (row,) = top.document["groups"]
        known = row["lag"] == 50 and row["acknowledgeRate"] is not None
        return row if known else None

    row = wait_until(measured, timeout_s=WAIT_S, what="rates")
    assert row is not None and row["pending"] == 0
    text = cli("top", *urls)
    assert text.code == 0
    header, line = text.out.splitlines()
    assert header.split()[:6] == ["NAMESPACE", "NAME", "READY", "LAG", "TREND", "PENDING"]
    name, ready, lag = line.split()[1:4]
    assert (name, lag) == (NAME, "50")
    assert ready in {"True", "False"}  # it is False once the workers have not started for a while
    # Who may not read the metrics gets the numbers of the status.
    own = viewer("top")
    assert own.code == 0
    assert "No rates, and numbers of the last status: " in own.err
    assert own.out.splitlines()[1].split()[1] == NAME


@pytest.fixture
def operator_pod(
    plane: ControlPlane, operator: Operators, namespace: str, tmp_path: Path
) -> Iterator[str]:
    """The pod of an operator, as the API server shows it; the replica itself is a process."""
    address = find_address()
    if address is None:
        pytest.skip("the machine has no address that the API server connects to")
    with Operators(plane, tmp_path, environment=FAST) as operators:
        operators.start(1, PELOPS_HTTP_HOST=address, wait=False)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "operator-0",
                "labels": {
                    "app.kubernetes.io/name": "pelops",
                    "app.kubernetes.io/component": "operator",
                },
            },
            "spec": {
                "schedulerName": "nobody",
                "containers": [
                    {
                        "name": "operator",
                        "image": "local/operator",
                        "ports": [{"name": "http", "containerPort": operators.ports[0]}],
                    }
                ],
            },
        }
        plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(pod))
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        plane.kubectl(
            *("patch", "pod", "operator-0", "-n", namespace, "--subresource=status"),
            *("--type=merge", "-p", yaml.safe_dump({"status": status})),
        )
        yield "operator-0"
        plane.kubectl("delete", "pod", "operator-0", "-n", namespace, "--now")


def find_address() -> str | None:
    """An address of this machine that is not loopback: no packet is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


@pytest.mark.full
def test_the_metrics_are_read_through_the_api_server(
    cli: CommandLine, group: Group, operator_pod: str
) -> None:
    group.apply()

    def shown() -> bool:
        top = cli("top", "-v")
        path = f"/api/v1/namespaces/{cli.namespace}/pods/{operator_pod}:"
        return path in top.err and "No rates" not in top.err

    wait_until(shown, timeout_s=WAIT_S, what="the metrics")


def test_adopt_prints_a_resource_that_can_be_applied_and_what_it_doubts(
    cli: CommandLine, resources: Resources, redis_86: StandaloneServers, stream: str
) -> None:
    workers = a_deployment("order-workers")
    env = [
        {"name": "REDIS_URL", "valueFrom": {"secretKeyRef": {"name": "redis", "key": "url"}}},
        {"name": "ORDERS_STREAM", "value": stream},
    ]
    workers["spec"]["template"]["spec"]["containers"][0]["env"] = env
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "scaler"},
        "spec": {
            "maxReplicas": 3,
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": "order-workers",
            },
        },
    }
    resources.apply_raw(secret("redis", url=redis_86.url, token="s3cret"), workers, scaler)
    redis_86.cli("XGROUP", "CREATE", stream, "processing", "$", "MKSTREAM")
    adopted = cli("adopt", "deploy/order-workers", "--group", "processing")
    assert adopted.code == 0, adopted.err
    assert f"found  stream {stream} (variable ORDERS_STREAM), group processing" in adopted.err
    assert "found  REDIS_URL of container worker: Secret redis, key url" in adopted.err
    assert "doubt  HorizontalPodAutoscaler scaler scales it" in adopted.err
    assert "doubt  no variable has the name of the pod" in adopted.err
    assert "doubt  replicas: 0 is applied by kubectl" in adopted.err
    assert adopted.err.count("doubt  ") == 3
    assert "s3cret" not in adopted.out + adopted.err
    cli.plane.kubectl("apply", "-f", "-", stdin=adopted.out)
    resources.await_condition("order-workers", reason="DryRun")
    assert "Recovery  dry run" in cli("status", "order-workers").out
    again = cli("adopt", "deployment/order-workers", "--group", "processing")
    assert "StreamConsumerGroup order-workers has the same workers" in again.err
    assert "StreamConsumerGroup order-workers exists already" in again.err


def test_adopt_warns_of_a_secret_without_url_and_refuses_unusable_arguments(
    cli: CommandLine, resources: Resources, stream: str
) -> None:
    workers = a_deployment("order-workers")
    env = [{"name": "REDIS_URL", "valueFrom": {"secretKeyRef": {"name": "redis", "key": "dsn"}}}]
    workers["spec"]["template"]["spec"]["containers"][0]["env"] = env
    resources.apply_raw(secret("redis", dsn="redis://redis:6379"), workers)
    given = ("--stream", stream, "--group", "g")
    adopted = cli("adopt", "deploy/order-workers", *given)
    assert "doubt  Secret redis has no key url, which Pelops reads (it has dsn)" in adopted.err
    assert cli("adopt", "deploy/order-workers", "--group", "g").code == 2
    assert cli("adopt", "job/order-workers", *given).code == 2
    assert cli("adopt", "deploy/nothing", *given).code == 3


def test_report_collects_everything_but_credentials_and_values(
    cli: CommandLine,
    viewer: CommandLine,
    resources: Resources,
    redis_86: StandaloneServers,
    stream: str,
    operator_pod: str,
    tmp_path: Path,
) -> None:
    workers = a_deployment("order-workers")
    workers["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "BANK_TOKEN", "value": "s3cret-1"}
    ]
    resources.apply_raw(secret("redis", password="s3cret-2"), workers)
    target = {"template": None, "replicas": None, "targetRef": {"name": "order-workers"}}
    resources.apply(NAME, a_spec(redis_86.url, stream, **target))
    patch(resources, "scg", NAME, {"metadata": {"annotations": {"a": "redis://u:s3cret-3@b"}}})
    wait_until(lambda: resources.condition(NAME), timeout_s=WAIT_S, what="a status")
    path = tmp_path / "report.zip"
    done = cli("report", NAME, "-f", str(path), "--operator-namespace", cli.namespace)
    assert done.code == 0, done.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # Nothing can be run in this pod, which no node runs: what needs that is named, and left out.
    left_out = [line for line in done.err.splitlines() if "not included" in line]
    assert all("does not have a host" in line for line in left_out), done.err
    with zipfile.ZipFile(path) as bundle:
        files = {name: bundle.read(name).decode() for name in bundle.namelist()}
    together = "\n".join(files.values())
    assert "s3cret" not in together
    assert {
        "README.txt",
        "version.yaml",
        "crds.yaml",
        "streamconsumergroups.yaml",
        f"groups/{cli.namespace}/{NAME}/status.txt",
        f"namespaces/{cli.namespace}/deployments.yaml",
        "operator/pods.yaml",
        f"operator/{operator_pod}.log",
        f"operator/{operator_pod}.metrics.txt",
    } <= set(files)
    for name, text in files.items():
        if name.endswith(".yaml"):
            assert yaml.safe_load(text), name
    assert f"{cli.namespace}/{NAME}   " in files[f"groups/{cli.namespace}/{NAME}/status.txt"]
    assert "BANK_TOKEN" in files[f"namespaces/{cli.namespace}/deployments.yaml"]
    assert "pelops_ready" in files[f"operator/{operator_pod}.metrics.txt"]
    assert f"operator/{operator_pod}.log\n" in files["README.txt"]
    own = viewer("report", NAME, "-f", str(tmp_path / "own.zip"))
    assert own.code == 0, own.err
    assert "not included: crds.yaml: " in own.err
    assert "not included: operator/pods.yaml: pods is forbidden" in own.err
    again = cli("report", NAME, "-f", str(path))
    assert (again.code, "exists already" in again.err) == (1, True)
    assert cli("report", "nothing", "-f", str(tmp_path / "no.zip")).code == 3
    assert not (tmp_path / "no.zip").exists()


def test_kubectl_runs_the_plugin_and_completes_it(
    cli: CommandLine, resources: Resources, tmp_path: Path, stream: str
) -> None:
    resources.apply(NAME, a_spec("redis://127.0.0.1:1", stream))
    for name, module in (("kubectl-pelops", "main"), ("kubectl_complete-pelops", "completion")):
        program = tmp_path / name
        program.write_text(
            f"#!{sys.executable}\nfrom pelops.cli.{module} import main\nmain()\n", encoding="utf-8"
        )
        program.chmod(0o755)
    environment = cli.environment
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"

    def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", *words], env=environment, capture_output=True, text=True, check=False
        )

    shown = kubectl("pelops", "status", "nothing", "-n", cli.namespace)
    assert (shown.returncode, shown.stderr) == (
        3,
        'pelops: streamconsumergroups.pelops.dev "nothing" not found\n',
    )
    assert "kubectl pelops COMMAND" in kubectl("pelops", "--help").stdout
    words = ("pelops", "status", "-n", cli.namespace, "")
    assert NAME in kubectl("__complete", *words).stdout.splitlines()
