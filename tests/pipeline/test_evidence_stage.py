"""The events in append-only files, as rows of the table of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pelops.pipeline.evidence.stage import SOURCE
from tests.pipeline.audited import Audited


def reported(audited: Audited, number: int) -> Iterator[dict[str, Any]]:
    """What the files reported to the audit of a window."""
    yield from (row for row in audited.events(number) if row["source"] == SOURCE)


@pytest.mark.full
def test_the_files_have_events_of_each_entry_and_the_group_start(witnessed: Audited) -> None:
    witnessed.create_group()
    ids = witnessed.add(30)
    read = witnessed.deliver(20)
    witnessed.acknowledge(*read[:10])
    witnessed.audit()
    rows = list(reported(witnessed, 0))
    assert [f"{row['ms']}-{row['seq']}" for row in rows] == ids
    assert [row["proof"] for row in rows] == ["acknowledged"] * 10 + [None] * 20
    assert {row["act"] for row in rows} == {None}
    assert all(row["covered"] for row in rows)
    assert {row["consumer"] for row in rows[:20]} == {"a"}
    assert {row["deliveries"] for row in rows[:20]} == {1}
    state = witnessed.state()
    assert (state.left_out, state.gone_before) == (0, 0)


@pytest.mark.full
def test_a_later_window_has_events_from_the_first_open_entry_on(
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
    rows = list(reported(witnessed, 1))
    assert f"{rows[0]['ms']}-{rows[0]['seq']}" == read[10]
    assert len(rows) == 25
