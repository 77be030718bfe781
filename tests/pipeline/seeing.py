"""What can be known of entries with and without files, beside what in truth became of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.ledger import LedgerKind
from pelops.pipeline.evidence import EvidenceLocation, read_evidence
from pelops.policy.audit.classification import EntryFacts, Proof
from tests.integration.recovering import bodies, ledger
from tests.pipeline.classifying import classify_entries
from tests.pipeline.mishaps import STUCK_MS, Life
from tests.pipeline.truth import Truth

UNPROVEN: Final = frozenset({EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.INDETERMINATE})


@dataclass(frozen=True, slots=True)
class Seen:
    """One stream's entries."""

    truth: Truth
    facts: dict[bytes, EntryFacts]  # without any file
    proofs: dict[bytes, Proof | None]


def check_with_files(spark: SparkSession, seen: Seen) -> None:
    """Every entry is what it in truth became."""
    cases = [
        replace(facts, proof=seen.proofs[one], position_holds=True)
        for one, facts in seen.facts.items()
    ]
    outcomes = zip(seen.facts, classify_entries(spark, cases), strict=True)
    reported = {one: outcome.status for one, outcome in outcomes}
    true = dict(zip(seen.truth.ids, seen.truth.statuses(), strict=True))
    wrong = {one: (reported[one], true[one]) for one in true if reported[one] != true[one]}
    assert not wrong, f"{len(wrong)} of {len(true)}, such as {list(wrong.items())[:5]}"


def check_without_files(spark: SparkSession, seen: Seen) -> None:
    """Nothing is proven wrongly: what is not as it is true is said to be inferred or unknown."""
    outcomes = classify_entries(spark, [seen.facts[one] for one in seen.truth.ids])
    statuses = seen.truth.statuses()
    for one, true, reported in zip(seen.truth.ids, statuses, outcomes, strict=True):
        assert reported.status is not EntryStatus.ACKNOWLEDGED_PROVEN
        assert reported.status is true or reported.status in UNPROVEN, (one, reported, true)


async def see(life: Life, truth: Truth, files: Path) -> Seen:
    """What the server, its ledger and its files show now. Nothing may happen meanwhile."""
    keys = life.driver.keys
    evidence = read_evidence(EvidenceLocation(directory=files), [keys])
    assert evidence.begins_empty
    proofs = _read_proofs(evidence.batches(truth.stream, keys.group))
    acts = await _read_acts(life, truth.stream)
    present = {str(one).encode() for one in await bodies(life.driver.server, truth.stream)}
    found = life.driver.wire.ask("XPENDING", truth.stream, keys.group, "-", "+", 10**6)
    idle = {one: idle_ms for one, _, idle_ms, _ in found}
    position = _position(life, truth.stream)
    facts = {
        one: EntryFacts(
            act=acts.get(one),
            is_pending=one in idle,
            has_body=one in present,
            idle_ms=idle.get(one, 0),
            stuck_after_ms=STUCK_MS,
            is_reached=parse_entry_id(one) <= position,
            is_reached_after=parse_entry_id(one) <= position,
            was_reached=False,
            position_holds=False,
        )
        for one in truth.ids
    }
    return Seen(truth, facts, proofs)


async def _read_acts(life: Life, stream: str) -> dict[bytes, LedgerKind]:
    return {
        str(entry.entry_id).encode(): LedgerKind(event.kind)
        for event in await ledger(life.driver.server, life.driver.keys)
        if event.details.get("stream") == stream
        for entry in event.entries
    }


def _position(life: Life, stream: str) -> EntryId:
    [group] = life.driver.wire.ask("XINFO", "GROUPS", stream)
    return parse_entry_id(dict(zip(group[::2], group[1::2], strict=True))[b"last-delivered-id"])


def _read_proofs(batches: Iterator[Any]) -> dict[bytes, Proof | None]:
    found: dict[bytes, Proof | None] = {}
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("ms", "seq", "proof"))
        for ms, seq, proof in zip(*columns, strict=True):
            found[b"%d-%d" % (ms, seq)] = None if proof is None else Proof(proof)
    return found
