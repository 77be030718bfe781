"""Pods of a group's workers, and how they end."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from tests.e2e.declaring import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A running pod of a group's workers."""

    name: str
    uid: str
    pid: int  # of its container's process
    restarts: int

    @property
    def consumer(self) -> str:
        """The name that the operator injects."""
        return f"{self.name}:{self.uid}"

    def crash(self) -> None:
        """End its process as the kernel would; its node starts another one in the same pod."""
        os.kill(self.pid, signal.SIGKILL)


def read_pod(manifest: Object, container: str) -> Pod | None:
    """The pod if its container runs; None while it comes or goes."""
    metadata = manifest["metadata"]
    statuses = manifest.get("status", {}).get("containerStatuses") or ()
    running = [s for s in statuses if s["name"] == container and "running" in s.get("state", {})]
    if "deletionTimestamp" in metadata or not running:
        return None
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        pid=int(running[0]["containerID"].removeprefix("process://").split("-")[0]),
        restarts=running[0]["restartCount"],
    )
