"""A Spark data source for Redis Streams: read with XRANGE, so that reading again is harmless.

Installed beside PySpark, `spark.read.format("redis_streams")` finds it by itself. Where a program
runs in a virtual environment that is not activated, import this package before the session begins,
or call `register`.
"""

from importlib.util import find_spec

if find_spec("pyspark.sql.datasource") is None:
    from pyspark import __version__ as _installed

    raise ImportError(
        f"pyspark_redis_streams needs PySpark 4.0 or later, and this is {_installed}, which has no"
        " Python data sources"
    )

from pyspark_redis_streams.registration import prefer_this_python, register
from pyspark_redis_streams.source import DefaultSource

prefer_this_python()

__all__ = ["DefaultSource", "register"]
