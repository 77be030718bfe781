"""A Spark data source for Redis Streams. It reads with XRANGE, so that reads can be repeated.

If it is installed in the same environment as PySpark, `spark.read.format("redis_streams")` finds
it. If the program runs in a virtual environment that is not activated, import this package before
the session begins, or call `register`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_redis_streams.registration import prefer_this_python, register

if TYPE_CHECKING:
    from pyspark_redis_streams.source import DefaultSource

__all__ = ["DefaultSource", "register"]


def __getattr__(name: str) -> Any:
    # Importing PySpark takes half a second, and code that only reads Redis does not need it.
    if name == "DefaultSource":
        from pyspark_redis_streams.source import DefaultSource

        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _require_data_sources() -> None:
    """Raise ImportError if PySpark is missing, or too old for Python data sources.

    PySpark is imported only for its version in the error message.
    """
    spec = find_spec("pyspark")
    if spec is None:
        raise ModuleNotFoundError(
            "pyspark_redis_streams needs PySpark 4.0 or later, and this Python"
            f" ({sys.executable}) has none. Use the Python of your Spark cluster, or install"
            " PySpark: pip install 'pyspark-redis-streams[spark]'",
            name="pyspark",
        )
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    if any(place.is_dir() and not (place / "sql/datasource.py").exists() for place in places):
        from pyspark import __version__

        raise ImportError(
            f"pyspark_redis_streams needs PySpark 4.0 or later, and this is {__version__}, which"
            " has no Python data sources"
        )


_require_data_sources()
prefer_this_python()
