"""Replays the commands of the files on the audited streams.

`docs/audits/evidence.md` lists what each server writes to the files for each command.

Options may be in lower case. The files contain the IDs that the server chose, and the exact result
of an approximate trim. Only an XADD that was a repetition (IDMP, 8.6) keeps its `*`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pelops.domain.records.ledger import KIND_FIELD, WORKER_KINDS
from pelops.pipeline.evidence.append_only_files import STAMP, Command
from pelops.pipeline.evidence.entry_histories import (
    ACTS,
    AcknowledgementKind,
    Delivery,
    EntryTable,
    Fate,
    GroupLives,
    Id,
    Removal,
    parse_id,
)

_POLICIES: Final = frozenset({b"KEEPREF", b"DELREF", b"ACKED"})
_OPERANDS: Final = {b"NOMKSTREAM": 0, b"LIMIT": 1, b"IDMPAUTO": 1, b"IDMP": 2}  # number to skip
_TRIMS: Final = frozenset({b"MAXLEN", b"MINID"})
_KEEP: Final = b"KEEPREF"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """A trim of the beginning of a stream: below an ID, or to a length."""

    below: Id | None = None
    length: int = 0
    policy: bytes = _KEEP  # for the pending entries of trimmed entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """An XADD."""

    entry_id: Id | None  # None: a repetition, which added nothing
    trim: Trim | None
    pairs: Sequence[bytes]


def read_added(command: Sequence[bytes]) -> Added:
    """Parse an XADD. Raises ValueError or IndexError for one that no server writes."""
    # Most have no options: the ID follows the key.
    at = 2 if command[2][:1].isdigit() else _pass_options(command, 2)
    trim = None if at == 2 else read_trim(command[2:at])
    chosen = command[at]
    return Added(
        entry_id=None if chosen == b"*" else parse_id(chosen),
        trim=trim if trim and (trim.below is not None or trim.length >= 0) else None,
        pairs=command[at + 1 :],
    )


def read_trim(words: Sequence[bytes]) -> Trim:
    """Parse the trim options of XTRIM or XADD; a length of -1 if they trim nothing."""
    policy, below, length, at = _KEEP, None, -1, 0
    while at < len(words):
        word = words[at].upper()
        if word in _POLICIES:
            policy = word
        elif word in _TRIMS:
            at += 2 if words[at + 1] in {b"=", b"~"} else 1
            if word == b"MINID":
                below = parse_id(words[at])
            else:
                length = int(words[at])
        else:
            at += _OPERANDS.get(word, 0)
        at += 1
    return Trim(below=below, length=length, policy=policy)


def read_ids(words: Sequence[bytes]) -> tuple[bytes, list[Id]]:
    """The policy for pending entries and the IDs of an XACK, XDEL, XACKDEL or XDELEX."""
    if words[0][:1].isdigit():
        return _KEEP, [parse_id(word) for word in words]
    policy = words[0].upper() if words[0].upper() in _POLICIES else _KEEP
    at = next(i for i, word in enumerate(words) if word.upper() == b"IDS")
    return policy, [parse_id(word) for word in words[at + 2 :]]


def _pass_options(command: Sequence[bytes], at: int) -> int:
    """The index of the ID of an XADD."""
    while True:
        word = command[at].upper()
        if word in _TRIMS:
            at += 2 if command[at + 1] in {b"=", b"~"} else 1
        elif word in _OPERANDS:
            at += _OPERANDS[word]
        elif word not in _POLICIES:
            return at
        at += 1


_KIND: Final = KIND_FIELD.encode()
# These do not change entries. Any other command that is not for streams replaces the key's value.
_HARMLESS: Final = frozenset({b"PEXPIREAT", b"EXPIRE", b"PEXPIRE", b"EXPIREAT", b"PERSIST"})
_DELETING: Final = frozenset({b"DEL", b"UNLINK"})
_NAMING: Final = frozenset({b"RENAME", b"RENAMENX", b"COPY"})
_OF_DATABASES: Final = frozenset({b"FLUSHALL", b"FLUSHDB", b"SWAPDB"})


@dataclass(slots=True)
class StreamHistory:
    """One stream with its audited groups."""

    table: EntryTable
    groups: dict[bytes, GroupLives]
    ledgers: dict[bytes, tuple[bytes, bytes]]  # by group: keys of its ledger and worker ledger

    def every_group(self) -> Iterator[GroupLives]:
        yield from self.groups.values()


@dataclass(slots=True)
class Replay:
    """The state after the commands so far."""

    streams: Mapping[bytes, StreamHistory]
    database: int = 0
    in_base: bool = False  # base file: its commands describe a state, not events
    clock_ms: int = 0  # the server's time by the files; it may be a little behind
    acts: int = 0  # commands and transactions applied
    _selected: bool = True
    _ledgers: frozenset[bytes] = field(init=False)
    _of_workers: frozenset[bytes] = field(init=False)
    _recorded: dict[tuple[bytes, Id], AcknowledgementKind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ledgers = frozenset(
            key
            for history in self.streams.values()
            for both in history.ledgers.values()
            for key in both
        )
        self._of_workers = frozenset(
            both[1] for history in self.streams.values() for both in history.ledgers.values()
        )
        self._selected = self.database == 0

    def apply(self, act: Sequence[Command]) -> None:
        """Apply commands that took effect together. Raises ValueError or IndexError if invalid."""
        self.acts += 1
        if len(act) > 1:
            self._note_records(act)
        for command in act:
            name = command[0].upper()
            at = 2 if name == b"XGROUP" else 1
            history = self.streams.get(command[at]) if len(command) > at else None
            if history is None:
                self._apply_elsewhere(name, command)
            elif self._selected or name == b"MOVE":
                apply = _COMMANDS.get(name)
                if apply is not None:
                    apply(self, history, command)
                else:
                    self._apply_other(name, command)
        if self._recorded:
            self._recorded.clear()

    def _apply_other(self, name: bytes, command: Command) -> None:
        """Apply a command on a stream's key that is not a stream command."""
        if name in _DELETING or name in _NAMING:
            self._apply_elsewhere(name, command)
        elif name not in _HARMLESS:
            self._replace([command[1]])

    def _apply_elsewhere(self, name: bytes, command: Command) -> None:
        if name == STAMP:
            self._stamp(int(command[1]) * 1000)
        elif name == b"SELECT":
            self._selected = int(command[1]) == self.database
        elif name in _DELETING and self._selected:
            self._delete(command[1:])
        elif name in _NAMING and self._selected:
            # The content of the renamed or copied key is not known here.
            self._replace(command[1 + (name == b"COPY") : 3])
        elif name in _OF_DATABASES:
            self._flush(name, command)

    def _stamp(self, ms: int) -> None:
        # The time in a command may be ahead of the server's clock.
        self.clock_ms = max(ms, self.clock_ms) if self.clock_ms < ms + 1000 else ms

    def _flush(self, name: bytes, command: Command) -> None:
        if name == b"SWAPDB":
            if b"%d" % self.database in command[1:]:
                self._replace(list(self.streams))
        elif name == b"FLUSHALL" or self._selected:
            self._delete(list(self.streams))

    def _delete(self, keys: Sequence[bytes]) -> None:
        for history in map(self.streams.get, keys):
            if history is not None:
                history.table.delete_stream()
                for group in history.every_group():
                    group.destroy(Fate.STREAM_DELETED)

    def _replace(self, keys: Sequence[bytes]) -> None:
        """Another stream may now have this key, or the same one again: its state is unknown."""
        self._delete(keys)
        for history in map(self.streams.get, keys):
            if history is not None:
                history.table.mark_unknown()
                for group in history.every_group():
                    group.mark_unknown()

    def _note_records(self, act: Sequence[Command]) -> None:
        """Note the acts that ledgers record, for acknowledgements in the same transaction."""
        for command in act:
            if len(command) > 4 and command[1] in self._ledgers and command[0].upper() == b"XADD":
                added = read_added(command)
                fields = dict(zip(added.pairs[::2], added.pairs[1::2], strict=False))
                named = fields.get(_KIND, b"").decode(errors="replace")
                if command[1] in self._of_workers and named not in WORKER_KINDS:
                    continue  # workers do not record this kind
                kind = ACTS.get(named, AcknowledgementKind.OTHER)
                for name in fields:
                    if name[:1].isdigit() and b"-" in name:
                        self._recorded[command[1], parse_id(name)] = kind

    def _add(self, history: StreamHistory, command: Command) -> None:
        word = command[2]
        if word[:1].isdigit():  # most have no options
            self._add_one(history, parse_id(word))
            return
        added = read_added(command)
        if added.entry_id is not None:
            self._add_one(history, added.entry_id)
        if added.trim is not None:
            self._trim(history, added.trim)

    def _add_one(self, history: StreamHistory, entry_id: Id) -> None:
        forgotten = history.table.add(entry_id, is_covered=not self.in_base)
        if forgotten is not None:
            for group in history.every_group():
                group.forget_from(forgotten)

    def _trim_alone(self, history: StreamHistory, command: Command) -> None:
        self._trim(history, read_trim(command[2:]))

    def _trim(self, history: StreamHistory, trim: Trim) -> None:
        if trim.policy == b"ACKED":
            # Its effect depends on all groups. It does not remove unacknowledged entries.
            history.table.is_exact = False
            return
        if trim.below is not None:
            gone = history.table.trim_below(trim.below)
        else:
            gone = history.table.trim_to_length(trim.length)
        if trim.policy == b"DELREF":
            for group in history.every_group():
                group.drop_references(gone, self.clock_ms)

    def _remove(self, history: StreamHistory, command: Command) -> None:
        """Apply XDEL, or XDELEX (Redis 8.2 and later)."""
        policy, ids = read_ids(command[2:])
        if policy == b"ACKED":
            history.table.is_exact = False
            return
        self._delete_entries(history, policy, ids)

    def _delete_entries(self, history: StreamHistory, policy: bytes, ids: Sequence[Id]) -> None:
        gone = [history.table.delete(one) for one in ids]
        if policy == b"DELREF":
            for group in history.every_group():
                group.drop_references([one for one in gone if one is not None], self.clock_ms)

    def _acknowledge(self, history: StreamHistory, command: Command) -> None:
        group = history.groups.get(command[2])
        if group is not None:
            _, ids = read_ids(command[3:])
            self._acknowledge_in(history, group, command[2], ids)

    def _acknowledge_and_delete(self, history: StreamHistory, command: Command) -> None:
        """Apply XACKDEL (Redis 8.2 and later), which deletes only pending entries of its group."""
        policy, ids = read_ids(command[3:])
        group = history.groups.get(command[2])
        if policy == b"ACKED" or group is None:
            history.table.is_exact = False
        if group is None:
            for entry_id in ids:
                history.table.delete(entry_id, Removal.UNKNOWN)
            return
        done = self._acknowledge_in(history, group, command[2], ids)
        if policy != b"ACKED":
            self._delete_entries(history, policy, done)

    def _acknowledge_in(
        self, history: StreamHistory, group: GroupLives, name: bytes, ids: Sequence[Id]
    ) -> list[Id]:
        """Acknowledge these; return those that were pending."""
        ledgers, usual, done = history.ledgers.get(name, ()), AcknowledgementKind.WORKER, []
        for entry_id in ids:
            number = history.table.find(entry_id)
            if number is not None:
                act = self._act_on(entry_id, ledgers) if self._recorded else usual
                if group.acknowledge(number, act, self.clock_ms):
                    done.append(entry_id)
        return done

    def _act_on(self, entry_id: Id, ledgers: Iterable[bytes]) -> AcknowledgementKind:
        """The act on an entry by the operator's ledger, or else by the worker ledger."""
        acts = (self._recorded.get((ledger, entry_id)) for ledger in ledgers)
        return next((act for act in acts if act is not None), AcknowledgementKind.WORKER)

    def _claim(self, history: StreamHistory, command: Command) -> None:
        """XCLAIM key group consumer 0 id TIME ms RETRYCOUNT n [FORCE] [JUSTID] [LASTID id]."""
        group = history.groups.get(command[2])
        if group is None:
            return
        entry_id, at_ms = parse_id(command[5]), int(command[7])
        number = history.table.find_or_note(entry_id)
        if number is not None:
            group.deliver(entry_id, number, Delivery(command[3], at_ms, int(command[9])))
        self.clock_ms = max(self.clock_ms, at_ms)
        if len(command) > 12 and command[-2].upper() == b"LASTID":
            last = parse_id(command[-1])
            if group.position is None or last > group.position:
                group.set_position(last, Fate.SKIPPED)

    def _change_group(self, history: StreamHistory, command: Command) -> None:
        """XGROUP CREATE | SETID | DESTROY | DELCONSUMER key group ..."""
        group = history.groups.get(command[3])
        if group is None:
            return
        what = command[1].upper()
        if what == b"DESTROY":
            group.destroy(Fate.GROUP_DESTROYED)
        elif what == b"DELCONSUMER":
            group.remove_consumer(command[4], self.clock_ms)
        elif what == b"CREATE":
            group.create(_position(history, command[4]), is_known=self.in_base)
        elif what == b"SETID":
            # Servers write a NOACK read as SETID with ENTRIESREAD. A program that reads by other
            # means and sets the position may use the same form.
            is_read = any(word.upper() == b"ENTRIESREAD" for word in command[5:])
            how = Fate.READ_WITHOUT_RECORD if is_read else Fate.SKIPPED
            group.set_position(_position(history, command[4]), how)

    def _set_last(self, history: StreamHistory, command: Command) -> None:
        history.table.last = parse_id(command[2])


def _position(history: StreamHistory, word: bytes) -> Id:
    return history.table.last if word == b"$" else parse_id(word)


_COMMANDS: Final[Mapping[bytes, Callable[[Replay, StreamHistory, Command], None]]] = {
    b"XADD": Replay._add,
    b"XTRIM": Replay._trim_alone,
    b"XDEL": Replay._remove,
    b"XDELEX": Replay._remove,
    b"XACK": Replay._acknowledge,
    b"XACKDEL": Replay._acknowledge_and_delete,
    b"XCLAIM": Replay._claim,
    b"XGROUP": Replay._change_group,
    b"XSETID": Replay._set_last,
}
