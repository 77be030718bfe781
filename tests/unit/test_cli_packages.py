"""The extra [cli] has every package that the documented commands import."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from pelops.cli.command_line import EXTRAS
from tests.builders import manifest
from tests.operators import ROOT
from tests.unit.conftest import Install

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
Run = Callable[..., subprocess.CompletedProcess[str]]
RUN = """\
import sys

blocked, program, words = set({blocked!r}), {program!r}, {words!r}

class Blocker:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker)
sys.argv = [program, *words]
if program == "pelops":
    from pelops.cli.main import main
else:
    from pelops.controller.__main__ import main
main()
"""


def list_required(requirements: list[str]) -> set[str]:
    """The names of the packages that these requirements install, dependencies included."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")
        extras = re.findall(r"\[(.*?)\]", requirement)
        if name in found:
            continue
        found.add(name)
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another platform or version of Python
        for need in needs:
            only = re.search(r"extra\s*==\s*['\"](\w+)['\"]", need)
            if only is None or only[1] in extras:
                waiting.append(need)
    return found


def list_blocked(extra: str) -> list[str]:
    """The modules of this environment that are not there after `pip install pelops[extra]`."""
    installed = list_required([*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]])
    return sorted(
        module
        for module, packages in metadata.packages_distributions().items()
        if module != "pelops"
        and not {one.lower().replace("_", "-") for one in packages} & installed
    )


@pytest.fixture
def run(tmp_path: Path, install: Install) -> Run:
    """Run a command line with the packages of [cli], and a kubectl that answers with a group."""
    answer = tmp_path / "answer"
    answer.write_text(json.dumps({**manifest(), "items": []}))
    install("kubectl", f"cat {answer}\n")

    def run(*words: str, program: str = "pelops") -> subprocess.CompletedProcess[str]:
        code = RUN.format(blocked=list_blocked("cli"), words=list(words), program=program)
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )

    return run


REDIS = "--redis-url redis://127.0.0.1:1"
NAMES = f"{REDIS} --stream orders --group billing"


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        f"why 1-1 {NAMES}",
        f"why orders 1-1 {REDIS}",
        f"pending {NAMES}",
        f"pending orders {REDIS}",
        f"dlq list orders {REDIS}",
        f"dlq show orders 1-1 {REDIS}",
        f"dlq export orders {REDIS}",
        f"doctor {NAMES}",
    ],
)
def test_a_question_to_redis_gets_as_far_as_the_connection(words: str, run: Run) -> None:
    done = run(*words.split())
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stdout + done.stderr
    assert "not installed" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        "status",
        "top --once",
        "doctor",
        "version",
        "dlq redrive orders -o json",
        "keys --stream orders --group billing",
        "acl --stream orders --group billing",
        "env -f answer",
        "completion bash",
    ],
)
def test_other_commands_need_no_other_package(words: str, run: Run, tmp_path: Path) -> None:
    done = run(*(str(tmp_path / one) if one == "answer" else one for one in words.split()))
    assert "not installed" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, run: Run) -> None:
    done = run("audit", "lookup", "--archive", str(tmp_path), "--id", "1-1")
    assert done.returncode == 1
    assert "the package pyarrow is not installed. Install Pelops with the extra [pipeline]: " in (
        done.stderr
    )
    for package, extra in EXTRAS.items():
        assert package in list_required(PROJECT["optional-dependencies"][extra])


def test_the_program_of_the_operator_names_its_extra(run: Run) -> None:
    done = run("--help", program="pelops-operator")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.fullmatch(
        r"pelops-operator: the package \w+ is not installed. Install Pelops with the extra "
        r"\[operator\]: \S+\n",
        done.stderr,
    )
    scripts = PROJECT["scripts"]
    assert scripts["pelops-operator"] == "pelops.controller.__main__:main"
