"""Whether servers report keys that expire, and which rights it takes to hear it."""

import pytest

from local_cluster.redis_servers import RedisServers, StandaloneServers
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.redis_streams.access import Feature, Role, acl_rules
from pelops.redis_streams.recovery.keyspace_events import ExpiryEvents, can_see_expiries
from tests.integration.expiring import (
    REPORTING,
    Expiries,
    expire,
    expire_until_reported,
    listening_to,
    until,
)
from tests.integration.redis_adapter import connected, endpoint_of
from tests.redis_fixtures import RunRedis


@pytest.mark.parametrize(
    ("letters", "can_see"),
    [
        *(("Ex", True), ("AE", True), ("KEA", True), ("Exg", True)),
        *(("", False), ("Kx", False), ("KA", False), ("Eg", False), ("E", False)),
    ],
)
async def test_the_setting_shows_whether_expiries_are_published(
    reporting: StandaloneServers, letters: str, can_see: bool
) -> None:
    reporting.cli("CONFIG", "SET", "notify-keyspace-events", letters)
    try:
        async with connected(endpoint_of(reporting)) as server:
            assert await can_see_expiries(server) is can_see
    finally:
        reporting.cli("CONFIG", "SET", "notify-keyspace-events", "Ex")


async def test_the_notification_setting_is_never_changed(empty_redis_86: StandaloneServers) -> None:
    async with listening_to(endpoint_of(empty_redis_86)) as (server, _, reported):
        assert await can_see_expiries(server) is False
        await expire(server, "lock")
        assert reported.keys == []
    assert empty_redis_86.cli("CONFIG", "GET", "notify-keyspace-events").split() == [
        "notify-keyspace-events"
    ]


async def test_a_master_without_expiry_notifications_is_detected(run_redis: RunRedis) -> None:
    cluster = run_redis(topology="cluster", options=REPORTING)
    async with connected(endpoint_of(cluster)) as server:
        assert await can_see_expiries(server) is True
        cluster.masters()[-1].cli("CONFIG", "SET", "notify-keyspace-events", "")
        assert await can_see_expiries(server) is False


def grant(servers: RedisServers, keys: GroupKeys, *features: Feature) -> None:
    rules = acl_rules(keys, Role.OPERATOR, features)
    servers.acl_setuser("pelops", "reset", "on", ">sesame", *rules)


async def test_the_least_rights_suffice_to_listen_and_leave_the_setting_unknown(
    reporting: StandaloneServers,
) -> None:
    grant(reporting, derive_keys("orders", "g"), Feature.EXPIRY_EVENTS)
    endpoint = endpoint_of(reporting, username="pelops", password="sesame")
    async with (
        listening_to(endpoint) as (server, _, reported),
        connected(endpoint_of(reporting)) as root,
    ):
        assert await can_see_expiries(server) is None
        await expire(root, "lock")
        await until(lambda: reported.keys == ["lock"], "the key is reported")


async def test_a_missing_right_is_named_and_a_granted_one_is_used(
    reporting: StandaloneServers,
) -> None:
    keys = derive_keys("orders", "g")
    grant(reporting, keys)
    endpoint = endpoint_of(reporting, username="pelops", password="sesame")
    events, reported = ExpiryEvents(), Expiries()
    async with connected(endpoint) as server, connected(endpoint_of(reporting)) as root:
        try:
            subscription = events.subscribe(server, reported.hear)
            await until(lambda: subscription.denied is not None, "the missing right is named")
            assert "forbids psubscribe __keyevent@*__:expired" in str(subscription.denied)
            grant(reporting, keys, Feature.EXPIRY_EVENTS)
            await expire_until_reported(root, reported, "lock")
            assert subscription.denied is None
        finally:
            await events.close()
