"""Writes while servers lose data, fail over and restart, and rows that no producer would send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructType

from local_cluster.redis_servers import (
    ClusterServers,
    SentinelServers,
    ServerOptions,
    StandaloneServers,
)
from pyspark_redis_streams import DefaultSource
from pyspark_redis_streams.errors import BadValue, DataLoss, NotPermitted, ServerError
from pyspark_redis_streams.options.parsed import WriteOptions, parse_write_options
from pyspark_redis_streams.sink import (
    MOST_PARTS,
    Appended,
    BatchWriter,
    append_all,
    check_kept,
)
from tests.redis_fixtures import RunRedis
from tests.spark.streams import Streams

pytestmark = pytest.mark.full

ROWS = 1000
SCHEMA = StructType().add("number", LongType())
ODD = "\U0001f600 new\nline %41 : {} / .. \\ * ? [a], ' \" é}"
LONG = "é%" * 100  # 300 bytes


def rows(*, amid: Callable[[], object] | None = None, at: int = 500) -> Iterator[pa.RecordBatch]:
    """A thousand numbered rows; something happens before one of them."""
    for start in range(0, ROWS, 100):
        if start == at and amid is not None:
            amid()
        yield pa.record_batch({"number": range(start, start + 100)})


def options_of(server: dict[str, str], **more: str) -> WriteOptions:
    patient = {"numRetries": "40", "retryIntervalMs": "100", "entriesPerCall": "100"}
    return parse_write_options(patient | server | {"stream": "orders"} | more)


def append(options: WriteOptions, batches: Iterator[pa.RecordBatch] | None = None) -> Appended:
    return append_all(rows() if batches is None else batches, SCHEMA, options, "tuesday")


def numbers(client: redis.Redis, stream: str = "orders") -> list[int]:
    found: Any = client.xrange(stream)
    return [int(fields[b"number"]) for _, fields in found]


@pytest.mark.parametrize("kept", ["always", None])
def test_after_a_restart_amid_a_write_lost_rows_are_reported(
    run_redis: RunRedis, kept: str | None
) -> None:
    servers = run_redis(options=ServerOptions(append_only=kept))
    assert isinstance(servers, StandaloneServers)
    options = options_of({"port": str(servers.server.port)})

    def restart() -> None:
        servers.server.kill()
        servers.server.start()

    with redis.Redis(port=servers.server.port) as client:
        if kept:
            check_kept([append(options, rows(amid=restart))], options)
        else:
            with pytest.raises(DataLoss, match="restarted without its data"):
                append(options, rows(amid=restart))
            # As Spark does it: the task runs again, and appends what is missing.
            check_kept([append(options)], options)
        assert numbers(client) == list(range(ROWS))


def test_rows_that_are_gone_when_the_write_ends_are_reported(run_redis: RunRedis) -> None:
    servers = run_redis()
    options = options_of({"port": str(servers.master().port)})
    with redis.Redis(port=servers.master().port) as client:
        done = append(options)
        client.flushall()
        with pytest.raises(DataLoss, match="has lost entries that this write had appended"):
            check_kept([done, None], options)
        again = append(options)
        assert (again.entries, again.repeated) == (ROWS, 0)
        # Trimming and deleting are the owner's decisions: nothing is appended twice for them.
        client.xtrim("orders", maxlen=0, approximate=False)
        check_kept([again], options)
        assert append(options).repeated == ROWS


def test_a_failover_amid_a_write_loses_and_doubles_nothing_in_silence(
    empty_sentinel: SentinelServers,
) -> None:
    servers = empty_sentinel
    nodes = ",".join(f"{host}:{port}" for host, port in servers.sentinel_nodes)
    sentinel = {"topology": "sentinel", "sentinels": nodes,
                "sentinelMaster": servers.sentinel_master or ""}  # fmt: skip
    options = options_of(sentinel)
    append(options, rows(amid=servers.failover))
    with redis.Redis(port=servers.master().port) as client:
        assert numbers(client) == list(range(ROWS))
        client.delete("orders", "{orders}:appended:tuesday")
        client.wait(2, 10_000)
        master, before = servers.master(), servers.master_address()

    def part() -> None:
        master.cli("ACL", "SETUSER", "default", "-psync", "-sync", "-replconf")
        master.cli("CLIENT", "KILL", "TYPE", "replica")

    def lose() -> None:
        master.kill()
        servers.await_failover(before)

    def both() -> Iterator[pa.RecordBatch]:
        for start, batch in enumerate(rows()):
            for at, act in ((3, part), (6, lose)):
                if start == at:
                    act()
            yield batch

    with pytest.raises(DataLoss, match="a failover came before"):
        append(options, both())
    done = append(options)
    assert (done.entries, done.repeated) == (ROWS, 300)
    with redis.Redis(port=servers.master().port) as client:
        assert numbers(client) == list(range(ROWS))


def test_two_runs_of_one_write_at_once_append_each_row_once(run_redis: RunRedis) -> None:
    servers = run_redis()
    options = options_of({"port": str(servers.master().port)}, entriesPerCall="7")
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: append(options), range(2)))
    with redis.Redis(port=servers.master().port) as client:
        assert numbers(client) == list(range(ROWS))
    assert sum(one.repeated for one in done) == ROWS


@pytest.mark.parametrize("stream", [ODD, LONG, "a}b", "{}", "{}{tag}", "}{"])
def test_a_stream_of_any_name_is_written_in_its_slot(
    spark: SparkSession, empty_cluster: ClusterServers, stream: str
) -> None:
    port = empty_cluster.masters()[0].port
    options = options_of(
        {"topology": "cluster", "host": "127.0.0.1", "port": str(port)}, stream=stream
    )
    done = append(options)
    check_kept([done], options)
    with redis.RedisCluster(host="127.0.0.1", port=port) as client:
        assert client.xlen(stream) == ROWS


def test_large_rows_take_small_calls_and_wide_rows_are_refused_first(
    streams: Streams,
) -> None:
    options = parse_write_options(streams.options | {"stream": streams.name()})
    schema = StructType().add("fields", MapType(StringType(), BinaryType()))

    def fields(*rows: dict[str, bytes]) -> Iterator[pa.RecordBatch]:
        kind = pa.map_(pa.string(), pa.binary())
        yield pa.record_batch({"fields": pa.array([list(row.items()) for row in rows], kind)})

    large = [{"a": b"\xff" * 1_000_000, "": b""} for _ in range(5)]
    wide = {f"f{number}": b"x" for number in range(MOST_PARTS // 2)}
    before = _calls(streams)
    append_all(fields(*large, wide), schema, options, "large")
    assert _calls(streams) - before == 6
    kept = streams.entries()
    assert [len(one) for _, one in kept] == [2] * 5 + [MOST_PARTS // 2]
    assert kept[0][1] == {b"a": b"\xff" * 1_000_000, b"": b""}
    with pytest.raises(BadValue, match=r"has 10000 fields, .* can have 3500"):
        append_all(fields({"a": b"1"}, {f"f{n}": b"" for n in range(10_000)}), schema, options, "w")
    assert len(streams.entries()) == 6


def _calls(streams: Streams) -> int:
    reported: Any = streams.client.info("commandstats")
    return int(reported.get("cmdstat_eval", {"calls": 0})["calls"])


def test_a_server_without_memory_is_a_clear_error_between_calls(
    run_redis: RunRedis,
) -> None:
    servers = run_redis(options=ServerOptions(config={"maxmemory-policy": "noeviction"}))
    options = options_of({"port": str(servers.master().port)})
    with redis.Redis(port=servers.master().port) as client:
        with pytest.raises(ServerError, match=r"^EVAL orders at .* was refused: .*maxmemory"):
            append(options, rows(amid=lambda: client.config_set("maxmemory", "1")))
        assert numbers(client) == list(range(500))
        client.config_set("maxmemory", "0")
        append(options)
        assert numbers(client) == list(range(ROWS))


def test_the_rights_that_the_documentation_names_are_enough_to_write(run_redis: RunRedis) -> None:
    servers = run_redis()
    rights = ["+eval", "+xadd", "+xtrim", "+hget", "+hset", "+expire"]
    servers.acl_setuser("writer", "on", ">pass", "resetkeys", "~orders*", "~{orders}*", *rights)
    port = {"port": str(servers.master().port), "username": "writer", "password": "pass"}
    options = options_of(port, maxLen="5000")
    check_kept([append(options)], options)
    servers.acl_setuser("writer", "-xtrim")
    with pytest.raises(NotPermitted, match=r"^EVAL orders at .* is not permitted to this user"):
        append_all(rows(), SCHEMA, options, "wednesday")


def test_a_stream_whose_ids_are_used_up_is_a_clear_error(streams: Streams) -> None:
    streams.add({"number": "0"}, ids=[f"{2**64 - 1}-{2**64 - 1}"])
    options = parse_write_options(streams.options | {"stream": streams.name()})
    with pytest.raises(ServerError, match="exhausted the last possible ID"):
        append(options)
    assert len(streams.entries()) == 1


def test_a_whole_write_that_the_server_forgets_fails_and_is_made_again(
    spark: SparkSession, run_redis: RunRedis, tmp_path: Path
) -> None:
    port = run_redis().master().port
    spark.dataSource.register(forgetting_source(tmp_path / "flushed", port))
    frame = spark.range(ROWS, numPartitions=2).selectExpr("id AS number")

    def write() -> None:
        writer = frame.write.format("forgetting_redis_streams").mode("append")
        writer.options(port=port, writeId="tuesday", stream="orders").save()

    with pytest.raises(PySparkException, match="has lost entries that this write had appended"):
        write()
    write()
    with redis.Redis(port=port) as client:
        assert sorted(numbers(client)) == list(range(ROWS))


def forgetting_source(marker: Path, port: int) -> type[DefaultSource]:
    """The data source, whose server loses all data once the tasks of a write are done."""

    class Forgetting(BatchWriter):
        def commit(self, messages: list[WriterCommitMessage | None]) -> None:
            if not marker.exists():
                marker.touch()
                redis.Redis(port=port).flushall()
            super().commit(messages)

    class ForgettingSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "forgetting_redis_streams"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            writer = super().writer(schema, overwrite)
            writer.__class__ = Forgetting
            return writer

    return ForgettingSource
