"""What a restarted server may have lost: only what is missing in its append-only file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.faults.aof import Kept
from tests.faults.collecting import Findings
from tests.faults.groups_under_fault import MIXED
from tests.faults.history import Act, Event, Produced
from tests.faults.notes import Known, RestartNote
from tests.unit.small_histories import FIRST, OTHER, at, event, move, place

pytestmark = pytest.mark.full

LANE = MIXED[0]
STREAM = LANE.stream
KEPT = Kept(
    added=frozenset({(STREAM, place(1)[1])}),
    acknowledged=frozenset(),
    deliveries=frozenset(),
    cut_ids=frozenset(),
    cut_names=frozenset(),
    cut_bytes=0,
)


DELIVERED_TO_FIRST = frozenset({(STREAM, place(1)[1], FIRST.consumer)})
REPORTED = "1700000001000-0"  # a line of the ledger


def repeated(kept: Kept, *events: Event, findings: Findings | None = None) -> frozenset[str]:
    produced = {"a": Produced(unique="a", entry_id=place(1)[1], at_ns=at(0))}
    known = Known(
        lane=LANE,
        produced=produced,
        events=events,
        findings=findings or Findings(),
        names={place(1): "a"},
    )
    resolved = RestartNote(killed_ns=at(10), up_ns=at(11), kept=kept).resolve(known)
    assert resolved is not None and not resolved.lost
    return resolved.repeated


IN_FILE = replace(KEPT, deliveries=DELIVERED_TO_FIRST)
BOTH_IN_FILE = replace(
    KEPT, deliveries=DELIVERED_TO_FIRST | {(STREAM, place(1)[1], OTHER.consumer)}
)
CLAIMED = (event(9, Act.READ), event(9.9, Act.READ, OTHER))


@pytest.mark.parametrize(
    ("kept", "events", "is_repeated"),
    [
        pytest.param(KEPT, [event(9.9, Act.READ)], True, id="answered, and never written"),
        pytest.param(KEPT, [event(10.5, Act.READ)], True, id="noted after the server died"),
        pytest.param(KEPT, [event(10.5, Act.ACK, result="1")], True, id="an acknowledgement"),
        pytest.param(IN_FILE, [event(9.9, Act.READ)], False, id="in the file"),
        pytest.param(IN_FILE, CLAIMED, True, id="the file has only the first delivery"),
        pytest.param(BOTH_IN_FILE, CLAIMED, False, id="the file has both deliveries"),
        pytest.param(
            KEPT,
            [event(11.1, Act.READ), event(11.2, Act.ACK, result="1")],
            False,
            id="answered by the restarted server",
        ),
    ],
)
def test_a_delivery_that_the_file_lacks_may_be_repeated(
    kept: Kept, events: Sequence[Event], is_repeated: bool
) -> None:
    assert repeated(kept, *events) == ({"a"} if is_repeated else set())


@pytest.mark.parametrize("ledger", [LANE.keys.ledger, LANE.keys.worker_ledger])
def test_a_recovery_that_redis_lost_from_the_ledger_may_be_repeated(
    ledger: str,
) -> None:
    findings = Findings(moves={("requeued", REPORTED, place(1)[1]): move(9.9)})
    assert repeated(KEPT, findings=findings) == {"a"}
    kept = replace(KEPT, added=KEPT.added | {(ledger, REPORTED)})
    assert repeated(kept, findings=findings) == set()
    later = Findings(moves={("requeued", REPORTED, place(1)[1]): move(11.1)})
    assert repeated(KEPT, findings=later) == set()
