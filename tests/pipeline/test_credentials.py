"""A job keeps its password to itself, and takes it nowhere that the operator does not allow."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from local_cluster.redis_servers import ServerOptions
from pelops.errors import AddressNotAllowed, CredentialsNotAllowed
from pelops.pipeline.archive.redis_reader import RedisReader
from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.main import main
from pelops.pipeline.settings import RedisPlace, read_place
from pelops.redis_core.pool import ServerPool
from pyspark_redis_streams.errors import OptionError, ServerError
from pyspark_redis_streams.options.option import Use
from pyspark_redis_streams.options.parsed import parse_read_options
from pyspark_redis_streams.redis.server_connections import ServerConnections
from tests.hostile_servers import HostileServer, hostile_server
from tests.redis_fixtures import RunRedis

PASSWORD = "s3cr3t"
URL = f"redis://auditor:{PASSWORD}@redis:6379/1"


def test_a_password_of_the_url_is_no_option_of_spark() -> None:
    options = read_place({"PELOPS_REDIS_URL": URL}).options
    assert PASSWORD not in str(options)
    assert options["passwordUrlEnv"] == "PELOPS_REDIS_URL"


def test_a_password_of_the_url_is_read_where_it_is_needed(
    run_redis: RunRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = run_redis(options=ServerOptions(password=PASSWORD))
    url = servers.url.replace("redis://", f"redis://:{PASSWORD}@")
    monkeypatch.setenv("PELOPS_REDIS_URL", url)
    reader = RedisReader(read_place({"PELOPS_REDIS_URL": url}))
    assert reader.now_ms("-") > 0
    reader.close()
    monkeypatch.setenv("PELOPS_REDIS_URL", "no url")
    with pytest.raises(OptionError, match="holds no URL of a Redis"):
        RedisReader(read_place({"PELOPS_REDIS_URL": url})).now_ms("-")


def test_a_password_in_the_arguments_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        target = ["--stream", "s", "--group", "g", "--archive", "/nowhere"]
        assert main(["audit", "--redis-url", URL, *target]) == 2
    assert "--redis-url-file or PELOPS_REDIS_URL" in caplog.text
    assert PASSWORD not in caplog.text


def test_a_url_may_be_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PELOPS_REDIS_URL", "")
    file = tmp_path / "url"
    file.write_text(f"redis://auditor:{PASSWORD}@127.0.0.1:1/0\n")
    target = ["--stream", "s", "--group", "g", "--archive", str(tmp_path)]
    monkeypatch.setattr(
        "pelops.pipeline.main.run_command",
        lambda _, settings: int(settings.place.endpoint.node.port),
    )
    assert main(["report", "--redis-url-file", str(file), *target]) == 1
    assert main(["report", "--redis-url-file", str(tmp_path / "none"), *target]) == 2
    file.write_text("\n")
    assert main(["report", "--redis-url-file", str(file), *target]) == 2
    assert PASSWORD not in caplog.text


def place_of(server: HostileServer, **variables: str) -> RedisPlace:
    return read_place(
        {"PELOPS_REDIS_URL": f"redis://:{PASSWORD}@{server.host}:{server.port}", **variables}
    )


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable, as driver and executors have it."""
    monkeypatch.setenv("PELOPS_REDIS_URL", URL)


@pytest.mark.usefixtures("password")
async def test_a_job_connects_to_no_address_that_the_operator_does_not_allow() -> None:
    with hostile_server(host="127.0.0.2") as inner:
        place = place_of(inner, PELOPS_ALLOWED_NETWORKS="routable,127.0.0.1/32")
        with pytest.raises(ServerError, match="a loopback address"):
            RedisReader(place).now_ms("-")
        await refused_by_the_pool(place, AddressNotAllowed)
        assert inner.connections == 0


@pytest.mark.usefixtures("password")
def test_a_job_follows_a_cluster_to_no_other_address() -> None:
    with hostile_server(host="127.0.0.2") as inner, hostile_server() as server:
        slots = b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.2\r\n:%d\r\n" % inner.port
        server.answer = lambda words: slots if words[0] == b"CLUSTER" else b"+OK\r\n"
        place = place_of(server, PELOPS_ALLOWED_NETWORKS="127.0.0.1/32")
        given: dict[str, Any] = {**place.options, "topology": "cluster", "stream": "s"}
        del given["db"]
        with pytest.raises(ServerError, match="a loopback address"):
            ServerConnections(parse_read_options(given, Use.READ).server).execute("s", "TIME")
        assert inner.connections == 0


@pytest.mark.usefixtures("password")
def test_a_job_sends_its_password_only_to_nodes_in_the_secret() -> None:
    with hostile_server() as inner, hostile_server() as server:
        slots = b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % inner.port
        server.answer = lambda words: slots if words[0] == b"CLUSTER" else b"+OK\r\n"
        place = place_of(server, PELOPS_REDIS_HOSTS="redis.shop")
        given: dict[str, Any] = {**place.options, "topology": "cluster", "stream": "s"}
        del given["db"]
        with pytest.raises(ServerError, match=f"127.0.0.1:{inner.port}"):
            ServerConnections(parse_read_options(given, Use.READ).server).execute("s", "TIME")
        assert inner.connections == 0


async def test_a_summary_is_recorded_nowhere_else_either() -> None:
    with hostile_server() as server:
        place = place_of(server, PELOPS_REDIS_HOSTS="redis.shop")
        sentinel = read_place(
            {
                "PELOPS_REDIS_PASSWORD": PASSWORD,
                "PELOPS_REDIS_SENTINEL_MASTER": "m",
                "PELOPS_REDIS_SENTINEL_NODES": f"127.0.0.1:{server.port}",
                "PELOPS_REDIS_HOSTS": "redis.shop",
            }
        )
        server.answer = lambda words: (
            b"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n%05d\r\n" % server.port
            if words[0] == b"SENTINEL"
            else b"+OK\r\n"
        )
        await refused_by_the_pool(sentinel, CredentialsNotAllowed)
        assert PASSWORD.encode() not in server.received
        assert place.endpoint.grant is not None


async def refused_by_the_pool(place: RedisPlace, kind: type[Exception]) -> None:
    pool = ServerPool()
    try:
        with pytest.raises(kind):
            await pool.server(place.endpoint)
    finally:
        await pool.close()


@pytest.mark.parametrize(
    "variables", [{"PELOPS_ALLOWED_NETWORKS": "nothing"}, {"PELOPS_REDIS_HOSTS": "a/b/c"}]
)
def test_limits_that_cannot_be_read_are_refused(variables: dict[str, str]) -> None:
    with pytest.raises(WrongPipelineSettings, match="PELOPS_ALLOWED_NETWORKS"):
        read_place({"PELOPS_REDIS_URL": URL, **variables})
