"""What a hostile tenant gains by naming a Secret, an address, or a server of their own: nothing.

The tenant may create StreamConsumerGroups in one namespace and read their status, no more: neither
Secrets nor pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import ServerOptions
from tests.e2e.declaring import NAME, a_spec
from tests.e2e.declaring import secret as a_secret
from tests.fake_sentinel import fake_sentinel
from tests.hostile_servers import HostileServer, hostile_server
from tests.operators import Operators
from tests.redis_fixtures import RunRedis
from tests.tenant import Tenant

REFERENCE = {"secretRef": {"name": "orders-redis"}}
PASSWORD = "s3cr3t-of-another-team"
HOSTS = "pelops.dev/redis-hosts"


@pytest.fixture
def tenant(plane: ControlPlane, operator: Operators, namespace: str) -> Tenant:
    """Somebody who may create resources in an empty namespace that two replicas watch."""
    return Tenant(plane, namespace)


@pytest.fixture
def eve() -> Iterator[HostileServer]:
    """A server of the tenant's own."""
    with hostile_server() as server:
        yield server


def secret(*, annotation: str | None = None, **fields: str) -> dict[str, Any]:
    """The Secret of another team, which the tenant may not read."""
    found = a_secret("orders-redis", **fields)
    if annotation is not None:
        found["metadata"]["annotations"] = {HOSTS: annotation}
    return found


@pytest.mark.parametrize(
    ("fields", "scheme"),
    [
        ({"username": "postgres", "password": PASSWORD}, "redis"),
        ({"url": f"redis://postgres:{PASSWORD}@127.0.0.1:1/0"}, "redis"),
        ({"url": f"rediss://postgres:{PASSWORD}@127.0.0.1:1/0"}, "redis"),
        ({"url": f"rediss://postgres:{PASSWORD}@127.0.0.1:1/0"}, "rediss"),
    ],
    ids=["of anything else", "with a url", "with TLS, in clear", "with TLS, to another host"],
)
def test_a_secret_is_not_sent_to_a_host_that_it_does_not_name(
    tenant: Tenant, eve: HostileServer, stream: str, fields: dict[str, str], scheme: str
) -> None:
    tenant.apply_raw(secret(**fields))
    url = f"{scheme}://127.0.0.1:{eve.port}"
    tenant.create("StreamConsumerGroup", NAME, a_spec("", stream, redis={**REFERENCE, "url": url}))
    refused = tenant.await_refusal()
    assert (eve.connections, bytes(eve.received)) == (0, b"")
    assert "postgres" not in refused["message"] and PASSWORD not in refused["message"]


def test_a_secret_that_says_tls_is_never_sent_in_clear(
    tenant: Tenant, eve: HostileServer, stream: str
) -> None:
    tenant.apply_raw(secret(url=f"rediss://u:{PASSWORD}@127.0.0.1:{eve.port}"))
    redis = {**REFERENCE, "url": eve.url}
    tenant.create("StreamConsumerGroup", NAME, a_spec("", stream, redis=redis))
    assert "TLS" in tenant.await_refusal()["message"]
    assert (eve.connections, bytes(eve.received)) == (0, b"")


def test_a_sentinel_of_the_tenant_cannot_send_a_secret_elsewhere(
    tenant: Tenant, eve: HostileServer, stream: str
) -> None:
    tenant.apply_raw(secret(url=f"redis://u:{PASSWORD}@127.0.0.1:1"))
    with fake_sentinel(eve.port) as sentinel:
        redis = {**REFERENCE, "sentinel": {"masterName": "m", "nodes": [sentinel.node]}}
        tenant.create("StreamConsumerGroup", NAME, a_spec("", stream, redis=redis))
        assert HOSTS in tenant.await_refusal()["message"]
    assert (eve.connections, bytes(eve.received)) == (0, b"")


def test_with_an_annotation_a_sentinel_names_masters_among_its_hosts_only(
    tenant: Tenant, eve: HostileServer, stream: str
) -> None:
    tenant.apply_raw(secret(annotation="redis-1.shop, 10.0.0.0/8", password=PASSWORD))
    with fake_sentinel(eve.port) as sentinel:
        redis = {**REFERENCE, "sentinel": {"masterName": "m", "nodes": [sentinel.node]}}
        tenant.create("StreamConsumerGroup", NAME, a_spec("", stream, redis=redis))
        assert f"127.0.0.1:{eve.port}" in tenant.await_refusal()["message"]
        assert sentinel.asked
    assert (eve.connections, bytes(eve.received)) == (0, b"")


def test_an_annotation_of_the_secret_allows_a_separate_address_at_once(
    tenant: Tenant, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis(options=ServerOptions(password=PASSWORD))
    tenant.apply_raw(secret(password=PASSWORD))
    redis = {**REFERENCE, "url": servers.url}
    tenant.create("StreamConsumerGroup", NAME, a_spec("", stream, redis=redis))
    assert tenant.await_refusal()["reason"] == "CredentialsNotAllowed"
    tenant.apply_raw(secret(password=PASSWORD, annotation="127.0.0.0/8"))
    tenant.await_condition(NAME, reason="Ready")


@pytest.mark.parametrize("by", ["redis", "jobSecretRef"])
def test_no_audit_job_is_made_that_would_take_a_secret_elsewhere(
    tenant: Tenant, eve: HostileServer, stream: str, by: str
) -> None:
    tenant.apply_raw(secret(username="postgres", password=PASSWORD))
    own = {"redis": {"url": eve.url}, "jobSecretRef": REFERENCE["secretRef"]}
    both = {"redis": {"url": eve.url, **REFERENCE}}
    spec = {
        "streamPattern": f"{stream}*",
        "schedule": "0 3 * * *",
        "archive": {"path": "/archive"},
        **(both if by == "redis" else own),
    }
    tenant.create("StreamAudit", NAME, spec)
    tenant.await_refusal(kind="streamaudit")
    assert tenant.get("cronjob", f"{NAME}-audit") is None
    assert PASSWORD.encode() not in eve.received


BANNERS = {
    "ssh": (b"SSH-2.0-foreign-banner\r\n", b""),
    "http": (b"", b"HTTP/1.1 400 foreign-banner\r\n\r\n"),
    "an error": (b"", b"-ERR foreign-banner\r\n"),
    "a code": (b"", b"-FOREIGN-BANNER x\r\n"),
    "no permission": (b"", b"-NOPERM no permissions to run the 'foreign-banner' command\r\n"),
    "a key": (b"", b"-NOPERM no permissions to access the 'foreign-banner' key\r\n"),
    "a command": (b"", b"-ERR unknown command 'foreign-banner'\r\n"),
    "a group": (b"", b"-NOGROUP foreign-banner\r\n"),
    "a redirect": (b"", b"-MOVED 1 foreign-banner/..:1\r\n"),
    "a slot map": (b"", b"*1\r\n$14\r\nforeign-banner\r\n"),
    "hosts": (b"", b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$15\r\nforeign-banner/\r\n:1\r\n"),
    "a text": (b"", b"$14\r\nforeign-banner\r\n"),
}


@pytest.mark.parametrize(("banner", "reply"), BANNERS.values(), ids=BANNERS)
def test_the_status_repeats_no_bytes_of_another_server(
    tenant: Tenant, stream: str, banner: bytes, reply: bytes
) -> None:
    with hostile_server(lambda _: reply, banner=banner) as server:
        tenant.create("StreamConsumerGroup", NAME, a_spec(server.url, stream))
        wait_until(
            lambda: tenant.condition(NAME).get("status") == "False" and server.connections,
            timeout_s=20,
            what="a status",
        )
        seen = json.dumps(tenant.get("scg", NAME))
        events = json.dumps(tenant.events(NAME))
    assert "foreign-banner" not in (seen + events).lower()
