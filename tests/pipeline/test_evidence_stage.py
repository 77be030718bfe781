"""The evidence of a window as a stage of an audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pelops.pipeline.archive.window_selection import last_plan
from pelops.pipeline.evidence.stage import archive_evidence, read_proofs
from pelops.pipeline.run import open_run
from pelops.pipeline.stages import WindowWork
from tests.pipeline.audited import GROUP, Audited


def test_the_stage_holds_a_row_for_each_entry_and_stays_as_it_was_made(
    witnessed: Audited,
) -> None:
    witnessed.create_group()
    witnessed.add(30)
    read = witnessed.deliver(20)
    witnessed.acknowledge(*read[:10])
    witnessed.audit()
    with _work(witnessed) as work:
        first = archive_evidence(work, str(work.run.settings.aof_path))
        assert first["groups"] == {
            GROUP: {"rows": 30, "covered": 30, "created_at": "0-0", "gone_before": 0}
        }
        found = read_proofs(work, GROUP).orderBy("ms", "seq").collect()
        assert [row["proof"] for row in found] == ["acknowledged"] * 10 + [None] * 20
        assert {row["told_act"] for row in found} == {None}
        witnessed.acknowledge(*read[10:])
        assert archive_evidence(work, str(work.run.settings.aof_path)) == first
        assert read_proofs(work, GROUP).where("proof IS NOT NULL").count() == 10


def test_a_later_window_reports_its_own_entries_and_from_the_first_that_is_still_open(
    witnessed: Audited,
) -> None:
    witnessed.create_group()
    witnessed.add(30)
    read = witnessed.deliver(20)
    witnessed.acknowledge(*read[:10])
    witnessed.audit()
    witnessed.acknowledge(*read[10:])
    witnessed.add(5)
    witnessed.audit()
    settled = [row["status"] for row in witnessed.rows("settled", 1)]
    assert settled == ["acknowledged_proven"] * 10
    with _work(witnessed) as work:
        found = read_proofs(work, GROUP).orderBy("ms", "seq").collect()
        assert f"{found[0]['ms']}-{found[0]['seq']}" == read[10]
        assert len(found) == 25


@contextmanager
def _work(audited: Audited) -> Iterator[WindowWork]:
    """The last window that was audited."""
    run = open_run(audited.spark, audited.settings)
    try:
        plan = last_plan(run, audited.stream)
        assert plan is not None
        yield WindowWork(run=run, plan=plan, place=audited.place(plan.window.number))
    finally:
        run.watch.close()
