"""Clusters of dead letters as people see them: small, whatever the letters hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.policy.redrive.triage import Advice, ClusterFacts, Signature, advise_redrive

MOST_RETRIES: Final = 10  # a distribution's last place holds this many and more


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueHead:
    """The beginning of a field's name or value."""

    head: bytes
    size: int  # bytes of the whole


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterExample:
    """One dead letter as it is shown to people."""

    entry_id: EntryId
    root_id: EntryId
    consumer: str
    error: str
    fields: tuple[tuple[ValueHead, ValueHead], ...]  # the first ones
    field_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Dead letters that seem to have died of the same thing."""

    signature: Signature
    letters: int
    first_seen_ms: int
    last_seen_ms: int
    consumers: int  # different ones, about
    retries: tuple[int, ...]  # dead letters with 0, 1, 2 ... MOST_RETRIES and more failed attempts
    returned: int  # letters whose entry had become a dead letter before
    examples: tuple[LetterExample, ...]  # the oldest

    @property
    def advice(self) -> Advice:
        """What to do with them."""
        return advise_redrive(
            ClusterFacts(signature=self.signature, letters=self.letters, returned=self.returned)
        )
