"""What the source does where PySpark misses a method, called as those versions call it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_redis_streams import DefaultSource, spark_versions
from pyspark_redis_streams.errors import OptionError
from tests.spark.streams import FIRST_MS, Streams

SCHEMA = StructType([StructField("id", StringType()), StructField("number", LongType())])
PACKAGES = Path(__file__).parents[2] / "operator"


def open_reader(streams: Streams, **options: str) -> Any:
    given = streams.options | {"path": streams.name(), "startingId": "earliest"} | options
    return DefaultSource(CaseInsensitiveDict(given)).streamReader(SCHEMA)


def rows(reader: Any, start: Any, end: Any) -> int:
    parts = reader.partitions(start, end)
    return sum(batch.num_rows for part in parts for batch in reader.read(part))


def test_before_4_2_a_micro_batch_ends_with_the_stream(streams: Streams) -> None:
    streams.fill(50)
    reader = open_reader(streams)
    first = reader.latestOffset()  # Spark asks for it before it asks where the query begins
    assert rows(reader, reader.initialOffset(), first) == 50
    assert reader.latestOffset() == first, "anything else would be a micro-batch of nothing"
    streams.fill(20, first_ms=FIRST_MS + 1000)
    second = reader.latestOffset()
    assert rows(reader, first, second) == 20


def test_before_4_2_a_query_that_is_started_again_has_nothing_new(streams: Streams) -> None:
    streams.fill(50)
    end = open_reader(streams).latestOffset()
    streams.add({"n": 1}, ids=[f"{FIRST_MS + 5000}-0"])
    streams.client.xdel(streams.name(), f"{FIRST_MS + 5000}-0")
    again = open_reader(streams)
    # This is how Spark passes the end of the last micro-batch, planned or finished.
    reached = open_reader(streams).latestOffset()
    assert again.partitions(reached, reached) == []
    assert again.latestOffset() == reached
    assert rows(again, end, reached) == 0


def test_a_4_2_checkpoint_is_continued_without_rereading_its_micro_batch(streams: Streams) -> None:
    """The checkpoint of a newer PySpark, in which `since` is the beginning of the first one."""
    streams.fill(50)
    reader = open_reader(streams)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert "since" in end[streams.name()]
    older = open_reader(streams)
    assert older.partitions(end, end) == []
    assert older.latestOffset() == end
    streams.fill(20, first_ms=FIRST_MS + 1000)
    assert rows(older, end, older.latestOffset()) == 20


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("maxEntriesPerTrigger", "5"),
        ("minEntriesPerTrigger", "5"),
        ("progressGroup", "spark"),
    ],
)
def test_before_4_2_options_that_need_a_batch_start_are_refused(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, option: str, value: str
) -> None:
    monkeypatch.setattr(spark_versions, "HAS_LIMITS", False)
    with pytest.raises(OptionError, match=f"option '{option}' requires PySpark 4.2 or later"):
        open_reader(streams, **{option: value}).latestOffset()


def test_before_4_0_the_package_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.9"\n')
    (tmp_path / "pyspark" / "sql" / "__init__.py").touch()
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(PACKAGES)!r}]\n"
    ended = subprocess.run(
        [sys.executable, "-c", program + "import pyspark_redis_streams"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImportError: pyspark_redis_streams needs PySpark 4.0 or later, and this is 3.5.9" in (
        ended.stderr
    )
