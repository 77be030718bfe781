"""The parts of `spec.redis`, each from a Secret of its own, on real servers."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from local_cluster.redis_servers import SentinelServers, ServerOptions, StandaloneServers
from pelops.api.redis import RedisSpec
from pelops.controller.runtime.connections import Connections, Secrets
from pelops.domain.destinations import REDIS_HOSTS
from pelops.errors import (
    AuthenticationFailed,
    CredentialsNotAllowed,
    InvalidSpec,
    NotFound,
    PelopsError,
    RedisUnavailable,
)
from pelops.kube.client import Address, KubeApi
from pelops.redis_core.pool import ServerPool
from pelops.redis_core.server import Server, Topology
from tests.redis_fixtures import RunRedis

ALLOWED = {REDIS_HOSTS: "127.0.0.1"}
PASSWORD = "sesame"
Laid = dict[str, tuple[dict[str, str], dict[str, str]]]  # by name: data and annotations


class Namespace:
    """Answers `get` from what a test laid here."""

    def __init__(self, secrets: Laid) -> None:
        self._secrets = secrets

    async def get(self, address: Address) -> dict[str, Any]:
        if address.name not in self._secrets:
            raise NotFound("not found")
        fields, annotations = self._secrets[address.name]
        data = {key: base64.b64encode(text.encode()).decode() for key, text in fields.items()}
        return {"data": data, "metadata": {"annotations": annotations}}


@asynccontextmanager
async def reached(redis: dict[str, Any], secrets: Laid) -> AsyncIterator[Server]:
    """The server that a resource names, as the operator connects to it."""
    pool = ServerPool()
    api = cast(KubeApi, Namespace(secrets))
    try:
        connections = Connections(pool, Secrets(api, lambda: 0.0))
        yield await connections.server(RedisSpec.model_validate(redis), "shop")
    finally:
        await pool.close()


@pytest.fixture
def secured(run_redis: RunRedis) -> StandaloneServers:
    """A server that wants TLS, a client certificate and a password."""
    options = ServerOptions(tls=True, tls_client_auth=True, password=PASSWORD)
    servers = run_redis(options=options)
    assert isinstance(servers, StandaloneServers)
    return servers


def parts(servers: StandaloneServers, **changes: Any) -> tuple[dict[str, Any], Laid]:
    """`spec.redis` in its long form, and a Secret for each part; None leaves a key out."""
    held = servers.secret()
    redis = {
        "url": f"rediss://127.0.0.1:{servers.servers[0].port}/0",
        "authSecretRef": {"name": "login"},
        "tls": {"caSecretRef": {"name": "ca"}, "certSecretRef": {"name": "cert"}},
    }
    secrets: Laid = {
        "login": ({"password": PASSWORD}, ALLOWED),
        "ca": ({"ca.crt": held["ca.crt"]}, {}),
        "cert": ({"tls.crt": held["tls.crt"], "tls.key": held["tls.key"]}, ALLOWED),
    }
    return redis, {**secrets, **changes}


async def test_each_part_may_come_from_a_secret_of_its_own(secured: StandaloneServers) -> None:
    async with reached(*parts(secured)) as server:
        assert server.kind.topology == Topology.STANDALONE


@pytest.mark.parametrize(
    ("changes", "refusal", "said"),
    [
        ({"login": ({"password": "no"}, ALLOWED)}, AuthenticationFailed, "WRONGPASS|password"),
        (
            {"login": ({"username": "u"}, ALLOWED)},
            InvalidSpec,
            "Secret login does not have the key password",
        ),
        ({"login": ({"password": PASSWORD}, {})}, CredentialsNotAllowed, "Secret login"),
        (
            {"login": ({"password": PASSWORD}, {REDIS_HOSTS: "eve"})},
            CredentialsNotAllowed,
            "Secret login",
        ),
        ({"ca": ({"tls.crt": "x"}, {})}, InvalidSpec, "Secret ca does not have the key ca.crt"),
        ({"ca": ({"ca.crt": "x"}, {})}, InvalidSpec, "ca.crt"),
        (
            {"cert": ({"tls.crt": "x"}, ALLOWED)},
            InvalidSpec,
            "Secret cert does not have the key tls.key",
        ),
    ],
    ids=str,
)
async def test_a_part_that_does_not_fit_is_named(
    secured: StandaloneServers, changes: Laid, refusal: type[PelopsError], said: str
) -> None:
    with pytest.raises(refusal, match=said):
        async with reached(*parts(secured, **changes)):
            pass


async def test_a_client_certificate_goes_only_where_its_secret_allows(
    secured: StandaloneServers,
) -> None:
    redis, secrets = parts(secured)
    secrets["cert"] = (secrets["cert"][0], {})
    with pytest.raises(CredentialsNotAllowed, match="Secret cert"):
        async with reached(redis, secrets):
            pass
    secrets["cert"] = (secrets["cert"][0], {REDIS_HOSTS: "eve"})
    with pytest.raises(CredentialsNotAllowed, match="Secret cert"):
        async with reached(redis, secrets):
            pass


async def test_a_secret_that_is_missing_is_named(secured: StandaloneServers) -> None:
    redis, secrets = parts(secured)
    del secrets["ca"]
    with pytest.raises(NotFound, match="Secret shop/ca does not exist"):
        async with reached(redis, secrets):
            pass


async def test_the_name_in_certificates_may_be_another_than_the_host(
    secured: StandaloneServers,
) -> None:
    redis, secrets = parts(secured)
    redis["tls"]["serverName"] = "localhost"  # which the certificate names too
    async with reached(redis, secrets) as server:
        assert server.kind.version is not None
    redis["tls"]["serverName"] = "redis.shop"
    with pytest.raises(RedisUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        async with reached(redis, secrets):
            pass


def sentinels(servers: SentinelServers) -> dict[str, Any]:
    nodes = [f"{host}:{port}" for host, port in servers.sentinel_nodes]
    return {
        "masterName": servers.sentinel_master,
        "nodes": nodes,
        "authSecretRef": {"name": "guards"},
    }


@pytest.fixture
def guarded(run_redis: RunRedis) -> SentinelServers:
    """A master with one password, and Sentinels with another one."""
    servers = run_redis(topology="sentinel", options=ServerOptions(password=PASSWORD))
    assert isinstance(servers, SentinelServers)
    for sentinel in servers.sentinels:
        sentinel.cli("ACL", "SETUSER", "default", "resetpass", ">guards")
    return servers


async def test_sentinels_may_have_credentials_of_their_own(guarded: SentinelServers) -> None:
    redis = {"sentinel": sentinels(guarded), "authSecretRef": {"name": "login"}}
    secrets: Laid = {
        "login": ({"password": PASSWORD}, ALLOWED),
        "guards": ({"password": "guards"}, ALLOWED),
    }
    async with reached(redis, secrets) as server:
        assert server.kind.topology == Topology.SENTINEL
    # The Secret of one is not used for the other.
    swapped = {"login": secrets["guards"], "guards": secrets["login"]}
    with pytest.raises(PelopsError):
        async with reached(redis, swapped):
            pass


@pytest.mark.parametrize("annotations", [{}, {REDIS_HOSTS: "eve"}], ids=["none", "another host"])
async def test_sentinels_are_given_a_password_only_if_its_secret_lists_them(
    guarded: SentinelServers, annotations: dict[str, str]
) -> None:
    redis = {"sentinel": sentinels(guarded), "authSecretRef": {"name": "login"}}
    secrets: Laid = {
        "login": ({"password": PASSWORD}, ALLOWED),
        "guards": ({"password": "guards"}, annotations),
    }
    with pytest.raises(CredentialsNotAllowed, match="Secret guards"):
        async with reached(redis, secrets):
            pass
