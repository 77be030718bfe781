"""What a hostile tenant gains by naming a Secret, an address, or a server of their own: nothing.

The tenant has the rights that the admission policies ask for, so that only the operator is left to
refuse: as it is on a cluster without these policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers, ServerOptions, StandaloneServers
from tests.e2e.declaring import NAME, WAIT_S, a_spec
from tests.e2e.declaring import secret as a_secret
from tests.fake_sentinel import fake_sentinel
from tests.hostile_servers import HostileServer, hostile_server
from tests.operators import Operators
from tests.redis_fixtures import RunRedis
from tests.tenant import Tenant

PASSWORD = "s3cr3t-of-another-team"
HOSTS = "pelops.dev/redis-hosts"


@pytest.fixture
def tenant(plane: ControlPlane, operator: Operators, namespace: str) -> Tenant:
    """A user who may create resources in an empty namespace that two replicas watch."""
    return Tenant(plane, namespace)


@pytest.fixture
def eve() -> Iterator[HostileServer]:
    """A server of the tenant's own."""
    with hostile_server() as server:
        yield server


def secret(name: str, *, annotation: str | None = None, **fields: str) -> dict[str, Any]:
    """The Secret of another team."""
    found = a_secret(name, **fields)
    if annotation is not None:
        found["metadata"]["annotations"] = {HOSTS: annotation}
    return found


def naming(secret_name: str, **redis: Any) -> dict[str, Any]:
    """A `spec.redis` that names a Secret."""
    return {"secretRef": {"name": secret_name}, **redis}


# The Secret's fields, and the URL scheme under which the tenant names a server of their own.
STOLEN = {
    "of-anything-else": ({"username": "postgres", "password": PASSWORD}, "redis"),
    "with-a-url": ({"url": f"redis://postgres:{PASSWORD}@127.0.0.1:1/0"}, "redis"),
    "tls-in-clear": ({"url": f"rediss://postgres:{PASSWORD}@127.0.0.1:1/0"}, "redis"),
    "tls-elsewhere": ({"url": f"rediss://postgres:{PASSWORD}@127.0.0.1:1/0"}, "rediss"),
}


def test_a_secret_is_not_sent_to_a_host_it_does_not_name(
    tenant: Tenant, eve: HostileServer, stream: str
) -> None:
    tenant.apply_raw(*(secret(name, **fields) for name, (fields, _) in STOLEN.items()))
    tenant.apply_raw(secret("same-host", url=f"rediss://u:{PASSWORD}@127.0.0.1:{eve.port}"))
    for name, scheme in [*((name, one[1]) for name, one in STOLEN.items()), ("same-host", "redis")]:
        redis = naming(name, url=f"{scheme}://127.0.0.1:{eve.port}")
        tenant.create("StreamConsumerGroup", name, a_spec("", f"{stream}-{name}", redis=redis))
    for name in (*STOLEN, "same-host"):
        refused = tenant.await_refusal(name)
        assert "postgres" not in refused["message"] and PASSWORD not in refused["message"]
    assert "TLS" in tenant.await_refusal("same-host")["message"]
    assert (eve.connections, bytes(eve.received)) == (0, b"")


def test_passwords_certificates_and_sentinel_secrets_go_only_to_listed_hosts(
    tenant: Tenant, eve: HostileServer, redis_tls: StandaloneServers, stream: str
) -> None:
    pair = {key: text for key, text in redis_tls.secret().items() if key.startswith("tls.")}
    fields = {"password": PASSWORD, **pair}
    tenant.apply_raw(secret("none", **fields), secret("others", annotation="redis", **fields))
    tls, plain = f"rediss://127.0.0.1:{eve.port}", f"redis://127.0.0.1:{eve.port}"
    sentinel = {"masterName": "m", "nodes": [f"127.0.0.1:{eve.port}"]}
    for name in ("none", "others"):
        ref = {"name": name}
        for part, redis in {
            "auth": {"url": plain, "authSecretRef": ref},
            "cert": {"url": tls, "tls": {"certSecretRef": ref}},
            "sentinel": {"sentinel": {**sentinel, "authSecretRef": ref}},
        }.items():
            spec = a_spec("", f"{stream}-{part}-{name}", redis=redis)
            tenant.create("StreamConsumerGroup", f"{part}-{name}", spec)
    for part in ("auth", "cert"):
        for name in ("none", "others"):
            refused = tenant.await_refusal(f"{part}-{name}")
            assert refused["reason"] == "CredentialsNotAllowed"
            assert f"Secret {name}" in refused["message"]
            assert PASSWORD not in refused["message"]
    # A Sentinel is asked without a password first; it is never given one.
    assert HOSTS in tenant.await_refusal("sentinel-none")["message"]
    assert PASSWORD.encode() not in bytes(eve.received)


def test_a_sentinel_of_the_tenant_cannot_send_a_secret_elsewhere(
    tenant: Tenant, eve: HostileServer, stream: str
) -> None:
    tenant.apply_raw(secret("own", url=f"redis://u:{PASSWORD}@127.0.0.1:1"))
    tenant.apply_raw(secret("listed", annotation="redis-1.shop, 10.0.0.0/8", password=PASSWORD))
    with fake_sentinel(eve.port) as sentinel:
        for name in ("own", "listed"):
            redis = naming(name, sentinel={"masterName": "m", "nodes": [sentinel.node]})
            tenant.create("StreamConsumerGroup", name, a_spec("", f"{stream}-{name}", redis=redis))
        assert HOSTS in tenant.await_refusal("own")["message"]
        assert f"127.0.0.1:{eve.port}" in tenant.await_refusal("listed")["message"]
        assert sentinel.asked
    assert (eve.connections, bytes(eve.received)) == (0, b"")


def test_an_annotation_of_the_secret_allows_a_separate_address_at_once(
    tenant: Tenant, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis(options=ServerOptions(password=PASSWORD))
    tenant.apply_raw(secret("redis", password=PASSWORD))
    redis = naming("redis", url=servers.url)
    tenant.create("StreamConsumerGroup", NAME, a_spec("", stream, redis=redis))
    assert tenant.await_refusal()["reason"] == "CredentialsNotAllowed"
    tenant.apply_raw(secret("redis", password=PASSWORD, annotation="127.0.0.0/8"))
    tenant.await_condition(NAME, reason="Ready")


def test_no_audit_job_is_made_that_would_take_a_secret_elsewhere(
    tenant: Tenant, eve: HostileServer, redis_86: RedisServers, stream: str
) -> None:
    tenant.apply_raw(secret("postgres", username="postgres", password=PASSWORD))
    wishes = {
        "both": {"redis": naming("postgres", url=eve.url)},
        "of-the-job": {"redis": {"url": redis_86.url}, "jobSecretRef": {"name": "postgres"}},
    }
    common = {"schedule": "0 3 * * *", "archive": {"path": "/archive"}}
    for name, wish in wishes.items():
        spec = {"streamPattern": f"{stream}*", **common, **wish}
        tenant.create("StreamAudit", name, spec)
    for name in wishes:
        assert tenant.await_refusal(name, "streamaudit")["reason"] == "CredentialsNotAllowed"
        assert tenant.get("cronjob", f"{name}-audit") is None
    assert (eve.connections, bytes(eve.received)) == (0, b"")


# What a server sends at once, and what it answers to every command.
FOREIGN = {
    "ssh": (b"SSH-2.0-foreign-banner\r\n", b""),
    "http": (b"", b"HTTP/1.1 400 foreign-banner\r\n\r\n"),
    "an-error": (b"", b"-ERR foreign-banner\r\n"),
    "a-code": (b"", b"-FOREIGN-BANNER x\r\n"),
    "no-permission": (b"", b"-NOPERM no permissions to run the 'foreign-banner' command\r\n"),
    "a-key": (b"", b"-NOPERM no permissions to access the 'foreign-banner' key\r\n"),
    "a-command": (b"", b"-ERR unknown command 'foreign-banner'\r\n"),
    "a-group": (b"", b"-NOGROUP foreign-banner\r\n"),
    "a-redirect": (b"", b"-MOVED 1 foreign-banner/..:1\r\n"),
    "a-slot-map": (b"", b"*1\r\n$14\r\nforeign-banner\r\n"),
    "hosts": (b"", b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$15\r\nforeign-banner/\r\n:1\r\n"),
}


def test_the_status_repeats_no_bytes_of_another_server(tenant: Tenant, stream: str) -> None:
    with ExitStack() as running:
        for name, (banner, reply) in FOREIGN.items():
            server = running.enter_context(hostile_server(partial(_say, reply), banner=banner))
            tenant.create("StreamConsumerGroup", name, a_spec(server.url, f"{stream}-{name}"))
        for name in FOREIGN:
            wait_until(
                lambda name=name: tenant.condition(name).get("status") == "False",  # type: ignore[misc]
                timeout_s=WAIT_S,
                what=f"a status of {name}",
                every_s=0.2,
            )
        where = ("-n", tenant.namespace, "-o", "json")
        for kind in ("scg", "events.events.k8s.io"):
            assert "foreign-banner" not in tenant.plane.kubectl("get", kind, *where).stdout.lower()


def _say(reply: bytes, _: list[bytes]) -> bytes:
    return reply
