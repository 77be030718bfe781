"""What tests on an object store need, made once and kept: a server of S3, built from Go modules.

`python -m tests.pipeline.s3_parts` provides it.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

from tests.cached_parts import PartMissing, provide_part, read_contents, run_maker

SOURCE = Path(__file__).with_name("s3_server")


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


if __name__ == "__main__":
    try:
        print(provide_server())
    except PartMissing as error:
        sys.exit(str(error))
