"""A server that forgets between two audits: a finding, never a crash, and never a guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster.redis_servers import start_standalone
from pelops.domain.records.audit import AuditSummary, AuditVerdict
from pelops.pipeline.session import LazySession
from tests.pipeline.audited import Audited


def audit_broken(audited: Audited, produced: int) -> AuditSummary:
    """An audit whose window does not go on where the last one ended."""
    (summary,) = audited.audit()
    assert summary.verdict is AuditVerdict.FAILING
    assert summary.findings[0].kind == "epoch-break"
    assert summary.produced == sum(summary.counts.values()) == produced
    return summary


@pytest.mark.full
def test_a_server_that_went_back_or_forgot_all_is_an_epoch_break(
    lazy_spark: LazySession, tmp_path: Path
) -> None:
    with (
        start_standalone("8.6") as servers,
        Audited(lazy_spark, servers, "epochs:", tmp_path / "archive") as audited,
    ):
        audited.create_group()
        audited.add(20)
        audited.client.save()
        audited.add(10)
        assert audited.audit_one().produced == 30
        # A crash after a snapshot, as a failover to a replica that lagged: ten entries went back.
        servers.server.kill()
        servers.server.start()
        assert audited.client.xlen(audited.stream) == 20
        audit_broken(audited, 20)

        audited.client.flushall()
        audited.create_group()
        audited.count = 5
        audited.add(4)
        audit_broken(audited, 4)
        # From then on the new stream is audited as any other.
        audited.add(3)
        assert audited.audit_one().produced == 3

        audited.client.flushall()
        summary = audit_broken(audited, 0)
        assert "stream-missing" in {one.kind for one in summary.findings}


def refill(audited: Audited, entries: int, kept: int) -> None:
    """Add entries with IDs of today, of which only the newest stay: as a capped producer does."""
    audited.create_group()
    pipeline = audited.client.pipeline(transaction=False)
    for number in range(entries):
        pipeline.xadd(audited.stream, {"number": number}, maxlen=kept, approximate=False)
    pipeline.execute()
    audited.acknowledge(*audited.deliver(kept))


@pytest.mark.full
def test_a_server_restarted_empty_and_filled_again_is_an_epoch_break(
    lazy_spark: LazySession, tmp_path: Path
) -> None:
    with (
        start_standalone("8.6") as servers,
        Audited(lazy_spark, servers, "refilled:", tmp_path / "archive") as audited,
    ):
        refill(audited, 20, kept=20)
        assert audited.audit_one().verdict is AuditVerdict.BALANCED
        servers.server.kill()
        servers.server.start()
        assert not audited.client.exists(audited.stream)
        # Beyond the counters of before, and fewer than were added since by these: so it could have
        # been trimmed.
        refill(audited, 60, kept=25)
        audit_broken(audited, 25)
