"""Why a job of Spark failed, in a sentence instead of a page of Java."""

from __future__ import annotations

import re
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from pelops.errors import PelopsError
from pelops.pipeline.errors import ArchiveUnusable, StageFailed

# What Java and Hadoop say of a place that takes no more, each as a part of some line.
_NO_ROOM: Final = re.compile(
    r"(No space left on device|Disk quota exceeded|File too large|Read-only file system"
    r"|Permission denied|Mkdirs failed to create|Input/output error|not a directory"
    r"|AccessDenied|Access Denied)[^\n]*",
    re.IGNORECASE,
)
# The last line of a traceback that a Python worker handed on.
_OF_WORKER: Final = re.compile(r"^(?:[a-z_]+\.)+errors\.([A-Z]\w+: .+)$", re.MULTILINE)
_LONGEST: Final = 500  # characters


def explain_failure(error: Py4JJavaError | PySparkException, path: str) -> PelopsError:
    """What to raise in place of a failed write of `path`."""
    text = _text(error)
    full = _NO_ROOM.search(text)
    if full is not None:
        return ArchiveUnusable(f"cannot write {path}: {full.group(0).strip()[:_LONGEST]}")
    worker = _OF_WORKER.search(text)
    told = worker.group(1) if worker else next(iter(text.strip().splitlines()), "no reason told")
    return StageFailed(f"{path} could not be made: {told[:_LONGEST]}")


def _text(error: Py4JJavaError | PySparkException) -> str:
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    parts = [str(error)]
    while java is not None and len(parts) < 20:
        parts.append(str(java.toString()))
        java = java.getCause()
    return "\n".join(parts)
