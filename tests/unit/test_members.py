"""Which Leases count, and what a replica tells the others by its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pelops.controller.members import RENEW_S, Members, read_lease
from pelops.errors import Conflict, KubernetesUnavailable
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.resources import Kind
from pelops.policy.membership import DURATION_S, VALID_S
from tests.virtual_time import run_virtually

DECIDED_BY = "shop/orders"


class Leases(KubeApi):
    """The Leases of one namespace, as an API server keeps them."""

    def __init__(self) -> None:
        self.stored: dict[str, Manifest] = {}
        self.version = 0
        self.is_away = False

    async def apply(self, address: Address, body: Manifest, *, manager: str = "pelops") -> Manifest:
        self.answer()
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.stored[address.name] = {**body, "metadata": metadata}
        return self.stored[address.name]

    async def list_all(
        self, kind: Kind, namespace: str | None = None, *, selector: str = ""
    ) -> list[Manifest]:
        self.answer()
        return list(self.stored.values())

    async def delete(
        self, address: Address, *, uid: str | None = None, version: str | None = None
    ) -> None:
        self.answer()
        found = self.stored.get(address.name)
        if version is not None and found and found["metadata"]["resourceVersion"] != version:
            raise Conflict("another version")
        self.stored.pop(address.name, None)

    def answer(self) -> None:
        """Raise when nobody answers."""
        if self.is_away:
            raise KubernetesUnavailable("away")


def member(api: KubeApi, identity: str) -> Members:
    clock = asyncio.get_running_loop().time
    return Members(api, identity=identity, namespace="ns", clock=clock)


def first_of(*members: Members) -> list[str]:
    """Who decides."""
    return [one.identity for one in members if one.decides(DECIDED_BY)]


async def beat(*members: Members, seconds: float = 0.0) -> None:
    """Turns of each, as often as each has them within this time."""
    await asyncio.gather(*(one.beat() for one in members))
    for _ in range(round(seconds / RENEW_S)):
        await asyncio.sleep(RENEW_S)
        await asyncio.gather(*(one.beat() for one in members))


def ranked(api: KubeApi) -> tuple[Members, Members]:
    """The one that decides while both are there, and the other."""
    one, two = member(api, "one"), member(api, "two")
    one_first = one._known.decides  # noqa: SLF001 - only to name its type in failures
    assert one_first is not None
    from pelops.policy.turn import rank_of

    pair = (one, two) if rank_of("one", {"one", "two"}, DECIDED_BY) == 0 else (two, one)
    return pair


def test_a_replica_that_is_alone_decides_at_once() -> None:
    async def main() -> None:
        one = member(Leases(), "one")
        assert first_of(one) == []
        await one.beat()
        assert first_of(one) == ["one"]
        assert one.rank(DECIDED_BY) == 0

    run_virtually(main())


def test_who_decided_goes_on_until_just_before_a_newcomer_begins() -> None:
    async def main() -> None:
        api = Leases()
        newcomer, old = ranked(api)
        await beat(old)
        await asyncio.sleep(1.0)
        deciding = [first_of(old, newcomer)]
        for _ in range(200):
            await beat(newcomer, old)
            deciding.append(first_of(old, newcomer))
            await asyncio.sleep(0.05)
        order = [
            each
            for each, before in zip(deciding, [None, *deciding], strict=False)
            if each != before
        ]
        assert order == [[old.identity], [], [newcomer.identity]]

    run_virtually(main())
