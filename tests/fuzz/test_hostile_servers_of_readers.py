"""As `test_hostile_servers`, for the data source (reads, streams, writes) and the pipeline."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType
from redis import Redis

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.endpoint import build_endpoint
from pelops.pipeline.archive.redis_reader import RedisReader
from pelops.pipeline.settings import RedisPlace
from pyspark_redis_streams.errors import RedisStreamsError
from pyspark_redis_streams.micro_batch.reader import RedisStreamReader
from pyspark_redis_streams.options.option import Use
from pyspark_redis_streams.options.parsed import parse_read_options, parse_write_options
from pyspark_redis_streams.sink import BatchWriter
from pyspark_redis_streams.views.entries import EntriesReader
from pyspark_redis_streams.views.rows import (
    ConsumersReader,
    GroupsReader,
    PendingReader,
    StreamsReader,
)
from tests.fuzz.hostile_server import HostileServer, Tls, hostile_thread
from tests.fuzz.tally import SEED, Tally, also_in_full, replies_of
from tests.fuzz.test_hostile_servers import LONGEST_S, MIB, resident_bytes

STREAM: Final = "orders"
GROUP: Final = "g"
_COLUMNS: Final = {
    "entries": ("stream id", ""),
    "streams": ("stream last_generated_id first_id", "length entries_added groups"),
    "groups": ("stream group last_delivered_id", "consumers pending entries_read lag"),
    "consumers": ("stream group consumer", "pending idle_ms inactive_ms"),
    "pending": ("stream group id consumer", "ms seq idle_ms delivery_count"),
}
_QUICK: Final = {"connectTimeoutMs": "200", "readTimeoutMs": "150", "numRetries": "1"}


_NUMBERS: Final = StructType().add("number", LongType())
_NOWHERE: Final = build_endpoint(url="redis://unused:1")


def schema_of(view: str) -> StructType:
    texts, numbers = _COLUMNS[view]
    schema = StructType()
    for name in texts.split():
        schema = schema.add(name, StringType())
    for name in numbers.split():
        schema = schema.add(name, LongType())
    return schema


def queries_of(options: dict[str, str]) -> dict[str, Callable[[], object]]:
    """A write, and micro-batches of streaming queries."""

    def write() -> object:
        """Two chunks, then the look whether they are still there."""
        given = parse_write_options(options | {"entriesPerCall": "20", "writeId": "nightly"})
        writer = BatchWriter(_NUMBERS, given, overwrite=False)
        rows = pa.record_batch({"number": range(40)})
        writer.commit([writer.write(iter([rows]))])
        return None

    def stream(**more: str) -> Callable[[], object]:
        """One micro-batch, as driver and tasks take it."""

        def read() -> object:
            given = parse_read_options(options | {"startingId": "earliest"} | more, Use.STREAM)
            reader = RedisStreamReader(schema_of("entries"), given)
            try:
                start = reader.initialOffset()
                if "minEntriesPerTrigger" in more:
                    reader.prepareForTriggerAvailableNow()
                end = reader.latestOffset(start, reader.getDefaultReadLimit())
                reader.reportLatestOffset()
                reader.latestOffset(end, reader.getDefaultReadLimit())
                return [list(reader.read(part)) for part in reader.partitions(start, end)]
            finally:
                reader.stop()

        return read

    return {
        "write": write,
        "micro-batch": stream(),
        "limited": stream(maxEntriesPerTrigger="7", progressGroup="shown"),
        "estimated": stream(maxEntriesPerTrigger="9", limitMode="estimate"),
        "available": stream(minEntriesPerTrigger="5", failOnDataLoss="false"),
    }


def calls_of(options: dict[str, str]) -> dict[str, Callable[[], object]]:
    """Every read of the data source, and what the pipeline asks."""

    def view(kind: Any, name: str, **more: str) -> Callable[[], object]:
        def read() -> object:
            given = parse_read_options(options | more | {"view": name}, Use.READ)
            reader = kind(schema_of(name), given)
            return [list(reader.read(part)) for part in reader.partitions()]

        return read

    def ask(question: Callable[[RedisReader], object]) -> Callable[[], object]:
        def read() -> object:
            reader = RedisReader(RedisPlace(endpoint=_NOWHERE, options=options))
            try:
                return question(reader)
            finally:
                reader.close()

        return read

    by_pattern = {key: value for key, value in options.items() if key != "stream"}

    def find() -> object:
        given = parse_read_options(by_pattern | {"streamPattern": "*", "view": "streams"}, Use.READ)
        reader = StreamsReader(schema_of("streams"), given)
        return [list(reader.read(part)) for part in reader.partitions()]

    return {
        **queries_of(options),
        "entries": view(EntriesReader, "entries"),
        "pages": view(EntriesReader, "entries", pageSize="7", minPartitions="3"),
        "streams": view(StreamsReader, "streams"),
        "groups": view(GroupsReader, "groups"),
        "consumers": view(ConsumersReader, "consumers"),
        "pending": view(PendingReader, "pending", group=GROUP),
        "find": find,
        "stream": ask(lambda reader: reader.stream(STREAM)),
        "group": ask(lambda reader: reader.groups(STREAM)),
        "given": ask(lambda reader: reader.given_ms(STREAM, GROUP)),
        "server": ask(lambda reader: reader.server(STREAM)),
        "now": ask(lambda reader: reader.now_ms(STREAM)),
    }


def options_at(host: HostileServer, topology: str, tls: Tls | None) -> dict[str, str]:
    options = _QUICK | {"stream": STREAM, "topology": topology}
    if tls is not None:
        options |= {"topology": "standalone", "tls": "true", "tlsCaFile": str(tls.ca)}
    if topology == "sentinel":
        return options | {"sentinels": f"127.0.0.1:{host.port}", "sentinelMaster": "m"}
    return options | {"host": "127.0.0.1", "port": str(host.port)}


@pytest.mark.parametrize("topology", also_in_full("standalone", "cluster", "sentinel", "tls"))
@pytest.mark.parametrize("replies", replies_of(120, 5_000))
def test_no_reply_breaks_a_reader_or_a_writer(
    redis_86: StandaloneServers, tmp_path: Path, topology: str, replies: int, tally: Tally
) -> None:
    redis_86.flush()
    port = redis_86.master().port
    with Redis(port=port) as redis:
        for _ in range(60):
            redis.xadd(STREAM, {"f": "v"})
        redis.xgroup_create(STREAM, GROUP, "0")
        redis.xreadgroup(GROUP, "c", {STREAM: ">"}, count=30)
    rng = random.Random(SEED)
    ends: Counter[str] = Counter()
    tls = Tls.make(tmp_path) if topology == "tls" else None
    with hostile_thread(port, SEED, tls) as host:
        host.is_cluster = topology == "cluster"
        calls = calls_of(options_at(host, topology, tls))
        resident = 0
        while host.count < replies:
            for name in rng.sample(sorted(calls), len(calls)):
                host.spoils = rng.choice((0.0, 0.2, 0.6, 1.0))
                began = time.monotonic()
                try:
                    calls[name]()
                    ends["done"] += 1
                except RedisStreamsError as error:
                    assert len(str(error)) < 3000
                    ends[type(error).__name__] += 1
                except Exception:
                    print(f"FUZZ_SEED={SEED} {topology} {name} after {host.count} replies")
                    raise
                assert time.monotonic() - began < 2 * LONGEST_S, name
            resident = resident or resident_bytes()
        assert resident_bytes() - resident < 64 * MIB
    tally("replies", host.count, f"data source, {topology}", ends)
    assert ends["ServerError"] > 0
