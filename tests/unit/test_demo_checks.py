"""The demo's checks: each kind of damage is found by the check that names it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo.checks import Outcome, check_all
from demo.counting import FileCounts, count_source, render_counts
from demo.effects import Effect, find_repeated, results_of

pytestmark = pytest.mark.full

A, B = count_source(b"def f(): ...\n"), count_source(b"class C: ...\n")
BROKEN = FileCounts(lines=1, digest="d", error="SyntaxError: no")
STATUS: dict[str, Any] = {
    "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
    "group": {"pending": 0, "lag": 0, "lagKnown": True},
}
GOOD = Outcome(
    expected={"/a.py": A, "/b.py": B, "/broken.py": BROKEN},
    results={"/b.py": B, "/a.py": A, "/broken.py": BROKEN},
    entries=9,
    copies=5,
    redriven=1,
    pending=0,
    lag=0,
    status=STATUS,
)
ENTRIES, COMPLETE, DIGESTS, TOTALS, REDIS, STATUS_SETTLED, READY = range(7)


def test_all_holds_when_all_is_well() -> None:
    assert all(check.holds for check in check_all(GOOD))


@pytest.mark.parametrize(
    ("damage", "found_by"),
    [
        ({"entries": 10}, {ENTRIES}),
        ({"entries": 0}, {ENTRIES}),
        ({"copies": 4}, {ENTRIES}),
        ({"redriven": 2}, {ENTRIES}),
        ({"results": {"/a.py": A, "/broken.py": BROKEN}}, {COMPLETE, TOTALS}),
        ({"results": {"/a.py": A, "/b.py": B}}, {COMPLETE, TOTALS}),
        ({"results": {**GOOD.results, "/c.py": FileCounts()}}, {COMPLETE, TOTALS}),
        ({"results": {}}, {COMPLETE, DIGESTS, TOTALS}),
        ({"results": {**GOOD.results, "/b.py": replace(B, digest="0")}}, {DIGESTS}),
        ({"results": {**GOOD.results, "/b.py": replace(B, classes=2)}}, {TOTALS}),
        ({"pending": 1}, {REDIS}),
        ({"lag": 1}, {REDIS}),
        ({"lag": None}, {REDIS}),
        ({"status": {}}, {STATUS_SETTLED, READY}),
        ({"status": STATUS | {"conditions": []}}, {READY}),
        ({"status": STATUS | {"group": {"pending": 0, "lag": 0}}}, {STATUS_SETTLED}),
        ({"status": STATUS | {"group": {"pending": 1, "lag": 0, "lagKnown": True}}}, {5}),
    ],
)
def test_each_damage_is_found(damage: dict[str, Any], found_by: set[int]) -> None:
    checks = check_all(replace(GOOD, **damage))
    assert {number for number, check in enumerate(checks) if not check.holds} == found_by


def test_two_errors_that_cancel_out_in_the_sums_are_found_by_file() -> None:
    swapped = {**GOOD.results, "/a.py": B, "/b.py": A}
    failed = [check.claim for check in check_all(replace(GOOD, results=swapped)) if not check.holds]
    assert failed == [check_all(GOOD)[DIGESTS].claim]


def test_the_plain_worker_imports_nothing_of_pelops() -> None:
    source = (Path(__file__).parents[2] / "demo" / "plain_worker.py").read_text()
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
