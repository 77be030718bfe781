"""What a StreamRedrive reports: while it runs, what it waits for, and how it ended."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta

import pytest

from pelops.domain.condition import Finding
from pelops.domain.records.dead_letter import SkipReason
from pelops.policy.redrive.redrive_conditions import (
    OUTCOME_WAIT,
    decide_redrive_conditions,
    decide_verdict,
    find_changed_origin,
    find_trial,
    report_end,
)
from pelops.policy.redrive.redrive_facts import Origin, Phase, RedriveFacts, Verdict, find_ending
from pelops.policy.status.health import decide_health
from pelops.policy.status.reasons import Reason
from tests.redrive_facts import NOW, a_redrive, some_counts


def reasons(facts: RedriveFacts) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition, by type."""
    return {one.type: (one.status, one.reason) for one in decide_redrive_conditions(facts)}


def test_a_complete_redrive_is_ready() -> None:
    verdict = decide_verdict(a_redrive(), some_counts(), is_handled=True, last_moved=NOW)
    found = reasons(RedriveFacts(redrive=a_redrive(), verdict=verdict))
    assert found == {"Ready": ("True", "Completed"), "Complete": ("True", "Completed")}


def test_a_redrive_that_fails_again_is_failed_and_stalled() -> None:
    counts = some_counts(selected=100, moved=30, failed_again=20)
    verdict = decide_verdict(a_redrive(), counts, is_handled=False, last_moved=NOW)
    facts = RedriveFacts(redrive=a_redrive(), verdict=verdict)
    assert reasons(facts) == {"Ready": ("False", "FailsAgain"), "Failed": ("True", "FailsAgain")}
    (health,) = decide_health(decide_redrive_conditions(facts)[0], (), generation=1, now=NOW)
    assert health.type == "Stalled"


@pytest.mark.parametrize(
    ("percent", "stops"), [(20, True), (66, True), (67, False), (100, False), (0, True)]
)
def test_the_limit_decides_when_too_many_fail_again(percent: int, stops: bool) -> None:
    redrive = a_redrive(stopOnFailedAgainPercent=percent)
    counts = some_counts(selected=100, moved=30, failed_again=20)
    verdict = decide_verdict(redrive, counts, is_handled=False, last_moved=NOW)
    assert (verdict is not None) == stops


def test_the_end_awaits_what_becomes_of_the_entries_but_not_for_ever() -> None:
    counts = some_counts(unprocessed=3)

    def ends(waited: timedelta) -> bool:
        verdict = decide_verdict(
            a_redrive(), counts, is_handled=True, last_moved=counts.now - waited
        )
        return verdict is not None

    assert not ends(timedelta())
    assert not ends(OUTCOME_WAIT - timedelta(seconds=1))
    assert ends(OUTCOME_WAIT)


def test_a_redrive_that_loses_entries_is_never_complete() -> None:
    for is_handled in (True, False):
        counts = some_counts(selected=100, lost=1, unprocessed=3)
        verdict = decide_verdict(a_redrive(), counts, is_handled=is_handled, last_moved=NOW)
        assert verdict is not None
        assert (verdict.is_failure, verdict.finding.reason) == (True, Reason.ENTRIES_LOST)
        assert "because 1 moved entry was deleted or trimmed" in verdict.finding.message


def test_a_redrive_does_not_end_while_dead_letters_remain() -> None:
    assert decide_verdict(a_redrive(), some_counts(), is_handled=False, last_moved=NOW) is None


def test_a_trial_ends_when_all_its_entries_are_processed() -> None:
    redrive = a_redrive(trial={"entries": 10, "waitSeconds": 60})
    done, waits = some_counts(moved=10), some_counts(moved=10, unprocessed=1)
    assert find_trial(redrive, None) is not None
    assert find_trial(redrive, waits.outcomes) is not None
    assert find_trial(redrive, some_counts(moved=10, is_exact=False).outcomes) is not None
    assert find_trial(redrive, some_counts(moved=10, unknown=1).outcomes) is not None
    assert find_trial(redrive, done.outcomes) is None
    assert find_trial(redrive, some_counts(moved=9).outcomes) is not None


@pytest.mark.parametrize(
    ("spec", "facts", "reason"),
    [
        ({"suspend": True}, {"phase": Phase.MOVING}, Reason.SUSPENDED),
        ({"approval": "Required"}, {}, Reason.APPROVAL_REQUIRED),
        ({"approval": "Required", "mode": "DryRun"}, {}, Reason.RUNNING),
        ({"approval": "Required", "approved": True}, {"phase": Phase.MOVING}, Reason.RUNNING),
        ({}, {"waits_for": "other"}, Reason.ANOTHER_REDRIVE_RUNS),
        ({}, {"problem": Finding(reason="RedisUnreachable", message="")}, "RedisUnreachable"),
        ({}, {"phase": Phase.COUNTING}, Reason.RUNNING),
        ({"trial": {}}, {"phase": Phase.TRIAL}, Reason.TRIAL_RUNNING),
        ({"maxBacklog": 5}, {"phase": Phase.BACKLOG}, Reason.BACKLOG_TOO_LARGE),
        ({}, {"phase": Phase.OUTCOMES}, Reason.AWAITING_OUTCOMES),
    ],
)
def test_ready_says_what_it_does_or_awaits(
    spec: dict[str, object], facts: dict[str, object], reason: str
) -> None:
    known = RedriveFacts(redrive=a_redrive(**spec), **facts)  # type: ignore[arg-type]
    ready = decide_redrive_conditions(known)[0]
    assert (ready.type, ready.status, ready.reason) == ("Ready", "False", reason)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        ({"server": "b:6379/0"}, "spec.redis"),
        ({"stream": "other:dlq"}, "spec.deadLetter.stream"),
        ({"group_uid": "2"}, "was deleted and created again"),
    ],
)
def test_a_redrive_goes_on_only_where_it_started(
    changed: dict[str, str], words: str | None
) -> None:
    started = Origin(server="a:6379/0", stream="s:dlq", group_uid="1")
    finding = find_changed_origin(a_redrive(), started, replace(started, **changed))
    assert (finding is None) == (words is None)
    assert finding is None or (finding.reason == Reason.GROUP_CHANGED and words in finding.message)  # type: ignore[operator]


def test_what_is_reported_of_the_end_never_changes() -> None:
    verdict = Verdict(
        is_failure=True, finding=Finding(reason=Reason.FAILS_AGAIN, message="as it was")
    )
    conditions = decide_redrive_conditions(RedriveFacts(redrive=a_redrive(), verdict=verdict))
    wire = [{**asdict(one), "lastTransitionTime": NOW} for one in conditions]
    before = a_redrive(suspend=True)
    ended = type(before).parse(
        {
            "metadata": before.metadata.to_wire(),
            "spec": before.spec.to_wire(),
            "status": {"conditions": wire},
        }
    )
    assert find_ending(ended) is not None
    assert decide_redrive_conditions(RedriveFacts(redrive=ended)) == conditions


@pytest.mark.parametrize(
    ("spec", "counts", "sentence"),
    [
        (
            {},
            some_counts(moved=28, skipped={SkipReason.VANISHED: 1, SkipReason.NO_BODY: 1}),
            "Moved 28 of 30 dead letters and skipped 2 (1 gone meanwhile, 1 without a body, because"
            " the entry was deleted before): 28 acknowledged, 0 failed again, 0 unprocessed",
        ),
        (
            {},
            some_counts(failed_again=1, unprocessed=2, is_exact=False),
            "Moved 30 of 30 dead letters: at least 27 acknowledged, 1 failed again, at most 2"
            " unprocessed",
        ),
        (
            {},
            some_counts(failed_again=1, unknown=2),
            "Moved 30 of 30 dead letters: at most 29 acknowledged, 1 failed again, 0 unprocessed. "
            "Of the acknowledged ones 2 can be lost: they were deleted or trimmed before Pelops "
            "had seen their delivery, or while they were pending",
        ),
        (
            {"action": "Discard"},
            some_counts(selected=1, moved=1, has_outcomes=False),
            "Discarded 1 of 1 dead letter",
        ),
        (
            {"action": "Restore"},
            some_counts(has_outcomes=False),
            "Restored 30 of 30 discarded dead letters",
        ),
        (
            {"mode": "DryRun"},
            some_counts(moved=0, has_outcomes=False),
            "Dry run: 30 dead letters match the selection; nothing was moved",
        ),
        (
            {},
            some_counts(selected=0, moved=0),
            "No dead letter matched the selection when the redrive started; nothing was moved",
        ),
    ],
)
def test_the_end_says_what_became_of_the_entries(
    spec: dict[str, object], counts: object, sentence: str
) -> None:
    assert report_end(a_redrive(**spec), counts) == sentence  # type: ignore[arg-type]


def test_dead_letters_that_vanished_count_as_skipped_at_the_end() -> None:
    settled = some_counts(moved=20, skipped={SkipReason.TOO_LARGE: 1}).finalize()
    assert settled.skipped == {SkipReason.TOO_LARGE: 1, SkipReason.VANISHED: 9}
    assert (settled.selected, settled.remaining) == (30, 0)
