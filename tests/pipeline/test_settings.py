"""The settings of a run, and how wrong ones are refused."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from pelops.domain.records.audit import AuditSummary, AuditVerdict
from pelops.pipeline import session, settings
from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.main import add_arguments, main
from pelops.pipeline.run import exit_code
from pelops.pipeline.session import LONG_RUN, choose_cores, session_options
from pelops.pipeline.settings import (
    ArchivedPayload,
    PipelineSettings,
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
    variables = {name: text for name, text in reported.items() if text is not None}
    with patch.dict(os.environ, variables):
        return read_settings(parser.parse_args(arguments))


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
def test_the_exit_code_distinguishes_balanced_unknown_and_findings(
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


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int, str], None]:
    """A machine with so many cores, and a file that limits a container to some of them."""

    def limit(there: int, limits: str) -> None:
        file = tmp_path / "cpu.max"
        file.write_text(limits)
        monkeypatch.setattr(session, "_CPU_LIMIT", file)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(there)))
        monkeypatch.setattr(os, "cpu_count", lambda: there)

    return limit


@pytest.mark.parametrize(
    ("there", "limits", "memory_mib", "chosen"),
    [
        (8, "max 100000\n", None, 8),  # a container without a limit
        (8, "200000 100000\n", None, 2),
        (8, "150000 100000\n", None, 2),  # a part of a core counts as one
        (8, "10000 100000\n", None, 1),
        (2, "400000 100000\n", None, 2),
        (8, "no limit at all\n", None, 8),
        (8, "max 100000\n", 4096, 8),
        (8, "max 100000\n", 2048, 3),  # 400 MiB, a heap of 512 MiB, and 300 MiB for each core
        (8, "max 100000\n", 1024, 1),
        (8, "max 100000\n", 100, 1),
    ],
)
def test_cores_are_those_of_the_cpu_limit_while_the_memory_suffices(
    cores: Callable[[int, str], None],
    there: int,
    limits: str,
    memory_mib: int | None,
    chosen: int,
) -> None:
    cores(there, limits)
    reported = None if memory_mib is None else str(memory_mib)
    settings = read(PELOPS_AUDIT_MEMORY_MIB=reported)
    assert choose_cores(settings) == chosen
    assert session_options(settings)["spark.master"] == f"local[{chosen}, 3]"


def test_without_control_groups_every_core_counts(
    cores: Callable[[int, str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cores(6, "")
    monkeypatch.setattr(session, "_CPU_LIMIT", tmp_path / "none")
    assert choose_cores(read()) == 6


@pytest.mark.parametrize(
    ("memory_mib", "cores_there", "heap"),
    [("4096", 2, "3096m"), ("2048", 2, "1048m"), ("1024", 2, "512m"), ("300", 1, "512m")],
)
def test_the_heap_is_what_the_driver_and_the_workers_leave(
    cores: Callable[[int, str], None], memory_mib: str, cores_there: int, heap: str
) -> None:
    cores(cores_there, "max 100000\n")
    options = session_options(read(PELOPS_AUDIT_MEMORY_MIB=memory_mib))
    assert options["spark.driver.memory"] == heap
    assert "spark.driver.memory" not in session_options(read())


def test_a_master_that_is_given_stays_and_no_local_address_is_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = session_options(read("--master", "spark://there:7077"))
    assert options["spark.master"] == "spark://there:7077"
    assert "spark.driver.bindAddress" not in options
    assert session_options(read())["spark.driver.bindAddress"] == "127.0.0.1"
    # spark-submit has chosen a master, and options of Java.
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    submitted = session_options(read(), entries=1)
    assert "spark.master" not in submitted
    assert "TieredStopAtLevel" not in submitted.get("spark.driver.extraJavaOptions", "")


def test_a_short_run_starts_a_java_that_is_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    of_java = "spark.driver.extraJavaOptions"
    short = session_options(read(), entries=1000)[of_java]
    assert short == "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir=/var/tmp"
    assert session_options(read(), entries=LONG_RUN + 1)[of_java] == "-Djava.io.tmpdir=/var/tmp"
    # Options of Java that are given already are not replaced.
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.driver.memory=1g pyspark-shell")
    assert session_options(read(), entries=1000)[of_java] == "-Djava.io.tmpdir=/var/tmp"


@pytest.mark.parametrize(
    ("variables", "region"),
    [
        ({}, None),
        ({"PELOPS_AUDIT_S3_REGION": "eu-west-1"}, "eu-west-1"),
        ({"PELOPS_AUDIT_S3_ENDPOINT": "http://store:9000"}, "us-east-1"),
        (
            {"PELOPS_AUDIT_S3_ENDPOINT": "http://store:9000", "PELOPS_AUDIT_S3_REGION": "here"},
            "here",
        ),
    ],
)
def test_an_object_store_is_asked_in_its_region(
    variables: dict[str, str], region: str | None
) -> None:
    options = session_options(read(**variables))
    assert options.get("spark.hadoop.fs.s3a.endpoint.region") == region
    endpoint = variables.get("PELOPS_AUDIT_S3_ENDPOINT")
    assert options.get("spark.hadoop.fs.s3a.endpoint") == endpoint


def test_sessions_can_write_tables_and_run_each_query_as_one_job() -> None:
    options = session_options(read())
    assert options["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert options["spark.sql.session.timeZone"] == "UTC"
    assert options["spark.sql.adaptive.enabled"] == "false"
