"""The command line as a user starts it, with kubectl on the PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cluster.kubectl import kubectl_environment
from local_cluster.plane import ControlPlane

TIMEOUT_S = 120.0
OPERATOR = Path(__file__).parents[2] / "operator"


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON that was printed."""
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """`pelops` in a process of its own, for one user."""

    plane: ControlPlane
    namespace: str
    kubeconfig: Path

    def __call__(self, *words: str, namespaced: bool = True, cwd: Path | None = None) -> Ended:
        """Run a command in the namespace of the test."""
        where = ("-n", self.namespace) if namespaced else ()
        done = subprocess.run(
            [sys.executable, "-m", "pelops.cli", *words, *where],
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the user's shell."""
        programs = f"{self.plane.kubectl_path.parent}{os.pathsep}{os.environ['PATH']}"
        ours = {"PATH": programs, "PYTHONPATH": str(OPERATOR), "PYTHONUTF8": "1"}
        return kubectl_environment(self.kubeconfig) | ours

    def as_user(self, user: str, *groups: str) -> CommandLine:
        """The command line of another user."""
        return CommandLine(self.plane, self.namespace, self.plane.kubeconfig_for(user, groups))
