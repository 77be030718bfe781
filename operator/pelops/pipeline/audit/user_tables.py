"""Comparison of the archive with the user's tables of sent entries and of effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pelops.pipeline.archive.tables import ENTRIES, Archive
from pelops.pipeline.archive.windows import Plan
from pelops.pipeline.audit.rules import DONE, RowOrigin
from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.settings import PipelineSettings, UserTable
from pelops.pipeline.spark_errors import first_line, is_of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Entries that are missing on one side of a comparison."""

    count: int = 0
    examples: tuple[str, ...] = ()  # business keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Results of the comparisons; None: not compared."""

    sent: Missing | None = None
    effects: Missing | None = None
    lacks_key: bool = False  # tables are configured, but no business key was archived


def compare_tables(
    spark: SparkSession,
    archive: Archive,
    settings: PipelineSettings,
    plans: Sequence[Plan],
    groups: Mapping[int, Plan],
) -> dict[int, Compared]:
    """Compare the round's entries with the user's tables, by group. `groups`: each with its plan.

    Raises WrongPipelineSettings for a table that cannot be read.
    """
    wanted = settings.sent is not None or settings.effects is not None
    keyed = [plan for plan in plans if plan.business_key is not None]
    sent = _compare_sent(spark, archive, settings.sent, keyed) if keyed else {}
    effects = _compare_effects(spark, settings.effects) if keyed else {}
    compared = {}
    for g, plan in groups.items():
        if plan.business_key is None:
            compared[g] = Compared(lacks_key=wanted)
        else:
            compared[g] = Compared(
                sent=sent.get(plan.stream, Missing()) if settings.sent else None,
                effects=effects.get(g, Missing()) if settings.effects else None,
            )
    return compared


def _compare_sent(
    spark: SparkSession, archive: Archive, table: UserTable | None, plans: Sequence[Plan]
) -> dict[str, Missing]:
    """Entries that are in the user's table of sent entries, and in no window of the archive.

    Without times, all rows belong to every window: a missing entry is reported until it arrives.
    """
    if table is None:
        return {}
    from pyspark.sql import functions as F  # noqa: N812

    sent = read_table(spark, table)
    by_stream = {}
    for plan in plans:
        window = plan.window
        inside = (F.col("at_ms") > window.from_id.ms) & (F.col("at_ms") <= window.to_id.ms)
        asked = sent.where(F.col("at_ms").isNull() | inside)
        keys = archive.whole_frame(spark, ENTRIES).where(F.col("stream") == plan.stream)
        missing = asked.join(keys.select("key"), "key", "left_anti").select("key").distinct()
        by_stream[plan.stream] = _count(missing.selectExpr("0 AS g", "key")).get(0, Missing())
    return by_stream


def _compare_effects(spark: SparkSession, table: UserTable | None) -> dict[int, Missing]:
    """Entries that count as acknowledged and have no effect in the user's table."""
    if table is None:
        return {}
    done = spark.sql(f"""
    SELECT r.g, e.key FROM pelops_rows r JOIN pelops_sides s ON r.g = s.g AND r.copy = s.copy
    JOIN pelops_entries e ON e.stream = s.stream AND e.ms = r.ms AND e.seq = r.seq
    WHERE r.origin = '{RowOrigin.WINDOW}' AND r.status IN ({DONE}) AND e.key IS NOT NULL
    """)
    effects = read_table(spark, table).select("key")
    return _count(done.join(effects, "key", "left_anti"))


def _count(missing: DataFrame) -> dict[int, Missing]:
    from pyspark.sql import functions as F  # noqa: N812

    counted = F.count("*").alias("rows"), F.min_by("key", "key", EXAMPLES).alias("keys")
    rows = missing.groupBy("g").agg(*counted).collect()
    return {row["g"]: Missing(count=row["rows"], examples=tuple(row["keys"])) for row in rows}


def read_table(spark: SparkSession, table: UserTable) -> DataFrame:
    """The user's table with the columns `key`, as text, and `at_ms`.

    Raises WrongPipelineSettings if it cannot be read.
    """
    try:
        return _with_key(_open(spark, table), table)
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise WrongPipelineSettings(
            f"the table {table.shown} cannot be read: {_reason(error)}"
        ) from error


def _open(spark: SparkSession, table: UserTable) -> DataFrame:
    reader = spark.read.format(table.format)
    if table.format == "jdbc":
        url, _, name = table.path.rpartition("#")
        return reader.option("url", url).option("dbtable", name).load()
    if table.format == "csv":
        reader = reader.option("header", "true")
    return reader.load(table.path)


def _reason(error: Exception) -> str:
    message = first_line(error)
    if "No suitable driver" in message or "ClassNotFoundException" in message:
        return (
            f"{message}; add the jar of its JDBC driver to Java's class path: spark-submit "
            "--jars, or PYSPARK_SUBMIT_ARGS='--jars <jar> pyspark-shell'"
        )
    return message


def _with_key(frame: DataFrame, table: UserTable) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    for column in filter(None, (table.key, table.at_ms)):
        if column not in frame.columns:
            raise WrongPipelineSettings(
                f"the table {table.shown} has no column {column}; it has {', '.join(frame.columns)}"
            )
    key = F.col(f"`{table.key}`").cast("string").alias("key")
    at = F.col(f"`{table.at_ms}`").cast("bigint") if table.at_ms else F.lit(None).cast("bigint")
    return frame.select(key, at.alias("at_ms")).where(F.col("key").isNotNull())
