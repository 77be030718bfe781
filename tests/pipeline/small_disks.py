"""File systems with little room, for archives and for Spark."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """For the block: a file system of this size; skips where none can be mounted."""
    directory.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs"]
    mounted = subprocess.run(
        ["mount", *options, str(directory)], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(file: Path) -> None:
    """Let a file take what room there is."""
    with file.open("wb", buffering=0) as ballast:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
