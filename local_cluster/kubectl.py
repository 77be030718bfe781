"""kubectl against a local cluster; the caller's own kubectl settings play no part."""

import os
import subprocess
from pathlib import Path

from local_cluster.errors import KubectlError


def run_kubectl(
    program: Path, kubeconfig: Path, *args: str, stdin: str | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """What kubectl says. With `check`, KubectlError is raised when it fails."""
    answer = subprocess.run(
        [str(program), *args],
        env=kubectl_environment(kubeconfig),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and answer.returncode:
        raise KubectlError(answer)
    return answer


def kubectl_environment(kubeconfig: Path) -> dict[str, str]:
    """The environment in which kubectl is to be started."""
    return os.environ | {
        "KUBECONFIG": str(kubeconfig),  # the flag would not reach plugins
        "KUBECACHEDIR": str(kubeconfig.parent / "kubectl-cache"),
        "KUBERC": "off",
    }
