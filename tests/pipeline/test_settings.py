"""What a run is reported, and how it says no."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from pelops.domain.audit import AuditSummary, AuditVerdict
from pelops.pipeline import settings
from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.main import add_arguments, main
from pelops.pipeline.run import exit_code
from pelops.pipeline.settings import (
    ArchivedPayload,
    PipelineSettings,
    StatusTable,
    TableFormat,
    UserTable,
    read_settings,
)
from tests.audits import a_summary

ENVIRONMENT = {
    "PELOPS_REDIS_URL": "redis://redis:6379/1",
    "PELOPS_REDIS_USERNAME": "auditor",
    "PELOPS_REDIS_PASSWORD": "secret",
    "PELOPS_AUDIT_NAME": "shop/orders",
    "PELOPS_AUDIT_GROUPS": json.dumps(
        [{"stream": "orders", "group": "mail", "dead_letter": None, "stuck_after_ms": 5000}]
    ),
    "PELOPS_AUDIT_ARCHIVE": "s3a://bucket/prefix/",
    "PELOPS_AUDIT_PAYLOAD": "none",
    "PELOPS_AUDIT_WINDOW_SECONDS": "900",
    "PELOPS_AUDIT_FINDINGS_EXIT": "0",
}


def read(*arguments: str, **changes: str | None) -> PipelineSettings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    reported = {**ENVIRONMENT, **changes}
    return read_settings(
        parser.parse_args(arguments),
        {name: text for name, text in reported.items() if text is not None},
    )


def test_the_environment_that_the_operator_sets_is_understood() -> None:
    settings = read()
    (target,) = settings.targets
    assert (target.stream, target.group, target.stuck_after_ms) == ("orders", "mail", 5000)
    assert settings.archive == "s3a://bucket/prefix"
    assert (settings.payload, settings.findings_exit) == (ArchivedPayload.NONE, 0)
    assert settings.unproven_exit == 0
    assert settings.window is not None and settings.window.total_seconds() == 900


@pytest.mark.parametrize(
    ("arguments", "summaries", "code"),
    [
        ((), [], 0),
        ((), [a_summary()], 0),
        (("--require", "proven"), [a_summary()], 4),
        (
            ("--require", "proven"),
            [a_summary(acknowledged_proven=10, verdict=AuditVerdict.BALANCED)],
            0,
        ),
        ((), [a_summary(), a_summary(indeterminate=1, verdict=AuditVerdict.UNKNOWN)], 4),
        ((), [a_summary(indeterminate=1, verdict=AuditVerdict.UNKNOWN), a_summary(lost=1)], 3),
        ((), [a_summary(verdict=AuditVerdict.FAILING)], 3),
    ],
)
def test_the_exit_code_reports_balanced_from_unknown_from_findings(
    arguments: tuple[str, ...], summaries: list[AuditSummary], code: int
) -> None:
    by_hand = read(*arguments, PELOPS_AUDIT_FINDINGS_EXIT=None)
    assert exit_code(by_hand, summaries) == code
    assert exit_code(read(*arguments), summaries) == 0


def test_no_password_reaches_the_plans_of_spark() -> None:
    options = read().place.options
    assert options["passwordEnv"] == "PELOPS_REDIS_PASSWORD"
    assert "secret" not in options.values()


def test_arguments_win_over_variables() -> None:
    settings = read("--stream", "s", "--group", "a", "--group", "b", "--stuck-after-seconds", "7")
    assert [(one.group, one.stuck_after_ms) for one in settings.targets] == [
        ("a", 7000),
        ("b", 7000),
    ]


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"PELOPS_AUDIT_GROUPS": "["}, "PELOPS_AUDIT_GROUPS"),
        ({"PELOPS_AUDIT_GROUPS": '[{"stream": "s"}]'}, "PELOPS_AUDIT_GROUPS"),
        ({"PELOPS_AUDIT_GROUPS": None}, "nothing to audit"),
        ({"PELOPS_AUDIT_PAYLOAD": "some"}, "PELOPS_AUDIT_PAYLOAD"),
        ({"PELOPS_AUDIT_ARCHIVE": None}, "PELOPS_AUDIT_ARCHIVE"),
        ({"PELOPS_AUDIT_ARCHIVE": " "}, "no archive: give --archive PATH"),
        ({"PELOPS_AUDIT_ARCHIVE": "s3a://"}, "archive s3a:// has no path behind its scheme"),
        ({"PELOPS_AUDIT_ARCHIVE": "file:"}, "archive file: has no path behind its scheme"),
        ({"PELOPS_AUDIT_WINDOW_SECONDS": "-1"}, "PELOPS_AUDIT_WINDOW_SECONDS"),
        ({"PELOPS_AUDIT_NAME": "a b"}, "PELOPS_AUDIT_NAME"),
        ({"PELOPS_REDIS_URL": "http://x"}, "PELOPS_REDIS"),
        ({"PELOPS_REDIS_URL": None}, "give --redis-url redis://host:port/db"),
        ({"PELOPS_AUDIT_STATUSES_FORMAT": "orc"}, "must be one of parquet, delta, iceberg"),
        ({"PELOPS_AUDIT_STATUSES_FORMAT": "delta"}, "needs --statuses-table"),
        ({"PELOPS_AUDIT_STATUSES_TABLE": "a.b"}, "needs --statuses-format"),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, str | None], reported: str) -> None:
    with pytest.raises(WrongPipelineSettings, match=reported):
        read(**changes)


def test_credentials_do_not_stand_in_the_list_of_processes() -> None:
    for url in ("redis://me:sesame@localhost/0", "rediss://:sesame@localhost"):
        with pytest.raises(WrongPipelineSettings, match="PELOPS_REDIS_PASSWORD") as refused:
            read("--redis-url", url)
        assert "sesame" not in str(refused.value)


def test_an_argument_that_cannot_be_used_is_named_as_it_was_given() -> None:
    with pytest.raises(WrongPipelineSettings, match=r"^--redis-url: .* rediss://host"):
        read("--redis-url", "localhost:6379")
    table = ("--business-key", "order", "--table-format", "jdbc")
    with pytest.raises(WrongPipelineSettings, match=r"write jdbc:\.\.\.#TABLE"):
        read("--sent", "jdbc:postgresql://db/shop", *table)


def test_statuses_go_to_the_table_that_is_named() -> None:
    assert read().status_table is None
    assert read("--statuses-format", "parquet").status_table is None
    chosen = ("--statuses-format", "iceberg", "--statuses-table")
    table = StatusTable(format=TableFormat.ICEBERG, name="lake.shop.statuses")
    assert read(*chosen, "lake.shop.statuses").status_table == table
    with pytest.raises(WrongPipelineSettings, match=r"is a path; .* CATALOG\.DATABASE\.TABLE"):
        read(*chosen, "/lake/statuses")


def test_a_database_is_reported_without_its_password() -> None:
    url = "jdbc:postgresql://me:hunter2@db/shop?password=hunter2#sent"
    table = read("--sent", url, "--business-key", "order", "--table-format", "jdbc").sent
    assert table is not None
    assert table.shown == "sent of db/shop"
    assert UserTable(path="jdbc:derby:/data/shop;password=x#s", format="jdbc").shown == (
        "s of jdbc:derby:/data/shop"
    )


@pytest.mark.parametrize("command", ["archive", "audit", "report", "triage"])
def test_help_names_every_variable_that_is_read(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    source = Path(settings.__file__).read_text()
    variables = set(re.findall(r'"(PELOPS_\w+)"', source))
    assert {name for name in variables if name not in text} == set()


def test_a_choice_is_reported_in_the_words_that_can_be_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["audit", "--payload", "all"])
    assert "(choose from 'none', 'hash', 'full')" in capsys.readouterr().err.replace(
        "none, hash, full", "'none', 'hash', 'full'"
    )


def test_bad_settings_end_with_their_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PELOPS_AUDIT_GROUPS", raising=False)
    assert main(["audit", "--archive", "/nowhere"]) == 2


@pytest.mark.parametrize(
    ("variables", "arguments", "reported"),
    [
        ({"SPARK_REMOTE": "sc://spark"}, (), "SPARK_REMOTE names a server of Spark Connect"),
        ({"SPARK_CONNECT_MODE_ENABLED": "1"}, (), "this program has a session of Spark Connect"),
        ({}, ("--master", "sc://spark"), "--master sc://spark names a server of Spark Connect"),
    ],
)
def test_spark_connect_is_refused_before_java_starts(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: dict[str, str],
    arguments: tuple[str, ...],
    reported: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PELOPS_REDIS_URL", "redis://redis:6379/0")
    wanted = ["--stream", "orders", "--group", "mail", "--archive", "/nowhere", *arguments]
    assert main(["report", *wanted]) == settings.UNUSABLE
    assert reported in caplog.text
    assert "needs a classic session" in caplog.text


def test_each_part_of_redis_reaches_the_data_source() -> None:
    reported = {
        "PELOPS_REDIS_SENTINEL_MASTER": "m",
        "PELOPS_REDIS_SENTINEL_NODES": "a:26379",
        "PELOPS_REDIS_SENTINEL_USERNAME": "guard",
        "PELOPS_REDIS_SENTINEL_PASSWORD": "hunter2",
        "PELOPS_REDIS_TLS": "true",
        "PELOPS_REDIS_TLS_SERVER_NAME": "redis.shop",
        "PELOPS_REDIS_HOSTS": "a",
    }
    place = settings.read_place(reported)
    assert place.endpoint.sentinel is not None
    assert place.endpoint.sentinel.password == "hunter2"
    assert place.options["sentinelUsername"] == "guard"
    assert place.options["sentinelPasswordEnv"] == "PELOPS_REDIS_SENTINEL_PASSWORD"
    assert (place.options["tls"], place.options["tlsServerName"]) == ("true", "redis.shop")
    assert place.options["credentialHosts"] == "a"
    assert "hunter2" not in str(place.options)
