"""A Spark driver of its own that audits, for tests that kill it or leave it no room.

python -m tests.pipeline.auditing_driver BYTES ARGUMENTS...: no file grows beyond so many bytes (0:
any size); the arguments are those of `python -m pelops.pipeline`, and so is the exit code.
"""

from __future__ import annotations

import resource
import sys

from pelops.pipeline.main import main


def limit_files(most: int) -> None:
    """As on a file system with no room for more."""
    if most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


if __name__ == "__main__":
    limit_files(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
