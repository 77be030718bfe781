"""The rules of `policy/audit/classification.py` as an expression of the engine that works now."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Final

from pelops.pipeline.engine.functions import Column
from pelops.pipeline.engine.functions import functions as F  # noqa: N812
from pelops.policy.audit.classification import EntryFacts, list_rules

_TYPES: Final = {"bool": "BOOLEAN", "int": "BIGINT"}
# The columns that the expression reads: the fields of EntryFacts.
FACTS: Final = ", ".join(
    f"{field.name} {_TYPES.get(str(field.type), 'STRING')}" for field in fields(EntryFacts)
)


def outcome_column() -> Column:
    """A struct of `status` and `why` for a row with the columns of `FACTS`.

    `act` and `proof` are null when there is none; no other column ever is.
    """
    facts = SimpleNamespace(**{field.name: F.col(field.name) for field in fields(EntryFacts)})
    *rules, (_, last) = [
        (
            condition,
            F.struct(
                F.lit(outcome.status.value).alias("status"), F.lit(outcome.why.value).alias("why")
            ),
        )
        for condition, outcome in list_rules(facts)
    ]
    (first, reported), *others = rules
    chosen = F.when(first, reported)
    for condition, reported in others:
        chosen = chosen.when(condition, reported)
    return chosen.otherwise(last)
