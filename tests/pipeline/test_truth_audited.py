"""An audit of a group that went through everything says of every entry what it in truth became."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pelops.domain.audit import Evidence
from tests.pipeline.auditing_truth import audit_life

ENTRIES: Final = 6_000


@pytest.mark.timeout(900)
async def test_an_audit_is_true_with_files_and_honest_without(
    spark: SparkSession, tmp_path: Path
) -> None:
    compared = 0
    async for found in audit_life(spark, tmp_path, entries=ENTRIES, seed=11, size=400):
        compared += 1
        assert found.has_files == (found.summary.evidence is Evidence.AOF)
        assert found.wrong() == {}
        assert found.miscounted() == []
    assert compared == 2
