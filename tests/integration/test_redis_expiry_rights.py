"""Which settings and rights it takes to receive the keys that expire."""

import asyncio
from typing import Final

import pytest

from local_cluster.redis_servers import RedisServers, StandaloneServers
from pelops.domain.naming import derive_keys
from pelops.redis_streams.access import Feature, UserRole, acl_rules
from pelops.redis_streams.recovery.keyspace_events import NOT_ENABLED, ExpiryEvents
from tests.integration.expiring import REPORTING, expire_until_reported, listening_to
from tests.integration.redis_adapter import connected, endpoint_of
from tests.redis_fixtures import RunRedis


@pytest.mark.parametrize("letters", ["Ex", "AE", "KEA", "Exg"])
async def test_keys_are_reported_with_a_setting_that_includes_expiry(
    reporting: StandaloneServers, letters: str
) -> None:
    reporting.cli("CONFIG", "SET", "notify-keyspace-events", letters)
    try:
        async with listening_to(endpoint_of(reporting)) as (server, reported):
            await expire_until_reported(server, reported, "lock")
    finally:
        reporting.cli("CONFIG", "SET", "notify-keyspace-events", "Ex")


@pytest.mark.parametrize("letters", ["", "Kx", "KA", "Eg", "E"])
async def test_a_setting_without_expiry_is_a_problem_and_stays(
    reporting: StandaloneServers, letters: str
) -> None:
    reporting.cli("CONFIG", "SET", "notify-keyspace-events", letters)
    before = reporting.cli("CONFIG", "GET", "notify-keyspace-events")
    try:
        assert await problem_of(reporting) == NOT_ENABLED
        assert reporting.cli("CONFIG", "GET", "notify-keyspace-events") == before
    finally:
        reporting.cli("CONFIG", "SET", "notify-keyspace-events", "Ex")


async def test_a_master_without_expiry_notifications_is_detected(run_redis: RunRedis) -> None:
    cluster = run_redis(topology="cluster", options=REPORTING)
    cluster.masters()[-1].cli("CONFIG", "SET", "notify-keyspace-events", "")
    assert await problem_of(cluster) == NOT_ENABLED


async def test_the_least_rights_suffice_to_listen(reporting: StandaloneServers) -> None:
    grant(reporting, Feature.EXPIRY_EVENTS)
    async with (
        connected(endpoint_of(reporting)) as root,
        listening_to(endpoint_of(reporting, **LIMITED), root) as (_, reported),
    ):
        await expire_until_reported(root, reported, "lock")


async def test_a_missing_right_is_named(reporting: StandaloneServers) -> None:
    grant(reporting)
    problem = await problem_of(reporting, **LIMITED)
    assert "the ACL of the Redis user forbids" in problem
    assert "`pelops acl`" in problem


LIMITED: Final = {"username": "pelops", "password": "sesame"}


def grant(servers: RedisServers, *features: Feature) -> None:
    rules = acl_rules(derive_keys("orders", "g"), UserRole.OPERATOR, features)
    servers.acl_setuser("pelops", "reset", "on", ">sesame", *rules)


async def problem_of(servers: RedisServers, **secret: str) -> str:
    """Why a server sends no events: listening ends with it."""
    async with connected(endpoint_of(servers, **secret)) as server:
        events = ExpiryEvents(server, lambda _: None)
        await asyncio.wait_for(events.run(), 60)
    return str(events.problem)
