"""The commands `report` and `triage` on what a real audit of a real stream has left."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pelops.domain.redrive_plan import parse_plan
from pelops.pipeline.layout import slug
from pelops.pipeline.report.document import read_schema
from pelops.pipeline.report.running import run_report
from pelops.pipeline.settings import Payload
from pelops.pipeline.triage_run import run_triage
from tests.pipeline.audited import GROUP, Audited
from tests.pipeline.json_schema import violations
from tests.pipeline.letters import dead_letter


def _document(audited: Audited) -> dict[str, Any]:
    text = (audited.archive / "report" / "audit.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    schema = read_schema()
    assert list(violations(document, schema, schema)) == []
    return document


def _bury(audited: Audited, number: int) -> None:
    for n in range(number):
        _, _, _, pairs = dead_letter(n, [("secret", b"\xff42")], error=f"TimeoutError: {n} s")
        flat = [part for pair in pairs for part in pair]
        client: Any = audited.client
        client.execute_command("XADD", audited.keys.dead_letter, "*", *flat)


def _trouble(audited: Audited) -> None:
    """A stuck entry, acknowledged ones, undelivered ones, a requeued one, dead letters."""
    audited.create_group()
    ids = audited.add(20)
    audited.deliver(12)
    audited.acknowledge(*ids[2:12])
    audited.let_idle(ids[0], 600_000)
    told = f"1-1 {ids[0]} 1 4 1500"
    audited.record("dead-lettered", "consumer", "a", "reason", "HandlerFailed", ids[1], told)
    audited.acknowledge(ids[1])
    _bury(audited, 3)


def test_the_report_tells_what_the_audit_found(
    audited: Audited, capsys: pytest.CaptureFixture[str]
) -> None:
    _trouble(audited)
    summary = audited.audit_one()
    assert run_report(audited.spark, audited.settings) == 0
    page = Path(capsys.readouterr().out.strip())
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    (group,) = _document(audited)["groups"]
    assert group["summary"]["counts"] == audited.counts(summary)
    assert (
        group["summary"]["counts"] | {"stuck": 1, "dead_lettered": 1, "undelivered": 8}
        == (group["summary"]["counts"])
    )
    assert sum(group["timeline"]["arrivals"]) == 20
    assert sum(group["timeline"]["dead_letters"]) == 1
    assert [(band["from_s"], band["entries"]) for band in group["stuck_ages"]] == [(300, 1)]
    assert {one["status"] for one in group["exceptions"]["first"]} == {"stuck", "dead_lettered"}
    assert group["dead_letters"]["count"] == 3
    assert all(check["holds"] for check in group["checks"])
    assert group["unproven"]


def test_a_second_window_shows_the_first_one_as_well(audited: Audited) -> None:
    audited.create_group()
    audited.add(5)
    audited.audit()
    audited.add(3)
    audited.audit()
    run_report(audited.spark, audited.settings)
    (group,) = _document(audited)["groups"]
    assert (group["summary"]["window"]["number"], group["summary"]["produced"]) == (1, 3)
    assert [one["produced"] for one in group["earlier"]] == [5]


def test_a_group_that_was_not_audited_yet_is_left_out(audited: Audited) -> None:
    audited.create_group()
    audited.audit_one()
    both = (audited.target("mail"), *audited.settings.targets)
    assert run_report(audited.spark, replace(audited.settings, targets=both)) == 0
    [group] = _document(audited)["groups"]
    assert group["summary"]["group"] == GROUP


def test_triage_writes_a_plan_that_can_be_read_and_keeps_payloads_to_itself(
    audited: Audited, capsys: pytest.CaptureFixture[str]
) -> None:
    audited.create_group()
    _bury(audited, 4)
    assert run_triage(audited.spark, audited.settings) == 0
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
    run_triage(audited.spark, replace(audited.settings, payload=Payload.FULL))
    base = audited.archive / "report" / slug(audited.stream) / f"group={slug(GROUP)}"
    (cluster,) = json.loads((base / "clusters.json").read_text(encoding="utf-8"))["clusters"]
    ((field,),) = [one["fields"] for one in cluster["examples"]]
    assert field["name"]["text"] == "secret" and field["value"]["base64"] == "/zQy"
