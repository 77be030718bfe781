"""A summary that does not balance can neither be made nor read."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    MOST_FINDINGS,
    SENTENCE_LIMIT,
    SUMMARY_LIMIT,
    AuditEvidence,
    AuditFinding,
    AuditRecord,
    AuditVerdict,
    Certainty,
    RecoveryTimes,
    build_summary,
    check_audit_name,
    decide_verdict,
    parse_summary,
    render_summary_text,
    worst_certainty,
    worst_verdict,
)
from pelops.errors import InvalidSpec
from tests.audits import a_summary, a_window


def test_what_is_written_is_what_is_read() -> None:
    summary = a_summary(
        lost=1,
        stuck=2,
        findings=(AuditFinding(kind="lost", count=1, sentence="One is gone."),),
        open=2,
        oldest_stuck=timedelta(seconds=312.5),
        recovery=RecoveryTimes(p50=timedelta(milliseconds=40), p99=timedelta(seconds=2)),
        retention_margin=0.75,
    )
    assert parse_summary(render_summary_text(summary)) == summary


def test_equal_summaries_are_written_as_equal_bytes() -> None:
    one, other = a_summary(stuck=1, lost=2), a_summary(lost=2, stuck=1)
    assert list(one.counts) == list(other.counts) == list(EntryStatus)
    assert render_summary_text(one) == render_summary_text(other)


@pytest.mark.parametrize("count", [9, 11, -1])
def test_statuses_that_do_not_add_up_to_what_was_produced_are_refused(count: int) -> None:
    with pytest.raises(InvalidSpec, match="do not account for 10"):
        build_summary(replace(a_summary(), counts={EntryStatus.LOST: count}))


def test_no_more_can_be_archived_than_was_produced() -> None:
    with pytest.raises(InvalidSpec, match="11 of 10"):
        build_summary(replace(a_summary(), archived=11))


def test_a_window_does_not_go_backward() -> None:
    window = replace(a_window(), to_id=EntryId(0), from_id=EntryId(1))
    with pytest.raises(InvalidSpec, match="backward"):
        build_summary(replace(a_summary(), window=window))


def test_long_texts_and_lists_are_cut_to_what_may_be_recorded() -> None:
    findings = tuple(
        AuditFinding(kind="lost", count=1, sentence="漢" * 5000) for _ in range(2 * MOST_FINDINGS)
    )
    summary = a_summary(findings=findings, sentence="x" * 5000)
    assert len(summary.findings) == MOST_FINDINGS
    assert {len(one.sentence) for one in summary.findings} == {SENTENCE_LIMIT}
    text = render_summary_text(summary)
    assert len(text.encode()) <= SUMMARY_LIMIT
    assert 0 < len(parse_summary(text).findings) < MOST_FINDINGS


def broken(**changes: Any) -> str:
    return json.dumps({**json.loads(render_summary_text(a_summary())), **changes})


WINDOW: Final = json.loads(broken())["window"]
FINDING: Final = {"kind": "lost", "count": 1, "sentence": "One is gone."}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "the summary is not valid JSON"),
        ("[]", "the summary: must be an object"),
        ("[" * 9000, "not valid JSON: recursion limit"),
        (broken(more=0)[:-2] + "[" * 300 + "]" * 300 + "}", "recursion limit"),
        ("x" * (SUMMARY_LIMIT + 1), "longer than"),
        (broken(version=2), "use the same release"),
        (broken(version=True), "version: must be a valid integer"),
        (broken(produced=11), "do not account for 11"),
        (broken(produced="10"), "produced: must be a valid integer"),
        (broken(produced=-1), "produced: must be greater than or equal to 0"),
        (broken(produced=2**63), f"produced: must be less than {2**63}"),
        (broken().replace("10", "1" * 5000, 1), "not valid JSON: number out of range"),
        (broken(counts={"acked": 10}), "counts.acked: must be 'acknowledged_proven', "),
        (broken(counts={"a\nb": 10}), r"counts\['a\\nb'\]: must be"),
        (broken(counts={"x" * 9000: 10}), r"summary: counts.x{120}…: must be"),
        (broken(counts=[]), "counts: must be an object"),
        (broken(window={}), "window.number: is missing"),
        (broken(window={**WINDOW, "from_id": "five"}), "window.from_id: must match pattern"),
        (
            broken(window={**WINDOW, "to_id": f"{2**64}-0"}),
            f"window.to_id: '{2**64}-0' is not an entry ID",
        ),
        (broken(findings={}), "findings: must be a valid array"),
        (broken(findings=[1]), r"findings\[0\]: must be an object"),
        (broken(findings=[FINDING, {"kind": "x"}]), r"findings\[1\].count: is missing"),
        (broken(findings=[FINDING | {"kind": "x" * 65}]), r"kind: must have at most 64 characters"),
        (broken(verdict="fine"), "verdict: must be 'balanced', 'unknown', 'findings'"),
        (broken(sentence=None), "sentence: must be a valid string"),
        (broken(sentence="\ud800"), "not valid JSON: .*surrogate|hex escape"),
        (broken(retention_margin="1"), "retention_margin: must be a valid number"),
    ],
)
def test_an_invalid_summary_is_refused_with_the_name_of_the_field(text: str, named: str) -> None:
    with pytest.raises(InvalidSpec, match=named) as raised:
        parse_summary(text)
    assert len(str(raised.value).encode()) < 500 and len(str(raised.value).splitlines()) == 1


def test_the_limit_of_a_summary_is_in_bytes_and_not_in_characters() -> None:
    text = broken(more="x" * (SUMMARY_LIMIT - len(broken(more=""))))
    assert parse_summary(text) == a_summary()
    longer = json.dumps(json.loads(text) | {"more": "漢" * (len(text) // 3)}, ensure_ascii=False)
    assert len(longer) < SUMMARY_LIMIT
    with pytest.raises(InvalidSpec, match=f"longer than {SUMMARY_LIMIT} bytes"):
        parse_summary(longer)


def test_numbers_beyond_reason_are_refused() -> None:
    for text in ("NaN", "1e400", "-Infinity", "1e15"):
        with pytest.raises(InvalidSpec, match="oldest_stuck_s: must be "):
            parse_summary(broken().replace('"oldest_stuck_s": null', f'"oldest_stuck_s": {text}'))


def test_fields_of_a_later_release_do_no_harm() -> None:
    assert parse_summary(broken(more={"than": "known"})) == a_summary()


def test_the_worst_verdict_is_that_of_all() -> None:
    assert worst_verdict([]) is None
    assert worst_verdict([AuditVerdict.BALANCED, AuditVerdict.UNKNOWN]) is AuditVerdict.UNKNOWN
    assert worst_verdict([AuditVerdict.UNKNOWN, AuditVerdict.FINDINGS]) is AuditVerdict.FINDINGS
    assert worst_verdict([AuditVerdict.FAILING, AuditVerdict.FINDINGS]) is AuditVerdict.FAILING


def finding(kind: str) -> AuditFinding:
    return AuditFinding(kind=kind, count=1, sentence="One.")


def test_indeterminate_entries_alone_make_the_verdict_unknown() -> None:
    unknown, lost = finding("indeterminate"), finding("lost")
    assert decide_verdict([]) is AuditVerdict.BALANCED
    assert decide_verdict([unknown]) is AuditVerdict.UNKNOWN
    assert decide_verdict([unknown, lost]) is AuditVerdict.FINDINGS
    assert decide_verdict([unknown], [finding("epoch-break")]) is AuditVerdict.FAILING


@pytest.mark.parametrize(
    ("counts", "certainty"),
    [
        ({}, Certainty.INFERRED),
        ({"acknowledged_proven": 10}, Certainty.PROVEN),
        ({"acknowledged_proven": 9}, Certainty.INFERRED),
        ({"undelivered": 10}, Certainty.INFERRED),
        ({"undelivered": 10, "evidence": AuditEvidence.AOF}, Certainty.PROVEN),
        ({"indeterminate": 1}, Certainty.UNKNOWN),
    ],
)
def test_an_audit_is_as_certain_as_its_counts(counts: dict[str, Any], certainty: Certainty) -> None:
    assert a_summary(**counts).certainty is certainty


def test_a_window_without_entries_proves_nothing_without_append_only_files() -> None:
    """As the second run of an audit, after 9,900 inferred acknowledgements and 100 pending."""
    for evidence, certainty in (
        (AuditEvidence.NONE, Certainty.INFERRED),
        (AuditEvidence.LEDGER, Certainty.INFERRED),
        (AuditEvidence.AOF, Certainty.PROVEN),
    ):
        nothing = a_summary(a_window(1, entries=0), open=100, evidence=evidence)
        assert (nothing.verdict, nothing.certainty) == (AuditVerdict.BALANCED, certainty)
    assert worst_certainty([]) is Certainty.INFERRED


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ({"lost": 1}, AuditVerdict.FINDINGS),
        ({"stuck_earlier": 1}, AuditVerdict.FINDINGS),
        ({"lost_earlier": 1}, AuditVerdict.FINDINGS),
        ({"findings": (AuditFinding(kind="new", count=1, sentence="."),)}, AuditVerdict.FINDINGS),
        ({"indeterminate": 1}, AuditVerdict.UNKNOWN),
        ({"certainty": Certainty.UNKNOWN}, AuditVerdict.UNKNOWN),
        ({"requeued": 1}, AuditVerdict.BALANCED),
    ],
)
def test_a_verdict_is_never_better_than_the_counts_and_findings(
    counts: dict[str, Any], verdict: AuditVerdict
) -> None:
    assert a_summary(**counts, verdict=AuditVerdict.BALANCED).verdict is verdict


def test_an_audit_is_only_as_certain_as_its_least_certain_window() -> None:
    reported = a_summary(acknowledged_proven=10, certainty=Certainty.INFERRED)
    assert reported.certainty is Certainty.INFERRED
    assert parse_summary(render_summary_text(reported)) == reported
    certainties = [Certainty.PROVEN, Certainty.UNKNOWN, Certainty.INFERRED]
    assert worst_certainty(certainties) is Certainty.UNKNOWN


def test_a_summary_of_an_earlier_release_is_as_certain_as_its_counts() -> None:
    old = json.loads(render_summary_text(a_summary(acknowledged_proven=10)))
    del old["certainty"]
    assert parse_summary(json.dumps(old)).certainty is Certainty.PROVEN


@pytest.mark.parametrize("name", ["shop/nightly", "nightly", "a.b_c-9/x"])
def test_an_audit_has_a_name_that_is_no_other_field(name: str) -> None:
    assert check_audit_name(name) == name


@pytest.mark.parametrize("name", ["", "archived", "totals:x", "a b", "/x", "x" * 318, "é"])
def test_a_name_that_could_be_another_field_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match="cannot name an audit"):
        check_audit_name(name)


def test_what_a_person_has_acknowledged_is_not_reported_again() -> None:
    record = AuditRecord(summary=a_summary(lost=1), lost=5, acknowledged=3)
    assert record.unacknowledged == 2
    assert replace(record, acknowledged=9).unacknowledged == 0
