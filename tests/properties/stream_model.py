"""What a stream, its group and what recovery wrote beside them should hold: pure, and exact."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.recovery import Action
from pelops.errors import InvalidSpec

Pairs = tuple[bytes, ...]  # names and values by turns, as XADD takes them
WIDEST: Final = 3_900  # pairs that a script copies
LETTER_FIELDS: Final = (
    *("original_id", "stream", "group", "consumer", "delivery_count", "retry_count", "reason"),
    *("error", "delivered_ms", "dead_lettered_ms"),
)


@dataclass(slots=True)
class Pending:
    """A pending entry."""

    owner: str
    delivered_ms: int
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter, without its times."""

    pairs: Pairs  # the user's own
    root: EntryId
    consumer: str
    deliveries: int
    retries: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """The record of one entry in a ledger event, without times and new IDs."""

    kind: str
    consumer: str
    entry_id: EntryId
    root: EntryId
    retries: int
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The request of the operator: which entries of an owner, and how attempts are counted."""

    owner: str
    is_free: Callable[[EntryId, Pending], bool]  # delivered before the cutoff, not locked, ...
    counts_attempt: bool
    count_from_ms: int
    stages_first: bool
    recovers: bool


@dataclass(slots=True)
class StreamModel:
    """Everything that the server should hold."""

    group: str
    bodies: dict[EntryId, Pairs] = field(default_factory=dict)
    position: EntryId = EntryId.MIN
    pending: dict[EntryId, Pending] = field(default_factory=dict)
    marks: dict[str, set[EntryId]] = field(default_factory=dict)
    consumers: set[str] = field(default_factory=set)
    letters: list[Letter] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    offers: int = 0
    offered: dict[EntryId, int] = field(default_factory=dict)  # when what is on offer was delivered
    removed: list[str] = field(default_factory=list)
    retry_batch: list[EntryId] = field(default_factory=list)
    added: dict[EntryId, Pairs] = field(default_factory=dict)  # by producers
    acknowledged: set[EntryId] = field(default_factory=set)  # by workers
    given_up: set[EntryId] = field(default_factory=set)  # became dead letters
    deleted: set[EntryId] = field(default_factory=set)  # by a user, before they were delivered
    copies: dict[EntryId, EntryId] = field(default_factory=dict)  # of what: its copy

    def undelivered(self) -> list[EntryId]:
        """The entries that were not delivered to the group, in their order."""
        return sorted(one for one in self.bodies if one > self.position)

    def held_by(self, owner: str) -> list[EntryId]:
        """The pending entries of a consumer, in their order."""
        return sorted(one for one, held in self.pending.items() if held.owner == owner)

    def add(self, entry_id: EntryId, pairs: Pairs) -> None:
        """A producer adds an entry."""
        self.bodies[entry_id] = self.added[entry_id] = pairs

    def deliver(self, entry_ids: Iterable[EntryId], consumer: str, delivered_ms: int) -> None:
        """The group gives new entries to a consumer."""
        self.consumers.add(consumer)
        for entry_id in entry_ids:
            self.position = entry_id
            self.pending[entry_id] = Pending(consumer, delivered_ms, 1)

    def acknowledge(self, entry_id: EntryId) -> None:
        """A worker does."""
        if self.pending.pop(entry_id, None):
            self.acknowledged.add(entry_id)

    def predict(self, rule: Rule) -> tuple[dict[EntryId, Act], set[EntryId]]:
        """The entries that recovery moves, and those that it returns as suspects."""
        recovers: dict[EntryId, Act] = {}
        suspects: set[EntryId] = set()
        for entry_id in self.held_by(rule.owner):
            held = self.pending[entry_id]
            if not rule.is_free(entry_id, held):
                continue
            pairs = self.bodies.get(entry_id)
            if pairs is None:
                recovers[entry_id] = self._act("payload-gone", entry_id, entry_id, 0)
                continue
            own, root, retries = read_marks(entry_id, pairs)
            is_mine, is_started = self._judge(rule, entry_id, held)
            if not rule.recovers or (is_mine and (retries > 0 or is_started or rule.stages_first)):
                suspects.add(entry_id)
            elif len(own) <= 2 * WIDEST:
                recovers[entry_id] = self._act("requeued", entry_id, root, retries + is_mine)
        return recovers, suspects

    def _judge(self, rule: Rule, entry_id: EntryId, held: Pending) -> tuple[bool, bool]:
        marks = self.marks.get(rule.owner)
        is_mine = rule.counts_attempt and held.delivered_ms >= rule.count_from_ms
        is_mine = is_mine and (marks is None or entry_id in marks)
        return is_mine, is_mine and marks is not None

    def predict_settled(
        self, owner: str, cutoff_ms: int, items: Collection[tuple[EntryId, Action, int]]
    ) -> dict[EntryId, Act]:
        """Apply decisions about suspects."""
        recovers: dict[EntryId, Act] = {}
        for entry_id, action, attempts in items:
            held, pairs = self.pending.get(entry_id), self.bodies.get(entry_id)
            if held is None or held.owner != owner or held.delivered_ms >= cutoff_ms or not pairs:
                continue
            own, root, _ = read_marks(entry_id, pairs)
            kind = "dead-lettered" if action is Action.DEAD else "requeued"
            if len(own) <= 2 * WIDEST:
                recovers.setdefault(entry_id, self._act(kind, entry_id, root, attempts))
        return recovers

    def _act(self, kind: str, entry_id: EntryId, root: EntryId, retries: int) -> Act:
        held = self.pending[entry_id]
        return Act(
            kind=kind,
            consumer=held.owner,
            entry_id=entry_id,
            root=root,
            retries=retries,
            deliveries=held.deliveries,
        )

    def apply(self, act: Act, new_id: EntryId, reason: str) -> None:
        """An act has happened, and gave this ID."""
        self.acts.append(act)
        del self.pending[act.entry_id]
        own = read_marks(act.entry_id, self.bodies.get(act.entry_id, ()))[0]
        if act.kind == "requeued":
            marks = ("_original_id", str(act.root), "_retry_count", str(act.retries))
            self.bodies[new_id] = (*own, *(mark.encode() for mark in marks))
            assert act.entry_id not in self.copies, "copied twice"
            self.copies[act.entry_id] = new_id
            return
        self.given_up.add(act.entry_id)
        self.letters.append(
            Letter(
                pairs=own,
                root=act.root,
                consumer=act.consumer,
                deliveries=act.deliveries,
                retries=act.retries,
                reason=reason,
            )
        )

    def find_lost(self) -> list[EntryId]:
        """Added entries whose last copy is nowhere."""
        return [one for one in self.added if not self._is_safe(self._last_copy(one))]

    def _last_copy(self, entry_id: EntryId) -> EntryId:
        while entry_id in self.copies:
            entry_id = self.copies[entry_id]
        return entry_id

    def _is_safe(self, last: EntryId) -> bool:
        is_waiting = last > self.position and last in self.bodies
        is_done = last in self.acknowledged | self.given_up | self.deleted
        return is_waiting or is_done or last in self.pending


def read_marks(entry_id: EntryId, pairs: Pairs) -> tuple[Pairs, EntryId, int]:
    """The user's own pairs, the root and the failures: Pelops' own pairs are the last two."""
    if len(pairs) >= 4 and pairs[-4] == b"_original_id" and pairs[-2] == b"_retry_count":
        root, count = _parse_root(pairs[-3]), pairs[-1]
        is_count = 1 <= len(count) <= 6 and all(48 <= digit <= 57 for digit in count)
        if root is not None and root < entry_id and is_count:
            return pairs[:-4], root, int(count)
    return pairs, entry_id, 0


def _parse_root(text: bytes) -> EntryId | None:
    try:
        return parse_entry_id(text) if b"-" in text else None
    except InvalidSpec:
        return None
