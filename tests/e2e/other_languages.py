"""The workers of examples/workers as programs, built once for each of their versions."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local_cluster.binaries import cache_directory
from tests.operators import ROOT

EXAMPLES = ROOT / "examples" / "workers"
BUILD_TIMEOUT_S = 280
LANGUAGES = ("python", "go", "node", "java")


class CannotBuild(Exception):
    """A toolchain or what it must fetch is not there; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A worker that can be started."""

    language: str
    command: tuple[str, ...]
    code_after_sigterm: int = 0


def find_program(language: str) -> Program:
    """The worker in this language, built when the cache does not have it yet.

    Raises CannotBuild, and CalledProcessError when it does not compile.
    """
    return _FINDERS[language]()


def _python() -> Program:
    worker = EXAMPLES / "python" / "worker.py"
    return Program(language="python", command=(sys.executable, str(worker)))


def _go() -> Program:
    # /usr/local/go is where Go's own archive goes, and often on no PATH but the shell's.
    go = _tool("go", "/usr/local/go/bin")

    def build(target: Path) -> None:
        flags = ("-mod=readonly", "-trimpath", "-buildvcs=false")
        argv = [go, "build", *flags, "-o", str(target / "worker"), "."]
        _run(argv, EXAMPLES / "go", CGO_ENABLED="0", GOWORK="off")

    built = _built("go", [go, "version"], build)
    return Program(language="go", command=(str(built / "worker"),))


def _node() -> Program:
    node, npm = _tool("node"), _tool("npm")
    _require(18, [node, "--version"])

    def build(target: Path) -> None:
        shutil.copytree(EXAMPLES / "node", target, dirs_exist_ok=True)
        _fetch([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)

    built = _built("node", [node, "--version"], build)
    return Program(language="node", command=(node, str(built / "worker.mjs")))


def _java() -> Program:
    java, javac, maven = _tool("java"), _tool("javac"), _tool("mvn")
    _require(17, [javac, "-version"])

    def build(target: Path) -> None:
        shutil.copytree(EXAMPLES / "java", target, dirs_exist_ok=True)
        _fetch([maven, "-B", "-q", "dependency:copy-dependencies"], target)
        source = "src/main/java/Worker.java"
        jars = "target/dependency/*"
        _run([javac, "--release", "17", "-cp", jars, "-d", "target/classes", source], target)

    built = _built("java", [javac, "-version"], build)
    path = f"{built}/target/classes:{built}/target/dependency/*"
    # A JVM that SIGTERM ends says so, whatever its hooks have finished.
    return Program(language="java", command=(java, "-cp", path, "Worker"), code_after_sigterm=143)


_FINDERS: dict[str, Callable[[], Program]] = {
    "python": _python,
    "go": _go,
    "node": _node,
    "java": _java,
}


def _tool(name: str, *more: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *more])
    found = shutil.which(name, path=path)
    if found is None:
        raise CannotBuild(f"no {name} on this machine")
    return found


def _require(least: int, version: Sequence[str]) -> None:
    said = _run(version, EXAMPLES).strip()
    number = re.search(r"\d+", said)
    if number is None or int(number.group()) < least:
        raise CannotBuild(f"{said} is older than {least}")


def _built(language: str, version: Sequence[str], build: Callable[[Path], None]) -> Path:
    """The directory that `build` filled for this source and this version of its compiler."""
    builds = cache_directory() / "workers"
    target = builds / f"{language}-{_hash(EXAMPLES / language, version)}"
    builds.mkdir(parents=True, exist_ok=True)
    with _sole_builder(builds):
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=".build-", dir=builds) as scratch:
                output = Path(scratch, "output")
                output.mkdir()
                build(output)
                output.rename(target)
    return target


def _hash(source: Path, version: Sequence[str]) -> str:
    digest = hashlib.sha256(platform.machine().encode())
    digest.update(_run(version, source).encode())
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        digest.update(f"\0{file.relative_to(source)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:24]


@contextmanager
def _sole_builder(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(argv: Sequence[str], directory: Path) -> None:
    try:
        _run(argv, directory)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        lines = str(error.stdout or "").splitlines()
        said = [line for line in lines if "error" in line.lower()][:3]
        raise CannotBuild(f"{Path(argv[0]).name} cannot fetch: {' '.join(said)}") from error


def _run(argv: Sequence[str], directory: Path, **env: str) -> str:
    answer = subprocess.run(
        argv,
        cwd=directory,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if answer.returncode:
        print(answer.stdout)  # to show why a test failed
        answer.check_returncode()
    return answer.stdout
