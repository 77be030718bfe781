"""The options of reads and writes: each is declared once, and all are checked together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pelops.redis_core import parse_entry_id
from pyspark_redis_streams.errors import OptionError
from pyspark_redis_streams.options.option import (
    EVERY_USE,
    EVERY_VIEW,
    FLAG,
    MOMENT,
    MOMENTS,
    NAMES,
    READS,
    SPAN,
    TEXT,
    ZONE,
    Alias,
    OptionTable,
    Use,
    View,
    choice,
    choices,
    either,
    milliseconds,
    read_zone,
    section,
    values_for,
    whole,
)
from pyspark_redis_streams.redis.servers import ServerSettings, read_server_settings


def _check_id(text: str) -> str:
    # Otherwise Redis would refuse it only after the first rows are appended.
    try:
        parse_entry_id(text)
    except ValueError as error:
        raise ValueError("must be an entry ID, <milliseconds>-<sequence>") from error
    return text


_BATCH: Final = frozenset({Use.READ})
_streams = section("Streams", views=EVERY_VIEW)
_range = section("Range of entries")
_columns = section("Columns")
_pace = section("Tasks and pace")
_streaming = section("Streaming reads", uses=frozenset({Use.STREAM}))
_groups = section("Views of groups", views=frozenset({View.PENDING}))
_writes = section("Writes", uses=frozenset({Use.WRITE}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """The options that reads and writes share."""

    server: ServerSettings
    stream: str | None = _streams("stream", TEXT, uses=EVERY_USE)(
        'The stream; the same as `load("orders")` and `save("orders")`.'
    )
    path: str | None = _streams("path", TEXT, uses=EVERY_USE)(
        "The same as `stream`: this is how Spark hands on what `load` was given."
    )
    field_prefix: str | None = _columns("fieldPrefix", TEXT, uses=EVERY_USE)(
        "Column `<prefix>x` reads, or writes, field `x`: for fields named as a base column."
    )
    max_entries_per_second: int | None = _pace("maxEntriesPerSecond", whole(1), uses=EVERY_USE)(
        "Most entries that one task reads, or appends, in a second."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(_Shared):
    """The options of a read; `streams` holds all streams, by whichever option they were named."""

    streams: tuple[str, ...] = _streams("streams", NAMES, kafka=Alias("subscribe", NAMES))(
        "Several streams: `a,b` or a JSON list."
    )
    paths: tuple[str, ...] | None = _streams("paths", NAMES)(
        'The same as `streams`: this is how Spark hands on `load(["a", "b"])`.'
    )
    stream_pattern: str | None = _streams("streamPattern", TEXT)(
        "Streams whose name fits a glob, as in `SCAN MATCH`."
    )
    view: View = _streams("view", choice(*View).then(View), default="entries")(  # noqa: RUF009
        "What the rows are; a streaming read has `entries` only."
    )
    allow_missing: bool = _streams("missingStream", either("empty", "fail"), default="fail")(
        "Whether a stream that does not exist is an error or has no entries."
    )

    starting_id: str | None = _range(
        "startingId", TEXT, kafka=Alias("startingOffsets", choice("earliest", "latest"))
    )(
        '`earliest`, `latest`, an ID (included), `(ID` (excluded), or JSON `{"stream": ID}`;'
        " default `earliest`, of a streaming read `latest`."
    )
    # All times are in milliseconds since 1970.
    starting_timestamp: int | None = _range("startingTimestamp", MOMENT)(
        "Entries from this time on, by the milliseconds of their IDs."
    )
    starting_times: Mapping[str, int] | None = _range("startingOffsetsByTimestamp", MOMENTS)(
        'For each stream its own `startingTimestamp`: JSON `{"stream": TIME}`. A stream that is not'
        " named has the default of `startingId`."
    )
    ending_id: str | None = _range(
        "endingId", TEXT, uses=_BATCH, kafka=Alias("endingOffsets", choice("latest"))
    )("`latest`, an ID (included), `(ID` (excluded), or JSON; default `latest`, as of planning.")
    ending_timestamp: int | None = _range("endingTimestamp", MOMENT, uses=_BATCH)(
        "Entries before this time."
    )
    time_zone: str | None = _range("timeZone", ZONE)(
        "Zone of a time in an option above that names none: that of the session, to agree with"
        " filters on `ts`."
    )
    fail_on_data_loss: bool = _range("failOnDataLoss", FLAG, default="true")(
        "Fail when entries of the range were trimmed before they were read, or the stream went back"
        " (failover, deletion)."
    )

    columns: str | None = _columns("columns", TEXT)(
        "Fields to read as columns, as `name TYPE, ...`; they follow the base columns. A schema"
        " given to `.schema(...)` does the same and also chooses the base columns."
    )
    infer_schema: bool = _columns("inferSchema", FLAG, default="false")(
        "Columns of the fields in the first and the last 100 entries of each stream, in place of"
        " `columns`."
    )
    binary: bool = _columns("binary", FLAG, default="false")(
        "Values of `fields` as bytes, in a read without declared columns: else as strings."
    )
    computed: tuple[str, ...] = _columns("computed", choices("hash", "bytes"))(
        "Columns computed from all fields, so that payloads need not be read: a hash, and the size."
    )
    trailing_fields: tuple[str, ...] = _columns("trailingFields", NAMES)(
        "Columns of these fields have a value only in entries that end with exactly these fields,"
        " in this order. It is for fields that a copy of an entry has in addition."
    )
    mode: str = _columns(
        "mode", choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST"), default="PERMISSIVE"
    )(
        "What happens to an entry with a value that does not fit its column: null there, no row, or"
        " an error."
    )
    corrupt_column: str = _columns("columnNameOfCorruptRecord", TEXT, default="_corrupt_record")(
        "String column that receives such an entry as JSON, if the schema has it."
    )
    duplicate_fields: str = _columns(
        "duplicateFields", choice("last", "first", "keep"), default="last"
    )(
        "Which value counts when an entry repeats a field; `keep` makes `fields` an array of name"
        " and value."
    )
    timestamp_unit: str = _columns("timestampUnit", choice("s", "ms", "us"), default="ms")(
        "Unit of timestamps that are written as whole numbers."
    )

    min_partitions: int | None = _pace("minPartitions", whole(1, 100_000))(
        "At least about so many tasks, while there are entries enough."
    )
    entries_per_partition: int = _pace("entriesPerPartition", whole(1), default="500000")(
        "About so many entries for one task."
    )
    page_size: int = _pace("pageSize", whole(1, 100_000), default="2000", views=EVERY_VIEW)(
        "Most entries for one call; fewer when they are large or have many fields."
    )
    batch_rows: int = _pace("batchRows", whole(1, 1_000_000), default="10000")(
        "Most rows of one Arrow batch handed to Spark."
    )

    max_entries_per_trigger: int | None = _streaming(
        "maxEntriesPerTrigger", whole(1), kafka=Alias("maxOffsetsPerTrigger", whole(1))
    )("Most entries of one micro-batch, over all streams.")
    exact_limit: bool = _streaming("limitMode", either("exact", "estimate"), default="exact")(
        "Whether the driver walks the entries to find where that many end (1 µs each), or guesses"
        " it from their density."
    )
    min_entries_per_trigger: int | None = _streaming(
        "minEntriesPerTrigger", whole(1), kafka=Alias("minOffsetsPerTrigger", whole(1))
    )("Wait for so many entries before a micro-batch, up to `maxTriggerDelayMs`.")
    max_trigger_delay_ms: int = _streaming(
        "maxTriggerDelayMs", whole(1), default="900000", kafka=Alias("maxTriggerDelay", SPAN)
    )("Longest wait for `minEntriesPerTrigger`.")
    progress_group: str | None = _streaming("progressGroup", TEXT)(
        "A consumer group that is moved to what the query has finished, so that `XINFO GROUPS`"
        " shows its lag."
    )

    group: str | None = _groups(
        "group", TEXT, views=frozenset({View.PENDING, View.GROUPS, View.CONSUMERS})
    )("The consumer group; of `groups` and `consumers` default all.")
    consumer: str | None = _groups("consumer", TEXT)("Pending entries of this consumer alone.")
    min_idle_ms: int = _groups("minIdleMs", whole(0), default="0")(
        "Pending entries whose last delivery is at least so long ago."
    )

    @property
    def declaring(self) -> str | None:
        """The option that declares the columns of fields; None if neither does."""
        if self.infer_schema:
            return "inferSchema"
        return None if self.columns is None else "columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(_Shared):
    """The options of a write; without `stream` each row names its stream."""

    empty_columns: frozenset[str] = frozenset()  # columns of a table that do not hold fields
    entries_per_call: int = _writes("entriesPerCall", whole(1, 10_000), default="200")(
        "Entries appended by one call; Redis serves no other client meanwhile."
    )
    keep_ids: bool = _writes("keepIds", FLAG, default="false")(
        "Write each row under the ID in its column `id`, and `ms`, `seq` and `ts` not at all: to"
        " copy a stream, or to replay an archive of it."
    )
    max_len: int | None = _writes("maxLen", whole(0))(
        "Trim the stream to about so many entries, whether or not they were read."
    )
    min_id: str | None = _writes("minId", TEXT.then(_check_id))(
        "Trim about all entries below this ID."
    )
    write_id: str | None = _writes("writeId", TEXT)(
        "Name of a batch write: under the same name the same rows are appended once, even by"
        " another run. A streaming write has the name of its query and micro-batch."
    )
    token_ttl_s: int = _writes("tokenTtlSeconds", whole(60), default="604800")(
        "Time for which the server of the stream keeps the record of a write."
    )


NAMING_STREAMS: Final = ("stream", "streams", "stream_pattern", "path", "paths")  # fields
OPTIONS: Final = OptionTable(ServerSettings, ReadOptions, WriteOptions)


def parse_read_options(given: Mapping[str, str], use: Use | None) -> ReadOptions:
    """The options of a read; `use` is None if it may be batch or streaming.

    Raises:
        OptionError: names the option, what was given, and what is allowed.
    """
    values = OPTIONS.parse(given, READS if use is None else {use})
    OPTIONS.refuse_other_views(given, values["view"])
    resolved = {
        "server": read_server_settings(values, given),
        "streams": _named_streams(values, given),
        "computed": values["computed"] or (),
        "trailing_fields": values["trailing_fields"] or (),
    }
    zone = values["time_zone"]
    for name in ("starting_timestamp", "ending_timestamp"):
        resolved[name] = _resolve_moment(name, values[name], zone)
    times = values["starting_times"]
    if times is not None:
        resolved["starting_times"] = {
            stream: _resolve_moment("starting_times", moment, zone)
            for stream, moment in times.items()
        }
    options = ReadOptions(**(values_for(ReadOptions, values) | resolved))
    _refuse_contradictions(options)
    if use is Use.STREAM and options.view is not View.ENTRIES:
        raise OptionError(
            f"option 'view' is '{options.view}': readStream has the view 'entries' only"
        )
    return options


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write. Raises OptionError, as `parse_read_options` does."""
    values = OPTIONS.parse(given, {Use.WRITE})
    if values["stream"] is not None and values["path"] is not None:
        raise OptionError("option 'stream' is given, and `save` names a stream as well: give one")
    _refuse_two(maxLen=values["max_len"], minId=values["min_id"])
    resolved = {
        "server": read_server_settings(values, given),
        "stream": values["stream"] or values["path"],
    }
    return WriteOptions(**(values_for(WriteOptions, values) | resolved))


def _named_streams(values: Mapping[str, Any], given: Mapping[str, str]) -> tuple[str, ...]:
    used = [way for way in NAMING_STREAMS if values[way] is not None]
    if len(used) != 1:
        written = [OPTIONS.name_given(way, given) for way in used]
        found = f"both '{written[0]}' and '{written[1]}' are given" if used else "none is given"
        by_load = " ('path' is what `load` was given)" if "path" in used else ""
        if not given:
            by_load = (
                ". A table of Spark's catalog that lists its columns keeps no options: list them in"
                " option 'columns', and none in CREATE TABLE"
            )
        raise OptionError(
            f"options 'stream', 'streams' and 'streamPattern': {found}; give exactly one{by_load}"
        )
    value = values[used[0]]
    if used[0] in ("streams", "paths"):
        return tuple(value)
    return () if used[0] == "stream_pattern" else (value,)


def _resolve_moment(field: str, moment: int | datetime | None, zone: str | None) -> int | None:
    """A time in milliseconds; `zone` is needed because Spark does not pass the session's zone."""
    if not isinstance(moment, datetime):
        return moment
    if zone is None:
        raise OptionError(
            f"option '{OPTIONS[field].name}' has '{moment}', which names no time zone: write it"
            f" with one ('{moment.isoformat()}Z' for UTC), or set option 'timeZone' to that of the"
            " session, spark.conf.get('spark.sql.session.timeZone')"
        )
    return milliseconds(moment.replace(tzinfo=read_zone(zone)))


def _refuse_contradictions(options: ReadOptions) -> None:
    _refuse_two(
        startingId=options.starting_id,
        startingTimestamp=options.starting_timestamp,
        startingOffsetsByTimestamp=options.starting_times,
    )
    _refuse_two(endingId=options.ending_id, endingTimestamp=options.ending_timestamp)
    _refuse_two(columns=options.columns, inferSchema=options.infer_schema or None)
    if options.declaring is not None and options.duplicate_fields == "keep":
        raise OptionError(
            f"option 'duplicateFields' is 'keep': a column of '{options.declaring}' has one value"
        )
    if options.declaring is not None and options.binary:
        raise OptionError(
            f"option 'binary' is for reads without '{options.declaring}': declare a column as"
            " BINARY in option 'columns'"
        )
    least, most = options.min_entries_per_trigger, options.max_entries_per_trigger
    if least and most and least > most:
        raise OptionError(
            "option 'minEntriesPerTrigger' is larger than option 'maxEntriesPerTrigger'"
        )
    if options.view is View.PENDING and options.group is None:
        raise OptionError("option 'group' is missing: view 'pending' reads one consumer group")


def _refuse_two(**options: object) -> None:
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise OptionError(f"options '{given[0]}' and '{given[1]}' exclude each other: give one")
