"""Clusters dead letters by cause, and plans an action for each.

Dead letters are read one by one, in the order of their IDs. For each, only its line of the plan is
kept (a few hundred bytes); for a cluster, its counts and a few examples.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.dead_letter import REDRIVE_MARKS
from pelops.domain.records.ledger import LETTER_FIELDS
from pelops.domain.records.redrive import (
    PlanHeader,
    PlannedCluster,
    PlannedLetter,
    PlannedLetterAction,
    render_plan,
)
from pelops.errors import InvalidEntryId
from pelops.pipeline.triage.clusters import MOST_RETRIES, Cluster, LetterExample, ValueHead
from pelops.policy.redrive.payload_shape import describe_shape
from pelops.policy.redrive.triage import Signature, build_signature

UNKNOWN: Final = "Unknown"  # reason of a dead letter without the fields of Pelops
EXAMPLES: Final = 3
FIELDS_SHOWN: Final = 12  # of an example
BYTES_SHOWN: Final = 256  # of a value of an example
MOST_CLUSTERS: Final = 1000  # that are reported
PLANNED_CLUSTERS: Final = 100  # that the plan's header explains
_REMEMBERED: Final = 4096  # errors; most dead letters of a cluster have the same
_NUMBER: Final = re.compile(r"\s*[-+]?[0-9]{1,18}\s*")
_ID: Final = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")
Pairs = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriagedLetter:
    """One dead letter, by the fields that Pelops added.

    A dead-letter stream may contain entries of other programs: these have the reason `Unknown`, and
    are their own root.
    """

    entry_id: EntryId
    root_id: EntryId
    consumer: str
    retries: int
    reason: str
    error: str
    ended_ms: int
    fields: Pairs  # without what Pelops added
    is_redriven: bool  # it was redriven before, and dead-lettered again


def parse_dead_letter(entry_id: EntryId, flat: Sequence[bytes], prefix: str = "_") -> TriagedLetter:
    """Parse a dead letter from alternating names and values. Never raises."""
    pairs = list(zip(flat[::2], flat[1::2], strict=False))
    names, size = [(prefix + name).encode() for name in LETTER_FIELDS], len(LETTER_FIELDS)
    is_marked = [name for name, _ in pairs[-size:]] == names
    values = [value.decode("utf-8", "replace") for _, value in pairs[-size:]] if is_marked else []
    marks = dict(zip(LETTER_FIELDS, values, strict=False))
    rest = pairs[:-size] if is_marked else pairs
    redrive = [(prefix + name).encode() for name in REDRIVE_MARKS]
    is_redriven = is_marked and [name for name, _ in rest[-len(redrive) :]] == redrive
    ended_ms = _number(marks.get("dead_lettered_ms", ""))
    return TriagedLetter(
        entry_id=entry_id,
        root_id=_root(marks.get("original_id", ""), entry_id),
        consumer=marks.get("consumer", ""),
        retries=_number(marks.get("retry_count", "")),
        reason=marks.get("reason", UNKNOWN),
        error=marks.get("error", ""),
        # Otherwise the time of the dead letter's own ID.
        ended_ms=ended_ms if ended_ms > 0 else entry_id.ms,
        fields=rest[: -len(redrive)] if is_redriven else rest,
        is_redriven=is_redriven,
    )


def _root(text: str, own: EntryId) -> EntryId:
    try:
        return parse_entry_id(text) if _ID.fullmatch(text) else own
    except InvalidEntryId:
        return own


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0


@dataclass(slots=True)
class _ClusterCounts:
    """The running counts of a cluster."""

    signature: Signature
    number: int
    letters: int = 0
    first_ms: int = 0
    last_ms: int = 0
    consumers: set[str] = field(default_factory=set)
    retries: Counter[int] = field(default_factory=Counter)
    returned: int = 0
    examples: list[LetterExample] = field(default_factory=list)

    def add(self, letter: TriagedLetter, *, is_returned: bool) -> None:
        at = letter.ended_ms
        self.first_ms = min(self.first_ms, at) if self.letters else at
        self.last_ms = max(self.last_ms, at) if self.letters else at
        self.letters += 1
        self.consumers.add(letter.consumer)
        self.retries[max(0, min(letter.retries, MOST_RETRIES))] += 1
        self.returned += is_returned
        if len(self.examples) < EXAMPLES:
            self.examples.append(_example(letter))

    def finish(self) -> Cluster:
        return Cluster(
            signature=self.signature,
            letters=self.letters,
            first_seen_ms=self.first_ms,
            last_seen_ms=self.last_ms,
            consumers=len(self.consumers),
            retries=tuple(self.retries[number] for number in range(MOST_RETRIES + 1)),
            returned=self.returned,
            examples=tuple(self.examples),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """The dead letters of a group, clustered by cause."""

    letters: int
    clusters: tuple[Cluster, ...]  # the largest first, MOST_CLUSTERS at most
    placed: tuple[tuple[EntryId, EntryId, str], ...]  # each dead letter, its root and its cluster


def triage_dead_letters(letters: Iterable[TriagedLetter]) -> Triage:
    """Cluster the dead letters of one group, given in the order of their IDs."""
    clusters: dict[Signature, _ClusterCounts] = {}
    placed: list[tuple[EntryId, EntryId, str]] = []
    roots: set[EntryId] = set()
    for dead_letter in letters:
        signature = _sign(dead_letter.reason, dead_letter.error, describe_shape(dead_letter.fields))
        counted = clusters.setdefault(signature, _ClusterCounts(signature, len(clusters)))
        counted.add(
            dead_letter, is_returned=dead_letter.is_redriven or dead_letter.root_id in roots
        )
        roots.add(dead_letter.root_id)
        placed.append((dead_letter.entry_id, dead_letter.root_id, signature.cluster))
    largest = sorted(clusters.values(), key=lambda one: (-one.letters, one.signature.cluster))
    return Triage(
        letters=len(placed),
        clusters=tuple(one.finish() for one in largest[:MOST_CLUSTERS]),
        placed=tuple(placed),
    )


@lru_cache(maxsize=_REMEMBERED)
def _sign(reason: str, error: str, shape: str) -> Signature:
    return build_signature(reason=reason, error=error, shape=shape)


def _example(letter: TriagedLetter) -> LetterExample:
    return LetterExample(
        entry_id=letter.entry_id,
        root_id=letter.root_id,
        consumer=letter.consumer,
        error=letter.error[: 4 * BYTES_SHOWN],
        fields=tuple((_head(name), _head(value)) for name, value in letter.fields[:FIELDS_SHOWN]),
        field_count=len(letter.fields),
    )


def _head(value: bytes) -> ValueHead:
    return ValueHead(head=value[:BYTES_SHOWN], size=len(value))


def start_header(stream: str, group: str, dead_letter: str, *, at: datetime) -> PlanHeader:
    """A header without counts."""
    return PlanHeader(stream=stream, group=group, dead_letter=dead_letter, at=at, letters=0)


def plan_redrive(triage: Triage, header: PlanHeader) -> Iterator[str]:
    """The lines of a plan for `parse_plan`, each with a line feed.

    The action for dead letters of clusters that are not reported is `inspect`.
    """
    actions = dict.fromkeys(PlannedLetterAction, 0)
    for cluster in triage.clusters:
        actions[cluster.advice.action] += cluster.letters
    actions[PlannedLetterAction.INSPECT] += triage.letters - sum(actions.values())
    filled = replace(
        header,
        letters=triage.letters,
        actions=actions,
        clusters=tuple(map(_planned_cluster, triage.clusters[:PLANNED_CLUSTERS])),
    )
    chosen = {one.signature.cluster: one.advice.action for one in triage.clusters}
    return render_plan(
        filled,
        (
            PlannedLetter(
                entry_id=entry_id,
                root_id=root_id,
                cluster=cluster,
                action=chosen.get(cluster, PlannedLetterAction.INSPECT),
            )
            for entry_id, root_id, cluster in triage.placed
        ),
    )


def _planned_cluster(cluster: Cluster) -> PlannedCluster:
    return PlannedCluster(
        cluster=cluster.signature.cluster,
        letters=cluster.letters,
        action=cluster.advice.action,
        reason=cluster.advice.reason,
    )
