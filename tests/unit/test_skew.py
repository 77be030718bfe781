"""A node's clock that runs ahead must not take entries from a worker; one that runs behind only
costs time."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from pelops.controller.recovery.pod_evidence import FRESH_S, NodeClocks
from pelops.errors import Forbidden, KubernetesError, KubernetesUnavailable, NotFound
from pelops.kube.client import Address, KubeApi
from pelops.policy.recovery.liveness import (
    KEPT,
    LEASE_PERIOD,
    ClockSample,
    decide_allowance,
    remember_sample,
)
from tests.builders import NOW, later

DEFAULT = timedelta(seconds=2)
SECOND = timedelta(seconds=1)


def sample(*, ahead_s: float, read: datetime = NOW) -> ClockSample:
    """A Lease that was renewed so much after the time at which it was read."""
    return ClockSample(renewed=read + timedelta(seconds=ahead_s), read=read)


# --- the decision


@pytest.mark.parametrize("ahead_s", [-86400, -10, -0.001, 0])
def test_a_clock_that_is_not_proven_ahead_is_allowed_the_default(ahead_s: float) -> None:
    assert decide_allowance([sample(ahead_s=ahead_s)], NOW, default=DEFAULT) == DEFAULT


def test_without_a_sample_the_default_stands() -> None:
    assert decide_allowance([], NOW, default=DEFAULT) == DEFAULT


@pytest.mark.parametrize("ahead_s", [0.001, 3, 600])
def test_a_clock_that_is_proven_ahead_is_allowed_a_lease_period_more(ahead_s: float) -> None:
    allowed = decide_allowance([sample(ahead_s=ahead_s)], NOW, default=DEFAULT)
    assert allowed == timedelta(seconds=ahead_s) + LEASE_PERIOD + DEFAULT


def test_the_furthest_proof_of_the_last_hour_decides() -> None:
    samples = [
        sample(ahead_s=90, read=later(hours=-1, seconds=-1)),
        sample(ahead_s=30, read=later(hours=-1)),
        sample(ahead_s=20, read=later(seconds=-1)),
    ]
    allowed = decide_allowance(samples, NOW, default=DEFAULT)
    assert allowed == timedelta(seconds=30) + LEASE_PERIOD + DEFAULT


def test_a_sample_with_a_future_redis_time_is_dropped() -> None:
    samples = [sample(ahead_s=30, read=later(hours=2))]
    assert decide_allowance(samples, NOW, default=DEFAULT) == DEFAULT


def test_a_proven_allowance_covers_the_true_skew_whenever_the_lease_was_read() -> None:
    chance = random.Random(20261121)
    for _ in range(2000):
        skew = timedelta(seconds=chance.uniform(-60, 60))
        age = chance.uniform(0, LEASE_PERIOD.total_seconds())
        renewed_at = NOW - timedelta(seconds=age)
        allowed = decide_allowance(
            [ClockSample(renewed=renewed_at + skew, read=NOW)], NOW, default=DEFAULT
        )
        assert allowed >= skew or (allowed == DEFAULT and skew < LEASE_PERIOD)


def test_what_is_remembered_decides_as_all_samples_would() -> None:
    chance = random.Random(20261121)
    kept: tuple[ClockSample, ...] = ()
    everything: list[ClockSample] = []
    now = NOW
    for _ in range(1000):
        now += timedelta(seconds=chance.uniform(0, 60))
        latest = sample(ahead_s=chance.uniform(-10, 10), read=now)
        kept = remember_sample(kept, latest)
        everything.append(latest)
        assert decide_allowance(kept, now, default=DEFAULT) == decide_allowance(
            everything, now, default=DEFAULT
        )
        assert all(now - each.read <= KEPT for each in kept)
        leads = [each.ahead for each in kept]
        assert leads == sorted(set(leads), reverse=True)


# --- the Leases


class Leases:
    """Answers `get` from what a test laid here, counts, and is the monotonic clock."""

    def __init__(self) -> None:
        self.renew_times: dict[str, str | None] = {}
        self.failure: KubernetesError | None = None
        self.asked: list[Address] = []
        self.now = 100.0
        self.takes_s = 0.0

    async def get(self, address: Address) -> dict[str, Any]:
        self.asked.append(address)
        await asyncio.sleep(0)
        self.now += self.takes_s
        if self.failure is not None:
            raise self.failure
        return {"spec": {"renewTime": self.renew_times[address.name]}}

    def renewed(self, node: str, ahead_s: float) -> None:
        renewed = NOW + timedelta(seconds=ahead_s)
        self.renew_times[node] = renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def clocks(self) -> NodeClocks:
        return NodeClocks(cast(KubeApi, self), lambda: self.now)


async def test_the_lease_of_the_node_is_measured_against_redis() -> None:
    leases = Leases()
    leases.renewed("n1", ahead_s=30)
    allowed = await leases.clocks().allowance("n1", NOW, DEFAULT)
    assert allowed == 30 * SECOND + LEASE_PERIOD + DEFAULT
    assert [each.path for each in leases.asked] == [
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
    ]


async def test_a_slow_api_server_makes_no_clock_run_ahead() -> None:
    leases = Leases()
    leases.takes_s = 5.0
    leases.renewed("n1", ahead_s=4)  # while the answer was on its way
    assert await leases.clocks().allowance("n1", NOW, DEFAULT) == DEFAULT


async def test_a_lease_is_read_once_for_all_who_ask_within_five_seconds() -> None:
    leases = Leases()
    leases.renewed("n1", ahead_s=0)
    clocks = leases.clocks()
    await asyncio.gather(*(clocks.allowance("n1", NOW, DEFAULT) for _ in range(5)))
    assert len(leases.asked) == 1
    leases.now += FRESH_S
    await clocks.allowance("n1", NOW, DEFAULT)
    assert len(leases.asked) == 2


async def test_a_proof_outlives_the_sample_that_shows_less() -> None:
    leases = Leases()
    leases.renewed("n1", ahead_s=30)
    clocks = leases.clocks()
    proven = await clocks.allowance("n1", NOW, DEFAULT)
    leases.now += FRESH_S
    assert await clocks.allowance("n1", later(minutes=59), DEFAULT) == proven
    assert await clocks.allowance("n1", later(minutes=61), DEFAULT) == DEFAULT


async def test_the_clock_of_another_redis_or_node_proves_nothing_here() -> None:
    leases = Leases()
    leases.renewed("n1", ahead_s=0)
    leases.renewed("n2", ahead_s=0)
    clocks = leases.clocks()
    behind = await clocks.allowance("n1", later(hours=-2), DEFAULT, server="one")
    assert behind > DEFAULT
    assert await clocks.allowance("n1", NOW, DEFAULT, server="other") == DEFAULT
    assert await clocks.allowance("n2", NOW, DEFAULT, server="one") == DEFAULT


@pytest.mark.parametrize(
    "failure", [Forbidden("no"), NotFound("no"), KubernetesUnavailable("no"), None]
)
async def test_a_lease_that_cannot_be_read_leaves_the_default(
    failure: KubernetesError | None,
) -> None:
    leases = Leases()
    leases.failure = failure
    leases.renew_times["n1"] = None  # never renewed
    clocks = leases.clocks()
    for _ in range(2):
        assert await clocks.allowance("n1", NOW, DEFAULT) == DEFAULT
    assert len(leases.asked) == 1


async def test_without_a_node_no_lease_is_read() -> None:
    leases = Leases()
    assert await leases.clocks().allowance(None, NOW, DEFAULT) == DEFAULT
    assert leases.asked == []


async def test_a_node_that_was_not_used_for_long_is_forgotten() -> None:
    leases = Leases()
    leases.renewed("n1", ahead_s=30)
    clocks = leases.clocks()
    proven = await clocks.allowance("n1", NOW, DEFAULT)
    clocks.prune()
    assert await clocks.allowance("n1", NOW, DEFAULT) == proven
    leases.now += KEPT.total_seconds() + 1
    clocks.prune()
    leases.renewed("n1", ahead_s=0)
    assert await clocks.allowance("n1", NOW, DEFAULT) == DEFAULT
