"""What a local file system can do and Hadoop does not: exclusive names, and exchanges."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

from pelops.pipeline.errors import ArchiveUnusable

_HERE: Final = -100  # AT_FDCWD: paths are from where the process is
_RENAME_EXCHANGE: Final = 2


def link_exclusively(source: str, target: str) -> bool:
    """Give a file a second name, by paths or file: addresses; False when something has it.

    Exclusive, as a rename is not: of two that make a file at once, one is told that it did.
    """
    try:
        os.link(plain_path(source), plain_path(target))
    except FileExistsError:
        return False
    except OSError as error:
        raise ArchiveUnusable(f"cannot write {target}: {error.strerror}") from error
    return True


def exchange(one: str, other: str) -> bool:
    """Let two files or directories change places in one step; False where that cannot be done."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # of Linux alone
    if call is None:
        return False
    paths = (os.fsencode(plain_path(path)) for path in (one, other))
    first, second = paths
    return bool(call(_HERE, first, _HERE, second, _RENAME_EXCHANGE) == 0)


def read_file(path: str) -> bytes:
    """All of a file, by its path or file: address. Raises ArchiveUnusable."""
    try:
        return plain_path(path).read_bytes()
    except OSError as error:
        raise ArchiveUnusable(f"cannot read {path}: {error.strerror}") from error


def plain_path(path: str) -> Path:
    """Where a path or a file: address is."""
    return Path(
        path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")
    )
