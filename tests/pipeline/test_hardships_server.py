"""What happens to a server, a stream or a group in the middle of an audit."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from local_cluster.redis_servers import ServerOptions, StandaloneServers
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditSummary, AuditVerdict
from pelops.errors import WrongType
from pelops.pipeline import rounds
from pelops.pipeline.archive import snapshot
from pelops.pipeline.session import LazySession
from tests.pipeline.audited import Audited
from tests.pipeline.hardships import amid, half_read
from tests.redis_fixtures import RunRedis

SURE = EntryStatus.ACKNOWLEDGED_PROVEN


def adds_up(summary: AuditSummary) -> bool:
    """Every entry has a status, and none is said to be known that is not."""
    return sum(summary.counts.values()) == summary.produced and not summary.counts[SURE]


@pytest.mark.full
def test_a_flush_during_a_run_is_reported_and_an_epoch_break_follows(
    lazy_spark: LazySession, run_redis: RunRedis, tmp_path: Path
) -> None:
    with Audited(lazy_spark, run_redis(), "flushed:", tmp_path / "archive") as audited:
        half_read(audited)
        with amid(rounds, "take_snapshot", audited.client.flushall):
            summary = audited.audit_one(name="shop/nightly")
        assert summary.verdict is AuditVerdict.FAILING
        assert audited.counts(summary) == {"indeterminate": 30}
        # The stream that comes after it has more entries than the lost one ever had.
        audited.create_group()
        audited.count = 100
        audited.add(70)
        summary = audited.audit_one(name="shop/nightly")
        assert summary.findings[0].kind == "epoch-break"
        assert summary.produced == summary.archived == 70
        audited.add(5)
        assert audited.audit_one(name="shop/nightly").verdict is AuditVerdict.BALANCED


@pytest.mark.full
@pytest.mark.parametrize("kept", ["always", None])
def test_a_server_that_restarts_in_mid_run_is_awaited(
    lazy_spark: LazySession, run_redis: RunRedis, tmp_path: Path, kept: str | None
) -> None:
    servers = run_redis(options=ServerOptions(append_only=kept))
    assert isinstance(servers, StandaloneServers)
    with Audited(lazy_spark, servers, "restarted:", tmp_path / "archive") as audited:
        half_read(audited)

        def restart() -> None:
            servers.server.kill()
            servers.server.start()

        with amid(snapshot, "_find_present", restart):
            summary = audited.audit_one(name="shop/nightly")
        assert adds_up(summary)
        if kept:
            assert audited.counts(summary) == {
                "acknowledged_inferred": 10, "in_flight": 10, "undelivered": 10,
            }  # fmt: skip
            assert audited.client.exists(audited.keys.audit)
        else:
            assert summary.verdict is AuditVerdict.FAILING
            assert summary.counts[EntryStatus.ACKNOWLEDGED_INFERRED] <= 10


@pytest.mark.full
def test_what_could_not_be_recorded_is_recorded_by_the_next_run(audited: Audited) -> None:
    half_read(audited)
    audited.client.set(audited.keys.audit, "in the way")
    trim = lambda: audited.client.xtrim(audited.stream, maxlen=0, approximate=False)  # noqa: E731
    with (
        amid(rounds, "take_snapshot", trim),
        pytest.raises(WrongType, match=re.escape(audited.keys.audit)),
    ):
        audited.audit(name="shop/nightly")
    assert audited.report().summary.lost == 10
    audited.client.delete(audited.keys.audit)
    # Nothing new: a window of an hour is not over yet.
    assert audited.audit(name="shop/nightly", window=timedelta(hours=1)) == []
    recorded = audited.client.hget(audited.keys.audit, "totals:shop/nightly").split()
    assert int(recorded[-1]) == 10
    audited.add(1)
    audited.audit(name="shop/nightly")
    recorded = audited.client.hget(audited.keys.audit, "totals:shop/nightly").split()
    assert int(recorded[-1]) == 10
