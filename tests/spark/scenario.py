"""What each version of PySpark must do: `python scenario.py run JSON`, with any of them.

It needs pyspark, pyarrow, redis and the package `pyspark_redis_streams`, nothing else. The answers
are printed as one line of JSON, the last one. `python scenario.py serve PORT` is a server of Spark
Connect, which SPARK_REMOTE names to the other.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

FIRST_MS = 1_700_000_000_000
COLUMNS = (
    "number BIGINT, amount DECIMAL(10, 2), paid BOOLEAN, at TIMESTAMP,"
    " address STRUCT<city: STRING>, tags ARRAY<STRING>"
)


class Scenario:
    """A session, a server, and names of streams."""

    def __init__(self, spark: SparkSession, given: dict[str, Any]) -> None:
        self.spark = spark
        self.directory = Path(given["directory"])
        self.client = redis.Redis(port=given["port"], decode_responses=True)
        self.options = {"port": str(given["port"]), "numRetries": "3"}
        self._prefix = given["prefix"]

    def name(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def fill(self, name: str, first: int, end: int) -> str:
        """Add the entries of these numbers, one in each millisecond."""
        calls = self.client.pipeline(transaction=False)
        for number in range(first, end):
            fields: dict[Any, Any] = {
                "number": number,
                "amount": f"{number}.25",
                "paid": "true",
                "at": "2026-02-28T12:00:00Z",
                "address": '{"city": "Athens"}',
                "tags": '["a", "b"]',
            }
            calls.xadd(self.name(name), fields, f"{FIRST_MS + number}-0")
        calls.execute()
        return self.name(name)

    def read(self, name: str, **options: Any) -> DataFrame:
        reader = self.spark.read.format("redis_streams").options(**self.options, **options)
        return reader.load(self.name(name))

    def read_stream(self, name: str, **options: Any) -> DataFrame:
        given = {"startingId": "earliest"} | options
        reader = self.spark.readStream.format("redis_streams").options(**self.options, **given)
        return reader.schema("id STRING, number BIGINT").load(self.name(name))

    def copy(self, frame: DataFrame, target: str) -> list[int]:
        """Copy to Parquet what there is; how many rows and micro-batches that makes so far."""
        writing = frame.writeStream.format("parquet").option("path", str(self.directory / target))
        writing = writing.option("checkpointLocation", str(self.directory / f"{target}-offsets"))
        writing.trigger(availableNow=True).start().awaitTermination()
        commits = (self.directory / f"{target}-offsets" / "commits").glob("[0-9]*")
        return [self.copied(target)[0], len(list(commits))]

    @contextmanager
    def running(self, frame: DataFrame, target: str) -> Iterator[Any]:
        """A query that runs until the block ends, to the same place."""
        writing = frame.writeStream.format("parquet").option("path", str(self.directory / target))
        writing = writing.option("checkpointLocation", str(self.directory / f"{target}-offsets"))
        query = writing.trigger(processingTime="100 milliseconds").start()
        try:
            yield query
        finally:
            query.stop()

    def copied(self, target: str) -> list[int]:
        """How many rows there are, and of how many entries."""
        frame = self.spark.read.parquet(str(self.directory / target))
        [row] = frame.selectExpr("count(*)", "count(DISTINCT id)").collect()
        return list(row)


def read_columns(scene: Scenario) -> list[Any]:
    scene.fill("orders", 0, 1000)
    frame = scene.read("orders", columns=COLUMNS, minPartitions=4)
    [row] = frame.selectExpr(
        "count(*)",
        "sum(number)",
        "CAST(sum(amount) AS STRING)",
        "count_if(paid)",
        "CAST(max(at) AS STRING)",
        "min(address.city)",
        "max(size(tags))",
        "CAST(min(ts) AS STRING)",
    ).collect()
    return list(row)


def read_fields(scene: Scenario) -> list[Any]:
    frame = scene.read("orders").where("seq = 0")
    [row] = frame.selectExpr("count(*)", "sum(CAST(fields['number'] AS BIGINT))").collect()
    return list(row)


def read_views(scene: Scenario) -> list[Any]:
    scene.client.xgroup_create(scene.name("orders"), "billing", "0")
    scene.client.xreadgroup("billing", "one", {scene.name("orders"): ">"}, count=7)
    [group] = scene.read("orders", view="groups").select("group", "pending", "lag").collect()
    [consumer] = scene.read("orders", view="consumers").select("consumer", "pending").collect()
    pending = scene.read("orders", view="pending", group="billing").count()
    [stream] = scene.read("orders", view="streams").select("length", "entries_added").collect()
    return [*group, *consumer, pending, *stream]


def stream_what_there_is(scene: Scenario) -> list[Any]:
    """From a checkpoint, the next query continues where the last one ended."""
    scene.fill("available", 0, 600)
    first = scene.copy(scene.read_stream("available"), "available")
    nothing = scene.copy(scene.read_stream("available"), "available")
    scene.fill("available", 600, 1000)
    second = scene.copy(scene.read_stream("available"), "available")
    return [first, nothing, second, scene.copied("available")]


def stream_what_comes(scene: Scenario) -> list[int]:
    """A query that runs on and is started again; it begins behind what there is."""
    scene.fill("coming", 0, 50)
    for first in (50, 80):
        scene.fill("coming", max(50, first - 10), first)  # while no query runs
        with scene.running(scene.read_stream("coming", startingId="latest"), "coming") as query:
            query.processAllAvailable()
            for start in (first, first + 10):
                scene.fill("coming", start, start + 10)
                query.processAllAvailable()
    return scene.copied("coming")


def stream_with_a_limit(scene: Scenario) -> Any:
    scene.fill("limited", 0, 500)
    frame = scene.read_stream("limited", maxEntriesPerTrigger=200)
    return _or_complaint(lambda: scene.copy(frame, "limited"))


def progress_of_a_stream(scene: Scenario) -> list[Any]:
    """The end of the stream in the progress of a query, and the lag that follows from it."""
    from pyspark_redis_streams.lag import lag_of

    name = scene.fill("behind", 0, 50)
    with scene.running(scene.read_stream("behind"), "behind") as query:
        query.processAllAvailable()
        progress = json.loads(query.lastProgress.json)
    shown = progress["sources"][0]["latestOffset"]
    ends = json.loads(shown) if isinstance(shown, str) else shown  # text through Spark Connect
    return [ends[name]["added"], list(lag_of(progress).values())]


def write_rows(scene: Scenario) -> list[Any]:
    """The same write twice: under one name, the rows are appended once."""
    rows = [
        Row(number=n, text=None if n % 2 else "é", data=b"\xff", both=Row(a=n, b=[n]))
        for n in range(100)
    ]
    schema = "number BIGINT, text STRING, data BINARY, both STRUCT<a: BIGINT, b: ARRAY<BIGINT>>"
    frame = scene.spark.createDataFrame(rows, schema)
    for _ in range(2):
        writer = frame.write.format("redis_streams").options(**scene.options, writeId="once")
        writer.mode("append").save(scene.name("written"))
    raw = redis.Redis(port=int(scene.options["port"]))
    entries: Any = raw.xrange(scene.name("written"))
    by_number = sorted((int(f[b"number"]), f) for _, f in entries)
    _, first = by_number[0]
    return [
        scene.client.xlen(scene.name("written")),
        {name.decode(): repr(value) for name, value in sorted(first.items())},
        sorted(name.decode() for name in by_number[1][1]),
    ]


def write_stream(scene: Scenario) -> list[int]:
    """From a stream to a stream, by two queries from one checkpoint."""
    lengths = []
    for first in (0, 300):
        scene.fill("source", first, first + 300)
        numbers = scene.read_stream("source").select("number")  # a new entry gets a new ID
        writing = numbers.writeStream.format("redis_streams")
        writing = writing.options(**scene.options, stream=scene.name("target"))
        writing = writing.option("checkpointLocation", str(scene.directory / "target-offsets"))
        writing.trigger(availableNow=True).start().awaitTermination()
        lengths.append(scene.client.xlen(scene.name("target")))
    entries: Any = scene.client.xrange(scene.name("target"))
    return [*lengths, len({fields["number"] for _, fields in entries})]


def _or_complaint(action: Callable[[], Any]) -> Any:
    """What it answers, or the line that says why the source refused."""
    try:
        return action()
    except PySparkException as error:
        lines = [line for line in str(error).splitlines() if "OptionError: " in line]
        if not lines:
            raise
        return lines[0].partition("OptionError: ")[2]


STEPS = (
    read_columns,
    read_fields,
    read_views,
    stream_what_there_is,
    stream_what_comes,
    stream_with_a_limit,
    progress_of_a_stream,
    write_rows,
    write_stream,
)


def open_session() -> SparkSession:
    """A small local session; where the environment has SPARK_REMOTE, one of that server."""
    if "SPARK_REMOTE" in os.environ:
        return SparkSession.builder.getOrCreate()
    return open_local()


def open_local(**more: str) -> SparkSession:
    """A small local session, classic, whose workers run with this interpreter."""
    import pyspark_redis_streams  # noqa: F401

    options: dict[str, Any] = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }
    return SparkSession.builder.master("local[2]").config(map=options | more).getOrCreate()


def serve(port: str) -> None:
    """Be a server of Spark Connect until the input ends."""
    name = "spark.connect.grpc.binding.port"
    plugin = "org.apache.spark.sql.connect.SparkConnectPlugin"
    spark = open_local(**{"spark.plugins": plugin, name: port})
    print("ready", flush=True)
    sys.stdin.read()
    spark.stop()


def run(text: str) -> None:
    given = json.loads(text)
    spark = open_session()
    scene = Scenario(spark, given)
    answers = {step.__name__: step(scene) for step in STEPS}
    spark.stop()
    print(json.dumps(answers))


if __name__ == "__main__":
    {"run": run, "serve": serve}[sys.argv[1]](sys.argv[2])
