"""The data sets of benchmarks, and the durations that INFO reports, on every server."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from benchmarks.pending import (
    BODY,
    add_entries,
    age_entries,
    body_bytes,
    count_pending,
    deliver_in_turn,
    pending_ids,
    require,
)
from benchmarks.raw_redis import RawRedis, pack
from benchmarks.server_time import SCANNING, CallMeter, longest_of, scanning_ms
from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.domain.naming import derive_keys
from pelops.scripts.calls import load_script
from tests.redis_fixtures import NEWEST_UNLESS_FULL

pytestmark = pytest.mark.full

KEYS = derive_keys("orders:data", "g")
ENDS = (("XRANGE", ("-", "+")), ("XREVRANGE", ("+", "-")))


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


def test_an_entry_has_200_bytes() -> None:
    assert body_bytes() == 200
    assert len(BODY) == 6


def test_entries_are_delivered_to_consumers_in_turn(raw: RawRedis) -> None:
    add_entries(raw, KEYS.stream, 2_500)
    deliver_in_turn(raw, KEYS, ["a", "b", "c"], 2_500, each=1000)
    assert count_pending(raw, KEYS) == 2_500
    owned = [len(pending_ids(raw, KEYS, owner)) for owner in ("a", "b", "c")]
    assert owned == [1000, 1000, 500]


def test_entries_get_the_ids_that_were_asked_for(raw: RawRedis) -> None:
    add_entries(raw, KEYS.stream, 45_000, first_ms=7, per_ms=100)
    assert raw.call("XLEN", KEYS.stream) == 45_000
    first, last = (raw.call(c, KEYS.stream, *e, "COUNT", 1)[0][0] for c, e in ENDS)
    assert (first, last) == (b"7-1", b"456-100")


def test_only_aged_entries_have_a_long_idle_time(raw: RawRedis) -> None:
    add_entries(raw, KEYS.stream, 1000)
    deliver_in_turn(raw, KEYS, ["a"], 1000, each=1000)
    some = pending_ids(raw, KEYS)[::100]
    age_entries(raw, KEYS, "b", some, 60_000)
    found = raw.call("XPENDING", KEYS.stream, KEYS.group, "IDLE", 60_000, "-", "+", 1000)
    assert [entry[0].decode() for entry in found] == some
    assert {entry[1] for entry in found} == {b"b"}
    assert all(one[2] < other[2] for one, other in pairwise(found))


def test_an_unexpected_number_of_entries_ends_the_run() -> None:
    require(5, 5, "entries")
    with pytest.raises(RuntimeError, match="entries: 4 instead of 5"):
        require(4, 5, "entries")


def test_ignored_replies_leave_the_connection_usable(raw: RawRedis) -> None:
    pair = pack("XADD", KEYS.stream, "*", "f", "v") + pack("XLEN", KEYS.stream)
    raw.drive([pair * 500] * 4, lines=3 * 500)
    raw.send_quietly([pair * 1000])
    assert raw.call("XLEN", KEYS.stream) == 3000


def test_commands_within_scripts_are_not_measured_as_calls(raw: RawRedis) -> None:
    script = load_script("find_idle")
    raw.call("SCRIPT", "LOAD", script.text)
    meter = CallMeter(raw)
    meter.start()
    raw.call("CONFIG", "RESETSTAT")
    for _ in range(3):
        raw.call("EVALSHA", script.sha, 1, KEYS.stream, KEYS.group, "-", "+", 0, 10, "visit")
    raw.call("XINFO", "CONSUMERS", KEYS.stream, KEYS.group)
    calls = meter.stop()
    assert [call.name for call in calls] == ["xinfo|consumers", *["find_idle"] * 3]
    assert set(longest_of(calls)) <= {*SCANNING, "xinfo|consumers"}
    assert scanning_ms(raw) == pytest.approx(sum(call.ms for call in calls), rel=0.01)


def test_what_came_before_the_start_is_not_measured(raw: RawRedis) -> None:
    raw.call("XINFO", "CONSUMERS", KEYS.stream, KEYS.group)
    meter = CallMeter(raw)
    meter.start()
    assert meter.stop() == []
