"""Operator replicas as processes, with the rights that the manifests give them and no others."""

from __future__ import annotations

import functools
import os
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from local_cluster.plane import ControlPlane
from local_cluster.processes import Process, free_port, start_process, wait_until

ROOT = Path(__file__).parent.parent
SERVICE_ACCOUNT = "system:serviceaccount:pelops-system:pelops-operator"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:pelops-system", "system:authenticated")
RIGHTS = (
    *("namespace", "service_account", "cluster_role", "member_role", "node_clock_role"),
    "user_roles",
)
TIMEOUT_S = 60.0
PROBE_S = 2.0  # what a kubelet would wait for
ANSWER_S = 30.0  # what an operator that works may take while the machine is blocked
# Redis runs on this machine, where an installation on a cluster allows none.
ALLOWED_NETWORKS = "routable,127.0.0.0/8,::1/128"


def install(plane: ControlPlane) -> None:
    """The CRDs, the policies, the namespace and the rights of the operator, not its Deployment."""
    plane.kubectl("apply", "--server-side", "-k", str(ROOT / "crds"))
    for name in RIGHTS:
        plane.kubectl("apply", "-f", str(ROOT / "manifests" / "base" / f"{name}.yaml"))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    plane.kubectl("apply", "-k", str(ROOT / "manifests" / "admission"))


class Operators:
    """Operator replicas as processes. They may do what the manifests allow, nothing more."""

    def __init__(
        self, plane: ControlPlane, directory: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._plane = plane
        self._directory = directory
        self._environment = dict(environment or {})
        self.processes: list[Process] = []
        self.ports: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(
        self, replicas: int = 1, *, kubeconfig: Path | None = None, wait: bool = True, **extra: str
    ) -> list[Process]:
        """Start replicas, and by default wait until they are ready."""
        config = kubeconfig or self._plane.kubeconfig_for(SERVICE_ACCOUNT, GROUPS)
        started = [self._start_one(config, extra) for _ in range(replicas)]
        if wait:
            for process, port in zip(started, self.ports[-replicas:], strict=True):
                wait_until(
                    functools.partial(is_ready, port),
                    timeout_s=TIMEOUT_S,
                    what=f"the operator to be ready:\n{process.tail()}",
                )
        return started

    def stop(self) -> None:
        """End all replicas by SIGTERM."""
        for process in self.processes:
            process.stop()
        self.processes.clear()

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(process.tail(60) for process in self.processes)

    def _start_one(self, config: Path, extra: Mapping[str, str]) -> Process:
        number, port = len(self.ports), free_port()
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PELOPS_")},
            "PYTHONPATH": str(ROOT / "operator"),
            "PELOPS_LOG_FORMAT": "console",
            "PELOPS_ALLOWED_NETWORKS": ALLOWED_NETWORKS,
            "PELOPS_IDENTITY": f"replica-{os.getpid()}-{port}",
            **self._environment,
            **extra,
        }
        process = start_process(
            f"operator-{number}",
            [
                *(sys.executable, "-m", "pelops.controller"),
                *("--kubeconfig", str(config), "--http-port", str(port)),
            ],
            log=self._directory / f"operator-{number}.log",
            env=environment,
            cwd=ROOT,
        )
        self.processes.append(process)
        self.ports.append(port)
        return process


def is_ready(port: int, *, within_s: float = PROBE_S) -> bool:
    """Whether the operator on this port says in time that it is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=within_s) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def metrics(port: int, *names: str) -> str:
    """The metrics of the operator on this port, as Prometheus would read them, or some of them."""
    query = urllib.parse.urlencode([("name[]", name) for name in names])
    url = f"http://127.0.0.1:{port}/metrics?{query}"
    with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
        return str(answer.read().decode())
