"""The data sets of benchmarks, and the durations that INFO reports, on every server."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from benchmarks.pending import (
    add_entries,
    age_entries,
    count_pending,
    deliver_in_turn,
    pending_ids,
)
from benchmarks.raw_redis import RawRedis
from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.domain.naming import derive_keys
from tests.redis_fixtures import NEWEST_UNLESS_FULL

pytestmark = pytest.mark.full

KEYS = derive_keys("orders:data", "g")


@pytest.fixture(scope="module", params=NEWEST_UNLESS_FULL)
def servers(request: pytest.FixtureRequest) -> Iterator[StandaloneServers]:
    with start_standalone(request.param) as running:
        yield running


@pytest.fixture
def raw(servers: StandaloneServers) -> Iterator[RawRedis]:
    with RawRedis(servers.server.port) as connection:
        connection.call("FLUSHALL")
        connection.call("XGROUP", "CREATE", KEYS.stream, KEYS.group, "0", "MKSTREAM")
        yield connection


def test_entries_are_delivered_to_consumers_in_turn(raw: RawRedis) -> None:
    add_entries(raw, KEYS.stream, 2_500)
    deliver_in_turn(raw, KEYS, ["a", "b", "c"], 2_500, each=1000)
    assert count_pending(raw, KEYS) == 2_500
    owned = [len(pending_ids(raw, KEYS, owner)) for owner in ("a", "b", "c")]
    assert owned == [1000, 1000, 500]


def test_only_aged_entries_have_a_long_idle_time(raw: RawRedis) -> None:
    add_entries(raw, KEYS.stream, 1000)
    deliver_in_turn(raw, KEYS, ["a"], 1000, each=1000)
    some = pending_ids(raw, KEYS)[::100]
    age_entries(raw, KEYS, "b", some, 60_000)
    found = raw.call("XPENDING", KEYS.stream, KEYS.group, "IDLE", 60_000, "-", "+", 1000)
    assert [entry[0].decode() for entry in found] == some
    assert {entry[1] for entry in found} == {b"b"}
    assert all(one[2] < other[2] for one, other in pairwise(found))
