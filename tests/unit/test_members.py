"""How a replica uses its Lease and those of the others, and which replica writes first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pelops.controller.runtime.leases import (
    FORGET_AFTER_S,
    FORMAT_ANNOTATION,
    RENEW_S,
    read_lease,
)
from pelops.domain.records.state import FORMAT_VERSION
from pelops.policy.membership import DURATION_S, STEP, VALID_S, SeenLease, rank_of, wait_for_turn
from tests.leases import LeaseStore, RunningReplica
from tests.virtual_time import in_scene, virtually

KEY = "shop/orders"
FIRST, SECOND = sorted(("one", "two"), key=lambda name: rank_of(name, {"one", "two"}, KEY))
STEP_S = 0.1


class Scene:
    """Two replicas, of which FIRST ranks first, and who decided when."""

    def __init__(self) -> None:
        self.store = LeaseStore()
        self.first = RunningReplica(self.store, FIRST)
        self.second = RunningReplica(self.store, SECOND)

    async def watch(self, seconds: float) -> list[tuple[float, str]]:
        """Each change of the replica that decides, with its time; an empty name for none."""
        time = asyncio.get_running_loop().time
        began, seen = time(), [(0.0, "")]
        while time() - began < seconds:
            deciding = [one.identity for one in (self.first, self.second) if one.decides(KEY)]
            assert len(deciding) <= 1, f"{deciding} decide"
            now = deciding[0] if deciding else ""
            if now != seen[-1][1]:
                seen.append((time() - began, now))
            await asyncio.sleep(STEP_S)
        return seen[1:]


@asynccontextmanager
async def two_replicas() -> AsyncIterator[Scene]:
    scene = Scene()
    try:
        yield scene
    finally:
        for one in (scene.first, scene.second):
            one.api.resume()
            await one.kill()


@in_scene(two_replicas)
async def test_a_replica_that_is_alone_decides_at_once(scene: Scene) -> None:
    assert scene.first.members.rank(KEY) == 1
    scene.first.start()
    ((begins, who),) = await scene.watch(STEP_S * 3)
    assert who == FIRST and begins <= STEP_S
    assert scene.first.members.rank(KEY) == 0


@in_scene(two_replicas)
async def test_who_decided_goes_on_until_shortly_before_a_newcomer_begins(scene: Scene) -> None:
    scene.second.start()
    await asyncio.sleep(2 * DURATION_S)
    scene.first.start()
    (_, was), (ends, nobody), (begins, now) = await scene.watch(2 * DURATION_S)
    assert (was, nobody, now) == (SECOND, "", FIRST)
    assert VALID_S - RENEW_S - STEP_S <= ends <= VALID_S + STEP_S
    assert DURATION_S <= begins <= DURATION_S + 2 * STEP_S


@in_scene(two_replicas)
async def test_of_two_that_start_together_one_decides_soon(scene: Scene) -> None:
    scene.first.start()
    scene.second.start()
    ((begins, who),) = await scene.watch(3 * DURATION_S)
    assert who == FIRST
    assert begins <= DURATION_S + 2 * STEP_S


@pytest.mark.parametrize("how", ["killed", "paused"])
@in_scene(two_replicas)
async def test_a_successor_decides_soon_after_a_death_but_after_the_lease(
    scene: Scene, how: str
) -> None:
    scene.first.start()
    scene.second.start()
    await asyncio.sleep(3 * DURATION_S)
    if how == "killed":
        await scene.first.kill()
    else:
        scene.first.api.pause()
    # What was killed here is asked on: it would decide until its Lease ran out.
    *_, (successor, who) = await scene.watch(2 * DURATION_S)
    assert who == SECOND
    assert VALID_S <= successor <= DURATION_S + RENEW_S + 2 * STEP_S


@in_scene(two_replicas)
async def test_who_was_paused_decides_nothing_when_it_goes_on(scene: Scene) -> None:
    scene.first.start()
    scene.second.start()
    await asyncio.sleep(3 * DURATION_S)
    scene.first.api.pause()
    await asyncio.sleep(2 * DURATION_S)
    scene.first.api.resume()
    assert not scene.first.decides(KEY)
    assert scene.first.members.left_s() == 0
    (_, was), *_, (_, last) = await scene.watch(2 * DURATION_S)
    assert (was, last) == (SECOND, FIRST)


@in_scene(two_replicas)
async def test_who_leaves_in_order_is_succeeded_after_a_look(scene: Scene) -> None:
    scene.first.start()
    scene.second.start()
    await asyncio.sleep(3 * DURATION_S)
    await scene.first.stop()
    ((begins, who),) = await scene.watch(DURATION_S)
    assert who == SECOND
    assert begins <= RENEW_S + STEP_S


@in_scene(two_replicas)
async def test_decisions_pause_while_the_api_server_is_down(scene: Scene) -> None:
    scene.first.start()
    scene.second.start()
    await asyncio.sleep(3 * DURATION_S)
    scene.store.is_away = True
    (_, was), (ends, nobody) = await scene.watch(3 * DURATION_S)
    assert (was, nobody) == (FIRST, "")
    assert ends <= VALID_S + STEP_S
    scene.store.is_away = False
    # Who renews first finds the other's Lease run out, and decides until that one is back.
    seen = await scene.watch(3 * DURATION_S)
    (begins, _), (_, last) = seen[0], seen[-1]
    assert begins <= DURATION_S + RENEW_S
    assert last == FIRST


@in_scene(two_replicas)
async def test_a_lease_says_for_how_long_it_counts(scene: Scene) -> None:
    # As an older version of the operator writes it, every 10 s.
    lease = {
        "metadata": {"name": FIRST},
        "spec": {"holderIdentity": FIRST, "leaseDurationSeconds": 30},
    }
    scene.store.put(FIRST, lease)
    scene.second.start()
    for _ in range(5):
        await asyncio.sleep(10.0)
        scene.store.put(FIRST, lease)
        assert scene.second.members.rank(KEY) >= 1
        assert not scene.second.decides(KEY)


@in_scene(two_replicas)
async def test_leases_of_the_long_dead_are_removed_whatever_their_times_say(scene: Scene) -> None:
    scene.second.start()
    scene.first.start()
    await asyncio.sleep(DURATION_S)
    await scene.first.kill()
    await asyncio.sleep(FORGET_AFTER_S - RENEW_S)
    assert set(scene.store.leases) == {FIRST, SECOND}
    await asyncio.sleep(FORGET_AFTER_S)
    assert set(scene.store.leases) == {SECOND}


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": ""}, None])
def test_a_lease_without_a_holder_is_ignored(spec: dict[str, Any] | None) -> None:
    assert read_lease({"metadata": {"name": "x"}, "spec": spec}) is None


def test_a_lease_without_a_duration_gets_the_default_duration() -> None:
    metadata = {"name": "x", "resourceVersion": "7"}
    found = read_lease({"metadata": metadata, "spec": {"holderIdentity": "one"}})
    assert found == SeenLease(name="x", holder="one", version="7", duration_s=DURATION_S)


@pytest.mark.parametrize(
    ("written", "format_version"), [("3", 3), (None, 1), ("", 1), ("many", 1), ("-2", 1)]
)
def test_a_lease_says_which_format_its_holder_writes(
    written: str | None, format_version: int
) -> None:
    metadata: dict[str, Any] = {"name": "x"}
    if written is not None:
        metadata["annotations"] = {FORMAT_ANNOTATION: written}
    found = read_lease({"metadata": metadata, "spec": {"holderIdentity": "one"}})
    assert found is not None
    assert found.format == format_version


@in_scene(two_replicas)
async def test_a_replica_is_outdated_while_one_of_a_newer_format_lives(scene: Scene) -> None:
    first, second = scene.first, scene.second
    first.start()
    second.start()
    await asyncio.sleep(DURATION_S)
    assert not first.members.is_outdated()
    lease = scene.store.leases[SECOND]
    assert lease["metadata"]["annotations"] == {FORMAT_ANNOTATION: str(FORMAT_VERSION)}
    await second.kill()
    newer = {**lease["metadata"], "annotations": {FORMAT_ANNOTATION: str(FORMAT_VERSION + 1)}}
    scene.store.put(SECOND, {**lease, "metadata": newer})
    await asyncio.sleep(RENEW_S * 2)
    assert first.members.is_outdated()
    await asyncio.sleep(DURATION_S * 2)  # no replica renews it
    assert not first.members.is_outdated()


@virtually
async def test_a_replica_counts_itself_before_it_observes_others() -> None:
    assert RunningReplica(LeaseStore(), "one").members.alive == {"one"}


# --- Which replica may write first, and how long the others wait


NOW = datetime(2024, 2, 29, tzinfo=UTC)
MEMBERS = ("a", "b", "c")


def test_who_is_alone_writes_first() -> None:
    assert rank_of("a", [], "shop/orders") == rank_of("a", ["a"], "shop/orders") == 0


def test_one_who_is_not_in_the_list_ranks_as_if_it_were() -> None:
    for key in ("shop/orders", "shop/returns", "shop/mails"):
        assert rank_of("c", ["a", "b"], key) == rank_of("c", MEMBERS, key)


def test_the_keys_are_shared_out() -> None:
    first = Counter(
        member for n in range(300) for member in MEMBERS if rank_of(member, MEMBERS, f"k{n}") == 0
    )
    assert sum(first.values()) == 300
    assert min(first.values()) > 50


def test_the_ranks_are_the_same_in_every_version() -> None:
    # Replicas of two versions run beside each other during an upgrade.
    ranks = [rank_of(member, MEMBERS, "shop/orders") for member in MEMBERS]
    assert ranks == [2, 1, 0]


@pytest.mark.parametrize(
    ("rank", "since_s", "wait_s"),
    [(0, 0.0, 0.0), (0, 60.0, 0.0), (1, 0.0, 1.5), (1, 1.0, 0.5), (2, 0.0, 3.0), (2, 9.0, 0.0)],
)
def test_each_rank_waits_one_step_longer_and_never_beyond_its_turn(
    rank: int, since_s: float, wait_s: float
) -> None:
    assert timedelta(seconds=1.5) == STEP
    since = NOW - timedelta(seconds=since_s)
    assert wait_for_turn(rank, since, NOW) == timedelta(seconds=wait_s)
