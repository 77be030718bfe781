"""The rules that give an entry its status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from types import SimpleNamespace
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from pelops.domain.outcome import ENDING_KINDS, LETTER_STATUSES, EntryStatus
from pelops.domain.records.ledger import LedgerKind
from pelops.pipeline.audit.rules import FACTS, outcome_column
from pelops.policy.audit.classification import EntryFacts, Outcome, Proof, Why, list_rules

_TYPES = {"bool": pa.bool_(), "int": pa.int64()}
_SCHEMA = pa.schema(
    [(field.name, _TYPES.get(str(field.type), pa.string())) for field in fields(EntryFacts)]
)

DELIVERED = EntryFacts()
PENDING = EntryFacts(is_pending=True, stuck_after_ms=100, idle_ms=99)
AHEAD = EntryFacts(is_reached=False, is_reached_after=False, was_reached=False)
PASSED_SINCE = EntryFacts(was_reached=False, has_body=False)


CASES: Final = [
    (DELIVERED, EntryStatus.ACKNOWLEDGED_INFERRED),
    (replace(DELIVERED, proof=Proof.ACKNOWLEDGED), EntryStatus.ACKNOWLEDGED_PROVEN),
    (replace(DELIVERED, proof=Proof.DROPPED), EntryStatus.LOST),
    (replace(DELIVERED, proof=Proof.SKIPPED), EntryStatus.LOST),
    (replace(DELIVERED, proof=Proof.NOACK), EntryStatus.ACKNOWLEDGED_INFERRED),
    (replace(DELIVERED, position_holds=False), EntryStatus.INDETERMINATE),
    (PENDING, EntryStatus.IN_FLIGHT),
    (replace(PENDING, idle_ms=100), EntryStatus.STUCK),
    (replace(PENDING, has_body=False), EntryStatus.PAYLOAD_GONE),
    (replace(PENDING, act=LedgerKind.REQUEUED), EntryStatus.REQUEUED),
    (replace(PENDING, act=LedgerKind.RELEASED), EntryStatus.IN_FLIGHT),
    (replace(DELIVERED, act=LedgerKind.DEAD_LETTERED), EntryStatus.DEAD_LETTERED),
    (replace(DELIVERED, act=LedgerKind.PAYLOAD_GONE), EntryStatus.PAYLOAD_GONE),
    (replace(DELIVERED, act=LedgerKind.REDRIVEN), EntryStatus.REDRIVEN),
    (replace(DELIVERED, act=LedgerKind.DISCARDED), EntryStatus.DISCARDED),
    (replace(DELIVERED, act=LedgerKind.RESTORED), EntryStatus.ACKNOWLEDGED_INFERRED),
    (AHEAD, EntryStatus.UNDELIVERED),
    (replace(AHEAD, has_body=False), EntryStatus.LOST),
    (replace(AHEAD, has_body=False, position_holds=False), EntryStatus.INDETERMINATE),
    (replace(AHEAD, has_body=False, is_reached_after=True), EntryStatus.INDETERMINATE),
    (PASSED_SINCE, EntryStatus.INDETERMINATE),
    (replace(PASSED_SINCE, has_body=True), EntryStatus.ACKNOWLEDGED_INFERRED),
    (replace(PASSED_SINCE, was_pending=True), EntryStatus.ACKNOWLEDGED_INFERRED),
    (replace(PASSED_SINCE, loss_watched=True), EntryStatus.ACKNOWLEDGED_INFERRED),
    (replace(PASSED_SINCE, loss_seen=True), EntryStatus.LOST),
    (
        replace(PASSED_SINCE, loss_seen=True, was_pending=True),
        EntryStatus.ACKNOWLEDGED_INFERRED,
    ),
    (replace(DELIVERED, loss_seen=True), EntryStatus.ACKNOWLEDGED_INFERRED),
]


def classify_entries(spark: SparkSession, cases: Sequence[EntryFacts]) -> list[Outcome]:
    """The outcome of each, in the same order."""
    rows = pa.Table.from_pylist([asdict(facts) for facts in cases], _SCHEMA)
    numbered = rows.append_column("place", pa.array(range(len(cases)), pa.int64()))
    frame = spark.createDataFrame(numbered, f"{FACTS}, place BIGINT")
    found = frame.select("place", outcome_column().alias("outcome")).select("place", "outcome.*")
    outcomes = found.toArrow().sort_by("place").to_pylist()
    return [Outcome(EntryStatus(one["status"]), Why(one["why"])) for one in outcomes]


def test_an_entry_has_the_status_that_its_facts_imply(spark: SparkSession) -> None:
    outcomes = classify_entries(spark, [facts for facts, _ in CASES])
    wrong = [
        (facts, outcome)
        for (facts, status), outcome in zip(CASES, outcomes, strict=True)
        if outcome.status is not status
    ]
    assert wrong == []


def test_spark_says_of_every_entry_what_the_first_rule_that_fits_says(spark: SparkSession) -> None:
    """Also where a column is null; and nothing is proven without evidence."""
    cases = every_facts()
    for facts, outcome in zip(cases, classify_entries(spark, cases), strict=True):
        assert outcome == first_rule(facts), facts
        if facts.proof is None:
            assert outcome.status is not EntryStatus.ACKNOWLEDGED_PROVEN
        if facts.proof is None and outcome.status is EntryStatus.LOST:
            assert not facts.has_body
            reported = outcome.why is Why.LOSS_SEEN and facts.loss_seen
            assert reported or (outcome.why is Why.GONE_UNDELIVERED and not facts.is_reached_after)


@dataclass(frozen=True, slots=True)
class Truth:
    """A condition of one entry, as the rules make it."""

    holds: bool

    def __and__(self, other: Truth | bool) -> Truth:
        return Truth(self.holds and bool(other))

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.holds or other.holds)

    def __invert__(self) -> Truth:
        return Truth(not self.holds)

    def __bool__(self) -> bool:
        return self.holds


def first_rule(facts: EntryFacts) -> Outcome:
    values = {field.name: getattr(facts, field.name) for field in fields(EntryFacts)}
    facts_of = {name: Truth(one) if isinstance(one, bool) else one for name, one in values.items()}
    return next(outcome for holds, outcome in list_rules(SimpleNamespace(**facts_of)) if holds)


def every_facts() -> list[EntryFacts]:
    """Every combination that a rule could distinguish."""
    both = (False, True)
    values = {
        "act": (None, *ENDING_KINDS, *LETTER_STATUSES, LedgerKind.RELEASED),
        "proof": (None, *Proof),
        "idle_ms": (99, 100),
        "stuck_after_ms": (100,),
    }
    names = [field.name for field in fields(EntryFacts)]
    combinations = product(*(values.get(name, both) for name in names))
    return [EntryFacts(**dict(zip(names, one, strict=True))) for one in combinations]
