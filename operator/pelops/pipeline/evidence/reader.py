"""Reading the evidence of consumer groups from a server's append-only directory.

One pass over the files, streaming: about 45 bytes of memory for each entry and group.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys
from pelops.pipeline.evidence.commands import read_acts
from pelops.pipeline.evidence.entries import EntryTable
from pelops.pipeline.evidence.errors import EvidenceUnusable
from pelops.pipeline.evidence.files import open_files
from pelops.pipeline.evidence.lives import GroupLives
from pelops.pipeline.evidence.replay import Replay, StreamHistory
from pelops.pipeline.evidence.tables import SCHEMA, build_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceLocation:
    """Where the evidence lies, and how much of it is wanted."""

    directory: Path  # with the manifest: the server's appenddirname
    database: int = 0
    after: EntryId = EntryId.MIN  # entries up to it are left out
    with_history: bool = False  # see `open_files`


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEvidence:
    """What the files say of the streams that were asked for."""

    begins_empty: bool  # the server held nothing before them
    acts: int  # commands and transactions read
    clock_ms: int  # the server's time at their end, or a little before; 0: no file told it
    _histories: dict[str, StreamHistory]

    def batches(self, stream: str, group: str) -> Iterator[pa.RecordBatch]:
        """A row of `SCHEMA` for each entry of a stream that the files name, for one group."""
        history = self._histories[stream]
        yield from build_batches(history.table, history.groups[group.encode()])

    def created_at(self, stream: str, group: str) -> EntryId | None:
        """Where the files saw a group created for the first time."""
        position = self._histories[stream].groups[group.encode()].created_at
        return None if position is None else EntryId(*position)

    def write(self, path: Path, stream: str, group: str) -> int:
        """The same as a Parquet file; how many rows it has."""
        rows = 0
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            for batch in self.batches(stream, group):
                writer.write_batch(batch)
                rows += batch.num_rows
        return rows


def read_evidence(source: EvidenceLocation, groups: Sequence[GroupKeys]) -> FileEvidence:
    """Read what the files say of groups, on their streams and on their retry streams.

    The server may go on writing. Raises EvidenceUnusable when the files are missing or damaged.
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
                    shown = b" ".join(act[0][:6])[:120]
                    raise EvidenceUnusable(
                        f"{file.name} holds what no server writes: {shown!r} ({error})"
                    ) from error
    return FileEvidence(
        begins_empty=opened.begins_empty,
        acts=replay.acts,
        clock_ms=replay.clock_ms,
        _histories=histories,
    )


def _prepare(groups: Sequence[GroupKeys], after: EntryId) -> dict[str, StreamHistory]:
    histories: dict[str, StreamHistory] = {}
    for keys in groups:
        for stream in (keys.stream, keys.retry):
            if stream not in histories:
                bound = (after.ms, after.seq)
                histories[stream] = StreamHistory(EntryTable(bound), {}, {})
            history, name = histories[stream], keys.group.encode()
            history.groups[name] = GroupLives(history.table)
            history.ledgers[name] = keys.ledger.encode()
    return histories


@contextmanager
def _without_collector() -> Iterator[None]:
    """Nothing here makes cycles, and looking for them doubles the cost of parsing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
