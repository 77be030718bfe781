"""A streaming query that ends, and what it has written so far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.streams import Streams


class Query:
    """A query that copies streams to Parquet, run as often as a test likes."""

    def __init__(self, spark: SparkSession, streams: Streams, folder: Path) -> None:
        self._spark = spark
        self._streams = streams
        self._folder = folder

    def run(self, **options: Any) -> list[int]:
        """Read what there is; answers the sizes of the micro-batches."""
        query = self.start(**options)
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def start(self, **options: Any) -> StreamingQuery:
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
