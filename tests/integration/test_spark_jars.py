"""The jars that audits need beside Spark's own, and what happens where they cannot be had."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from local_cluster.errors import LocalClusterError
from local_cluster.spark_jars import SparkJars, provide_spark_jars

DELTA = "io.delta_delta-storage-4.4.0.jar"
AWS = "org.apache.hadoop_hadoop-aws-3.5.0.jar"
CONTENTS = {DELTA: b"delta", AWS: b"aws"}
# Does what fetch_jars.py does: one argument with packages, one with a directory.
RESOLVER = """
import pathlib, sys
target = pathlib.Path(sys.argv[2])
target.mkdir()
for name, content in {contents!r}.items():
    (target / name).write_bytes(content)
print({said!r})
"""

pytestmark = pytest.mark.usefixtures("java")


@pytest.fixture
def jars(tmp_path: Path) -> SparkJars:
    spark = tmp_path / "spark"
    spark.mkdir()
    (spark / "hadoop-client-api-3.5.0.jar").write_bytes(b"of Spark")
    jars = SparkJars(
        digests={name: hashlib.sha256(data).hexdigest() for name, data in CONTENTS.items()},
        spark=spark,
        cache=tmp_path / "cache",
        program=tmp_path / "resolver.py",
        variables={"DEFAULT_ARTIFACT_REPOSITORY": "https://maven.example/"},
    )
    resolver(jars, CONTENTS)
    return jars


def resolver(jars: SparkJars, contents: dict[str, bytes], said: str = "") -> None:
    jars.program.write_text(RESOLVER.format(contents=contents, said=said))


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_they_are_downloaded_once(jars: SparkJars, tmp_path: Path) -> None:
    provide_spark_jars(jars)
    jars.program.unlink()
    (tmp_path / "other").mkdir()
    provide_spark_jars(replace(jars, spark=tmp_path / "other"))
    assert contents(tmp_path / "other") == CONTENTS


def test_what_is_not_listed_so_is_refused_and_not_kept(jars: SparkJars) -> None:
    resolver(jars, CONTENTS | {AWS: b"of somebody else"})
    with pytest.raises(LocalClusterError, match=f"1 of 2 .* such as {AWS}"):
        provide_spark_jars(jars)
    assert contents(jars.spark).keys() == {"hadoop-client-api-3.5.0.jar"}
    assert not jars.kept.exists()
