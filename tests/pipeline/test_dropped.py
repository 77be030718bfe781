"""What is said of pending entries that go with their consumer, or whose bodies went."""

from __future__ import annotations

import pytest

from pelops.domain.records.audit import AuditVerdict
from tests.pipeline.audited import Audited


def drop(audited: Audited, observed_ms: int, *consumers: str) -> None:
    """Consumers are deleted by hand, and the operator records it."""
    pairs = [word for name in consumers for word in ("consumer", name)]
    at_most = sum(
        audited.client.xgroup_delconsumer(audited.stream, "workers", c) for c in consumers
    )
    audited.client.execute_command(
        "XADD", audited.keys.ledger, "*", "kind", "pending-dropped",
        "at_most", at_most, "observed_ms", observed_ms, *pairs,
    )  # fmt: skip


def look(audited: Audited, position: str, lowest: str = "", at_ms: int = 1) -> None:
    """The operator notes where the group stands."""
    words = ("stream", audited.stream, "last_delivered", position, "lowest_pending", lowest)
    audited.client.execute_command(
        "XADD", audited.keys.ledger, f"{at_ms}-*", "kind", "bookmark", *words
    )


@pytest.mark.full
def test_entries_possibly_dropped_with_their_consumers_are_indeterminate(
    audited: Audited,
) -> None:
    audited.create_group()
    ids = audited.add(12)
    audited.acknowledge(*audited.deliver(2))
    audited.deliver(1, "a")
    audited.deliver(3, "b")
    audited.deliver(1, "c")
    look(audited, ids[6], ids[2])
    assert audited.audit_one().verdict is AuditVerdict.BALANCED
    audited.deliver(2, "b")
    drop(audited, 10, "a", "b")
    look(audited, ids[8], ids[6], at_ms=4_000_000_000_000)
    audited.acknowledge(*audited.deliver(2, "c"))
    summary = audited.audit_one()
    kinds = {one.kind: one.count for one in summary.findings}
    # Four were pending with them when the last window looked, and two were given to them since.
    assert kinds == {"indeterminate-later": 6, "pending-dropped": 6}
    settled = {row["seq"]: (row["status"], row["why"]) for row in audited.rows("settled", 1)}
    unknown = {
        seq
        for seq, reported in settled.items()
        if reported == ("indeterminate", "consumer-deleted")
    }
    # What was delivered after it is not concerned.
    assert (unknown, settled.keys() - unknown) == ({2, 3, 4, 5, 7, 8}, {9, 0})
    # It is reported once.
    assert "pending-dropped" not in {one.kind for one in audited.audit_one().findings}


@pytest.mark.full
def test_what_was_dropped_within_a_window_is_not_known_to_be_acknowledged(
    audited: Audited,
) -> None:
    audited.create_group()
    ids = audited.add(10)
    audited.acknowledge(*audited.deliver(4))
    look(audited, ids[3])
    audited.deliver(6, "b")
    drop(audited, 10, "b")
    summary = audited.audit_one()
    assert summary.verdict is AuditVerdict.FINDINGS
    assert audited.counts(summary) == {"acknowledged_inferred": 4, "indeterminate": 6}
    kinds = {one.kind: one.count for one in summary.findings}
    assert kinds == {"indeterminate": 6, "pending-dropped": 6}


@pytest.mark.full
def test_an_entry_without_body_stays_open_until_it_is_acknowledged(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(3)
    audited.deliver(3)
    audited.client.xdel(audited.stream, ids[0], ids[1])
    first = audited.audit_one()
    assert audited.counts(first) == {"payload_gone": 2, "in_flight": 1}
    assert first.open == 3
    audited.acknowledge(ids[0])
    second = audited.audit_one()
    assert {one.kind: one.count for one in second.findings} == {"payload-gone-earlier": 1}
    (settled,) = audited.rows("settled", 1)
    assert (settled["seq"], settled["status"]) == (0, "acknowledged_inferred")
    audited.acknowledge(*ids[1:])
    third = audited.audit_one()
    assert (third.verdict, third.open) == (AuditVerdict.BALANCED, 0)
