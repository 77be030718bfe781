"""The commands `report` and `triage` on what a real audit of a real stream has left."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest

from pelops.domain.records.audit import AuditSummary, Certainty
from pelops.domain.records.redrive import parse_plan
from pelops.pipeline.report.model import build_schema
from pelops.pipeline.report.pages import write_new_reports
from pelops.pipeline.report.places import report_path, slug
from pelops.pipeline.run import find_targets
from pelops.pipeline.settings import ArchivedPayload, AuditTarget
from pelops.pipeline.triage.triage_command import run_triage
from tests.pipeline.audited import GROUP, Audited
from tests.pipeline.dead_letters import dead_letter_fields
from tests.pipeline.json_schema import violations


def _document(audited: Audited) -> dict[str, Any]:
    text = (audited.archive / "report" / "audit.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    schema = build_schema()
    assert list(violations(document, schema, schema)) == []
    return document


def _triage(audited: Audited, **changes: Any) -> None:
    with audited.running(**changes) as run:
        run_triage(run, find_targets(run))


def _bury(audited: Audited, number: int) -> None:
    for n in range(number):
        flat = dead_letter_fields(n, [("secret", b"\xff42")], error=f"TimeoutError: {n} s")
        client: Any = audited.client
        client.execute_command("XADD", audited.keys.dead_letter, "*", *flat)


def _trouble(audited: Audited) -> None:
    """A stuck entry, acknowledged ones, undelivered ones, a requeued one, dead letters."""
    audited.create_group()
    ids = audited.add(20)
    audited.deliver(12)
    audited.acknowledge(*ids[2:12])
    audited.let_idle(ids[0])
    reported = f"1-1 {ids[0]} 1 4 1500"
    audited.record("dead-lettered", "consumer", "a", "reason", "HandlerFailed", ids[1], reported)
    audited.acknowledge(ids[1])
    _bury(audited, 3)


def test_the_report_shows_what_the_audit_found(audited: Audited) -> None:
    _trouble(audited)
    summary = audited.audit_one()
    page = audited.write_report()
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    (group,) = _document(audited)["groups"]
    assert group["summary"]["counts"] == audited.counts(summary)
    assert (
        group["summary"]["counts"] | {"stuck": 1, "dead_lettered": 1, "undelivered": 8}
        == (group["summary"]["counts"])
    )
    assert sum(group["timeline"]["arrivals"]) == 20
    assert sum(group["timeline"]["dead_letters"]) == 1
    assert [(band["from_s"], band["entries"]) for band in group["stuck_ages"]] == [(3600, 1)]
    assert {one["status"] for one in group["exceptions"]["first"]} == {"stuck", "dead_lettered"}
    assert group["dead_letters"]["count"] == 3
    assert all(check["holds"] for check in group["checks"])
    assert group["unproven"]


@pytest.mark.full
def test_a_second_window_shows_the_first_one_as_well(audited: Audited) -> None:
    audited.create_group()
    audited.add(5)
    audited.audit()
    audited.add(3)
    audited.audit()
    audited.write_report()
    (group,) = _document(audited)["groups"]
    assert (group["summary"]["window"]["number"], group["summary"]["produced"]) == (1, 3)
    assert [one["produced"] for one in group["earlier"]] == [5]


@pytest.mark.full
def test_a_run_without_new_acknowledgements_is_not_proven(audited: Audited) -> None:
    audited.create_group()
    audited.add(10)
    audited.acknowledge(*audited.deliver(9))
    audited.deliver(1)
    assert audited.audit_one().certainty is Certainty.INFERRED
    audited.add(1)
    audited.audit()
    audited.write_report()
    document = _document(audited)
    (group,) = document["groups"]
    assert group["summary"]["counts"] == {"undelivered": 1}
    assert document["verdict"] == group["verdict"] == group["summary"]["verdict"] == "balanced"
    assert document["certainty"] == "inferred"
    page = (audited.archive / "report" / "audit.html").read_text(encoding="utf-8")
    assert "<title>Balanced, inferred: " in page


def test_a_group_that_was_not_audited_yet_is_left_out(audited: Audited) -> None:
    audited.create_group()
    audited.audit_one()
    both = (audited.target("mail"), *audited.settings.targets)
    audited.write_report(targets=both)
    [group] = _document(audited)["groups"]
    assert group["summary"]["group"] == GROUP


def test_triage_writes_a_readable_plan_without_payloads(
    audited: Audited, capsys: pytest.CaptureFixture[str]
) -> None:
    audited.create_group()
    _bury(audited, 4)
    _triage(audited)
    assert "4 dead letters" in capsys.readouterr().out
    base = audited.archive / "report" / slug(audited.stream) / f"group={slug(GROUP)}"
    with (base / "redrive.jsonl").open(encoding="utf-8") as lines:
        header, letters = parse_plan(lines)
        kept = [str(one.entry_id) for one in letters]
    client: Any = audited.client
    there = [entry_id.decode() for entry_id, _ in client.xrange(audited.keys.dead_letter)]
    assert kept == there
    assert header.dead_letter == audited.keys.dead_letter
    assert header.actions == {"redrive": 4, "inspect": 0, "discard": 0}
    assert sorted(name for name in os.listdir(base) if not name.startswith(".")) == [
        "clusters.json",
        "redrive.jsonl",
    ]
    (cluster,) = json.loads((base / "clusters.json").read_text(encoding="utf-8"))["clusters"]
    assert cluster["shape"] == "secret=binary"
    assert [one["fields"] for one in cluster["examples"]] == [[], [], []]


def test_triage_shows_payloads_where_they_may_be_archived(audited: Audited) -> None:
    _bury(audited, 1)
    _triage(audited, payload=ArchivedPayload.FULL)
    base = audited.archive / "report" / slug(audited.stream) / f"group={slug(GROUP)}"
    (cluster,) = json.loads((base / "clusters.json").read_text(encoding="utf-8"))["clusters"]
    ((field,),) = [one["fields"] for one in cluster["examples"]]
    assert field["name"]["text"] == "secret" and field["value"]["base64"] == "/zQy"


def _other_stream(audited: Audited, name: str) -> AuditTarget:
    """A stream of another name with a group of the same one, and two entries."""
    stream = f"{audited.prefix}{name}"
    for number in range(2):
        audited.client.xadd(stream, {"number": number})
    audited.client.xgroup_create(stream, GROUP, id="0")
    return replace(audited.settings.targets[0], stream=stream)


def _lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    of_groups = [(one["summary"]["stream"], one["verdict"]) for one in document["groups"]]
    return of_groups + [(one["stream"], one["verdict"]) for one in document["others"]]


@pytest.mark.full
def test_streams_of_one_archive_have_a_report_each_and_one_of_all(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(4)
    audited.deliver(4)
    audited.let_idle(ids[0])
    audited.audit()
    audited.write_report()
    other = _other_stream(audited, "report")
    audited.audit(targets=(other,))
    # A run of another audit, of another stream, into the same archive.
    audited.write_report(targets=(other,))

    for stream in (audited.stream, other.stream):
        base = audited.archive / report_path(stream)
        document = json.loads((base / "audit.json").read_text(encoding="utf-8"))
        assert [one["summary"]["stream"] for one in document["groups"]] == [stream]
        assert stream in (base / "audit.html").read_text(encoding="utf-8")
    whole = _document(audited)
    assert _lines(whole) == [(other.stream, "balanced"), (audited.stream, "findings")]
    assert whole["verdict"] == "findings"
    page = (audited.archive / "report" / "audit.html").read_text(encoding="utf-8")
    assert "✓" not in page
    (link,) = [one["page"] for one in whole["others"]]
    path, _, anchor = link.partition("#")
    linked = audited.archive / "report" / unquote(path)
    assert f'id="{anchor}"' in linked.read_text(encoding="utf-8")


def test_an_unreadable_report_is_listed_and_prevents_a_tick(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.audit()
    broken = audited.archive / "report" / "another" / "audit.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{}")
    audited.write_report()
    whole = _document(audited)
    assert (whole["verdict"], whole["unread"]) == ("unknown", [str(broken)])
    assert "✓" not in (audited.archive / "report" / "audit.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_entries_gone_before_the_archive_are_listed_as_exceptions(
    audited: Audited,
) -> None:
    audited.create_group()
    ids = audited.add(10)
    audited.deliver(10)
    audited.acknowledge(*ids[5:])
    audited.audit()
    more = audited.add(6)
    audited.deliver(6)
    audited.client.xdel(audited.stream, *more[:4])
    audited.audit()
    audited.write_report()
    (group,) = _document(audited)["groups"]
    found = {one["kind"]: one["count"] for one in group["findings"]}
    assert found["payload-gone"] == 4
    assert group["exceptions"]["counts"]["window"] == {"payload_gone": 4}
    assert [one["id"] for one in group["exceptions"]["first"]] == more[:4]
    page = (audited.archive / "report" / "audit.html").read_text(encoding="utf-8")
    assert "✓" not in page and "none found: entries to check" not in page


@pytest.mark.full
def test_entries_pending_again_after_a_setback_are_listed_as_exceptions(
    audited: Audited,
) -> None:
    audited.create_group()
    ids = audited.add(4)
    audited.acknowledge(*audited.deliver(4))
    audited.audit()
    audited.client.xgroup_setid(audited.stream, GROUP, id=0)
    audited.deliver(3)
    audited.client.xdel(audited.stream, *ids[:2])
    audited.audit()
    audited.write_report()
    (group,) = _document(audited)["groups"]
    assert group["exceptions"]["counts"] == {"earlier": {"payload_gone": 2}}
    assert [one["id"] for one in group["exceptions"]["first"]] == ids[:2]


def test_nothing_new_leaves_the_reports_and_mends_that_of_all(audited: Audited) -> None:
    audited.create_group()
    audited.add(2)
    summaries = audited.audit()
    audited.write_report()
    whole = audited.archive / "report" / "audit.json"
    before = whole.read_bytes()

    def write(reported: list[AuditSummary]) -> None:
        with audited.running() as run:
            write_new_reports(run, find_targets(run), reported)

    write([])
    assert whole.read_bytes() == before
    # As a run left it that died between the report of the stream and that of all.
    whole.write_text(whole.read_text().replace('"balanced"', '"failing"'))
    write([])
    assert _lines(_document(audited)) == [(audited.stream, summaries[0].verdict.value)]


def test_a_window_that_was_archived_and_not_audited_yet_is_reported(audited: Audited) -> None:
    audited.create_group()
    audited.add(5)
    audited.audit()
    audited.add(3)
    audited.archive_only()
    audited.write_report()
    (group,) = _document(audited)["groups"]
    assert group["summary"]["window"]["number"] == 0
    reported = [one["sentence"] for one in group["unproven"] if one["why"] == "not-audited"]
    assert reported == ["Window 1 was not audited for this group yet: this report ends before it."]
