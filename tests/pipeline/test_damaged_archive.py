"""Files of the archive that are missing: said, and never passed over."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from pelops.domain.records.audit import AuditVerdict
from pelops.pipeline.archive.tables import ENTRIES, STATUSES
from pelops.pipeline.errors import ArchiveUnusable
from tests.pipeline.audited import Audited


def lose_a_file(audited: Audited, table: str) -> str:
    """Remove the only data file of a table; its name."""
    (path,) = DeltaTable(audited.archive_tables.place.path(table)).file_uris()
    Path(path).unlink()
    return Path(path).name


def test_an_audit_that_needs_a_lost_file_names_it(audited: Audited) -> None:
    audited.create_group()
    audited.add(30)
    audited.acknowledge(*audited.deliver(10))
    assert audited.audit_one().open == 20
    name = lose_a_file(audited, STATUSES)
    audited.add(5)
    audited.acknowledge(*audited.deliver(25))
    with pytest.raises(ArchiveUnusable, match="Restore it from a backup") as raised:
        audited.audit()
    assert name in str(raised.value)


@pytest.mark.full
def test_entries_left_open_whose_rows_were_given_up_are_a_finding(audited: Audited) -> None:
    audited.create_group()
    audited.add(30)
    audited.acknowledge(*audited.deliver(10))
    assert audited.audit_one().open == 20
    lose_a_file(audited, STATUSES)
    # What a user without a backup does: continue the table without the file.
    DeltaTable(audited.archive_tables.place.path(STATUSES)).repair()
    audited.add(5)
    audited.acknowledge(*audited.deliver(25))
    summary = audited.audit_one()
    assert summary.verdict is AuditVerdict.FINDINGS
    assert {one.kind: one.count for one in summary.findings} == {"unbalanced-open": 20}


def test_a_window_that_is_finished_later_is_not_finished_without_its_files(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(30)
    audited.archive_only()
    name = lose_a_file(audited, ENTRIES)
    with pytest.raises(ArchiveUnusable, match="Restore it from a backup") as raised:
        audited.audit()
    assert name in str(raised.value)
