"""What a worker reads from its environment, and how a process with wrong settings ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pelops.worker.engine.retries import Again, GivenUp, RetryPolicy, decide_settlement
from pelops.worker.outcomes import Reject, Retry
from pelops.worker.redaction import describe_failure
from pelops.worker.settings import WorkerSettings, WrongWorkerSettings, read_place
from pelops.worker.worker import Worker
from tests.operators import ROOT

REPORTED = {
    "PELOPS_REDIS_URL": "redis://127.0.0.1:1/0",
    "PELOPS_STREAM": "orders",
    "PELOPS_GROUP": "shipping",
}


def test_what_the_operator_injects_is_what_is_used() -> None:
    reported = {
        **REPORTED,
        "PELOPS_IDLE_LIMIT_MS": "300000",
        "PELOPS_MAX_RETRIES": "5",
        "PELOPS_BACKOFF_INITIAL_SECONDS": "20",
        "PELOPS_BACKOFF_FACTOR": "1.5",
        "PELOPS_BACKOFF_MAX_SECONDS": "40",
        "PELOPS_FIELD_PREFIX": "x_",
        "PELOPS_HEALTH_PORT": "8081",
        "PELOPS_HEALTH_HOST": "127.0.0.1",
    }
    place = read_place(reported)
    assert (place.keys.stream, place.keys.group) == ("orders", "shipping")
    assert place.keys.started == "{orders}:shipping:started"
    settings = Worker.from_env(reported, concurrency=7).settings
    assert settings.processing_timeout_ms == place.processing_timeout_ms == 300_000
    assert settings.retry == RetryPolicy(max_retries=5, initial_s=20, factor=1.5, max_s=40)
    assert (settings.field_prefix, settings.concurrency) == ("x_", 7)
    assert (settings.health_port, settings.health_host) == (8081, "127.0.0.1")


def test_without_an_operator_the_defaults_are_used() -> None:
    settings = WorkerSettings.from_env(REPORTED)
    assert settings.processing_timeout_ms == 30_000
    assert read_place(REPORTED).processing_timeout_ms == 30_000
    assert (settings.retry, settings.health_port) == (RetryPolicy(), None)
    at_once = WorkerSettings.from_env({**REPORTED, "PELOPS_BACKOFF_INITIAL_SECONDS": "0"})
    assert at_once.retry.wait_s(3) == 0


def test_the_consumer_is_named_by_a_variable_or_for_the_pod() -> None:
    assert read_place({**REPORTED, "PELOPS_CONSUMER": "web-1:uid"}).consumer == "web-1:uid"
    assert read_place({**REPORTED, "POD_NAME": "web-2", "POD_UID": "9a"}).consumer == "web-2:9a"
    assert read_place(REPORTED).consumer


@pytest.mark.parametrize(
    ("value", "deletes"),
    [("true", True), ("True", True), ("1", True), ("false", False), ("", False)],
)
def test_a_variable_says_whether_acknowledged_entries_are_deleted(
    value: str, deletes: bool
) -> None:
    environment = {**REPORTED, "PELOPS_DELETE_ACKNOWLEDGED": value}
    assert read_place(environment).deletes is deletes
    assert read_place(environment, deletes_acknowledged=not deletes).deletes is not deletes
    Worker.from_env(environment, deletes_acknowledged=False)


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("PELOPS_REDIS_URL", "", "is not set"),
        ("PELOPS_STREAM", "", "is not set"),
        ("PELOPS_GROUP", "", "is not set"),
        ("PELOPS_REDIS_URL", "http://nowhere", ""),
        ("PELOPS_REDIS_TLS", "true", "is set and PELOPS_REDIS_URL"),
        ("PELOPS_IDLE_LIMIT_MS", "soon", "is not a number"),
        ("PELOPS_IDLE_LIMIT_MS", "0", ""),
        ("PELOPS_MAX_RETRIES", "-1", ""),
        ("PELOPS_MAX_RETRIES", "1.5", ""),
        ("PELOPS_BACKOFF_INITIAL_SECONDS", "-1", ""),
        ("PELOPS_BACKOFF_FACTOR", "nan", ""),
        ("PELOPS_BACKOFF_MAX_SECONDS", "long", "is not a number"),
        ("PELOPS_CONCURRENCY", "many", "is not a number: set a number, or unset the variable"),
        ("PELOPS_CONCURRENCY", "0", "must be greater than or equal to 1"),
        ("PELOPS_GRACE_SECONDS", "nan", ""),
        ("PELOPS_TIMEOUT_SECONDS", "inf", ""),
        ("PELOPS_PREFETCH", "-1", ""),
        ("PELOPS_HEALTH_PORT", "http", "is not a number"),
        ("PELOPS_HEALTH_PORT", "65536", "less than or equal to 65535"),
        ("PELOPS_HEALTH_PORT", "-1", "greater than or equal to 0"),
        ("PELOPS_DELETE_ACKNOWLEDGED", "perhaps", "must be true or false"),
    ],
)
def test_a_variable_that_is_missing_or_wrong_is_named_with_its_remedy(
    variable: str, value: str, remedy: str
) -> None:
    with pytest.raises(WrongWorkerSettings, match=f"{variable}.*{remedy}") as wrong:
        Worker.from_env({**REPORTED, variable: value})
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_cannot_be_is_refused_as_an_option_too(port: int) -> None:
    with pytest.raises(WrongWorkerSettings, match="PELOPS_HEALTH_PORT"):
        WorkerSettings(health_port=port)


def test_the_password_is_not_shown() -> None:
    place = read_place({**REPORTED, "PELOPS_REDIS_PASSWORD": "hunter2"})
    assert "hunter2" not in repr(place)


def test_a_worker_without_a_handler_and_with_two_says_so() -> None:
    worker = Worker.from_env(REPORTED)
    worker.handler(lambda entry: None)
    with pytest.raises(WrongWorkerSettings):
        worker.handler(lambda entry: None)
    with pytest.raises(TypeError):
        Worker.from_env(REPORTED).handler(5)


@pytest.mark.parametrize(
    ("failures", "wait_s"), [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (5000, 300)]
)
def test_each_failure_doubles_the_wait_up_to_a_limit(failures: int, wait_s: float) -> None:
    assert RetryPolicy().wait_s(failures) == wait_s


def describe(error: BaseException) -> str:
    return describe_failure(error, (), None)


@pytest.mark.parametrize(
    ("outcome", "failures", "settlement"),
    [
        (None, 0, None),
        (ValueError("x"), 0, Again(wait_s=1.0, counts=True)),
        (ValueError("x"), 2, Again(wait_s=4.0, counts=True)),
        (ValueError("x"), 3, GivenUp(reason="HandlerFailed", error="ValueError: x")),
        (Retry(after=7), 1, Again(wait_s=7, counts=True)),
        (Retry(), 3, GivenUp(reason="HandlerFailed", error="Retry: retry")),
        (Retry(after=7, counts=False), 99, Again(wait_s=7, counts=False)),
        (Reject("Fraud", "x"), 0, GivenUp(reason="Fraud", error="x")),
        (SystemExit(1), 0, Again(wait_s=1.0, counts=True)),
    ],
)
def test_what_becomes_of_an_entry(outcome: object, failures: int, settlement: object) -> None:
    found = decide_settlement(outcome, failures, RetryPolicy(max_retries=3), describe)  # type: ignore[arg-type]
    assert found == settlement


def test_a_rejection_carries_the_error_that_led_to_it() -> None:
    try:
        try:
            raise ValueError("no such card")
        except ValueError as error:
            raise Reject("Card") from error
    except Reject as rejection:
        found = decide_settlement(rejection, 0, RetryPolicy(), describe)
    assert found == GivenUp(reason="Card", error="ValueError: no such card")


def test_each_part_of_redis_reaches_the_worker() -> None:
    sentinel = {
        "PELOPS_REDIS_SENTINEL_MASTER": "m",
        "PELOPS_REDIS_SENTINEL_NODES": "a:26379",
        "PELOPS_REDIS_SENTINEL_USERNAME": "guard",
        "PELOPS_REDIS_SENTINEL_PASSWORD": "hunter2",
        "PELOPS_REDIS_TLS": "true",
        "PELOPS_REDIS_TLS_SERVER_NAME": "redis.shop",
    }
    group = {"PELOPS_STREAM": "orders", "PELOPS_GROUP": "shipping"}
    endpoint = read_place({**group, **sentinel}).endpoint
    assert endpoint.sentinel is not None
    assert (endpoint.sentinel.username, endpoint.sentinel.password) == ("guard", "hunter2")
    assert (endpoint.tls, endpoint.server_name) == (True, "redis.shop")
    assert "hunter2" not in repr(endpoint)


# How a process ends.

WORKER = """
from pelops.worker import Worker
worker = Worker.from_env()

@worker.handler
async def handle(entry): ...

if __name__ == "__main__":
    worker.run()
"""


def _run(
    directory: Path, module: str, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    (directory / "orders.py").write_text(module)
    environment = {key: value for key, value in os.environ.items() if "PELOPS" not in key}
    paths = f"{ROOT / 'operator'}{os.pathsep}{directory}"
    return subprocess.run(
        [sys.executable, *(arguments or ("orders.py",))],
        env={**environment, **REPORTED, "PYTHONPATH": paths, **variables},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments", [("orders.py",), ("-m", "orders"), ("-c", "import orders; orders.worker.run()")]
)
def test_a_missing_variable_ends_the_process_with_a_line_that_names_it(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    ended = _run(tmp_path, WORKER, *arguments, PELOPS_STREAM="")
    remedy = "`pelops env` prints the variables that a worker requires"
    assert ended.stderr == f"pelops.worker: PELOPS_STREAM is not set; {remedy}\n"
    assert ended.returncode == 2


@pytest.mark.parametrize(
    "called",
    ["Producer.from_env()", "WorkerSettings.from_env()", "read_place()", "Worker.from_env()"],
)
def test_all_that_reads_the_environment_ends_so(tmp_path: Path, called: str) -> None:
    module = f"from pelops.worker import Producer, WorkerSettings, Worker, read_place\n{called}\n"
    ended = _run(tmp_path, module, PELOPS_STREAM="", PELOPS_IDLE_LIMIT_MS="x")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)


def test_who_catches_it_goes_on_and_other_errors_keep_their_traceback(tmp_path: Path) -> None:
    module = (
        "from pelops.worker import Worker\n"
        "try:\n    Worker.from_env()\nexcept Exception as error:\n    print(error)\n"
        "raise ValueError('of the application')\n"
    )
    ended = _run(tmp_path, module, PELOPS_GROUP="")
    assert "PELOPS_GROUP" in ended.stdout
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "ValueError: of the application" in ended.stderr


def test_an_event_loop_survives_it(tmp_path: Path) -> None:
    module = """
import asyncio
from pelops.worker import Worker

async def serve():
    return Worker.from_env()

async def main():
    (found,) = await asyncio.gather(asyncio.create_task(serve()), return_exceptions=True)
    print(type(found).__name__)

asyncio.run(main())
"""
    ended = _run(tmp_path, module, PELOPS_GROUP="")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "WrongWorkerSettings\n", "")


def test_an_excepthook_installed_before_still_gets_other_errors(tmp_path: Path) -> None:
    module = (
        "import sys\nfrom pelops.worker import Worker\n"
        "sys.excepthook = lambda *about: print('hooked', about[0].__name__)\n"
        "try:\n    Worker.from_env()\nexcept Exception:\n    pass\n"
        "raise ValueError\n"
    )
    ended = _run(tmp_path, module, PELOPS_GROUP="")
    assert (ended.returncode, ended.stdout) == (1, "hooked ValueError\n")


def test_a_health_port_in_use_ends_the_process_with_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        ended = _run(tmp_path, WORKER, PELOPS_HEALTH_PORT=port, PELOPS_HEALTH_HOST="127.0.0.1")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"PELOPS_HEALTH_PORT: cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "name a port that is free" in ended.stderr
