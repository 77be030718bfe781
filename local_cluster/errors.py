"""The errors that this package raises on its own account."""

import subprocess


class LocalClusterError(Exception):
    """The cluster cannot do what was asked; the message says why, and what a person can do."""


class KubectlError(LocalClusterError):
    """kubectl ended with another code than 0."""

    def __init__(self, answer: subprocess.CompletedProcess[str]) -> None:
        arguments = " ".join(answer.args[1:])
        super().__init__(
            f"`kubectl {arguments}` gives {answer.returncode}: {answer.stderr.strip()}"
        )
        self.answer = answer
