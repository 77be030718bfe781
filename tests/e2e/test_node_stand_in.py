"""The node stand-in beside a real control plane: pods are processes, told of truthfully."""

import json
import os
import signal
import textwrap
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from local_cluster.nodes import Node
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until

Manifest = dict[str, Any]
WAIT_S = 60.0

# Says what it got, then waits; ends in its own time when asked to.
PATIENT = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(0)))
print(json.dumps({"env": dict(os.environ), "argv": sys.argv[1:]}), flush=True)
while True:
    time.sleep(60)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane.start(tmp_path_factory.mktemp("plane"))
    yield plane
    plane.stop()


@pytest.fixture(scope="module")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node.start(plane, "processes", tmp_path_factory.mktemp("node") / "state")
    node.await_ready()
    yield node
    node.stop()


@pytest.fixture
def extra_node(plane: ControlPlane, tmp_path: Path) -> Iterator[Node]:
    """A node of the test's own, which it may fail and kill; takes only the pods that name it."""
    node = Node.start(plane, f"own-{os.urandom(3).hex()}", tmp_path / "state")
    node.await_ready()
    plane.kubectl("cordon", node.name)
    yield node
    node.stop()
    plane.kubectl("delete", "node", node.name)


@pytest.fixture
def cluster(plane: ControlPlane, node: Node) -> Iterator["Namespace"]:
    """A namespace of the test's own on a control plane with a ready node."""
    namespace = Namespace(plane, f"t-{os.urandom(4).hex()}")
    yield namespace
    plane.kubectl("delete", "namespace", namespace.name, "--wait=false")


class Namespace:
    """One namespace, in the words of the tests."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane = plane
        self.name = name
        plane.kubectl("create", "namespace", name)
        account = ["get", "serviceaccount", "default"]
        self.until(lambda: self.kubectl(*account, check=False).returncode == 0, "default account")

    def kubectl(self, *args: str, **options: Any) -> Any:
        return self.plane.kubectl("-n", self.name, *args, **options)

    def apply(self, *manifests: Manifest) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def get(self, kind: str, name: str) -> Manifest:
        found: Manifest = json.loads(self.kubectl("get", kind, name, "-o", "json").stdout)
        return found

    def pods(self, *selector: str) -> list[Manifest]:
        listed = json.loads(self.kubectl("get", "pods", "-o", "json", *selector).stdout)
        items: list[Manifest] = listed["items"]
        return items

    def container(self, pod: str) -> Manifest:
        statuses = self.get("pod", pod).get("status", {}).get("containerStatuses")
        return statuses[0] if statuses else {"state": {}, "restartCount": 0}

    def logs(self, pod: str, *options: str) -> str:
        return str(self.kubectl("logs", pod, *options, check=False).stdout)

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        return wait_until(condition, timeout_s=WAIT_S, what=what, every_s=0.2)

    def until_running(self, pod: str) -> Manifest:
        self.until(lambda: "running" in self.container(pod)["state"], f"{pod} running")
        return self.container(pod)

    def until_said(self, pod: str, word: str = "\n") -> str:
        self.until(lambda: word in self.logs(pod), f"{pod} saying {word!r}")
        return self.logs(pod)

    def until_phase(self, pod: str, phase: str) -> Manifest:
        self.until(lambda: self.get("pod", pod)["status"]["phase"] == phase, f"{pod} {phase}")
        return self.get("pod", pod)


def build_pod(name: str, program: str, *, args: tuple[str, ...] = (), **spec: Any) -> Manifest:
    container = {key: spec.pop(key) for key in list(spec) if key in CONTAINER_FIELDS}
    container |= {"name": "main", "image": "none", "args": list(args)}
    container["command"] = ["python", "-c", textwrap.dedent(program)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 5, "containers": [container]} | spec,
    }


CONTAINER_FIELDS = {
    "env",
    "envFrom",
    "volumeMounts",
    "livenessProbe",
    "readinessProbe",
    "lifecycle",
}


def build_secret(name: str, **content: str) -> Manifest:
    meta = {"name": name}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": content}


def pid_of(container: Manifest) -> int:
    return int(container["containerID"].removeprefix("process://").split("-")[0])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_pods_get_the_environment_and_volumes_they_ask_for(cluster: Namespace) -> None:
    env = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "CONSUMER", "value": "$(POD_NAME):$(POD_UID) $$(POD_NAME) $(NOPE)"},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
        {"name": "CA_FILE", "value": "/etc/redis/ca.crt"},
    ]
    mounts = [{"name": "redis", "mountPath": "/etc/redis"}]
    volumes = [{"name": "redis", "secret": {"secretName": "redis"}}]
    cluster.apply(build_secret("redis", **{"password": "p w", "ca.crt": "CERT"}))
    template = build_pod(
        "x", PATIENT, args=("$(POD_NAME)",), env=env, volumeMounts=mounts, volumes=volumes
    )
    labels = {"app": "web"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }
    cluster.apply(deployment)
    cluster.kubectl("rollout", "status", "deployment/web", f"--timeout={WAIT_S:.0f}s")

    pods = cluster.pods("-l", "app=web")
    assert len({pod["status"]["podIP"] for pod in pods}) == 3
    for pod in pods:
        meta = pod["metadata"]
        said = json.loads(cluster.until_said(meta["name"]))
        assert said["argv"] == [meta["name"]]
        assert said["env"]["CONSUMER"] == f"{meta['name']}:{meta['uid']} $(POD_NAME) $(NOPE)"
        assert said["env"]["PASSWORD"] == "p w"
        ca_file = Path(said["env"]["CA_FILE"])
        assert ca_file.read_text() == "CERT"
        assert ca_file.stat().st_mode & 0o777 == 0o600
        assert "VIRTUAL_ENV" not in said["env"]
        assert "PYTHONPATH" not in said["env"]


def test_a_changed_secret_reaches_the_volume(cluster: Namespace) -> None:
    mounts = [{"name": "token", "mountPath": "/token"}]
    volumes = [{"name": "token", "secret": {"secretName": "token"}}]
    cluster.apply(build_secret("token", a="old", b="kept"))
    env = [{"name": "DIR", "value": "/token"}]
    cluster.apply(build_pod("reader", PATIENT, env=env, volumeMounts=mounts, volumes=volumes))
    cluster.until_running("reader")
    directory = Path(json.loads(cluster.until_said("reader"))["env"]["DIR"])
    assert (directory / "a").read_text() == "old"

    cluster.apply(build_secret("token", a="new", b="kept"))
    cluster.until(lambda: (directory / "a").read_text() == "new", "the new content")
    assert (directory / "b").read_text() == "kept"


def test_a_missing_secret_is_waited_for_and_named(cluster: Namespace) -> None:
    ref = {"secretKeyRef": {"name": "later", "key": "password"}}
    cluster.apply(build_pod("waits", PATIENT, env=[{"name": "PASSWORD", "valueFrom": ref}]))

    cluster.until(lambda: "message" in cluster.container("waits")["state"].get("waiting", {}), "it")
    waiting = cluster.container("waits")["state"]["waiting"]
    assert waiting == {
        "reason": "CreateContainerConfigError",
        "message": 'secret "later" not found',
    }
    assert cluster.get("pod", "waits")["status"]["phase"] == "Pending"

    cluster.apply(build_secret("later", password="x"))
    assert cluster.until_running("waits")["restartCount"] == 0


def test_a_container_that_cannot_start_says_why(cluster: Namespace) -> None:
    no_command = build_pod("image-only", PATIENT)
    del no_command["spec"]["containers"][0]["command"]
    no_program = build_pod("no-program", PATIENT)
    no_program["spec"]["containers"][0]["command"] = ["/does/not/exist"]
    cluster.apply(no_command, no_program)

    def reason(pod: str) -> Any:
        return cluster.container(pod)["state"].get("waiting", {}).get("reason")

    cluster.until(lambda: reason("image-only") == "ImageHasNoCommand", "ImageHasNoCommand")
    cluster.until(lambda: reason("no-program") == "RunContainerError", "RunContainerError")
    ended = cluster.container("no-program")["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 127)
    assert "/does/not/exist" in ended["message"]


def test_a_deleted_pod_ends_in_its_own_time_and_is_gone_afterwards(cluster: Namespace) -> None:
    cluster.apply(build_pod("patient", PATIENT))
    pid = pid_of(cluster.until_running("patient"))
    cluster.until_said("patient")
    cluster.kubectl("delete", "pod", "patient", "--wait=true")
    assert not is_alive(pid)


def test_a_pod_that_ignores_its_end_is_killed_after_its_grace(cluster: Namespace) -> None:
    cluster.apply(build_pod("stubborn", STUBBORN, terminationGracePeriodSeconds=2))
    pid = pid_of(cluster.until_running("stubborn"))
    cluster.until_said("stubborn")
    cluster.kubectl("delete", "pod", "stubborn", "--wait=false")
    assert is_alive(pid)
    gone = ["get", "pod", "stubborn", "--ignore-not-found", "-o", "name"]
    cluster.until(lambda: not cluster.kubectl(*gone).stdout, "the pod's removal")
    assert not is_alive(pid)


def test_a_pod_deleted_by_force_still_loses_its_process(cluster: Namespace) -> None:
    cluster.apply(build_pod("forced", STUBBORN, terminationGracePeriodSeconds=2))
    pid = pid_of(cluster.until_running("forced"))
    cluster.until_said("forced")
    cluster.kubectl("delete", "pod", "forced", "--force", "--grace-period=0")
    cluster.until(lambda: not is_alive(pid), "the end of its process")


def test_a_prestop_hook_runs_before_the_process_is_asked_to_end(
    cluster: Namespace, tmp_path: Path
) -> None:
    order = tmp_path / "order"
    program = f"""
    import signal, sys, time
    def end(*_):
        open({str(order)!r}, "a").write("asked ")
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    print("up", flush=True)
    time.sleep(600)
    """
    hook = {"exec": {"command": ["sh", "-c", f"printf 'hook ' >> {order}"]}}
    cluster.apply(build_pod("hooked", program, lifecycle={"preStop": hook}))
    cluster.until_said("hooked")
    cluster.kubectl("delete", "pod", "hooked", "--wait=true")
    assert order.read_text() == "hook asked "


def test_a_killed_process_is_started_again_with_a_new_start_time(cluster: Namespace) -> None:
    cluster.apply(build_pod("killed", PATIENT))
    before = cluster.until_running("killed")
    cluster.until_said("killed")
    second = timedelta(seconds=1)
    killed_at = datetime.now(UTC)
    os.kill(pid_of(before), signal.SIGKILL)

    cluster.until(lambda: cluster.container("killed")["restartCount"] == 1, "the restart")
    after = cluster.until_running("killed")
    ended = after["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "Error")
    assert ended["containerID"] == before["containerID"] != after["containerID"]
    finished_at = datetime.fromisoformat(ended["finishedAt"])
    started_at = datetime.fromisoformat(after["state"]["running"]["startedAt"])
    assert killed_at - second <= finished_at <= started_at <= datetime.now(UTC)
    assert ended["startedAt"] == before["state"]["running"]["startedAt"]
    cluster.until_said("killed", "argv")
    assert "argv" in cluster.logs("killed", "--previous")


def test_what_a_container_left_behind_ends_with_it(cluster: Namespace) -> None:
    program = """
    import subprocess, time
    inside = subprocess.Popen(["sleep", "600"])
    escaped = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(inside.pid, escaped.pid, flush=True)
    time.sleep(600)
    """
    cluster.apply(build_pod("parent", program))
    container = cluster.until_running("parent")
    children = [int(pid) for pid in cluster.until_said("parent").split()]
    assert all(map(is_alive, children))
    os.kill(pid_of(container), signal.SIGKILL)
    cluster.until(lambda: not any(map(is_alive, children)), "the end of its children")


def test_a_crash_loop_backs_off_and_keeps_each_end(cluster: Namespace) -> None:
    cluster.apply(build_pod("crashes", "print('once more'); raise SystemExit(3)"))

    def is_backing_off() -> bool:
        container = cluster.container("crashes")
        waiting = container["state"].get("waiting", {})
        return bool(waiting.get("reason") == "CrashLoopBackOff" and container["restartCount"] >= 2)

    cluster.until(is_backing_off, "the back-off")
    container = cluster.container("crashes")
    assert container["lastState"]["terminated"]["exitCode"] == 3
    assert cluster.get("pod", "crashes")["status"]["phase"] == "Running"
    assert cluster.logs("crashes") == "once more\n"
    cluster.kubectl("delete", "pod", "crashes", "--wait=true")


def test_jobs_complete_and_failures_are_retried_in_new_pods(cluster: Namespace) -> None:
    def build_job(name: str, program: str) -> Manifest:
        spec = build_pod(name, program, restartPolicy="Never")["spec"]
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "template": {"spec": spec}},
        }

    cluster.apply(build_job("good", "print('done')"), build_job("bad", "raise SystemExit(9)"))
    wait = f"--timeout={WAIT_S:.0f}s"
    cluster.kubectl("wait", "--for=condition=Complete", "job/good", wait)
    cluster.kubectl("wait", "--for=condition=Failed", "job/bad", wait)
    (bad,) = cluster.pods("-l", "job-name=bad")
    assert bad["status"]["phase"] == "Failed"
    assert bad["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 9
    assert cluster.logs(f"job/{'good'}") == "done\n"


def test_a_pod_past_its_deadline_fails(cluster: Namespace) -> None:
    cluster.apply(build_pod("late", PATIENT, activeDeadlineSeconds=2))
    pod = cluster.until_phase("late", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert "terminated" in pod["status"]["containerStatuses"][0]["state"]


def test_init_containers_run_in_order_and_sidecars_beside(
    cluster: Namespace, tmp_path: Path
) -> None:
    order = tmp_path / "order"

    def build(name: str, then: str = "", **more: Any) -> Manifest:
        note = f"printf '{name} ' >> {order}; {then}"
        return {"name": name, "image": "none", "command": ["sh", "-c", note]} | more

    pod = build_pod("staged", "", restartPolicy="Never")
    pod["spec"]["initContainers"] = [
        build("first"),
        build("sidecar", "exec sleep 600", restartPolicy="Always"),
        build("second", f"until grep -q sidecar {order}; do sleep 0.1; done"),
    ]
    pod["spec"]["containers"] = [build("main")]
    cluster.apply(pod)
    status = cluster.until_phase("staged", "Succeeded")["status"]
    words = order.read_text().split()
    assert (words[0], words[-1]) == ("first", "main")
    assert set(words) == {"first", "sidecar", "second", "main"}
    assert all("terminated" in one["state"] for one in status["initContainerStatuses"])


def test_probes_decide_readiness_and_restart(cluster: Namespace, tmp_path: Path) -> None:
    ready, alive = tmp_path / "ready", tmp_path / "alive"
    program = """
    import http.server, os
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if os.path.exists(self.path) else 503)
            self.end_headers()
    http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8080), Answer).serve_forever()
    """
    env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]

    def build_probe(path: Path) -> Manifest:
        get = {"port": 8080, "path": str(path)}
        return {"httpGet": get, "periodSeconds": 1, "timeoutSeconds": 5}

    alive.touch()
    pod = build_pod(
        "probed",
        program,
        env=env,
        livenessProbe=build_probe(alive),
        readinessProbe=build_probe(ready),
    )
    cluster.apply(pod)
    cluster.until_running("probed")
    assert not cluster.container("probed")["ready"]
    ready.touch()
    cluster.until(lambda: cluster.container("probed")["ready"], "readiness")
    restarts = cluster.container("probed")["restartCount"]
    alive.unlink()
    cluster.until(lambda: cluster.container("probed")["restartCount"] > restarts, "the restart")


def test_a_service_account_can_do_what_its_role_says_and_no_more(cluster: Namespace) -> None:
    program = """
    import json, os, ssl, urllib.error, urllib.request
    config = json.load(open(os.environ["KUBECONFIG"]))
    server = config["clusters"][0]["cluster"]
    token = open(config["users"][0]["user"]["tokenFile"]).read()
    assert token == config["users"][0]["user"]["token"]
    namespace = config["contexts"][0]["context"]["namespace"]
    def ask(method, what):
        url = f"{server['server']}/api/v1/namespaces/{namespace}/{what}"
        headers = {"Authorization": "Bearer " + token}
        request = urllib.request.Request(url, method=method, headers=headers)
        tls = ssl.create_default_context(cafile=server["certificate-authority"])
        try:
            return urllib.request.urlopen(request, context=tls).status
        except urllib.error.HTTPError as error:
            return error.code
    wishes = [("GET", "configmaps"), ("DELETE", "configmaps/kube-root-ca.crt"), ("GET", "secrets")]
    print(*(ask(*wish) for wish in wishes))
    """
    cluster.kubectl("create", "serviceaccount", "reader")
    cluster.kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
    account = f"--serviceaccount={cluster.name}:reader"
    cluster.kubectl("create", "rolebinding", "reader", "--role=reader", account)
    pod = build_pod("asks", program, serviceAccountName="reader", restartPolicy="Never")
    cluster.apply(pod)
    cluster.until_phase("asks", "Succeeded")
    assert cluster.logs("asks") == "200 403 403\n"

    without = build_pod("mute", PATIENT, automountServiceAccountToken=False)
    cluster.apply(without)
    cluster.until_running("mute")
    assert "KUBECONFIG" not in json.loads(cluster.until_said("mute"))["env"]


def test_logs_can_be_followed_and_cut(cluster: Namespace) -> None:
    program = "import time\nfor n in range(5):\n    print(n, flush=True); time.sleep(0.2)"
    cluster.apply(build_pod("counts", program, restartPolicy="Never"))
    cluster.until_said("counts")
    assert cluster.logs("counts", "--follow").split() == list("01234")
    assert cluster.logs("counts", "--tail=2").split() == ["3", "4"]
    assert cluster.logs("counts", "--limit-bytes=3") == "0\n1"


def test_a_failed_node_keeps_its_processes_and_recovers(
    cluster: Namespace, extra_node: Node
) -> None:
    names = ("stays", "restarts")
    ref = {"secretKeyRef": {"name": "redis", "key": "password"}}
    cluster.apply(build_secret("redis", password="x"))
    env = [{"name": "PASSWORD", "valueFrom": ref}]
    cluster.apply(*(build_pod(one, PATIENT, env=env, nodeName=extra_node.name) for one in names))
    stays, restarts = (cluster.until_running(one) for one in names)
    extra_node.fail()
    os.kill(pid_of(restarts), signal.SIGKILL)
    cluster.until(lambda: not extra_node.is_ready(), "NotReady")
    noticed_at = datetime.now(UTC)
    assert is_alive(pid_of(stays))
    assert cluster.container("restarts") == restarts

    cluster.until(lambda: not any(is_ready(pod) for pod in cluster.pods()), "no pod shown as ready")
    extra_node.recover()
    extra_node.await_ready()
    cluster.until(lambda: all(is_ready(pod) for pod in cluster.pods()), "both pods ready again")
    assert cluster.container("stays")["containerID"] == stays["containerID"]
    # What happened meanwhile is told with its own time, not with that of the recovery.
    after = cluster.container("restarts")
    assert after["restartCount"] == 1
    assert datetime.fromisoformat(after["state"]["running"]["startedAt"]) < noticed_at


def test_an_end_while_the_api_server_is_away_is_told_later(
    plane: ControlPlane, cluster: Namespace
) -> None:
    cluster.apply(build_pod("outage", PATIENT), build_pod("calm", PATIENT))
    before, calm = cluster.until_running("outage"), cluster.until_running("calm")
    plane.process("kube-apiserver").kill()
    os.kill(pid_of(before), signal.SIGKILL)
    plane.restart("kube-apiserver")
    cluster.until(lambda: cluster.container("outage")["restartCount"] == 1, "the restart")
    assert cluster.until_running("outage")["lastState"]["terminated"]["exitCode"] == 137
    assert cluster.container("calm")["containerID"] == calm["containerID"]


def test_a_killed_node_takes_all_processes_along_and_resumes(
    cluster: Namespace, extra_node: Node, tmp_path: Path
) -> None:
    program = """
    import subprocess, time
    print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
    time.sleep(600)
    """
    cluster.apply(
        build_pod("again", program, nodeName=extra_node.name),
        build_pod("once", program, nodeName=extra_node.name, restartPolicy="Never"),
    )
    pids = [pid_of(cluster.until_running(name)) for name in ("again", "once")]
    pids += [int(cluster.until_said(name)) for name in ("again", "once")]
    extra_node.process.kill()
    cluster.until(lambda: not any(map(is_alive, pids)), "the end of its processes")

    restarted = Node.start(extra_node.plane, extra_node.name, tmp_path / "state")
    try:
        cluster.until(lambda: cluster.container("again")["restartCount"] == 1, "the restart")
        ended = cluster.until_running("again")["lastState"]["terminated"]
        assert (ended["reason"], ended["exitCode"]) == ("ContainerStatusUnknown", 137)
        assert cluster.until_phase("once", "Failed")["status"]["containerStatuses"]
        pid = pid_of(cluster.until_running("again"))
    finally:
        restarted.stop()
    assert restarted.process.exit_code == 0
    assert not is_alive(pid)


def test_pods_of_two_nodes_never_share_an_address(cluster: Namespace, extra_node: Node) -> None:
    for number in range(3):
        cluster.apply(
            build_pod(f"here-{number}", PATIENT),
            build_pod(f"there-{number}", PATIENT, nodeName=extra_node.name),
        )
    names = [pod["metadata"]["name"] for pod in cluster.pods()]
    for name in names:
        cluster.until_running(name)
    assert len({pod["status"]["podIP"] for pod in cluster.pods()}) == len(names) == 6


def test_a_light_node_makes_hundreds_of_pods_ready(plane: ControlPlane, tmp_path: Path) -> None:
    namespace = Namespace(plane, f"t-{os.urandom(4).hex()}")
    light = Node.start(plane, f"light-{os.urandom(3).hex()}", tmp_path / "state", light=True)
    try:
        light.await_ready()
        labels = {"app": "many"}
        chosen = {"kubernetes.io/hostname": light.name}
        template = build_pod("x", PATIENT, nodeSelector=chosen)
        spec = {
            "replicas": 500,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        }
        meta = {"name": "many"}
        namespace.apply(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
        )
        ready = lambda: namespace.get("deployment", "many")["status"].get("readyReplicas") == 500  # noqa: E731
        wait_until(ready, timeout_s=200, what="500 ready pods", every_s=0.5)
        assert len({pod["status"]["podIP"] for pod in namespace.pods()}) == 500
        namespace.kubectl("scale", "deployment/many", "--replicas=0")
        wait_until(lambda: not namespace.pods(), timeout_s=200, what="no pods", every_s=0.5)
    finally:
        light.stop()
        plane.kubectl("delete", "namespace", namespace.name, "--wait=false")
        plane.kubectl("delete", "node", light.name)
