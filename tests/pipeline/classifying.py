"""The audit's rules for entries that a test makes up, worked out by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

import pyarrow as pa
from pyspark.sql import SparkSession

from pelops.domain.outcome import EntryStatus
from pelops.pipeline.audit.rules import FACTS, outcome_column
from pelops.policy.audit.classification import EntryFacts, Outcome, Why

_TYPES = {"bool": pa.bool_(), "int": pa.int64()}
_SCHEMA = pa.schema(
    [(field.name, _TYPES.get(str(field.type), pa.string())) for field in fields(EntryFacts)]
)


def classify_entries(spark: SparkSession, cases: Sequence[EntryFacts]) -> list[Outcome]:
    """The outcome of each, in the same order."""
    rows = pa.Table.from_pylist([asdict(facts) for facts in cases], _SCHEMA)
    numbered = rows.append_column("place", pa.array(range(len(cases)), pa.int64()))
    frame = spark.createDataFrame(numbered, f"{FACTS}, place BIGINT")
    found = frame.select("place", outcome_column().alias("outcome")).select("place", "outcome.*")
    outcomes = found.toArrow().sort_by("place").to_pylist()
    return [Outcome(EntryStatus(one["status"]), Why(one["why"])) for one in outcomes]
