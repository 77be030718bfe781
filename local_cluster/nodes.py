"""Nodes that run pods as processes: a handle for each, to fail, recover and stop it."""

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from local_cluster.errors import LocalClusterError
from local_cluster.plane import ControlPlane
from local_cluster.processes import Process, start_process, wait_until
from local_cluster.records import NODE_GRACE_S, NODE_PREFIX

READY_TIMEOUT_S = 120.0
PACKAGE_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a control plane, in a process of its own."""

    name: str
    process: Process
    plane: ControlPlane

    @classmethod
    def start(cls, plane: ControlPlane, name: str, state: Path, *, light: bool = False) -> "Node":
        """A node that is starting; `await_ready` says when it takes pods.

        `light`: its pods only turn Ready, no process is started.
        """
        # Every right, but a name of its own: the audit log shows which writes are the node's.
        kubeconfig = plane.kubeconfig_for(f"system:node:{name}", ["system:masters"])
        settings = ["--kubeconfig", str(kubeconfig), "--name", name, "--state", str(state)]
        process = start_process(
            name,
            [sys.executable, "-m", "local_cluster.node", *settings, *(["--light"] * light)],
            log=state.with_name(f"{name}.log"),
            cwd=PACKAGE_ROOT,
            detached=plane.detached,
        )
        return cls(name=name, process=process, plane=plane)

    def is_ready(self) -> bool:
        """Whether the API server has it as Ready; raises LocalClusterError when it has ended."""
        if not self.process.is_alive():
            raise LocalClusterError(f"{self.name} has ended; its log:\n{self.process.tail()}")
        try:
            node = json.loads(self.plane.get(f"/api/v1/nodes/{self.name}"))
        except OSError:
            return False
        conditions = node.get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def await_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return once it is Ready; TimeoutError after `timeout_s`."""
        wait_until(self.is_ready, timeout_s=timeout_s, what=f"{self.name} Ready")

    def fail(self) -> None:
        """Have it stop reporting; its pods run on, and it turns NotReady after 16 s and more."""
        self.process.send_to_leader(signal.SIGUSR1)

    def recover(self) -> None:
        """Have it report again."""
        self.process.send_to_leader(signal.SIGUSR2)

    def stop(self) -> None:
        """End its pods and then the node; the Node object stays. Nothing when it has ended."""
        self.process.stop(NODE_GRACE_S)


def start_nodes(
    plane: ControlPlane, count: int, directory: Path, *, light: bool = False
) -> Sequence[Node]:
    """Ready nodes, `node-1` and on. Raises when one does not get ready, and leaves none running."""
    nodes: list[Node] = []
    try:
        for number in range(1, count + 1):
            name = f"{NODE_PREFIX}{number}"
            nodes.append(Node.start(plane, name, directory / name, light=light))
        for node in nodes:
            node.await_ready()
    except BaseException:
        for node in nodes:
            node.process.kill()
        raise
    return nodes
