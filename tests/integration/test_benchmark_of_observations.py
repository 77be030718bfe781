"""The benchmark of looks: each case is what it is said to be, and the report names them all."""

from collections.abc import Iterator
from random import Random

import pytest

from benchmarks.observing_cases import (
    CASES,
    SHORTEST,
    Case,
    fill,
    set_up,
    stream_of,
)
from benchmarks.pending import BODY
from benchmarks.raw_redis import RawRedis
from benchmarks.recovery_ways import operators_server
from local_cluster.redis_servers import start_standalone
from pelops.redis_streams.group.group_observation import observe_group
from tests.redis_fixtures import NEWEST_UNLESS_FULL

pytestmark = pytest.mark.full

LENGTH = SHORTEST


@pytest.fixture(scope="module", params=NEWEST_UNLESS_FULL)
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with start_standalone(request.param) as servers:
        with RawRedis(servers.server.port) as raw:
            fill(raw, LENGTH, BODY)
        yield servers.server.port


def reported_lag(raw: RawRedis) -> int | None:
    (reply,) = raw.call("XINFO", "GROUPS", stream_of(LENGTH))
    lag: int | None = dict(zip(reply[::2], reply[1::2], strict=True))[b"lag"]
    return lag


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_server_and_an_observation_match_the_case(port: int, case: Case) -> None:
    with RawRedis(port) as raw:
        async with operators_server(port) as server:
            stage = await set_up(server, raw, case, LENGTH)
            ahead = stage.place(Random(7))
            seen = await observe_group(server, stage.keys)
            assert reported_lag(raw) == (ahead if case.is_counted else None)
            stage.check(seen, ahead)
            assert seen.group is not None
            assert seen.group.consumers == case.consumers
            stage.end()
