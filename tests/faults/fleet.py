"""Operator replicas under test: killed and replaced, of a mutant if asked, behind a network."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Mapping
from pathlib import Path

import yaml

from local_cluster.plane import ControlPlane
from local_cluster.processes import Process
from tests.operators import GROUPS, SERVICE_ACCOUNT, Operators

REPLICAS = 3


class Fleet:
    """The replicas of one operator. Safe from several threads."""

    def __init__(
        self,
        plane: ControlPlane,
        directory: Path,
        *,
        api_port: int | None = None,
        namespace: str,
        environment: Mapping[str, str],
    ) -> None:
        self._operators = Operators(
            plane,
            directory,
            environment={
                "PELOPS_NAMESPACE": namespace,
                "PELOPS_OBSERVE_INTERVAL": "1",
                "PELOPS_STATUS_INTERVAL": "2",
                **environment,
            },
        )
        self._kubeconfig = _behind(plane, directory, api_port)
        self._lock = threading.Lock()
        self.replicas: list[Process] = []

    def start(self, **environment: str) -> None:
        """Start all, with variables of their own, and wait until they are ready."""
        self.replicas += self._operators.start(
            REPLICAS, kubeconfig=self._kubeconfig, wait=True, **environment
        )

    def kill(self, dice: random.Random, count: int) -> None:
        """SIGKILL some."""
        with self._lock:
            alive = [one for one in self.replicas if one.is_alive()]
            for victim in dice.sample(alive, min(count, len(alive))):
                victim.kill()
                self.replicas.remove(victim)

    def replace(self, **environment: str) -> None:
        """Start as many as are missing, with variables of their own."""
        with self._lock:
            self.replicas = [one for one in self.replicas if one.is_alive()]
            missing = REPLICAS - len(self.replicas)
            self.replicas += self._operators.start(
                missing, kubeconfig=self._kubeconfig, wait=False, **environment
            )

    def roll(self, environment: Mapping[str, str]) -> None:
        """Replace the oldest by one with these variables, which is ready before that one ends."""
        with self._lock:
            oldest = self.replicas.pop(0)
            self.replicas += self._operators.start(
                1, kubeconfig=self._kubeconfig, wait=True, **environment
            )
            oldest.stop()

    def stop(self) -> None:
        """End all at once."""
        for process in self._operators.processes:
            process.kill()


def _behind(plane: ControlPlane, directory: Path, port: int | None) -> Path:
    """The operator's kubeconfig, with the API server behind this port of a proxy."""
    original = plane.kubeconfig_for(SERVICE_ACCOUNT, GROUPS)
    if port is None:
        return original
    config = yaml.safe_load(original.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = directory / "operator.kubeconfig"
    directory.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path
