"""Lookups in an archive of which files are missing or cut: said, and never "holds no entry"."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pelops.cli.main import main
from pelops.domain.entry_id import parse_entry_id
from pelops.pipeline.archive.arrow_reader import ArchiveFiles
from pelops.pipeline.archive.layout import SPAN, stream_path
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.lookup import EntryHistory, LookupQuestion, look_up, render_histories
from tests.pipeline.audited import GROUP, Audited

pytestmark = pytest.mark.full

Damage = Callable[[Audited], Path]


def look(audited: Audited, entry: str, group: str | None = None) -> list[EntryHistory]:
    asked = LookupQuestion(entry=parse_entry_id(entry), group=group)
    return look_up(ArchiveFiles(str(audited.archive)), asked)


def parts_of(audited: Audited, table: str, number: int) -> list[Path]:
    """The files that a window has in a table."""
    return sorted((audited.archive / table).glob(f"**/*..*/{number}/*.parquet"))


def without_entries(audited: Audited) -> Path:
    (file,) = parts_of(audited, "entries", 1)
    shutil.rmtree(file.parent)
    return file


def with_cut_entries(audited: Audited) -> Path:
    (file,) = parts_of(audited, "entries", 1)
    file.write_bytes(file.read_bytes()[:-1])
    return file


def without_the_marker(audited: Audited) -> Path:
    marker = Path(audited.place(1).record("entries.json"))
    marker.unlink()
    return marker


def without_the_manifest(audited: Audited) -> Path:
    manifest = Path(audited.place(1).record("manifest.json"))
    manifest.unlink()
    return manifest


def without_the_records(audited: Audited) -> Path:
    shutil.rmtree(audited.place(1).path)
    return Path(audited.place(1).record("plan.json"))


def audit_three(audited: Audited) -> list[list[str]]:
    """Three windows of five entries; answers the IDs of each."""
    audited.create_group()
    ids = []
    for _ in range(3):
        ids.append(audited.add(5))
        audited.acknowledge(*audited.deliver(5))
        audited.audit_one()
    return ids


@pytest.mark.parametrize(
    "damage",
    [
        without_entries,
        with_cut_entries,
        without_the_marker,
        without_the_manifest,
        without_the_records,
    ],
)
def test_that_an_entry_is_not_there_is_not_said_of_a_damaged_archive(
    audited: Audited, damage: Damage, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = audit_three(audited)
    assert look(audited, "77-7") == []
    assert look(audited, ids[1][0])[0].damage == ()
    file = damage(audited)
    asked = ["audit", "lookup", "--archive", str(audited.archive), "--id", "77-7"]
    for words in (asked, [*asked, "--json"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 1
        message = capsys.readouterr().err
        assert "whether it was archived is unknown" in message
        assert f"the archive is damaged: {file} " in message
        assert "Restore" in message


def test_a_history_out_of_a_damaged_archive_says_that_it_may_lack_something(
    audited: Audited, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = audit_three(audited)
    file = with_cut_entries(audited)
    # An entry of another window, and one of the file itself, of which statuses still tell.
    for window, entry in ((0, ids[0][0]), (1, ids[1][0])):
        (history,) = look(audited, entry)
        assert history.status == "acknowledged_inferred", window
        (message,) = history.damage
        assert message.startswith(f"{file} (5 rows) has ")
        last = render_histories([history]).splitlines()[-1]
        assert last == f"  the archive is damaged, so that events may be missing here: {message}"
        main(["audit", "lookup", "--archive", str(audited.archive), "--id", entry, "--json"])
        assert json.loads(capsys.readouterr().out)[0]["damage"] == [message]


def test_only_what_a_history_is_made_of_counts(audited: Audited) -> None:
    audited.create_group()
    audited.client.xgroup_create(audited.stream, "mail", "0")
    (entry, *_) = audited.add(5)
    audited.audit(targets=(audited.target(GROUP), audited.target("mail")))
    for file in parts_of(audited, "open", 0):
        file.unlink()
    assert {one.damage for one in look(audited, entry)} == {()}, "no lookup reads this table"
    (file,) = (one for one in parts_of(audited, "statuses", 0) if "/mail/" in str(one))
    file.unlink()
    (ours,) = look(audited, entry, GROUP)
    (theirs,) = look(audited, entry, "mail")
    assert (ours.damage, len(theirs.damage)) == ((), 1)
    assert theirs.status is None


def test_a_stream_without_any_plan_is_damage_and_no_unknown_stream(audited: Audited) -> None:
    (entry, *_), *_ = audit_three(audited)
    for plan in Path(stream_path(str(audited.archive), audited.stream)).glob("window=*/plan.json"):
        plan.unlink()
    with pytest.raises(ArchiveUnusable, match=r"the archive is damaged: .*plan\.json is missing"):
        look(audited, entry)


def test_a_plan_that_is_cut_is_named(audited: Audited) -> None:
    (entry, *_), *_ = audit_three(audited)
    plan = Path(audited.place(2).record("plan.json"))
    for text in ("{", "{}", "[]"):
        plan.write_text(text)
        (history,) = look(audited, entry)
        assert history.damage == (f"{plan} cannot be read",)


def test_merged_files_count_by_their_rows(audited: Audited) -> None:
    audited.create_group()
    (entry, *_) = audited.add(5)
    for _ in range(SPAN + 2):
        audited.acknowledge(*audited.deliver(5))
        audited.audit_one()
        audited.add(5)
    (merged,) = (audited.archive / "entries").glob(f"**/0..{SPAN - 1}/*.parquet")
    assert look(audited, entry)[0].damage == ()
    whole = merged.read_bytes()
    pq.write_table(pq.read_table(merged, partitioning=None).slice(1), merged)
    rows = 5 * SPAN
    assert look(audited, entry)[0].damage == (f"{merged.parent} has {rows - 1} of its {rows} rows",)
    merged.write_bytes(whole[:-1])
    assert look(audited, entry)[0].damage == (f"{merged} cannot be read",)
    shutil.rmtree(merged.parent)
    assert len(look(audited, entry)[0].damage) == SPAN
    with pytest.raises(ArchiveUnusable, match=rf"is missing, and {SPAN - 1} more"):
        look(audited, "77-7")


def test_what_retention_has_removed_is_no_damage(audited: Audited) -> None:
    audited.create_group()
    (first, *_) = audited.add(5)
    for _ in range(3):
        audited.acknowledge(*audited.deliver(5))
        audited.audit_one(retention=timedelta())
        (last, *_) = audited.add(5)
    audited.audit_one()
    assert not Path(audited.place(0).path).exists()
    assert look(audited, first) == []
    (history,) = look(audited, last)
    assert history.damage == ()
    # A run that died while it removed a window: its manifest goes first.
    (number, *_) = ArchiveFiles(str(audited.archive)).streams()[0].windows
    Path(audited.place(number).record("manifest.json")).unlink()
    for file in parts_of(audited, "entries", number):
        file.unlink()
    assert look(audited, last)[0].damage == ()


def test_a_window_that_is_not_finished_is_no_damage(audited: Audited) -> None:
    ids = audit_three(audited)
    audited.remove_stage(f"group={GROUP}", 2)
    Path(audited.place(2).record("manifest.json")).unlink()
    (history,) = look(audited, ids[0][0])
    assert history.damage == ()
