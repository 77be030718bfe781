"""How a process with wrong settings ends, and that a caller who catches the error continues."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from pelops.worker import Worker, WorkerSettings, WrongWorkerSettings, read_place

ROOT: Final = Path(__file__).parents[2]
REPORTED: Final = {
    "PELOPS_REDIS_URL": "redis://127.0.0.1:1/0",
    "PELOPS_STREAM": "orders",
    "PELOPS_GROUP": "shipping",
}
WORKER: Final = """
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
    assert ended.returncode == 2
    message = (
        "pelops.worker: PELOPS_STREAM is not set; `pelops env` prints the variables that a worker "
        "requires\n"
    )
    assert ended.stderr == message


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("PELOPS_CONCURRENCY", "many", "is not a number: set a number, or unset the variable"),
        ("PELOPS_CONCURRENCY", "0", "must be greater than or equal to 1"),
        ("PELOPS_HEALTH_PORT", "65536", "less than or equal to 65535"),
        ("PELOPS_HEALTH_PORT", "-1", "greater than or equal to 0"),
        ("PELOPS_DELETE_ACKNOWLEDGED", "perhaps", "must be true or false"),
        ("PELOPS_REDIS_URL", "http://nowhere", "PELOPS_REDIS_URL"),
    ],
)
def test_an_invalid_variable_ends_the_process_with_a_remedy_in_one_line(
    tmp_path: Path, variable: str, value: str, remedy: str
) -> None:
    ended = _run(tmp_path, WORKER, **{variable: value})
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert variable in ended.stderr
    assert remedy in ended.stderr


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


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_cannot_be_is_refused_as_an_option_too(port: int) -> None:
    with pytest.raises(WrongWorkerSettings, match="PELOPS_HEALTH_PORT"):
        WorkerSettings(health_port=port)


@pytest.mark.parametrize(
    ("message", "deletes"),
    [("true", True), ("True", True), ("1", True), ("false", False), ("", False)],
)
def test_a_variable_says_whether_what_is_acknowledged_is_deleted(
    message: str, deletes: bool
) -> None:
    environment = {**REPORTED, "PELOPS_DELETE_ACKNOWLEDGED": message}
    assert read_place(environment).deletes is deletes
    assert read_place(environment, deletes_acknowledged=not deletes).deletes is not deletes
    Worker.from_env(environment, deletes_acknowledged=False)


def test_a_handler_class_is_made_once() -> None:
    from pelops.worker.testing import MemoryGroup

    made = []

    class Shipping:
        def __init__(self) -> None:
            made.append(self)

        async def handle(self, entry: object) -> None:
            assert made == [self]

    group = MemoryGroup()
    group.add({"n": "1"})
    worker = group.worker()
    worker.handler(Shipping)
    assert group.run(worker).exit_code == 0
    assert len(made) == 1
    assert len(group.acknowledged) == 1
