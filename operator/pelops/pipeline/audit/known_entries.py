"""What the driver knows of single entries, beside their archived rows, as one frame.

It has a row for each entry of a group that is pending, has an act in a ledger, or is a copy that a
ledger names. These are few: the ledgers and pending entries of a window fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import COPYING_KINDS, ENDING_KINDS
from pelops.pipeline.archive.ids import bounded
from pelops.pipeline.archive.ledger import ACTS
from pelops.pipeline.audit.letters import Letter, Move, follow_letters

_KEYS: Final = ["ms", "seq"]
_ROOT: Final = ("root_ms", "root_seq", "retry_count")
KNOWN: Final = pa.schema(
    [
        ("g", pa.int32()),
        ("copy", pa.bool_()),
        *((name, pa.int64()) for name in _KEYS),
        ("is_pending", pa.bool_()),
        ("pending_body", pa.bool_()),
        ("consumer", pa.string()),
        ("idle_ms", pa.int64()),
        ("delivery_count", pa.int64()),
        ("act", pa.string()),
        ("new_ms", pa.int64()),
        ("new_seq", pa.int64()),
        ("in_retry", pa.bool_()),  # the new ID is in the group's retry stream
        ("reason", pa.string()),
        ("act_at_ms", pa.int64()),
        ("act_idle_ms", pa.int64()),
        ("is_named", pa.bool_()),  # a ledger names it as a copy
        ("named_root_ms", pa.int64()),
        ("named_root_seq", pa.int64()),
        ("named_retry_count", pa.int32()),
    ]
)
ENDS: Final = pa.schema(
    [
        ("g", pa.int32()),
        ("ms", pa.int64()),
        ("seq", pa.int64()),
        ("act", pa.string()),
        ("new_ms", pa.int64()),
        ("new_seq", pa.int64()),
        ("in_retry", pa.bool_()),
        ("at_ms", pa.int64()),
        ("at_seq", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideKnown:
    """What is known of the entries of one stream for one group."""

    g: int  # number of the group
    copy: bool  # the stream is the group's retry stream
    stream: str
    acts: pa.Table  # the group's: see `ledger.ACTS`
    moves: Mapping[Letter, Move]
    pending: pa.Table
    named: pa.Table  # copies: see `name_copies`


def know_entries(sides: Iterable[SideKnown], retries: Mapping[int, str]) -> pa.Table:
    """The rows of `KNOWN`; `retries` has each group's retry stream."""
    parts = [_know(side, retries[side.g]) for side in sides]
    return pa.concat_tables([KNOWN.empty_table(), *parts])


def _know(side: SideKnown, retry: str) -> pa.Table:
    is_ours = pc.equal(side.acts["in_stream"], side.stream)
    acts = side.acts.filter(pc.and_kleene(_is_ending(side.acts), is_ours))
    acts = follow_letters(_with_place(_last_of_each(acts, _KEYS), retry), side.moves)
    acts = acts.select(
        [*_KEYS, "kind", "new_ms", "new_seq", "in_retry", "reason", "act_at_ms", "idle_ms"]
    )
    acts = acts.rename_columns(
        [*_KEYS, "act", "new_ms", "new_seq", "in_retry", "reason", "act_at_ms", "act_idle_ms"]
    )
    pending = side.pending.append_column("is_pending", pa.repeat(True, side.pending.num_rows))
    named = side.named.rename_columns([*_KEYS, *(f"named_{name}" for name in _ROOT)])
    named = named.append_column("is_named", pa.repeat(True, named.num_rows))
    rows = _join(_join(pending, acts), named)
    numbers = {
        "g": pa.repeat(pa.scalar(side.g, pa.int32()), rows.num_rows),
        "copy": pa.repeat(side.copy, rows.num_rows),
    }
    columns = {name: rows[name] for name in rows.column_names} | numbers
    for flag in ("is_pending", "is_named"):
        columns[flag] = pc.fill_null(columns[flag], False)
    return pa.table([columns[field.name].cast(field.type) for field in KNOWN], schema=KNOWN)


def _join(table: pa.Table, other: pa.Table) -> pa.Table:
    if other.num_rows:
        return table.join(other, keys=_KEYS, join_type="full outer")
    # A join takes several times the memory of its rows, and most tables to join are empty.
    for field in other.schema:
        if field.name not in _KEYS:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table


def find_ends(g: int, acts: pa.Table, moves: Mapping[Letter, Move], retry: str) -> pa.Table:
    """The last act on each chain of copies, by its root: rows of `ENDS`."""
    acts = _last_of_each(acts.filter(_is_ending(acts)), ["root_ms", "root_seq"])
    acts = follow_letters(_with_place(acts, retry), moves)
    columns = {
        "g": pa.repeat(pa.scalar(g, pa.int32()), acts.num_rows),
        "ms": acts["root_ms"],
        "seq": acts["root_seq"],
        "act": acts["kind"],
        "at_ms": acts["event_ms"],
        "at_seq": acts["event_seq"],
        **{name: acts[name] for name in ("new_ms", "new_seq", "in_retry")},
    }
    return pa.table([columns[field.name].cast(field.type) for field in ENDS], schema=ENDS)


def name_copies(
    acts: Sequence[pa.Table], stream: str, after: EntryId, upto: EntryId, *, is_retry: bool
) -> pa.Table:
    """Copies in a stream that ledgers name, in a range of IDs: `ms seq root_ms root_seq
    retry_count`, a row for each.

    The event that made a copy names it. An act on a copy names the copy and its root.
    """
    parts = []
    kinds = pa.array([str(kind) for kind in COPYING_KINDS])
    for act_rows in [ACTS.empty_table(), *acts]:
        is_made = pc.and_kleene(
            pc.is_in(act_rows["kind"], kinds), pc.equal(act_rows["target"], stream)
        )
        made = act_rows.filter(pc.fill_null(is_made, False)).filter(pc.field("new_ms").is_valid())
        made = made.select(["new_ms", "new_seq", *_ROOT]).rename_columns([*_KEYS, *_ROOT])
        on_copy = act_rows.filter(pc.fill_null(pc.equal(act_rows["in_stream"], stream), False))
        if not is_retry:
            on_copy = on_copy.filter(_is_before("root_ms", "root_seq", "ms", "seq"))
        parts += [made, on_copy.select([*_KEYS, *_ROOT])]
    copies = pa.concat_tables(parts).filter(_is_within(after, upto))
    # An act on a copy may record one failed attempt more than the copy has.
    least = copies.group_by(_KEYS).aggregate([(name, "min") for name in _ROOT])
    return least.select([*_KEYS, *(f"{name}_min" for name in _ROOT)]).rename_columns(
        [*_KEYS, *_ROOT]
    )


def _is_ending(acts: pa.Table) -> Any:
    return pc.is_in(acts["kind"], pa.array([str(kind) for kind in ENDING_KINDS]))


def _last_of_each(acts: pa.Table, keys: list[str]) -> pa.Table:
    """The row of the last event for each key."""
    acts = acts.sort_by([("event_ms", "ascending"), ("event_seq", "ascending")])
    numbered = acts.append_column("at", pa.array(range(acts.num_rows), pa.int64()))
    last = numbered.group_by(keys).aggregate([("at", "max")])
    return acts.take(last["at_max"])


def _with_place(acts: pa.Table, retry: str) -> pa.Table:
    """Add `in_retry` and `act_at_ms`, which `follow_letters` requires."""
    in_retry = pc.fill_null(pc.equal(acts["target"], retry), False)
    return acts.append_column("in_retry", in_retry).append_column("act_at_ms", acts["event_ms"])


def _is_before(ms: str, seq: str, other_ms: str, other_seq: str) -> Any:
    one, other = pc.field(ms), pc.field(other_ms)
    return (one < other) | ((one == other) & (pc.field(seq) < pc.field(other_seq)))


def _is_within(after: EntryId, upto: EntryId) -> Any:
    return ~is_at_or_before(after) & is_at_or_before(upto)


def is_at_or_before(entry_id: EntryId) -> Any:
    """An Arrow expression: whether the row's entry is at or before this one."""
    ms, seq = bounded(entry_id)
    at = pc.field("ms")
    return (at < ms) | ((at == ms) & (pc.field("seq") <= seq))
