"""What is said of pending entries that go with their consumer, or whose bodies went."""

from __future__ import annotations

from pelops.domain.audit import Verdict
from tests.pipeline.audited import Audited


def drop(audited: Audited, observed_ms: int, *consumers: str) -> None:
    """Consumers are deleted by hand, and the operator sees it."""
    pairs = [word for name in consumers for word in ("consumer", name)]
    at_most = sum(
        audited.client.xgroup_delconsumer(audited.stream, "workers", c) for c in consumers
    )
    audited.client.execute_command(
        "XADD", audited.keys.ledger, "*", "kind", "pending-dropped",
        "at_most", at_most, "observed_ms", observed_ms, *pairs,
    )  # fmt: skip


def test_entries_that_went_with_their_consumers_are_not_said_to_be_acknowledged(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(10)
    audited.acknowledge(*audited.deliver(2))
    audited.deliver(1, "a")
    audited.deliver(3, "b")
    audited.deliver(1, "c")
    audited.record("bookmark", "entries_added", 10)
    assert audited.audit_one().verdict is Verdict.BALANCED
    audited.deliver(2, "b")
    drop(audited, 0, "a", "b")
    summary = audited.audit_one()
    kinds = {one.kind: one.count for one in summary.findings}
    # Four were pending with them when the last window looked, and two were given to them since.
    assert kinds == {"indeterminate-later": 4, "pending-dropped": 2}
    settled = {row["seq"]: (row["status"], row["why"]) for row in audited.rows("settled", 1)}
    assert {settled[n] for n in (2, 3, 4, 5)} == {("indeterminate", "consumer-deleted")}
    # It is told once.
    assert "pending-dropped" not in {one.kind for one in audited.audit_one().findings}


def test_what_was_dropped_within_a_window_bounds_what_was_acknowledged(audited: Audited) -> None:
    audited.create_group()
    audited.add(10)
    audited.acknowledge(*audited.deliver(4))
    audited.deliver(6, "b")
    drop(audited, 0, "b")
    audited.record("bookmark", "entries_added", 10)
    summary = audited.audit_one()
    assert summary.verdict is Verdict.FINDINGS
    assert {one.kind: one.count for one in summary.findings} == {"pending-dropped": 6}
    assert "up to 6 of them perhaps dropped" in summary.sentence


def test_an_entry_whose_body_went_is_looked_at_until_its_worker_is_done(audited: Audited) -> None:
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
    assert (third.verdict, third.open) == (Verdict.BALANCED, 0)
