"""Clusters of dead letters to display, of bounded size for any content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.policy.redrive.triage import Advice, ClusterFacts, Signature, advise_redrive

MOST_RETRIES: Final = 10  # the last value of a distribution is for this many or more


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueHead:
    """The beginning of a field's name or value."""

    head: bytes
    size: int  # bytes of the whole


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterExample:
    """One dead letter to display."""

    entry_id: EntryId
    root_id: EntryId
    consumer: str
    error: str
    fields: tuple[tuple[ValueHead, ValueHead], ...]  # the first ones
    field_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Dead letters that seem to have the same cause."""

    signature: Signature
    letters: int
    first_seen_ms: int
    last_seen_ms: int
    consumers: int  # number of different ones, approximate
    retries: tuple[int, ...]  # dead letters with 0, 1, 2 ... MOST_RETRIES and more failed attempts
    returned: int  # dead letters whose entry was dead-lettered before
    examples: tuple[LetterExample, ...]  # the oldest

    @property
    def advice(self) -> Advice:
        """The recommended action."""
        return advise_redrive(
            ClusterFacts(signature=self.signature, letters=self.letters, returned=self.returned)
        )
