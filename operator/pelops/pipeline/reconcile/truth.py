"""The archive against the user's own tables: what was sent, and what had an effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pelops.pipeline.archive.compaction import read_marker
from pelops.pipeline.archive.damage import find_damage
from pelops.pipeline.archive.layout import stream_path, table_unit, window_numbers
from pelops.pipeline.engine.sql import IDS, DataFrame, SparkSession
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.errors import ArchiveUnusable, WrongPipelineSettings
from pelops.pipeline.reconcile.window_entries import Case
from pelops.pipeline.settings import UserTable
from pelops.pipeline.stages import Content, WindowWork, run_stage, write_sorted

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException


_EXAMPLES: Final = 10


def compare_sent(work: WindowWork, table: UserTable) -> Content:
    """What was sent by the user's table, and is in no window of the archive."""

    def make(directory: str) -> Content:
        sent = _of_window(work, read_table(work.session, table))
        missing = sent.join(_archived_keys(work), "key", "left_anti").select("key").distinct()
        path = f"{directory}/never_arrived"
        rows = write_sorted(work, missing, path, "key")
        return {"sent": sent.count(), "never_arrived": rows, "examples": _examples(work, path)}

    return run_stage(work, "truth", make)


def compare_effects(case: Case, table: UserTable) -> Content:
    """Entries of the window that count as acknowledged, and have no effect in the user's table."""
    work = case.work
    kept = work.load(f"{case.directory}/exceptions")
    done = work.read("entries").where(F.col("key").isNotNull()).join(kept, list(IDS), "left_anti")
    effects = read_table(work.session, table).select("key")
    path = f"{case.directory}/without_effect"
    missing = done.join(effects, "key", "left_anti").select("key", *IDS)
    rows = write_sorted(work, missing, path, "key", *IDS)
    return {"without_effect": rows, "examples": _examples(work, path)}


def read_table(session: SparkSession, table: UserTable) -> DataFrame:
    """The user's table with its columns `key`, as text, and `at_ms`. Raises WrongSettings."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return _with_key(_open(session, table), table)
    except (Py4JJavaError, PySparkException) as error:
        raise WrongPipelineSettings(
            f"the table {table.shown} cannot be read: {_reason(error)}"
        ) from error


def _open(session: SparkSession, table: UserTable) -> DataFrame:
    reader = session.read.format(table.format)
    if table.format == "jdbc":
        url, _, name = table.path.rpartition("#")
        return reader.option("url", url).option("dbtable", name).load()
    if table.format == "csv":
        reader = reader.option("header", "true")
    return reader.load(table.path)


def _reason(error: Py4JJavaError | PySparkException) -> str:
    java = getattr(error, "java_exception", None)
    reported = next(iter(str(java.toString() if java else error).strip().splitlines()), "")
    if "No suitable driver" in reported or "ClassNotFoundException" in reported:
        return (
            f"{reported}; add the jar of its JDBC driver to Java's class path: spark-submit "
            "--jars,"
            " or PYSPARK_SUBMIT_ARGS='--jars <jar> pyspark-shell'"
        )
    return reported


def _with_key(frame: DataFrame, table: UserTable) -> DataFrame:
    for column in filter(None, (table.key, table.at_ms)):
        if column not in frame.columns:
            raise WrongPipelineSettings(
                f"the table {table.shown} has no column {column}; it has {', '.join(frame.columns)}"
            )
    key = F.col(f"`{table.key}`").cast("string").alias("key")
    at = F.col(f"`{table.at_ms}`").cast("bigint") if table.at_ms else F.lit(None).cast("bigint")
    return frame.select(key, at.alias("at_ms")).where(F.col("key").isNotNull())


def _of_window(work: WindowWork, sent: DataFrame) -> DataFrame:
    """Without times all belongs to every window: what is missing is reported until it arrives."""
    window = work.plan.window
    inside = (F.col("at_ms") > window.from_id.ms) & (F.col("at_ms") <= window.to_id.ms)
    return sent.where(F.col("at_ms").isNull() | inside)


def _archived_keys(work: WindowWork) -> DataFrame:
    storage, place = work.run.storage, work.place
    keys = work.read("entries").select("key")
    numbers = window_numbers(storage.list_names(stream_path(place.root, place.stream)))
    _check_entries(work, numbers)
    units = dict.fromkeys(table_unit(replace(place, number=one), "entries") for one in numbers)
    for path in (f"{unit}/{part}" for unit in units for part in storage.list_names(unit)):
        if path != place.part("entries"):
            frame = work.load(path)
            if "key" in frame.columns:
                keys = keys.unionAll(frame.select("key"))
    return keys


def _check_entries(work: WindowWork, numbers: Sequence[int]) -> None:
    """Raises ArchiveUnusable for a file that is missing: its entries would seem never to arrive."""
    storage = work.run.storage
    for number in numbers:
        place = replace(work.place, number=number)
        if place.span in storage.list_names(table_unit(place, "entries")):
            continue  # merged: its own file is not there any more
        for one in find_damage(
            storage, place.part, "entries", read_marker(storage, place, "entries")
        ):
            raise ArchiveUnusable(
                f"{one}: its entries would count as sent but never arrived; restore it, or run "
                "without --sent"
            )


def _examples(work: WindowWork, path: str) -> list[str]:
    rows = work.load(path).orderBy("key").limit(_EXAMPLES).collect()
    return [row["key"] for row in rows]
