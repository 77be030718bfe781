"""The demo's audit: what is applied, what its checks find, and what is shown of it."""

from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.audit_checks import AuditOutcome, check_audit
from demo.auditing import keep_page
from demo.declaration import (
    AUDIT_MANIFEST,
    MANIFEST,
    read_audit_name,
    read_declarations,
    render_audit,
    render_manifest,
)
from demo.summary import render_audits
from pelops.api.audit.stream_audit import StreamAudit
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


def a_manifest(archive: str = "/archive") -> str:
    return render_audit(AUDIT_MANIFEST.read_text(), archive=Path(archive), java=Path("/java"))


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


@pytest.mark.parametrize("path", ["/src", "/and: colon # hash", '/quo"te', "/$HOME"])
def test_any_directory_can_be_named(path: str) -> None:
    spec = yaml.safe_load(a_manifest(archive=path))["spec"]
    assert spec["archive"] == {"path": path}


def test_the_audit_is_of_the_groups_that_the_demo_declares() -> None:
    groups = read_declarations(
        render_manifest(MANIFEST.read_text(), redis_url="", source_root=Path("/"))
    )
    audit = StreamAudit.parse(yaml.safe_load(a_manifest()))
    assert audit.spec.groups == tuple(one.name for one in groups)
    assert {one.namespace for one in groups} == {audit.metadata.namespace}
    assert read_audit_name(a_manifest()) == audit.metadata.name


def test_no_schedule_runs_it_in_the_midst_of_the_work() -> None:
    assert StreamAudit.parse(yaml.safe_load(a_manifest())).spec.suspend


def test_the_table_adds_up_for_each_team() -> None:
    other = a_summary(lost=1)
    shown = render_audits({"SDK": SUMMARY, "plain loop": other})
    rows = {row.split()[0]: row.split()[1:] for row in shown.splitlines()[1:-2]}
    produced = rows.pop("produced")
    for column, total in enumerate(produced):
        assert sum(int(cells[column].replace(",", "")) for cells in rows.values()) == int(
            total.replace(",", "")
        )
    assert rows["lost"] == ["0", "1"] and "stuck" not in rows
    assert f"SDK, {SUMMARY.verdict}: {SUMMARY.sentence}" in shown


def test_the_report_outlives_the_cluster(tmp_path: Path) -> None:
    written, kept = tmp_path / "state" / "audit.html", tmp_path / "build" / "audit.html"
    written.parent.mkdir()
    written.write_text("page")
    assert keep_page(written, kept) == kept
    assert kept.read_text() == "page"
