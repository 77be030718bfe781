"""The oracle says nothing against an audit that knows everything, and finds each untrue word."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    EXPECTED_STATUSES,
    AuditFinding,
    AuditSummary,
    AuditVerdict,
    Window,
    build_summary,
)
from pelops.pipeline.archive.records import GroupRecord
from pelops.pipeline.report.model import GroupReport
from tests.pipeline.oracle.books import Mark
from tests.pipeline.oracle.findings import Judge, Record, Untrue, kinds_of
from tests.pipeline.oracle.histories import Act, Files, History, Kind, make_history
from tests.pipeline.oracle.known import KNOWN
from tests.pipeline.oracle.lives import shrink
from tests.pipeline.oracle.reported import Root, WindowReport
from tests.pipeline.oracle.world import open_world

_S = EntryStatus
Change = Callable[[WindowReport], WindowReport]


def test_a_history_is_the_same_for_the_same_number() -> None:
    assert make_history(7) == make_history(7)
    assert make_history(7) != make_history(8)


def test_every_act_is_in_some_history() -> None:
    acts = {act.kind for seed in range(200) for act in make_history(seed).acts}
    assert acts == set(Kind)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_said_against_an_audit_that_knows_everything(seed: int) -> None:
    history = replace(make_history(seed), files=Files.WHOLE)
    assert _judge(history, lambda reported: reported) == []


def _count(reported: WindowReport, status: EntryStatus, number: int) -> WindowReport:
    counts = dict(reported.summary.counts)
    counts[status] += number
    return replace(reported, summary=replace(reported.summary, counts=counts))


def _rename(reported: WindowReport, before: EntryStatus, after: EntryStatus) -> WindowReport:
    """One entry that has the one status is said to have the other."""
    one = next(entry for entry, status in reported.named.items() if status is before)
    changed = _count(_count(reported, before, -1), after, 1)
    return replace(changed, named={**reported.named, one: after})


def _say(reported: WindowReport, **changes: Any) -> WindowReport:
    return replace(reported, summary=replace(reported.summary, **changes))


_LOSING = (
    Act(Kind.ADD, 40),
    Act(Kind.READ, 20),
    Act(Kind.ACKNOWLEDGE, 10),
    Act(Kind.DELETE_CONSUMER),
    Act(Kind.READ, 5),
    Act(Kind.DELETE_UNDELIVERED, 5),
    Act(Kind.AUDIT),
)
_PROVEN, _INFERRED = _S.ACKNOWLEDGED_PROVEN, _S.ACKNOWLEDGED_INFERRED


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("status:acknowledged_proven:dropped", lambda one: _rename(one, _S.LOST, _PROVEN)),
        ("status:lost:acknowledged", lambda one: _rename(one, _PROVEN, _S.LOST)),
        ("status:indeterminate:held", lambda one: _rename(one, _S.IN_FLIGHT, _S.INDETERMINATE)),
        ("count:lost:less", lambda one: _count(_count(one, _S.LOST, -1), _PROVEN, 1)),
        ("count:lost:more", lambda one: _count(_count(one, _S.LOST, 1), _PROVEN, -1)),
        ("produced", lambda one: _say(one, produced=one.summary.produced + 1)),
        ("balanced:dropped+waiting-gone", lambda one: _say(one, verdict=AuditVerdict.BALANCED)),
        ("open:forgotten", lambda one: replace(one, open={})),
        ("open:count", lambda one: _say(one, open=one.summary.open + 1)),
        ("open:stuck-earlier", lambda one: _say(one, stuck_earlier=1)),
        ("roots:sum", lambda one: _say_roots(one, {_S.LOST: 1})),
        (
            "sentence:delivered",
            lambda one: _say(
                one,
                findings=(
                    AuditFinding(
                        kind="lost", count=15, sentence="15 were gone before they were delivered"
                    ),
                ),
            ),
        ),
    ],
)
def test_an_untrue_word_is_found(kind: str, change: Change) -> None:
    history = replace(KNOWN["deleted before delivery"], acts=_LOSING, files=Files.WHOLE)
    assert kind in kinds_of(_judge(history, change))


_BROKEN = (
    Act(Kind.ADD, 10),
    Act(Kind.DRAIN),
    Act(Kind.AUDIT),
    Act(Kind.DELETE_STREAM, 20),
    Act(Kind.ARCHIVE),
    Act(Kind.AUDIT),
    Act(Kind.AUDIT),
)


def test_first_entries_after_an_epoch_break_stay_open_in_later_windows() -> None:
    """The run after the break closes two windows: only the first of them starts over."""
    history = replace(KNOWN["deleted before delivery"], acts=_BROKEN, files=Files.WHOLE)
    assert _judge(history, lambda reported: reported) == []
    assert "open:forgotten" in kinds_of(
        _judge(history, lambda reported: replace(reported, open={}))
    )


def test_a_failing_history_becomes_as_small_as_it_can() -> None:
    def fails(history: History) -> bool:
        kinds = [act.kind for act in history.acts if act.number >= 3 or act.kind is Kind.AUDIT]
        return Kind.READ in kinds and Kind.AUDIT in kinds[kinds.index(Kind.READ) :]

    failing = next(one for one in map(make_history, range(100)) if fails(one) and one.groups > 1)
    smallest = shrink(failing, fails)
    assert [act.kind for act in smallest.acts] == [Kind.READ, Kind.AUDIT]
    assert (smallest.acts[0].number, smallest.groups) == (5, 1)


def _judge(history: History, change: Change) -> list[Untrue]:
    """What the oracle says of audits that know everything, but for the change."""
    return asyncio.run(_live(history, change))


async def _live(history: History, change: Change) -> list[Untrue]:
    found: list[Untrue] = []
    records: dict[str, Record] = {}
    ends: dict[str, tuple[EntryId, int]] = {}
    number, windows = 0, 1
    async with open_world(history) as world:
        for act in history.acts:
            if act.kind is Kind.ARCHIVE:
                windows = 2  # the next audit ends what was archived, and closes one more
            elif act.kind is Kind.AUDIT:
                for group in world.groups:
                    record = records.setdefault(group, Record())
                    judge = Judge(world, group, world.observation(group), record)
                    numbers = range(number, number + windows)
                    found += judge.judge([change(one) for one in _run(judge, numbers, ends)])
                number, windows = number + windows, 1
            else:
                await world.act(act)
    return found


def _run(
    judge: Judge, numbers: range, ends: dict[str, tuple[EntryId, int]]
) -> Iterator[WindowReport]:
    """The windows of one run: all that is new lies in the first."""
    record = judge.record
    is_broken = record.observation is not None and record.breaks != judge.world.breaks
    if is_broken:
        ends.pop(judge.group, None)
    for number in numbers:
        yield _know(judge, number, ends, begins_anew=is_broken and number == numbers[0])


def _know(
    judge: Judge, number: int, ends: dict[str, tuple[EntryId, int]], *, begins_anew: bool
) -> WindowReport:
    """An audit that reads the books."""
    stream, book, world = judge.stream, judge.book, judge.world
    begin, added = ends.get(judge.group, (EntryId.MIN, 0))
    last = parse_entry_id(stream.ids[-1]) if stream.ids else EntryId.MIN
    ends[judge.group] = last, len(stream)
    places = range(added, len(stream))
    named = {stream.ids[place]: _best(judge, place) for place in places}
    counts = Counter(named.values())
    earlier = {
        stream.ids[place]: _best(judge, place)
        for place in range(added)
        if judge.record.true.get(stream.ids[place]) is not book.status(place)
    }
    still = {
        entry: book.status(place) for place, entry in enumerate(stream.ids) if judge._is_open(place)
    }
    copies = world.retry(judge.group)
    retried = {
        entry: copies.group(judge.group).status(place) for place, entry in enumerate(copies.ids)
    }
    retried = {one: _INFERRED if status is _PROVEN else status for one, status in retried.items()}
    stuck = sum(1 for one in book.stuck if one < added)
    bad = [one for one in [*named.values(), *earlier.values()] if one not in EXPECTED_STATUSES]
    verdict = AuditVerdict.FINDINGS if bad or stuck else AuditVerdict.BALANCED
    verdict = AuditVerdict.FAILING if begins_anew or not book.exists else verdict
    roots = Counter(_best_root(judge, place) for place in places if place not in stream.copies)
    window = Window(
        number=number, from_id=begin, to_id=max(last, begin), from_added=added,
        to_added=len(stream), at=datetime.now(UTC),
    )  # fmt: skip
    open_copies = {_S.IN_FLIGHT, _S.STUCK, _S.UNDELIVERED}
    summary = build_summary(
        AuditSummary(
            stream=stream.name, group=judge.group, window=window, produced=len(places),
            archived=0, counts=counts, verdict=verdict, sentence="inferred",
            open=len(still) + sum(1 for one in retried.values() if one in open_copies),
            stuck_earlier=stuck,
        )
    )  # fmt: skip
    settled = {one: status for one, status in earlier.items() if one not in still}
    done = {_PROVEN, _INFERRED}
    record = GroupRecord(
        audited_after=EntryId.MIN, audited_from=0, open=0, left=0, followed=0, lowest_open=None,
        lowest_undelivered=None, left_out=0, gone_before=0,
    )  # fmt: skip
    return WindowReport(
        summary=summary, report=GroupReport(summary=summary, roots=roots), record=record,
        named=named,
        again={one: status for one, status in {**still, **settled}.items() if one not in named},
        exceptions={one: status for one, status in named.items() if status not in done},
        settled=settled,
        moved={}, moved_copies={},
        open=still, roots=[Root(root=b"0-0", window=0, status=_S.LOST)], retried=retried,
    )  # fmt: skip


def _say_roots(one: WindowReport, roots: dict[EntryStatus, int]) -> WindowReport:
    return replace(one, report=one.report.model_copy(update={"roots": roots}))


def _best(judge: Judge, place: int) -> EntryStatus:
    """What was done once, was done; an entry outside the backlog is not lost."""
    status, marks = judge.book.status(place), Mark(judge.book.marks[place])
    if status is not _S.LOST:
        return status
    if marks & Mark.DONE:
        return _PROVEN
    if marks & Mark.UNRECORDED:
        return _INFERRED
    known: dict[Mark, EntryStatus] = {
        Mark.REQUEUED: _S.REQUEUED,
        Mark.DISCARDED: _S.DISCARDED,
        Mark.REDRIVEN: _S.REDRIVEN,
        Mark.DEAD_LETTERED: _S.DEAD_LETTERED,
    }
    for mark, reported in known.items():
        if marks & mark:
            return reported
    if marks & Mark.LETTER_WITHOUT_BODY:
        return _S.PAYLOAD_GONE
    return status if judge.accepts(place, status) else _S.INDETERMINATE


def _best_root(judge: Judge, place: int) -> EntryStatus:
    ways: list[EntryStatus] = [judge.book.end_of_root(place), _best(judge, place), *EntryStatus]
    found = next((one for one in ways if judge._accepts_root(place, one)), None)
    if found is not None:
        return found
    raise AssertionError(f"nothing may be said of {judge.stream.ids[place]!r}")
