"""Options: what is not understood is refused with a sentence that helps."""

import pickle
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from pelops.pipeline.settings import read_place
from pelops.redis_core import Node
from pyspark_redis_streams.columns.schemas import default_schema
from pyspark_redis_streams.errors import OptionError
from pyspark_redis_streams.options.option import Use, View
from pyspark_redis_streams.options.parsed import (
    OPTIONS,
    ReadOptions,
    parse_read_options,
    parse_write_options,
)
from tools.spark_options import PAGE, describe_scope, main, render_page

ROOT = Path(__file__).parents[2]
DOCUMENTATION = ROOT / PAGE


def parse(use: Use = Use.READ, **given: str) -> ReadOptions:
    return parse_read_options(CaseInsensitiveDict({"stream": "orders"} | given), use)


def refusal(given: dict[str, str], use: Use = Use.READ) -> str:
    with pytest.raises(OptionError) as refused:
        parse(use, **given)
    return str(refused.value)


def test_options_are_found_in_any_case() -> None:
    assert parse(PAGESIZE="7").page_size == 7
    assert parse(pageSize="7").page_size == 7
    given = {"STREAM": "orders", "PAGESIZE": "7", "maxoffsetspertrigger": "5"}
    options = parse_read_options(given, Use.STREAM)
    assert (options.streams, options.page_size) == (("orders",), 7)
    assert options.max_entries_per_trigger == 5


def test_no_two_options_have_one_name() -> None:
    names = [name.lower() for option in OPTIONS for name in option.names]
    assert sorted(set(names)) == sorted(names)


def test_defaults_are_those_of_the_table() -> None:
    options = parse()
    assert (options.page_size, options.batch_rows) == (2000, 10_000)
    assert options.view is View.ENTRIES
    assert options.fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pagesise": "7"}, "unknown option 'pagesise': did you mean 'pageSize'?"),
        ({"pageSize": "many"}, "option 'pageSize' is 'many' but must be a whole number"),
        ({"pageSize": "0"}, "of at least 1"),
        ({"port": "70000"}, "option 'port' is '70000'"),
        ({"failOnDataLoss": "yes"}, "must be true or false"),
        ({"mode": "LOOSE"}, "must be one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"computed": "hash,size"}, "must be some of hash, bytes, separated"),
        ({"startingTimestamp": "soon"}, "must be milliseconds since 1970 or an ISO 8601 time"),
        ({"streams": "a,b"}, "both 'stream' and 'streams' are given"),
        ({"view": "pending"}, "option 'group' is missing"),
        ({"view": "groups", "startingId": "5"}, "has no meaning for view 'groups'"),
        ({"maxEntriesPerTrigger": "5"}, "is for readStream only"),
        ({"startingId": "5", "startingTimestamp": "5"}, "exclude each other"),
        ({"startingTimestamp": "2026-02-28T12:00"}, "names no time zone: write it with one"),
        ({"startingOffsetsByTimestamp": "5"}, "must be a JSON object that has a time for each"),
        ({"startingOffsetsByTimestamp": "{"}, "is not valid JSON"),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 5}}'},
            "each must be milliseconds since 1970 or an ISO 8601 time",
        ),
        ({"startingOffsetsByTimestamp": '{"orders": "2026-02-28"}'}, "names no time zone"),
        (
            {"startingOffsetsByTimestamp": '{"orders": 5}', "startingTimestamp": "5"},
            "'startingTimestamp' and 'startingOffsetsByTimestamp' exclude each other",
        ),
        ({"inferSchema": "true", "columns": "a INT"}, "exclude each other"),
        ({"inferSchema": "true", "binary": "true"}, "is for reads without 'inferSchema'"),
        ({"inferSchema": "true", "duplicateFields": "keep"}, "a column of 'inferSchema' has one"),
        ({"endingTimestamp": "2026-02-28"}, "or set option 'timeZone' to that of the session"),
        ({"startingTimestamp": "5", "timeZone": "Berlin"}, "must be a time zone, such as"),
        ({"pageSize": "0x10"}, "option 'pageSize' is '0x10' but must be a whole number"),
        ({"pageSize": "1_000"}, "option 'pageSize' is '1_000' but must be a whole number"),
        ({"startingOffsets": "5-0"}, "must be one of earliest, latest. Option 'startingId' takes"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, "must be one of earliest, latest"),
        ({"startingOffsets": "latest", "startingId": "earliest"}, "are two names of one option"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets' is 'earliest' but must be one of"),
        ({"maxOffsetsPerTrigger": "5"}, "option 'maxOffsetsPerTrigger' is for readStream only"),
        ({"subscribe": "a"}, "both 'stream' and 'subscribe' are given"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'?"),
        (
            {"view": "groups", "startingOffsets": "latest"},
            "option 'startingOffsets' has no meaning",
        ),
        ({"url": "http://x"}, "option 'url' must be redis://"),
        ({"url": "redis://x", "PORT": "1"}, "options 'url' and 'port' exclude each other"),
        ({"url": "redis://x:y"}, "option 'url' has no usable port"),
        ({"url": "redis://x:0"}, "port 0"),
        ({"url": "redis://[::1"}, "its host is malformed"),
        ({"url": "redis://x/²"}, "must end with a database number"),
        ({"topology": "sentinel", "sentinels": "a:b", "sentinelMaster": "m"}, "write HOST:PORT"),
        ({"url": "redis://"}, "it has no host"),
        ({"url": "redis://x/0?db=3"}, "it continues after the database"),
        ({"path": "a"}, "'path' is what `load` was given"),
        ({"startingTimestamp": "9" * 30}, "option 'startingTimestamp' is"),
        ({"passwordEnv": "A", "passwordFile": "B"}, "exclude each other"),
        ({"topology": "sentinel"}, "option 'sentinels' is missing"),
        ({"sentinels": "a:1"}, "option 'topology' is 'standalone'"),
        ({"topology": "cluster", "db": "1"}, "option 'db' must be 0"),
        ({"tlsCaFile": "ca.pem"}, "option 'tls' is false"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], words: str) -> None:
    assert words in refusal(given)


def test_a_time_before_1970_is_before_every_entry() -> None:
    assert parse(startingTimestamp="1960-01-01T00:00Z").starting_timestamp == 0
    assert parse(startingTimestamp="-5").starting_timestamp == 0


@pytest.mark.parametrize(
    ("zone", "hour"),
    [("UTC", 12), ("Z", 12), ("Europe/Berlin", 11), ("+01:00", 11), ("UTC-5", 17), ("GMT+0530", 6)],
)
def test_a_time_without_a_zone_is_in_that_of_the_option(zone: str, hour: int) -> None:
    minute = 30 if zone.endswith("30") else 0
    moment = int(datetime(2026, 2, 28, hour, minute, tzinfo=UTC).timestamp() * 1000)
    options = parse(startingTimestamp="2026-02-28 12:00", timeZone=zone)
    assert options.starting_timestamp == moment
    noon = int(datetime(2026, 2, 28, 12, tzinfo=UTC).timestamp() * 1000)
    assert parse(endingTimestamp="2026-02-28T12:00Z", timeZone=zone).ending_timestamp == noon


def test_each_stream_may_have_its_own_time_to_begin_at() -> None:
    times = '{"orders": "2026-02-28 12:00", "other": 5, "third": "-7"}'
    given = {"startingOffsetsByTimestamp": times, "timeZone": "Europe/Berlin"}
    noon = int(datetime(2026, 2, 28, 11, tzinfo=UTC).timestamp() * 1000)
    assert parse(Use.READ, **given).starting_times == {"orders": noon, "other": 5, "third": 0}


def test_executors_need_not_know_the_time_zone() -> None:
    options = parse(startingTimestamp="2026-02-28 12:00", timeZone="Europe/Berlin")
    assert b"ZoneInfo" not in pickle.dumps(options)


def test_a_time_within_a_millisecond_is_before_the_next_one() -> None:
    for text, ms in [("00:00:00.001", 1), ("00:00:00.001001", 2), ("00:00:00.000999", 1)]:
        assert parse(startingTimestamp=f"1970-01-01T{text}Z").starting_timestamp == ms
        assert parse(endingTimestamp=f"1970-01-01T{text}Z").ending_timestamp == ms


def test_names_of_kafka_mean_the_same() -> None:
    assert parse(startingOffsets="Latest").starting_id == "latest"
    assert parse(startingOffsets="latest", startingId="LATEST").starting_id == "latest"
    assert parse(endingOffsets="latest").ending_id == "latest"
    pace = {
        "maxOffsetsPerTrigger": "+7", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "15m",
        "maxTriggerDelayMs": "900000",
    }  # fmt: skip
    options = parse(Use.STREAM, **pace)
    assert (options.max_entries_per_trigger, options.min_entries_per_trigger) == (7, 5)
    assert options.max_trigger_delay_ms == 900_000
    assert parse_read_options({"subscribe": "a,b"}, Use.STREAM).streams == ("a", "b")


@pytest.mark.parametrize("text", ["abc", "5-", "-5", "(5"])
def test_an_id_to_trim_below_is_looked_at_before_anything_is_appended(text: str) -> None:
    with pytest.raises(OptionError, match=f"^option 'minId' is '{re.escape(text)}'"):
        parse_write_options(CaseInsensitiveDict({"stream": "orders", "minId": text}))
    for right in ("1700000000000", "1700000000000-3"):
        parse_write_options(CaseInsensitiveDict({"stream": "orders", "minId": right}))


def test_load_takes_a_list_of_streams() -> None:
    given = CaseInsensitiveDict({"paths": '["a","b"]'})
    assert parse_read_options(given, Use.READ).streams == ("a", "b")


def test_a_streaming_read_has_entries_only() -> None:
    assert "readStream has the view 'entries' only" in refusal({"view": "groups"}, Use.STREAM)


def test_no_stream_at_all_is_refused() -> None:
    with pytest.raises(OptionError, match="none is given; give exactly one"):
        parse_read_options({}, Use.READ)


def test_a_refused_password_is_not_shown() -> None:
    assert "hunter2" not in refusal({"password": "hunter2", "passwordEnv": "A"})
    assert "hunter2" not in refusal({"url": "http://me:hunter2@x"})
    assert "hunter2" not in refusal({"url": "redis://me:hunter2/b@x"})
    assert "hunter2" not in refusal({"url": "redis://me:123/hunter2@x"})
    assert "hunter2" not in repr(parse(password="hunter2"))
    assert "hunter2" not in repr(parse(url="redis://me:hunter2@x"))


def test_streams_may_be_a_json_list() -> None:
    given = {"streams": '["a,b", "c"]'}
    assert parse_read_options(given, Use.READ).streams == ("a,b", "c")


def test_a_url_says_what_the_parts_say() -> None:
    server = parse(url="rediss://me:p%40ss@example.org:7000/3").server
    assert (server.host, server.port, server.db, server.username) == ("example.org", 7000, 3, "me")
    assert server.secret.reveal() == "p@ss"
    assert server.tls


def test_nodes_are_written_as_for_the_operator() -> None:
    assert parse(url="valkeys://x").server.tls is not None
    assert (parse(url="redis://[::1]/2").server.host, parse(url="redis://[::1]").server.db) == (
        "::1", 0,
    )  # fmt: skip
    server = parse(sentinels="b,[::1]:5", sentinelMaster="m", topology="sentinel").server
    assert server.sentinels == (Node("b", 26379), Node("::1", 5))


def test_an_audit_passes_the_sentinels_on_as_they_are() -> None:
    reported = {
        "PELOPS_REDIS_SENTINEL_MASTER": "m", "PELOPS_REDIS_SENTINEL_NODES": "[::1]:5,b,[fd00::2]",
    }  # fmt: skip
    place = read_place(reported)
    assert place.endpoint.sentinel is not None
    assert parse(Use.READ, **place.options).server.sentinels == place.endpoint.sentinel.nodes


def test_a_password_is_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("from-file\n")
    monkeypatch.setenv("REDIS_PASSWORD", "from-env")
    assert parse(passwordFile=str(tmp_path / "secret")).server.secret.reveal() == "from-file"
    assert parse(passwordEnv="REDIS_PASSWORD").server.secret.reveal() == "from-env"
    with pytest.raises(OptionError, match="option 'passwordFile' names"):
        parse(passwordFile=str(tmp_path / "none")).server.secret.reveal()


def cells(row: str) -> tuple[str, ...]:
    """What is between the bars of a row of a Markdown table."""
    parts = re.split(r"(?<!\\)\|", row)[1:-1]
    return tuple(part.strip().replace("\\|", "|") for part in parts)


def test_the_documentation_lists_each_option_and_each_name_of_kafka() -> None:
    section = DOCUMENTATION.read_text().partition("\n## Options\n")[2].partition("\n## ")[0]
    rows = [cells(line) for line in section.splitlines() if line.startswith("| `")]
    documented = {row[0]: row[1:] for row in rows}
    for option in OPTIONS:
        default = "" if option.default is None else f"`{option.default}`"
        expected = (option.kind.name, default, describe_scope(option), option.meaning)
        assert documented.pop(f"`{option.name}`") == expected
        if option.kafka is not None:
            alias = documented.pop(f"`{option.kafka.name}`")
            assert alias == (f"`{option.name}`", option.kafka.kind.name)
    assert documented == {}


def test_the_tables_of_the_documentation_are_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check", "--root", str(ROOT)]) == 0, capsys.readouterr().out
    stale = tmp_path / PAGE
    assert main(["--write", "--root", str(tmp_path)]) == 0
    stale.write_text(stale.read_text().replace("| `2000` |", "| `1000` |"))
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "+| `pageSize` | whole number | `2000` | reads |" in capsys.readouterr().out


def test_only_the_tables_of_options_are_generated() -> None:
    page = DOCUMENTATION.read_text()
    stale = re.sub(r"(?m)^\| `pageSize` .*\n", "", page)
    assert stale != page
    assert render_page(stale) == page
    moved = [replace(option, section="Elsewhere") for option in OPTIONS]
    with pytest.raises(ValueError, match=r"the options are of .*'Elsewhere'"):
        render_page(page, moved)


@pytest.mark.parametrize(
    ("field", "scope"),
    [
        ("page_size", "reads"),
        ("columns", "reads of `entries`"),
        ("ending_id", "batch reads of `entries`"),
        ("exact_limit", "streaming reads"),
        ("group", "reads of `pending`, `groups`, `consumers`"),
        ("host", "reads, writes"),
        ("field_prefix", "reads of `entries`, writes"),
        ("max_len", "writes"),
    ],
)
def test_the_documentation_says_what_an_option_is_for(field: str, scope: str) -> None:
    assert describe_scope(OPTIONS[field]) == scope


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({}, "MAP<STRING, STRING>"),
        ({"binary": "true"}, "MAP<STRING, BINARY>"),
        ({"duplicateFields": "keep"}, "ARRAY<STRUCT<`name`: STRING, `value`: STRING>>"),
        ({"duplicateFields": "keep", "binary": "true"},
         "ARRAY<STRUCT<`name`: STRING, `value`: BINARY>>"),
    ],
)  # fmt: skip
def test_all_fields_are_texts_unless_bytes_are_asked_for(
    given: dict[str, str], fields: str
) -> None:
    options = parse_read_options({"stream": "orders"} | given, None)
    assert default_schema(options).endswith(f", `fields` {fields}")


def test_bytes_are_for_reads_without_declared_columns() -> None:
    with pytest.raises(OptionError, match="option 'binary' is for reads without 'columns'"):
        parse_read_options({"stream": "orders", "binary": "true", "columns": "a BINARY"}, None)
