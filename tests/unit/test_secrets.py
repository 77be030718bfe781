"""Secrets are read when needed, seldom, and not kept for long."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pelops.controller.runtime.connections import MAX_AGE_S, Secrets
from pelops.errors import InvalidSpec, NotFound
from pelops.kube.client import Address, KubeApi


class Shelf:
    """Answers `get` from what a test laid here, and counts."""

    def __init__(self) -> None:
        self.fields: dict[str, dict[str, str] | None] = {}
        self.reads = 0
        self.now = 100.0

    async def get(self, address: Address) -> dict[str, Any]:
        self.reads += 1
        if address.name not in self.fields:
            raise NotFound(f"secrets {address.name!r} not found")
        return {"data": self.fields[address.name]}

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


async def test_a_secret_that_did_not_work_is_read_anew() -> None:
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


async def test_what_nobody_looks_at_leaves_the_memory() -> None:
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
