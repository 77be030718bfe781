"""A program in a virtual environment that is not activated: Spark's `python3` is another Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.streams import Streams
from tests.spark.test_versions import RUN_S, not_activated

pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("java"),
    pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in a virtual environment"),
]

OPEN = """
from pyspark.sql import SparkSession
options = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=options).getOrCreate()
"""
READ = """
print(spark.read.format("redis_streams").option("port", PORT).load("STREAM").count())
"""


def run(program: str, streams: Streams, directory: Path) -> str:
    """What the program prints last, run where `python3` of PATH has no packages."""
    found = directory / "bin"
    found.mkdir()
    (found / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    text = program.replace("PORT", str(streams.port)).replace("STREAM", streams.name())
    environment = not_activated()
    ended = subprocess.run(
        [sys.executable, "-c", text],
        cwd=directory,
        env=environment | {"PATH": f"{found}:{environment['PATH']}"},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    return ended.stdout.splitlines()[-1]


@pytest.mark.full
def test_the_package_is_imported_before_the_session(streams: Streams, tmp_path: Path) -> None:
    streams.fill(30)
    program = "import pyspark_redis_streams" + OPEN + READ
    assert run(program, streams, tmp_path) == "30"


def test_the_session_came_first(streams: Streams, tmp_path: Path) -> None:
    """A warning says what to do, and doing it helps."""
    streams.fill(30)
    program = """
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import pyspark_redis_streams
[warning] = [w for w in told if "redis_streams" in str(w.message)]
assert "Call pyspark_redis_streams.register(spark)" in str(warning.message), warning.message
pyspark_redis_streams.register(spark)
assert spark.sparkContext.pythonExec == "python3", "other programs of the session stay as they are"
"""
    assert run(OPEN + program + READ, streams, tmp_path) == "30"
