"""Options as the program gave them -> checked settings."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark_redis_streams.entry_id import parse_entry_id
from pyspark_redis_streams.errors import OptionError
from pyspark_redis_streams.options.kinds import milliseconds
from pyspark_redis_streams.options.option import Alias, Option, Use, View
from pyspark_redis_streams.options.table import OPTIONS
from pyspark_redis_streams.redis.servers import ServerSettings, read_server_settings

# What a streaming write is given for Spark itself, and hands on to the sink all the same.
_OF_SPARK = frozenset({"checkpointlocation"})

_BY_NAME: dict[str, tuple[str, Option]] = {
    name.lower(): (name, option)
    for option in OPTIONS
    for name in (option.name, *([option.kafka.name] if option.kafka else []))
}


def options_for(given: Mapping[str, str], *uses: Use) -> dict[str, str]:
    """Of these options those that any of the uses has, and those that none has: to be refused."""
    return {
        name: value
        for name, value in given.items()
        if name.lower() not in _BY_NAME or _BY_NAME[name.lower()][1].uses & set(uses)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a read was asked for; a field is named as its option."""

    server: ServerSettings
    view: View
    streams: tuple[str, ...]
    stream_pattern: str | None
    allow_missing: bool
    starting_id: str | None
    starting_timestamp: int | None  # milliseconds since 1970
    ending_id: str | None
    ending_timestamp: int | None
    fail_on_data_loss: bool
    columns: str | None
    field_prefix: str | None
    computed: tuple[str, ...]
    mode: str
    corrupt_column: str
    duplicate_fields: str
    timestamp_unit: str
    min_partitions: int | None
    entries_per_partition: int
    page_size: int
    batch_rows: int
    max_entries_per_second: int | None
    pushdown: bool
    max_entries_per_trigger: int | None
    exact_limit: bool
    min_entries_per_trigger: int | None
    max_trigger_delay_ms: int
    progress_group: str | None
    group: str | None
    consumer: str | None
    min_idle_ms: int


def parse_read_options(given: Mapping[str, str], use: Use | None) -> ReadOptions:
    """The settings of a read; `use` None: not known yet whether batch or streaming.

    Raises:
        OptionError: names the option, what was given, and what is allowed.
    """
    values = _parse_values(given, {use} if use else {Use.READ, Use.STREAM})
    _settle_moments(values)
    view = View(values["view"])
    _refuse_options_of_other_views(given, view)
    _refuse_what_excludes_another(values)
    if view is View.PENDING and values["group"] is None:
        raise OptionError("option 'group' is missing: view 'pending' reads one consumer group")
    if use is Use.STREAM and view is not View.ENTRIES:
        raise OptionError(f"option 'view' is '{view}': readStream has the view 'entries' only")
    return _build_read_options(values, view, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a write was asked for; a field is named as its option."""

    server: ServerSettings
    stream: str | None  # None: the rows name theirs
    entries_per_call: int
    max_entries_per_second: int | None
    field_prefix: str | None
    max_len: int | None
    min_id: str | None
    write_id: str | None
    token_ttl_s: int
    empty_columns: frozenset[str] = frozenset()  # of a table: those that are no fields


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """The settings of a write. Raises OptionError, as `parse_read_options` does."""
    values = _parse_values(given, {Use.WRITE})
    if values["stream"] is not None and values["path"] is not None:
        raise OptionError("option 'stream' is given, and `save` names a stream as well: give one")
    _check_min_id(values["minId"])
    if values["maxLen"] is not None and values["minId"] is not None:
        raise OptionError("options 'maxLen' and 'minId' exclude each other: give one")
    return WriteOptions(
        server=read_server_settings(values),
        stream=values["stream"] or values["path"],
        entries_per_call=values["entriesPerCall"],
        max_entries_per_second=values["maxEntriesPerSecond"],
        field_prefix=values["fieldPrefix"],
        max_len=values["maxLen"],
        min_id=values["minId"],
        write_id=values["writeId"],
        token_ttl_s=values["tokenTtlSeconds"],
    )


def _check_min_id(text: str | None) -> None:
    # Redis would refuse it when the first rows are appended already.
    try:
        parse_entry_id(text or "0", missing_seq=0)
    except ValueError as error:
        raise OptionError(f"option 'minId' is '{text}': {error}") from error


def _build_read_options(
    values: dict[str, Any], view: View, given: Mapping[str, str]
) -> ReadOptions:
    return ReadOptions(
        server=read_server_settings(values),
        view=view,
        streams=_named_streams(values, given),
        stream_pattern=values["streamPattern"],
        allow_missing=values["missingStream"] == "empty",
        starting_id=values["startingId"],
        starting_timestamp=values["startingTimestamp"],
        ending_id=values["endingId"],
        ending_timestamp=values["endingTimestamp"],
        fail_on_data_loss=values["failOnDataLoss"],
        columns=values["columns"],
        field_prefix=values["fieldPrefix"],
        computed=values["computed"] or (),
        mode=values["mode"],
        corrupt_column=values["columnNameOfCorruptRecord"],
        duplicate_fields=values["duplicateFields"],
        timestamp_unit=values["timestampUnit"],
        min_partitions=values["minPartitions"],
        entries_per_partition=values["entriesPerPartition"],
        page_size=values["pageSize"],
        batch_rows=values["batchRows"],
        max_entries_per_second=values["maxEntriesPerSecond"],
        pushdown=values["pushdown"],
        max_entries_per_trigger=values["maxEntriesPerTrigger"],
        exact_limit=values["limitMode"] == "exact",
        min_entries_per_trigger=values["minEntriesPerTrigger"],
        max_trigger_delay_ms=values["maxTriggerDelayMs"],
        progress_group=values["progressGroup"],
        group=values["group"],
        consumer=values["consumer"],
        min_idle_ms=values["minIdleMs"],
    )


def _named_streams(values: dict[str, Any], given: Mapping[str, str]) -> tuple[str, ...]:
    ways = ("stream", "streams", "streamPattern", "path", "paths")
    used = [name for name in ways if values[name] is not None]
    if len(used) != 1:
        written = [_written(name, given) for name in used]
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
    if used[0] in ("streams", "paths"):
        return tuple(values[used[0]])
    return () if used[0] == "streamPattern" else (values[used[0]],)


def _written(name: str, given: Mapping[str, str]) -> str:
    """The option's name, or that of Kafka when it was given by that one."""
    alias = _BY_NAME[name.lower()][1].kafka
    return alias.name if alias is not None and _find(given, name) is None else name


def _parse_values(given: Mapping[str, str], uses: set[Use]) -> dict[str, Any]:
    for name in given:
        if uses != {Use.WRITE} or name.lower() not in _OF_SPARK:
            _refuse_unknown(name, uses)
    lowered = {name.lower() for name in given}
    beside = [name for name in ("host", "port") if name in lowered]
    if "url" in lowered and beside:
        raise OptionError(f"options 'url' and '{beside[0]}' exclude each other: give one")
    return {option.name: _parse_value(option, given) for option in OPTIONS}


def _parse_value(option: Option, given: Mapping[str, str]) -> Any:
    text = _find(given, option.name)
    if option.kafka is not None:
        theirs = _find(given, option.kafka.name)
        if theirs is not None:
            return _parse_alias(option, option.kafka, theirs, text)
    text = option.default if text is None else text
    return None if text is None else _read(option, option.name, option.kind.read, text)


def _find(given: Mapping[str, str], name: str) -> str | None:
    # Spark's mapping finds a name in any case, but lists its names in lower case only.
    found = given.get(name, given.get(name.lower()))
    return None if found is None else str(found)


def _parse_alias(option: Option, alias: Alias, theirs: str, ours: str | None) -> Any:
    value = _read(option, alias.name, alias.kind.read, theirs)
    if ours is not None:
        own = _read(option, option.name, option.kind.read, ours)
        if own != value and str(own).lower() != str(value).lower():
            raise OptionError(
                f"options '{option.name}' ('{ours}') and '{alias.name}' ('{theirs}') are two names"
                " of one option and differ: give one of them"
            )
    return value


def _read(option: Option, name: str, read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        shown = "" if "password" in name.lower() else f" is '{text}' but"
        also = "" if name == option.name else f" Option '{option.name}' takes more:"
        raise OptionError(f"option '{name}'{shown} {error}.{also} {option.sentence}") from error


def _refuse_unknown(given: str, uses: set[Use]) -> None:
    name, option = _BY_NAME.get(given.lower(), (given, None))
    if option is None:
        raise OptionError(f"unknown option '{given}'{_nearest(given, uses)}")
    if not option.uses & uses:
        allowed = " and ".join(sorted(option.uses))
        raise OptionError(f"option '{name}' is for {allowed} only. {option.sentence}")


def _nearest(name: str, uses: set[Use]) -> str:
    alike = difflib.get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=0.6)
    if alike:
        return f": did you mean '{_BY_NAME[alike[0]][0]}'?"
    known = ", ".join(option.name for option in OPTIONS if option.uses & uses)
    return f"; there are {known}"


def _refuse_options_of_other_views(given: Mapping[str, str], view: View) -> None:
    for one in given:
        name, option = _BY_NAME[one.lower()]
        if view not in option.views:
            allowed = ", ".join(f"'{allowed}'" for allowed in sorted(option.views))
            raise OptionError(
                f"option '{name}' has no meaning for view '{view}', only for {allowed}"
            )


def _settle_moments(values: dict[str, Any]) -> None:
    """Times as milliseconds. Spark does not tell a Python data source the session's time zone."""
    for name in ("startingTimestamp", "endingTimestamp"):
        moment = values[name]
        if not isinstance(moment, datetime):
            continue
        if values["timeZone"] is None:
            raise OptionError(
                f"option '{name}' is '{moment}', which names no time zone: write it with one"
                f" ('{moment.isoformat()}Z' for UTC), or set option 'timeZone' to that of the"
                " session, spark.conf.get('spark.sql.session.timeZone')"
            )
        values[name] = milliseconds(moment.replace(tzinfo=values["timeZone"]))


def _refuse_what_excludes_another(values: dict[str, Any]) -> None:
    pairs = [("startingId", "startingTimestamp"), ("endingId", "endingTimestamp")]
    for one, other in pairs:
        if values[one] is not None and values[other] is not None:
            raise OptionError(f"options '{one}' and '{other}' exclude each other: give one")
    if values["columns"] is not None and values["duplicateFields"] == "keep":
        raise OptionError("option 'duplicateFields' is 'keep': a column of 'columns' has one value")
    least, most = values["minEntriesPerTrigger"], values["maxEntriesPerTrigger"]
    if least and most and least > most:
        raise OptionError(
            "option 'minEntriesPerTrigger' is larger than option 'maxEntriesPerTrigger'"
        )
