"""audit.json: what programs read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditEvidence, AuditVerdict, parse_summary
from pelops.pipeline.report.model import CountCheck, GroupReport, Report, build_schema, main
from pelops.pipeline.report.page import render_page
from tests.pipeline.json_schema import violations
from tests.pipeline.report_cases import (
    changed,
    full_group,
    hostile_group,
    quiet_group,
    report,
    summary,
)

GROUPS: dict[str, Callable[[], GroupReport]] = {
    "full": full_group,
    "quiet": quiet_group,
    "hostile": hostile_group,
    "bare": lambda: GroupReport(summary=summary({})),
}


ROOT = Path(__file__).resolve().parents[2]


def _document(*groups: GroupReport) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(report(*groups).model_dump_json())
    return document


@pytest.mark.parametrize("name", GROUPS)
def test_the_document_is_as_its_schema_says(name: str) -> None:
    schema = build_schema()
    assert list(violations(_document(GROUPS[name]()), schema, schema)) == []


def test_the_schema_in_the_repository_is_what_the_models_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--check", "--root", str(ROOT)]) == 0, capsys.readouterr().out


def test_a_schema_that_differs_is_shown_and_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--write", "--root", str(tmp_path)]) == 0
    (written,) = tmp_path.rglob("*.json")
    written.write_text(written.read_text().replace("stuck_earlier", "stuck_later"))
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "stuck_earlier" in capsys.readouterr().out


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_is_read_back_from_its_json_and_rendered_the_same(name: str) -> None:
    group = GROUPS[name]()
    read = GroupReport.model_validate_json(group.model_dump_json())
    assert read == group
    whole = report(group)
    assert Report.model_validate_json(whole.model_dump_json()) == whole
    assert render_page(report(read)) == render_page(whole)


def test_a_report_with_groups_of_other_runs_is_read_back() -> None:
    line = full_group().line("orders/audit.html#group")
    whole = changed(report(quiet_group()), others=(line,), unread=("/archive/x/audit.json",))
    assert Report.model_validate_json(whole.model_dump_json()) == whole


def test_counts_that_contradict_each_other_are_written_whatever_they_are() -> None:
    check = CountCheck(name="roots", expected=-3, found=0)
    document = _document(changed(quiet_group(), checks=(check,)))
    schema = build_schema()
    assert list(violations(document, schema, schema)) == []
    (reported,) = document["groups"][0]["checks"]
    assert reported == {"name": "roots", "expected": -3, "found": 0, "holds": False}


def test_a_later_release_may_add_fields() -> None:
    document = _document(full_group())
    document["new"] = document["groups"][0]["new"] = document["groups"][0]["summary"]["new"] = 1
    assert Report.model_validate_json(json.dumps(document)) == report(full_group())


def test_an_earlier_release_may_lack_fields() -> None:
    document = _document(full_group())
    del document["engine"], document["groups"][0]["notes"], document["groups"][0]["times"]
    read = Report.model_validate_json(json.dumps(document))
    assert (read.engine, read.groups[0].times) == (None, ())
    assert read.groups[0].notes == full_group().notes


def test_an_audit_without_groups_has_a_document() -> None:
    schema = build_schema()
    document = _document()
    assert list(violations(document, schema, schema)) == []
    assert document["verdict"] == "unknown"
    assert document["certainty"] is None


@pytest.mark.parametrize(
    ("place", "value"),
    [("version", 2), ("verdict", "fine"), ("at_ms", "now"), ("groups", None)],
)
def test_the_schema_refuses_what_is_wrong(place: str, value: object) -> None:
    schema = build_schema()
    broken = {**_document(full_group()), place: value}
    assert list(violations(broken, schema, schema))
    del broken[place]
    assert list(violations(broken, schema, schema))


def test_every_field_that_is_written_is_described() -> None:
    schema = build_schema()
    assert list(_undescribed(_document(full_group(), hostile_group()), schema, schema)) == []


def test_the_schema_knows_the_words_of_the_domain() -> None:
    known = build_schema()["$defs"]
    assert set(known["EntryStatus"]["enum"]) == set(EntryStatus)
    summary = known["AuditSummary"]["properties"]
    assert summary["counts"]["propertyNames"] == {"$ref": "#/$defs/EntryStatus"}
    assert set(known["AuditVerdict"]["enum"]) == set(AuditVerdict)
    assert summary["evidence"]["$ref"] == "#/$defs/AuditEvidence"
    assert set(known["AuditEvidence"]["enum"]) == set(AuditEvidence)


def test_the_summary_within_is_the_one_that_the_operator_reads() -> None:
    group = full_group()
    (reported,) = _document(group)["groups"]
    assert parse_summary(json.dumps(reported["summary"])) == group.summary


def test_equal_reports_give_equal_bytes() -> None:
    assert report(full_group()).model_dump_json() == report(full_group()).model_dump_json()


def test_bytes_that_are_no_text_are_given_in_base64() -> None:
    (group,) = _document(hostile_group())["groups"]
    fields = group["dead_letters"]["clusters"][0]["examples"][0]["fields"]
    blob, big = fields[2]["value"], fields[1]["value"]
    assert "text" not in blob and blob["size"] == 256
    assert (big["size"], len(big["text"])) == (1_000_000, 256)


def test_several_groups_share_the_worst_verdict_and_one_sentence() -> None:
    reported = report(full_group(), quiet_group())
    assert reported.verdict is AuditVerdict.FINDINGS
    assert reported.sentence.startswith(
        "2 groups, 250\u202f067 entries. 1 group needs attention: 2 lost, 3 without payload, "
    )
    quiet = report(quiet_group(), replace_name(quiet_group(), "other"))
    assert quiet.sentence == "2 groups, 10 entries: all balanced, proven."


def replace_name(group: GroupReport, name: str) -> GroupReport:
    return changed(group, summary=replace(group.summary, group=name))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"kind": "pelops.audit-report", "version": 1}',
        '{"kind": "pelops.audit-report", "version": 1, "groups": [1]}',
        '{"kind": "pelops.audit-report", "version": 2, "groups": []}',
        '{"kind": "other", "version": 1, "groups": []}',
    ],
)
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|validation error"):
        Report.model_validate_json(text)


def _undescribed(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> Any:
    """Places of fields for which the schema has no property."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        yield from min(
            (list(_undescribed(value, choice, root, at)) for choice in schema["anyOf"]), key=len
        )
        return
    if isinstance(value, dict) and "additionalProperties" not in schema:
        for name, inner in value.items():
            known = schema.get("properties", {}).get(name)
            if known is None:
                yield f"{at}.{name}"
            else:
                yield from _undescribed(inner, known, root, f"{at}.{name}")
    for item in value if isinstance(value, list) else ():
        yield from _undescribed(item, schema.get("items", {}), root, f"{at}[]")
