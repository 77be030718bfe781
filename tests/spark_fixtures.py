"""One Spark session for all tests that need one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = Path(__file__).parents[1] / "operator"


@pytest.fixture(scope="session")
def spark(java: Path) -> Iterator[SparkSession]:
    """A small local Spark that finds the data source by itself, as an installed one is found."""
    # Here, since most tests need no Spark.
    from tests.spark.driver import build_session

    path = os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = build_session()
        yield session
        session.stop()
