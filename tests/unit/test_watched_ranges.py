"""What checkpoints record as observed without a gap, and how an audit reports it."""

from __future__ import annotations

from pelops.domain.entry_id import EntryId
from pelops.domain.records.audit import AuditEvidence
from pelops.domain.records.ledger import LedgerEvent, LedgerKind
from pelops.pipeline.archive.ledger import WatchedRange, join_watched
from pelops.pipeline.audit.summary import Grounds, list_limits


def checkpoint(after: int | None, upto: int, *, added: int = 100) -> LedgerEvent:
    details = {"entries_added": str(added), "last_delivered": f"{upto}-0"}
    if after is not None:
        details["watched_from"] = f"{after}-0"
    return LedgerEvent(entry_id=EntryId(upto), kind=LedgerKind.CHECKPOINT, details=details)


def ranges(*pairs: tuple[int, int]) -> list[WatchedRange]:
    return [WatchedRange(after=EntryId(a), upto=EntryId(b)) for a, b in pairs]


def test_ranges_that_meet_are_one() -> None:
    looks = [checkpoint(0, 10), checkpoint(0, 20), checkpoint(15, 30), checkpoint(40, 50)]
    assert join_watched(looks) == ranges((0, 30), (40, 50))


def test_an_operator_that_did_not_watch_says_nothing() -> None:
    assert join_watched([checkpoint(None, 10), checkpoint(10, 10), checkpoint(12, 10)]) == []


def test_checkpoints_of_a_stream_before_its_recreation_do_not_count() -> None:
    looks = [checkpoint(0, 90), checkpoint(0, 5, added=7)]
    assert join_watched(looks) == ranges((0, 5))


def test_of_very_many_ranges_the_last_remain() -> None:
    looks = [checkpoint(10 * one, 10 * one + 5) for one in range(1000)]
    assert join_watched(looks) == ranges(*((10 * one, 10 * one + 5) for one in range(900, 1000)))


def limits(evidence: AuditEvidence, *watched: WatchedRange) -> str:
    grounds = Grounds(
        evidence=evidence,
        has_position=True,
        position_doubt=None,
        removed_before=0,
        has_hashes=True,
        lacks_key=False,
        audited_from=0,
        watched=watched,
    )
    return " ".join(list_limits(grounds))


def test_an_audit_says_where_the_operator_observed_without_a_gap() -> None:
    found = ranges((0, 5), (10, 15), (20, 25), (30, 35))
    text = limits(AuditEvidence.LEDGER, *found)
    assert "since the last audit: after 10-0 and up to 15-0; after 20-0 and up to 25-0; " in text
    assert "after 30-0 and up to 35-0; and 1 earlier range." in text
    assert "since the last audit: no entries." in limits(AuditEvidence.LEDGER)
    assert "without a gap" not in limits(AuditEvidence.AOF, *found)
