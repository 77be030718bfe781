"""Sentinel, Cluster, TLS and replicas: the same entries, also while servers change places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from cryptography.hazmat.primitives import serialization
from pyspark.sql.types import StringType, StructType

from local_cluster.processes import free_port
from local_cluster.redis_servers import (
    ClusterServers,
    SentinelServers,
    ServerOptions,
    StandaloneServers,
)
from pyspark_redis_streams.batch.tasks import EntriesPartition
from pyspark_redis_streams.errors import DataLoss, NotPermitted, OptionError, ServerError
from pyspark_redis_streams.options.option import Use
from pyspark_redis_streams.options.parsed import parse_read_options
from pyspark_redis_streams.redis.server_connections import ServerConnections
from pyspark_redis_streams.views.entries import EntriesReader
from tests.fake_sentinel import fake_sentinel
from tests.redis_fixtures import RunRedis

SCHEMA = StructType().add("stream", StringType()).add("id", StringType())
QUICK = {"numRetries": "40", "retryIntervalMs": "100", "pageSize": "50"}


class Read:
    """A batch read without Spark: planned at once, and read when the test says so."""

    def __init__(self, **options: str) -> None:
        self._reader = EntriesReader(SCHEMA, parse_read_options(QUICK | options, Use.READ))
        self.tasks = self._reader.partitions()

    def rows(self) -> list[tuple[str, str]]:
        return [row for batch in self.batches() for row in batch]

    def batches(self) -> Iterator[list[tuple[str, str]]]:
        for task in self.tasks:
            for batch in self._reader.read(task):
                yield [(row["stream"], row["id"]) for row in batch.to_pylist()]


@contextmanager
def client_of(port: int, **options: object) -> Iterator[redis.Redis]:
    with redis.Redis(port=port, **options) as client:  # type: ignore[arg-type]
        yield client


def fill(client: redis.Redis | redis.RedisCluster, stream: str, number: int) -> list[str]:
    added: Any = [client.xadd(stream, {"n": str(i)}) for i in range(number)]
    return [entry_id.decode() for entry_id in added]


def nodes_of(task: object, servers: ClusterServers) -> set[int]:
    assert isinstance(task, EntriesPartition)
    return {servers.owner_of(servers.slot_of(r.stream)).port for r in task.ranges}


def cluster_options(servers: ClusterServers) -> dict[str, str]:
    return {"topology": "cluster", "host": "127.0.0.1", "port": str(servers.masters()[0].port)}


def fill_cluster(servers: ClusterServers, streams: Sequence[str]) -> set[tuple[str, str]]:
    with redis.RedisCluster(host="127.0.0.1", port=servers.masters()[0].port) as client:
        return {(stream, entry) for stream in streams for entry in fill(client, stream, 120)}


def test_a_task_reads_from_one_node_of_a_cluster(empty_cluster: ClusterServers) -> None:
    wanted = fill_cluster(empty_cluster, [f"shard-{i}" for i in range(30)])
    read = Read(streamPattern="shard-*", **cluster_options(empty_cluster))
    assert all(len(nodes_of(task, empty_cluster)) == 1 for task in read.tasks)
    assert len(read.tasks) == 3
    rows = read.rows()
    assert len(rows) == len(wanted)
    assert set(rows) == wanted


@pytest.mark.full
def test_a_slot_that_moves_meanwhile_is_followed(empty_cluster: ClusterServers) -> None:
    wanted = fill_cluster(empty_cluster, ["orders"])
    read = Read(stream="orders", batchRows="50", **cluster_options(empty_cluster))
    batches = read.batches()
    found = next(batches)
    slot = empty_cluster.slot_of("orders")
    owner = empty_cluster.owner_of(slot)
    other = next(m for m in empty_cluster.masters() if m.port != owner.port)
    empty_cluster.move_slot(slot, other)
    found += [row for batch in batches for row in batch]
    assert len(found) == len(wanted)
    assert set(found) == wanted


def sentinel_options(servers: SentinelServers) -> dict[str, str]:
    nodes = ",".join(f"{host}:{port}" for host, port in servers.sentinel_nodes)
    return {"topology": "sentinel", "sentinels": nodes,
            "sentinelMaster": servers.sentinel_master or ""}  # fmt: skip


@pytest.mark.full
def test_a_failover_is_followed(empty_sentinel: SentinelServers) -> None:
    with client_of(empty_sentinel.master().port) as client:
        wanted = fill(client, "orders", 200)
        client.wait(2, 10_000)
    read = Read(stream="orders", batchRows="50", **sentinel_options(empty_sentinel))
    batches = read.batches()
    found = next(batches)
    empty_sentinel.failover()
    found += [row for batch in batches for row in batch]
    assert [entry for _, entry in found] == wanted


def test_a_replica_is_read_once_it_has_everything(empty_sentinel: SentinelServers) -> None:
    with client_of(empty_sentinel.master().port) as client:
        wanted = fill(client, "orders", 200)
    options = sentinel_options(empty_sentinel) | {"readFrom": "replica"}
    assert [entry for _, entry in Read(stream="orders", **options).rows()] == wanted
    replicas = [s for s in empty_sentinel.servers if s.port != empty_sentinel.master().port]
    ranges = [s.info("commandstats").get("cmdstat_xrange") for s in replicas]
    assert any(ranges), "the pages came from a replica"


def test_a_master_that_is_none_yet_is_asked_for_again(empty_sentinel: SentinelServers) -> None:
    master = empty_sentinel.master().port
    replica = next(one.port for one in empty_sentinel.servers if one.port != master)
    with client_of(master) as client:
        wanted = fill(client, "orders", 20)
    named = {"topology": "sentinel", "sentinelMaster": "m"}
    with fake_sentinel(replica, replica, master) as sentinel:
        read = Read(stream="orders", sentinels=sentinel.node, **named)
        assert sentinel.asked == 3
        assert [entry for _, entry in read.rows()] == wanted


def test_a_sentinel_that_is_down_is_passed_over_and_others_are_learned(
    empty_sentinel: SentinelServers,
) -> None:
    known, *others = empty_sentinel.sentinels
    nodes = f"127.0.0.1:{free_port()},127.0.0.1:{known.port}"
    options = sentinel_options(empty_sentinel) | {"sentinels": nodes}
    with client_of(empty_sentinel.master().port) as client:
        wanted = fill(client, "orders", 20)
    settings = parse_read_options(QUICK | options | {"stream": "orders"}, Use.READ).server
    with ServerConnections(settings) as connections:
        assert connections.execute("orders", "XLEN", "orders") == len(wanted)
        known.stop()
        connections.forget()  # so that it has to ask again
        try:
            assert others[0].is_alive()
            assert connections.execute("orders", "XLEN", "orders") == len(wanted)
        finally:
            known.start()


def test_an_unknown_master_is_an_error_of_the_option(empty_sentinel: SentinelServers) -> None:
    options = sentinel_options(empty_sentinel) | {"sentinelMaster": "nobody"}
    with pytest.raises(OptionError, match="option 'sentinelMaster' is 'nobody'"):
        Read(stream="orders", **options)


def test_tls_with_a_certificate_of_the_client(redis_tls: StandaloneServers) -> None:
    files = redis_tls.tls_files
    assert files is not None
    for argument in ("1-1", "2-1"):
        redis_tls.cli("XADD", "over-tls", argument, "a", "b")
    options = {
        "host": "localhost", "port": str(redis_tls.master().port), "tls": "true",
        "tlsCaFile": str(files.ca), "tlsCertFile": str(files.cert), "tlsKeyFile": str(files.key),
    }  # fmt: skip
    assert [entry for _, entry in Read(stream="over-tls", **options).rows()] == ["1-1", "2-1"]


def tls_refusal(servers: StandaloneServers, **options: str) -> str:
    place = {"host": "localhost", "port": str(servers.master().port), "tls": "true"}
    with pytest.raises((OptionError, ServerError)) as refused:
        Read(stream="over-tls", **(place | {"numRetries": "0"} | options))
    return f"{type(refused.value).__name__}: {refused.value}"


def test_certificates_that_cannot_be_used_are_an_error_of_their_options(
    redis_tls: StandaloneServers, tmp_path: Path
) -> None:
    files = redis_tls.tls_files
    assert files is not None
    (tmp_path / "none.pem").write_text("none")
    for option, reported in (
        ("tlsCaFile", "'tlsCaFile' names"),
        ("tlsCertFile", "'tlsKeyFile' name"),
    ):
        options = {"tlsCaFile": str(files.ca), option: str(tmp_path / "none.pem")}
        refusal = tls_refusal(redis_tls, **options)
        assert refusal.startswith("OptionError: ") and reported in refusal
    assert "no readable PEM pair" in tls_refusal(redis_tls, tlsCertFile=str(files.cert))


def test_an_encrypted_key_is_refused_and_asks_no_terminal(
    redis_tls: StandaloneServers, tmp_path: Path
) -> None:
    files = redis_tls.tls_files
    assert files is not None
    key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"sesame"),
    )
    (tmp_path / "key.pem").write_bytes(encrypted)
    names = {"tlsCertFile": str(files.cert), "tlsKeyFile": str(tmp_path / "key.pem")}
    assert "no readable PEM pair" in tls_refusal(redis_tls, **names)


def test_what_is_verified_of_a_server(redis_tls: StandaloneServers) -> None:
    files = redis_tls.tls_files
    assert files is not None
    own = {"tlsCertFile": str(files.cert), "tlsKeyFile": str(files.key)}
    assert "is not trusted" in tls_refusal(redis_tls, **own)
    assert "is not trusted" in tls_refusal(redis_tls, tlsVerify="certificate", **own)
    place = {"host": "localhost", "port": str(redis_tls.master().port), "tls": "true"}
    redis_tls.cli("XADD", "unverified", "1-1", "a", "b")
    read = Read(stream="unverified", tlsVerify="none", **place, **own)
    assert read.rows() == [("unverified", "1-1")]
    other = place | {"host": "127.1", "tlsCaFile": str(files.ca)} | own
    assert "is not trusted" in tls_refusal(redis_tls, **other)
    read = Read(stream="unverified", tlsVerify="certificate", **other)
    assert read.rows() == [("unverified", "1-1")]
    assert "is not trusted" in tls_refusal(redis_tls, tlsServerName="redis.shop", **other)
    read = Read(stream="unverified", tlsServerName="localhost", **other)
    assert read.rows() == [("unverified", "1-1")]


def test_a_password_is_needed_where_one_is_set(
    run_redis: RunRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = run_redis(options=ServerOptions(password="hunter2"))
    servers.cli("XADD", "orders", "1-1", "a", "b")
    options = {"stream": "orders", "port": str(servers.master().port)}
    with pytest.raises(NotPermitted, match="'passwordFile'") as refused:
        Read(**options)
    assert "hunter2" not in str(refused.value)
    monkeypatch.setenv("THE_PASSWORD", "hunter2")
    assert Read(passwordEnv="THE_PASSWORD", **options).rows() == [("orders", "1-1")]


def test_entries_lost_in_a_failover_are_reported(run_redis: RunRedis) -> None:
    servers = run_redis()
    options = {"stream": "orders", "port": str(servers.master().port), "batchRows": "50"}
    with client_of(servers.master().port) as client:
        fill(client, "orders", 200)
        batches = Read(**options).batches()
        next(batches)
        client.flushall()
        with pytest.raises(DataLoss, match="no longer exists"):
            list(batches)


def test_every_supported_server_is_read(program_redis: StandaloneServers, key_prefix: str) -> None:
    with client_of(program_redis.master().port) as client:
        wanted = fill(client, key_prefix + "orders", 120)
    options = {"stream": key_prefix + "orders", "port": str(program_redis.master().port)}
    assert [entry for _, entry in Read(minPartitions="3", **options).rows()] == wanted
