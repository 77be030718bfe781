"""A server of S3 on loopback with one bucket, and drivers that archive into it."""

from __future__ import annotations

import os
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from local_cluster.processes import Process, free_port, start_process, wait_until

BUCKET = "audits"
REPOSITORY = Path(__file__).parents[2]
KEYS = {"AWS_ACCESS_KEY_ID": "pelops", "AWS_SECRET_ACCESS_KEY": "of the store's own"}
# A test does not wait for a store as long as an audit does.
_IMPATIENT = {
    "fs.s3a.attempts.maximum": 2,
    "fs.s3a.retry.limit": 2,
    "fs.s3a.retry.interval": "50ms",
}


def endpoint() -> str:
    """The address of the server, from the environment of a driver."""
    return os.environ["PELOPS_AUDIT_S3_ENDPOINT"]


class S3Store:
    """The server keeps each object as a file below `bucket`, under the object's own name."""

    def __init__(self, program: Path, directory: Path) -> None:
        self.program = program
        self.directory = directory
        self.bucket = directory / "data" / BUCKET
        self.address = f"127.0.0.1:{free_port()}"
        self._server: Process | None = None

    def __enter__(self) -> Self:
        self.bucket.mkdir(parents=True)
        (self.directory / "metadata").mkdir()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server where it has been, and wait until it answers."""
        places = [str(self.directory / "data"), str(self.directory / "metadata")]
        self._server = start_process(
            "s3-server",
            [str(self.program), self.address, *places],
            log=self.directory / "server.log",
            env=os.environ | KEYS,
        )
        wait_until(self._answers, timeout_s=60, what="the server of S3")

    def stop(self) -> None:
        """End the server at once; what it keeps stays."""
        if self._server is not None:
            self._server.kill()

    def run(self, program: list[str], log: Path, **variables: str) -> Process:
        """Start a program of Python that may use s3a."""
        confs = [f"--conf spark.hadoop.{name}={value}" for name, value in _IMPATIENT.items()]
        return start_process(
            "driver",
            [sys.executable, *program],
            log=log,
            cwd=REPOSITORY,
            env=os.environ
            | KEYS
            | {
                "PYSPARK_SUBMIT_ARGS": " ".join([*confs, "pyspark-shell"]),
                "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "operator"), str(REPOSITORY)]),
                "PYSPARK_PYTHON": sys.executable,
                "PELOPS_AUDIT_MEMORY_MIB": "1024",
                "PELOPS_AUDIT_S3_ENDPOINT": f"http://{self.address}",
                "TMPDIR": str(log.parent),
                # Short lives: what the second compiler saves costs more than it brings.
                "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            }
            | variables,
        )

    def files(self, below: str) -> dict[str, bytes]:
        """The objects whose names begin so, by the rest of their names."""
        base = self.bucket / below
        found = (path for path in base.rglob("*") if path.is_file())
        return {str(path.relative_to(base)): path.read_bytes() for path in found}

    def remove(self, name: str) -> None:
        """Remove an object, or all below a name, and the server's metadata of them."""
        for place in (self.bucket, self.directory / "metadata" / BUCKET):
            path = place / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=30) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
