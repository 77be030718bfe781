"""What a group owes, and what was lost or moved aside: gaps in the balance that must not be."""

from __future__ import annotations

from dataclasses import replace

from pelops.domain.audit import Window
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerKind
from pelops.pipeline.acts import GroupHistory
from pelops.pipeline.bookmarks import EPOCH
from pelops.pipeline.owed import Owed, find_owed, read_first_position
from pelops.pipeline.run import open_run, run_archive
from tests.pipeline.audited import FIRST_MS, GROUP, Audited

WINDOW = Window(
    number=0, from_id=EntryId(10), to_id=EntryId(20), from_added=10, to_added=20, at=EPOCH
)


def find(position: str, *, why: str = "first", archived: int = 10, before: int = 0) -> Owed:
    """The part of WINDOW that a group owes that the ledger says was made there."""
    created = {"stream": "orders", "position": position, "why": why}
    history = GroupHistory(
        exists=True,
        archived=EntryId.MIN,
        rows=0,
        events=((LedgerKind.GROUP_CREATED, created),),
        bookmarks=1,
    )
    begin = read_first_position("orders", history)
    return find_owed(WINDOW, archived, lambda _: before, begin=begin)


def test_a_group_owes_what_came_after_the_position_it_began_with() -> None:
    assert find("5-0") == Owed(window=WINDOW, archived=10, begin=EntryId(5))
    mine = replace(WINDOW, from_id=EntryId(14), from_added=14)
    found = Owed(window=mine, archived=6, left_out=4, begin=EntryId(14))
    assert find("14-0", before=4) == found


def test_a_group_that_was_made_again_owes_all_that_it_owed_before() -> None:
    assert find("14-0", why="continues", before=4) == Owed(window=WINDOW, archived=10)


def test_what_was_gone_before_the_archive_is_left_out_only_when_it_must_be_older() -> None:
    mine = replace(WINDOW, from_id=EntryId(14), from_added=14)
    begin = EntryId(14)
    found = Owed(window=mine, archived=6, left_out=1, begin=begin)
    assert find("14-0", archived=7, before=1) == found
    assert find("14-0", archived=6, before=0) == Owed(window=WINDOW, archived=6, begin=begin)


def test_a_group_that_begins_after_the_window_owes_nothing_of_it() -> None:
    found = find("20-0")
    assert (found.produced, found.archived, found.left_out) == (0, 0, 10)


def test_a_group_that_starts_at_the_end_is_not_said_to_have_acknowledged_what_was_there(
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
    assert audited.json("audit.json")["before_the_group"] == 6


def test_archived_entries_that_the_operator_saw_go_are_lost(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(10)
    audited.acknowledge(*audited.deliver(4))
    run = open_run(audited.spark, audited.settings)
    try:
        assert run_archive(run) == 10
    finally:
        run.watch.close()
    audited.client.xtrim(audited.stream, minid=ids[7], approximate=False)
    told = ("at_least", 3, "at_most", 3, "after", ids[3], "before", ids[7])
    audited.record("data-loss", *told)
    audited.record("bookmark", "entries_added", 10, "last_generated", ids[9])
    audited.acknowledge(*audited.deliver(3))
    summary = audited.audit()[0]
    assert audited.counts(summary) == {"acknowledged_inferred": 7, "lost": 3}
    lost = {(row["seq"], row["why"]) for row in audited.rows("exceptions")}
    assert lost == {(4, "loss-seen"), (5, "loss-seen"), (6, "loss-seen")}


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
    told = {row["seq"]: (row["status"], row["root_seq"]) for row in audited.rows("retried")}
    assert told == {
        0: ("acknowledged_inferred", 0),
        1: ("in_flight", 1),
        2: ("dead_lettered", 2),
        3: ("undelivered", 3),
    }
    client.xack(retry, GROUP, copies[1])
    audited.audit_one()
    later = {row["seq"]: row["status"] for row in audited.rows("retried", 1)}
    assert later == {1: "acknowledged_inferred", 3: "undelivered"}
