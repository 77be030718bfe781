"""What Redis refuses is reported with its cause and a remedy; work continues after the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster.redis_servers import (
    ClusterServers,
    RedisServers,
    ServerOptions,
    StandaloneServers,
)
from local_cluster.redis_servers.tls import make_tls_files
from pelops.domain.naming import derive_keys
from pelops.redis_streams.access import UserRole, acl_rules
from tests.e2e.declaring import NAME, a_spec, group_of, secret
from tests.e2e.recovering import Group
from tests.operators import Resources
from tests.redis_fixtures import RunRedis

REFERENCE = {"secretRef": {"name": "redis"}}


def test_a_wrong_password_is_reported_and_a_corrected_secret_is_read_again(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis(options=ServerOptions(password="right"))
    resources.apply_raw(secret("redis", url=servers.url, password="wrong-password"))
    resources.apply(NAME, a_spec("", stream, redis=REFERENCE))
    failed = resources.await_condition(NAME, reason="AuthenticationFailed")
    assert "Secret" in failed["message"] and "wrong-password" not in failed["message"]
    resources.apply_raw(secret("redis", url=servers.url, password="right"))
    resources.await_condition(NAME, reason="Ready")


def test_a_missing_password_is_reported(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis(options=ServerOptions(password="right"))
    resources.apply(NAME, a_spec(servers.url, stream))
    failed = resources.await_condition(NAME, reason="AuthenticationFailed")
    assert "password" in failed["message"]


def test_a_secret_that_comes_later_is_waited_for(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec("", stream, redis=REFERENCE))
    missing = resources.await_condition(NAME, reason="SecretMissing")
    assert f"{resources.namespace}/redis" in missing["message"]
    resources.apply_raw(secret("redis", url=redis_86.url))
    resources.await_condition(NAME, reason="Ready")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "the key url"),
        ({"url": "redis://me:very-secret@"}, "host"),
        ({"url": "http://redis:6379"}, "redis://"),
        ({"url": "redis://redis:6379?ssl=x"}, "options"),
        ({"url": "redis://redis:6379", "username": "me"}, "password"),
    ],
)
def test_a_secret_that_cannot_be_used_is_reported_without_its_content(
    resources: Resources, stream: str, fields: dict[str, str], named: str
) -> None:
    resources.apply_raw(secret("redis", **fields))
    resources.apply(NAME, a_spec("", stream, redis=REFERENCE))
    refused = resources.await_condition(NAME, reason="InvalidSpec")
    assert named in refused["message"] and "very-secret" not in refused["message"]


@pytest.mark.parametrize("command", ["xgroup|create", "xadd", "xinfo|groups", "hset", "evalsha"])
def test_a_command_that_the_acl_forbids_is_named_and_tried_again(
    resources: Resources, redis_86: RedisServers, stream: str, command: str
) -> None:
    rules = acl_rules(derive_keys(stream, NAME), UserRole.OPERATOR)
    user = f"user-{stream}"
    # EVAL would do the same as EVALSHA.
    taken = [f"-{command}", *(["-eval"] if command == "evalsha" else [])]
    redis_86.acl_setuser(user, "on", ">password", *rules, *taken)
    resources.apply_raw(secret("redis", url=redis_86.url, username=user, password="password"))
    resources.apply(NAME, a_spec("", stream, redis=REFERENCE))
    denied = resources.await_condition(NAME, reason="PermissionDenied")
    assert command in denied["message"]
    redis_86.acl_setuser(user, *rules)
    resources.await_condition(NAME, reason="Ready")


def test_a_key_that_the_acl_forbids_is_named(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    rules = acl_rules(derive_keys(stream, "another-group"), UserRole.OPERATOR)
    user = f"user-{stream}"
    redis_86.acl_setuser(user, "on", ">password", *rules)
    resources.apply_raw(secret("redis", url=redis_86.url, username=user, password="password"))
    resources.apply(NAME, a_spec("", stream, redis=REFERENCE))
    denied = resources.await_condition(NAME, reason="PermissionDenied")
    assert stream in denied["message"]


@pytest.mark.parametrize("which", ["stream", "dead_letter", "ledger", "state"])
def test_a_key_of_the_wrong_type_is_reported_and_left_unchanged(
    resources: Resources, redis_86: RedisServers, stream: str, which: str
) -> None:
    keys = derive_keys(stream, NAME)
    key = getattr(keys, which)
    redis_86.cli("SET", key, "precious")
    resources.apply(NAME, a_spec(redis_86.url, stream))
    wrong = resources.await_condition(NAME, reason="WrongType")
    assert key in wrong["message"] and "string" in wrong["message"]
    others = {stream, *keys.derived()} - {key}
    assert (redis_86.cli("GET", key), redis_86.cli("EXISTS", *others)) == ("precious", "0")
    redis_86.cli("DEL", key)
    resources.await_condition(NAME, reason="Ready")


def test_a_dead_letter_stream_of_any_name_works_without_a_cluster(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    elsewhere = f"elsewhere-{stream}"
    group = Group(resources, redis_86, stream)
    recovery = {"unmatchedConsumerTimeoutSeconds": 1, "maxRetries": 0}
    group.declare(recovery=recovery, deadLetter={"stream": elsewhere})
    (entry,) = group.give("laptop", 1)
    group.until(lambda: group.redis.xlen(elsewhere) == 1, "the dead letter")
    assert group.pending() == {}
    ((_, letter),) = group.redis.xrange(elsewhere)
    assert entry in letter.values()


def test_in_a_cluster_a_dead_letter_stream_in_another_slot_is_refused(
    resources: Resources, redis_cluster: ClusterServers, stream: str
) -> None:
    spec = a_spec(redis_cluster.url, stream, deadLetter={"stream": "elsewhere"})
    resources.apply(NAME, spec)
    refused = resources.await_condition(NAME, reason="DeadLetterInAnotherSlot")
    assert "elsewhere" in refused["message"] and f"{{{stream}}}" in refused["message"]
    resources.apply(NAME, {**spec, "deadLetter": {"stream": f"{{{stream}}}:elsewhere"}})
    resources.await_condition(NAME, reason="Ready")


def test_a_redis_out_of_memory_is_not_reported_as_a_network_problem(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis()
    group = Group(resources, servers, stream)
    group.declare(recovery={"processingTimeoutSeconds": 3600})
    group.add(3)
    group.redis.config_set("maxmemory", 1)
    group.deliver("laptop", 3)
    reported = group.resources.await_condition(group.name, reason="RedisOutOfMemory")
    assert "maxmemory" in reported["message"] and "network" not in reported["message"]
    group.redis.config_set("maxmemory", 0)
    group.resources.await_condition(group.name, reason="Ready")


@pytest.mark.full
def test_a_server_with_a_certificate_of_another_authority_is_not_trusted(
    resources: Resources, redis_tls: StandaloneServers, stream: str, tmp_path: Path
) -> None:
    strange = make_tls_files(tmp_path / "another-authority")
    entries = redis_tls.secret()
    resources.apply_raw(secret("redis", **{**entries, "ca.crt": strange.ca.read_text()}))
    resources.apply(NAME, a_spec("", stream, redis=REFERENCE))
    untrusted = resources.await_condition(NAME, reason="RedisUnreachable")
    assert "its certificate is not accepted" in untrusted["message"]
    resources.apply_raw(secret("redis", **entries))
    resources.await_condition(NAME, reason="Ready", timeout_s=120)
    assert group_of(redis_tls, stream, NAME)


def test_plain_text_to_a_server_that_speaks_tls_is_reported(
    resources: Resources, redis_tls: StandaloneServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_tls.url.replace("rediss:", "redis:"), stream))
    reported = resources.await_condition(NAME, reason="RedisUnreachable")
    assert reported["message"]


def test_a_sentinel_that_does_not_know_the_master_is_reported(
    resources: Resources, run_redis: RunRedis, redis_86: RedisServers, stream: str
) -> None:
    node = redis_86.url.removeprefix("redis://")
    redis = {"sentinel": {"masterName": "nobody", "nodes": [node]}}
    resources.apply(NAME, a_spec("", stream, redis=redis))
    reported = resources.await_condition(NAME, reason="RedisUnreachable")
    assert "entinel" in reported["message"]
