"""Explains the failure of a Spark job in one sentence instead of a Java stack trace."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

from pelops.domain.site import page_url
from pelops.errors import PelopsError
from pelops.pipeline.archive.tables import NEXT, explain_trouble
from pelops.pipeline.errors import ArchiveUnusable, SparkLost, StageFailed
from pyspark_redis_streams.errors import RedisStreamsError

# Messages of Java and Hadoop for a location that cannot be written to.
_NO_ROOM: Final = re.compile(
    r"(No space left on device|Disk quota exceeded|File too large|Read-only file system"
    r"|Permission denied|Mkdirs failed to create|Input/output error|not a directory"
    r"|AccessDenied|Access Denied)[^\n]*",
    re.IGNORECASE,
)
# Classes that write Spark's own files, in the stack trace of such an error.
_OF_LOCAL_FILES: Final = re.compile(
    r"at org\.apache\.spark\.(shuffle|storage\.Disk\w+|util\.collection\.unsafe\.sort)\."
)
# The last line of a traceback of a Python worker.
_OF_WORKER: Final = re.compile(r"^(?:[a-z_]+\.)+errors\.([A-Z]\w+: .+)$", re.MULTILINE)
# Messages of object stores, and explanations; the first match is reported.
_OF_STORES: Final = (
    (
        r'No FileSystem for scheme "?s3n?\b',
        "Spark reads S3 by the scheme s3a: write the address as s3a://BUCKET/PREFIX",
    ),
    (
        r"S3AFileSystem not found|NoClassDefFoundError: software/amazon",
        "the classes that s3a needs are not among Spark's jars: "
        + page_url("audits/pipeline", section="object-stores"),
    ),
    (
        r"NoAuthWithAWSException|Unable to load credentials|No AWS Credentials",
        "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
        "or give the pod an identity",
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken",
        "the object store rejects these credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)",
    ),
    (r"NoSuchBucket|UnknownStoreException", "the object store has no such bucket"),
    (
        r"ConnectException|UnknownHostException|NoRouteToHost|NoHttpResponse|SocketException"
        r"|SocketTimeout|ConnectTimeout|ConnectionClosed|ApiCallTimeout|Read timed out",
        "the object store cannot be reached, or did not answer in time. Check the store and the "
        f"network between, {NEXT}",
    ),
    (
        r"AWSServiceThrottled|SlowDown|ServiceUnavailable|Status Code: 503",
        "the object store is busy, and refused the request each time it was repeated. Wait until "
        f"the store takes requests, {NEXT}",
    ),
    (
        r"Status Code: 400|Status Code: 301",
        "the object store rejects the request: its region may differ (PELOPS_AUDIT_S3_REGION)",
    ),
    (
        r"AccessDenied|Status Code: 403",
        "the object store denies access to these credentials (AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY)",
    ),
)
_LONGEST: Final = 500  # characters
_NO_HEAP: Final = "java.lang.OutOfMemoryError"
_MORE_MEMORY: Final = (
    "Give the run more memory: in Kubernetes by the memory limit of its pod, elsewhere by "
    f"PELOPS_AUDIT_MEMORY_MIB ({page_url('audits/pipeline', section='memory')}), and repeat the "
    "command: finished steps are kept"
)


def lost() -> SparkLost:
    """The error to raise if the JVM ended during a run."""
    return SparkLost(
        "the JVM of Spark ended in mid-run: the kernel ends it where a machine or container is "
        f"out of memory, and it ends itself when its heap is full. {_MORE_MEMORY}"
    )


def is_of_spark(error: Exception) -> bool:
    """Whether Spark or Py4J raised this error."""
    return isinstance(error, _of_spark("Py4JError", "PySparkException"))


def _of_spark(*names: str) -> tuple[type[Exception], ...]:
    """Error classes with these names, from imported modules: others cannot raise errors."""
    modules = [sys.modules.get(name) for name in ("py4j.protocol", "pyspark.errors")]
    found = (getattr(module, name, None) for module in modules for name in names)
    return tuple(one for one in found if one is not None)


def explain_failure(error: Exception, path: str) -> PelopsError:
    """The error to raise for a failed write of `path`."""
    if isinstance(error, RedisStreamsError):
        return StageFailed(f"{path} could not be written: {type(error).__name__}: {error}")
    text = _text(error)
    if _NO_HEAP in text:
        return SparkLost(f"Java's heap is full. {_MORE_MEMORY}")
    meaning = _meaning(text)
    if meaning is not None:
        return ArchiveUnusable(f"cannot write {path}: {meaning}")
    full = _NO_ROOM.search(text)
    if full is not None:
        line = full.group(0).strip()[:_LONGEST]
        if _OF_LOCAL_FILES.search(text):
            where = os.environ.get("SPARK_LOCAL_DIRS", "the directory of spark.local.dir")
            path = f"the temporary files of Spark in {where}"
        trouble = explain_trouble(line)
        return ArchiveUnusable(
            f"cannot write {path}: {line if trouble is None else f'{trouble}: {line}'}"
        )
    worker = _OF_WORKER.search(text)
    reason = worker.group(1) if worker else first_line(error)
    return StageFailed(f"{path} could not be written: {reason[:_LONGEST]}")


def first_line(error: Exception) -> str:
    """The first line of an error, without the stack trace; of a Java error, its own message."""
    java: Any = getattr(error, "java_exception", None)
    text = str(java.toString() if java is not None else error)
    return next(iter(text.strip().splitlines()), type(error).__name__)


def _meaning(text: str) -> str | None:
    """The explanation of a store's message, with its line; None if there is no match."""
    for pattern, sentence in _OF_STORES:
        found = re.search(f"[^\n]*(?:{pattern})[^\n]*", text)
        if found is not None:
            return f"{sentence}: {found.group(0).strip()[:_LONGEST]}"
    return None


def _text(error: Exception) -> str:
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    parts = [str(error)]
    while java is not None and len(parts) < 20:
        parts.append(str(java.toString()))
        java = java.getCause()
    return "\n".join(parts)
