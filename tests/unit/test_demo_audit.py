"""The checks of the audit in the demo: each kind of damage is found by the check that names it."""

from dataclasses import replace
from html import escape
from typing import Any

import pytest

from demo.audit_checks import AuditOutcome, check_audit
from tests.audits import a_summary

pytestmark = pytest.mark.full

SUMMARY = a_summary(requeued=3, redriven=2)
REPORTED: dict[str, Any] = {
    "produced": SUMMARY.produced,
    "deadLettered": 0,
    "stuck": 0,
    "lost": 0,
    "verdict": SUMMARY.verdict.value.capitalize(),
    "message": SUMMARY.sentence,
}
GOOD = AuditOutcome(
    summary=SUMMARY,
    entries=SUMMARY.produced,
    copies=3,
    redriven=2,
    reported=REPORTED,
    page=f"<!doctype html><p>{escape(SUMMARY.sentence)}</p>",
)
BALANCE, MOVES, LOSSES, STATUS, PAGE = range(5)


def test_all_holds_when_all_is_well() -> None:
    assert all(check.holds for check in check_audit(GOOD))


@pytest.mark.parametrize(
    ("damage", "found_by"),
    [
        ({"entries": SUMMARY.produced + 1}, {BALANCE}),
        ({"summary": replace(SUMMARY, archived=SUMMARY.produced - 1)}, {BALANCE}),
        ({"copies": 2}, {MOVES}),
        ({"redriven": 3}, {MOVES}),
        ({"summary": a_summary(requeued=3, redriven=2, lost=1)}, {LOSSES, STATUS, PAGE}),
        ({"summary": a_summary(requeued=3, redriven=2, stuck=1)}, {LOSSES, STATUS, PAGE}),
        ({"summary": a_summary(requeued=2, redriven=2, undelivered=1)}, {MOVES, LOSSES}),
        ({"reported": {}}, {STATUS}),
        ({"reported": REPORTED | {"verdict": "balanced!"}}, {STATUS}),
        ({"reported": REPORTED | {"deadLettered": 1}}, {STATUS}),
        ({"page": "<!doctype html>"}, {PAGE}),
        ({"page": GOOD.page + '<script src="https://cdn"></script>'}, {PAGE}),
    ],
)
def test_each_damage_is_found(damage: dict[str, Any], found_by: set[int]) -> None:
    checks = check_audit(replace(GOOD, **damage))
    assert {number for number, check in enumerate(checks) if not check.holds} == found_by


def test_an_empty_stream_proves_nothing() -> None:
    nothing = replace(SUMMARY, produced=0, archived=0, counts=dict.fromkeys(SUMMARY.counts, 0))
    assert not check_audit(replace(GOOD, summary=nothing, entries=0))[BALANCE].holds
