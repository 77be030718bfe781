"""Logs for machines and for people."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from pelops.logs import LogFormat, configure_logging


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(log_format: LogFormat, capsys: pytest.CaptureFixture[str], level: str = "info") -> str:
    configure_logging(log_format, level)
    configure_logging(log_format, level)  # repeats safely: one line each, not two
    log = logging.getLogger("pelops.test")
    log.info("creating the group", extra={"resource": "shop/orders"})
    log.debug("a detail")
    return capsys.readouterr().err


def test_a_machine_reads_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = json.loads(logged("json", capsys))
    assert line.pop("timestamp")
    assert line == {
        "level": "INFO",
        "logger": "pelops.test",
        "message": "creating the group",
        "resource": "shop/orders",
    }


def test_a_person_reads_one_line_with_all_that_was_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = logged("console", capsys)
    assert line.endswith("INFO    pelops.test: creating the group [resource=shop/orders]\n")


def test_details_are_logged_at_level_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert "a detail" not in logged("console", capsys)
    assert "a detail" in logged("console", capsys, level="debug")


def test_an_exception_is_logged_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "INFO")
    try:
        raise ValueError("no such thing")
    except ValueError:
        logging.getLogger("pelops.test").exception("the turn broke")
    line = json.loads(capsys.readouterr().err)
    assert "ValueError: no such thing" in line["exc_info"]


def test_kopf_reports_only_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("console", "DEBUG")
    logging.getLogger("kopf.objects").info("an event")
    assert capsys.readouterr().err == ""


def test_an_error_of_kopf_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("console", "info")
    try:
        raise ValueError("too old")
    except ValueError as error:
        logging.getLogger("kopf.reactor").exception("Watcher for pods has failed: %s", error)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("Watcher for pods has failed: too old")
