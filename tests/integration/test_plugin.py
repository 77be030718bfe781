"""The command line as one file, and as a plugin that krew unpacks: neither needs a package."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from local_cluster.binaries import find_binaries
from pelops.build import version
from pelops.cli.command_line import COMMANDS
from tools.supply_chain.dist import build_archives
from tools.supply_chain.plugin import build_plugin

pytestmark = pytest.mark.full

ROOT: Final = Path(__file__).parents[2]
COMMIT: Final = "0123456789abcdef0123456789abcdef01234567"
EPOCH: Final = 1_700_000_000
NAMES: Final = ("--stream", "orders:events", "--group", "order-processing")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    made = build_archives(ROOT, tmp_path_factory.mktemp("dist"), EPOCH, COMMIT)
    return [path for path in made if path.suffix == ".whl"]


@pytest.fixture(scope="module")
def built(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files by the last part of their name."""
    made = build_plugin(wheels, ROOT, tmp_path_factory.mktemp("plugin"), EPOCH)
    return {path.suffix: path for path in made}


def run_alone(program: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the file with a Python that sees no installed package."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-I", "-S", str(program), *words],
        env={**kept, "KUBECONFIG": "/nonexistent", "PYTHONUTF8": "1", **more},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_file_runs_without_any_package(built: dict[str, Path]) -> None:
    program = built[".pyz"]
    keys = run_alone(program, "keys", *NAMES)
    assert json.loads(keys.stdout)["slot"] == 7863, keys.stderr
    assert run_alone(program, "--version").stdout == f"pelops {version()} (revision {COMMIT})\n"
    helped = run_alone(program, "--help").stdout
    for command in COMMANDS:
        assert f"  {command.name} " in helped
    assert run_alone(program, "completion", "bash").stdout.startswith("_pelops()")
    assert "status\t" in run_alone(program, "__complete", "").stdout


@pytest.mark.parametrize(
    "words", [(one.name,) for one in COMMANDS if one.asks_cluster], ids=lambda words: str(words[0])
)
def test_commands_that_ask_the_cluster_import_no_package(
    words: tuple[str, ...], built: dict[str, Path]
) -> None:
    helped = run_alone(built[".pyz"], *words, "--help")
    assert helped.returncode == 0, helped.stderr
    assert "-n, -A, --context" in helped.stdout


def test_a_command_that_needs_a_package_names_it(built: dict[str, Path]) -> None:
    ended = run_alone(built[".pyz"], "env", "--file", "/dev/null")
    assert ended.returncode == 1
    assert ended.stderr == (
        "pelops: `pelops env`: the package yaml is not installed. Install Pelops with the extra "
        "[cli]: https://pelops.dev/docs/latest/guides/command-line/\n"
    )


def test_the_same_wheels_give_the_same_bytes(
    built: dict[str, Path], wheels: list[Path], tmp_path: Path
) -> None:
    again = {path.suffix: path for path in build_plugin(wheels, ROOT, tmp_path, EPOCH)}
    assert {name: path.read_bytes() for name, path in again.items()} == {
        name: path.read_bytes() for name, path in built.items()
    }
    assert os.access(built[".pyz"], os.X_OK)


def manifest_of(built: dict[str, Path]) -> Any:
    return yaml.safe_load(built[".yaml"].read_text())


def test_the_manifest_for_krew_describes_the_archive(built: dict[str, Path]) -> None:
    manifest = manifest_of(built)
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Plugin", "pelops")
    assert manifest["spec"]["version"] == f"v{version()}"
    # What krew's own check of its index demands.
    assert len(manifest["spec"]["shortDescription"]) <= 50
    assert manifest["spec"]["description"] and manifest["spec"]["homepage"]
    (platform,) = manifest["spec"]["platforms"]
    archive = built[".gz"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"].endswith(f"/v{version()}/{archive.name}")
    assert "{" not in platform["uri"]


def test_kubectl_runs_the_plugin_as_krew_installs_it(
    built: dict[str, Path], tmp_path: Path
) -> None:
    """krew unpacks the archive, copies the listed files, and links `bin` as kubectl-NAME."""
    (platform,) = manifest_of(built)["spec"]["platforms"]
    unpacked, store, programs = (tmp_path / name for name in ("unpacked", "store", "bin"))
    with tarfile.open(built[".gz"]) as archive:
        archive.extractall(unpacked, filter="data")
    store.mkdir()
    programs.mkdir()
    for file in platform["files"]:
        shutil.copy(unpacked / file["from"], store / file["to"])
    (programs / "kubectl-pelops").symlink_to(store / platform["bin"])
    kubectl = find_binaries().paths["kubectl"]
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{kubectl.parent}{os.pathsep}{os.environ['PATH']}",
        "KUBECONFIG": str(tmp_path / "none"),
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(kubectl), "pelops", *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    assert json.loads(run("keys", *NAMES).stdout)["group"] == "order-processing"
    assert "usage: kubectl pelops COMMAND [flags]" in run("--help").stdout
    wrong = run("keys")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("usage: kubectl pelops keys ")


def test_an_older_python_gets_one_sentence(built: dict[str, Path], tmp_path: Path) -> None:
    """The first file that Python runs has only syntax that old versions know."""
    with zipfile.ZipFile(built[".pyz"]) as program:
        main = program.read("__main__.py").decode()
    old = "sys.version_info = (3, 8, 0)\n"
    (tmp_path / "main.py").write_text(main.replace("import sys\n", f"import sys\n{old}", 1))
    ended = run_alone(tmp_path / "main.py")
    assert ended.returncode == 1
    assert ended.stderr.startswith("pelops: Python 3.11 or later is required, this is ")
