"""What tests on an object store need, made once and kept: a server of S3, and Spark's classes.

`python -m tests.pipeline.s3_parts` provides both; the server is built from Go modules.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import pyspark

from tests.cached_parts import PartMissing, provide_part, read_contents, run_maker

SOURCE = Path(__file__).with_name("s3_server")
ROOT = Path(__file__).parents[2]
FETCH_JARS = ROOT / "tools" / "pipeline_image" / "fetch_jars.py"
VERIFY_FILES = ROOT / "tools" / "pipeline_image" / "verify_files.py"
CHECKSUMS = ROOT / "requirements" / "jars.sha256"


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
        run_maker([go, "build", *flags, "-o", str(target), "."], cwd=SOURCE, CGO_ENABLED="0")

    return provide_part("s3-server", [platform.machine().encode(), *read_contents(sources)], build)


def provide_jars() -> Path:
    """The directory with the classes of s3a for the Hadoop that Spark has. Raises PartMissing."""
    package = f"org.apache.hadoop:hadoop-aws:{_hadoop_version()}"

    def fetch(target: Path) -> None:
        run_maker([sys.executable, str(FETCH_JARS), package, str(target)], cwd=target.parent)
        given = ["--complete", str(CHECKSUMS), str(target), "*.jar"]
        run_maker([sys.executable, str(VERIFY_FILES), *given], cwd=target.parent)

    return provide_part("s3-jars", [package.encode(), *read_contents([FETCH_JARS])], fetch)


def _hadoop_version() -> str:
    (jar,) = Path(pyspark.__path__[0], "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


if __name__ == "__main__":
    try:
        print(provide_server(), provide_jars(), sep="\n")
    except PartMissing as error:
        sys.exit(str(error))
