"""Writes what pins the inputs of a build: `python -m tools.supply_chain.lock WHAT`.

- packages: requirements/*.txt, with uv, from the ranges in pyproject.toml and packages/. Pins stay
  unless `--upgrade [NAME ...]` is given.
- jars: requirements/jars.sha256: what s3a:// needs beside PySpark, and Delta Lake.
- debian: requirements/debian-ARCHITECTURE.sha256: the JRE of the pipeline image and all that it
  depends on, from the signed index of the Debian release of the base image. `--sources FILE` names
  the sources to ask. Default: those of the base image, in which this is meant to be run.
- binaries: local_cluster/checksums.txt: the official binaries of the control plane and Helm, in the
  versions of the go.mod files there, with the checksums that the official sites publish.

No file that is written names the address of a registry or a mirror.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from local_cluster.binaries import find_versions
from local_cluster.downloads import CHECKSUMS, official_name
from local_cluster.helm import helm_version
from local_cluster.spark_jars import FETCH_JARS, find_packages
from tools.supply_chain.distributions import PARTS

ROOT: Final = Path(__file__).parents[2]
REQUIREMENTS: Final = Path("requirements")
ARCHITECTURES: Final = ("amd64", "arm64")
DEBIAN_SOURCES: Final = Path("/etc/apt/sources.list.d/debian.sources")
_DOCKERFILE: Final = ROOT / "Dockerfile"
_UV_OPTIONS: Final = (
    "--generate-hashes",
    "--no-emit-index-url",
    "--universal",
    "--python-version",
    "3.11",
    # One version of a package for every Python: what is tested on one is what others install.
    "--fork-strategy",
    "fewest",
)
_PRINT_URIS: Final = ("-qq", "install", "--print-uris", "--yes", "--no-install-recommends")
# File -> what it is made from. The others take the versions of dev.txt, with which the tests run.
_CONSTRAINED: Final = ("-c", "requirements/dev.txt")
# Pelops' own distributions are in this tree (`tool.uv.sources`), and have no hash.
_WITHOUT_OURS: Final = tuple(f"--no-emit-package={name}" for name in PARTS)
_PACKAGES: Final = {
    "dev": ("pyproject.toml", "--extra", "dev", *_WITHOUT_OURS),
    "operator": ("pyproject.toml", "--extra", "operator", *_CONSTRAINED, *_WITHOUT_OURS),
    "pipeline": ("pyproject.toml", "--extra", "pipeline", *_CONSTRAINED, *_WITHOUT_OURS),
    "build": ("--group", "build", *_CONSTRAINED),
    "tools": ("--group", "tools"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Write what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.supply_chain.lock", description=__doc__)
    parser.add_argument("what", choices=["packages", "jars", "debian", "binaries"])
    parser.add_argument("--uv", default="uv", help="the program (default: on the PATH)")
    parser.add_argument("--upgrade", nargs="*", metavar="NAME", help="these; none named: all")
    parser.add_argument("--sources", type=Path, default=DEBIAN_SOURCES)
    given = parser.parse_args(argv)
    if given.what == "packages":
        lock_packages(given.uv, given.upgrade)
    elif given.what == "jars":
        lock_jars()
    elif given.what == "binaries":
        CHECKSUMS.write_text(read_official_checksums())
    else:
        for architecture in ARCHITECTURES:
            lock_debian(architecture, given.sources)
    return 0


def lock_packages(uv: str, upgrade: Sequence[str] | None = None) -> None:
    """Write requirements/*.txt. Raises CalledProcessError."""
    if upgrade is None:
        changed: list[str] = []
    else:
        changed = [f"--upgrade-package={name}" for name in upgrade] or ["--upgrade"]
    for name, source in _PACKAGES.items():
        command = [*source, *_UV_OPTIONS, "-o", str(REQUIREMENTS / f"{name}.txt")]
        # The header says how the file is made; a choice of versions, made once, is not part of it.
        header = " ".join(["uv pip compile", *command])
        subprocess.run(
            [uv, "pip", "compile", *command, *changed, "--quiet"],
            cwd=ROOT,
            check=True,
            env={**os.environ, "UV_CUSTOM_COMPILE_COMMAND": header},
        )


def lock_jars() -> None:
    """Write requirements/jars.sha256. Raises CalledProcessError."""
    with TemporaryDirectory() as directory:
        subprocess.run([sys.executable, str(FETCH_JARS), find_packages(), directory], check=True)
        lines = (
            (path.name, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in Path(directory).glob("*.jar")
        )
        _write("jars", lines)


def read_official_checksums(site: str = "https://") -> str:
    """The text of checksums.txt, from the official sites. Raises OSError or ValueError.

    Kubernetes and Helm publish a file with the digest beside each file, etcd one list for a
    release.
    """
    lines = []
    for architecture in ARCHITECTURES:
        for part, version in {**find_versions(), "helm": helm_version()}.items():
            name = official_name(part, version, architecture)
            place, file = name.rsplit("/", 1)
            lists = {"etcd": f"{place}/SHA256SUMS", "helm": f"{name}.sha256sum"}
            published = lists.get(part, f"{name}.sha256")
            with urllib.request.urlopen(site + published, timeout=30) as answer:
                text = answer.read().decode()
            pattern = rf"^([0-9a-f]{{64}})(?:\s+\*?{re.escape(file)})?\s*$"
            found = re.search(pattern, text, re.MULTILINE)
            if found is None:
                raise ValueError(f"{published} has no SHA-256 of {file}")
            lines.append(f"{found[1]}  {name}\n")
    return "".join(lines)


def lock_debian(architecture: str, sources: Path) -> None:
    """Write requirements/debian-<architecture>.sha256.

    It lists all that the packages depend on, whether or not a base image has it already.

    Raises:
        CalledProcessError: apt-get cannot reach the sources, or they do not have a package.
    """
    found = re.search(r"--download-only ([a-z0-9 .+-]+)", _DOCKERFILE.read_text())
    if found is None:
        raise ValueError("the Dockerfile downloads no Debian packages")
    with TemporaryDirectory() as directory:
        options = _apt_options(Path(directory), architecture, sources)
        subprocess.run(["apt-get", *options, "-qq", "update"], check=True)
        listed = subprocess.run(
            ["apt-get", *options, *_PRINT_URIS, *found[1].split()],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    _write(f"debian-{architecture}", parse_uris(listed.stdout))


def parse_uris(text: str) -> list[tuple[str, str]]:
    """The file names and SHA-256 that `apt-get --print-uris` printed.

    Raises:
        ValueError: a line has no SHA-256.
    """
    files = []
    for line in filter(None, text.splitlines()):
        found = re.fullmatch(r"'\S+' (\S+\.deb) \d+ SHA256:([0-9a-f]{64})", line.strip())
        if found is None:
            raise ValueError(f"apt-get printed no SHA-256: {line}")
        files.append((found[1], found[2]))
    return files


def _apt_options(state: Path, architecture: str, sources: Path) -> list[str]:
    """As if nothing was installed, and apart from the packages of this machine."""
    for path in ("state/lists/partial", "cache/archives/partial"):
        (state / path).mkdir(parents=True)
    (state / "state/status").touch()
    copied = shutil.copy(sources, state / f"debian{sources.suffix}")
    options = {
        "Dir::Etc::sourcelist": copied,
        "Dir::Etc::sourceparts": "-",
        "Dir::State": state / "state",
        "Dir::State::status": state / "state/status",
        "Dir::Cache": state / "cache",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Acquire::ForceHash": "SHA256",
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",  # an index that is missing is not taken from elsewhere
    }
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def _write(name: str, files: Iterable[tuple[str, str]]) -> None:
    text = "".join(f"{digest}  {file}\n" for file, digest in sorted(files))
    (ROOT / REQUIREMENTS / f"{name}.sha256").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
