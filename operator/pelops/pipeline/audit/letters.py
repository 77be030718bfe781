"""Where dead letters are that were moved: redriven, discarded or restored.

The ledger names a dead letter by its ID in the stream that it was moved from, and by its new ID. It
can be moved several times in one window: discarded, restored and discarded again. Its place is then
that after the last move. The dead-letter stream and the stream of discarded dead letters may
contain equal IDs. The key of a dead letter is therefore its ID and its stream.

An entry of an earlier window whose dead letter was moved gets a new status. The table of statuses
shows which entry a dead letter was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pelops.clock import from_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.outcome import LETTER_KINDS, LETTER_STATUSES, EntryStatus
from pelops.domain.records.ledger import LedgerKind
from pelops.pipeline.archive.tables import STATUSES, Archive

_AT_ONCE: Final = 10_000  # dead letters per read of the table
_STATUSES: Final = {LedgerKind.DEAD_LETTERED: EntryStatus.DEAD_LETTERED, **LETTER_STATUSES}
_WITH_LETTER: Final = {
    EntryStatus.DEAD_LETTERED.value: False,
    EntryStatus.DISCARDED.value: True,
}


class Letter(NamedTuple):
    """A dead letter, in the dead-letter stream or in the stream of discarded ones."""

    is_discarded: bool
    ms: int
    seq: int


class Move(NamedTuple):
    """The last move of a dead letter; `new` is its new ID, or that of the redriven copy."""

    kind: str
    new_ms: int
    new_seq: int
    in_retry: bool  # the copy is in the group's retry stream
    at: tuple[int, int]  # ID of the event

    @property
    def act(self) -> LedgerKind:
        """The act on the entry. After a restore, it is dead-lettered again."""
        kind = LedgerKind(self.kind)
        return LedgerKind.DEAD_LETTERED if kind is LedgerKind.RESTORED else kind

    @property
    def status(self) -> EntryStatus:
        """The status of the entry."""
        return _STATUSES[self.act]


def find_moves(acts: pa.Table, retry: str) -> dict[Letter, Move]:
    """The last move of each moved dead letter, by its former place.

    `retry` is the group's retry stream.
    """
    kinds = pa.array([str(kind) for kind in LETTER_KINDS])
    rows = acts.filter(pc.is_in(acts["kind"], kinds)).filter(pc.field("new_ms").is_valid())
    last: dict[Letter, Move] = {}
    for row in rows.to_pylist():
        letter = Letter(row["kind"] == LedgerKind.RESTORED, row["ms"], row["seq"])
        at = (row["event_ms"], row["event_seq"])
        is_in_retry = row["target"] == retry
        move = Move(row["kind"], row["new_ms"], row["new_seq"], is_in_retry, at)
        if letter not in last or last[letter].at <= at:
            last[letter] = move
    return {letter: _follow(move, last) for letter, move in last.items()}


def _follow(move: Move, last: Mapping[Letter, Move]) -> Move:
    """The last move of a chain. Each must be later than the one before, to exclude cycles."""
    while move.kind != LedgerKind.REDRIVEN:
        then = last.get(Letter(move.kind == LedgerKind.DISCARDED, move.new_ms, move.new_seq))
        if then is None or then.at <= move.at:
            break
        move = then
    return move


def follow_letters(acts: pa.Table, moves: Mapping[Letter, Move]) -> pa.Table:
    """Replace each act that made a dead letter by the last move of that dead letter.

    Replaces `kind`, `new_ms`, `new_seq`, `act_at_ms` and `in_retry`. The act on an entry whose body
    was deleted does not change.
    """
    if not moves:
        return acts
    names = ("kind", "new_ms", "new_seq", "act_at_ms", "in_retry")
    columns = {name: acts[name].to_pylist() for name in names}
    for at, kind in enumerate(columns["kind"]):
        if kind == LedgerKind.DEAD_LETTERED and columns["new_ms"][at] is not None:
            move = moves.get(Letter(False, columns["new_ms"][at], columns["new_seq"][at]))
            if move is not None:
                values = (str(move.act), move.new_ms, move.new_seq, move.at[0], move.in_retry)
                for name, value in zip(names, values, strict=True):
                    columns[name][at] = value
    for name, values in columns.items():
        place = acts.schema.get_field_index(name)
        acts = acts.set_column(place, name, pa.array(values, acts.schema.field(name).type))
    return acts


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierEntry:
    """The newest row of an entry or a copy in the table of statuses."""

    row: Mapping[str, Any]
    move: Move | None  # of its dead letter; None: only that of a copy was moved

    @property
    def entry_id(self) -> EntryId:
        """Its ID."""
        return EntryId(self.row["ms"], self.row["seq"])

    @property
    def root(self) -> EntryId | None:
        """The entry that it is a copy of."""
        return None if self.row["root"] is None else parse_entry_id(self.row["root"])


def find_earlier(
    archive: Archive, streams: Collection[str], group: str, moves: Mapping[Letter, Move]
) -> list[EarlierEntry]:
    """Entries of earlier windows whose dead letters were moved, and the roots of such copies.

    `streams`: the stream and the group's retry stream. Raises ArchiveUnusable.
    """
    if not moves:
        return []
    is_ours = (ds.field("group") == group) & ds.field("stream").isin(list(streams))
    entries = {}
    for row in _rows_of_letters(archive, is_ours, list(moves)):
        is_discarded = _WITH_LETTER.get(row["status"])
        if is_discarded is not None and row["new_id"] is not None:
            new = parse_entry_id(row["new_id"])
            move = moves.get(Letter(is_discarded, new.ms, new.seq))
            if move is not None:
                key = (row["stream"], row["ms"], row["seq"])
                entries[key] = EarlierEntry(row=row, move=move)
    roots = {one.root for one in entries.values() if one.root is not None}
    main = next(iter(streams))
    for row in _newest(archive, is_ours & (ds.field("stream") == main), roots):
        entries.setdefault((row["stream"], row["ms"], row["seq"]), EarlierEntry(row=row, move=None))
    return list(entries.values())


def _rows_of_letters(
    archive: Archive, is_ours: ds.Expression, letters: list[Letter]
) -> Iterator[Mapping[str, Any]]:
    """The newest rows of entries that had one of these dead letters at any time."""
    for start in range(0, len(letters), _AT_ONCE):
        some = letters[start : start + _AT_ONCE]
        # The row that names a dead letter is not older than it, unless the clock was set back.
        since = from_ms(min(one.ms for one in some)) - timedelta(days=1)
        condition = (ds.field("date") >= since.date()) & ds.field("new_id").isin(
            [f"{one.ms}-{one.seq}" for one in some]
        )
        rows = archive.read(STATUSES, is_ours, condition, columns=("ms", "seq")).to_pylist()
        yield from _newest(archive, is_ours, {EntryId(row["ms"], row["seq"]) for row in rows})


def _newest(
    archive: Archive, is_ours: ds.Expression, ids: Iterable[EntryId]
) -> Iterator[Mapping[str, Any]]:
    """The newest row of each of these entries."""
    wanted = {(one.ms, one.seq) for one in ids}
    if not wanted:
        return
    times = sorted({ms for ms, _ in wanted})
    near = (ds.field("ms") >= times[0]) & (ds.field("ms") <= times[-1])
    rows = archive.read(STATUSES, is_ours, near, ds.field("ms").isin(times)).to_pylist()
    newest: dict[tuple[str, int, int], Mapping[str, Any]] = {}
    for row in rows:
        key = (row["stream"], row["ms"], row["seq"])
        is_newer = key not in newest or newest[key]["run"] <= row["run"]
        if (row["ms"], row["seq"]) in wanted and is_newer:
            newest[key] = row
    yield from newest.values()
