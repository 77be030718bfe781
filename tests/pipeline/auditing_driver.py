"""A Spark driver of its own that audits, for tests that kill it or leave it no room.

python -m tests.pipeline.auditing_driver BYTES ARGUMENTS...: no file grows beyond so many bytes (0:
any size); the arguments are those of `python -m pelops.pipeline`, and so is the exit code. With
AUDITING_AT_ONCE each window is worked like a large one, so many entries at once.
"""

from __future__ import annotations

import os
import resource
import sys

from pelops.pipeline.main import main
from pelops.pipeline.reconcile import file_scan, window_entries


def limit_files(most: int) -> None:
    """As on a file system with no room for more."""
    if most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def take_for_large(at_once: int) -> None:
    """Let every window be large."""
    if at_once:
        vars(window_entries)["_MANY"] = 0
        vars(file_scan)["_ROWS_AT_ONCE"] = at_once


if __name__ == "__main__":
    limit_files(int(sys.argv[1]))
    take_for_large(int(os.environ.get("AUDITING_AT_ONCE", "0")))
    sys.exit(main(sys.argv[2:]))
