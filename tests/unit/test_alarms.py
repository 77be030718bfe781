"""Alarm conditions: when each begins, what its message reports, and when it ends."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import (
    DroppedConsumers,
    GroupState,
    Loss,
    LossCause,
    ScanReport,
    WentBack,
)
from pelops.policy.status.alarms import decide_alarms
from pelops.policy.status.conditions import decide_conditions
from pelops.policy.status.facts import Facts
from pelops.policy.status.reasons import ALARMS
from tests.builders import NOW, facts, later, resource, stream

LOSS = Loss(at_least=3, at_most=5, position=EntryId(7), seen=NOW)
BACK = WentBack(since=NOW, before=EntryId(9), after=EntryId(4), delay_until=later(seconds=300))
REPORT = ScanReport(unmovable=2, unmovable_example="8-1", unmatched=("w-2", "w-1"))
DROPPED = DroppedConsumers(at_most=11, consumer="jane", consumers=1, observed=NOW)
NOT_TAKEN = ScanReport(offered=3, is_not_taken=True)
EVERYTHING = GroupState(
    loss=LOSS, back=BACK, dropped=DROPPED, report=replace(REPORT, is_not_taken=True)
)
RELEASE = resource(recovery={"strategy": "Release"})
OFF = resource(recovery={"strategy": "Disabled"})


def vanished(cause: LossCause, observed: datetime | None = NOW) -> Loss:
    lost = replace(LOSS, at_least=0, at_most=None, undelivered=177, pending=11)
    return replace(lost, cause=cause, observed=observed)


def remembering(state: GroupState, **changes: Any) -> Facts:
    return facts(stream=stream(state=state), **changes)


class Case(NamedTuple):
    alarm: str
    given: Facts
    words: list[str]  # the parts of its message


CASES: dict[str, Case] = {
    "a group reads the dead letters": Case(
        "DeadLetterStreamInUse",
        facts(stream=stream(dead_letter_groups=1)),
        [":dlq, so Pelops does not delete dead letters"],
    ),
    "entries are lost": Case(
        "DataLoss",
        remembering(GroupState(loss=LOSS)),
        [
            "at least 3, at most 5, after ID 7-0",
            "scg -n shop order-processing pelops.dev/acknowledge=DataLoss",
        ],
    ),
    "at least so many are lost": Case(
        "DataLoss",
        remembering(GroupState(loss=replace(LOSS, at_most=None))),
        ["at least 3, after ID 7-0"],
    ),
    "a stream is gone": Case(
        "DataLoss",
        remembering(GroupState(loss=vanished(LossCause.STREAM_GONE))),
        [
            "The stream orders:events was deleted with entries that the group had not finished: "
            "177 undelivered, 11 pending. These numbers are from the last observation "
            "(2026-05-04T03:02:01Z)",
            "scg -n shop order-processing pelops.dev/acknowledge=DataLoss",
        ],
    ),
    "a stream lost its end": Case(
        "DataLoss",
        remembering(GroupState(loss=vanished(LossCause.TAIL_LOST, observed=None))),
        [
            "at least 177 undelivered and at most 11 pending entries are lost. "
            "These numbers are from the last observation (from the last status)"
        ],
    ),
    "a retry stream is gone": Case(
        "DataLoss",
        remembering(GroupState(loss=vanished(LossCause.RETRY_STREAM_GONE))),
        ["The stream {orders:events}:order-processing:retry was deleted"],
    ),
    "the group went back": Case(
        "PositionWentBack",
        remembering(GroupState(back=BACK)),
        [
            "At 2026-05-04T03:02:01Z the position of the group was 4-0, although it had been 9-0",
            "not recovered before 2026-05-04T03:07:01Z",
            "pelops.dev/acknowledge=PositionWentBack, which also ends that wait",
        ],
    ),
    "the group went back, and workers have read on since": Case(
        "PositionWentBack",
        remembering(GroupState(back=replace(BACK, after=EntryId(9, 5)))),
        ["The group, which had been at 9-0, has continued to 9-5 since"],
    ),
    "a consumer was deleted with pending entries": Case(
        "PendingEntriesDropped",
        remembering(GroupState(dropped=DROPPED)),
        [
            "Consumer jane was deleted with up to 11 pending entries (last observed at "
            "2026-05-04T03:02:01Z)"
        ],
    ),
    "several consumers were deleted with pending entries": Case(
        "PendingEntriesDropped",
        remembering(GroupState(dropped=replace(DROPPED, consumers=3))),
        ["3 consumers (jane, ...) were deleted"],
    ),
    "nobody takes what is offered": Case(
        "OffersNotTaken",
        remembering(GroupState(report=NOT_TAKEN), resource=RELEASE),
        [
            "no worker has taken one for 30 s",
            "{orders:events}:order-processing:handover (PELOPS_HANDOVER_STREAM)",
        ],
    ),
    "an entry cannot be moved": Case(
        "UnmovableEntries",
        remembering(GroupState(report=REPORT)),
        ["(for example 8-1) cannot be recovered", "XACK orders:events order-processing 8-1"],
    ),
    "an entry without an example": Case(
        "UnmovableEntries",
        remembering(GroupState(report=ScanReport(unmovable=1))),
        ["XACK orders:events order-processing ID"],
    ),
    "anything may be evicted": Case(
        "EvictionPossible", facts(evicts_any_key=True), ["Set maxmemory-policy to noeviction"]
    ),
    "some consumers of very many are no pods": Case(
        "UnmatchedConsumers",
        remembering(GroupState(report=replace(REPORT, is_partial=True))),
        ["match no pod: at least 2, such as w-1, w-2 (the group has too many"],
    ),
    "consumers are no pods": Case(
        "UnmatchedConsumers",
        remembering(GroupState(report=REPORT)),
        ["match no pod: w-1, w-2. Pelops recovers their entries only 300 s after"],
    ),
    "consumers are no pods and said not to be": Case(
        "UnmatchedConsumers",
        remembering(
            GroupState(report=REPORT),
            resource=resource(recovery={"unmatchedConsumerTimeoutSeconds": 12}),
        ),
        ["only 12 s after"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_alarm_has_its_reason_and_message(case: Case) -> None:
    alarm = next(alarm for alarm in decide_alarms(case.given) if alarm.type == case.alarm)
    assert (alarm.status, alarm.reason) == ("True", case.alarm)
    for words in case.words:
        assert words in alarm.message


def test_all_is_quiet_when_nothing_is_to_be_looked_at() -> None:
    assert decide_alarms(facts()) == []


def test_an_alarm_ends_when_its_cause_ends() -> None:
    reported = before(EVERYTHING)
    assert decide_alarms(facts(resource=reported)) == []


def test_without_recovery_an_old_report_raises_no_alarm() -> None:
    kinds = [alarm.type for alarm in decide_alarms(remembering(EVERYTHING, resource=OFF))]
    assert kinds == ["DataLoss", "PositionWentBack", "PendingEntriesDropped"]


def test_an_outage_of_redis_ends_no_alarm_and_begins_none() -> None:
    reported = decide_alarms(remembering(EVERYTHING, evicts_any_key=True, resource=RELEASE))
    unseen = facts(resource=before(EVERYTHING), stream=None)
    # Those of other streams come from a look at them, and have tests of their own.
    assert [alarm.type for alarm in reported] == [
        kind
        for kind in ALARMS
        if not kind.startswith("RetryStream") and kind != "DeadLetterStreamInUse"
    ]
    assert decide_alarms(unseen) == reported
    assert decide_alarms(facts(stream=None)) == []


def test_a_written_example_of_any_length_does_not_spoil_the_message() -> None:
    report = ScanReport(unmovable=1, unmovable_example="\ud800" + "x" * 9000)
    (alarm,) = decide_alarms(remembering(GroupState(report=report)))
    assert len(alarm.message.encode()) < 1024


def before(state: GroupState) -> Any:
    """A resource whose status shows every alarm of the state."""
    conditions = decide_conditions(remembering(state, evicts_any_key=True, resource=RELEASE))
    written = [{**asdict(one), "lastTransitionTime": "2026-05-04T03:00:00Z"} for one in conditions]
    return resource(status={"conditions": written})
