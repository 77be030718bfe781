"""One entry looked up in the archive: everything that happened to it, over all windows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pelops.cli.main import main
from pelops.domain.entry_id import parse_entry_id
from pelops.errors import PelopsError
from pelops.pipeline.archive.arrow_reader import ArchiveFiles
from pelops.pipeline.lookup import EntryHistory, LookupQuestion, look_up
from pelops.pipeline.settings import ArchivedPayload
from tests.pipeline.audited import FIRST_MS, GROUP, Audited

COPY = f"{FIRST_MS + 500}-0"


def look(audited: Audited, **asked: object) -> list[EntryHistory]:
    for name in ("entry", "root"):
        if name in asked:
            asked[name] = parse_entry_id(str(asked[name]))
    return look_up(ArchiveFiles(str(audited.archive)), LookupQuestion(**asked))  # type: ignore[arg-type]


def said(history: EntryHistory) -> list[tuple[int | None, str, str]]:
    return [(one.window, one.entry, one.what) for one in history.events]


def test_an_entry_is_followed_from_its_arrival_over_its_copy_to_its_end(
    audited: Audited, capsys: pytest.CaptureFixture[str]
) -> None:
    audited.create_group()
    ids = audited.add(30, order="x")
    audited.deliver(20, "web-a")
    audited.acknowledge(*ids[2:])
    audited.let_idle(ids[0], 120_000, "web-a")
    audited.let_idle(ids[1], 130_000, "web-a")
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
