"""Windows that were only archived, several of them, before an audit looks at any."""

from __future__ import annotations

import pytest

from pelops.pipeline.context import open_run
from pelops.pipeline.run import find_targets, run_archive
from tests.pipeline.audited import GROUP, Audited


@pytest.mark.full
def test_an_audit_looks_at_every_window_that_was_only_archived(audited: Audited) -> None:
    audited.create_group()
    for number in (10, 20, 30):
        audited.add(number)
        archive(audited)
    audited.acknowledge(*audited.deliver(15))
    first, second, third, last = audited.audit()
    assert [one.window.number for one in (first, second, third, last)] == [0, 1, 2, 3]
    assert audited.counts(first) == {"acknowledged_inferred": 10}
    assert audited.counts(second) == {"acknowledged_inferred": 5, "undelivered": 15}
    assert audited.counts(third) == {"undelivered": 30}
    assert last.produced == 0
    assert last.open == 45


@pytest.mark.full
def test_what_an_archived_window_left_undelivered_is_not_lost_in_the_next(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(10)
    archive(audited)
    audited.add(10)
    archive(audited)
    summaries = audited.audit()
    assert [one.lost_earlier for one in summaries] == [0, 0, 0]
    assert summaries[-1].open == 20


@pytest.mark.full
def test_a_position_that_was_set_back_makes_nothing_lost(audited: Audited) -> None:
    audited.create_group()
    audited.add(2)
    audited.acknowledge(*audited.deliver(2))
    audited.audit()
    audited.add(5)
    audited.acknowledge(*audited.deliver(5))
    audited.client.xgroup_setid(audited.stream, GROUP, "0")
    archive(audited)
    audited.client.xtrim(audited.stream, maxlen=0, approximate=False)
    # They were acknowledged; that they lie after the position now says nothing.
    assert audited.counts(audited.audit()[0]) == {"indeterminate": 5}


def archive(audited: Audited) -> None:
    run = open_run(audited.spark, audited.settings)
    try:
        run_archive(run, find_targets(run))
    finally:
        run.watch.close()
