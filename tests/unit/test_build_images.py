"""`make image` calls the container engine that is installed, with the names of the manifests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from pelops import build
from pelops.controller.runtime.settings import parse_settings
from tests.operators import ROOT

pytestmark = pytest.mark.full

NEEDED: Final = ("bash", "dirname", "env", "git", "head", "make", "sed")
VERSION: Final = build.version()
OPERATOR: Final = f"registry.pelops.dev/pelops-operator:{VERSION}"
PIPELINE: Final = f"registry.pelops.dev/pelops-pipeline:{VERSION}"
# Writes its arguments as a line of JSON. `docker buildx` is missing where NO_PLUGIN is set.
PROGRAM: Final = f"""#!{sys.executable}
import json, os, sys
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
if words[1:3] == ["buildx", "version"]:
    sys.exit("NO_PLUGIN" in os.environ)
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps([os.environ.get("DOCKER_BUILDKIT", ""), *words]) + "\\n")
"""


Ended = subprocess.CompletedProcess[str]
Calls = list[list[str]]  # each: DOCKER_BUILDKIT, then the words of the command


class Machine:
    """A PATH on which only the given container engines are installed."""

    def __init__(self, directory: Path) -> None:
        self._bin = directory / "bin"
        self._calls = directory / "calls"
        self._bin.mkdir()
        for name in NEEDED:
            found = shutil.which(name)
            assert found is not None
            (self._bin / name).symlink_to(found)

    def install(self, *names: str) -> None:
        for name in names:
            (self._bin / name).write_text(PROGRAM)
            (self._bin / name).chmod(0o755)

    def run(self, variables: Mapping[str, str], *argv: str) -> tuple[Ended, Calls]:
        self._calls.write_text("")
        kept = {"HOME": os.environ["HOME"], "PATH": str(self._bin), "CALLS": str(self._calls)}
        ended = subprocess.run(
            argv or [str(ROOT / "tools" / "build_images.sh")],
            env=kept | dict(variables),
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        return ended, [json.loads(line) for line in self._calls.read_text().splitlines()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def value(call: list[str], option: str) -> str:
    return call[call.index(option) + 1]


@pytest.mark.parametrize(
    ("installed", "variables", "begin"),
    [
        (["docker"], {}, ["", "docker", "buildx", "build"]),
        (["docker"], {"NO_PLUGIN": "1"}, ["1", "docker", "build"]),
        (["buildx"], {}, ["", "buildx", "build"]),
        (["podman"], {}, ["", "podman", "build"]),
        (["docker", "buildx", "podman"], {}, ["", "docker", "buildx", "build"]),
        (["docker", "podman"], {"IMAGE_ENGINE": "podman"}, ["", "podman", "build"]),
    ],
)
def test_both_images_are_built_with_what_is_installed(
    machine: Machine, installed: list[str], variables: dict[str, str], begin: list[str]
) -> None:
    machine.install(*installed)
    ended, calls = machine.run(variables)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [call[: len(begin)] for call in calls] == [begin, begin]
    assert [value(call, "--tag") for call in calls] == [OPERATOR, PIPELINE]
    assert [value(call, "--target") for call in calls] == ["operator", "pipeline"]
    assert {call[-1] for call in calls} == {"."}
    assert ended.stdout.split() == [OPERATOR, PIPELINE]
    # Only Buildx needs a flag to load the image into this machine's engine.
    assert [("--load" in call) for call in calls] == ["buildx" in begin] * 2
    assert not any("--push" in call or "push" in call for call in calls)


def test_the_names_are_those_of_the_manifests_and_of_the_operator(machine: Machine) -> None:
    machine.install("docker")
    ended, _ = machine.run({}, "make", "--silent", "image")
    operator, pipeline = ended.stdout.split()
    deployment = (ROOT / "manifests" / "base" / "deployment.yaml").read_text()
    assert f"image: {operator}\n" in deployment
    assert f"image: {operator} " in (ROOT / "examples" / "quickstart.yaml").read_text()
    assert pipeline == parse_settings([], {}).audit_image


@pytest.mark.parametrize(
    ("engine", "variables", "pushes"),
    [
        ("docker", {}, []),
        ("docker", {"NO_PLUGIN": "1"}, [["docker", "push", OPERATOR]]),
        ("buildx", {}, []),
        ("podman", {}, [["podman", "push", OPERATOR]]),
    ],
)
def test_an_image_is_pushed_when_asked_for(
    machine: Machine, engine: str, variables: dict[str, str], pushes: list[list[str]]
) -> None:
    machine.install(engine)
    ended, (first, *others) = machine.run({**variables, "PUSH": "1", "IMAGES": "operator"})
    assert ended.returncode == 0, ended.stderr
    assert [call[1:] for call in others] == pushes
    assert ("--push" in first) == (not pushes) and "--load" not in first


@pytest.mark.parametrize(
    ("installed", "variables", "reason"),
    [
        ([], {}, "none of docker, buildx and podman is installed"),
        (["docker"], {"IMAGE_ENGINE": "kaniko"}, "IMAGE_ENGINE=kaniko is unknown"),
        (["docker"], {"IMAGES": "worker"}, "IMAGES names worker, which is unknown"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_reason(
    machine: Machine, installed: list[str], variables: dict[str, str], reason: str
) -> None:
    machine.install(*installed)
    ended, calls = machine.run(variables)
    assert ended.returncode == 1 and not calls
    assert ended.stderr.startswith("error: ") and reason in ended.stderr
