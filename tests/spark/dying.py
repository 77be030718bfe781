"""A Python worker that is killed while it reads."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_redis_streams import DefaultSource


def dying_source(marker: Path, *, after: int = 2) -> type[DefaultSource]:
    """The data source, one of whose Python workers is killed once, after so many batches."""

    def die_once(reader: Any) -> Any:
        class Dying(type(reader)):  # type: ignore[misc]
            def read(self, partition: InputPartition) -> Iterator[Any]:
                for number, batch in enumerate(super().read(partition)):
                    yield batch
                    if number == after - 1 and not marker.exists():
                        marker.touch()
                        os.kill(os.getpid(), signal.SIGKILL)

        reader.__class__ = Dying
        return reader

    class DyingSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "dying_redis_streams"

        def reader(self, schema: StructType) -> DataSourceReader:
            dying: DataSourceReader = die_once(super().reader(schema))
            return dying

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            dying: DataSourceStreamReader = die_once(super().streamReader(schema))
            return dying

    return DyingSource
