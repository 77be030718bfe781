"""The data source with something that happens at a certain step of a streaming read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_redis_streams import DefaultSource
from pyspark_redis_streams.micro_batch.reader import RedisStreamReader


def interrupted_source(
    folder: Path, port: int, *, planned: list[str], begun: list[str] | None = None
) -> type[DefaultSource]:
    """The data source, named `interrupted_redis_streams`.

    Redis is given a command once a micro-batch is planned, and another one when it is known where
    the query begins: each once for this folder.
    """

    def once(step: str, command: list[str] | None) -> None:
        marker, client = folder / step, redis.Redis(port=port)
        if command is not None and not marker.exists():
            marker.touch()
            execute: Any = client.execute_command
            execute(*command)

    class Interrupted(RedisStreamReader):
        def initialOffset(self) -> dict[str, Any]:  # noqa: N802
            begin = super().initialOffset()
            once("begun", begun)
            return begin

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            found = super().partitions(start, end)
            once("planned", planned)
            return found

    class InterruptedSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "interrupted_redis_streams"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            reader = super().streamReader(schema)
            reader.__class__ = Interrupted
            return reader

    return InterruptedSource
