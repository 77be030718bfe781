"""Secrets are read when needed, seldom, and not kept for long."""

from __future__ import annotations

import base64
from typing import Any, Final, cast

import pytest

from pelops.api.redis import RedisSpec, SecretRef
from pelops.controller.runtime.connections import MAX_AGE_S, Connections, Secrets
from pelops.domain.destinations import REDIS_HOSTS, parse_address_rules
from pelops.errors import CredentialsNotAllowed, InvalidSpec, NotFound
from pelops.kube.client import Address, KubeApi
from pelops.redis_core.pool import ServerPool

SENTINEL: Final = {"sentinel": {"masterName": "m", "nodes": ["one:26379"]}}


class Shelf:
    """Answers `get` from what a test laid here, and counts."""

    def __init__(self) -> None:
        self.fields: dict[str, dict[str, str] | None] = {}
        self.annotations: dict[str, str] = {}
        self.reads = 0
        self.now = 100.0

    async def get(self, address: Address) -> dict[str, Any]:
        self.reads += 1
        if address.name not in self.fields:
            raise NotFound(f"secrets {address.name!r} not found")
        return {"data": self.fields[address.name], "metadata": {"annotations": self.annotations}}

    def secrets(self) -> Secrets:
        return Secrets(cast(KubeApi, self), lambda: self.now)


async def test_a_secret_is_decoded_and_read_once_within_its_age() -> None:
    shelf = Shelf()
    shelf.fields["redis"] = {"url": "cmVkaXM6Ly9y", "password": ""}
    secrets = shelf.secrets()
    for _ in range(3):
        assert await secrets.read("shop", "redis") == {"url": b"redis://r", "password": b""}
    assert shelf.reads == 1
    shelf.now += MAX_AGE_S
    await secrets.read("shop", "redis")
    assert shelf.reads == 2


async def test_namesakes_in_two_namespaces_are_two_secrets() -> None:
    shelf = Shelf()
    shelf.fields["redis"] = None
    secrets = shelf.secrets()
    assert await secrets.read("shop", "redis") == {}
    await secrets.read("store", "redis")
    assert shelf.reads == 2


async def test_a_secret_that_did_not_work_is_read_again() -> None:
    shelf = Shelf()
    shelf.fields["redis"] = {"password": "b2xk"}
    secrets = shelf.secrets()
    await secrets.read("shop", "redis")
    shelf.fields["redis"] = {"password": "bmV3"}
    secrets.forget("shop", "redis")
    assert await secrets.read("shop", "redis") == {"password": b"new"}


async def test_a_secret_that_is_gone_is_not_remembered() -> None:
    shelf = Shelf()
    shelf.fields["redis"] = {"url": "cmVkaXM6Ly9y"}
    secrets = shelf.secrets()
    await secrets.read("shop", "redis")
    del shelf.fields["redis"]
    shelf.now += MAX_AGE_S
    for _ in range(2):
        with pytest.raises(NotFound):
            await secrets.read("shop", "redis")
    shelf.fields["redis"] = {"url": "bmV3"}
    assert await secrets.read("shop", "redis") == {"url": b"new"}


async def test_a_secret_that_is_no_longer_used_is_pruned() -> None:
    shelf = Shelf()
    shelf.fields["redis"] = {}
    secrets = shelf.secrets()
    await secrets.read("shop", "redis")
    assert secrets.age("shop", "redis") == 0
    shelf.now += 2 * MAX_AGE_S
    secrets.prune()
    assert secrets.age("shop", "redis") == 2 * MAX_AGE_S
    shelf.now += 1
    secrets.prune()
    assert secrets.age("shop", "redis") == 0


@pytest.mark.parametrize("text", ["not base64!", "é"])
async def test_a_field_that_cannot_be_decoded_is_named_and_not_shown(text: str) -> None:
    shelf = Shelf()
    shelf.fields["redis"] = {"password": text}
    with pytest.raises(InvalidSpec) as refusal:
        await shelf.secrets().read("shop", "redis")
    assert "the key password of the Secret redis" in str(refusal.value)
    assert text not in str(refusal.value)


async def test_the_hosts_that_a_secret_lists_come_with_it() -> None:
    shelf = Shelf()
    shelf.fields["redis"] = {"password": "bmV3"}
    shelf.annotations = {REDIS_HOSTS: "redis.shop", "other": "x"}
    assert await shelf.secrets().read("shop", "redis") == {
        "password": b"new",
        REDIS_HOSTS: b"redis.shop",
    }


def listed(hosts: str | None, **fields: str) -> tuple[Shelf, Connections]:
    shelf = Shelf()
    shelf.fields["redis"] = {
        name: base64.b64encode(text.encode()).decode() for name, text in fields.items()
    }
    shelf.annotations = {} if hosts is None else {REDIS_HOSTS: hosts}
    return shelf, Connections(ServerPool(), shelf.secrets(), parse_address_rules("", ""))


@pytest.mark.parametrize(
    ("hosts", "fields", "redis", "is_allowed"),
    [
        (None, {"password": "p"}, {"url": "redis://eve"}, False),
        ("one", {"password": "p"}, {"url": "redis://eve"}, False),
        ("eve", {"password": "p"}, {"url": "redis://eve"}, True),
        (None, {"url": "redis://:p@one"}, {"url": "redis://eve"}, True),  # the job goes to one
        (None, {"accessKeyId": "k"}, {"url": "redis://eve"}, True),
        (None, {"password": "p"}, SENTINEL, False),
        ("*", {"password": "p"}, SENTINEL, True),
    ],
)
async def test_a_job_takes_its_secret_only_where_that_allows(
    hosts: str | None, fields: dict[str, str], redis: dict[str, Any], is_allowed: bool
) -> None:
    _, connections = listed(hosts, **fields)
    spec, own = RedisSpec.model_validate(redis), SecretRef(name="redis")
    if is_allowed:
        await connections.check_job_secret(spec, own, "shop")
        return
    with pytest.raises(CredentialsNotAllowed):
        await connections.check_job_secret(spec, own, "shop")


async def test_a_job_uses_another_secrets_address_only_if_its_own_allows() -> None:
    shelf, connections = listed("one", password="p")
    address = base64.b64encode(b"redis://a:b@one:6379/2").decode()
    shelf.fields["address"] = {"url": address}
    spec = RedisSpec.model_validate({"secretRef": {"name": "address"}})
    own = SecretRef(name="redis")
    await connections.check_job_secret(spec, own, "shop")
    access = await connections.access_of(spec, own, "shop")
    assert (access.url_secret, access.credential_hosts) == ("address", "one")
    shelf, connections = listed("two", password="p")
    shelf.fields["address"] = {"url": address}
    shelf.annotations = {REDIS_HOSTS: "two"}
    with pytest.raises(CredentialsNotAllowed):
        await connections.check_job_secret(spec, own, "shop")
