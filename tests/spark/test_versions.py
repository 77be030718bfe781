"""The data source in each version of PySpark, in classic sessions and in those of Spark Connect.

PELOPS_TEST_SPARK_VERSIONS selects versions, as in "4.0 4.1 4.2 4.3". Without it there are the
installed version, classic, and the oldest and the newest behind a server of Spark Connect.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

import pyspark_redis_streams
from local_cluster.processes import free_port
from tests.cached_parts import PartMissing
from tests.spark.streams import Streams
from tests.spark.versions import SELECTION, VERSIONS, provide_python, selected_versions

# The environments are made when they are first asked for.
pytestmark = [pytest.mark.full, pytest.mark.timeout(2400)]
RUN_S = 300.0
SCENARIO = Path(__file__).with_name("scenario.py")

ANSWERS = {
    "read_columns": [
        1000, 499_500, "499750.00", 1000, "2026-02-28 12:00:00", "Athens", 2,
        "2023-11-14 22:13:20",
    ],
    "read_fields": [1000, 499_500],
    "read_views": ["billing", 7, 993, "one", 7, 7, 1000, 1000],
    "stream_what_there_is": [[600, 1], [600, 1], [1000, 2], [1000, 1000]],
    "stream_what_comes": [50, 50],
    "stream_with_a_limit": [500, 3],
    "progress_of_a_stream": [50, [0]],
    "write_rows": [
        100,
        {
            "both": repr(b'{"a": 0, "b": [0]}'),
            "data": repr(b"\xff"),
            "number": repr(b"0"),
            "text": repr("é".encode()),
        },
        ["both", "data", "number"],
    ],
    "write_stream": [300, 600, 600],
}  # fmt: skip
WITHOUT_LIMITS = ("4.0", "4.1")


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A directory with the package and what it shares with the operator, and nothing else."""
    packages = tmp_path / "packages"
    source = Path(pyspark_redis_streams.__file__).parent
    shutil.copytree(source, packages / source.name)
    shared = source.parent / "pelops"
    for package in ("domain", "redis_core"):
        shutil.copytree(shared / package, packages / "pelops" / package)
    for module in ("__init__.py", "errors.py"):
        shutil.copy(shared / module, packages / "pelops")
    return packages


def run_scenario(
    python: str, alone: Path, streams: Streams, tmp_path: Path, **variables: str
) -> dict[str, Any]:
    """The answers of the scenario, run with this interpreter."""
    given = {"port": streams.port, "prefix": streams.prefix, "directory": str(tmp_path)}
    ended = subprocess.run(
        [python, str(SCENARIO), "run", json.dumps(given)],
        cwd=tmp_path,
        env=not_activated(PYTHONPATH=str(alone), **variables),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    answers: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answers


@contextmanager
def connect_server(python: str, alone: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a server of Spark Connect that ends with the block."""
    port = str(free_port())
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            [python, str(SCENARIO), "serve", port],
            cwd=tmp_path,
            env=not_activated(PYTHONPATH=str(alone)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        with server:
            assert server.stdin
            assert server.stdout
            ready = server.stdout.readline()
            assert ready == "ready\n", (tmp_path / "server.log").read_text()[-5000:]
            yield f"sc://127.0.0.1:{port}"
            server.stdin.close()


def not_activated(**variables: str) -> dict[str, str]:
    """The environment of a program whose virtual environment is not activated."""
    here = str(Path(sys.executable).parent)
    unset = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    path = [place for place in os.environ["PATH"].split(os.pathsep) if place != here]
    return environment | {"PATH": os.pathsep.join(path), "SPARK_LOCAL_IP": "127.0.0.1"} | variables


def check(version: str, answers: dict[str, Any]) -> None:
    wanted = dict(ANSWERS)
    if version in WITHOUT_LIMITS:
        refusal = answers.pop("stream_with_a_limit")
        assert refusal.startswith(
            "option 'maxEntriesPerTrigger' requires PySpark 4.2 or later, and"
        )
        assert f"this is {VERSIONS[version]}" in refusal
        del wanted["stream_with_a_limit"]
        # Spark shows where the micro-batch ends, which is then the end of the stream: without lag.
        wanted["progress_of_a_stream"] = [50, []]
    assert answers == wanted


@pytest.mark.usefixtures("java")
def test_the_installed_version(alone: Path, streams: Streams, tmp_path: Path) -> None:
    answers = run_scenario(sys.executable, alone, streams, tmp_path)
    check(pyspark.__version__.rpartition(".")[0], answers)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version that is selected."""
    if request.param not in selected_versions():
        pytest.skip(f"{SELECTION} does not name it")
    return str(request.param)


@pytest.fixture
def python(version: str) -> str:
    """The interpreter of an environment with this version."""
    try:
        return str(provide_python(version))
    except PartMissing as missing:
        pytest.skip(f"PySpark {version} cannot be had here: {missing}")


@pytest.mark.usefixtures("java")
@pytest.mark.skipif(SELECTION not in os.environ, reason=f"only with {SELECTION}")
def test_a_version(
    version: str, python: str, alone: Path, streams: Streams, tmp_path: Path
) -> None:
    check(version, run_scenario(python, alone, streams, tmp_path))


@pytest.mark.usefixtures("java")
def test_a_version_behind_spark_connect(
    version: str, python: str, alone: Path, streams: Streams, tmp_path: Path
) -> None:
    with connect_server(python, alone, tmp_path) as url:
        check(version, run_scenario(python, alone, streams, tmp_path, SPARK_REMOTE=url))
