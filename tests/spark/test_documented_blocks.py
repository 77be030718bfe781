"""The blocks of the pages on Spark run as they stand, against a real Redis.

Only addresses and paths are replaced, by those of the test. Streams lie in a database of their own,
so that they have the names of the pages.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from pyspark.sql import SparkSession

from local_cluster.redis_servers import RedisServers
from tests.cached_parts import PartMissing
from tests.docs_pages import ROOT, read_blocks
from tests.spark.test_versions import connect_server, not_activated
from tests.spark.versions import VERSIONS, provide_python

HERE: Final = Path(__file__).relative_to(ROOT).as_posix()
FIRST_STEPS, REFERENCE = "docs/spark/index.md", "docs/spark/data-source.md"
CONNECT: Final = "sc://localhost:15002"
TABLES: Final = ("orders", "orders_since_noon")
ORDER: Final[dict[Any, Any]] = {
    "order_id": "a-1", "amount": "12.50", "paid": "true", "address": '{"city": "Athens"}',
}  # fmt: skip

_URL: Final = re.compile(r"redis://(localhost|127\.0\.0\.1):6379")
_PLACES: Final = re.compile(
    r'(?P<call>"path", |"checkpointLocation", |parquet\()"(?:/data/)?(?P<name>[\w-]+)"'
)
_VARYING: Final = re.compile(r"[0-9]{13}-[0-9]|20[0-9-]{8} [0-9:.]+|-{2,}| +")


def list_codes(page: str, *languages: str) -> list[str]:
    """The blocks of a page that say that they are run here."""
    blocks = read_blocks(page, (ROOT / page).read_text("utf-8"))
    return [block.code for block in blocks if block.run_by == HERE and block.language in languages]


class Desk:
    """A database for the streams of a page, and a directory for its files."""

    def __init__(self, servers: RedisServers, database: int, directory: Path) -> None:
        port = servers.master().port
        self.client = redis.Redis(port=port, db=database, decode_responses=True)
        self._url = f"redis://127.0.0.1:{port}/{database}"
        self._directory = directory

    def place(self, code: str) -> str:
        """The code with the addresses and paths of this desk."""
        placed = _PLACES.sub(rf'\g<call>"{self._directory}/\g<name>"', code)
        return _URL.sub(self._url, placed)

    def type(self, commands: str) -> None:
        """Run lines of redis-cli."""
        for line in commands.splitlines():
            program, *words = shlex.split(line)
            assert program == "redis-cli"
            execute: Any = self.client.execute_command
            execute(*words)

    def run(self, code: str, names: dict[str, Any]) -> None:
        exec(compile(self.place(code), "a block", "exec"), names)


@contextmanager
def desk(servers: RedisServers, database: int, directory: Path) -> Iterator[Desk]:
    desk = Desk(servers, database, directory)
    desk.client.flushdb()
    yield desk
    desk.client.flushdb()
    desk.client.close()


def test_every_block_on_spark_is_run_or_gives_a_reason() -> None:
    runnable = {"python", "sql"}
    for page in (FIRST_STEPS, REFERENCE):
        blocks = read_blocks(page, (ROOT / page).read_text("utf-8"))
        assert [
            str(block) for block in blocks if block.language in runnable and not block.run_by
        ] == []


@pytest.mark.full
def test_the_first_steps(
    spark: SparkSession, redis_86: RedisServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with desk(redis_86, 7, tmp_path) as here:
        [commands] = list_codes(FIRST_STEPS, "sh")
        here.type(commands)
        program, archive = list_codes(FIRST_STEPS, "python")
        here.run(program, {})
        [shown] = list_codes(FIRST_STEPS, "console")
        wanted = shown.partition("\n")[2]
        assert _VARYING.sub("", capsys.readouterr().out).split() == _VARYING.sub("", wanted).split()
        for _ in range(2):
            here.run(archive, {})
            assert capsys.readouterr().out == "3 entries archived\n"


class Gauge:
    """As that of a metrics library."""

    def labels(self, **_: str) -> Gauge:
        return self

    def set(self, value: float) -> None:
        """Keep nothing."""


@pytest.mark.full
def test_the_blocks_of_the_reference(
    spark: SparkSession, redis_86: RedisServers, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"spark": spark, "gauge": Gauge()}
    with desk(redis_86, 8, tmp_path) as here:
        for paid in ("true", "false", "true"):
            here.client.xadd("orders", ORDER | {"paid": paid})
            here.client.xadd("orders:eu", ORDER)
        here.client.xgroup_create("orders", "billing", "0")
        here.client.xreadgroup("billing", "one", {"orders": ">"})
        try:
            for code in list_codes(REFERENCE, "python"):
                if CONNECT not in code:
                    here.run(code, names)
            assert names["query"].awaitTermination(60)
        finally:
            spark.streams.removeListener(names["listener"])
        [group] = here.client.xinfo_groups("orders:eu")
        assert (group["name"], group["lag"]) == ("spark-archive", 0)
        assert spark.read.parquet(str(tmp_path / "orders")).count() == 3
        assert (names["pending"].count(), names["stuck"].count()) == (3, 0)
        assert names["frame"].count() == 3
        paid_orders: Any = here.client.xrange("orders-paid")
        assert [fields for _, fields in paid_orders] == [{"order_id": "a-1", "amount": "12.50"}] * 2
        assert here.client.xrange("orders-replayed") == here.client.xrange("orders")


@pytest.mark.full
def test_the_tables_of_the_reference(
    spark: SparkSession, redis_86: RedisServers, tmp_path: Path
) -> None:
    [code] = list_codes(REFERENCE, "sql")
    with desk(redis_86, 9, tmp_path) as here:
        here.client.xadd("orders", ORDER, id="1700000000000-0")
        here.client.xadd("orders", ORDER)
        try:
            statements = [one for one in here.place(code).split(";") if one.strip()]
            answers = [spark.sql(statement).collect() for statement in statements]
            assert [row for rows in answers for row in rows] == [(12.5,)]
            entries: Any = here.client.xrange("orders")
            assert entries[-1][1] == {"order_id": "a-17", "amount": "12.5"}
        finally:
            for table in TABLES:
                spark.sql(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.full
@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("java")
def test_the_block_on_spark_connect(redis_86: RedisServers, tmp_path: Path) -> None:
    [code] = [code for code in list_codes(REFERENCE, "python") if CONNECT in code]
    packages = ROOT / "operator"
    try:
        python = str(provide_python([*VERSIONS][-1]))
    except PartMissing as missing:
        pytest.skip(f"PySpark cannot be had here: {missing}")
    with desk(redis_86, 10, tmp_path) as here:
        here.client.xadd("orders", ORDER)
        with connect_server(python, packages, tmp_path) as url:
            ended = subprocess.run(
                [python, "-c", here.place(code).replace(CONNECT, url)],
                env=not_activated(PYTHONPATH=str(packages)),
                capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-5000:]
    assert "|       12.5|" in ended.stdout
