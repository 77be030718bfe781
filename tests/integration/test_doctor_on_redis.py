"""`pelops doctor --redis-url` on real servers: each planted problem is found, and no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local_cluster.processes import wait_until
from local_cluster.redis_servers import ClusterServers, ServerOptions, StandaloneServers
from pelops.cli.main import run
from pelops.domain.naming import derive_keys
from pelops.redis_streams.access import Feature, UserRole, acl_rules
from tests.redis_fixtures import RunRedis

KEYS = derive_keys("orders", "workers")
DURABLE = ServerOptions(append_only="everysec")
NAMES = ("--stream", "orders", "--group", "workers")
WAIT_S = 60.0


class Doctor:
    """Runs the command and reads what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.code = -1

    def run(self, url: str, *words: str) -> dict[str, dict[str, Any]]:
        """The checks by their IDs."""
        self.code = run(["doctor", "--redis-url", url, *words, "-o", "json"])
        printed = self._capsys.readouterr()
        return {one["id"]: one for one in json.loads(printed.out)["checks"]}


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(capsys)


def faults(checks: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The messages of the checks that found something."""
    return {
        name: one["message"]
        for name, one in checks.items()
        if one["result"] in {"warning", "error"}
    }


def with_group(servers: Any) -> str:
    """Create the group, and return the URL of the server."""
    servers.cli("XGROUP", "CREATE", "orders", "workers", "0", "MKSTREAM")
    return str(servers.url)


def test_a_healthy_server_has_no_fault(run_redis: RunRedis, doctor: Doctor) -> None:
    url = with_group(run_redis(options=DURABLE))
    checks = doctor.run(url, *NAMES)
    assert {one["result"] for one in checks.values()} == {"ok"}, faults(checks)
    assert doctor.code == 0


@pytest.mark.parametrize("version", ["7.0", "valkey"])
def test_other_healthy_servers_have_no_fault(
    run_redis: RunRedis, doctor: Doctor, version: str
) -> None:
    url = with_group(run_redis(version, options=DURABLE))
    checks = doctor.run(url, *NAMES)
    assert {one["result"] for one in checks.values()} == {"ok"}, faults(checks)


def test_the_least_rights_are_enough_for_every_check_that_needs_no_settings(
    run_redis: RunRedis, doctor: Doctor
) -> None:
    servers = run_redis(options=DURABLE)
    url = with_group(servers)
    rules = acl_rules(KEYS, UserRole.OPERATOR, [Feature.RECOVERY, Feature.SCALING])
    servers.cli("ACL", "SETUSER", "pelops", "on", ">word", *rules)
    checks = doctor.run(url.replace("redis://", "redis://pelops:word@"), *NAMES)
    assert faults(checks) == {}
    assert [name for name, one in checks.items() if one["result"] == "unknown"] == [
        "output-buffers"
    ]


@pytest.mark.parametrize("command", ["xadd", "xpending", "xgroup|create", "hset", "eval"])
def test_a_command_that_the_acl_forbids_is_named(
    run_redis: RunRedis, doctor: Doctor, command: str
) -> None:
    servers = run_redis(options=DURABLE)
    url = with_group(servers)
    servers.cli("ACL", "SETUSER", "pelops", "on", ">word", "~*", "+@all", f"-{command}")
    checks = doctor.run(url.replace("redis://", "redis://pelops:word@"), *NAMES)
    assert command in checks["acl"]["message"]
    assert checks["other-groups"]["result"] == "ok"


def test_a_key_that_the_acl_forbids_is_named(run_redis: RunRedis, doctor: Doctor) -> None:
    servers = run_redis(options=DURABLE)
    url = with_group(servers)
    servers.cli("ACL", "SETUSER", "pelops", "on", ">word", "~orders", "+@all")
    checks = doctor.run(url.replace("redis://", "redis://pelops:word@"), *NAMES)
    assert KEYS.state in checks["acl"]["message"]
    assert "on orders" not in checks["acl"]["message"]
    assert doctor.code == 1


def test_a_read_only_replica_is_found(run_redis: RunRedis, doctor: Doctor) -> None:
    master, replica = run_redis(options=DURABLE), run_redis(options=DURABLE)
    with_group(master)
    host, port = "127.0.0.1", master.url.rpartition(":")[2].partition("/")[0]
    replica.cli("REPLICAOF", host, port)
    wait_until(
        lambda: "master_link_status:up" in replica.cli("INFO", "replication"),
        timeout_s=WAIT_S,
        what="the replica to follow",
    )
    checks = doctor.run(replica.url, *NAMES)
    assert "read-only replica" in checks["writes"]["message"]
    assert faults(checks).keys() == {"writes"}
    # The master is warned about: it would accept writes without its replica.
    assert faults(doctor.run(master.url, *NAMES)).keys() == {"replication"}


def test_planted_problems_of_one_server_are_all_found(run_redis: RunRedis, doctor: Doctor) -> None:
    servers = run_redis()
    with_group(servers)
    servers.cli("XGROUP", "CREATE", "orders", "foreign", "0")
    servers.cli("SET", KEYS.ledger, "a string")
    servers.cli("CONFIG", "SET", "maxmemory", "10mb", "maxmemory-policy", "allkeys-lru")
    servers.cli("CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 1mb 10")
    servers.cli("CONFIG", "SET", "min-replicas-to-write", "1")
    checks = doctor.run(servers.url, *NAMES)
    assert faults(checks).keys() == {
        *("eviction", "persistence", "replication", "output-buffers"),
        *("key-types", "other-groups"),
    }
    assert "'foreign'" in checks["other-groups"]["message"]
    assert doctor.code == 1


def test_a_server_that_does_not_answer_is_one_fault(doctor: Doctor) -> None:
    checks = doctor.run("redis://127.0.0.1:1", *NAMES)
    assert faults(checks).keys() == {"connection"}
    assert checks["eviction"]["result"] == "unknown"
    assert checks["slots"]["result"] == "ok"
    assert doctor.code == 1


def test_a_wrong_password_is_said_and_not_shown(
    redis_86: StandaloneServers, doctor: Doctor
) -> None:
    checks = doctor.run(redis_86.url.replace("redis://", "redis://pelops:secret-word@"))
    assert "rejects the username or password" in checks["connection"]["message"]
    assert "secret-word" not in json.dumps(checks)


def test_all_masters_of_a_cluster_are_checked(
    empty_cluster: ClusterServers, doctor: Doctor
) -> None:
    checks = doctor.run(empty_cluster.url)
    assert checks["connection"]["message"].endswith("cluster")
    assert checks["persistence"]["message"].count("127.0.0.1") == 3
    of_one = doctor.run(empty_cluster.url, *NAMES)
    assert of_one["persistence"]["message"].count("127.0.0.1") == 0
    assert of_one["acl"]["result"] == "ok"


@pytest.mark.parametrize(
    "words",
    [
        ["--stream", "orders"],
        ["--stream", "orders", "--group", "workers"],
        ["--pre", "orders"],
        ["orders", "--redis-url", "redis://x", "--stream", "s", "--group", "g"],
    ],
)
def test_flags_that_do_not_fit_together_are_a_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", *words]) == 2
    assert capsys.readouterr().err.startswith("pelops: ")
