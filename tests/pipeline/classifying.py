"""The audit's rules for entries that a test makes up, worked out with Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

import pyarrow as pa

from pelops.domain.audit import EntryStatus
from pelops.pipeline.engine.arrow.frame import Frame
from pelops.pipeline.engine.sql import on_driver
from pelops.pipeline.reconcile.window_entries import outcome_column
from pelops.policy.audit.classification import EntryFacts, Outcome, Why

_TYPES = {"bool": pa.bool_(), "int": pa.int64()}
_SCHEMA = pa.schema(
    [(field.name, _TYPES.get(str(field.type), pa.string())) for field in fields(EntryFacts)]
)


def classify_entries(cases: Sequence[EntryFacts]) -> list[Outcome]:
    """The outcome of each."""
    frame = Frame.of(pa.Table.from_pylist([asdict(facts) for facts in cases], _SCHEMA))
    with on_driver():
        reported = frame.select(outcome_column().alias("outcome")).select("outcome.*")
    return [Outcome(EntryStatus(status), Why(why)) for status, why in reported.collect()]
