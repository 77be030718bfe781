"""The statuses of audited windows in a table of Delta Lake or Iceberg, beside those in the archive.

Each window is written once, and a repetition replaces what it has written before: the rows of one
group and window are overwritten by the same rows. A marker in the archive says which windows are in
the table; what a run could not write, the next run writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import reduce
from operator import and_
from typing import Any, Final

from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.layout import WindowPlace, slug
from pelops.pipeline.archive.window_selection import is_complete, last_plan, read_plan
from pelops.pipeline.archive.windows import Plan
from pelops.pipeline.engine.spark_errors import explain_failure, is_of_spark
from pelops.pipeline.engine.sql import DataFrame
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.settings import StatusTable, TableFormat
from pelops.pipeline.stages import AS_OF, PipelineRun

log: Final = logging.getLogger(__name__)
_MARKER: Final = "table.json"
_DAY: Final = "date"
_ICEBERG: Final = {
    # Whole names prove that an overwritten file holds no other rows; by default, 16 characters.
    "write.metadata.metrics.column.stream": "full",
    "write.metadata.metrics.column.group": "full",
}
_PACKAGES: Final = {
    TableFormat.DELTA: "io.delta:delta-spark_<Spark's version>_2.13",
    TableFormat.ICEBERG: "org.apache.iceberg:iceberg-spark-runtime-<Spark's version>_2.13",
}


def check_table(run: PipelineRun) -> None:
    """Raises WrongSettings when the classes of the table's format are missing."""
    table = run.settings.status_table
    if table is None:
        return
    jvm: Any = run.session._jvm
    source = jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        source.lookupDataSource(
            table.format.value, run.session._jsparkSession.sessionState().conf()
        )
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise WrongPipelineSettings(
            f"--statuses-format {table.format} needs its jars on Java's class path: spark-submit "
            f"--packages {_PACKAGES[table.format]}:<version>, or the same by PYSPARK_SUBMIT_ARGS"
        ) from error


def write_windows(run: PipelineRun, stream: str) -> None:
    """Write every audited window of a stream that is not in the table yet. Repeats safely.

    Raises what `explain_failure` answers; what is written by then is not written again.
    """
    table = run.settings.status_table
    if table is None:
        return
    marker = {"format": table.format.value, "table": table.name}
    for plan in _left(run, stream, marker):
        place = WindowPlace(root=run.settings.archive, stream=stream, number=plan.window.number)
        for name, rows in _parts(run, plan, place):
            try:
                _write(run, table, rows, {"stream": name[0], "group": name[1], AS_OF: place.number})
            except Exception as error:
                if not is_of_spark(error):
                    raise
                raise explain_failure(error, f"the table {table.name}") from error
        run.storage.write_json(place.part(_MARKER), marker)
        log.info("window %d of %s: statuses written to %s", place.number, stream, table.name)


def _left(run: PipelineRun, stream: str, marker: dict[str, str]) -> list[Plan]:
    """Audited windows that are not in the table, in order: before one that is, all are."""
    found: list[Plan] = []
    plan = last_plan(run, stream)
    while plan is not None:
        place = WindowPlace(root=run.settings.archive, stream=stream, number=plan.window.number)
        if run.storage.read_json(place.part(_MARKER)) == marker:
            break
        if is_complete(run, plan):
            found.append(plan)
        plan = read_plan(run, stream, plan.window.number - 1)
    return found[::-1]


def _parts(
    run: PipelineRun, plan: Plan, place: WindowPlace
) -> Iterator[tuple[tuple[str, str], DataFrame]]:
    """What is replaced together: the rows of one group, of its stream and of its retry stream."""
    day = plan.window.at.date().isoformat()
    for target in plan.targets:
        path = place.statuses(f"group={slug(target.group)}", day)
        merged = f"{path.rpartition('/')[0]}/{place.span}"
        found = next((one for one in (path, merged) if run.storage.exists(one)), None)
        if found is None:
            continue
        rows = run.session.read.parquet(found).where(F.col(AS_OF) == place.number)
        for stream in (plan.stream, derive_keys(plan.stream, target.group).retry):
            yield (stream, target.group), rows.where(F.col("stream") == stream)


def _write(
    run: PipelineRun, table: StatusTable, rows: DataFrame, key: dict[str, str | int]
) -> None:
    reported = rows.withColumn(_DAY, F.to_date("audited_at"))
    if table.format is TableFormat.DELTA:
        where = " AND ".join(f"`{name}` = {_literal(value)}" for name, value in key.items())
        writer = reported.write.format("delta").partitionBy(_DAY).mode("overwrite")
        writer = writer.option("replaceWhere", where).option("mergeSchema", "true")
        if "/" in table.name:
            writer.save(table.name)
        else:
            writer.saveAsTable(table.name)
        return
    if not run.session.catalog.tableExists(table.name):
        new = reported.limit(0).writeTo(table.name).using(table.format.value)
        for name, value in _ICEBERG.items():
            new = new.tableProperty(name, value)
        new.partitionedBy(F.col(_DAY)).create()
    same = reduce(and_, (F.col(name) == F.lit(value) for name, value in key.items()))
    reported.writeTo(table.name).overwrite(same)


def _literal(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
