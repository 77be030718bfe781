"""A kind cluster, for those who have Docker and asked for one."""

import shutil
import subprocess
from pathlib import Path

from local_cluster.errors import LocalClusterError
from local_cluster.processes import start_process
from local_cluster.progress import step

TIMEOUT_S = 900.0


def create_kind_cluster(name: str, kubeconfig: Path, log: Path) -> None:
    """Create a kind cluster and write its kubeconfig, to this file alone.

    Raises LocalClusterError when kind or Docker is missing, or creation fails.
    """
    kind = find_kind()
    # --kubeconfig: without it kind edits the user's own file and switches its current context.
    argv = [kind, "create", "cluster", "--name", name, "--kubeconfig", str(kubeconfig)]
    with step(f"creating the kind cluster {name}"):
        creation = start_process("kind", [*argv, "--wait", "180s"], log=log)
        try:
            ended = creation.ends_within(TIMEOUT_S)
        finally:
            creation.stop()
    if not ended or creation.exit_code:
        raise LocalClusterError(f"kind could not create {name}; it says:\n{creation.tail()}")


def delete_kind_cluster(name: str, kubeconfig: Path) -> None:
    """Delete it; nothing when there is none. Raises LocalClusterError."""
    argv = [find_kind(), "delete", "cluster", "--name", name, "--kubeconfig", str(kubeconfig)]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise LocalClusterError(f"kind could not delete {name}: {answer.stderr.strip()}")


def find_kind() -> str:
    """The kind program. Raises LocalClusterError when it, or a container engine, is not there."""
    kind = shutil.which("kind")
    if kind is None:
        raise LocalClusterError(
            "--kind needs the program kind (https://kind.sigs.k8s.io), which is not on PATH;"
            " without --kind the control plane is built from Go modules"
        )
    engine = next((name for name in ("docker", "podman", "nerdctl") if shutil.which(name)), None)
    if engine is None:
        raise LocalClusterError("--kind needs Docker (or podman), which is not on PATH")
    answer = subprocess.run([engine, "info"], capture_output=True, text=True, check=False)
    if answer.returncode:
        raise LocalClusterError(
            f"--kind needs a running {engine}, but `{engine} info` says: {answer.stderr.strip()}"
        )
    return kind
