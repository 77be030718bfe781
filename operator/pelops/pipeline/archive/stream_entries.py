"""Entries of a window into Parquet: IDs, hash, size, root; payloads only when asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.layout import slug
from pelops.pipeline.engine.sql import Column, DataFrame, count_along, unite
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.settings import ArchivedPayload
from pelops.pipeline.stages import HEAVY, Content, PipelineRun, WindowWork, run_stage, write_part

LAST_HELD: Final = EntryId(2**63 - 1, 2**64 - 1)  # of the IDs whose milliseconds fit a bigint
FIELD: Final = "field:"  # what columns begin with that are read from fields of the entries
_FIELDS: Final = "fields ARRAY<STRUCT<name: BINARY, value: BINARY>>"
_ROOT: Final = r"^([0-9]{1,18})-([0-9]{1,18})$"
_COUNT: Final = "^[0-9]{1,6}$"


def archive_entries(work: WindowWork) -> Content:
    """Archive the stream's entries of the window.

    Answers {"rows": ..., "beyond": ..., "beyond_seq": ...}. The latter two are entries that the
    archive cannot hold, by the milliseconds of their IDs, or only by their sequence numbers.
    """
    plan = work.plan

    def make(directory: str) -> Content:
        edges = [plan.window.from_id, *plan.cuts, plan.window.to_id]
        columns, options = _what_to_read(work)
        slices = [_load(work.run, plan.stream, ends, columns, options) for ends in pairwise(edges)]
        frame, beyond_seq = count_along(unite(slices), ~_is_held())
        is_heavy = plan.produced > HEAVY
        rows = write_part(work, _shape(work, frame.where(_is_held())), directory, is_heavy=is_heavy)
        return {"rows": rows, "beyond": _count_beyond(work), "beyond_seq": beyond_seq()}

    return run_stage(work, "entries", make)


def _count_beyond(work: WindowWork) -> int:
    """Entries of the window whose milliseconds no column of 64 bits with sign can hold."""
    window, connections = work.plan.window, work.run.watch.connections
    if window.to_id <= LAST_HELD:
        return 0
    # Here, since they need PySpark, and such IDs are rare.
    from pyspark_redis_streams.batch.probes import walk

    after, last = max(window.from_id, LAST_HELD), window.to_id
    most = window.to_added - window.from_added
    return walk(connections, work.plan.stream, after, last, most)[1]


def archive_retries(work: WindowWork) -> Content:
    """Archive the copies in the groups' own retry streams. Answers {"rows": {group: ...}}."""

    def make(directory: str) -> Content:
        rows = {}
        for group, (after, last) in sorted(work.plan.retries.items()):
            keys = derive_keys(work.plan.stream, group)
            frame = _shape(work, read_slices(work, keys.retry, [after, last]))
            rows[group] = write_part(work, frame, f"{directory}/group={slug(group)}")
        return {"rows": rows}

    return run_stage(work, "retries", make)


def archive_dead_letters(work: WindowWork) -> Content:
    """Archive the dead letters of the window's time, when payloads are. Answers {"rows": ...}."""
    if work.plan.payload is not ArchivedPayload.FULL:
        return {"rows": {}}
    columns = f"id STRING, ms BIGINT, seq BIGINT, {_FIELDS}"
    options = {"duplicateFields": "keep", "pageSize": str(work.plan.page_size)}

    def make(directory: str) -> Content:
        rows = {}
        for target in work.plan.targets:
            keys = derive_keys(work.plan.stream, target.group, dead_letter=target.dead_letter)
            last = work.run.watch.stream(keys.dead_letter).last_generated
            after = min(work.plan.ledger_from.get(target.group, EntryId.MIN), last)
            frame = read_slice(work.run, keys.dead_letter, (after, last), columns, options)
            rows[target.group] = write_part(work, frame, f"{directory}/group={slug(target.group)}")
        return {"rows": rows}

    return run_stage(work, "letters", make)


def read_slices(work: WindowWork, stream: str, edges: Sequence[EntryId]) -> DataFrame:
    """Entries after the first edge, up to the last: a task for each slice, in order of IDs."""
    columns, options = _what_to_read(work)
    slices = [read_slice(work.run, stream, ends, columns, options) for ends in pairwise(edges)]
    return unite(slices)


def read_slice(
    run: PipelineRun,
    stream: str,
    ends: tuple[EntryId, EntryId],
    columns: str,
    options: Mapping[str, str],
) -> DataFrame:
    """Entries after one ID up to another, in one task. What is gone meanwhile is left out.

    So is what has an ID that the columns cannot hold.
    """
    return _load(run, stream, ends, columns, options).where(_is_held())


def _load(
    run: PipelineRun,
    stream: str,
    ends: tuple[EntryId, EntryId],
    columns: str,
    options: Mapping[str, str],
) -> DataFrame:
    """The same, with a null where a sequence number is one that no column can hold."""
    given = {
        "stream": stream,
        "startingId": f"({ends[0]}",
        "endingId": str(min(ends[1], LAST_HELD)),
        "entriesPerPartition": str(2**62),  # one task: the slices are what the plan says
        "failOnDataLoss": "false",
        "missingStream": "empty",
        **run.watch.place.options,
        **options,
    }
    reader = run.session.read.format("redis_streams").schema(columns)
    return reader.options(**given).load()


def _is_held() -> Column:
    return F.col("seq").isNotNull()


def _what_to_read(work: WindowWork) -> tuple[str, dict[str, str]]:
    plan = work.plan
    prefix = _prefix(work)
    computed = ["bytes", "root"] if prefix == "_" else ["bytes"]
    columns = ["ms BIGINT", "seq BIGINT", "bytes BIGINT"]
    columns += ["root STRING"] if prefix == "_" else [f"`{FIELD}{prefix}original_id` STRING"]
    columns += [f"`{FIELD}{prefix}{name}` STRING" for name in ("retry_count", "returned")]
    if plan.payload is not ArchivedPayload.NONE:
        computed.append("hash")
        columns.append("hash BIGINT")
    if plan.payload is ArchivedPayload.FULL:
        columns.append(_FIELDS)
    if plan.business_key is not None:
        columns.append(f"`{FIELD}{plan.business_key}` STRING")
    return ", ".join(columns), {
        "computed": ",".join(computed),
        # An entry may name a field twice: a full payload is all of it, and the last one counts,
        # which is what a recovery has added.
        "duplicateFields": "keep" if plan.payload is ArchivedPayload.FULL else "last",
        "fieldPrefix": FIELD,
        "pageSize": str(plan.page_size),
    }


def _shape(work: WindowWork, frame: DataFrame) -> DataFrame:
    """The columns of the archive: a root only where the marks of a copy are complete."""
    plan, prefix = work.plan, _prefix(work)
    root = F.col("root") if prefix == "_" else F.col(f"`{FIELD}{prefix}original_id`")
    count = F.col(f"`{FIELD}{prefix}retry_count`")
    returned = F.col(f"`{FIELD}{prefix}returned`")
    is_copy = root.rlike(_ROOT) & count.rlike(_COUNT)
    root_ms, root_seq = (F.regexp_extract(root, _ROOT, part).try_cast("bigint") for part in (1, 2))
    is_copy = is_copy & (F.struct(root_ms, root_seq) < F.struct("ms", "seq"))
    chosen: list[Column | str] = ["ms", "seq", "bytes"]
    chosen += [
        F.when(is_copy, root_ms).alias("root_ms"),
        F.when(is_copy, root_seq).alias("root_seq"),
        F.when(is_copy, count.try_cast("int")).alias("retry_count"),
        F.when(is_copy & returned.rlike(_COUNT), returned.try_cast("int")).alias("returned"),
    ]
    chosen += ["hash"] if plan.payload is not ArchivedPayload.NONE else []
    chosen += ["fields"] if plan.payload is ArchivedPayload.FULL else []
    if plan.business_key is not None:
        chosen.append(F.col(f"`{FIELD}{plan.business_key}`").alias("key"))
    return frame.select(*chosen)


def _prefix(work: WindowWork) -> str:
    """Of the fields that a recovery adds; groups of one stream that differ are rare."""
    return work.plan.targets[0].field_prefix if work.plan.targets else "_"
