"""The backlog of a group, and what was lost or moved aside: gaps in the balance that must not
be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pelops.clock import EPOCH
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditVerdict, Window
from pelops.domain.records.ledger import LedgerEvent, LedgerKind
from pelops.pipeline.archive.ledger import GroupHistory
from pelops.pipeline.audit.group_share import (
    ArchivedWindow,
    GroupShare,
    GroupStart,
    find_audited_after,
    find_beginning,
    find_share,
    read_first_creation,
    read_moves,
)
from pelops.pipeline.context import open_run
from pelops.pipeline.run import find_targets, run_archive
from tests.pipeline.audited import FIRST_MS, GROUP, Audited
from tests.pipeline.histories import history_of

WINDOW = Window(
    number=0, from_id=EntryId(10), to_id=EntryId(20), from_added=10, to_added=20, at=EPOCH
)


def ledger_of(*events: tuple[LedgerKind, dict[str, str]]) -> GroupHistory:
    return history_of(*(LedgerEvent(entry_id=EntryId(1), kind=k, details=d) for k, d in events))


def created(position: str, **details: str) -> tuple[LedgerKind, dict[str, str]]:
    reported = {"stream": "orders", "position": position, "why": "first"}
    return LedgerKind.GROUP_CREATED, reported | details


def moved(to: str) -> tuple[LedgerKind, dict[str, str]]:
    return LedgerKind.POSITION_CHANGED, {"from": "99-0", "to": to, "why": "went-back"}


def find(
    position: str, *, why: str = "first", archived: int = 10, before: int = 0, **beyond: int
) -> GroupShare:
    """The share of WINDOW of a group that was created there according to the ledger."""
    ledger = read_first_creation("orders", ledger_of(created(position, why=why)))
    there = ArchivedWindow(entries=archived, count_until=lambda _: before, **beyond)
    begin = find_beginning(ledger, GroupStart(), there, position=None)
    return find_share(WINDOW, there, begin=begin.at)


@pytest.mark.parametrize(
    ("ledger", "files", "position", "found"),
    [
        ((), GroupStart(), None, GroupStart()),
        # Without a record of where it began, its position proves nothing.
        ((), GroupStart(), EntryId(14), GroupStart()),
        ((created("14-0"),), GroupStart(), EntryId(20), GroupStart(at=EntryId(14))),
        # Of 15 that had been added four are archived.
        (
            (created("14-0", added="15"),),
            GroupStart(),
            EntryId(20),
            GroupStart(at=EntryId(14), gone=11),
        ),
        # Files may have seen more go, or less.
        (
            (created("14-0", added="15"),),
            GroupStart(at=EntryId(14), gone=12),
            EntryId(20),
            GroupStart(at=EntryId(14), gone=12),
        ),
        ((), GroupStart(at=EntryId(14), gone=3), EntryId(20), GroupStart(at=EntryId(14), gone=3)),
        # A number that is none.
        ((created("14-0", added="-1"),), GroupStart(), EntryId(20), GroupStart(at=EntryId(14))),
        # It was set back: the ledger does not show what was removed by then.
        ((created("14-0", added="15"),), GroupStart(), EntryId(12), GroupStart(at=EntryId(12))),
        (
            (created("14-0", added="15"), moved("11-0"), moved("12-0")),
            GroupStart(),
            EntryId(20),
            GroupStart(at=EntryId(11)),
        ),
        (
            (created("14-0", added="15"), created("0-0", why="new-stream")),
            GroupStart(),
            EntryId(20),
            GroupStart(at=EntryId.MIN),
        ),
        (
            (created("14-0", added="15"),),
            GroupStart(at=EntryId(10), gone=5),
            EntryId(20),
            GroupStart(at=EntryId(10), gone=5),
        ),
        # Moved, but not to before its beginning.
        (
            (created("14-0", added="15"), moved("16-0")),
            GroupStart(),
            EntryId(18),
            GroupStart(at=EntryId(14), gone=11),
        ),
    ],
)
def test_a_group_began_at_the_lowest_reported_position(
    ledger: tuple[tuple[LedgerKind, dict[str, str]], ...],
    files: GroupStart,
    position: EntryId | None,
    found: GroupStart,
) -> None:
    reported = read_first_creation("orders", ledger_of(*ledger))
    archived = ArchivedWindow(entries=10, count_until=lambda _: 4)
    assert find_beginning(reported, files, archived, position=position) == found


def test_what_the_archive_cannot_hold_was_not_gone_before_the_group_began() -> None:
    """Entries at the end of the window are the group's; others of unknown origin stay."""
    ledger = read_first_creation("orders", ledger_of(created("14-0", added="15")))
    there = ArchivedWindow(entries=10, count_until=lambda _: 4, beyond=3, beyond_seq=2)
    found = find_beginning(ledger, GroupStart(), there, position=None)
    assert found == GroupStart(at=EntryId(14), gone=9)
    share = find("14-0", archived=6, before=4, beyond=1, beyond_seq=2)
    assert (share.archived, share.produced, share.left_out) == (2, 5, 4)


def test_the_share_of_a_group_begins_after_its_start_position() -> None:
    assert find("5-0") == GroupShare(window=WINDOW, archived=10, begin=EntryId(5))
    mine = replace(WINDOW, from_id=EntryId(14), from_added=14)
    found = GroupShare(window=mine, archived=6, left_out=4, begin=EntryId(14))
    assert find("14-0", before=4) == found


def test_a_group_that_was_created_again_keeps_its_whole_share() -> None:
    assert find("14-0", why="continues", before=4) == GroupShare(window=WINDOW, archived=10)


def test_entries_gone_before_the_archive_are_left_out_only_if_older() -> None:
    mine = replace(WINDOW, from_id=EntryId(14), from_added=14)
    begin = EntryId(14)
    found = GroupShare(window=mine, archived=6, left_out=1, begin=begin)
    assert find("14-0", archived=7, before=1) == found
    assert find("14-0", archived=6, before=0) == GroupShare(window=WINDOW, archived=6, begin=begin)


def test_a_group_that_begins_after_the_window_has_no_share() -> None:
    found = find("20-0")
    assert (found.produced, found.archived, found.left_out) == (0, 0, 10)


@pytest.mark.full
def test_entries_before_the_start_of_a_group_are_not_acknowledged(
    audited: Audited,
) -> None:
    ids = audited.add(10)
    audited.create_group(at=ids[5])
    created = ("position", ids[5], "why", "first", "repeats", 0, "from", "")
    audited.record("group-created", *created)
    audited.acknowledge(*audited.deliver(1))
    summary = audited.audit_one()
    assert (summary.produced, summary.archived) == (4, 4)
    assert summary.window.from_id == parse_entry_id(ids[5])
    assert audited.counts(summary) == {"acknowledged_inferred": 1, "undelivered": 3}
    assert audited.state().left_out == 6


@pytest.mark.full
def test_a_group_set_back_before_its_start_includes_entries_between(
    audited: Audited,
) -> None:
    ids = audited.add(10)
    audited.create_group(at=ids[5])
    audited.record("group-created", "position", ids[5], "why", "first", "added", 6)
    audited.deliver(4)
    audited.client.xgroup_setid(audited.stream, GROUP, id=ids[2])
    summary = audited.audit_one()
    assert audited.counts(summary) == {"undelivered": 3, "in_flight": 4}
    assert summary.window.from_id == parse_entry_id(ids[2])
    # Where it was set to stays known when it has read on.
    audited.record("position-changed", "from", ids[9], "to", ids[2], "why", "went-back")
    audited.acknowledge(*audited.deliver(7))
    again = audited.audit_one(archive=f"{audited.archive}-anew")
    assert (again.produced, again.counts[EntryStatus.IN_FLIGHT]) == (7, 0)


def test_a_group_that_was_set_back_is_audited_from_there_on() -> None:
    def find(*moves: EntryId, position: EntryId | None, last: EntryId) -> EntryId:
        return find_audited_after(EntryId(10), moves, position=position, last=last)

    # It may have been behind since before its first audit, whose window said so.
    assert find(position=EntryId(5), last=EntryId(5)) == EntryId(10)
    assert find(position=EntryId(5), last=EntryId(6)) == EntryId(5)
    assert find(position=None, last=EntryId(6)) == EntryId(10)
    assert find(EntryId(8), position=EntryId(15), last=EntryId(15)) == EntryId(8)
    assert find(EntryId(12), position=EntryId(11), last=EntryId(15)) == EntryId(10)
    ledger = ledger_of(created("1-0"), created("8-0", why="continues"), moved("7-0"))
    assert read_moves("orders", ledger) == [EntryId(8), EntryId(7)]


@pytest.mark.full
def test_entries_delivered_after_setting_a_group_back_before_its_audit_are_open(
    audited: Audited,
) -> None:
    ids = audited.add(10)
    audited.create_group(at=ids[5])
    audited.record("group-created", "position", ids[5], "why", "first", "added", 6)
    assert audited.audit_one().produced == 4
    audited.client.xgroup_setid(audited.stream, GROUP, id=ids[2])
    audited.audit_one()
    audited.deliver(2)
    audited.client.xdel(audited.stream, ids[3])
    reported = audited.audit_one()
    assert {row["seq"]: row["status"] for row in audited.rows("open", 2)} == {
        3: "payload_gone", 4: "in_flight",
        6: "undelivered", 7: "undelivered", 8: "undelivered", 9: "undelivered",
    }  # fmt: skip
    assert reported.verdict is not AuditVerdict.BALANCED


@pytest.mark.full
def test_entries_gone_before_the_group_start_are_counted_and_not_expected(audited: Audited) -> None:
    ids = audited.add(10)
    audited.client.xtrim(audited.stream, minid=ids[4], approximate=False)
    audited.create_group(at=ids[5])
    audited.record("group-created", "position", ids[5], "why", "first", "added", 6)
    audited.deliver(4)
    summary = audited.audit_one()
    assert summary.produced == 4
    assert (audited.state().left_out, audited.state().gone_before) == (2, 4)
    assert "removed-before-archive" not in {one.kind for one in summary.findings}


@pytest.mark.full
def test_archived_entries_that_the_operator_saw_go_are_lost(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(10)
    audited.acknowledge(*audited.deliver(4))
    run = open_run(audited.spark, audited.settings)
    try:
        assert run_archive(run, find_targets(run)) == 10
    finally:
        run.watch.close()
    audited.client.xtrim(audited.stream, minid=ids[7], approximate=False)
    reported = ("at_least", 3, "at_most", 3, "after", ids[3], "before", ids[7])
    audited.record("data-loss", *reported)
    audited.record("bookmark", "entries_added", 10, "last_generated", ids[9])
    audited.acknowledge(*audited.deliver(3))
    summary = audited.audit()[0]
    assert audited.counts(summary) == {"acknowledged_inferred": 7, "lost": 3}
    lost = {(row["seq"], row["why"]) for row in audited.rows("exceptions")}
    assert lost == {(4, "loss-seen"), (5, "loss-seen"), (6, "loss-seen")}


@pytest.mark.full
def test_copies_in_the_retry_stream_have_a_status_each(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(4)
    audited.acknowledge(*audited.deliver(4))
    client, retry = audited.client, audited.keys.retry
    client.xgroup_create(retry, GROUP, id="0", mkstream=True)
    copies = [f"{FIRST_MS + 100}-{n}" for n in range(4)]
    for copy, root in zip(copies, ids, strict=True):
        words = ("number", 1, "_original_id", root, "_retry_count", 1)
        client.execute_command("XADD", retry, copy, *words)
        audited.record("requeued", "target", retry, root, f"{copy} {root} 1 1 40")
    client.xreadgroup(GROUP, "b", {retry: ">"}, count=3)
    client.xack(retry, GROUP, copies[0], copies[2])
    client.xdel(retry, copies[2])
    client.execute_command(
        "XADD", audited.keys.ledger, "*", "kind", "dead-lettered", "stream", retry, "reason", "Bad",
        copies[2], f"9-9 {ids[2]} 1 1 40",
    )  # fmt: skip
    summary = audited.audit_one()
    assert audited.counts(summary) == {"requeued": 4}
    assert {one.kind: one.count for one in summary.findings} == {"dead-lettered-copies": 1}
    reported = {row["seq"]: (row["status"], row["root"]) for row in audited.rows("retried")}
    assert reported == {
        0: ("acknowledged_inferred", ids[0]),
        1: ("in_flight", ids[1]),
        2: ("dead_lettered", ids[2]),
        3: ("undelivered", ids[3]),
    }
    client.xack(retry, GROUP, copies[1])
    audited.audit_one()
    later = {row["seq"]: row["status"] for row in audited.rows("retried", 1)}
    assert later == {1: "acknowledged_inferred", 3: "undelivered"}
