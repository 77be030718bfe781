"""The histories of entries in the archive, from arrival to final status, over all windows.

An entry and the copies that the operator made of it are one chain. A lookup by the ID of a copy
returns the history of the whole chain, from the entry that a user added to its last copy.

Each table is read once, with the rows of all streams and only a few columns. Conditions on IDs skip
most files and row groups by their statistics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.outcome import COPYING_KINDS, LETTER_KINDS
from pelops.errors import InvalidSpec
from pelops.pipeline.archive.ids import bounded
from pelops.pipeline.archive.records import Journal, WindowPhase
from pelops.pipeline.archive.tables import ENTRIES, EVENTS, STATUSES, Archive
from pelops.pipeline.entry_history import (
    EntryHistory,
    Event,
    Row,
    act_event,
    entry_of,
    file_events,
    make_event,
    root_of,
    status_events,
    time_of,
    unique,
    when,
)
from pelops.pipeline.settings import ArchivedPayload

MOST_FOUND: Final = 20  # entries with the value of a field that are listed
_FEW: Final = 50  # up to this number, a condition names each ID
_COLUMNS: Final = {
    ENTRIES: ("run", "stream", "window", "ms", "seq", "bytes", "root_ms", "root_seq"),
    EVENTS: (
        "run", "stream", "window", "group", "source", "kind", "in_stream", "ms", "seq", "target",
        "new_ms", "new_seq", "root_ms", "root_seq", "retry_count", "deliveries", "idle_ms",
        "reason", "consumer", "event_ms", "first_delivered_ms",
    ),
    STATUSES: (
        "run", "stream", "group", "ms", "seq", "status", "why", "evidence", "delivered_at",
        "audited_at", "consumer", "deliveries", "as_of",
    ),
}  # fmt: skip
_IS_ACT: Final = ds.field("source") == "ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupQuestion:
    """The entry to look up, by exactly one of: its ID, its root, the value of a field."""

    entry: EntryId | None = None  # its ID, or that of a copy
    root: EntryId | None = None
    field: tuple[str, str] | None = None
    stream: str | None = None  # None: all streams of the archive
    group: str | None = None  # None: all groups


def look_up(archive: Archive, question: LookupQuestion) -> list[EntryHistory]:
    """The histories of the entries that match, one for each group.

    Raises InvalidSpec if the archive has no such stream, group or field, and ArchiveUnusable if a
    file of it is missing.
    """
    journal = Journal.read(archive)
    streams = _choose(journal, question)
    tables = _Tables.of(journal, streams, is_whole=question.stream is None)
    if question.field is not None:
        roots = {one.name: _roots_by_field(tables, one, *question.field) for one in streams}
    elif question.root is not None:
        roots = _find_roots(tables, question.root, is_root=True)
    else:
        assert question.entry is not None
        roots = _find_roots(tables, question.entry, is_root=False)
    chains = _find_chains(tables, roots)
    return list(_read_histories(tables, chains, question.group)) if chains else []


def read_field(text: str) -> tuple[str, str]:
    """Parse `KEY=VALUE`. Raises InvalidSpec."""
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise InvalidSpec(f"{text!r} names no field: write it as --field KEY=VALUE")
    return name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArchivedStream:
    """One stream of the archive."""

    name: str
    groups: Sequence[str]
    retries: frozenset[str]  # the groups' own retry streams

    def holder(self, name: str | None) -> str:
        """The stream that a ledger names: a retry stream, or else the audited stream."""
        return name if name is not None and name in self.retries else self.name


class _Copy(NamedTuple):
    """An entry or a copy, with its stream: an ID may exist in several streams."""

    entry: EntryId
    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """Reads the rows of finished runs, which are the valid ones."""

    journal: Journal
    streams: Mapping[str, _ArchivedStream]
    owners: Mapping[str, str]  # by stream with entries: its audited stream
    is_whole: bool  # whether all streams of the archive are read
    audited: pa.Array  # runs
    archived: pa.Array  # runs whose entries are valid

    @classmethod
    def of(cls, journal: Journal, streams: Sequence[_ArchivedStream], *, is_whole: bool) -> _Tables:
        rows = journal.rows
        of_phase = {
            phase: pc.unique(rows.filter(pc.equal(rows["phase"], phase.value))["run"])
            for phase in (WindowPhase.AUDITED, WindowPhase.ARCHIVED)
        }
        return cls(
            journal=journal,
            streams={one.name: one for one in streams},
            owners={name: one.name for one in streams for name in (one.name, *sorted(one.retries))},
            is_whole=is_whole,
            audited=of_phase[WindowPhase.AUDITED],
            archived=pa.concat_arrays(
                [of_phase[WindowPhase.AUDITED], of_phase[WindowPhase.ARCHIVED]]
            ),
        )

    def read(
        self, table: str, *conditions: ds.Expression, columns: Sequence[str] | None = None
    ) -> dict[str, list[Row]]:
        """The rows that match all conditions, by the audited stream to which they belong."""
        names = list(self.streams if table == EVENTS else self.owners)
        narrow = () if self.is_whole else (ds.field("stream").isin(names),)
        chosen = columns or _COLUMNS[table]
        rows = self.journal.archive.read(table, *narrow, *conditions, columns=chosen)
        runs = self.archived if table == ENTRIES else self.audited
        by_stream: dict[str, list[Row]] = {}
        for row in rows.filter(pc.is_in(rows["run"], value_set=runs)).to_pylist():
            owner = self.owners.get(row["stream"])
            if owner is not None:
                by_stream.setdefault(owner, []).append(row)
        return by_stream


def _choose(journal: Journal, question: LookupQuestion) -> list[_ArchivedStream]:
    if not journal.streams:
        raise InvalidSpec(
            f"{journal.archive.place.root} does not hold an archive of this release: give --archive"
            " what --archive of `audit` names"
        )
    names = [name for name in journal.streams if question.stream in (None, name)]
    if not names:
        held = ", ".join(map(repr, journal.streams))
        raise InvalidSpec(f"the archive holds no stream {question.stream!r}; it holds {held}")
    groups = _groups(journal, names)
    if question.group is not None and not any(
        question.group in members for members in groups.values()
    ):
        held = ", ".join(sorted({repr(one) for members in groups.values() for one in members}))
        raise InvalidSpec(f"no audit was of the group {question.group!r}; the archive holds {held}")
    return [
        _ArchivedStream(
            name=name,
            groups=members,
            retries=frozenset(derive_keys(name, group).retry for group in members),
        )
        for name, members in groups.items()
        if question.group in (None, *members)
    ]


def _groups(journal: Journal, streams: Collection[str]) -> dict[str, list[str]]:
    """The groups of each of these streams that were ever audited."""
    found: dict[str, list[str]] = {name: [] for name in streams}
    audited = journal.rows.filter(pc.equal(journal.rows["phase"], WindowPhase.AUDITED.value))
    for row in audited.group_by(["stream", "group"]).aggregate([]).to_pylist():
        if row["stream"] in found and row["group"] is not None:
            found[row["stream"]].append(row["group"])
    return {name: sorted(groups) for name, groups in found.items()}


# Which entries.


def _roots_by_field(
    tables: _Tables, stream: _ArchivedStream, name: str, value: str
) -> list[EntryId]:
    """The entries that users added with the value of a field."""
    plan = tables.journal.know([stream.name])[stream.name].last
    is_ours = ds.field("stream") == stream.name
    rows: list[Row] = []
    if plan is not None and name == plan.business_key:
        rows = tables.read(ENTRIES, is_ours, ds.field("key") == value).get(stream.name, [])
    elif plan is not None and plan.payload is ArchivedPayload.FULL:
        pair = {"name": name.encode(), "value": value.encode()}
        for day in pc.unique(tables.journal.rows["date"]).to_pylist():  # by day, to limit memory
            of_day = tables.read(
                ENTRIES, is_ours, ds.field("date") == day, ds.field("fields").is_valid(),
                columns=(*_COLUMNS[ENTRIES], "fields"),
            )  # fmt: skip
            rows += (row for row in of_day.get(stream.name, ()) if pair in row["fields"])
    else:
        raise InvalidSpec(
            f"the archive does not hold the field {name!r} of stream {stream.name!r}: audit with "
            f"--payload full, or with --business-key {name}"
        )
    roots = dict.fromkeys(root_of(row) or entry_of(row) for row in rows)
    if len(roots) > MOST_FOUND:
        raise InvalidSpec(
            f"{len(roots)} entries of stream {stream.name!r} have {name}={value}; at most "
            f"{MOST_FOUND} are shown: ask for one of them by --id, such as {next(iter(roots))}"
        )
    return list(roots)


def _find_roots(tables: _Tables, entry: EntryId, *, is_root: bool) -> dict[str, list[EntryId]]:
    """The root entries of an ID, for each stream in which it occurs.

    A copy that was removed before it was archived, and a dead letter, are only in the ledger.
    """
    named = _is([entry]) | _is([entry], "new_") | _is([entry], "root_")
    acts = tables.read(EVENTS, _IS_ACT, named)
    entries = tables.read(ENTRIES, _is([entry]))
    statuses = tables.read(STATUSES, _is([entry]), columns=("run", "stream", "ms", "seq"))
    roots_by_stream = {}
    for name, stream in tables.streams.items():
        events, archived = acts.get(name, ()), entries.get(name, ())
        if is_root:
            known = any(entry in (entry_of(row), root_of(row)) for row in events)
            roots = {entry} if known or archived or name in statuses else set()
        else:
            roots = set(_roots_of(entry, stream, events, archived))
            if not roots and (events or name in statuses):
                roots = {entry}
        if roots:
            roots_by_stream[name] = sorted(roots)
    return roots_by_stream


def _roots_of(
    entry: EntryId, stream: _ArchivedStream, acts: Iterable[Row], archived: Iterable[Row]
) -> Iterable[EntryId]:
    """The roots of an entry or copy with this ID, or else of a dead letter with this ID."""
    named = [row for row in acts if entry in (entry_of(row), _new(row))]
    roots: dict[str, EntryId] = {}
    for row in named:
        if row["kind"] in COPYING_KINDS and _new(row) == entry:
            roots.setdefault(stream.holder(row["target"]), root_of(row) or entry)
    for row in archived:
        roots.setdefault(row["stream"], root_of(row) or entry)
    return roots.values() or [root_of(row) or entry for row in named[:1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """An entry that a user added, with its copies."""

    stream: _ArchivedStream
    root: EntryId
    copies: Sequence[_Copy]  # including the root, in order of their IDs
    letters: Sequence[Row]  # acts on its dead letters


def _find_chains(tables: _Tables, roots: Mapping[str, Sequence[EntryId]]) -> list[_Chain]:
    wanted = {root for some in roots.values() for root in some}
    if not wanted:
        return []
    since = ds.field("ms") >= bounded(min(wanted))[0]  # no copy is older than its root
    entries = tables.read(ENTRIES, since, _is(wanted, "root_"))
    acts = tables.read(EVENTS, _IS_ACT, _is(wanted, "root_"))
    chains = []
    for name, some in roots.items():
        stream = tables.streams[name]
        for root in some:
            archived = [_copy(row) for row in entries.get(name, ()) if root_of(row) == root]
            ours = [row for row in acts.get(name, ()) if root_of(row) == root]
            named = (one for row in ours for one in _named(stream, row))
            chains.append(
                _Chain(
                    stream=stream,
                    root=root,
                    copies=sorted({_Copy(root, name), *archived, *named}),
                    letters=[row for row in ours if row["kind"] in LETTER_KINDS],
                )
            )
    return chains


def _named(stream: _ArchivedStream, act: Row) -> Iterator[_Copy]:
    """The entry on which an act was done, and the copy that the act made."""
    if act["kind"] not in LETTER_KINDS:
        yield _Copy(entry_of(act), stream.holder(act["in_stream"]))
    new = _new(act)
    if act["kind"] in COPYING_KINDS and new is not None:
        yield _Copy(new, stream.holder(act["target"]))


# What happened.


def _read_histories(
    tables: _Tables, chains: Sequence[_Chain], only: str | None
) -> Iterator[EntryHistory]:
    wanted = _is({one.entry for chain in chains for one in chain.copies})
    entries, statuses, events = (
        tables.read(table, wanted) for table in (ENTRIES, STATUSES, EVENTS)
    )
    for chain in chains:
        name, copies = chain.stream.name, set(chain.copies)
        archived = [row for row in entries.get(name, ()) if _copy(row) in copies]
        status_rows = [row for row in statuses.get(name, ()) if _copy(row) in copies]
        event_rows = [*chain.letters]
        for row in events.get(name, ()):
            # A dead letter may have the same ID as an entry of another chain.
            if row["kind"] not in LETTER_KINDS and next(_named(chain.stream, row)) in copies:
                event_rows.append(row)
        for group in chain.stream.groups:
            if only in (None, group):
                own = [row for row in event_rows if row["group"] == group]
                events_of_group = [*_arrivals(chain, group, archived), *_events(own)]
                yield _history(
                    chain,
                    group,
                    events_of_group,
                    [row for row in status_rows if row["group"] == group],
                )


def _arrivals(chain: _Chain, group: str, entries: Sequence[Row]) -> Iterator[Event]:
    """Events for the arrival of the entry and its copies.

    If an entry was removed before it was archived, its time is taken from its ID.
    """
    archived = {_copy(row): row for row in reversed(entries)}
    name = chain.stream.name
    for copy in chain.copies:
        row = archived.get(copy)
        if copy.stream not in {name, derive_keys(name, group).retry}:
            continue  # in the retry stream of another group
        if row is None:
            yield Event(
                at=time_of(copy.entry.ms),
                window=None,
                entry=str(copy.entry),
                what="added",
                details="deleted or trimmed before it was archived",
            )
        else:
            root = root_of(row)
            what = "added" if root is None else f"added as a copy of {root}"
            yield make_event(row["ms"], row, copy.entry, what, f"{row['bytes']} bytes")


def _events(rows: Sequence[Row]) -> Iterator[Event]:
    """Events of the ledgers and of the append-only files."""
    yield from unique(act_event(row) for row in rows if row["source"] == "ledger")
    yield from unique(one for row in rows if row["source"] == "file" for one in file_events(row))


def _history(
    chain: _Chain, group: str, events: Sequence[Event], statuses: Sequence[Row]
) -> EntryHistory:
    last = max(statuses, key=_order, default=None)
    return EntryHistory(
        stream=chain.stream.name,
        group=group,
        root=str(chain.root),
        status=None if last is None else last["status"],
        evidence=None if last is None else last["evidence"],
        window=None if last is None else last["as_of"],
        events=tuple(sorted([*events, *status_events(statuses)], key=when)),
    )


def _order(row: Row) -> tuple[int, int, int]:
    """Sort key: the status of the last copy in the newest audit is the highest."""
    return (row["ms"], row["seq"], row["as_of"])


def _copy(row: Row) -> _Copy:
    return _Copy(entry_of(row), row["stream"])


def _new(row: Row) -> EntryId | None:
    return None if row["new_ms"] is None else EntryId(row["new_ms"], row["new_seq"])


def _is(entries: Collection[EntryId], prefix: str = "") -> ds.Expression:
    """A condition for the rows of these entries; for many, it also matches some others."""
    ms, seq = ds.field(f"{prefix}ms"), ds.field(f"{prefix}seq")
    ids = sorted(map(bounded, entries))
    if len(ids) <= _FEW:
        return reduce(or_, ((ms == one[0]) & (seq == one[1]) for one in ids))
    return ms.isin([one[0] for one in ids]) & seq.isin([one[1] for one in ids])
