"""Pods as the tests of the node see them: a namespace in their own words, and small manifests."""

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from tests.api_objects import read_object

Manifest = dict[str, Any]
WAIT_S = 180.0

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


CONTAINER_FIELDS = {
    "env",
    "envFrom",
    "volumeMounts",
    "livenessProbe",
    "readinessProbe",
    "lifecycle",
}


class PodNamespace:
    """One namespace, in the words of the tests."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane = plane
        self.name = name
        self.until(lambda: read_object(plane, name, "serviceaccount", "default"), "default account")

    def kubectl(self, *args: str, **options: Any) -> Any:
        return self.plane.kubectl("-n", self.name, *args, **options)

    def apply(self, *manifests: Manifest) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def get(self, kind: str, name: str) -> Manifest:
        found = read_object(self.plane, self.name, kind, name)
        assert found is not None, f"no {kind} {name}"
        return found

    def all(self, *selector: str) -> list[Manifest]:
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
