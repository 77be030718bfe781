"""A separate watch on pods: when did the API server first show that a process had ended?"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Mapping
from typing import Any

from local_cluster.plane import ControlPlane

Manifest = Mapping[str, Any]


class PodWatch:
    """Follows the pods of one namespace in a thread, which ends with this process."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._pods: dict[str, Manifest] = {}
        self._ends: dict[tuple[str, int], float] = {}
        self._changed = threading.Condition()
        self._broken: Exception | None = None
        threading.Thread(target=self._follow, name="pod-watch", daemon=True).start()

    def running(self) -> list[Manifest]:
        """The pods that run and are not being deleted, by name."""
        with self._changed:
            pods = [pod for pod in self._pods.values() if is_running(pod)]
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def find(self, uid: str) -> Manifest | None:
        """The pod as it was shown last; None when it is deleted."""
        with self._changed:
            return self._pods.get(uid)

    def await_end(self, uid: str, number: int, timeout_s: float) -> float:
        """When it was first shown that the pod's container had ended `number` times (Unix time).

        Raises TimeoutError.
        """
        with self._changed:
            known = self._changed.wait_for(
                lambda: self._broken is not None or (uid, number) in self._ends, timeout_s
            )
            if self._broken is not None:
                raise self._broken
            if not known:
                raise TimeoutError(f"the API server does not show the end of the pod {uid}")
            return self._ends[uid, number]

    def _follow(self) -> None:
        try:
            self._read(f"{self._plane.url}{self._path}?watch=1&timeoutSeconds=86400")
        except Exception as error:
            with self._changed:
                self._broken = error
                self._changed.notify_all()

    def _read(self, url: str) -> None:
        # No proxy: the environment's may claim loopback too.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._plane.tls)
        )
        with opener.open(url) as answer:
            for line in answer:
                seen = time.time()
                event = json.loads(line)
                self._note(event["type"], event["object"], seen)

    def _note(self, kind: str, pod: Manifest, seen: float) -> None:
        uid = pod["metadata"]["uid"]
        with self._changed:
            ends = ends_shown(pod, is_gone=kind == "DELETED")
            for number in range(1, ends + 1):
                self._ends.setdefault((uid, number), seen)
            if kind == "DELETED":
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod
            self._changed.notify_all()


def ends_shown(pod: Manifest, *, is_gone: bool = False) -> int:
    """How many ends of its only container a pod shows: every start but the last ended in one."""
    reports = pod.get("status", {}).get("containerStatuses") or [{}]
    restarts = int(reports[0].get("restartCount", 0))
    return restarts + (is_gone or "terminated" in reports[0].get("state", {}))


def is_running(pod: Manifest) -> bool:
    """Whether its container runs and its deletion was not requested."""
    reports = pod.get("status", {}).get("containerStatuses") or [{}]
    is_deleting = "deletionTimestamp" in pod["metadata"]
    return "running" in reports[0].get("state", {}) and not is_deleting


def pid_of(pod: Manifest) -> int:
    """The process of its only container; nodes of the local cluster say it in the ID."""
    container: str = pod["status"]["containerStatuses"][0]["containerID"]
    return int(container.removeprefix("process://").partition("-")[0])


def consumer_of(pod: Manifest) -> str:
    """The consumer name that the operator gives to workers."""
    return f"{pod['metadata']['name']}:{pod['metadata']['uid']}"
