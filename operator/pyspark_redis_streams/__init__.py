"""A Spark data source for Redis Streams: read with XRANGE, so that reading again is harmless.

Installed beside PySpark, `spark.read.format("redis_streams")` finds it by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_redis_streams.source import DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    # PySpark takes half a second to import, and what only asks Redis needs none of it.
    if name == "DefaultSource":
        from pyspark_redis_streams.source import DefaultSource

        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
