"""What needs a look is decided once: no tick, and no word of peace, stands beside a finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pelops.domain.audit import (
    EXPECTED_STATUSES,
    AuditFinding,
    AuditVerdict,
    Certainty,
    EntryStatus,
)
from pelops.pipeline.report.model import (
    Comparison,
    CountCheck,
    DeadLetters,
    EntrySource,
    Exceptions,
    GroupReport,
    Report,
    Severity,
)
from pelops.pipeline.report.page import render_page
from pelops.pipeline.report.severity import (
    certainty_of,
    headline_of,
    line_of,
    list_findings,
    sentence_of,
    sentence_of_all,
    verdict_of,
    verdict_of_all,
)
from tests.pipeline.report_cases import full_group, quiet_group, report, summary, window

TICK = "✓"
BAD = sorted(set(EntryStatus) - EXPECTED_STATUSES)
FINE = {EntryStatus.ACKNOWLEDGED_PROVEN: 910, EntryStatus.IN_FLIGHT: 10}


def balanced(**changes: object) -> GroupReport:
    """A group whose audit found nothing in its window."""
    return replace(GroupReport(summary=summary(FINE)), **changes)  # type: ignore[arg-type]


def kept(source: EntrySource, status: EntryStatus, count: int = 3) -> Exceptions:
    return Exceptions(count=count, counts={source: {status: count}}, first=())


TROUBLES: dict[str, dict[str, Any]] = {
    "an unarchived entry is lost": {"exceptions": kept(EntrySource.WINDOW, EntryStatus.LOST)},
    "an earlier entry is lost since": {"exceptions": kept(EntrySource.SETTLED, EntryStatus.LOST)},
    "an earlier entry is stuck": {"exceptions": kept(EntrySource.EARLIER, EntryStatus.STUCK)},
    "a copy is dead-lettered": {"exceptions": kept(EntrySource.COPY, EntryStatus.DEAD_LETTERED)},
    "entries were kept": {"exceptions": Exceptions(count=2, first=())},
    "there are dead letters": {"letters": DeadLetters(count=40, clusters=())},
    "an entry never arrived": {
        "comparisons": (Comparison(kind="never-arrived", count=1, sentence="It is missing."),)
    },
    "counts differ": {"checks": (CountCheck(name="Archived", expected=9, found=8),)},
    "the window before lost entries": {
        "earlier": (
            replace(
                summary({EntryStatus.ACKNOWLEDGED_PROVEN: 7, EntryStatus.LOST: 3}),
                window=window(411, 10),
            ),
        )
    },
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_finding_of_any_table_takes_the_tick_away(trouble: str) -> None:
    assert TICK in render_page(report(balanced()))
    group = balanced(**TROUBLES[trouble])
    assert verdict_of(group) is AuditVerdict.FINDINGS
    page = render_page(report(group))
    assert TICK not in page
    assert "Balanced" not in page.partition("<h1>")[2].partition("</h1>")[0]
    assert sentence_of(group) != group.summary.sentence  # it says what is beside the window


@given(
    counts=st.dictionaries(st.sampled_from(BAD), st.integers(0, 3), max_size=3),
    source=st.sampled_from(EntrySource),
    listed=st.integers(0, 2),
    letters=st.integers(0, 2),
    kinds=st.lists(st.sampled_from(["lost", "stuck-earlier", "epoch-break", "new-kind"])),
)
@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_tick_and_a_finding_never_stand_on_one_page(
    counts: dict[EntryStatus, int], source: EntrySource, listed: int, letters: int, kinds: list[str]
) -> None:
    found = tuple(AuditFinding(kind=kind, count=1, sentence="So it is.") for kind in kinds)
    group = GroupReport(
        summary=summary(FINE, findings=found),
        exceptions=Exceptions(count=listed, counts={source: counts}, first=()),
        letters=DeadLetters(count=letters, clusters=()),
    )
    page = render_page(report(group))
    is_well = not (any(counts.values()) or listed or letters or kinds)
    assert (TICK in page) == is_well == (verdict_of(group) is AuditVerdict.BALANCED)
    assert bool(list_findings(group)) != is_well
    several = render_page(report(quiet_group(), group))
    assert ("balanced group" in several) and ((TICK in several) == is_well)


def test_entries_that_no_table_lists_are_counted_among_those_to_look_at() -> None:
    reported = summary({EntryStatus.ACKNOWLEDGED_PROVEN: 9, EntryStatus.LOST: 1_876})
    group = GroupReport(summary=reported, exceptions=Exceptions(count=0, first=()))
    page = render_page(report(group))
    assert "1\u202f876 entries are counted without their IDs" in page
    assert "none found: entries to check" not in page


def test_what_cannot_be_reported_is_unknown_and_has_no_tick() -> None:
    group = GroupReport(
        summary=summary({EntryStatus.ACKNOWLEDGED_PROVEN: 9, EntryStatus.INDETERMINATE: 1})
    )
    assert verdict_of(group) is AuditVerdict.UNKNOWN
    assert [one.severity for one in list_findings(group)] == [Severity.UNKNOWN]
    page = render_page(report(group))
    assert TICK not in page
    assert 'class="badge unknown"' in page


@pytest.mark.parametrize(
    ("counts", "reported"),
    [
        ({EntryStatus.ACKNOWLEDGED_PROVEN: 5}, "Balanced, proven"),
        ({EntryStatus.ACKNOWLEDGED_INFERRED: 5}, "Balanced, inferred"),
    ],
)
def test_balanced_is_said_with_what_it_rests_on(
    counts: dict[EntryStatus, int], reported: str
) -> None:
    group = GroupReport(summary=summary(counts))
    page = render_page(report(group))
    assert reported in page.replace("</span>", "")
    assert f"<title>{reported}: " in page
    assert certainty_of(group) in {Certainty.PROVEN, Certainty.INFERRED}


def test_findings_come_worst_first_and_each_once() -> None:
    found = list_findings(full_group())
    severities = [one.severity for one in found]
    assert severities == sorted(severities, key=list(Severity).index)
    assert severities[0] is Severity.LOST and severities[-1] is Severity.UNKNOWN
    kinds = [one.kind for one in found]
    assert len(kinds) == len(set(kinds))
    assert {"lost", "stuck", "stuck-earlier", "dead-lettered", "dead-lettered-copies"} <= set(kinds)


def test_dead_letters_of_the_audit_and_those_that_are_there_now_count_once() -> None:
    counts = {EntryStatus.ACKNOWLEDGED_PROVEN: 9, EntryStatus.DEAD_LETTERED: 2}
    settled = Exceptions(
        count=1, counts={EntrySource.SETTLED: {EntryStatus.DEAD_LETTERED: 1}}, first=()
    )
    for letters, reported in ((1, 3), (3, 3), (40, 40)):
        group = GroupReport(
            summary=summary(counts),
            exceptions=settled,
            letters=DeadLetters(count=letters, clusters=()),
        )
        found = [one for one in list_findings(group) if one.severity is Severity.DEAD_LETTERED]
        assert sum(one.count for one in found) == reported
        assert headline_of(report(group)) == f"{reported} dead-lettered among 11 entries."


def test_a_finding_that_a_cut_list_has_lost_is_found_by_the_counts() -> None:
    reported = summary({EntryStatus.ACKNOWLEDGED_PROVEN: 1, EntryStatus.LOST: 1}, findings=())
    (one,) = list_findings(GroupReport(summary=reported))
    assert (one.kind, one.count) == ("lost", 1)
    assert one.sentence.startswith("Deleted or trimmed, and proven")


def test_a_failure_is_worse_than_all_that_was_found() -> None:
    broken = summary(
        FINE,
        verdict=AuditVerdict.FAILING,
        findings=(AuditFinding(kind="files-missing", count=1, sentence="A file is gone."),),
    )
    (one,) = list_findings(GroupReport(summary=broken))
    assert one.severity is Severity.FAILING


def test_a_shared_stream_counts_once() -> None:
    first = balanced()
    second = replace(first, summary=replace(first.summary, group="mailing"))
    other = replace(first, summary=replace(first.summary, stream="payments"))
    assert sentence_of_all(report(first, second)).startswith("2 groups, 920 entries: ")
    reported = sentence_of_all(report(first, second, other))
    assert reported.startswith("3 groups of 2 streams, 1\u202f840 entries: ")


def test_a_report_that_cannot_be_read_takes_the_tick_away() -> None:
    whole = replace(report(balanced()), unread=("/archive/report/x/audit.json",))
    assert verdict_of_all(whole) is AuditVerdict.UNKNOWN
    assert TICK not in render_page(whole).partition("<main")[0]


def test_other_streams_of_the_archive_count_for_the_verdict() -> None:
    bad = line_of(full_group(), "orders/audit.html#group")
    whole = replace(report(balanced()), others=(bad,))
    assert verdict_of_all(whole) is AuditVerdict.FINDINGS
    page = render_page(whole)
    assert 'href="orders/audit.html#group"' in page
    assert page.index("order-processing") < page.index("balanced group")


def test_an_audit_of_nothing_is_not_balanced() -> None:
    assert verdict_of_all(Report(audit="a", at=window().at, pelops="0", archive="")) is (
        AuditVerdict.UNKNOWN
    )
