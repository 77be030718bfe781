"""What a local file system can do and Hadoop does not: make a file unless there is one."""

from __future__ import annotations

import os
from pathlib import Path

from pelops.pipeline.errors import ArchiveUnusable


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


def plain_path(path: str) -> Path:
    """Where a path or a file: address is."""
    return Path(
        path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")
    )
