"""The entries that belong to a group: where it began, and which of them were removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pelops.clock import EPOCH
from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import Window
from pelops.domain.records.ledger import LedgerEvent, LedgerKind
from pelops.pipeline.archive.ledger import ACTS, GroupHistory
from pelops.pipeline.archive.redis_reader import GroupSnapshot
from pelops.pipeline.archive.windows import LedgerEnd
from pelops.pipeline.audit.gone_entries import Gone, account_for_gone, count_undelivered
from pelops.pipeline.audit.group_share import (
    ArchivedWindow,
    GroupShare,
    GroupStart,
    PreviousGroupState,
    Removed,
    close_balance,
    find_audited_after,
    find_beginning,
    find_position_doubt,
    find_share,
    read_first_creation,
    read_moves,
)

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


def share_of(
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
    share = share_of("14-0", archived=6, before=4, beyond=1, beyond_seq=2)
    assert (share.archived, share.produced, share.left_out) == (2, 5, 4)


def test_the_share_of_a_group_begins_after_its_start_position() -> None:
    assert share_of("5-0") == GroupShare(window=WINDOW, archived=10, begin=EntryId(5))
    mine = replace(WINDOW, from_id=EntryId(14), from_added=14)
    found = GroupShare(window=mine, archived=6, left_out=4, begin=EntryId(14))
    assert share_of("14-0", before=4) == found


def test_a_group_that_was_created_again_keeps_its_whole_share() -> None:
    assert share_of("14-0", why="continues", before=4) == GroupShare(window=WINDOW, archived=10)


def test_entries_gone_before_the_archive_are_left_out_only_if_older() -> None:
    mine = replace(WINDOW, from_id=EntryId(14), from_added=14)
    begin = EntryId(14)
    found = GroupShare(window=mine, archived=6, left_out=1, begin=begin)
    assert share_of("14-0", archived=7, before=1) == found
    assert share_of("14-0", archived=6, before=0) == GroupShare(
        window=WINDOW, archived=6, begin=begin
    )


def test_a_group_that_begins_after_the_window_has_no_share() -> None:
    found = share_of("20-0")
    assert (found.produced, found.archived, found.left_out) == (0, 0, 10)


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


AT = EntryId(1000)
DELETED = EntryId(500)


def look(read: int | None = None, consumers: int = 1, given: int | None = 1000) -> GroupSnapshot:
    return GroupSnapshot(
        position=AT, pending=0, entries_read=read, consumers=consumers, given_ms=given
    )


def doubt(
    found: GroupSnapshot,
    last: GroupSnapshot | None = None,
    *,
    was_missing: bool = False,
    max_deleted: EntryId = DELETED,
    created_at: EntryId | None = None,
) -> str:
    known = PreviousGroupState(group=last, was_missing=was_missing)
    reported = find_position_doubt(found, known, max_deleted=max_deleted, created_at=created_at)
    return reported or ""


def test_a_server_that_knows_how_much_was_read_leaves_no_doubt() -> None:
    assert not doubt(look(read=7, consumers=0, given=None))


def test_a_position_that_no_consumer_can_have_reached_was_set() -> None:
    assert not doubt(look())
    assert "ever given an entry" in doubt(look(consumers=0, given=None))
    assert "since that one was added" in doubt(look(given=999))


def test_without_deletions_a_read_would_have_made_the_count_known() -> None:
    assert "does not know how much" in doubt(look(), max_deleted=EntryId.MIN)
    # One that was unknown before stays so until a read reaches the end.
    assert not doubt(look(), look(), max_deleted=EntryId.MIN)
    assert "does not know" in doubt(look(), look(read=5), max_deleted=EntryId.MIN)


def test_a_group_that_was_created_again_is_always_in_doubt() -> None:
    assert "was created since" in doubt(look(read=7), was_missing=True)
    assert "created again" in doubt(look(consumers=0, given=None), look(read=5, consumers=1))


def test_where_the_ledger_says_that_a_group_began_it_was_set_rightly() -> None:
    nobody = look(consumers=0, given=None)
    assert not doubt(nobody, created_at=AT, was_missing=True)
    assert not doubt(look(), created_at=EntryId(1), max_deleted=EntryId.MIN, was_missing=True)
    # One that began with the first entry was set later.
    assert "does not know" in doubt(look(), created_at=EntryId.MIN, max_deleted=EntryId.MIN)


def test_numbers_that_contradict_each_other_prove_nothing() -> None:
    def count(
        read: int | None, *, at: int = 15, known: int = 3, missing: int = 9, counts: bool = True
    ) -> int:
        look = GroupSnapshot(position=EntryId(at), pending=0, entries_read=read)
        return count_undelivered(look, FIRST, counts_trimmed=counts, known=known, missing=missing)

    assert count(15) == 2
    assert count(None) == count(15, counts=False) == count(21) == count(20, at=20) == 0
    assert count(15, known=6) == count(15, missing=1) == 0
    # Before the window all of it lies ahead.
    assert count(8, at=9) == 7
    assert count(11, at=9) == 0


FIRST = Window(
    number=0, from_id=EntryId(9), to_id=EntryId(20), from_added=10, to_added=20, at=EPOCH
)


def test_what_was_removed_before_the_group_was_created_is_not_its_own() -> None:
    trimmed = Removed(entries=10, max_deleted=EntryId.MIN)
    assert trimmed.after(None, FIRST.from_id) == 10
    assert trimmed.after(EntryId(8), FIRST.from_id) == 10
    assert trimmed.after(EntryId(9), FIRST.from_id) == 0
    assert Removed(entries=10, max_deleted=EntryId(15)).after(EntryId(9), FIRST.from_id) == 10


def test_a_balance_holds_what_is_reported_and_nothing_that_is_not() -> None:
    owed = GroupShare(window=FIRST, archived=10, removed=10)
    balance = close_balance(owed, 20, unaccounted=7)
    assert balance.unknown_before == 7
    assert balance.window == replace(FIRST, from_id=EntryId.MIN, from_added=7)
    all_unknown = close_balance(owed, 20, unaccounted=12)
    # Two of these went between the look at the counters and the archive.
    assert (all_unknown.unknown_before, all_unknown.window) == (10, FIRST)


LATER = Window(
    number=1, from_id=EntryId(10), to_id=EntryId(20), from_added=10, to_added=20, at=EPOCH
)


def test_a_possible_loss_is_not_counted_as_one() -> None:
    reported = {"at_least": "0", "at_most": "4", "after": "12-0", "before": "17-0"}
    reported["cause"] = "trimmed"
    found = account_for_gone(
        Gone(missing=5, removed=15),
        LATER,
        ledger_of((LedgerKind.DATA_LOSS, reported)),
        "orders",
    )
    assert found == {EntryStatus.INDETERMINATE: 5}


def test_entries_removed_without_a_ledger_event_are_indeterminate() -> None:
    gone = Gone(missing=5, removed=15)
    assert account_for_gone(gone, LATER, ledger_of(), "orders") == {EntryStatus.INDETERMINATE: 5}


def test_what_the_operator_saw_lost_is_lost_and_the_rest_stays_open() -> None:
    reported = {"at_least": "2", "at_most": "4", "after": "12-0", "before": "17-0"}
    again = {**reported, "at_least": "3"}
    found = account_for_gone(
        Gone(missing=5, removed=15),
        LATER,
        ledger_of((LedgerKind.DATA_LOSS, reported), (LedgerKind.DATA_LOSS, again)),
        "orders",
    )
    assert found == {EntryStatus.LOST: 3, EntryStatus.INDETERMINATE: 2}


def test_archived_entries_of_a_loss_are_not_counted_as_missing() -> None:
    reported = {"at_least": "3", "at_most": "3", "after": "12-0", "before": "17-0"}
    gone = Gone(missing=5, removed=15, seen=2)
    found = account_for_gone(gone, LATER, ledger_of((LedgerKind.DATA_LOSS, reported)), "orders")
    assert found == {EntryStatus.LOST: 1, EntryStatus.INDETERMINATE: 4}


def test_what_only_the_operator_trimmed_was_acknowledged() -> None:
    reported = {"stream": "orders", "count": "15", "first_id_after": "16-0"}
    gone, trims = Gone(missing=5, removed=15), (LedgerKind.TRIMMED, reported)
    found = account_for_gone(gone, LATER, ledger_of(trims), "orders")
    assert found == {EntryStatus.ACKNOWLEDGED_INFERRED: 5}
    of_copies = (LedgerKind.TRIMMED, {**reported, "stream": "{orders}:workers:retry"})
    found = account_for_gone(gone, LATER, ledger_of(of_copies), "orders")
    assert found == {EntryStatus.INDETERMINATE: 5}


def history_of(*events: LedgerEvent) -> GroupHistory:
    """Events of the group as a whole, and a checkpoint; no act on any entry."""
    end = LedgerEnd(exists=True, last=EntryId.MIN, of_workers=EntryId.MIN, has_events=True)
    return GroupHistory(end=end, acts=ACTS.empty_table(), events=events, checkpoints=1)
