"""Every program reports its version and the commit that it was built from."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pelops import build
from pelops.cli.main import main as run_cli
from pelops.controller.runtime.settings import parse_settings
from pelops.pipeline.main import main as run_pipeline

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory in which the package looks for its commit."""
    monkeypatch.setattr(build, "files", lambda _: tmp_path)
    build.revision.cache_clear()
    yield tmp_path
    build.revision.cache_clear()


@pytest.fixture
def built(package: Path) -> None:
    (package / build.REVISION_FILE).write_text(f"{COMMIT}\n")


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert build.version() == project["version"]


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_the_commit_of_a_clone_is_unknown(package: Path, text: str | None) -> None:
    if text is not None:
        (package / build.REVISION_FILE).write_text(text)
    assert build.revision() == "unknown"
    assert build.describe_build() == f"{build.version()} (revision unknown)"


@pytest.mark.usefixtures("built")
def test_a_build_reports_its_commit() -> None:
    assert build.revision() == COMMIT


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("pelops", lambda: run_cli(["--version"])),
        ("pelops-operator", lambda: parse_settings(["--version"], {})),
        ("pelops.pipeline", lambda: run_pipeline(["--version"])),
    ],
)
def test_each_program_prints_version_and_commit(
    capsys: pytest.CaptureFixture[str], name: str, run: object
) -> None:
    assert callable(run)
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{name} {build.version()} (revision {COMMIT})\n"


def test_the_first_line_of_the_operators_log_is_its_build(tmp_path: Path) -> None:
    """Also if the operator cannot start."""
    ended = subprocess.run(
        [sys.executable, "-m", "pelops.controller", "--kubeconfig", str(tmp_path / "missing")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "operator"), "PELOPS_HTTP_PORT": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 1, ended.stderr
    first = json.loads(ended.stderr.splitlines()[0])
    assert first["message"] == f"Starting pelops-operator {build.version()}"
    assert first["version"] == build.version()
    assert first["revision"] == build.revision()
    assert re.fullmatch(r"3\.\d+\.\S+", first["python"])
