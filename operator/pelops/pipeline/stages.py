"""What the stages of one window work with, and how each of them happens once.

A stage fills a directory and ends with a marker. Two runs may be at it at once, and either may die
at any line: what counts is the directory of the one who made the claim first, and whoever comes
after a claim finishes it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from pelops.errors import PelopsError
from pelops.pipeline.archive.damage import FILES, find_damage
from pelops.pipeline.archive.footers import TableFile, count_rows, describe_files, read_parquet
from pelops.pipeline.archive.layout import WindowPlace
from pelops.pipeline.archive.storage import Storage, plain_name
from pelops.pipeline.archive.windows import Plan
from pelops.pipeline.engine.spark_errors import engine_errors, explain_failure
from pelops.pipeline.engine.spark_session import LONG_RUN, LazySession
from pelops.pipeline.engine.sql import DataFrame, SparkSession, is_on_driver
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.errors import ArchiveUnusable, DeadlineNear
from pelops.pipeline.redis_reader import RedisReader
from pelops.pipeline.settings import PipelineSettings
from pyspark_redis_streams.errors import NotPermitted

log: Final = logging.getLogger(__name__)
UNFINISHED: Final = ".unfinished"
AS_OF: Final = "as_of"  # column of every table: the window whose archive or audit made the row
HEAVY: Final = LONG_RUN  # entries; looking at more of them is compiled, and shared by tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """One run of the pipeline."""

    spark: LazySession
    storage: Storage
    watch: RedisReader
    settings: PipelineSettings
    ends_at: float | None = None  # of `time.monotonic`
    # Files that were written for a stage whose marker is still to come, by their paths.
    written: dict[str, TableFile] = field(default_factory=dict)

    @property
    def session(self) -> SparkSession:
        """The session of the engine that works now."""
        if is_on_driver():
            from pelops.pipeline.engine.arrow.session import ArrowSession

            return ArrowSession(self.storage)  # type: ignore[return-value]
        return self.spark.get()

    def check_time(self) -> None:
        """Raises DeadlineNear when nothing more should be begun, and KeyboardInterrupt."""
        self.storage.check_interrupt()
        if self.ends_at is not None and time.monotonic() > self.ends_at:
            raise DeadlineNear(
                "the deadline is near: finished steps are kept, and the next run continues"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowWork:
    """One window in one run."""

    run: PipelineRun
    plan: Plan
    place: WindowPlace

    @property
    def session(self) -> SparkSession:
        return self.run.session

    def read(self, part: str) -> DataFrame:
        """The Parquet of a part of this window."""
        return self.load(self.place.part(part))

    def load(self, path: str) -> DataFrame:
        """The Parquet of any path of the archive."""
        return read_parquet(self.run.storage, self.session, path).drop(AS_OF)

    def count(self, path: str) -> int:
        """The rows of the Parquet of any path of the archive, by its footers."""
        return count_rows(self.run.storage, path)

    def target(self, name: str) -> str:
        """Where a part of a stage, or a file of it, is put in place."""
        return self.place.target(name, self.plan.day)


Content = dict[str, Any]


def run_stage(work: WindowWork, name: str, make: Callable[[str], Content]) -> Content:
    """What the stage's marker says; `make` fills a directory unless that is done already.

    Each directory of Parquet in it becomes a part of a table; a file of JSON, a record.
    """
    storage = work.run.storage
    done = storage.read_json(work.place.record(f"{name}.json"))
    if done is not None:
        for one in find_damage(storage, work.target, name, done):
            raise ArchiveUnusable(
                f"{one}: put it back; or remove the stage's marker {work.place.record(name)}.json "
                "and what is left of its parts, and the next run makes them again from what Redis "
                "still holds"
            )
        return done
    claim: Mapping[str, Any] | None = storage.read_json(work.place.record(f"{name}.claim"))
    if claim is None:
        work.run.check_time()
        claim = _make_and_claim(work, name, make)
    return _finish(work, name, claim)


def write_part(work: WindowWork, frame: DataFrame, path: str, *, is_heavy: bool = False) -> int:
    """Write a part of a stage; answers its rows."""
    work.run.storage.check_interrupt()
    if not is_on_driver():
        # To compile a query takes a second of CPU, which only much work wins back.
        work.session.conf.set("spark.sql.codegen.wholeStage", str(is_heavy).lower())
        # Other programs read the tables, and not all of them know INT96.
        work.session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    work.run.storage.write_parquet(with_as_of(work, frame), path)
    return note_part(work, path)


def with_as_of(work: WindowWork, frame: DataFrame) -> DataFrame:
    """The rows with the last column of every table."""
    return frame.withColumn(AS_OF, F.lit(work.plan.window.number))


def note_part(work: WindowWork, path: str) -> int:
    """Note the files of a part of a stage, for the stage's marker; answers their rows."""
    files = describe_files(work.run.storage, path)
    work.run.written.update({f"{path}/{name}": file for name, file in files.items()})
    return sum(file.rows for file in files.values())


def remove_part(work: WindowWork, path: str) -> None:
    """Remove a part that a stage needs no longer, before its marker."""
    work.run.storage.remove(path)
    _take_written(work.run, path)


def write_sorted(
    work: WindowWork, frame: DataFrame, path: str, *columns: str, is_heavy: bool = False
) -> int:
    """Write a small part as one file, in an order that does not depend on the run.

    One task makes it all, unless that is heavy work: then tasks share it, and one writes.
    """
    together = frame.repartition(1) if is_heavy else frame.coalesce(1)
    return write_part(work, together.sortWithinPartitions(*columns), path, is_heavy=is_heavy)


def clean(work: WindowWork) -> None:
    """Remove what runs that died have left in the window."""
    storage = work.run.storage
    for name in storage.list_names(work.place.path):
        if name.endswith((UNFINISHED, ".claim")):
            storage.discard(work.place.record(name))


def _make_and_claim(
    work: WindowWork, name: str, make: Callable[[str], Content]
) -> Mapping[str, Any]:
    storage, began = work.run.storage, time.monotonic()
    directory = work.place.record(f"{name}.{uuid4().hex}{UNFINISHED}")
    try:
        storage.make_directory(directory)
        content = make(directory)
        files = storage.list_files(directory)
        written = _take_written(work.run, directory)
        content[FILES] = {
            plain_name(path): reported._asdict() for path, reported in written.items()
        }
    except engine_errors() as error:
        storage.discard(directory)
        return _adopt(work, name, error)
    except BaseException:
        storage.discard(directory)
        raise
    log.info(
        "%s: done in %.1f s",
        name,
        time.monotonic() - began,
        extra={"rows": content.get("rows", "")},
    )
    ours: Content = {"directory": directory, "content": content, **_parts_of(files)}
    if storage.create_json(work.place.record(f"{name}.claim"), ours):
        return ours
    storage.remove(directory)
    theirs = storage.read_json(work.place.record(f"{name}.claim"))
    # The other may have finished and removed its claim meanwhile: then its marker tells.
    return theirs or _finished(storage.read_json(work.place.record(f"{name}.json")))


def _take_written(run: PipelineRun, directory: str) -> dict[str, TableFile]:
    """The files that this run has written into a directory, by their paths in it; once."""
    begin = f"{directory}/"
    paths = sorted(path for path in run.written if path.startswith(begin))
    return {path.removeprefix(begin): run.written.pop(path) for path in paths}


def _parts_of(files: Sequence[str]) -> Content:
    """What a stage has made, by paths in its directory: parts of tables, and records."""
    tables = {path.rpartition("/")[0] for path in files if path.endswith(".parquet")}
    return {
        "tables": sorted(tables),
        "records": sorted(path for path in files if path.endswith(".json")),
    }


def _finished(content: Content | None) -> Content:
    return {"directory": None, "content": content}


def _adopt(work: WindowWork, name: str, error: Exception) -> Mapping[str, Any]:
    """What another run has made: one that ends cleans up, and what others make goes with it."""
    with suppress(ArchiveUnusable):
        done = work.run.storage.read_json(work.place.record(f"{name}.json"))
        if done is not None:
            return _finished(done)
    if isinstance(error, PelopsError | NotPermitted):
        raise error
    raise explain_failure(error, work.place.record(name)) from error


def _finish(work: WindowWork, name: str, claim: Mapping[str, Any]) -> Content:
    """Put in place what was made, and mark it: also what a run that died had made and claimed."""
    storage, directory, content = work.run.storage, claim["directory"], claim["content"]
    if content is None:
        raise ArchiveUnusable(
            f"{work.place.record(name)} was removed while it was being written: run one audit at "
            "a time"
        )
    if directory is not None:
        for part in claim["tables"]:
            made = f"{directory}/{part}" if part else directory
            storage.put_in_place(made, work.target(f"{name}/{part}" if part else name))
        for part in claim["records"]:
            storage.put_file_in_place(f"{directory}/{part}", work.target(f"{name}/{part}"))
    storage.create_json(work.place.record(f"{name}.json"), content)
    if directory is not None:
        storage.remove(directory)
    storage.remove(work.place.record(f"{name}.claim"))
    return dict(content)
