"""What tests on an object store need, made once and kept: a server of S3, and Spark's classes.

`python -m tests.pipeline.s3_parts` provides both; the server is built from Go modules.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from local_cluster.binaries import cache_directory

SOURCE = Path(__file__).with_name("s3_server")
FETCH_JARS = Path(__file__).parents[2] / "tools" / "pipeline_image" / "fetch_jars.py"
MAKING_S = 1800.0


class PartMissing(Exception):
    """The server or the classes cannot be had here; the message says why."""


def provide_server() -> Path:
    """The program of the server. Raises PartMissing."""
    sources = [SOURCE / name for name in ("go.mod", "go.sum", "main.go")]

    def build(target: Path) -> None:
        # /usr/local/go is where Go's own archive goes, and often on no PATH but the shell's.
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/go/bin"])
        go = shutil.which("go", path=path)
        if go is None:
            raise PartMissing("no Go toolchain, which building the server of S3 needs")
        flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"]
        _run([go, "build", *flags, "-o", str(target), "."], cwd=SOURCE, CGO_ENABLED="0")

    return _provide("s3-server", [platform.machine().encode(), *_contents(sources)], build)


def provide_jars() -> Path:
    """The directory with the classes of s3a for the Hadoop that Spark has. Raises PartMissing."""
    package = f"org.apache.hadoop:hadoop-aws:{_hadoop_version()}"

    def fetch(target: Path) -> None:
        _run([sys.executable, str(FETCH_JARS), package, str(target)], cwd=target.parent)

    return _provide("s3-jars", [package.encode(), *_contents([FETCH_JARS])], fetch)


def _hadoop_version() -> str:
    (jar,) = Path(pyspark.__path__[0], "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def _provide(name: str, ingredients: Sequence[bytes], make: Callable[[Path], None]) -> Path:
    """What was made of these ingredients, now or earlier; half of it is never seen."""
    kept = cache_directory() / name
    target = kept / hashlib.sha256(b"\0".join(ingredients)).hexdigest()[:24]
    if not target.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with _sole_maker(kept), tempfile.TemporaryDirectory(dir=kept) as scratch:
            if not target.exists():
                print(f"making {name} (minutes, the first time) ...", file=sys.stderr)
                unfinished = Path(scratch, name)
                make(unfinished)
                unfinished.rename(target)
    return target


@contextmanager
def _sole_maker(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(argv: Sequence[str], *, cwd: Path, **variables: str) -> None:
    try:
        ended = subprocess.run(
            argv,
            cwd=cwd,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAKING_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PartMissing(f"{Path(argv[0]).name} took longer than {MAKING_S:.0f} s") from error
    if ended.returncode:
        raise PartMissing(f"{Path(argv[0]).name} failed: {ended.stdout[-2000:]}")


def _contents(files: Sequence[Path]) -> list[bytes]:
    return [file.read_bytes() for file in files]


if __name__ == "__main__":
    try:
        print(provide_server(), provide_jars(), sep="\n")
    except PartMissing as error:
        sys.exit(str(error))
