"""Reports: what audit.json holds, and one verdict, with notes on what is beside the window."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    EXPECTED_STATUSES,
    AuditEvidence,
    AuditFinding,
    AuditSummary,
    AuditVerdict,
    Certainty,
    parse_summary,
)
from pelops.pipeline.report.findings import Severity
from pelops.pipeline.report.model import (
    CountCheck,
    DeadLetters,
    GroupReport,
    Report,
    build_schema,
    main,
)
from pelops.pipeline.report.page import render_page
from tests.pipeline.json_schema import violations
from tests.pipeline.report_cases import (
    changed,
    clusters,
    full_group,
    hostile_group,
    quiet_group,
    report,
    summary,
    window,
)

GROUPS: dict[str, Callable[[], GroupReport]] = {
    "full": full_group,
    "quiet": quiet_group,
    "hostile": hostile_group,
    "bare": lambda: GroupReport(summary=summary({})),
}


ROOT = Path(__file__).resolve().parents[2]


SCHEMA = build_schema()


def document_of(*groups: GroupReport) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(report(*groups).model_dump_json())
    return document


def broken_rules(document: dict[str, Any]) -> list[str]:
    return list(violations(document, SCHEMA, SCHEMA))


@pytest.mark.parametrize("name", GROUPS)
def test_the_document_is_as_its_schema_says(name: str) -> None:
    assert broken_rules(document_of(GROUPS[name]())) == []


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
    document = document_of(changed(quiet_group(), checks=(check,)))
    assert broken_rules(document) == []
    (reported,) = document["groups"][0]["checks"]
    assert reported == {"name": "roots", "expected": -3, "found": 0, "holds": False}


def test_a_later_release_may_add_fields() -> None:
    document = document_of(full_group())
    document["new"] = document["groups"][0]["new"] = document["groups"][0]["summary"]["new"] = 1
    assert Report.model_validate_json(json.dumps(document)) == report(full_group())


def test_an_earlier_release_may_lack_fields() -> None:
    document = document_of(full_group())
    del document["engine"], document["groups"][0]["notes"], document["groups"][0]["times"]
    read = Report.model_validate_json(json.dumps(document))
    assert (read.engine, read.groups[0].times) == (None, ())
    assert read.groups[0].notes == full_group().notes


def test_an_audit_without_groups_has_adocument_of() -> None:
    document = document_of()
    assert broken_rules(document) == []
    assert document["verdict"] == "unknown"
    assert document["certainty"] is None


@pytest.mark.parametrize(
    ("place", "value"),
    [("version", 2), ("verdict", "fine"), ("at_ms", "now"), ("groups", None)],
)
def test_the_schema_refuses_what_is_wrong(place: str, value: object) -> None:
    broken = {**document_of(full_group()), place: value}
    assert broken_rules(broken)
    del broken[place]
    assert broken_rules(broken)


def test_every_field_that_is_written_is_described() -> None:
    written = document_of(full_group(), hostile_group())
    assert list(undescribed(written, SCHEMA, SCHEMA)) == []


def test_the_schema_knows_the_words_of_the_domain() -> None:
    known = SCHEMA["$defs"]
    assert set(known["EntryStatus"]["enum"]) == set(EntryStatus)
    summary = known["AuditSummary"]["properties"]
    assert summary["counts"]["propertyNames"] == {"$ref": "#/$defs/EntryStatus"}
    assert set(known["AuditVerdict"]["enum"]) == set(AuditVerdict)
    assert summary["evidence"]["$ref"] == "#/$defs/AuditEvidence"
    assert set(known["AuditEvidence"]["enum"]) == set(AuditEvidence)


def test_the_summary_within_is_the_one_that_the_operator_reads() -> None:
    group = full_group()
    (reported,) = document_of(group)["groups"]
    assert parse_summary(json.dumps(reported["summary"])) == group.summary


def test_equal_reports_give_equal_bytes() -> None:
    assert report(full_group()).model_dump_json() == report(full_group()).model_dump_json()


def test_bytes_that_are_no_text_are_given_in_base64() -> None:
    (group,) = document_of(hostile_group())["groups"]
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


def undescribed(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> Any:
    """Places of fields for which the schema has no property."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        yield from min(
            (list(undescribed(value, choice, root, at)) for choice in schema["anyOf"]), key=len
        )
        return
    if isinstance(value, dict) and "additionalProperties" not in schema:
        for name, inner in value.items():
            known = schema.get("properties", {}).get(name)
            if known is None:
                yield f"{at}.{name}"
            else:
                yield from undescribed(inner, known, root, f"{at}.{name}")
    for item in value if isinstance(value, list) else ():
        yield from undescribed(item, schema.get("items", {}), root, f"{at}[]")


TICK = "✓"
BAD = sorted(set(EntryStatus) - EXPECTED_STATUSES)
FINE = {EntryStatus.ACKNOWLEDGED_PROVEN: 910, EntryStatus.IN_FLIGHT: 10}


def group(counts: dict[EntryStatus, int], **changes: Any) -> GroupReport:
    return GroupReport(summary=summary(counts, **changes))


def balanced(**changes: Any) -> GroupReport:
    """A group whose audit found nothing in its window."""
    return changed(group(FINE), **changes)


def a_window_before(**counts: int) -> AuditSummary:
    named = {EntryStatus(status): count for status, count in counts.items()}
    before = summary({EntryStatus.ACKNOWLEDGED_PROVEN: 7, **named})
    return replace(before, window=window(411, before.produced))


def letters(count: int) -> DeadLetters:
    return DeadLetters(count=count, clusters=clusters() if count else ())


@pytest.mark.parametrize(
    ("beside", "note"),
    [
        ({"dead_letters": letters(40)}, "40 dead letters"),
        ({"earlier": (a_window_before(lost=3),)}, "3 lost in earlier windows"),
        ({"earlier": (a_window_before(indeterminate=2),)}, "2 indeterminate in earlier windows"),
    ],
)
def test_facts_from_outside_the_window_are_notes_without_a_verdict(
    beside: dict[str, Any], note: str
) -> None:
    noted = balanced(**beside)
    assert (noted.verdict, noted.certainty) == (AuditVerdict.BALANCED, Certainty.PROVEN)
    assert [one.title for one in noted.notes] == [note]
    assert noted.sentence == f"{noted.summary.sentence} Beside that: {note}."
    page = render_page(report(noted))
    assert TICK in page and note in page.partition("</h1>")[0]
    assert 'aria-label="Beside this window"' in page and 'aria-label="Findings"' not in page


@pytest.mark.parametrize("status", ["stuck", "payload_gone", "dead_lettered"])
def test_what_each_window_counts_again_is_no_note(status: str) -> None:
    assert balanced(earlier=(a_window_before(**{status: 1}),)).notes == ()


@example(
    counts={EntryStatus.INDETERMINATE: 1},
    there=0,
    kinds=[],
    evidence=AuditEvidence.NONE,
    is_first=True,
)
@given(
    counts=st.dictionaries(st.sampled_from(BAD), st.integers(0, 3), max_size=3),
    there=st.integers(0, 2),
    kinds=st.lists(st.sampled_from(["lost", "stuck-earlier", "epoch-break", "new-kind"])),
    evidence=st.sampled_from(AuditEvidence),
    is_first=st.booleans(),
)
@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_page_and_document_have_the_verdict_of_the_summary(
    counts: dict[EntryStatus, int],
    there: int,
    kinds: list[str],
    evidence: AuditEvidence,
    is_first: bool,
) -> None:
    found = tuple(AuditFinding(kind=kind, count=1, sentence="So it is.") for kind in kinds)
    audited = changed(
        group({**FINE, **counts}, findings=found, evidence=evidence),
        dead_letters=letters(there),
        earlier=() if is_first else (a_window_before(lost=1),),
    )
    whole = report(audited)
    assert whole.verdict is audited.verdict is audited.summary.verdict
    assert (audited.verdict is AuditVerdict.BALANCED) == (not audited.findings)
    page = render_page(whole)
    assert (TICK in page) == (audited.verdict is AuditVerdict.BALANCED)
    several = render_page(report(quiet_group(), audited))
    assert ("balanced group" in several) and ((TICK in several) == (not audited.findings))


def test_entries_that_no_table_lists_are_counted_among_those_to_look_at() -> None:
    counts = {EntryStatus.ACKNOWLEDGED_PROVEN: 9, EntryStatus.LOST: 1_876}
    page = render_page(report(changed(group(counts), exceptions=quiet_group().exceptions)))
    assert "1\u202f876 entries are counted without their IDs" in page
    assert "none found: entries to check" not in page


@pytest.mark.parametrize(
    ("counts", "evidence", "reported", "badge"),
    [
        ({EntryStatus.ACKNOWLEDGED_PROVEN: 5}, AuditEvidence.NONE, "Balanced, proven", "balanced"),
        (
            {EntryStatus.ACKNOWLEDGED_INFERRED: 5},
            AuditEvidence.AOF,
            "Balanced, inferred",
            "balanced",
        ),
        ({}, AuditEvidence.LEDGER, "Balanced, inferred", "balanced"),
        ({}, AuditEvidence.AOF, "Balanced, proven", "balanced"),
        ({EntryStatus.INDETERMINATE: 1}, AuditEvidence.AOF, "Unknown", "unknown"),
    ],
)
def test_balanced_is_said_with_what_it_rests_on(
    counts: dict[EntryStatus, int], evidence: AuditEvidence, reported: str, badge: str
) -> None:
    page = render_page(report(group(counts, evidence=evidence)))
    assert f"<title>{reported}: " in page
    assert f'class="badge {badge}"' in page
    assert (TICK in page) == (badge == "balanced")


def test_findings_come_worst_first_and_each_once() -> None:
    found = [*full_group().findings, *full_group().notes]
    for part in (full_group().findings, full_group().notes):
        severities = [one.severity for one in part]
        assert severities == sorted(severities, key=list(Severity).index)
    kinds = [one.kind for one in found]
    assert len(kinds) == len(set(kinds))
    assert {"lost", "stuck", "stuck-earlier", "dead-lettered", "indeterminate-before"} <= set(kinds)


@pytest.mark.parametrize(("there", "beside"), [(1, 0), (3, 0), (4, 1), (40, 37)])
def test_dead_letters_of_the_audit_and_of_now_count_once(there: int, beside: int) -> None:
    counts = {EntryStatus.ACKNOWLEDGED_PROVEN: 9, EntryStatus.DEAD_LETTERED: 2}
    settled = AuditFinding(kind="dead-lettered-later", count=1, sentence=".")
    audited = changed(group(counts, findings=(settled,)), dead_letters=letters(there))
    assert sum(one.count for one in audited.findings) == 3
    assert sum(one.count for one in audited.notes) == beside
    assert "3 dead-lettered among 11 entries." in render_page(report(audited)).partition("</h1>")[0]


def test_a_finding_missing_from_a_cut_list_comes_from_the_counts() -> None:
    (one,) = group({EntryStatus.ACKNOWLEDGED_PROVEN: 1, EntryStatus.LOST: 1}).findings
    assert (one.kind, one.count, one.severity) == ("lost", 1, Severity.LOST)
    assert one.sentence.startswith("deleted or trimmed, and proven")


def test_a_failure_is_worse_than_all_that_was_found() -> None:
    gone = AuditFinding(kind="files-missing", count=1, sentence="A file is gone.")
    (one,) = group(FINE, verdict=AuditVerdict.FAILING, findings=(gone,)).findings
    assert one.severity is Severity.FAILING


def test_a_shared_stream_counts_once() -> None:
    first = balanced()
    second = balanced(summary=replace(first.summary, group="mailing"))
    other = balanced(summary=replace(first.summary, stream="payments"))
    assert report(first, second).sentence.startswith("2 groups, 920 entries: ")
    reported = report(first, second, other).sentence
    assert reported.startswith("3 groups of 2 streams, 1\u202f840 entries: ")


def test_a_report_that_cannot_be_read_takes_the_tick_away() -> None:
    whole = changed(report(balanced()), unread=("/archive/report/x/audit.json",))
    assert whole.verdict is AuditVerdict.UNKNOWN
    assert TICK not in render_page(whole).partition("<main")[0]


def test_other_streams_of_the_archive_count_for_the_verdict() -> None:
    bad = full_group().line("orders/audit.html#group")
    whole = changed(report(balanced()), others=(bad,))
    assert whole.verdict is AuditVerdict.FINDINGS
    page = render_page(whole)
    assert 'href="orders/audit.html#group"' in page
    assert page.index("order-processing") < page.index("balanced group")


def test_an_audit_of_nothing_is_not_balanced() -> None:
    whole = Report(audit="a", at=window().at, pelops="0", archive="")
    assert (whole.verdict, whole.certainty) == (AuditVerdict.UNKNOWN, None)


@pytest.mark.parametrize("others", [(), (quiet_group(),)])
def test_the_part_that_shows_the_cause_of_the_worst_finding_is_open(
    others: tuple[GroupReport, ...],
) -> None:
    counts = {EntryStatus.ACKNOWLEDGED_PROVEN: 9, EntryStatus.DEAD_LETTERED: 9}
    audited = changed(group(counts), dead_letters=letters(9), exceptions=quiet_group().exceptions)
    page = render_page(report(audited, *others))
    assert page.count('-letters" open>') == 1
    assert page.count('-entries" open>') == 0


def test_the_page_names_the_engine() -> None:
    assert "Spark 4.1.1 on <code>local[2]</code>: 6 jobs, 80 tasks." in render_page(report())
    assert "Spark" not in render_page(changed(report(), engine=None)).partition("<footer>")[2]
