"""Attempts: which entries they count for, which are retried together, and which are
dead-lettered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import Death, RetryBatch, Suspect, write_ids
from pelops.policy.recovery.attempts import (
    MOST_ATTEMPTS,
    AttemptPlan,
    Backoff,
    Crash,
    Rules,
    plan_attempts,
)
from tests.builders import NOW

RULES = Rules(max_retries=3)
AGO = timedelta(minutes=1)
MS = timedelta(milliseconds=1)


def suspect(number: int, attempts: int = 1, **changes: Any) -> Suspect:
    """An entry that failed before, delivered a minute ago."""
    reported = {"isolated_failures": 0, "delivered": NOW - AGO, "deliveries": 1, **changes}
    return Suspect(entry_id=EntryId(number), attempts=attempts, **reported)


def crash(*suspects: Suspect, death: Death = Death.CRASHED, **changes: Any) -> Crash:
    """A worker that died over these."""
    reported = {"owner": "w", "cutoff": NOW, **changes}
    return Crash(death=death, suspects=suspects, **reported)


def retry_batch(*numbers: int, under_way: Sequence[int] = ()) -> RetryBatch:
    """A retry batch of these, of which some are not resolved."""
    return RetryBatch(
        written=write_ids(map(EntryId, numbers)), under_way=frozenset(map(EntryId, under_way))
    )


def plan(*crashes: Crash, on: RetryBatch | None = None, rules: Rules = RULES) -> AttemptPlan:
    return plan_attempts(crashes, on or retry_batch(), rules, now=NOW)


def reported(made: AttemptPlan) -> list[tuple[int, str, int, int]]:
    """What is done: number, action, charges, failures alone."""
    return [
        (one.entry_id.ms, one.action.value, one.attempts, one.isolated_failures)
        for owner in made.owners
        for one in owner.settlements
    ]


def test_without_suspects_there_is_nothing_to_do() -> None:
    assert plan().is_idle
    assert plan(crash()).is_idle


def test_a_first_failure_counts_as_an_attempt_and_is_retried_at_once() -> None:
    first = [suspect(number, attempts=0) for number in range(1, 101)]
    made = plan(crash(*first), on=retry_batch(500, under_way=[500]))
    assert reported(made) == [(number, "free", 1, 0) for number in range(1, 101)]
    assert made.waiting == 0
    assert made.owners[0].co_failed is None


@pytest.mark.parametrize(("suspects", "released"), [(1, 1), (2, 2), (4, 2), (100, 10), (101, 11)])
def test_suspects_are_released_in_chunks_of_the_root_of_their_number(
    suspects: int, released: int
) -> None:
    made = plan(crash(*(suspect(number) for number in range(1, suspects + 1))))
    assert reported(made) == [
        (number, "retry", 2, int(suspects == 1)) for number in range(1, released + 1)
    ]
    assert made.waiting == suspects - released


def test_the_next_retry_batch_waits_for_the_current_one() -> None:
    made = plan(crash(suspect(1), suspect(2)), on=retry_batch(8, 9, under_way=[9]))
    assert reported(made) == []
    assert made.waiting == 2
    assert made.kept == {EntryId(9)}
    assert made.resolved == {EntryId(8)}


def test_a_retry_batch_with_nothing_under_way_is_resolved() -> None:
    made = plan(crash(suspect(1)), on=retry_batch(8, 9))
    assert reported(made) == [(1, "retry", 2, 1)]
    assert made.kept == frozenset()
    assert made.resolved == {EntryId(8), EntryId(9)}


def test_a_retry_batch_that_failed_again_is_not_under_way() -> None:
    made = plan(crash(suspect(8), suspect(9)), on=retry_batch(8, 9, under_way=[8, 9]))
    assert [number for number, *_ in reported(made)] == [8, 9]
    assert (made.kept, made.resolved) == (frozenset(), frozenset())


def test_at_the_last_attempt_suspects_run_one_at_a_time() -> None:
    made = plan(crash(*(suspect(number, attempts=2) for number in range(1, 101))))
    assert reported(made) == [(1, "retry", 3, 0)]


def test_those_that_failed_least_come_first_and_then_the_oldest() -> None:
    made = plan(crash(suspect(1, attempts=2), suspect(3), suspect(2), suspect(4)))
    assert reported(made) == [(2, "retry", 2, 0), (3, "retry", 2, 0)]


def test_one_owner_at_a_time_gets_a_retry_batch() -> None:
    one = crash(suspect(5), suspect(6))
    other = crash(suspect(1), suspect(2), owner="x")
    assert [number for number, *_ in reported(plan(one, other))] == [1, 2]


@pytest.mark.parametrize("attempts", [3, 4, 10, MOST_ATTEMPTS])
def test_what_failed_alone_beyond_its_retries_is_a_dead_letter(attempts: int) -> None:
    counted = min(attempts + 1, MOST_ATTEMPTS)
    assert reported(plan(crash(suspect(1, attempts=attempts)))) == [(1, "dead", counted, 1)]


def test_a_dead_letter_waits_for_nothing() -> None:
    rules = Rules(max_retries=3, backoff=Backoff(initial=timedelta(hours=1)))
    made = plan(crash(suspect(1, attempts=3)), on=retry_batch(9, under_way=[9]), rules=rules)
    assert reported(made) == [(1, "dead", 4, 1)]


def test_before_its_retries_are_used_up_nothing_is_a_dead_letter() -> None:
    assert reported(plan(crash(suspect(1, attempts=2)))) == [(1, "retry", 3, 1)]


@pytest.mark.parametrize("isolated", [0, 2])
def test_invariant_11_what_failed_beside_other_suspects_is_never_a_dead_letter(
    isolated: int,
) -> None:
    suspects = (suspect(number, attempts=9, isolated_failures=isolated) for number in (1, 2))
    assert reported(plan(crash(*suspects))) == [(1, "retry", 10, isolated)]


def test_beside_what_never_failed_a_suspect_failed_alone() -> None:
    neighbours = (suspect(number, attempts=0) for number in range(2, 50))
    made = plan(crash(suspect(1, attempts=3), *neighbours))
    assert (1, "dead", 4, 1) in reported(made)


def test_suspects_that_failed_together_are_remembered_as_co_failed() -> None:
    later = suspect(2, delivered=NOW - AGO / 2)
    (owner,) = plan(crash(suspect(1), later)).owners
    assert owner.co_failed == NOW - AGO / 2 + MS


def test_the_last_of_several_co_failed_entries_did_not_fail_in_isolation() -> None:
    last = crash(suspect(2, attempts=5), co_failed=NOW - AGO + MS)
    made = plan(last)
    assert reported(made) == [(2, "retry", 6, 0)]
    assert made.owners[0].co_failed is None


def test_beside_what_had_failed_before_and_waits_a_suspect_failed_alone() -> None:
    """A process of the same name took the suspect after the former left its co-failed entries."""
    since = crash(
        suspect(1, attempts=5), suspect(2, attempts=5, delivered=NOW), co_failed=NOW - AGO + MS
    )
    made = plan(since)
    assert reported(made) == [(2, "dead", 6, 1), (1, "retry", 6, 0)]


def test_what_was_killed_from_outside_must_fail_alone_twice() -> None:
    killed = crash(suspect(1, attempts=7), death=Death.KILLED)
    assert reported(plan(killed)) == [(1, "retry", 8, 1)]
    again = crash(suspect(1, attempts=8, isolated_failures=1), death=Death.KILLED)
    assert reported(plan(again)) == [(1, "dead", 9, 2)]


@pytest.mark.parametrize("backoff", [Backoff(), Backoff(initial=timedelta(minutes=2))])
def test_nothing_else_that_failed_runs_before_it_has_been_tried_alone_again(
    backoff: Backoff,
) -> None:
    on_final_attempt = crash(suspect(9, attempts=7), death=Death.KILLED)
    others = crash(suspect(1), suspect(2), owner="x")
    marked = crash(suspect(3, attempts=2, is_started=True), owner="y")
    made = plan(on_final_attempt, others, marked, rules=Rules(max_retries=3, backoff=backoff))
    assert reported(made) == ([] if backoff.initial else [(9, "retry", 8, 1)])
    assert made.waiting == (4 if backoff.initial else 3)


def test_started_entries_are_retried_without_waiting_for_others() -> None:
    """It runs what failed before in isolation, by itself."""
    marked = [suspect(number, attempts=0, is_started=True) for number in (1, 2)]
    made = plan(crash(*marked), on=retry_batch(9, under_way=[9]))
    assert reported(made) == [(1, "free", 1, 0), (2, "free", 1, 0)]


def test_started_entries_at_their_last_attempt_run_one_at_a_time() -> None:
    """Two processes of one name may have failed between two looks."""
    marked = [suspect(number, attempts=3, is_started=True) for number in (1, 2)]
    assert reported(plan(crash(*marked))) == [(1, "retry", 4, 0)]


def test_an_entry_started_in_isolation_is_dead_lettered_after_its_retries() -> None:
    assert reported(plan(crash(suspect(1, attempts=3, is_started=True)))) == [(1, "dead", 4, 1)]


# -- entries idle beyond the processing timeout, whose process is still running


def idled(*suspects: Suspect, **changes: Any) -> Crash:
    """A worker that lives, and that has not acknowledged these."""
    return crash(*suspects, is_idle=True, **changes)


def reads(*attempts: int) -> list[Suspect]:
    """One suspect of each of so many reads, a second apart."""
    return [
        suspect(number, attempts=count, delivered=NOW - AGO + number * 1000 * MS)
        for number, count in enumerate(attempts, start=1)
    ]


def chunk_of(made: AttemptPlan) -> list[list[int]]:
    """The numbers of each retry batch that may follow."""
    return [[one.entry_id.ms for one in owner.settlements] for owner in made.following]


def test_each_suspect_of_a_read_of_its_own_failed_alone() -> None:
    assert reported(plan(idled(*reads(3, 3, 4)))) == [
        (1, "dead", 4, 1),
        (2, "dead", 4, 1),
        (3, "dead", 5, 1),
    ]


def test_isolated_failures_stay_dead_letters_when_a_plan_is_applied_partially() -> None:
    made = plan(idled(*reads(5, 5, 5)))
    assert made.owners[0].co_failed is None
    left = plan(idled(*reads(5, 5, 5)[1:], co_failed=made.owners[0].co_failed))
    assert reported(left) == [(2, "dead", 6, 1), (3, "dead", 6, 1)]


def test_invariant_11_what_one_read_delivered_failed_together() -> None:
    """Its worker may hang in one of them, or never have received any."""
    together = [suspect(number, attempts=9) for number in (1, 2)]
    made = plan(idled(*together))
    assert reported(made) == [(1, "retry", 10, 0)]
    assert chunk_of(made) == [[2]]
    assert made.owners[0].co_failed == NOW - AGO + MS


def test_what_was_delivered_within_milliseconds_counts_as_one_read() -> None:
    close = [suspect(number, attempts=9, delivered=NOW - AGO + number * MS) for number in (1, 2, 3)]
    assert reported(plan(idled(*close))) == [(1, "retry", 10, 0)]


def test_the_last_of_a_read_did_not_fail_alone() -> None:
    last = idled(suspect(2, attempts=5), co_failed=NOW - AGO + MS)
    assert reported(plan(last)) == [(2, "retry", 6, 0)]


def test_chunks_of_what_idled_follow_each_other_when_they_are_delivered() -> None:
    made = plan(idled(*(suspect(number) for number in range(1, 10))))
    assert [number for number, *_ in reported(made)] == [1, 2, 3]
    assert chunk_of(made) == [[4, 5, 6], [7, 8], [9]]
    assert made.is_parallel
    delivered = RetryBatch(written="parallel 20-0", under_way=frozenset({EntryId(20)}))
    assert reported(plan(idled(suspect(1)), on=delivered)) == [(1, "retry", 2, 1)]
    waiting = RetryBatch(
        written="parallel 20-0",
        under_way=frozenset({EntryId(20)}),
        undelivered=frozenset({EntryId(20)}),
    )
    assert reported(plan(idled(suspect(1)), on=waiting)) == []


def test_what_a_crash_left_runs_while_nothing_else_does() -> None:
    delivered = RetryBatch(written="parallel 20-0", under_way=frozenset({EntryId(20)}))
    assert reported(plan(crash(suspect(1)), on=delivered)) == []
    strict = retry_batch(20, under_way=[20])
    assert reported(plan(idled(suspect(1)), on=strict)) == []


def test_whichever_has_waited_longer_has_its_turn() -> None:
    older, newer = suspect(1), suspect(2, delivered=NOW - AGO / 2)
    assert [one for one, *_ in reported(plan(crash(older), idled(newer, owner="x")))] == [1]
    assert [one for one, *_ in reported(plan(idled(older), crash(newer, owner="x")))] == [1]
    delivered = RetryBatch(written="parallel 20-0", under_way=frozenset({EntryId(20)}))
    assert reported(plan(crash(older), idled(newer, owner="x"), on=delivered)) == []


def test_a_process_that_reads_on_is_doubted_while_others_finish() -> None:
    """It may hang, with more than one read in hand."""
    doubted = idled(*reads(3, 6, 7), unproven_since=NOW, is_outdone=True)
    made = plan(doubted)
    assert [one[:3] for one in reported(made) if one[1] == "dead"] == [(3, "dead", 8)]
    nobody = idled(*reads(3, 6), unproven_since=NOW)
    assert [action for _, action, *_ in reported(plan(nobody))] == ["dead", "dead"]


def test_an_acknowledgement_in_the_retry_batch_shows_that_others_finish() -> None:
    doubted = idled(*reads(3, 3), unproven_since=NOW)
    made = plan(doubted, on=retry_batch(20, 21, under_way=[21]))
    assert "dead" not in [action for _, action, *_ in reported(made)]
    assert made.has_finished
    remembered = RetryBatch(written="parallel finished 21-0", under_way=frozenset({EntryId(21)}))
    assert "dead" not in [action for _, action, *_ in reported(plan(doubted, on=remembered))]


def test_the_only_suspect_of_a_process_that_stopped_reading_is_dead_lettered() -> None:
    hung = idled(*reads(3), unproven_since=NOW - AGO + 1000 * MS, is_outdone=True)
    assert reported(plan(hung)) == [(1, "dead", 4, 1)]


def test_without_retries_the_only_suspect_of_a_process_is_not_doubted() -> None:
    """Nor is that of a consumer without a pod, of which nothing is ever proven."""
    none = Rules(max_retries=0)
    isolated = idled(*reads(0), unproven_since=NOW, is_outdone=True)
    assert reported(plan(isolated, rules=none)) == [(1, "dead", 1, 1)]
    several = idled(*reads(0, 0), unproven_since=NOW, is_outdone=True)
    assert "dead" not in [action for _, action, *_ in reported(plan(several, rules=none))]


def test_separate_reads_of_started_entries_do_not_prove_isolation() -> None:
    first, second = (
        suspect(n, attempts=3, is_started=True, delivered=NOW - n * AGO) for n in (1, 2)
    )
    assert reported(plan(idled(first, second))) == [(1, "retry", 4, 0)]


@pytest.mark.parametrize("changes", [{"counts_attempt": False}, {"was_offered": True}])
def test_what_did_not_fail_now_is_freed_as_it_was(changes: dict[str, bool]) -> None:
    rules = Rules(max_retries=3, backoff=Backoff(initial=timedelta(hours=1)))
    made = plan(crash(suspect(1, attempts=7, isolated_failures=2, **changes)), rules=rules)
    assert reported(made) == [(1, "free", 7, 2)]


def test_without_retries_the_first_failure_in_isolation_is_dead_lettered() -> None:
    none = Rules(max_retries=0)
    assert reported(plan(crash(suspect(1, attempts=0)), rules=none)) == [(1, "dead", 1, 1)]
    made = plan(crash(suspect(1, attempts=0), suspect(2, attempts=0)), rules=none)
    assert reported(made) == [(1, "retry", 1, 0)]


def test_a_suspect_waits_for_its_backoff() -> None:
    rules = Rules(max_retries=5, backoff=Backoff(initial=timedelta(seconds=25)))
    due, early = suspect(1), suspect(2, attempts=2)  # 50 s and 100 s
    made = plan(crash(due, early), rules=rules)
    assert reported(made) == [(1, "retry", 2, 0)]
    assert made.waiting == 1


@pytest.mark.parametrize(
    ("failures", "seconds"), [(-1, 0), (0, 0), (1, 5), (2, 10), (3, 20), (4, 30), (10**9, 30)]
)
def test_the_backoff_grows_up_to_its_longest(failures: int, seconds: int) -> None:
    backoff = Backoff(initial=timedelta(seconds=5), longest=timedelta(seconds=30))
    assert backoff.after(failures) == timedelta(seconds=seconds)


def test_the_rest_of_a_plan_continues_its_first_parts_retry_batch() -> None:
    made = plan(crash(suspect(1)), on=retry_batch(8, 9, under_way=[9])).after("4-0 9-0 banana")
    assert made.retry_batch.written == "4-0 9-0 banana"
    assert made.kept == {EntryId(4), EntryId(9)}
    assert made.resolved == frozenset()
