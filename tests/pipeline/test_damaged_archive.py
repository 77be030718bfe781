"""Files of the archive that are missing or cut: said, and never passed over."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pelops.domain.audit import AuditVerdict
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.run import open_run, run_archive
from tests.pipeline.audited import GROUP, Audited


def test_markers_name_the_rows_of_each_file(audited: Audited) -> None:
    audited.create_group()
    audited.add(30)
    audited.acknowledge(*audited.deliver(10))
    audited.audit_one()
    parts = {"entries": 1, "snapshot": 2, "acts": 1, "copies": 1, f"group={GROUP}": 4}
    for stage, least in parts.items():
        files = audited.marker(stage)["files"]
        assert len(files) >= least, stage
        for name, reported in files.items():
            part, _, file = f"{stage}/{name}".rpartition("/")
            if not part.endswith("statuses"):  # it lies by its date
                path = Path(audited.place().part(part), file)
                rows = pq.read_metadata(path).num_rows
                assert reported == {"rows": rows, "bytes": path.stat().st_size}


@pytest.mark.parametrize("how", ["removed", "cut", "without its marker"])
def test_a_window_that_rests_on_a_damaged_one_is_never_balanced(audited: Audited, how: str) -> None:
    audited.create_group()
    audited.add(30)
    audited.acknowledge(*audited.deliver(10))
    assert audited.audit_one().open == 20
    opened = Path(audited.place().of_group(GROUP, "open"))
    (file,) = opened.glob("*.parquet")
    if how == "removed":
        shutil.rmtree(opened)
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        Path(audited.place().part(f"group={GROUP}.json")).unlink()
    audited.add(5)
    audited.acknowledge(*audited.deliver(25))
    summary = audited.audit_one()
    assert summary.verdict is AuditVerdict.FAILING
    (damage,) = [one for one in summary.findings if one.kind == "archive-damaged"]
    assert "audit again" in damage.sentence
    expected = f"group={GROUP}.json" if how == "without its marker" else file.name
    assert expected in damage.sentence


def test_what_is_pending_though_no_window_left_it_open_is_found_and_looked_at(
    audited: Audited,
) -> None:
    audited.create_group()
    ids = audited.add(10)
    audited.acknowledge(*audited.deliver(10))
    audited.audit_one()
    # Somebody sets the position back: what was acknowledged is delivered again.
    audited.client.xgroup_setid(audited.stream, GROUP, ids[5])
    audited.add(1)
    again = audited.deliver(4)
    summary = audited.audit_one()
    assert summary.verdict is AuditVerdict.FINDINGS
    assert {one.kind: one.count for one in summary.findings} == {"unbalanced-pending": 4}
    (reported,) = [
        one for one in audited.json("audit.json", 1)["identities"] if one["name"] == "pending"
    ]
    assert reported == {"name": "pending", "expected": 4, "found": 0}
    assert summary.open == 5
    audited.acknowledge(*again, *audited.deliver(1))
    assert audited.audit_one().verdict is AuditVerdict.BALANCED


def test_a_window_that_is_finished_later_is_not_finished_without_its_files(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(30)
    run = open_run(audited.session, audited.settings)
    try:
        run_archive(run)
    finally:
        run.watch.close()
    (file,) = Path(audited.place().part("entries")).glob("*.parquet")
    file.unlink()
    with pytest.raises(ArchiveUnusable, match=r"entries.*is missing: put it back"):
        audited.audit()
