"""The balance of what users added, when originals and copies are trimmed before the audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from pelops.domain.records.audit import AuditVerdict
from pelops.pipeline.report.model import CountCheck
from tests.pipeline.audited import GROUP, Audited


def requeue(audited: Audited, ids: Sequence[str], roots: Sequence[str], retry: int) -> list[str]:
    """What the operator does with stuck entries: copies at the end, acknowledged, written down."""
    copies, pairs = [], []
    for entry_id, root in zip(ids, roots, strict=True):
        (copy,) = audited.add(1, order=0, _original_id=root, _retry_count=retry)
        copies.append(copy)
        pairs += [entry_id, f"{copy} {root} {retry} 1 40"]
    audited.acknowledge(*ids)
    audited.record("requeued", "consumer", "a", "target", audited.stream, *pairs)
    return copies


def watch(audited: Audited) -> None:
    """The operator looks at the counters of the stream; it has watched from the beginning on."""
    (group,) = audited.client.xinfo_groups(audited.stream)
    position = ("watched_from", "0-0", "last_delivered", group["last-delivered-id"])
    audited.record("bookmark", "entries_added", audited.count, *position)


def trim(audited: Audited, *how: Any) -> None:
    """The operator trims what every group has done with, and writes it down."""
    count = audited.client.execute_command("XTRIM", audited.stream, *how)
    first = audited.client.xrange(audited.stream, count=1)
    after = first[0][0] if first else ""
    audited.record("trimmed", "count", count, "first_id_after", after)


def broken(audited: Audited, number: int = 0) -> list[CountCheck]:
    return [one for one in audited.report(number).checks if not one.holds]


@pytest.mark.full
def test_copies_that_were_trimmed_before_the_audit_are_no_entries_of_users(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(5)
    audited.acknowledge(*audited.deliver(5))
    watch(audited)
    trim(audited, "MAXLEN", 0)
    audited.audit_one()
    audited.add(30)
    read = audited.deliver(30)
    audited.acknowledge(*read[:20])
    requeue(audited, read[20:], read[20:], 1)
    audited.acknowledge(*audited.deliver(10))
    watch(audited)
    trim(audited, "MAXLEN", 3)
    summary = audited.audit_one()
    assert (summary.produced, summary.archived) == (40, 3)
    assert audited.counts(summary) == {"acknowledged_inferred": 30, "requeued": 10}
    assert audited.report(1).roots == {"acknowledged_inferred": 30}
    assert broken(audited, 1) == []
    expected = {one.name: one.expected for one in audited.report(1).checks}
    assert expected == {"produced": 40, "roots": 30, "requeued": 10, "pending": 0, "open": 0}


@pytest.mark.full
def test_a_chain_whose_middle_was_trimmed_ends_as_its_last_copy(audited: Audited) -> None:
    audited.create_group()
    audited.audit_one()
    first, second = audited.add(2)
    audited.deliver(2)
    copies = requeue(audited, [first, second], [first, second], 1)
    audited.deliver(2)
    again = requeue(audited, copies, [first, second], 2)
    audited.deliver(1)
    watch(audited)
    audited.acknowledge(again[0])
    letter = f"9-9 {first} 3 4 70"
    audited.record("dead-lettered", "reason", "Poison", again[0], letter)
    trim(audited, "MINID", again[1])
    audited.audit_one()
    assert audited.report(1).roots == {"dead_lettered": 1, "undelivered": 1}
    assert broken(audited, 1) == []
    # The last copy goes before it is delivered: the root is lost, and not undelivered for ever.
    audited.client.xdel(audited.stream, again[1])
    audited.audit_one()
    (root,) = [row for row in audited.rows("roots", 2) if row["seq"] == 1]
    assert (root["status"], root["is_open"]) == ("lost", False)


@pytest.mark.full
def test_an_entry_requeued_in_a_later_window_is_followed_from_there(
    audited: Audited,
) -> None:
    audited.create_group()
    (entry,) = audited.add(1)
    audited.deliver(1)
    audited.audit_one()
    requeue(audited, [entry], [entry], 1)
    summary = audited.audit_one()
    assert summary.open == 1
    (root,) = audited.rows("roots", 1)
    assert (root["window"], root["status"]) == (0, "undelivered")
    assert audited.report(1).roots == {}
    audited.acknowledge(*audited.deliver(1))
    assert audited.audit_one().verdict is AuditVerdict.BALANCED
    (root,) = audited.rows("roots", 2)
    assert root["status"] == "acknowledged_inferred"


@pytest.mark.full
def test_copies_that_left_the_retry_stream_before_the_archive_are_followed(
    audited: Audited,
) -> None:
    audited.create_group()
    ids = audited.add(3)
    audited.deliver(3)
    client, retry = audited.client, audited.keys.retry
    client.xgroup_create(retry, GROUP, id="0", mkstream=True)
    pairs = []
    for root in ids:
        # The stream has entries of the same IDs: they are others.
        copy = root
        client.execute_command("XADD", retry, copy, "n", 1, "_original_id", root, "_retry_count", 1)
        pairs += [root, f"{copy} {root} 1 1 40"]
    audited.acknowledge(*ids)
    audited.record("requeued", "consumer", "a", "target", retry, *pairs)
    client.xreadgroup(GROUP, "b", {retry: ">"}, count=2)
    client.xack(retry, GROUP, ids[0])
    client.xdel(retry, ids[0])
    watch(audited)
    summary = audited.audit_one()
    assert audited.counts(summary) == {"requeued": 3}
    expected = {"acknowledged_inferred": 1, "in_flight": 1, "undelivered": 1}
    assert audited.report().roots == expected
    assert Counter(row["status"] for row in audited.rows("retried")) == expected
    assert summary.open == 2
    assert broken(audited) == []
