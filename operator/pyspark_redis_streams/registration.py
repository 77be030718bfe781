"""Makes Spark find the data source, however the program's Python was started.

Spark looks up data sources in a separate Python process and reads in others. It starts them with
PYSPARK_PYTHON, else with `python3` from PATH. If a program runs as `venv/bin/python` in an
environment that is not activated, `python3` is another Python without this package.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYTHON: Final = "PYSPARK_PYTHON"
_CHOICES: Final = (_PYTHON, "PYSPARK_DRIVER_PYTHON")  # set by the user who starts Spark
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, which runs Java already


def register(spark: SparkSession) -> None:
    """Register `redis_streams` in a session that does not find it by itself.

    Python workers of a local session then read with this program's interpreter. A server of Spark
    Connect must have this package installed, and then finds it without this call.
    """
    from pyspark_redis_streams.source import DefaultSource

    with _this_python(getattr(spark, "sparkContext", None)):
        spark.dataSource.register(DefaultSource)


def prefer_this_python() -> None:
    """Set PYSPARK_PYTHON to this interpreter if Spark would start another one.

    Spark reads the variable when a session begins. If one runs already, a warning names a fix.
    """
    if any(name in os.environ for name in (*_CHOICES, _SUBMITTED)) or not _is_another(_default()):
        return
    if _running_context() is None:
        os.environ[_PYTHON] = sys.executable
        return
    warnings.warn(
        f"Spark runs already, and starts its Python workers as '{_default()}', not as"
        f" '{sys.executable}', so it may not find 'redis_streams' (DATA_SOURCE_NOT_FOUND). Call"
        " pyspark_redis_streams.register(spark), or import pyspark_redis_streams before the"
        " session begins",
        stacklevel=3,
    )


@contextmanager
def _this_python(context: Any) -> Iterator[None]:
    """Data sources registered in the block run with this interpreter, in a local session only.

    `context` is None in a session of Spark Connect.
    """
    if context is None or not context.master.startswith("local") or not _is_default(context):
        yield
        return
    before = context.pythonExec
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


def _is_default(context: Any) -> bool:
    return context.pythonExec == "python3" and _is_another(_default())


def _default() -> str:
    return shutil.which("python3") or "python3"


def _is_another(python: str) -> bool:
    """Whether a Python is of another environment: links to one file can be of different ones."""
    return os.path.realpath(os.path.dirname(python)) != os.path.realpath(
        os.path.dirname(sys.executable)
    )


def _running_context() -> Any:
    if "pyspark" not in sys.modules:
        return None
    try:
        from pyspark import SparkContext
    except ImportError:  # the package of the Spark Connect client does not have it
        return None
    return SparkContext._active_spark_context
