"""Java, and the jars of audits, for the tests of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster.errors import LocalClusterError
from local_cluster.java import require_java
from local_cluster.spark_jars import provide_spark_jars


@pytest.fixture(scope="session")
def java() -> Iterator[Path]:
    """The home of a Java that is new enough, also for programs that a test starts; skips without.

    `make test` provides one where it may.
    """
    try:
        home = require_java()
    except LocalClusterError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(home))
        yield home


@pytest.fixture(scope="session")
def spark_jars(java: Path) -> None:
    """Delta Lake and what s3a:// needs, among Spark's jars; skips where they cannot be had."""
    try:
        provide_spark_jars()
    except LocalClusterError as error:
        pytest.skip(str(error))
