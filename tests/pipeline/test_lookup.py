"""One entry looked up in the archive: everything that happened to it, over all windows."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pelops.cli.main import main
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.errors import PelopsError
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import (
    ENTRIES,
    EVENTS,
    STATUSES,
    WINDOWS,
    Archive,
    find_archive,
    make_rows,
    open_archive,
)
from pelops.pipeline.entry_history import EntryHistory
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.lookup import LookupQuestion, look_up
from pelops.pipeline.settings import ArchivedPayload
from tests.pipeline.audited import FIRST_MS, GROUP, Audited

COPY = f"{FIRST_MS + 500}-0"


class Written:
    """An archive whose rows a test writes itself, each window by a run of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stream = "orders"
        self.retry = derive_keys(self.stream, GROUP).retry

    def window(
        self,
        number: int,
        *,
        entries: list[str],
        acts: list[tuple[str, str, str]],
        statuses: list[str],
        copies: dict[str, str] | None = None,
        upto: WindowPhase = WindowPhase.AUDITED,
    ) -> None:
        """Write a window; `copies` are held by the retry stream, each with its root."""
        archive = Archive(find_archive(str(self.root), s3_endpoint=None, s3_region=None))
        at = datetime(2026, 1, 2, tzinfo=UTC)
        shared = {"date": at.date(), "stream": self.stream, "window": number, "group": GROUP}

        def phase(name: WindowPhase) -> Any:
            return make_rows(WINDOWS, [shared | {"phase": name.value}])

        archive.claim(phase(WindowPhase.PLANNED), since=archive.newest_run())
        rows = [shared | ids(one) | {"bytes": 10} for one in entries]
        for copy, root in (copies or {}).items():
            rows.append(shared | {"stream": self.retry} | ids(copy) | ids(root, "root_"))
        archive.append(ENTRIES, make_rows(ENTRIES, rows))
        if upto is not WindowPhase.PLANNED:
            archive.append(WINDOWS, phase(WindowPhase.ARCHIVED))
        done = []
        for kind, entry, new in acts:
            target = self.retry if new in (copies or {}) else None
            done.append(
                shared
                | {"kind": kind, "source": "ledger", "in_stream": self.stream, "target": target}
                | ids(entry) | ids(new, "new_") | ids(entry, "root_") | {"event_ms": 10}
            )  # fmt: skip
        archive.append(EVENTS, make_rows(EVENTS, done))
        found = {"status": "in_flight", "evidence": "snapshot", "why": "pending", "as_of": number}
        archive.append(
            STATUSES,
            make_rows(
                STATUSES, [shared | ids(one) | found | {"audited_at": at} for one in statuses]
            ),
        )
        if upto is WindowPhase.AUDITED:
            archive.end(phase(WindowPhase.AUDITED))

    def find(self, entry: str) -> list[EntryHistory]:
        return look_up(open_archive(str(self.root)), LookupQuestion(entry=parse_entry_id(entry)))

    def look(self, entry: str) -> EntryHistory:
        (found,) = self.find(entry)
        return found


def ids(entry: str, prefix: str = "") -> dict[str, int]:
    one: EntryId = parse_entry_id(entry)
    return {f"{prefix}ms": one.ms, f"{prefix}seq": one.seq}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "archive")


def look(audited: Audited, **asked: object) -> list[EntryHistory]:
    for name in ("entry", "root"):
        if name in asked:
            asked[name] = parse_entry_id(str(asked[name]))
    return look_up(open_archive(str(audited.archive)), LookupQuestion(**asked))  # type: ignore[arg-type]


def said(history: EntryHistory) -> list[tuple[int | None, str, str]]:
    return [(one.window, one.entry, one.what) for one in history.events]


def test_a_lookup_follows_an_entry_over_its_copy_to_its_end(
    audited: Audited, capsys: pytest.CaptureFixture[str]
) -> None:
    audited.create_group()
    ids = audited.add(30, order="x")
    audited.deliver(20, "web-a")
    audited.acknowledge(*ids[2:])
    audited.let_idle(ids[0], consumer="web-a")
    audited.let_idle(ids[1], consumer="web-a")
    audited.audit()
    # Both are recovered: one is requeued and its copy acknowledged, the other dead-lettered.
    pairs = ("order", "x", "_original_id", ids[0], "_retry_count", 1)
    audited.client.execute_command("XADD", audited.stream, COPY, *pairs)
    event = ("reason", "worker died", "consumer", "web-a")
    audited.record("requeued", *event, ids[0], f"{COPY} {ids[0]} 1 1 120000")
    audited.record("dead-lettered", "reason", "Poison", ids[1], f"9-0 {ids[1]} 3 3 130000")
    audited.acknowledge(*ids[:2])
    audited.deliver(11, "web-b")
    audited.audit()
    audited.acknowledge(COPY)
    audited.audit()

    (found,) = look(audited, entry=COPY)
    assert (found.stream, found.group, found.root) == (audited.stream, GROUP, ids[0])
    assert (found.status, found.evidence, found.window) == ("acknowledged_inferred", "inferred", 2)
    reported = said(found)
    for one in (
        (0, ids[0], "added"),
        (0, ids[0], "delivered to web-a"),
        (0, ids[0], "found stuck"),
        (1, ids[0], f"requeued as {COPY}"),
        (1, ids[0], "found requeued"),
        (1, COPY, f"added as a copy of {ids[0]}"),
        (1, COPY, "delivered to web-b"),
        (1, COPY, "found in flight"),
        (2, COPY, "found acknowledged, inferred"),
    ):
        assert reported.count(one) == 1, one
    (act,) = (one for one in found.events if one.what.startswith("requeued"))
    assert "worker died" in act.details
    assert "was pending at web-a" in act.details
    assert look(audited, root=ids[0]) == look(audited, entry=ids[0]) == [found]

    (dead,) = look(audited, entry=ids[1])
    assert (dead.status, dead.evidence, dead.window) == ("dead_lettered", "ledger", 1)
    assert look(audited, entry="9-0") == [dead]  # by its dead letter
    assert look(audited, entry="77-7") == []

    asked = ["audit", "lookup", "--archive", str(audited.archive), "--id"]
    main([*asked, ids[1], "--stream", audited.stream, "--group", GROUP])
    screen = capsys.readouterr().out
    first = f"{audited.stream} / {GROUP}: entry {ids[1]} is dead-lettered (window 1, ledger)"
    assert screen.splitlines()[0] == first
    assert "dead-lettered as 9-0; Poison" in screen
    main([*asked, COPY, "--json"])
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["status"] == "acknowledged_inferred"
    assert [one["what"] for one in answer["events"]] == [one.what for one in found.events]
    with pytest.raises(SystemExit):
        main([*asked, "77-7"])
    assert "entry 77-7 is not in" in capsys.readouterr().err


@pytest.mark.full
def test_entries_are_found_by_a_field_where_the_archive_holds_it(audited: Audited) -> None:
    audited.create_group()
    ids = audited.add(10, order="first", note=b"\xff")
    with pytest.raises(PelopsError, match="does not hold an archive of this release"):
        look(audited, field=("order", "first"))
    audited.audit(payload=ArchivedPayload.HASH)
    with pytest.raises(PelopsError, match="--payload full, or with --business-key order"):
        look(audited, field=("order", "first"))
    more = audited.add(2, order="second")
    audited.audit(business_key="order")
    found = look(audited, field=("order", "second"))
    assert [one.root for one in found] == more
    assert {one.status for one in found} == {"undelivered"}
    last = audited.add(1, order="third")
    audited.audit(payload=ArchivedPayload.FULL)
    assert [one.root for one in look(audited, field=("order", "third"))] == last
    assert look(audited, field=("order", "fourth")) == []
    assert [one.root for one in look(audited, entry=ids[3])] == [ids[3]]
    for asked in ({"stream": "other"}, {"group": "other"}):
        with pytest.raises(PelopsError, match="'other'"):
            look(audited, entry=ids[3], **asked)


def test_a_lookup_starts_no_spark(audited: Audited, tmp_path: Path) -> None:
    audited.create_group()
    ids = audited.add(3)
    audited.audit()
    words = ["audit", "lookup", "--archive", str(audited.archive), "--id", ids[0]]
    program = (
        "import sys; from pelops.cli.main import main; "
        f"main({words!r}); assert 'pyspark' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "is undelivered (window 0, snapshot)" in done.stdout


@pytest.mark.parametrize("table", [ENTRIES, EVENTS, STATUSES])
def test_a_missing_file_is_named_with_what_to_do(
    written: Written, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written.window(0, entries=["5-0"], acts=[], statuses=["5-0"])
    written.window(1, entries=["8-0"], acts=[("dead-lettered", "8-0", "9-0")], statuses=["8-0"])
    files = list((written.root / table).glob("date=*/*.parquet"))
    for file in files:
        file.unlink()
    with pytest.raises(ArchiveUnusable, match=rf"a file of the table .*/{table} is missing") as one:
        written.look("8-0")
    assert any(file.name in str(one.value) for file in files)
    assert "Restore it from a backup" in str(one.value)
    with pytest.raises(SystemExit) as ended:
        main(["audit", "lookup", "--archive", str(written.root), "--id", "8-0"])
    assert ended.value.code == 1
    assert "the archive is damaged" in capsys.readouterr().err


def test_only_rows_of_runs_that_ended_count(written: Written) -> None:
    written.window(0, entries=["5-0"], acts=[], statuses=["5-0"])
    # Entries that were archived stay; the run's events about them are read again by the next.
    act = ("dead-lettered", "5-0", "9-0")
    written.window(1, entries=["6-0"], acts=[act], statuses=["6-0"], upto=WindowPhase.ARCHIVED)
    written.window(2, entries=["7-0"], acts=[act], statuses=["7-0"], upto=WindowPhase.PLANNED)
    assert [one.what for one in written.look("5-0").events] == ["added", "found in flight"]
    assert [(one.window, one.what) for one in written.look("6-0").events] == [(1, "added")]
    assert written.find("7-0") == []
    assert written.find("9-0") == []
    written.window(1, entries=[], acts=[act], statuses=["6-0"])
    assert [one.what for one in written.look("6-0").events] == ["added", "found in flight"]
    assert written.look("9-0").root == "5-0"


def test_an_id_that_two_streams_hold_names_two_entries(written: Written) -> None:
    written.window(
        0,
        entries=["5-0", "8-0"],
        acts=[("requeued", "5-0", "8-0")],
        statuses=["5-0", "8-0"],
        copies={"8-0": "5-0"},
    )
    first, second = written.find("8-0")
    assert [one.what for one in second.events] == ["added", "found in flight"]
    assert (first.root, second.root) == ("5-0", "8-0")
    assert said(first) == [
        (0, "5-0", "added"),
        (0, "8-0", "added as a copy of 5-0"),
        (0, "5-0", "requeued as 8-0"),
        (0, "5-0", "found in flight"),
    ]
    assert written.look("5-0") == first
