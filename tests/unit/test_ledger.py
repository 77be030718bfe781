"""What a ledger's entries say, also those of other versions and of other hands."""

from datetime import timedelta

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.records.ledger import (
    MOST_DELIVERIES,
    LedgerEntry,
    LedgerKind,
    parse_ledger_entry,
    parse_ledger_event,
)


def test_an_act_on_several_entries_names_each() -> None:
    event = parse_ledger_event(
        EntryId(9),
        {
            b"kind": b"requeued",
            b"stream": b"orders",
            b"consumer": b"w-1",
            b"7-0": b"12-0 5-0 2 3 1500",
            b"8-1": b"- 8-1 0 1 -1",
        },
    )
    assert event.kind == LedgerKind.REQUEUED
    assert event.details == {"stream": "orders", "consumer": "w-1"}
    assert event.entries == (
        LedgerEntry(
            entry_id=EntryId(7),
            new_id=EntryId(12),
            root_id=EntryId(5),
            retry_count=2,
            deliveries=3,
            idle=timedelta(seconds=1.5),
        ),
        LedgerEntry(
            entry_id=EntryId(8, 1),
            new_id=None,
            root_id=EntryId(8, 1),
            retry_count=0,
            deliveries=1,
            idle=timedelta(milliseconds=-1),
        ),
    )


def test_an_event_of_a_newer_version_is_read_partially() -> None:
    entry = parse_ledger_entry("7-0", "12-0 5-0 2 3 1500 what-comes-later")
    assert entry is not None
    assert entry.new_id == EntryId(12)
    event = parse_ledger_event(EntryId(9), {b"kind": b"praised", b"by": b"all"})
    assert (event.kind, event.details, event.entries) == ("praised", {"by": "all"}, ())


@pytest.mark.parametrize("count", [2**53 + 1, 2**63 - 1, 2**63, -(2**63)])
def test_a_count_beyond_the_largest_is_the_largest(count: int) -> None:
    entry = parse_ledger_entry("7-0", f"12-0 5-0 {abs(count)} {count} 1500")
    assert entry is not None
    assert (entry.retry_count, entry.deliveries) == (999_999, MOST_DELIVERIES)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("7", "12-0 5-0 2 3 1500"),
        ("7-0", ""),
        ("7-0", "12-0 5-0 2 3"),
        ("7-0", "12-0 x 2 3 1500"),
        ("7-0", "12-0 5-0 two 3 1500"),
        ("7-0", "12-0 5-0 2 3 " + "9" * 400),
        ("7-0", "12-0 5-0 2 3 " + "9" * 19),
        ("7-0", "12-0 5-0 2 ² 1500"),
        (f"{2**64}-0", "12-0 5-0 2 3 1500"),
    ],
)
def test_a_pair_that_is_no_entry_is_a_detail(field: str, value: str) -> None:
    assert parse_ledger_entry(field, value) is None
    event = parse_ledger_event(EntryId(9), {field.encode(): value.encode()})
    assert event.details == {field: value}


def test_an_event_without_a_kind_or_with_invalid_text_is_read() -> None:
    event = parse_ledger_event(EntryId(9), {b"\xff": b"\xfe"})
    assert (event.kind, event.entries) == ("", ())
