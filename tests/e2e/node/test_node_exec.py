"""`kubectl exec` into a pod of the node stand-in."""

import pytest

from tests.e2e.node.pods import PATIENT, PodNamespace, build_pod

pytestmark = pytest.mark.full

ECHO = "import os, sys; print(os.environ['WHO'], sys.stdin.read()); print('no', file=sys.stderr)"


def test_a_command_runs_in_the_environment_of_the_container(pods: PodNamespace) -> None:
    pods.apply(build_pod("web", PATIENT, env=[{"name": "WHO", "value": "web's own"}]))
    pods.until_running("web")
    said = pods.kubectl("exec", "-i", "web", "--", "python", "-c", ECHO, stdin="and input")
    assert (said.stdout, said.stderr) == ("web's own and input\n", "no\n")
    silent = pods.kubectl("exec", "web", "--", "python", "-c", ECHO)
    assert silent.stdout == "web's own \n"


@pytest.mark.parametrize(
    ("command", "code", "reported"),
    [
        (["sh", "-c", "echo all; exit 7"], 7, "exit code 7"),
        (["no-such-program"], 1, "cannot start"),
    ],
)
def test_the_exit_code_of_a_command_is_that_of_kubectl(
    pods: PodNamespace, command: list[str], code: int, reported: str
) -> None:
    pods.apply(build_pod("web", PATIENT))
    pods.until_running("web")
    ended = pods.kubectl("exec", "web", "--", *command, check=False)
    assert ended.returncode == code
    assert reported in ended.stderr
    assert ended.stdout == ("all\n" if code == 7 else "")


def test_large_output_arrives_whole(pods: PodNamespace) -> None:
    pods.apply(build_pod("web", PATIENT))
    pods.until_running("web")
    said = pods.kubectl("exec", "web", "--", "python", "-c", "print('x' * 3_000_000)")
    assert len(said.stdout) == 3_000_001
