"""The checks of the demo: each kind of damage is found by the check that names it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import pytest

from demo.audit_checks import AuditOutcome, check_audit
from demo.checks import Check, Outcome, check_all
from demo.counting import FileCounts, count_source, render_counts
from demo.effects import Effect, find_repeated, results_of
from demo.recovery import Held, Letter, Move, Rescue, Traces, Victim
from demo.recovery_checks import RecoveryOutcome, check_recovery
from demo.scaling import Count, Course, GroupBacklog, Look
from demo.scaling_checks import LATEST_WAKE_MS, ScalingOutcome, check_scaling
from demo.workers import End, History
from tests.audits import a_summary
from tests.operators import ROOT

pytestmark = pytest.mark.full

Damage = tuple[dict[str, Any], set[str]]  # what is wrong, and the checks that find it


@dataclass(frozen=True, kw_only=True)
class Part:
    """The checks of one part of the demo, and an outcome for which all of them hold."""

    check: Callable[[Any], Iterable[Check]]
    names: str
    good: Any
    damages: list[Damage] = field(default_factory=list)

    def find(self, outcome: Any) -> set[str]:
        """The names of the checks that do not hold."""
        checks = zip(self.names.split(), self.check(outcome), strict=True)
        return {name for name, check in checks if not check.holds}

    def damage(self, **changes: Any) -> set[str]:
        return self.find(replace(self.good, **changes))


# The main job.

A, B = count_source(b"def f(): ...\n"), count_source(b"class C: ...\n")
BROKEN = FileCounts(lines=1, digest="d", error="SyntaxError: no")
STATUS: dict[str, Any] = {
    "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
    "group": {"pending": 0, "lag": 0, "lagKnown": True},
}
RESULTS = {"/b.py": B, "/a.py": A, "/broken.py": BROKEN}
GOOD = Outcome(
    expected={"/a.py": A, "/b.py": B, "/broken.py": BROKEN},
    results=RESULTS,
    entries=9,
    copies=5,
    redriven=1,
    pending=0,
    lag=0,
    status=STATUS,
)
JOB = Part(
    check=check_all,
    names="entries complete digests totals redis status_settled ready",
    good=GOOD,
    damages=[
        ({"entries": 10}, {"entries"}),
        ({"entries": 0}, {"entries"}),
        ({"copies": 4}, {"entries"}),
        ({"redriven": 2}, {"entries"}),
        ({"results": {"/a.py": A, "/broken.py": BROKEN}}, {"complete", "totals"}),
        ({"results": {"/a.py": A, "/b.py": B}}, {"complete", "totals"}),
        ({"results": {**RESULTS, "/c.py": FileCounts()}}, {"complete", "totals"}),
        ({"results": {}}, {"complete", "digests", "totals"}),
        ({"results": {**RESULTS, "/b.py": replace(B, digest="0")}}, {"digests"}),
        ({"results": {**RESULTS, "/b.py": replace(B, classes=2)}}, {"totals"}),
        ({"pending": 1}, {"redis"}),
        ({"lag": 1}, {"redis"}),
        ({"lag": None}, {"redis"}),
        ({"status": {}}, {"status_settled", "ready"}),
        ({"status": STATUS | {"conditions": []}}, {"ready"}),
        ({"status": STATUS | {"group": {"pending": 0, "lag": 0}}}, {"status_settled"}),
        (
            {"status": STATUS | {"group": {"pending": 1, "lag": 0, "lagKnown": True}}},
            {"status_settled"},
        ),
    ],
)


# Deaths and poison.

MOVE = Move(
    kind="requeued",
    entry_id="1-2",
    original_id="1-2",
    consumer="x:u",
    delivered_ms=0,
    moved_ms=1,
    copied_ms=1,
    attempts=1,
)
GIVEN_UP = replace(MOVE, kind="dead-lettered", entry_id="1-1", original_id="1-1", is_own=True)
VICTIM = Victim(
    pod="x",
    consumer="x:u",
    process="process://7-100",
    how="SIGKILL",
    held=(Held(entry_id="1-0", delivered_ms=0), Held(entry_id="1-2", delivered_ms=0)),
    killed_ms=5,
    counts=True,
)
RESCUE = Rescue(
    victim=VICTIM,
    lost=0,
    at_once=1,
    late=0,
    resumed=1,
    kill_to_resumed_ms=2_345,
    reported_to_deliverable_ms=900,
    kill_to_deliverable_ms=1_500,
    wrongly_counted=frozenset(),
    counted_attempts=1,
)
LETTER = Letter(
    path="/bad.py",
    original_id="1-1",
    reason="HandlerFailed",
    error="SyntaxError: no (bad.py, line 1)",
    retry_count=0,
)
CRASH = End(consumer="y:v", process="process://9-1", exit_code=1, finished_ms=0, reported_ms=0)


def effect(original_id: str, entry_id: str = "") -> Effect:
    return Effect(
        path=f"/{original_id}.py",
        counts=FileCounts(),
        entry_id=entry_id or original_id,
        original_id=original_id,
        consumer="y:v",
        at_ms=9,
    )


DONE = [effect("1-0"), effect("1-2", "9-1"), effect("1-3"), effect("1-1", "9-2")]
TRACES = Traces(moves=[MOVE, GIVEN_UP], effects=DONE, letters=[])


def status_of(*, requeued: int = 0, dead_lettered: int = 0) -> dict[str, Any]:
    recovery = {"requeued": requeued, "deadLettered": dead_lettered}
    return {"recovery": recovery, "deadLetter": {"length": 0}}


RECOVERED = RecoveryOutcome(
    poison={"/bad.py": FileCounts(error="SyntaxError: no")},
    ids={"/a.py": "1-0", "/bad.py": "1-1", "/b.py": "1-2", "/c.py": "1-3"},
    rescues=[RESCUE],
    traces=TRACES,
    robberies=[],
    crashes=[],
    status=status_of(requeued=1),
    redriven=[LETTER],
)


def letters(*them: Letter) -> dict[str, Any]:
    return {"redriven": list(them)}


def effects(*them: Effect) -> dict[str, Any]:
    return {"traces": replace(TRACES, effects=list(them))}


RECOVERY = Part(
    check=check_recovery,
    names="rescued speed attempts premature effects repeats crashes letters reasons counts",
    good=RECOVERED,
    damages=[
        ({"rescues": [replace(RESCUE, lost=1)]}, {"rescued"}),
        ({"rescues": []}, {"rescued", "speed"}),
        ({"rescues": [replace(RESCUE, victim=replace(VICTIM, held=()))]}, {"rescued"}),
        ({"rescues": [replace(RESCUE, reported_to_deliverable_ms=5_001)]}, {"speed"}),
        ({"rescues": [replace(RESCUE, at_once=0, late=2)]}, {"speed"}),
        ({"rescues": [replace(RESCUE, wrongly_counted=frozenset({"1-2"}))]}, {"attempts"}),
        ({"robberies": [MOVE]}, {"premature"}),
        (effects(*DONE[:2]), {"effects"}),  # acknowledged without effect, or lost
        (effects(*DONE, effect("7-7")), {"effects"}),  # of no entry that was added
        (effects(*DONE, DONE[1]), set()),  # its worker died before it had acknowledged it
        (effects(*DONE, DONE[0]), set()),  # the same, and the next process did it again
        (effects(*DONE, DONE[2]), {"repeats"}),
        ({"crashes": [CRASH]}, {"crashes"}),
        (letters(LETTER, LETTER), {"letters", "counts"}),
        (letters(), {"letters", "reasons", "counts"}),
        ({"traces": replace(TRACES, letters=[LETTER])}, {"counts"}),
        (letters(replace(LETTER, path="/a.py")), {"letters", "reasons"}),
        (letters(replace(LETTER, reason="PayloadGone")), {"reasons"}),
        (letters(replace(LETTER, error="")), {"reasons"}),
        (letters(replace(LETTER, error="KeyError: no")), {"reasons"}),
        (letters(replace(LETTER, original_id="1-0")), {"reasons"}),
        ({"status": {}}, {"counts"}),
        ({"traces": replace(TRACES, moves=[GIVEN_UP])}, {"counts"}),
    ],
)


# Scaling.

FIRST = 1_000_000


def count(after_ms: int, wanted: int, ready: int) -> Count:
    return Count(at_ms=FIRST + after_ms, wanted=wanted, ready=ready)


def look(after_ms: int, lag: int | None, pending: int) -> Look:
    return Look(at_ms=FIRST + after_ms, backlog=GroupBacklog(pending=pending, lag=lag))


COUNTS = [
    count(-900, 0, 0),
    count(70, 4, 0),
    count(1_900, 4, 2),
    count(2_000, 4, 3),
    count(9_000, 0, 3),
    count(9_500, 0, 0),
]
LOOKS = [look(-200, 0, 0), look(100, 9, 0), look(2_000, 3, 4), look(4_000, 0, 0), look(8_900, 0, 0)]
COURSE = Course(first_ms=FIRST, looks=LOOKS, counts=COUNTS)


def history_of(*, exit_code: int) -> History:
    """The end of the worker that had the entry of `MOVE`."""
    end = replace(CRASH, consumer=MOVE.consumer, process="p", exit_code=exit_code)
    return History(ends={"p": replace(end, finished_ms=FIRST, reported_ms=FIRST)})


SCALED = ScalingOutcome(
    course=COURSE,
    most=4,
    pods=0,
    status={"desiredReplicas": 0, "readyReplicas": 0},
    history=history_of(exit_code=0),
    moves=[],
)
SCALED_AWAY = replace(MOVE, delivered_ms=FIRST, moved_ms=FIRST + 10, copied_ms=FIRST + 10)


def counts(*them: Count) -> dict[str, Any]:
    return {"course": replace(COURSE, counts=them)}


def looks(*them: Look) -> dict[str, Any]:
    return {"course": replace(COURSE, looks=them)}


SCALING = Part(
    check=check_scaling,
    names="beginning waking growth departures last zero",
    good=SCALED,
    damages=[
        (counts(*COUNTS[1:]), {"beginning"}),
        (counts(count(-900, 0, 1), *COUNTS[1:]), {"beginning"}),
        (counts(count(-900, 1, 0), *COUNTS[1:]), {"beginning", "waking"}),
        (counts(COUNTS[0], count(LATEST_WAKE_MS + 1, 4, 2), *COUNTS[4:]), {"waking"}),
        (counts(COUNTS[0], count(70, 4, 1), COUNTS[-1]), {"growth"}),
        (counts(COUNTS[0], count(70, 5, 4), *COUNTS[4:]), {"growth"}),
        (counts(*COUNTS[:1]), {"waking", "growth", "last"}),
        (counts(*COUNTS[:4], count(3_000, 0, 3), count(3_100, 4, 3), *COUNTS[4:]), {"last"}),
        (counts(*COUNTS[:4]), {"last", "zero"}),
        (counts(*COUNTS, count(9_900, 1, 0)), {"zero"}),
        (counts(), {"beginning", "waking", "growth", "last", "zero"}),
        (looks(), {"last"}),
        (looks(*LOOKS[:3]), {"last"}),
        (looks(*LOOKS, look(9_900, 0, 1)), {"last"}),
        (looks(*LOOKS[:3], look(8_950, None, 0), look(9_200, 0, 0)), {"last"}),
        (looks(*LOOKS[:3], look(8_950, 0, 1), look(9_200, 0, 0)), {"last"}),
        ({"pods": 1}, {"zero"}),
        ({"status": {}}, {"zero"}),
        ({"status": {"desiredReplicas": 1, "readyReplicas": 0}}, {"zero"}),
        ({"status": {"desiredReplicas": 0, "readyReplicas": 1}}, {"zero"}),
        ({"moves": [SCALED_AWAY]}, {"departures"}),
    ],
)


# The audit.

SUMMARY = a_summary(requeued=3, redriven=2)
REPORTED: dict[str, Any] = {
    "produced": SUMMARY.produced,
    "deadLettered": 0,
    "stuck": 0,
    "lost": 0,
    "verdict": SUMMARY.verdict.value.capitalize(),
    "message": SUMMARY.sentence,
}
AUDITED = AuditOutcome(
    summary=SUMMARY,
    entries=SUMMARY.produced,
    copies=3,
    redriven=2,
    reported=REPORTED,
    page=f"<!doctype html><p>{escape(SUMMARY.sentence)}</p>",
)
AUDIT = Part(
    check=check_audit,
    names="balance moves losses status page",
    good=AUDITED,
    damages=[
        ({"entries": SUMMARY.produced + 1}, {"balance"}),
        ({"summary": replace(SUMMARY, archived=SUMMARY.produced - 1)}, {"balance"}),
        ({"copies": 2}, {"moves"}),
        ({"redriven": 3}, {"moves"}),
        ({"summary": a_summary(requeued=3, redriven=2, lost=1)}, {"losses", "status", "page"}),
        ({"summary": a_summary(requeued=3, redriven=2, stuck=1)}, {"losses", "status", "page"}),
        ({"summary": a_summary(requeued=2, redriven=2, undelivered=1)}, {"moves", "losses"}),
        ({"reported": {}}, {"status"}),
        ({"reported": REPORTED | {"verdict": "balanced!"}}, {"status"}),
        ({"reported": REPORTED | {"deadLettered": 1}}, {"status"}),
        ({"page": "<!doctype html>"}, {"page"}),
        ({"page": AUDITED.page + '<script src="https://cdn"></script>'}, {"page"}),
    ],
)
PARTS = {"job": JOB, "recovery": RECOVERY, "scaling": SCALING, "audit": AUDIT}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_all_checks_hold_when_all_is_well(part: Part) -> None:
    assert part.find(part.good) == set()


@pytest.mark.parametrize(
    ("part", "damage", "found_by"),
    [
        pytest.param(part, damage, found_by, id=f"{name}-{at}")
        for name, part in PARTS.items()
        for at, (damage, found_by) in enumerate(part.damages)
    ],
)
def test_each_damage_is_found_by_its_checks(
    part: Part, damage: dict[str, Any], found_by: set[str]
) -> None:
    assert part.damage(**damage) == found_by


def test_two_errors_that_cancel_out_in_the_sums_are_found_by_file() -> None:
    swapped = {**RESULTS, "/a.py": B, "/b.py": A}
    assert JOB.damage(results=swapped) == {"digests"}


def test_the_plain_worker_imports_nothing_of_pelops() -> None:
    source = (ROOT / "demo" / "plain_worker.py").read_text()
    assert "pelops." not in source.partition('"""\n\n')[2]


def test_an_entry_done_twice_is_repeated_and_its_last_result_counts() -> None:
    pairs = {
        b"path": b"/lib/\xff.py",
        b"counts": render_counts(A).encode(),
        b"entry": b"1-1",
        b"original": b"1-1",
        b"consumer": b"pod:uid",
    }
    first = Effect.parse(1, pairs)
    copy = {b"entry": b"9-1", b"counts": render_counts(FileCounts(lines=7)).encode()}
    again = Effect.parse(2, pairs | copy)
    other = Effect.parse(3, pairs | {b"original": b"1-2", b"path": b"/b.py"})
    assert not find_repeated([first, other])
    assert find_repeated([first, other, again]) == {"1-1"}
    assert results_of([first, other, again])[first.path].lines == 7


def test_of_a_deleted_pod_something_must_be_moved_at_once() -> None:
    resumed = replace(RESCUE, at_once=0, resumed=2)
    assert "speed" not in RECOVERY.damage(rescues=[RESCUE, resumed])
    deleted = replace(resumed, victim=replace(VICTIM, counts=False))
    assert "speed" in RECOVERY.damage(rescues=[RESCUE, deleted])


def test_the_status_counts_only_dead_letters_of_the_operator() -> None:
    by_operator = replace(TRACES, moves=[MOVE, replace(GIVEN_UP, is_own=False)])
    counted = status_of(requeued=1, dead_lettered=1)
    assert "counts" in RECOVERY.damage(traces=by_operator)
    assert "counts" not in RECOVERY.damage(traces=by_operator, status=counted)
    assert "counts" in RECOVERY.damage(status=counted)


def test_without_poison_any_dead_letter_fails_the_checks() -> None:
    ids = {"/a.py": "1-0", "/b.py": "1-2", "/c.py": "1-3"}
    traces = replace(TRACES, moves=[MOVE], effects=DONE[:3])
    clean = replace(RECOVERED, poison={}, ids=ids, redriven=[], traces=traces)
    assert all(check.holds for check in check_recovery(clean))
    assert not all(check.holds for check in check_recovery(replace(clean, traces=TRACES)))
    assert not all(check.holds for check in check_recovery(replace(clean, redriven=[LETTER])))


def test_entries_of_a_killed_worker_do_not_count_against_scale_down() -> None:
    killed = history_of(exit_code=137)
    assert SCALING.damage(history=killed, moves=[SCALED_AWAY]) == set()


def test_entries_that_a_scaled_in_worker_had_not_started_may_be_requeued() -> None:
    unstarted = replace(SCALED_AWAY, attempts=0)
    assert SCALING.damage(moves=[unstarted]) == set()
    given_up = replace(unstarted, kind="dead-lettered")
    assert SCALING.damage(moves=[given_up]) == {"departures"}
    failed_before = replace(MOVE, delivered_ms=0, moved_ms=1)
    assert SCALING.damage(moves=[SCALED_AWAY, failed_before]) == set()


def test_an_empty_stream_proves_nothing() -> None:
    nothing = replace(SUMMARY, produced=0, archived=0, counts=dict.fromkeys(SUMMARY.counts, 0))
    assert "balance" in AUDIT.damage(summary=nothing, entries=0)
