"""Which groups need no pass, and what makes them need one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pelops.controller.group import settled_groups
from pelops.controller.group.group_observer import ObservedGroup
from pelops.controller.group.settled_groups import LATE, SettledGroups
from pelops.controller.runtime.gate import Progress
from pelops.domain.records.state import OWNERSHIP_LIFETIME
from pelops.domain.stream_observation import RetryObservation
from pelops.errors import RedisUnavailable
from pelops.kube.container_environment import WorkerAccess
from pelops.metrics import GROUP_FACTS
from pelops.policy.scaling.sharing import Claim, Role, Sharing
from pelops.redis_streams.group.group_observation import Digest
from tests.builders import facts, group, keys, owner, resource, stream, workload
from tests.virtual_time import in_scene

NAME = ("shop", "order-processing")
EVERY_S = 10.0
SECRET = {"redis": {"url": "redis://redis:6379", "authSecretRef": {"name": "login"}}}


class FakeServer:
    address = "redis:6379"


def observed(of: Any = None, **changes: Any) -> ObservedGroup:
    """A group at which nothing is to be done."""
    found = facts(resource=of or resource(), stream=stream(digest=7), keys=keys(), **changes)
    server = cast(Any, FakeServer())
    return ObservedGroup(facts=found, owner=owner(), server=server, access=WorkerAccess())


def test_a_group_without_backlog_is_settled() -> None:
    assert observed().facts.is_settled


def a_claim() -> Claim:
    return Claim(name="other", uid="uid-2", created="", is_guest=True, mode=None)


FORMER = RetryObservation(exists=False, is_former=True)
UNSETTLED: dict[str, dict[str, Any]] = {
    "pending entries": {"stream": stream(group=group(pending=1))},
    "undelivered entries": {"stream": stream(group=group(lag=1))},
    "an unknown lag": {"stream": stream(group=group(lag=None))},
    "no group": {"stream": stream(group=None)},
    "nobody's group": {"stream": stream(ownership=None)},
    "a former retry stream": {"stream": stream(retry=FORMER)},
    "a dry run": {"resource": resource(recovery={"dryRun": True})},
    "shared workers": {"sharing": Sharing(role=Role.LEADS, others=(a_claim(),))},
    "a Redis that is away": {"stream": None},
}


@pytest.mark.parametrize("what", UNSETTLED)
def test_what_time_may_change_is_not_settled(what: str) -> None:
    assert not replace(observed().facts, **UNSETTLED[what]).is_settled


def test_a_group_whose_workers_are_not_ready_yet_is_settled() -> None:
    assert observed(workload=workload(ready=0)).facts.is_settled


class Scene:
    """One settled group, on virtual time."""

    def __init__(self, found: ObservedGroup) -> None:
        self.digest: Digest | RedisUnavailable = Digest(7, None)
        self.server: Any = found.server
        self.access = WorkerAccess()
        self.due: list[float] = []
        self.reads = 0
        connections = SimpleNamespace(server=self._server, access_of=self._access_of)
        clock = asyncio.get_running_loop().time
        self.groups = SettledGroups(
            cast(Any, connections), lambda _: self.due.append(clock()), Progress(), clock
        )
        self.holds = self.groups.add(NAME, found, every_s=EVERY_S)

    async def read(self, _: object, requests: Sequence[object]) -> list[object]:
        self.reads += 1
        return [self.digest for _ in requests]

    async def _server(self, *_: object) -> object:
        return self.server

    async def _access_of(self, *_: object) -> WorkerAccess:
        return self.access


@asynccontextmanager
async def watched(found: ObservedGroup | None = None) -> AsyncIterator[Scene]:
    """The loop that reads one settled group."""
    with pytest.MonkeyPatch.context() as patched:
        scene = Scene(found or observed())
        patched.setattr(settled_groups, "read_digests", scene.read)
        running = asyncio.create_task(scene.groups.run())
        try:
            yield scene
        finally:
            running.cancel()
            await asyncio.wait({running})


@in_scene(watched)
async def test_it_is_read_each_interval_for_half_of_the_ownership_lifetime(scene: Scene) -> None:
    assert scene.holds == OWNERSHIP_LIFETIME / 2
    await asyncio.sleep(10.5 * EVERY_S)
    assert 9 <= scene.reads <= 10
    assert not scene.due
    assert scene.groups.is_settled(NAME)


@pytest.mark.parametrize("digest", [Digest(8, None), RedisUnavailable("away")])
@in_scene(watched)
async def test_another_digest_and_a_failure_make_it_due(
    scene: Scene, digest: Digest | RedisUnavailable
) -> None:
    scene.digest = digest
    await asyncio.sleep(1.5 * EVERY_S)
    assert len(scene.due) == 1
    assert not scene.groups.is_settled(NAME)
    await asyncio.sleep(2 * EVERY_S)
    assert len(scene.due) == 1, "from now on it is for the passes"


@in_scene(watched)
async def test_a_secret_that_leads_elsewhere_makes_it_due(scene: Scene) -> None:
    scene.server = object()
    await asyncio.sleep(1.5 * EVERY_S)
    assert len(scene.due) == 1


@in_scene(partial(watched, observed(resource(**SECRET))))
async def test_a_secret_of_workers_with_other_keys_makes_it_due(scene: Scene) -> None:
    scene.access = replace(WorkerAccess(), secret_keys=frozenset({"password"}))
    await asyncio.sleep(1.5 * EVERY_S)
    assert len(scene.due) == 1


@in_scene(watched)
async def test_what_was_read_long_ago_counts_no_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> list[object]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(settled_groups, "read_digests", hang)
    assert scene.groups.is_settled(NAME)
    await asyncio.sleep(LATE * EVERY_S)
    assert not scene.groups.is_settled(NAME)


@in_scene(watched)
async def test_its_last_scan_is_shown(scene: Scene) -> None:
    at = stream().server_time + timedelta(minutes=5)
    scene.digest = Digest(7, at)
    await asyncio.sleep(1.5 * EVERY_S)
    shown = GROUP_FACTS["last_scan"].value(*NAME)
    assert shown == at.timestamp()
    GROUP_FACTS["last_scan"].forget(*NAME)
