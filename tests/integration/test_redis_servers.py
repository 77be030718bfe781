"""The servers that all other tests use are what they claim to be."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from local_cluster.processes import Process, read_stat, wait_until
from local_cluster.redis_servers import (
    TOPOLOGIES,
    VERSIONS,
    ClusterServers,
    ServerFailed,
    ServerOptions,
    StandaloneServers,
    start_cluster,
    start_servers,
    start_standalone,
)
from tests.redis_fixtures import NEWEST_UNLESS_FULL

START_DETACHED = """
import json, sys
from pathlib import Path
from local_cluster.redis_servers import start_servers
print(json.dumps(start_servers("8.6", "standalone", Path(sys.argv[1]), detached=True).describe()))
"""


# --- versions


def test_each_server_is_the_version_it_was_asked_for(any_redis: StandaloneServers) -> None:
    info = any_redis.server.info("server")
    assert info[f"{any_redis.flavour}_version"] == any_redis.version


# --- one server


def test_only_this_machine_can_reach_a_server(any_redis: StandaloneServers) -> None:
    assert any_redis.cli("CONFIG", "GET", "bind").splitlines() == ["bind", "127.0.0.1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_with_an_append_only_file_nothing_is_lost(version: str) -> None:
    with start_standalone(version, options=ServerOptions(append_only="always")) as servers:
        servers.cli("XADD", "stream", "1-1", "field", "value")
        servers.server.kill()
        servers.server.start()
        assert servers.cli("XLEN", "stream") == "1"


def test_a_failed_start_shows_the_log_and_leaves_nothing_running(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="no-such-directive"):
        start_standalone("8.6", tmp_path, options=ServerOptions(config={"no-such-directive": "1"}))


def test_a_cluster_that_fails_at_one_node_leaves_no_other_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Process] = []

    def fail(servers: ClusterServers) -> None:
        started.extend(servers.processes)
        raise TimeoutError("never whole")

    monkeypatch.setattr(ClusterServers, "await_readiness", fail)
    with pytest.raises(TimeoutError, match="never whole"):
        start_cluster("8.6")
    assert len(started) == 3
    assert not any(process.is_alive() for process in started)


def test_stopping_twice_is_as_good_as_once(tmp_path: Path) -> None:
    servers = start_standalone("8.6", tmp_path)
    servers.stop()
    servers.stop()
    assert not any(process.is_alive() for process in servers.processes)
    assert servers.server.log.exists()


def test_a_detached_server_outlives_who_started_it(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", START_DETACHED, str(tmp_path)],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    (server,) = json.loads(answer.stdout)["servers"]
    _, started = read_stat(server["pid"])
    process = Process("standalone", server["pid"], Path(server["log"]), started=started)
    try:
        with redis.Redis(port=server["port"]) as client:
            assert client.info("server")["process_id"] == server["pid"]
    finally:
        process.kill()
    wait_until(lambda: not process.is_alive(), timeout_s=30, what="the server ends")


# --- topologies, TLS, and passwords

ONCE = Retry(NoBackoff(), 0)
ODD = "a \"b\\ c'd #e"
LOCKED = ServerOptions(tls=True, tls_client_auth=True, password=ODD)


@pytest.mark.full
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("version", NEWEST_UNLESS_FULL)
def test_every_topology_runs_on_every_version_behind_tls_and_a_password(
    version: str, topology: str
) -> None:
    with start_servers(version, topology, options=LOCKED) as servers:
        assert servers.url.startswith("rediss://127.0.0.1:")
        assert ODD not in servers.url
        assert servers.cli("XADD", "stream", "1-1", "field", "value") == "1-1"
        assert servers.cli("XLEN", "stream") == "1"
        assert servers.secret()["password"] == ODD
        assert ODD not in str(servers.describe())


def test_a_tls_server_refuses_a_client_without_one(redis_tls: StandaloneServers) -> None:
    assert redis_tls.tls_files is not None
    ca = str(redis_tls.tls_files.ca)
    with (
        redis.Redis(port=redis_tls.server.port, ssl=True, ssl_ca_certs=ca, retry=ONCE) as client,
        pytest.raises(redis.ConnectionError),
    ):
        client.ping()


def test_a_tls_server_leaves_no_plain_port_open(redis_tls: StandaloneServers) -> None:
    with (
        redis.Redis(port=redis_tls.server.port, retry=ONCE) as client,
        pytest.raises(redis.ConnectionError),
    ):
        client.ping()


def test_emptying_forgets_keys_functions_and_users(empty_redis: StandaloneServers) -> None:
    empty_redis.cli("SET", "key", "value")
    empty_redis.cli("ACL", "SETUSER", "reader", "on")
    code = "#!lua name=lib\nredis.register_function('f', function() return 1 end)"
    empty_redis.cli("FUNCTION", "LOAD", code)
    empty_redis.flush()
    assert empty_redis.cli("DBSIZE") == "0"
    assert empty_redis.cli("ACL", "USERS") == "default"
    assert empty_redis.cli("FUNCTION", "LIST") == ""
