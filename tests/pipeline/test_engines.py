"""Both engines, Spark and the driver by itself, make the same tables of the same histories.

The driver's part of an archive is copied, but for what was made of the looks at Redis; Spark makes
the rest of the copy anew. What each engine reads from Redis is compared where it does not change.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pelops.pipeline.archive.footers import SCHEMA
from pelops.pipeline.archive.window_selection import plan_windows
from pelops.pipeline.engine.sql import on_driver
from pelops.pipeline.run import open_run
from pelops.pipeline.settings import ArchivedPayload
from pelops.pipeline.stages import WindowWork
from pelops.pipeline.window import audit_window
from tests.pipeline.audited import FIRST_MS, GROUP, Audited

pytestmark = pytest.mark.full

SEEDS: Final = range(int(os.environ.get("PELOPS_ENGINES_SEEDS", "1")))
OTHER: Final = "other"
_NULLABLE: Final = ("nullable", "containsNull", "valueContainsNull")
# What reports the time at which a window was worked on, and is the same file in both archives.
_OF_LOOKS: Final = ("snapshot.json", "plan.json")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("windows", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize("seed", SEEDS)
def test_both_engines_make_the_same_tables_of_the_same_history(
    audited: Audited, tmp_path: Path, seed: int, windows: int
) -> None:
    life = Life(audited, random.Random(seed))
    by_driver, by_spark = audited.archive, tmp_path / "by-spark"
    for number in range(windows):
        life.live()
        audit(audited, by_driver, is_driver=True)
        copy_looks(audited, by_spark, number)
        audit(audited, by_spark, is_driver=False)
        records = {str(one.relative_to(by_driver)): one for one in find(by_driver, "*.json")}
        for name, one in records.items():
            other = json.loads((by_spark / name).read_text())
            assert content(json.loads(one.read_text())) == content(other), name
        ours, theirs = tables(by_driver), tables(by_spark)
        assert ours.keys() == theirs.keys()
        for name, table in ours.items():
            assert columns(table) == columns(theirs[name]), name
            assert rows(table) == rows(theirs[name]), name
    statuses = {row["status"] for row in rows_of(ours, "exceptions/") if row["status"]}
    assert statuses >= {"in_flight", "stuck", "undelivered", "dead_lettered", "requeued"}
    assert statuses >= {"redriven", "discarded"}


def audit(audited: Audited, archive: Path, *, is_driver: bool) -> None:
    """Audit the window that was begun, or a new one, with one of the engines."""
    targets = (*audited.settings.targets, audited.target(OTHER))
    run = open_run(
        audited.spark,
        replace(
            audited.settings,
            archive=str(archive),
            payload=ArchivedPayload.FULL,
            business_key="order",
        ),
    )
    try:
        plan, _ = next(plan_windows(run, audited.stream, targets))
        place = replace(audited.place(plan.window.number), root=str(archive))
        with on_driver(is_driver):
            audit_window(WindowWork(run=run, plan=plan, place=place))
    finally:
        run.watch.close()


def copy_looks(audited: Audited, archive: Path, number: int) -> None:
    """What was seen of Redis in one window, and what marks the archive."""
    for one in find(audited.archive, "*"):
        name = str(one.relative_to(audited.archive))
        is_of_window = f"window={number}/" in name or f"/{number}/" in name
        is_look = name.startswith("snapshot_") or one.name in _OF_LOOKS
        if (is_of_window and is_look) or one.name == "layout.json":
            (archive / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(one, archive / name)


def find(archive: Path, pattern: str) -> Iterator[Path]:
    return (
        one
        for one in archive.rglob(pattern)
        if one.is_file() and not one.name.startswith(".") and "report" not in one.parts
    )


def tables(archive: Path) -> dict[str, pa.Table]:
    """Every directory with files of Parquet, as one table."""
    found: dict[str, list[Path]] = {}
    for one in sorted(find(archive, "*.parquet")):
        found.setdefault(str(one.parent.relative_to(archive)), []).append(one)
    return {
        name: pa.concat_tables(pq.ParquetFile(one).read() for one in files)
        for name, files in found.items()
    }


def columns(table: pa.Table) -> list[tuple[str, str, Any]]:
    """Names and types, as Parquet has them and as Spark notes them.

    Spark notes what can never be null, which says nothing to a reader: of files all can.
    """
    noted = json.loads((table.schema.metadata or {})[SCHEMA.encode()])
    return [
        (field.name, str(field.type), _type(note["type"]))
        for field, note in zip(table.schema, noted["fields"], strict=True)
    ]


def _type(noted: Any) -> Any:
    if isinstance(noted, dict):
        return {name: _type(one) for name, one in noted.items() if name not in _NULLABLE}
    return [_type(one) for one in noted] if isinstance(noted, list) else noted


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def rows_of(found: dict[str, pa.Table], name: str) -> list[dict[str, Any]]:
    return [row for path, one in found.items() if path.startswith(name) for row in one.to_pylist()]


def content(record: Any) -> Any:
    """A record without names of files, which Spark gives by itself."""
    if isinstance(record, dict):
        return {key: content(one) for key, one in record.items() if key != "files"}
    return record


class Life:
    """A stream with two groups, to which anything happens."""

    def __init__(self, audited: Audited, chance: random.Random) -> None:
        self.audited = audited
        self.chance = chance
        self.held: list[str] = []
        self.events = 0
        self.letters: list[tuple[str, str]] = []  # each with its root
        self.discarded: list[tuple[str, str]] = []
        audited.create_group()
        audited.client.xgroup_create(audited.stream, OTHER, id="0")
        audited.client.xgroup_create(audited.keys.retry, GROUP, id="0", mkstream=True)

    def live(self) -> None:
        for _ in range(6):
            self.add()
            self.held += self.audited.deliver(self.chance.randrange(10, 30))
            self.chance.shuffle(self.held)
            self.acknowledge(self.chance.randrange(0, 12))
            for act in (self.requeue, self.bury, self.release, self.retry, self.leave_stuck):
                if self.held:
                    act(self.held.pop())
            for move in (self.discard, self.restore, self.redrive):
                move()
            self.report()
        self.cut()

    def add(self) -> None:
        number = self.chance.randrange(20, 40)
        self.audited.add(number)
        for _ in range(3):
            self.audited.add(1, order=self.chance.randrange(5), body=b"\xff\x00")

    def acknowledge(self, number: int) -> None:
        done, self.held = self.held[:number], self.held[number:]
        if done:
            self.audited.acknowledge(*done)
        other = self.audited.client.xreadgroup(OTHER, "o", {self.audited.stream: ">"}, count=9)
        for _, entries in other:
            self.audited.client.xack(
                self.audited.stream, OTHER, *[entry for entry, _ in entries[::2]]
            )

    def requeue(self, entry: str) -> None:
        """A copy at the end of the stream, in place of the entry."""
        (copy,) = self.audited.add(1, order=1, _original_id=entry, _retry_count=2)
        self.record("requeued", entry, copy)
        self.audited.acknowledge(entry)

    def retry(self, entry: str) -> None:
        """A copy in the group's own retry stream."""
        keys, client = self.audited.keys, self.audited.client
        fields = {"number": 1, "_original_id": entry, "_retry_count": 1}
        copy = client.xadd(keys.retry, fields).decode()
        self.record("requeued", entry, copy)
        self.audited.acknowledge(entry)
        if self.chance.random() < 0.5:
            client.xreadgroup(GROUP, "r", {keys.retry: ">"}, count=1)

    def bury(self, entry: str) -> None:
        letter = {"number": 1, "_original_id": entry}
        copy = self.audited.client.xadd(self.audited.keys.dead_letter, letter).decode()
        self.record("dead-lettered", entry, copy)
        self.audited.acknowledge(entry)
        self.letters += [(copy, entry)] * (self.chance.random() < 0.7)

    def redrive(self) -> None:
        """A dead letter back to the stream or to the retry stream, as a StreamRedrive does."""
        keys = self.audited.keys
        if self.letters:
            target = self.chance.choice((keys.stream, keys.retry))
            letter, root = self.letters.pop(self.chance.randrange(len(self.letters)))
            marks = {"_redrive": "a/b", "_returned": 1, "_original_id": root, "_retry_count": 0}
            if target == keys.stream:
                (copy,) = self.audited.add(1, order=1, **marks)
            else:
                copy = self.audited.client.xadd(target, {"number": 1, **marks}).decode()
            self.audited.client.xdel(keys.dead_letter, letter)
            self.move("redriven", keys.dead_letter, target, letter, copy, root)

    def discard(self) -> None:
        keys = self.audited.keys
        if self.letters and self.chance.random() < 0.5:
            letter, root = self.letters.pop(0)
            copy = self.audited.client.xadd(keys.discarded, {"_original_id": root}).decode()
            self.move("discarded", keys.dead_letter, keys.discarded, letter, copy, root)
            self.discarded.append((copy, root))

    def restore(self) -> None:
        keys = self.audited.keys
        if self.discarded and self.chance.random() < 0.7:
            letter, root = self.discarded.pop()
            copy = self.audited.client.xadd(keys.dead_letter, {"_original_id": root}).decode()
            self.move("restored", keys.discarded, keys.dead_letter, letter, copy, root)
            self.letters.append((copy, root))

    def move(self, kind: str, source: str, target: str, letter: str, copy: str, root: str) -> None:
        self.events += 1
        self.audited.client.execute_command(
            "XADD", self.audited.keys.ledger, f"{FIRST_MS + 100_000 + self.events}-0",
            "kind", kind, "stream", source, "target", target, "redrive", "a/b",
            letter, f"{copy} {root} 0 0 0",
        )  # fmt: skip

    def release(self, entry: str) -> None:
        self.record("released", entry, "")
        self.held.insert(0, entry)

    def leave_stuck(self, entry: str) -> None:
        self.audited.let_idle(entry, 90_000)

    def record(self, kind: str, entry: str, copy: str) -> None:
        self.events += 1
        message = f"{copy or entry} {entry} 1 3 70"
        self.audited.record(
            kind, "reason", "slow", "consumer", "a", entry, message,
            entry_id=f"{FIRST_MS + 100_000 + self.events}-0",
        )  # fmt: skip

    def report(self) -> None:
        """What the operator records of the group as a whole."""
        self.events += 1
        last = f"{FIRST_MS + self.audited.count // 10}-0"
        kind = self.chance.choice(["bookmark", "data-loss", "trimmed"])
        details = {
            "bookmark": ("entries_added", self.audited.count, "last_generated", last),
            "data-loss": ("after", f"{FIRST_MS}-0", "before", last, "at_least", 2, "at_most", 2),
            "trimmed": ("count", 3, "first_id_after", last),
        }[kind]
        self.audited.record(kind, *details, entry_id=f"{FIRST_MS + 100_000 + self.events}-0")

    def cut(self) -> None:
        """Deleted in the middle, and trimmed at the beginning."""
        for entry in self.chance.sample(self.held, min(3, len(self.held))):
            self.audited.client.xdel(self.audited.stream, entry)
        least = f"{FIRST_MS + self.chance.randrange(1, 4)}-0"
        self.audited.client.xtrim(self.audited.stream, minid=least, approximate=False)
