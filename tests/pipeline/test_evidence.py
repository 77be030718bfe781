"""What append-only files of each server prove of an entry, and what they do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pipeline.evidence_adapter import KEYS, VERSIONS, Witnessed, witness


@pytest.fixture(scope="module", params=VERSIONS)
def running(request: pytest.FixtureRequest) -> Iterator[Witnessed]:
    with witness(request.param) as witnessed:
        yield witnessed


@pytest.fixture
def witnessed(running: Witnessed) -> Witnessed:
    """An empty server; its files hold what earlier tests did, and a FLUSHALL after it."""
    running.ask("FLUSHALL")
    running.added = 0
    return running


def test_a_delivery_and_its_acknowledgement_are_reported_with_consumer_and_times(
    witnessed: Witnessed,
) -> None:
    witnessed.add(3)
    witnessed.create()
    witnessed.read(2, "a")
    witnessed.acknowledge(1)
    rows = witnessed.rows()
    assert [rows[n]["fate"] for n in (1, 2, 3)] == ["acknowledged", "pending", "undelivered"]
    assert (rows[1]["act"], rows[1]["proof"]) == ("worker", "acknowledged")
    assert (rows[1]["consumer"], rows[1]["deliveries"]) == ("a", 1)
    assert 0 < rows[1]["first_delivered_ms"] <= rows[1]["at_ms"]
    assert rows[3]["consumer"] is None
    assert rows[3]["at_ms"] is None


def test_acknowledging_what_is_not_pending_proves_nothing(witnessed: Witnessed) -> None:
    witnessed.add(3)
    witnessed.create()
    witnessed.read(1)
    witnessed.acknowledge(1, 2, 3)
    assert witnessed.proofs() == {1: "acknowledged", 2: None, 3: None}


def test_a_record_that_went_with_its_consumer_is_dropped_until_delivered_again(
    witnessed: Witnessed,
) -> None:
    witnessed.add(4)
    witnessed.create()
    witnessed.read(4, "a")
    witnessed.acknowledge(4)
    witnessed.group("DELCONSUMER", "a")
    assert witnessed.proofs() == {1: "dropped", 2: "dropped", 3: "dropped", 4: "acknowledged"}
    witnessed.group("SETID", "1-0")
    witnessed.read(1, "b")
    witnessed.acknowledge(2)
    assert witnessed.proofs() == {1: "dropped", 2: "acknowledged", 3: "dropped", 4: "acknowledged"}


def test_what_a_destroyed_group_held_is_dropped(witnessed: Witnessed) -> None:
    witnessed.add(3)
    witnessed.create()
    witnessed.read(2)
    witnessed.acknowledge(1)
    witnessed.group("DESTROY")
    witnessed.create("$")
    assert witnessed.fates() == {1: "acknowledged", 2: "group-destroyed", 3: "skipped"}


def test_what_lies_before_a_new_group_is_none_of_its_entries(witnessed: Witnessed) -> None:
    witnessed.add(2)
    witnessed.ask("XGROUP", "CREATE", KEYS.stream, "others", "0")
    witnessed.ask("XGROUP", "CREATE", KEYS.retry, KEYS.group, "0", "MKSTREAM")
    witnessed.create("1")
    assert witnessed.proofs()[1] is None


@pytest.mark.parametrize("claim", ["XCLAIM", "XAUTOCLAIM"])
def test_a_claim_that_finds_no_body_drops_the_record(witnessed: Witnessed, claim: str) -> None:
    witnessed.add(3)
    witnessed.create()
    witnessed.read(3, "a")
    witnessed.ask("XDEL", KEYS.stream, "2-0")
    ids = ("1-0", "2-0") if claim == "XCLAIM" else ("0",)
    witnessed.ask(claim, KEYS.stream, KEYS.group, "b", 0, *ids)
    rows = witnessed.rows()
    assert (rows[2]["fate"], rows[2]["proof"]) == ("body-missed", "dropped")
    assert (rows[1]["fate"], rows[1]["consumer"], rows[1]["deliveries"]) == ("pending", "b", 2)


def test_renewing_an_entry_within_a_millisecond_drops_nothing(witnessed: Witnessed) -> None:
    witnessed.add(1)
    witnessed.create()
    witnessed.read(1, "a")
    renew = ("XCLAIM", KEYS.stream, KEYS.group, "a", 0, "1-0", "TIME", 1000, "JUSTID")
    witnessed.ask(*renew)
    witnessed.ask(*renew)
    assert witnessed.fates() == {1: "pending"}


def test_an_entry_trimmed_while_pending_may_still_be_acknowledged(witnessed: Witnessed) -> None:
    witnessed.add(5)
    witnessed.create()
    witnessed.read(2)
    witnessed.ask("XTRIM", KEYS.stream, "MAXLEN", 1)
    witnessed.acknowledge(1)
    witnessed.read(1)
    rows = witnessed.rows()
    assert [rows[n]["removal"] for n in range(1, 6)] == ["trimmed"] * 4 + ["present"]
    assert [rows[n]["proof"] for n in range(1, 6)] == [
        "acknowledged", None, "skipped", "skipped", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "trim", [("XTRIM", "orders", "MINID", "~", "701-0"), ("XTRIM", "orders", "MAXLEN", "~", "300"),
             ("XADD", "orders", "maxlen", "~", "300", "2000-0", "f", "v")],
)  # fmt: skip
def test_an_approximate_trim_is_reported_as_what_it_took(
    witnessed: Witnessed, trim: tuple[str, ...]
) -> None:
    witnessed.add(1000)
    witnessed.ask(*trim)
    first = int(witnessed.ask("XRANGE", "orders", "-", "+", "COUNT", 1)[0][0].partition(b"-")[0])
    gone = [number for number, row in witnessed.rows().items() if row["removal"] == "trimmed"]
    assert gone == list(range(1, first))
    assert first > 1


def test_setid_proves_entries_skipped_and_an_unrecorded_read_does_not(
    witnessed: Witnessed,
) -> None:
    witnessed.add(6)
    witnessed.create()
    witnessed.read(2, "a", "NOACK")
    witnessed.read(1, "a", "NOACK")
    witnessed.group("SETID", "5-0")
    assert list(witnessed.proofs().values()) == ["noack"] * 3 + ["skipped"] * 2 + [None]


def test_a_position_that_went_back_gives_again_what_is_still_there(witnessed: Witnessed) -> None:
    witnessed.add(5)
    witnessed.create()
    witnessed.read(2, "a", "NOACK")
    witnessed.group("SETID", "4-0")
    witnessed.ask("XDEL", KEYS.stream, "1-0", "3-0")
    witnessed.group("SETID", "0-0")
    waiting = "undelivered"
    reported = ["read-without-record", waiting, "skipped", waiting, waiting]
    assert list(witnessed.fates().values()) == reported


def test_an_acknowledgement_beside_a_record_in_the_ledger_is_the_operators(
    witnessed: Witnessed,
) -> None:
    witnessed.add(3)
    witnessed.create()
    witnessed.read(3)
    script = (
        "redis.call('XADD', KEYS[2], '*', 'kind', 'dead-lettered', '1-0', '9-0 1-0 0 1 5')"
        "return redis.call('XACK', KEYS[1], 'workers', '1-0', '2-0')"
    )
    witnessed.ask("EVAL", script, 2, KEYS.stream, KEYS.ledger)
    acts = {number: row["act"] for number, row in witnessed.rows().items()}
    assert acts == {1: "dead-lettered", 2: "worker", 3: None}
    assert witnessed.proofs()[1] is None


def test_a_deleted_stream_takes_its_entries_and_gives_ids_again(witnessed: Witnessed) -> None:
    witnessed.add(3)
    witnessed.create()
    witnessed.read(2)
    witnessed.acknowledge(1)
    witnessed.ask("DEL", KEYS.stream)
    assert list(witnessed.proofs().values()) == ["acknowledged", "dropped", "skipped"]
    witnessed.added = 1
    witnessed.add(2)
    witnessed.create()
    witnessed.read(1)
    assert witnessed.fates() == {1: "acknowledged", 2: "pending", 3: "undelivered"}


@pytest.fixture(scope="module")
def running_86() -> Iterator[Witnessed]:
    with witness("8.6") as witnessed:
        yield witnessed


@pytest.fixture
def newest(running_86: Witnessed) -> Witnessed:
    """A server that can delete entries and their records in one command."""
    running_86.ask("FLUSHALL")
    running_86.added = 0
    running_86.add(8)
    running_86.create()
    running_86.read(6)
    return running_86


def test_what_is_acknowledged_and_deleted_at_once_is_acknowledged(newest: Witnessed) -> None:
    newest.ask("XACKDEL", KEYS.stream, KEYS.group, "IDS", 1, "1-0")
    newest.ask("XACKDEL", KEYS.stream, KEYS.group, "delref", "IDS", 2, "2-0", "7-0")
    newest.ask("XACKDEL", KEYS.stream, KEYS.group, "ACKED", "IDS", 1, "3-0")
    rows = newest.rows()
    assert [rows[n]["proof"] for n in (1, 2, 3, 4)] == ["acknowledged"] * 3 + [None]
    assert [rows[n]["removal"] for n in (1, 2, 4, 7)] == ["deleted"] * 2 + ["present"] * 2


@pytest.mark.parametrize(
    "delete",
    [
        ("XDELEX", "orders", "DELREF", "IDS", "2", "1-0", "2-0"),
        ("XTRIM", "orders", "MINID", "3-0", "DELREF"),
        ("XTRIM", "orders", "MAXLEN", "6", "DELREF"),
        ("XADD", "orders", "DELREF", "MAXLEN", "7", "9-0", "f", "v"),
    ],
)
def test_records_that_are_deleted_with_their_entries_are_dropped(
    newest: Witnessed, delete: tuple[str, ...]
) -> None:
    newest.ask(*delete)
    assert [newest.proofs()[n] for n in (1, 2, 3)] == ["dropped", "dropped", None]


def test_deleting_entries_alone_leaves_their_records(newest: Witnessed) -> None:
    newest.ask("XDELEX", KEYS.stream, "KEEPREF", "IDS", 1, "1-0")
    newest.ask("XDELEX", KEYS.stream, "ACKED", "IDS", 1, "2-0")
    newest.acknowledge(1, 2)
    assert [newest.proofs()[n] for n in (1, 2, 3)] == ["acknowledged"] * 2 + [None]


def test_a_trim_of_acknowledged_entries_makes_a_later_one_by_length_doubtful(
    newest: Witnessed,
) -> None:
    newest.acknowledge(1, 3)
    newest.ask("XTRIM", KEYS.stream, "MAXLEN", 1, "ACKED")
    newest.ask("XTRIM", KEYS.stream, "MAXLEN", 1)
    newest.read(2)
    rows = newest.rows()
    assert {rows[n]["removal"] for n in (2, 4, 5, 6, 7)} == {"unknown"}
    assert rows[7]["proof"] is None


def test_a_producer_that_repeats_itself_adds_nothing(newest: Witnessed) -> None:
    for _ in range(2):
        newest.ask("XADD", KEYS.stream, "IDMP", "producer", "once", "*", "f", "v")
    assert len(newest.rows()) == 9


@pytest.mark.parametrize(
    "away_and_back",
    [
        [("RENAME", "orders", "{orders}2"), ("RENAME", "{orders}2", "orders")],
        [("COPY", "orders", "{orders}2"), ("DEL", "orders"), ("COPY", "{orders}2", "orders")],
        [("MOVE", "orders", "1"), ("SELECT", "1"), ("MOVE", "orders", "0"), ("SELECT", "0")],
        [("SWAPDB", "0", "1"), ("SWAPDB", "1", "0")],
    ],
)
def test_of_a_stream_that_comes_back_only_what_was_acknowledged_is_proven(
    witnessed: Witnessed, away_and_back: list[tuple[str, ...]]
) -> None:
    witnessed.add(4)
    witnessed.create()
    witnessed.read(2)
    witnessed.acknowledge(1)
    for words in away_and_back:
        witnessed.ask(*words)
    witnessed.acknowledge(2)
    witnessed.read(1)
    witnessed.acknowledge(3)
    assert witnessed.proofs() == {1: "acknowledged", 2: None, 3: "acknowledged", 4: None}


def test_other_databases_and_other_groups_do_not_count(witnessed: Witnessed) -> None:
    witnessed.add(2)
    witnessed.create()
    witnessed.ask("XGROUP", "CREATE", KEYS.stream, "others", "0")
    witnessed.ask("XREADGROUP", "GROUP", "others", "x", "STREAMS", KEYS.stream, ">")
    witnessed.ask("SELECT", 1)
    witnessed.ask("XADD", KEYS.stream, "7-0", "f", "v")
    witnessed.ask("FLUSHDB")
    witnessed.ask("SELECT", 0)
    assert witnessed.fates() == {1: "undelivered", 2: "undelivered"}


def test_values_that_look_like_parts_of_the_file_are_values(witnessed: Witnessed) -> None:
    witnessed.add(2, "\r\n#TS:1\r\n*1\r\n$5\r\nMULTI\r\n")
    witnessed.add(1, "#TS:1\r\n" * 200_000)  # longer than a block
    witnessed.create()
    witnessed.read(2)
    witnessed.acknowledge(1)
    assert list(witnessed.fates().values()) == ["acknowledged", "pending", "undelivered"]
