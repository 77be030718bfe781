"""The evidence of consumer groups, from a server's append-only directory to Arrow tables.

The files are streamed once, with about 45 bytes of memory for each entry and group. A table has one
row for each entry; entries that are older than the files come first.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys
from pelops.pipeline.evidence.append_only_files import EvidenceUnusable, open_files, read_acts
from pelops.pipeline.evidence.entry_histories import (
    AcknowledgementKind,
    Columns,
    EntryTable,
    Fate,
    GroupLives,
    Removal,
    name_of,
    prove,
)
from pelops.pipeline.evidence.replay import Replay, StreamHistory
from pelops.policy.audit.classification import Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceLocation:
    """The place of the files, and which part of the evidence to read."""

    directory: Path  # with the manifest: the server's appenddirname
    database: int = 0
    after: EntryId = EntryId.MIN  # entries up to it are left out
    with_history: bool = False  # see `open_files`


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEvidence:
    """The evidence of the files about the requested streams."""

    begins_empty: bool  # the server held nothing before them
    acts: int  # commands and transactions read
    clock_ms: int  # the server's time at their end, or a little before; 0: unknown
    _histories: dict[str, StreamHistory]

    def batches(self, stream: str, group: str) -> Iterator[pa.RecordBatch]:
        """A row of `SCHEMA` for each entry of a stream that the files name, for one group."""
        history = self._histories[stream]
        yield from build_batches(history.table, history.groups[group.encode()])

    def created_at(self, stream: str, group: str) -> EntryId | None:
        """The position of a group's first creation; None if the files do not contain it."""
        position = self._histories[stream].groups[group.encode()].created_at
        return None if position is None else EntryId(*position)

    def write(self, path: Path, stream: str, group: str) -> int:
        """Write the rows of `batches` to a Parquet file; return their number."""
        rows = 0
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            for batch in self.batches(stream, group):
                writer.write_batch(batch)
                rows += batch.num_rows
        return rows


def read_evidence(source: EvidenceLocation, groups: Sequence[GroupKeys]) -> FileEvidence:
    """Read the evidence about groups, on their streams and on their retry streams.

    The server may continue to write. Raises EvidenceUnusable if files are missing or damaged.
    """
    histories = _prepare(groups, source.after)
    replay = Replay({key.encode(): one for key, one in histories.items()}, source.database)
    with ExitStack() as stack, _without_collector():
        opened = open_files(source.directory, stack, with_history=source.with_history)
        for file in opened.files:
            replay.in_base = ".base." in Path(file.name).name
            for act in read_acts(file, may_be_cut=file is opened.files[-1]):
                try:
                    replay.apply(act)
                except (ValueError, IndexError) as error:
                    # No arguments and no text of the error: they may contain a payload.
                    raise EvidenceUnusable(
                        f"{file.name} holds a command that no server writes: {_name_of(act[0])} "
                        f"({type(error).__name__})"
                    ) from None
    return FileEvidence(
        begins_empty=opened.begins_empty,
        acts=replay.acts,
        clock_ms=replay.clock_ms,
        _histories=histories,
    )


def _name_of(command: Sequence[bytes]) -> str:
    """A command's name and number of arguments, without their values (payloads)."""
    name = command[0][:20].decode("ascii", "replace") if command else ""
    shown = name.upper() if name.isalpha() else "a command without a name"
    return f"{shown} with {len(command) - 1} arguments"


def _prepare(groups: Sequence[GroupKeys], after: EntryId) -> dict[str, StreamHistory]:
    histories: dict[str, StreamHistory] = {}
    for keys in groups:
        for stream in (keys.stream, keys.retry):
            if stream not in histories:
                bound = (after.ms, after.seq)
                histories[stream] = StreamHistory(EntryTable(bound), {}, {})
            history, name = histories[stream], keys.group.encode()
            history.groups[name] = GroupLives(history.table)
            history.ledgers[name] = (keys.ledger.encode(), keys.worker_ledger.encode())
    return histories


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable garbage collection, which doubles the cost of parsing: no cycles are created."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_WORDS: Final = pa.dictionary(pa.int8(), pa.string())
SCHEMA: Final = pa.schema(
    [
        pa.field("ms", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("fate", _WORDS, nullable=False),  # a Fate
        pa.field("act", _WORDS),  # an AcknowledgementKind, if acknowledged
        pa.field("removal", _WORDS),  # a Removal; null: older than the files
        pa.field("covered", pa.bool_(), nullable=False),  # the files contain its XADD
        pa.field("proof", _WORDS),  # a Proof, for `policy.audit.classification`
        pa.field("consumer", pa.string()),  # of the last delivery
        pa.field("deliveries", pa.int64(), nullable=False),
        pa.field("first_delivered_ms", pa.int64()),
        pa.field("at_ms", pa.int64()),  # of the last event, which `fate` shows
    ]
)
_ROWS: Final = 65_536  # per batch
_PROOFS: Final = pa.array([one.value for one in Proof], pa.string())
_ACTS, _REMOVALS, _COVERED = len(AcknowledgementKind), len(Removal), 2


def build_batches(table: EntryTable, group: GroupLives) -> Iterator[pa.RecordBatch]:
    """Every entry that the files name, with its state in one group.

    Entries with a number of 2^63 or more in their ID are left out: Spark has no type for them, and
    they are not in the archive.
    """
    named = list(table.strays)  # by number, in the order of their first mention
    group.added.make_room(len(table))
    group.strays.make_room(len(named))
    names = pa.array(group.consumers, pa.string())
    for start, end in _parts(len(named)):
        some = named[start:end]
        ids = (array("Q", (one[0] for one in some)), array("Q", (one[1] for one in some)))
        yield _build(_FilePart(ids, group.strays, names, slice(start, end)), None, 0)
    for start, end in _parts(len(table)):
        part = slice(start, end)
        ids = (table.ms[part], table.seq[part])
        uncovered = min(max(table.uncovered - start, 0), end - start)
        yield _build(_FilePart(ids, group.added, names, part), table.removals[part], uncovered)


def _parts(size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size, _ROWS):
        yield start, min(start + _ROWS, size)


@dataclass(frozen=True, slots=True)
class _FilePart:
    ids: tuple[array[int], array[int]]
    columns: Columns
    consumers: Any  # their names, by number
    rows: slice


def _build(part: _FilePart, removals: bytearray | None, uncovered: int) -> pa.RecordBatch:
    """Build a batch; `removals` is None for entries older than the files: none is covered."""
    columns, rows = part.columns, part.rows
    size = len(part.ids[0])
    fates, acts = _codes(columns.fate[rows]), _codes(columns.act[rows])
    none = bytearray([Removal.UNKNOWN]) * size
    removed = _codes(none if removals is None else removals)
    covered = pc.greater_equal(pa.array(range(size), pa.int64()), uncovered)
    if removals is None:
        covered = pc.and_(covered, False)
    consumers = _nullable(_numbers(columns.consumer[rows], pa.uint32()))
    was_acknowledged = pc.equal(fates, int(Fate.ACKNOWLEDGED))
    batch = pa.RecordBatch.from_arrays(
        [
            *(_numbers(one, pa.int64()) for one in part.ids),
            _words(fates, Fate),
            _words(pc.if_else(was_acknowledged, acts, None), AcknowledgementKind),
            _words(removed if removals is not None else pc.if_else(False, removed, None), Removal),
            covered,
            _prove(fates, acts, removed, covered),
            part.consumers.take(consumers),
            _numbers(columns.deliveries[rows], pa.uint32()).cast(pa.int64()),
            _nullable(_numbers(columns.first_ms[rows], pa.int64())),
            _nullable(_numbers(columns.at_ms[rows], pa.int64())),
        ],
        schema=SCHEMA,
    )
    # The columns are unsigned: read as signed, a number of 2^63 or more is negative.
    fits = pc.and_(pc.greater_equal(batch["ms"], 0), pc.greater_equal(batch["seq"], 0))
    return batch if pc.all(fits).as_py() else batch.filter(fits)


def _prove(fates: pa.Array, acts: pa.Array, removed: pa.Array, covered: pa.Array) -> pa.Array:
    """The proof of each row, looked up in the table of all combinations."""
    place = fates.cast(pa.int32())
    for codes, number in ((acts, _ACTS), (removed, _REMOVALS), (covered, _COVERED)):
        place = pc.add(pc.multiply(place, number), codes.cast(pa.int32()))
    return pa.DictionaryArray.from_arrays(_all_proofs().take(place), _PROOFS)


@cache
def _all_proofs() -> Any:
    names = [one.value for one in Proof]
    combinations = product(Fate, AcknowledgementKind, Removal, (False, True))
    found = (
        prove(fate, act, removal, is_covered=covered)
        for fate, act, removal, covered in combinations
    )
    return pa.array([None if one is None else names.index(one.value) for one in found], pa.int8())


def _words(codes: pa.Array, names: type[IntEnum]) -> pa.Array:
    known = pa.array([name_of(one) for one in names], pa.string())
    return pa.DictionaryArray.from_arrays(codes, known)


def _codes(values: bytearray) -> pa.Array:
    return pa.Array.from_buffers(pa.int8(), len(values), [None, pa.py_buffer(bytes(values))])


def _numbers(values: array[int], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _nullable(values: pa.Array) -> pa.Array:
    """Replace 0, which means no value, by null."""
    return pc.if_else(pc.equal(values, 0), None, values)
