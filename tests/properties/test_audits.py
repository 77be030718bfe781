"""Rules of audits that hold whatever happens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.api.audit.audit_status_model import StreamAuditStatus
from pelops.controller.audit.audit_status import render_audit_status
from pelops.controller.runtime.kind import PreviousStatus
from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    SUMMARY_LIMIT,
    AuditFinding,
    AuditRecord,
    AuditSummary,
    AuditVerdict,
    build_summary,
    parse_summary,
    render_summary_text,
)
from pelops.errors import InvalidSpec
from pelops.policy.audit.audit_conditions import decide_audit_conditions, find_margin, is_behind
from pelops.policy.audit.audit_facts import AuditFacts, RecordedGroup, StreamEnds
from pelops.policy.audit.notices import read_notices
from tests.audit_facts import after, facts, some_runs
from tests.audits import a_summary, a_window

COUNT = st.integers(0, 2**40)
COUNTS = st.fixed_dictionaries({}, optional={status: COUNT for status in EntryStatus})
TEXT = st.text(max_size=600)


@st.composite
def summaries(draw: st.DrawFn) -> AuditSummary:
    """Any summary that balances."""
    counts = draw(COUNTS)
    produced = sum(counts.values())
    begin = draw(COUNT)
    window = replace(
        a_window(draw(st.integers(0, 99))), from_added=begin, to_added=begin + produced
    )
    findings = st.lists(
        st.builds(AuditFinding, kind=st.sampled_from(["lost"]), count=COUNT, sentence=TEXT),
        max_size=20,
    )
    return build_summary(
        replace(
            a_summary(),
            stream=draw(st.text(min_size=1, max_size=512)),
            window=window,
            produced=produced,
            archived=draw(st.integers(0, produced)),
            counts=counts,
            findings=tuple(draw(findings)),
            sentence=draw(TEXT),
            verdict=draw(st.sampled_from(AuditVerdict)),
            retention_margin=draw(st.none() | st.floats(-10, 10)),
        )
    )


@given(summaries())
def test_a_summary_that_balances_is_read_as_it_was_written(summary: AuditSummary) -> None:
    text = render_summary_text(summary)
    assert len(text.encode(errors="replace")) <= SUMMARY_LIMIT
    read = parse_summary(text)
    kept = len(read.findings)
    assert read == replace(summary, findings=summary.findings[:kept])


@given(summaries(), st.sampled_from(EntryStatus), st.integers(-3, 3).filter(bool))
def test_one_entry_more_or_less_does_not_pass(
    summary: AuditSummary, status: EntryStatus, change: int
) -> None:
    counts = {**summary.counts, status: summary.counts[status] + change}
    with pytest.raises(InvalidSpec):
        build_summary(replace(summary, counts=counts))


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_random_text_is_refused(text: bytes | str) -> None:
    with pytest.raises(InvalidSpec):
        parse_summary(text)


@given(archived=COUNT, waiting=st.integers(0, 10**6), gone=COUNT)
def test_the_margin_never_grows_as_trimming_comes_nearer(
    archived: int, waiting: int, gone: int
) -> None:
    added = archived + waiting
    gone = min(gone, added)
    window = replace(a_window(), from_added=0, to_added=archived)
    summary = replace(a_summary(), window=window)

    def margin(trimmed: int) -> float:
        found = find_margin(summary, StreamEnds(added=added, length=added - trimmed))
        assert found is not None
        return found.share

    assert margin(gone) >= margin(min(added, gone + 1)) or gone == added
    if waiting and gone > archived:
        record = AuditRecord(summary=summary)
        ends = StreamEnds(added=added, length=added - gone)
        assert is_behind(RecordedGroup(stream="s", group="g", record=record, ends=ends))


@st.composite
def worlds(draw: st.DrawFn) -> AuditFacts:
    """Any facts about an audit of some groups."""
    groups = []
    for number in range(draw(st.integers(0, 4))):
        summary = draw(st.none() | summaries())
        record = None
        if summary is not None:
            lost = summary.lost + draw(COUNT)
            record = AuditRecord(summary=summary, lost=lost, acknowledged=draw(COUNT))
        ends = st.builds(StreamEnds, added=COUNT, length=COUNT, first_unaudited=st.just(EntryId(1)))
        groups.append(
            RecordedGroup(
                stream=f"s-{number}",
                group="g",
                resource=draw(st.none() | st.just(f"r-{number}")),
                record=record,
                ends=draw(st.none() | ends),
            )
        )
    changes: dict[str, Any] = {"is_active": draw(st.booleans())}
    if draw(st.booleans()):
        changes["last_success"] = None
    return facts(groups, runs=some_runs(**changes))


@given(worlds(), st.integers(0, 10_000))
def test_any_audit_status_fits_the_schema_and_settles_at_once(
    world: AuditFacts, seconds: int
) -> None:
    now = after(seconds=seconds)
    conditions = decide_audit_conditions(world, now=now)
    first = render_audit_status(world, conditions, PreviousStatus(status={}, generation=1), now)
    parsed = StreamAuditStatus.model_validate(first)
    assert parsed.to_wire() == first
    later = now + timedelta(hours=0)
    again = render_audit_status(
        world, conditions, PreviousStatus(status=first, generation=1), later
    )
    assert again == first
    for notice in read_notices("a", ["r-0"], parsed).values():
        assert not notice.is_empty
