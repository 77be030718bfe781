"""Whole audits wherever streams may live: old and new servers, Cluster, Sentinel, TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from local_cluster.redis_servers import (
    ClusterServers,
    RedisServers,
    SentinelServers,
    StandaloneServers,
)
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.records.audit import AuditEvidence, AuditSummary, AuditVerdict
from pelops.pipeline import rounds
from pelops.pipeline.archive import snapshot
from pelops.pipeline.session import LazySession
from pelops.pipeline.settings import AuditTarget, read_place
from pelops.redis_streams.access import Feature, UserRole, acl_rules
from tests.pipeline.audited import FIRST_MS, GROUP, Audited, by_password_file, changed
from tests.pipeline.hardships import amid, half_read

NAME = "shop/nightly"
HALF_READ = {"acknowledged_inferred": 10, "in_flight": 10, "undelivered": 10}


def at(audited: Audited, client: Any, **environment: str) -> Audited:
    """The same stream, reached in another way."""
    audited.client.close()
    audited.client = client
    place = by_password_file(read_place(environment), Path(audited.settings.archive).parent)
    audited.settings = changed(audited.settings, place=place, name=NAME)
    return audited


@pytest.mark.full
def test_every_supported_server_is_audited(
    program_redis: StandaloneServers, lazy_spark: LazySession, key_prefix: str, tmp_path: Path
) -> None:
    with Audited(lazy_spark, program_redis, key_prefix, tmp_path / "archive") as audited:
        audited.settings = changed(audited.settings, name=NAME)
        ids = half_read(audited)
        copy = f"{FIRST_MS + 50}-0"
        pairs = ("number", 0, "_original_id", ids[9], "_retry_count", 1)
        audited.client.execute_command("XADD", audited.stream, copy, *pairs)
        audited.record("requeued", "consumer", "a", ids[9], f"{copy} {ids[9]} 1 1 40")
        audited.record("bookmark", "entries_added", 31, "last_generated", copy)
        summary = audited.audit_one()
        assert audited.counts(summary) == {
            "acknowledged_inferred": 9, "requeued": 1, "in_flight": 10, "undelivered": 11,
        }  # fmt: skip
        assert summary.evidence is AuditEvidence.LEDGER
        assert NAME.encode() in audited.client.hgetall(audited.keys.audit)


def test_streams_on_every_shard_are_audited_under_the_least_rights(
    empty_cluster: ClusterServers, lazy_spark: LazySession, tmp_path: Path
) -> None:
    servers = empty_cluster
    streams = [f"shard-{number}" for number in range(6)]
    keys = [derive_keys(stream, GROUP) for stream in streams]
    assert len({servers.owner_of(one.slot).port for one in keys}) == 3
    servers.acl_setuser("auditor", "on", ">secret", *_rules(keys))
    port = servers.masters()[0].port
    client = redis.RedisCluster(host="127.0.0.1", port=port)
    with Audited(lazy_spark, servers, "shard-", tmp_path / "archive") as audited:
        at(audited, client, PELOPS_REDIS_URL=f"redis://auditor:secret@127.0.0.1:{port}")
        for number, stream in enumerate(streams):
            for entry in range(5 + number):
                client.xadd(stream, {"number": entry}, id=f"{FIRST_MS}-{entry}")
            client.xgroup_create(stream, GROUP, id="0")
            client.xreadgroup(GROUP, "a", {stream: ">"}, count=5)

        def move() -> None:
            owner = servers.owner_of(keys[0].slot)
            other = next(one for one in servers.masters() if one.port != owner.port)
            servers.move_slot(keys[0].slot, other)

        with amid(rounds, "take_snapshot", move):
            summaries = audited.audit(
                targets=tuple(AuditTarget(stream=stream, group=GROUP) for stream in streams)
            )
        assert [one.stream for one in summaries] == streams
        for number, summary in enumerate(summaries):
            reported = {"in_flight": 5, "undelivered": number}
            assert audited.counts(summary) == {name: n for name, n in reported.items() if n}
        for one in keys:
            assert NAME.encode() in client.hgetall(one.audit)


def _rules(keys: list[GroupKeys]) -> list[str]:
    """Of each group the patterns, after one reset."""
    rules = [acl_rules(one, UserRole.AUDITOR, {Feature.CLUSTER}) for one in keys]
    patterns = [word for words in rules for word in words if "~" in word]
    return [*(word for word in rules[0] if "~" not in word), *patterns]


@pytest.fixture
def watched(
    empty_sentinel: SentinelServers, lazy_spark: LazySession, tmp_path: Path
) -> Iterator[Audited]:
    """A stream that Sentinels watch over."""
    nodes = ",".join(f"{host}:{port}" for host, port in empty_sentinel.sentinel_nodes)
    with Audited(lazy_spark, empty_sentinel, "watched:", tmp_path / "archive") as audited:
        yield at(
            audited, _master(empty_sentinel),
            PELOPS_REDIS_SENTINEL_MASTER=empty_sentinel.sentinel_master or "",
            PELOPS_REDIS_SENTINEL_NODES=nodes,
        )  # fmt: skip


def _master(servers: RedisServers) -> Any:
    return redis.Redis(port=servers.master().port)


def _fail_over(audited: Audited) -> None:
    servers = audited.servers
    assert isinstance(servers, SentinelServers)
    audited.client.wait(2, 10_000)
    servers.failover()
    audited.client.close()
    audited.client = _master(servers)


def _lose_the_end(audited: Audited, number: int) -> None:
    """Entries that are audited, and that no replica has when one becomes master."""
    servers = audited.servers
    assert isinstance(servers, SentinelServers)
    audited.client.wait(2, 10_000)
    _tolerate(servers, 30_000)
    master = servers.master()
    master.cli("ACL", "SETUSER", "default", "-psync", "-sync", "-replconf")
    master.cli("CLIENT", "KILL", "TYPE", "replica")
    audited.add(number)
    assert audited.audit_one().produced == number
    servers.failover()
    master.cli("ACL", "SETUSER", "default", "+psync", "+sync", "+replconf")
    _tolerate(servers, 1000)
    audited.client.close()
    audited.client = _master(servers)


def _tolerate(servers: SentinelServers, down_ms: int) -> None:
    """How long a server may be away; a replica ten times as long, to become master."""
    for sentinel in servers.sentinels:
        words = ("SENTINEL", "SET", servers.sentinel_master or "", "down-after-milliseconds")
        sentinel.cli(*words, str(down_ms))


@pytest.mark.full
def test_failovers_between_windows_and_in_mid_run_change_nothing(watched: Audited) -> None:
    half_read(watched)
    first = watched.audit_one()
    assert watched.counts(first) == HALF_READ
    _fail_over(watched)
    added = watched.add(10)
    with amid(snapshot, "_find_present", lambda: _fail_over(watched)):
        second = watched.audit_one()
    assert watched.counts(second) == {"undelivered": 10}
    assert _kinds(second) == set()
    assert second.open == 30
    watched.acknowledge(*watched.deliver(30))
    watched.client.wait(2, 10_000)
    # Entries that a failover took away are reported, and the audit continues without them.
    _lose_the_end(watched, 5)
    after = watched.audit_one()
    assert (after.verdict, after.findings[0].kind) == (AuditVerdict.FAILING, "epoch-break")
    assert watched.client.xlen(watched.stream) == 30 + len(added)
    assert NAME.encode() in watched.client.hgetall(watched.keys.audit)


def _kinds(summary: AuditSummary) -> set[str]:
    return {one.kind for one in summary.findings}


@pytest.mark.full
def test_tls_with_a_certificate_and_the_rights_of_an_auditor(
    redis_tls: StandaloneServers, lazy_spark: LazySession, key_prefix: str, tmp_path: Path
) -> None:
    files, port = redis_tls.tls_files, redis_tls.master().port
    assert files is not None
    reported: Mapping[str, str] = {
        "PELOPS_REDIS_URL": f"rediss://auditor:secret@localhost:{port}/0",
        "PELOPS_REDIS_CA_FILE": str(files.ca),
        "PELOPS_REDIS_CERT_FILE": str(files.cert),
        "PELOPS_REDIS_KEY_FILE": str(files.key),
    }
    client = redis.Redis(
        host="localhost", port=port, ssl=True, ssl_ca_certs=str(files.ca),
        ssl_certfile=str(files.cert), ssl_keyfile=str(files.key),
    )  # fmt: skip
    with Audited(lazy_spark, redis_tls, key_prefix, tmp_path / "archive") as audited:
        at(audited, client, **reported)
        rules = acl_rules(audited.keys, UserRole.AUDITOR)
        redis_tls.acl_setuser("auditor", "on", ">secret", *rules)
        half_read(audited)
        summary = audited.audit_one()
        assert audited.counts(summary) == HALF_READ
        assert NAME.encode() in client.hgetall(audited.keys.audit)
        redis_tls.cli("ACL", "DELUSER", "auditor")
