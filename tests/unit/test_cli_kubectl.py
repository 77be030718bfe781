"""What the command line makes of the answers of kubectl."""

from __future__ import annotations

import json
import threading
from argparse import Namespace
from pathlib import Path

import pytest

from pelops.cli.console import Console
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.kubectl import Container, Kubectl, KubectlFailed, explain_failure, run_together
from tests.unit.conftest import Install

NOT_REACHED = "the API server cannot be reached: "
NO_CONTEXT = "kubectl has no current context: choose one with --context, or set KUBECONFIG"
CONTEXTS = "kubectl config get-contexts"
REFUSED = "was refused - did you specify"


@pytest.mark.parametrize(
    ("errors", "reason", "code", "words"),
    [
        ('Error from server (NotFound): scg.pelops.dev "x" not found', "NotFound", 3, "x"),
        ("Error from server (Forbidden): User cannot list", "Forbidden", 3, "User cannot list"),
        ("Error from server (Conflict): was modified", "Conflict", 1, "was modified"),
        (
            'error: the server doesn\'t have a resource type "streamredrives"',
            "NoSuchKind",
            3,
            "install the CustomResourceDefinitions",
        ),
        (f"The connection to the server 10.0.0.1:6443 {REFUSED}", "Unreachable", 1, NOT_REACHED),
        (f"The connection to the server localhost:8080 {REFUSED}", "Failed", 2, NO_CONTEXT),
        ("error: current-context must exist in order to minify", "Failed", 2, NO_CONTEXT),
        (
            "Error in configuration: context was not found for specified context: nope",
            "Failed",
            2,
            f"context was not found for specified context: nope. See `{CONTEXTS}`",
        ),
        ("error: cannot locate context nope", "Failed", 2, CONTEXTS),
        ('error: context "nope" does not exist', "Failed", 2, CONTEXTS),
        (
            'error: error loading config file "/etc/passwd": couldn\'t get version/kind',
            "Failed",
            2,
            CONTEXTS,
        ),
        ("Unable to connect to the server: dial tcp: no such host", "Unreachable", 1, NOT_REACHED),
        (
            "Unable to connect to the server: context deadline exceeded (Client.Timeout exceeded)",
            "Unreachable",
            124,
            "did not answer in time",
        ),
        (
            "error: You must be logged in to the server (Unauthorized)",
            "Unauthorized",
            3,
            "does not accept your credentials",
        ),
        ("E0504 03:02:01.123456 7 a.go:265] noise\nerror: other", "Failed", 1, "other"),
        ("", "Failed", 1, "kubectl failed"),
    ],
)
def test_a_failure_of_kubectl_is_a_sentence_and_an_exit_code(
    errors: str, reason: str, code: int, words: str
) -> None:
    failure = explain_failure(errors)
    assert (failure.reason, failure.code) == (reason, code)
    assert words in str(failure)
    assert "\n" not in str(failure)
    assert "E0504" not in str(failure) and "Error from server" not in str(failure)


def test_a_kubeconfig_that_does_not_exist_is_a_wrong_flag(tmp_path: Path) -> None:
    given = Namespace(kubeconfig=str(tmp_path / "nothing"))
    with pytest.raises(
        CommandFailed, match=r"--kubeconfig .*/nothing: there is no such file"
    ) as no:
        Kubectl.of(given, Console())
    assert no.value.code == ExitCode.USAGE


@pytest.fixture
def program(tmp_path: Path, install: Install) -> Path:
    """A kubectl that writes down its arguments and answers with the file `answer`."""
    install(
        "kubectl",
        f"printf '%s\\n' \"$@\" >{tmp_path}/words\n"
        f"cat {tmp_path}/answer\ncat {tmp_path}/errors >&2\nexit $(cat {tmp_path}/code)\n",
    )
    for name, text in (("answer", "{}"), ("errors", ""), ("code", "0")):
        (tmp_path / name).write_text(text)
    return tmp_path


def words_of(program: Path) -> list[str]:
    return (program / "words").read_text().splitlines()


def test_the_flags_of_the_command_line_are_passed_on(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (program / "k").touch()
    given = Namespace(namespace="shop", context="c", kubeconfig=str(program / "k"), verbose=True)
    kubectl = Kubectl.of(given, Console())
    kubectl.get("pods", "web-0")
    words = words_of(program)
    assert words[0] == "get"
    assert {"--context=c", f"--kubeconfig={program}/k", "--namespace=shop"} <= set(words)
    assert capsys.readouterr().err.startswith("kubectl get ")
    kubectl.get("pods", "web-0", namespace="other")
    assert "--namespace=other" in words_of(program)
    (program / "answer").write_text('{"items": []}')
    kubectl.list_objects("pods", all_namespaces=True, selector="app=web")
    assert {"--all-namespaces", "--selector=app=web"} <= set(words_of(program))
    assert "--namespace=shop" not in words_of(program)


def test_the_namespace_is_that_of_the_context_else_default(program: Path) -> None:
    (program / "answer").write_text("billing")
    assert Kubectl().namespace == "billing"
    (program / "answer").write_text("")
    assert Kubectl().namespace == "default"
    assert Kubectl(namespace="shop").namespace == "shop"


def test_warnings_of_the_server_are_passed_on(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (program / "errors").write_text("Warning: spec.old is deprecated\n")
    Kubectl.of(Namespace(), Console()).patch("scg", "orders", {"spec": {}}, namespace="shop")
    assert capsys.readouterr().err == "Warning: spec.old is deprecated\n"


def test_exec_returns_the_exit_code_of_the_command_in_the_container(program: Path) -> None:
    container = Container(namespace="pelops-system", pod="operator-0", name="operator")
    (program / "answer").write_text("said")
    (program / "errors").write_text("why\ncommand terminated with exit code 3\n")
    (program / "code").write_text("3")
    ended = Kubectl().exec(container, ["pelops", "doctor", "-o", "json"])
    assert (ended.output, ended.errors, ended.exit_code) == ("said", "why\n", 3)
    assert words_of(program)[-5:] == ["--", "pelops", "doctor", "-o", "json"]
    (program / "errors").write_text("Error from server (Forbidden): no pods/exec\n")
    with pytest.raises(KubectlFailed, match="no pods/exec"):
        Kubectl().exec(container, ["pelops"])


def test_an_answer_that_is_no_json_is_an_error(program: Path) -> None:
    (program / "answer").write_text("<html>")
    with pytest.raises(KubectlFailed, match="is not JSON"):
        Kubectl().get("pods", "web-0")


def test_a_missing_object_is_none_and_other_failures_raise(
    program: Path,
) -> None:
    (program / "code").write_text("1")
    (program / "errors").write_text("Error from server (NotFound): no\n")
    assert Kubectl().find("pods", "web-0") is None
    (program / "errors").write_text("Error from server (Forbidden): no\n")
    with pytest.raises(KubectlFailed):
        Kubectl().find("pods", "web-0")


def test_a_right_is_a_yes_or_a_no(program: Path) -> None:
    for answer, code in (("yes", "0"), ("no", "1")):
        (program / "answer").write_text(answer)
        (program / "code").write_text(code)
        assert Kubectl().can("create", "pods/exec", namespace="shop") is (answer == "yes")
    assert "--subresource=exec" in words_of(program)


def test_a_kubectl_that_does_not_answer_is_a_timeout(program: Path) -> None:
    (program / "kubectl").write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(KubectlFailed) as failed:
        Kubectl().run("get", "pods", timeout_s=-4.5)
    assert failed.value.code == ExitCode.TIMEOUT


def test_a_missing_kubectl_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KubectlFailed, match="not on the PATH"):
        Kubectl().raw("/version")


def test_functions_run_together_and_each_keeps_its_own_error() -> None:
    both = threading.Barrier(2, timeout=60)

    def answer() -> str:
        both.wait()
        return "answer"

    def fail() -> str:
        both.wait()
        raise CommandFailed("no right")

    answered, failed = run_together(answer, fail)
    assert (answered, str(failed)) == ("answer", "no right")
    with pytest.raises(ZeroDivisionError):
        run_together(lambda: 1 // 0)


def test_what_is_created_is_checked_by_the_server_first_if_asked(program: Path) -> None:
    manifest = {"kind": "StreamRedrive", "metadata": {"name": "r", "namespace": "shop"}}
    (program / "answer").write_text(json.dumps(manifest))
    assert Kubectl(namespace="other").create(manifest, dry_run=True) == manifest
    assert {"--dry-run=server", "--namespace=shop"} <= set(words_of(program))
