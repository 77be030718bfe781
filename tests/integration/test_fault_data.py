"""What the fault runner notes before it takes everything away."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any, cast

import redis

from local_cluster.redis_servers import StandaloneServers
from tests.faults.collecting import Findings
from tests.faults.data_faults import flush_all
from tests.faults.groups_under_fault import USUAL
from tests.faults.notes import PlainNote
from tests.faults.world import World


def test_a_flush_records_lost_entries_and_ledger_events_of_each_group(
    empty_redis_86: StandaloneServers,
) -> None:
    client: Any = redis.Redis(port=empty_redis_86.master().port)
    for number, lane in enumerate(USUAL):
        client.xgroup_create(lane.stream, lane.keys.group, id="0", mkstream=True)
        client.xadd(lane.stream, {"unique": f"{lane.name}-1"}, id=f"5-{number}")
        act = {"kind": "requeued", "stream": lane.stream, "4-0": "5-1 4-0 0 1 7"}
        client.xadd(lane.keys.ledger, act)
        client.xadd(lane.keys.worker_ledger, act | {"kind": "released"})
    world = SimpleNamespace(
        connect=lambda: client,
        data_lock=threading.Lock(),
        lanes=USUAL,
        findings={lane.name: Findings() for lane in USUAL},
        offset_ns=0,
        notes=[],
    )
    assert flush_all(cast(World, world), random.Random(1)) == f"{len(USUAL)} entries lost"
    assert client.dbsize() == 0
    notes = cast(list[PlainNote], world.notes)
    lost = {note.lane: note.disturbance.lost for note in notes}
    assert lost == {lane.name: {f"{lane.name}-1"} for lane in USUAL}
    for lane in USUAL:
        moves = world.findings[lane.name].moves.values()
        assert {move.kind for move in moves} == {"requeued", "released"}, lane.name
