"""An audit of a group that went through everything says of every entry what it in truth became."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditEvidence
from tests.pipeline.auditing_truth import Compared, audit_life

# The promised number: 130 CPU-seconds. `python -m tests.pipeline.auditing_truth` shows more.
PROMISED: Final = int(os.environ.get("PELOPS_TRUTH_ENTRIES", "1000000"))
FEW: Final = 50_000
SIZE: Final = 1000  # entries of a round

# What a life without redrives ends in, where nothing is unknown.
EXPECTED = set(EntryStatus) - {
    EntryStatus.INDETERMINATE,
    EntryStatus.REDRIVEN,
    EntryStatus.DISCARDED,
}


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("entries", [FEW, pytest.param(PROMISED, marks=pytest.mark.full)])
async def test_an_audit_is_true_with_files_and_honest_without(
    spark: SparkSession, tmp_path: Path, entries: int
) -> None:
    compared = 0
    async for found in audit_life(spark, tmp_path, entries=entries, seed=11, size=SIZE, pauses=2):
        compared += 1
        assert found.has_files == all(one.evidence is AuditEvidence.AOF for one in found.summaries)
        assert set(found.true.values()) == EXPECTED
        assert found.wrong() == {}
        assert found.miscounted() == []
        assert found.roots == found.added
        assert found.broken == []
    assert compared == 2


@pytest.mark.parametrize(
    ("has_files", "reported", "true"),
    [
        (True, EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.ACKNOWLEDGED_PROVEN),
        (True, EntryStatus.INDETERMINATE, EntryStatus.LOST),
        (True, None, EntryStatus.LOST),
        (False, EntryStatus.ACKNOWLEDGED_PROVEN, EntryStatus.ACKNOWLEDGED_PROVEN),
        (False, EntryStatus.LOST, EntryStatus.ACKNOWLEDGED_PROVEN),
        (False, EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.IN_FLIGHT),
        (False, None, EntryStatus.UNDELIVERED),
    ],
)
def test_the_comparison_finds_what_is_reported_wrongly(
    has_files: bool, reported: EntryStatus | None, true: EntryStatus
) -> None:
    assert list(_compared(has_files=has_files, reported=reported, true=true).wrong()) == [b"1-0"]


@pytest.mark.parametrize("reported", [EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.INDETERMINATE])
def test_without_files_a_loss_may_be_unseen_and_must_be_counted(reported: EntryStatus) -> None:
    compared = _compared(has_files=False, reported=reported, true=EntryStatus.LOST)
    assert compared.wrong() == {}
    assert compared.miscounted() == [reported]  # no summary counts it


def _compared(*, has_files: bool, reported: EntryStatus | None, true: EntryStatus) -> Compared:
    return Compared(
        has_files=has_files,
        summaries=(),
        counts=Counter(),
        reported={} if reported is None else {b"1-0": reported},
        true={b"1-0": true},
        took_s=0.0,
    )
