"""The fault runner reads from an append-only file the commands that the server has executed."""

from __future__ import annotations

import pytest
import redis

from local_cluster.redis_servers import ServerOptions, start_standalone
from tests.faults.aof import cut_tail, find_file
from tests.faults.building import AOF
from tests.redis_fixtures import NEWEST_UNLESS_FULL

LONG_MS = 3_600_000


@pytest.mark.parametrize("version", NEWEST_UNLESS_FULL)
def test_a_killed_server_s_file_names_what_was_added_delivered_and_acknowledged(
    version: str,
) -> None:
    with start_standalone(version, options=ServerOptions(append_only="always", config=AOF)) as one:
        client = redis.Redis(port=one.master().port, decode_responses=True)
        client.xgroup_create("s", "g", id="0", mkstream=True)
        added = [client.xadd("s", {"unique": str(number)}) for number in range(3)]
        client.xreadgroup("g", "jane", {"s": ">"}, count=2)
        client.xack("s", "g", added[0])
        one.master().kill()
        kept = cut_tail(find_file(one.master().directory), keep_until_s=0, fraction=1)
    named = [("s", str(entry_id)) for entry_id in added]
    assert kept.added == set(named)
    assert kept.deliveries == {(*one, "jane") for one in named[:2]}
    assert kept.acknowledged == set(named[:1])
    assert not kept.cut_bytes


@pytest.mark.parametrize("version", NEWEST_UNLESS_FULL)
def test_a_restart_loses_the_time_of_history_reads(version: str) -> None:
    """Why an entry may be offered twice for one delivery: see `_is_read_forgotten`."""
    with start_standalone(version, options=ServerOptions(append_only="always", config=AOF)) as one:
        client = redis.Redis(port=one.master().port, decode_responses=True)
        client.xgroup_create("s", "g", id="0", mkstream=True)
        entry_id = client.xadd("s", {"unique": "1"})
        client.xreadgroup("g", "jane", {"s": ">"})
        client.xclaim("s", "g", "jane", 0, [entry_id], idle=LONG_MS, justid=True)

        def idle_ms() -> int:
            (line,) = client.xpending_range("s", "g", "-", "+", 1)
            return int(line["time_since_delivered"])

        client.xreadgroup("g", "jane", {"s": "0"})
        assert idle_ms() < LONG_MS
        one.master().kill()
        one.master().start()
        assert idle_ms() >= LONG_MS
