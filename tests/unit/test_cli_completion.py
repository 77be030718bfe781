"""Candidates that kubectl and shells get for a word."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pelops.cli import main as cli
from pelops.cli.command_line import COMMANDS
from pelops.cli.completion import print_candidates
from tests.operators import ROOT
from tests.unit.conftest import Install

KUBECTL = """\
case "$*" in
  *get-contexts*) echo dev; echo prod ;;
  *namespaces*) echo namespace/shop; echo namespace/billing ;;
  *--namespace=shop*) echo streamconsumergroup.pelops.dev/orders ;;
  *streamconsumergroups*) echo streamconsumergroup.pelops.dev/mailing ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture(autouse=True)
def programs(install: Install) -> Path:
    """A kubectl that knows two namespaces, and the program `pelops`."""
    operator = ROOT / "operator"
    install("pelops", f'PYTHONPATH={operator} exec {sys.executable} -m pelops.cli "$@"\n')
    return install("kubectl", KUBECTL).parent


def candidates(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert print_candidates(words) == 0
    *found, directive = capsys.readouterr().out.splitlines()
    assert directive in {":0", ":4"}
    return [line.partition("\t")[0] for line in found] + ([] if directive == ":4" else [directive])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sta", ["status"]),
        ("-n shop sta", ["status"]),
        ("status ", ["mailing"]),
        ("status -n shop ", ["orders"]),
        ("status --namespace=shop ", ["orders"]),
        ("status orders ", []),
        ("why ", ["mailing"]),
        ("dlq lis", ["list"]),
        ("dlq show -n shop ", ["orders"]),
        ("version --cl", ["--client"]),
        ("pending --in", []),
        ("doctor --in", []),
        ("status -n ", ["shop", "billing"]),
        ("status -n sh", ["shop"]),
        ("--context ", ["dev", "prod"]),
        ("status -o j", ["json"]),
        ("status --wa", ["--wait"]),
        ("top --sort a", ["age"]),
        ("completion b", ["bash"]),
        ("audit ", ["lookup"]),
        ("audit lookup --arc", ["--archive"]),
        ("report --file ", [":0"]),
        ("keys --stream ", []),
    ],
)
def test_the_last_word_of_a_line_is_completed(
    line: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert candidates(capsys, *line.split(" ")) == expected


def test_the_first_word_is_a_command_with_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert candidates(capsys, "") == [command.name for command in COMMANDS]
    cli.main(["__complete", "key"])
    assert capsys.readouterr().out == "keys\tprint the Redis keys of a group as JSON\n:4\n"


def test_without_a_cluster_there_are_no_names_and_no_error(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (programs / "kubectl").write_text("#!/bin/sh\nexit 1\n")
    assert candidates(capsys, "status", "") == []


SHELLS = {
    "bash": "source script; COMP_WORDS=(pelops status -n shop o); COMP_CWORD=4; _pelops; "
    'echo "${COMPREPLY[@]}"',
    "zsh": "compdef() { :; }; _describe() { print -l -- $found; }; "
    "words=(pelops status -n shop ''); CURRENT=5; source ./script",
    "fish": "source script; complete -C 'pelops status -n shop '",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_completes_a_name(
    shell: str, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    cli.main(["completion", shell])
    (programs / "script").write_text(capsys.readouterr().out)
    words = SHELLS[shell] + ("; _pelops" if shell == "zsh" else "")
    done = subprocess.run(
        [program, "-c", words], cwd=programs, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["orders"], done.stderr


def test_the_script_for_kubectl_asks_the_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["completion", "kubectl"])
    script = capsys.readouterr().out
    assert script.splitlines() == ["#!/bin/sh", 'exec kubectl pelops __complete "$@"']
