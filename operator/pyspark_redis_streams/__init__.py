"""A Spark data source for Redis Streams: read with XRANGE, so that reading again is harmless.

Installed beside PySpark, `spark.read.format("redis_streams")` finds it by itself.
"""

from pyspark_redis_streams.source import DefaultSource

__all__ = ["DefaultSource"]
