"""The parts of the Python Data Source API that the installed PySpark supports.

4.0: batch reads and writes, streaming reads, streaming writes of rows. 4.1: streaming writes of
Arrow batches. 4.2: Spark passes the start and the limit of a micro-batch to a streaming read. Names
that a version does not have are defined here, and the other modules import them from here.
"""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_redis_streams.errors import OptionError
from pyspark_redis_streams.options.parsed import ReadOptions

HAS_STREAM_BATCHES: Final = hasattr(datasource, "DataSourceStreamArrowWriter")  # 4.1
HAS_LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None  # 4.2

# Before 4.2 the function does not have this parameter, and always returns timestamps in UTC.
_ZONE: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """Never instantiated: before 4.2 Spark passes no limits."""

    class ReadAllAvailable(ReadLimit):
        """As above."""

    class ReadMaxRows(ReadLimit):
        """As above."""

    class SupportsTriggerAvailableNow:
        """Before 4.2 such a query has one micro-batch: Spark calls `latestOffset` once."""


if TYPE_CHECKING or HAS_STREAM_BATCHES:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(
        datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter
    ):
        """4.0 passes Arrow batches to every writer that is a `DataSourceArrowWriter`."""


__all__ = [
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects from a read with this schema; timestamps are in UTC."""
    return to_arrow_schema(schema, **_ZONE)


def refuse_what_spark_lacks(options: ReadOptions) -> None:
    """Raise OptionError for an option of a streaming read that this PySpark does not support."""
    if HAS_LIMITS:
        return
    given = {
        "maxEntriesPerTrigger": options.max_entries_per_trigger,
        "minEntriesPerTrigger": options.min_entries_per_trigger,
        "progressGroup": options.progress_group,
    }
    for name, value in given.items():
        if value is not None:
            raise OptionError(
                f"option '{name}' requires PySpark 4.2 or later, and this is {pyspark.__version__}."
                " Upgrade PySpark, or remove the option: a micro-batch then takes all entries"
            )
