"""A streaming query that ends, and what it has written so far."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.streams import Streams

STARTS: Final = 5


def finish(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query that `start` starts, once it has ended.

    Spark gives the process of a source 10 s to start, and on a busy machine that is not always
    enough: such a query is started again.
    """
    for starts_left in reversed(range(STARTS)):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not starts_left or "failed to connect back" not in str(error):
                raise
        else:
            break
    return query


class Query:
    """A query that copies streams to Parquet, run as often as a test likes."""

    def __init__(self, spark: SparkSession, streams: Streams, folder: Path) -> None:
        self._spark = spark
        self._streams = streams
        self._folder = folder

    def run(self, **options: Any) -> list[int]:
        """Read what there is; answers the sizes of the micro-batches."""
        query = self.finish(**options)
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def finish(self, **options: Any) -> StreamingQuery:
        """The query, once it has read what there is."""
        return finish(lambda: self._start(**options))

    def _start(self, **options: Any) -> StreamingQuery:
        if not {"streams", "streamPattern"} & options.keys():
            options["stream"] = self._streams.name()
        options = {"startingId": "earliest"} | self._streams.options | options
        reader = self._spark.readStream.format("redis_streams").options(**options)
        frame = reader.schema("stream STRING, id STRING").load()
        writer = frame.writeStream.option("checkpointLocation", str(self._folder / "checkpoint"))
        writer = writer.format("parquet").option("path", str(self._folder / "out"))
        return writer.trigger(availableNow=True).start()

    def ids(self) -> list[str]:
        frame = self._spark.read.schema("stream STRING, id STRING").parquet(
            str(self._folder / "out")
        )
        return sorted(row.id for row in frame.collect())

    def offset(self) -> dict[str, Any]:
        """The last offset of the checkpoint."""
        files = [f for f in (self._folder / "checkpoint" / "offsets").iterdir() if f.name.isdigit()]
        newest = max(files, key=lambda file: int(file.name))
        offset: dict[str, Any] = json.loads(newest.read_text().splitlines()[-1])
        return offset
