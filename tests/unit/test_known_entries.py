"""What the driver of an audit holds of pending entries, and hands to Spark."""

from __future__ import annotations

import subprocess
import sys

# Without acts: most pending entries were never acted on.
MEASURE = """
import pyarrow as pa
from pelops.domain.entry_id import EntryId
from pelops.pipeline.audit.known_entries import SideKnown, know_entries, name_copies
from pelops.pipeline.archive.ledger import ACTS
from pelops.pipeline.archive.snapshot import PENDING

rows = [
    pa.RecordBatch.from_pydict(
        {"ms": [first + at for at in range(1000)], "seq": [1] * 1000, "consumer": ["w"] * 1000,
         "idle_ms": [5] * 1000, "delivery_count": [1] * 1000, "pending_body": [True] * 1000},
        schema=PENDING,
    )
    for first in range(0, 200_000, 1000)
]
pending = pa.Table.from_batches(rows)
acts = ACTS.empty_table()
named = name_copies([acts], "s", EntryId.MIN, EntryId.MAX, is_retry=False)
side = SideKnown(g=0, copy=False, stream="s", acts=acts, moves={}, pending=pending, named=named)
known = know_entries([side], {0: "retry"})
assert known.num_rows == 200_000 and known["is_pending"].to_pylist() == [True] * 200_000
assert known["act"].null_count == known["named_root_ms"].null_count == 200_000
print(pa.default_memory_pool().max_memory() / (pending.nbytes + known.nbytes))
"""


def test_each_pending_entry_is_held_about_once_while_the_frame_is_made() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 1.3
