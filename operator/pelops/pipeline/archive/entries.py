"""Entries of a round into the archive: IDs, hash, size, root; payloads only when asked for.

One read of Spark takes all streams: the audited ones, the groups' own retry streams, and, where
payloads are archived in full, the dead-letter streams.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as ds

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.ids import LAST_HELD
from pelops.pipeline.archive.redis_reader import RedisReader
from pelops.pipeline.archive.tables import ENTRIES, MOST_HERE, SCHEMAS, Archive, local_frame
from pelops.pipeline.archive.windows import Plan
from pelops.pipeline.settings import ArchivedPayload

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FIELD: Final = "field:"  # prefix of columns that are read from fields of entries
_FIELDS: Final = "fields ARRAY<STRUCT<name: BINARY, value: BINARY>>"
_ROOT: Final = r"^([0-9]{1,18})-([0-9]{1,18})$"
_COUNT: Final = "^[0-9]{1,6}$"
_OF_A_TASK: Final = 500_000  # entries
PLACES: Final = pa.schema(
    [("stream", pa.string()), ("window", pa.int32()), ("date", pa.date32()), ("run", pa.int64())]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRange:
    """A range of a stream that belongs to a window."""

    stream: str
    after: EntryId
    upto: EntryId
    plan: Plan
    prefix: str  # of the fields that Pelops adds
    is_letters: bool = False  # a dead-letter stream, whose entries are not of the window


def list_parts(watch: RedisReader, plans: Iterable[Plan]) -> list[WindowRange]:
    """The parts of streams to archive for each window. Raises RedisStreamsError."""
    parts: list[WindowRange] = []
    for plan in plans:
        # Groups of one stream rarely have different prefixes.
        prefix = plan.targets[0].field_prefix if plan.targets else "_"
        parts.append(
            WindowRange(
                stream=plan.stream, after=plan.window.from_id, upto=plan.window.to_id, plan=plan,
                prefix=prefix,
            )
        )  # fmt: skip
        for target in plan.targets:
            keys = derive_keys(plan.stream, target.group, dead_letter=target.dead_letter)
            if target.group in plan.retries:
                after, upto = plan.retries[target.group]
                parts.append(
                    WindowRange(stream=keys.retry, after=after, upto=upto, plan=plan, prefix=prefix)
                )
            if plan.payload is ArchivedPayload.FULL:
                last = watch.stream(keys.dead_letter).last_generated
                after = min(plan.ledger_from.get(target.group, EntryId.MIN), last)
                parts.append(
                    WindowRange(
                        stream=keys.dead_letter, after=after, upto=last, plan=plan, prefix=prefix,
                        is_letters=True,
                    )
                )  # fmt: skip
    return parts


def archive_entries(
    spark: SparkSession, watch: RedisReader, archive: Archive, parts: Sequence[WindowRange]
) -> bool:
    """Append the entries of all parts; return whether any was left out because of its ID.

    Raises errors of Spark, and ArchiveUnusable.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    wanted = [part for part in parts if part.after < part.upto]
    if not wanted:
        return False
    frame = _read(spark, watch, wanted)
    seen = Observation()
    frame = frame.observe(seen, F.count_if(F.col("seq").isNull()).alias("beyond"))
    expected = sum(part.plan.produced for part in wanted if part.stream == part.plan.stream)
    # Full payloads may be large, so that fewer rows may pass through the driver.
    is_full = any(part.plan.payload is ArchivedPayload.FULL for part in wanted)
    rows = expected * 20 if is_full else expected
    archive.append_frame(ENTRIES, frame.where("seq IS NOT NULL"), rows)
    return bool(seen.get["beyond"])


def count_beyond(watch: RedisReader, plan: Plan) -> tuple[int, int]:
    """Number of entries of a window whose IDs do not fit signed 64-bit columns.

    Returns those due to their milliseconds, and those due only to their sequence numbers. It reads
    the window again, because such IDs are rare.
    """
    beyond = beyond_seq = 0
    for entry_id, _ in watch.entries(plan.stream, plan.window.from_id, plan.window.to_id):
        if entry_id > LAST_HELD:
            beyond += 1
        elif entry_id.seq > LAST_HELD.ms:
            beyond_seq += 1
    return beyond, beyond_seq


def place_rows(parts: Iterable[WindowRange], runs: Mapping[str, int]) -> pa.Table:
    """The keys of the round's rows; `runs`: by stream, the run that archived its window."""
    rows = [
        {"stream": part.stream, "window": part.plan.number, "date": part.plan.day,
         "run": runs[part.plan.stream]}
        for part in parts
        if not part.is_letters
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, PLACES)


def read_round(spark: SparkSession, archive: Archive, places: pa.Table) -> DataFrame:
    """The archived entries of a round, without payloads."""
    runs = set(places["run"].to_pylist())
    columns = [name for name in SCHEMAS[ENTRIES].names if name != "fields"]
    keys = ["stream", "window", "run"]
    if archive.count_rows(ENTRIES, runs) <= MOST_HERE:
        is_ours = ds.field("run").isin(pa.array(sorted(runs), pa.int64()))
        rows = archive.read(ENTRIES, is_ours, columns=columns)
        return local_frame(spark, rows.join(places.select(keys), keys, join_type="left semi"))
    entries = archive.frame(spark, ENTRIES, runs, columns)
    return entries.join(local_frame(spark, places.select(keys)), keys, "left_semi")


def _read(spark: SparkSession, watch: RedisReader, parts: Sequence[WindowRange]) -> DataFrame:
    """The rows of the table without `run`; parts with the same options share one read."""
    kinds: dict[tuple[str, ArchivedPayload, str | None], list[WindowRange]] = {}
    for part in parts:
        kind = (part.prefix, part.plan.payload, part.plan.business_key)
        kinds.setdefault(kind, []).append(part)
    frames = [_read_alike(spark, watch, some) for some in kinds.values()]
    whole = reduce(lambda one, other: one.unionByName(other), frames)
    places = [
        {"stream": part.stream, "window": part.plan.number, "date": part.plan.day, "run": 0}
        for part in parts
    ]
    where = local_frame(spark, pa.Table.from_pylist(places, PLACES))
    return whole.join(where, "stream").select(*SCHEMAS[ENTRIES].names)


def _read_alike(spark: SparkSession, watch: RedisReader, parts: Sequence[WindowRange]) -> DataFrame:
    first = parts[0]
    columns, computed = _columns(first)
    marks = [f"{first.prefix}{name}" for name in ("original_id", "retry_count")]
    given = {
        "streams": json.dumps([part.stream for part in parts]),
        "startingId": json.dumps({part.stream: f"({part.after}" for part in parts}),
        "endingId": json.dumps({part.stream: str(min(part.upto, LAST_HELD)) for part in parts}),
        "entriesPerPartition": str(_OF_A_TASK),
        "failOnDataLoss": "false",
        "missingStream": "empty",
        "computed": ",".join(computed),
        # Only as the last fields do these mark a copy; elsewhere they are a producer's fields.
        "trailingFields": json.dumps(marks),
        # An entry may have a field twice. A full payload keeps both; otherwise the last one, which
        # recovery adds, counts.
        "duplicateFields": "keep" if first.plan.payload is ArchivedPayload.FULL else "last",
        "fieldPrefix": FIELD,
        **watch.place.options,
    }
    reader = spark.read.format("redis_streams").schema(", ".join(columns))
    return _shape(reader.options(**given).load(), first)


def _columns(part: WindowRange) -> tuple[list[str], list[str]]:
    prefix, plan = part.prefix, part.plan
    computed = ["bytes"]
    columns = ["stream STRING", "ms BIGINT", "seq BIGINT", "bytes BIGINT"]
    names = ("original_id", "retry_count", "returned")
    columns += [f"`{FIELD}{prefix}{name}` STRING" for name in names]
    if plan.payload is not ArchivedPayload.NONE:
        computed.append("hash")
        columns.append("hash BIGINT")
    if plan.payload is ArchivedPayload.FULL:
        columns.append(_FIELDS)
    key = f"`{FIELD}{plan.business_key}` STRING"
    if plan.business_key is not None and key not in columns:
        columns.append(key)
    return columns, computed


def _shape(frame: DataFrame, part: WindowRange) -> DataFrame:
    """Select the columns of the table; a row has a root only if its copy fields are valid."""
    from pyspark.sql import functions as F  # noqa: N812

    plan, prefix = part.plan, part.prefix
    root = F.col(f"`{FIELD}{prefix}original_id`")
    count = F.col(f"`{FIELD}{prefix}retry_count`")
    returned = F.col(f"`{FIELD}{prefix}returned`")
    is_copy = root.rlike(_ROOT) & count.rlike(_COUNT)
    root_ms, root_seq = (F.regexp_extract(root, _ROOT, at).try_cast("bigint") for at in (1, 2))
    is_copy = is_copy & (F.struct(root_ms, root_seq) < F.struct("ms", "seq"))
    nothing = F.lit(None)
    chosen: dict[str, Column] = {
        "root_ms": F.when(is_copy, root_ms),
        "root_seq": F.when(is_copy, root_seq),
        "retry_count": F.when(is_copy, count.try_cast("int")),
        "returned": F.when(is_copy & returned.rlike(_COUNT), returned.try_cast("int")),
        "hash": nothing.cast("bigint"),
        "key": nothing.cast("string"),
        "fields": nothing.cast(_FIELDS.removeprefix("fields ")),
    }
    if plan.payload is not ArchivedPayload.NONE:
        chosen["hash"] = F.col("hash")
    if plan.business_key is not None:
        chosen["key"] = F.col(f"`{FIELD}{plan.business_key}`")
    if plan.payload is ArchivedPayload.FULL:
        chosen["fields"] = F.col("fields")
    given = [F.col(name) for name in ("stream", "ms", "seq", "bytes")]
    return frame.select(*given, *(column.alias(name) for name, column in chosen.items()))
