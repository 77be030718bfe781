"""A real server on which a history is lived; the books take every effect from its answers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from local_cluster.redis_servers import ServerOptions, StandaloneServers, start_standalone
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.records.dead_letter import LetterAction
from pelops.domain.records.state import CHECKPOINT_AT
from pelops.domain.recovery import Action, RetryBatch
from pelops.domain.stream_observation import StreamObservation
from pelops.errors import NoSuchGroup, PelopsError, PositionAhead, WouldDuplicate
from pelops.policy.group.losses import Holders, find_dropped, find_new_loss, find_vanished
from pelops.policy.group.position import LastSeen, decide_went_back
from pelops.policy.group.retention import RetentionPlan
from pelops.policy.recovery.attempts import AttemptPlan, OwnerPlan, Settlement
from pelops.redis_core.server import Server
from pelops.redis_streams.group import maintenance as positions
from pelops.redis_streams.group.group_observation import ObservationRequest, observe_groups
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.group.maintenance import trim_retry_stream, trim_stream
from pelops.redis_streams.recovery.stuck_entries import RecoveryOrder, recover_owner
from pelops.redis_streams.recovery.stuck_entries import ScanContext as Acting
from pelops.redis_streams.recovery.suspects import settle_suspects
from tests.integration.recovering import a_context, server_time
from tests.integration.redis_adapter import an_owner, connected, endpoint_of
from tests.pipeline.oracle.books import GroupBook, State, StreamBook
from tests.pipeline.oracle.histories import (
    BY_OPERATOR,
    ON_DEAD_LETTERS,
    Act,
    Files,
    History,
    Kind,
)
from tests.pipeline.oracle.letters import LetterBook
from tests.pipeline.wire import Refused, Wire, Word

STREAM: Final = "orders"
_DAY_MS: Final = 86_400_000
STUCK_MS: Final = _DAY_MS // 2  # what was made to look idle for a day is stuck, all else is not
_LATER: Final = timedelta(minutes=1)
_CONSUMERS: Final = ("a", "b", "c")
_RETRY_CONSUMER: Final = "r"
_COUNT: Final = 10**7


@dataclass(slots=True)
class Watched:
    """What the operator keeps in memory about a group."""

    seen: LastSeen | None = None
    holders: Holders | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the server shows of a group, when an audit looks."""

    exists: bool
    position: EntryId = EntryId.MIN
    entries_read: int | None = None
    consumers: int = 0


@dataclass(slots=True)
class World:
    """The stream, its groups, the operator and everybody else."""

    history: History
    servers: StandaloneServers
    wire: Wire
    server: Server
    main: StreamBook = field(default_factory=lambda: StreamBook(STREAM))
    retries: dict[str, StreamBook] = field(default_factory=dict)
    letters: dict[str, LetterBook] = field(default_factory=dict)
    watched: dict[str, Watched] = field(default_factory=dict)
    added: int = 0
    covered_from: int = 0  # append-only files have seen every entry from this place on added
    breaks: int = 0  # how often the stream was deleted and made again
    # Groups that were made or moved according to the operator's ledger.
    reported: set[str] = field(default_factory=set)
    pick: int = 0  # of the present act
    has_restarted: bool = False
    archived_breaks: int | None = None  # breaks before the first archive

    @property
    def groups(self) -> list[str]:
        return [f"g{number}" for number in range(self.history.groups)]

    @property
    def files(self) -> Path | None:
        if self.history.files is Files.NONE:
            return None
        return self.servers.server.directory / "appendonlydir"

    def keys(self, group: str) -> GroupKeys:
        return derive_keys(STREAM, group)

    def book(self, group: str) -> GroupBook:
        return self.main.group(group)

    def retry(self, group: str) -> StreamBook:
        return self.retries.setdefault(group, StreamBook(self.keys(group).retry))

    def letter_book(self, group: str) -> LetterBook:
        if group not in self.letters:
            self.letters[group] = LetterBook(self.keys(group), self.wire)
        return self.letters[group]

    def ask(self, *words: Word) -> Any:
        return self.wire.ask(*words)

    def observation(self, group: str) -> Observation:
        """The group as the server shows it."""
        try:
            found = self.ask("XINFO", "GROUPS", STREAM)
        except Refused:
            return Observation(exists=False)
        for one in found:
            reported = dict(zip(one[::2], one[1::2], strict=True))
            if reported[b"name"] == group.encode():
                return Observation(
                    exists=True,
                    position=parse_entry_id(reported[b"last-delivered-id"]),
                    entries_read=reported[b"entries-read"],
                    consumers=reported[b"consumers"],
                )
        return Observation(exists=False)

    async def begin(self) -> None:
        """Groups begin where the history says."""
        if self.history.start != "0":
            self._add(10)
        start: Any = {"0": EntryId.MIN, "$": "$"}.get(self.history.start)
        if start is None:
            start = parse_entry_id(self.main.ids[4])
        for group in self.groups:
            if self.history.has_operator:
                await self._provision(group, start)
            else:
                self.ask("XGROUP", "CREATE", STREAM, group, str(start), "MKSTREAM")
                self._note_position(group, is_new=True)

    async def act(self, act: Act) -> None:
        """Do one thing; what cannot be done now is left out."""
        is_by_operator = act.kind in {*BY_OPERATOR, *ON_DEAD_LETTERS, Kind.RETRY_SUSPECT}
        if is_by_operator and not self.history.has_operator:
            return
        group = f"g{act.group % self.history.groups}"
        chance = random.Random(act.pick)
        self.pick = act.pick
        # Where the operator refuses, it has done nothing.
        with suppress(WouldDuplicate, PositionAhead, NoSuchGroup):
            await _ACTS[act.kind](self, group, act.number, chance)
        if self.history.has_operator and not act.is_unwatched:
            await self._watch()

    # What users, workers and their accidents do.

    async def add(self, group: str, number: int, chance: random.Random) -> None:
        self._add(number)

    def _add(self, number: int) -> None:
        start, self.added = self.added, self.added + number
        words = (("XADD", STREAM, "*", "order", at) for at in range(start, start + number))
        for book in self.main.groups.values():
            assert len(book.states) == len(self.main)
        self.main.add(self.wire.ask_all(list(words)))

    async def read(self, group: str, number: int, chance: random.Random) -> None:
        self._read(self.main, group, chance.choice(_CONSUMERS), number)

    async def read_without_record(self, group: str, number: int, chance: random.Random) -> None:
        self._read(self.main, group, chance.choice(_CONSUMERS), number, "NOACK")

    async def acknowledge(self, group: str, number: int, chance: random.Random) -> None:
        held = self.book(group).pending()
        self._acknowledge(self.main, group, _some(chance, held, number))

    async def work(self, group: str, number: int, chance: random.Random) -> None:
        places = self._read(self.main, group, chance.choice(_CONSUMERS), number)
        self._acknowledge(self.main, group, places)

    async def work_in_transaction(self, group: str, number: int, chance: random.Random) -> None:
        places = self._read(self.main, group, chance.choice(_CONSUMERS), number)
        if places:
            ids = [self.main.ids[place] for place in places]
            results: list[tuple[Word, ...]] = [("XADD", "results", "*", "of", one) for one in ids]
            acknowledge: tuple[Word, ...] = ("XACK", STREAM, group, *ids)
            self.wire.ask_all([("MULTI",), *results, acknowledge, ("EXEC",)])
            self.book(group).finish(places, State.ACKNOWLEDGED)

    async def work_in_turns(self, group: str, number: int, chance: random.Random) -> None:
        """One worker renews its entries and reads them again; another takes over half of them."""
        first, second = chance.sample(_CONSUMERS, 2)
        places = self._read(self.main, group, first, number)
        if not places:
            return
        ids = [self.main.ids[place] for place in places]
        self.ask("XCLAIM", STREAM, group, first, 0, *ids, "JUSTID")
        history = ("XREADGROUP", "GROUP", group, first, "COUNT", number, "STREAMS", STREAM, "0")
        [(_, again)] = self.ask(*history)
        self.book(group).give(first, [self.main.places[one] for one, _ in again])
        self.ask("XCLAIM", STREAM, group, second, 0, *ids[::2])
        self.book(group).give(second, places[::2])
        self._acknowledge(self.main, group, places)
        assert self.ask("XACK", STREAM, group, *ids, "1-1") == 0

    async def drain(self, group: str, number: int, chance: random.Random) -> None:
        self._read(self.main, group, chance.choice(_CONSUMERS), _COUNT)
        self._acknowledge(self.main, group, self.book(group).pending())

    async def delete_pending(self, group: str, number: int, chance: random.Random) -> None:
        held = [one for one in self.book(group).pending() if self.main.bodies[one]]
        self._delete(_some(chance, held, number))

    async def delete_undelivered(self, group: str, number: int, chance: random.Random) -> None:
        self._delete(_some(chance, self.book(group).undelivered(), number))

    async def delete_done(self, group: str, number: int, chance: random.Random) -> None:
        books = [self.book(one) for one in self.groups]
        ended = {State.ACKNOWLEDGED, State.REQUEUED, State.DEAD_LETTERED}
        done = [
            one for one in self.main.present() if all(book.states[one] in ended for book in books)
        ]
        self._delete(_some(chance, done, number))

    async def trim(self, group: str, number: int, chance: random.Random) -> None:
        present = self.main.present()
        if chance.random() < 0.5 or not present:
            self.ask("XTRIM", STREAM, "MAXLEN", max(0, len(present) - number))
        else:
            self.ask(
                "XTRIM", STREAM, "MINID", self.main.ids[present[min(number, len(present)) - 1]]
            )
        self._note_trim(self.main)

    async def trim_done(self, group: str, number: int, chance: random.Random) -> None:
        needed = [self._needed(one) for one in self.groups]
        first = min(needed, default=0)
        if first < len(self.main):
            self.ask("XTRIM", STREAM, "MINID", self.main.ids[first])
            self._note_trim(self.main)

    async def delete_consumer(self, group: str, number: int, chance: random.Random) -> None:
        book = self.book(group)
        if not book.exists:
            return
        holders = sorted(name for name, held in book.held.items() if held)
        consumer = chance.choice(holders or list(_CONSUMERS))
        held = set(book.held.get(consumer, ()))
        number = self.ask("XGROUP", "DELCONSUMER", STREAM, group, consumer)
        assert number == len(held)
        book.finish(held, State.DROPPED)

    async def destroy(self, group: str, number: int, chance: random.Random) -> None:
        if self.book(group).exists:
            assert self.ask("XGROUP", "DESTROY", STREAM, group) == 1
            self.book(group).destroy()

    async def create(self, group: str, number: int, chance: random.Random) -> None:
        """Create the group again by hand, at any position."""
        await self.destroy(group, number, chance)
        at = self._choose_position()
        self.ask("XGROUP", "CREATE", STREAM, group, at, "MKSTREAM")
        self._note_position(group, is_new=True)

    async def set_position(self, group: str, number: int, chance: random.Random) -> None:
        if not self.book(group).exists:
            return
        at = self._choose_position()
        self.ask("XGROUP", "SETID", STREAM, group, at)
        self._note_position(group, is_new=False)

    async def claim(self, group: str, number: int, chance: random.Random) -> None:
        """A worker takes over what it finds, and drops what has no body."""
        book = self.book(group)
        if not book.exists:
            return
        consumer = chance.choice(_CONSUMERS)
        words: tuple[Word, ...] = (STREAM, group, consumer, 0, "0", "COUNT", number)
        _, found, gone = self.ask("XAUTOCLAIM", *words)
        book.finish((self.main.places[one] for one in gone), State.CLAIMED_AWAY)
        book.give(consumer, [self.main.places[one] for one, _ in found])

    async def claim_bodyless(self, group: str, number: int, chance: random.Random) -> None:
        book = self.book(group)
        gone = _some(chance, [p for p in book.pending() if not self.main.bodies[p]], number)
        if gone:
            ids = [self.main.ids[place] for place in gone]
            assert not self.ask("XCLAIM", STREAM, group, "a", 0, *ids)
            book.finish(gone, State.CLAIMED_AWAY)

    async def let_idle(self, group: str, number: int, chance: random.Random) -> None:
        """Some of what is pending has been so for a day."""
        book = self.book(group)
        for owner, held in book.held.items():
            some = _some(chance, sorted(p for p in held if self.main.bodies[p]), number)
            if some:
                ids = [self.main.ids[place] for place in some]
                self.ask("XCLAIM", STREAM, group, owner, 0, *ids, "IDLE", _DAY_MS, "JUSTID")
                book.stuck.update(some)

    async def flush(self, group: str, number: int, chance: random.Random) -> None:
        """A user empties the server; then it fills again."""
        self.ask("FLUSHALL")
        await self._begin_anew(number)

    async def delete_stream(self, group: str, number: int, chance: random.Random) -> None:
        self.ask("DEL", STREAM)
        await self._begin_anew(number, keeps_records=True)

    async def restart_empty(self, group: str, number: int, chance: random.Random) -> None:
        """A server that keeps nothing on disk restarts."""
        self.wire.close()
        self.servers.server.kill()
        self.servers.server.start()
        self.wire = Wire(self.servers.master().port)
        self.has_restarted = True
        await self._begin_anew(number)

    async def rewrite(self, group: str, number: int, chance: random.Random) -> None:
        """The server begins new append-only files."""
        self.ask("BGREWRITEAOF")
        while "aof_rewrite_in_progress:1" in (info := self.ask("INFO", "persistence").decode()) or (
            "aof_rewrite_scheduled:1" in info
        ):
            pass
        self.covered_from = len(self.main)

    # What the operator does, by its own adapters.

    async def provision(self, group: str, number: int, chance: random.Random) -> None:
        await self._provision(group, EntryId.MIN)

    async def retention(self, group: str, number: int, chance: random.Random) -> None:
        plan = RetentionPlan(max_length=chance.choice((0, number)), max_age=None, message="")
        while (await trim_stream(self.server, self.keys(group), an_owner(), plan)).may_continue:
            pass
        self._note_trim(self.main)

    async def recover(self, group: str, number: int, chance: random.Random) -> None:
        await self._recover(group, self.main, self.main, chance)

    async def recover_to_retry(self, group: str, number: int, chance: random.Random) -> None:
        await self._recover(group, self.main, self.retry(group), chance)

    async def recover_copies(self, group: str, number: int, chance: random.Random) -> None:
        await self._recover(group, self.retry(group), self.retry(group), chance)

    async def dead_letter(self, group: str, number: int, chance: random.Random) -> None:
        source = chance.choice((self.main, self.main, self.retry(group)))
        owner, held = self._holder(source.group(group), chance)
        some = _some(chance, held, min(number, 40))
        if some:
            await self._settle(group, source, owner, some)

    async def retry_suspect(self, group: str, number: int, chance: random.Random) -> None:
        owner, held = self._holder(self.book(group), chance)
        if held:
            await self._settle(group, self.main, owner, _some(chance, held, 1), Action.FREE)

    async def fail(self, group: str, number: int, chance: random.Random) -> None:
        source = chance.choice((self.main, self.main, self.retry(group)))
        consumer = chance.choice(_CONSUMERS)
        places = self._read(source, group, consumer, min(number, 40))
        if places:
            await self._settle(group, source, consumer, places)

    async def redrive(self, group: str, number: int, chance: random.Random) -> None:
        letters = self.letter_book(group)
        await letters.move(self.server, LetterAction.REDRIVE, chance, number, self.main)

    async def redrive_to_retry(self, group: str, number: int, chance: random.Random) -> None:
        letters, target = self.letter_book(group), self.retry(group)
        await letters.move(self.server, LetterAction.REDRIVE, chance, number, target)

    async def discard(self, group: str, number: int, chance: random.Random) -> None:
        await self.letter_book(group).move(self.server, LetterAction.DISCARD, chance, number)

    async def restore(self, group: str, number: int, chance: random.Random) -> None:
        await self.letter_book(group).move(self.server, LetterAction.RESTORE, chance, number)

    async def work_on_copies(self, group: str, number: int, chance: random.Random) -> None:
        """Workers take copies from the retry stream; the operator trims what is done with."""
        retry, book = self.retry(group), self.retry(group).group(group)
        if not book.exists:
            return
        self._read(retry, group, _RETRY_CONSUMER, number)
        self._acknowledge(retry, group, _some(chance, book.pending(), number))
        if chance.random() < 0.5:
            while (await trim_retry_stream(self.server, self.keys(group), an_owner())).may_continue:
                pass
            self._note_trim(retry)

    # How it is done, and noted.

    def _choose_position(self) -> Word:
        """The end, the beginning, or an entry somewhere between."""
        if self.pick % 3 == 2 and self.main.ids:
            return self.main.ids[self.pick // 3 % len(self.main)]
        return "0" if self.pick % 3 == 1 else "$"

    def _read(
        self, stream: StreamBook, group: str, consumer: str, number: int, *options: Word
    ) -> list[int]:
        book = stream.group(group)
        if not book.exists:
            return []
        words: tuple[Word, ...] = ("GROUP", group, consumer, "COUNT", number, *options)
        reply = self.ask("XREADGROUP", *words, "STREAMS", stream.name, ">")
        places = [stream.places[one] for one, _ in reply[0][1]] if reply else []
        book.read(consumer, places, State.UNRECORDED if options else State.HELD)
        return places

    def _acknowledge(self, stream: StreamBook, group: str, places: Sequence[int]) -> None:
        if places:
            ids = [stream.ids[place] for place in places]
            assert self.ask("XACK", stream.name, group, *ids) == len(places)
            stream.group(group).finish(places, State.ACKNOWLEDGED)

    def _delete(self, places: Sequence[int]) -> None:
        if places:
            ids = [self.main.ids[place] for place in places]
            assert self.ask("XDEL", STREAM, *ids) == len(places)
            self.main.delete(places)

    def _note_trim(self, stream: StreamBook) -> None:
        left = self.ask("XRANGE", stream.name, "-", "+", "COUNT", 1)
        stream.trim_to(left[0][0] if left else None)

    def _needed(self, group: str) -> int:
        """The first place that the group is not done with."""
        book = self.book(group)
        return min([book.reached if book.exists else 0, *book.pending()])

    def _note_position(self, group: str, *, is_new: bool, stream: StreamBook | None = None) -> None:
        """Record the group's position as XINFO GROUPS returns it."""
        used = stream or self.main
        found = [
            dict(zip(one[::2], one[1::2], strict=True))
            for one in self.ask("XINFO", "GROUPS", used.name)
        ]
        at = next(one[b"last-delivered-id"] for one in found if one[b"name"] == group.encode())
        position = parse_entry_id(at)
        reached = used.upto(position.ms, position.seq)
        if is_new:
            used.group(group).create(reached)
        else:
            used.group(group).set_reached(reached)

    async def _begin_anew(self, number: int, *, keeps_records: bool = False) -> None:
        """The stream was lost: producers continue, and the groups are created again."""
        self.breaks += bool(len(self.main))
        self.main = StreamBook(STREAM)
        self.covered_from = 0
        if not keeps_records:
            self.retries, self.letters = {}, {}
        self._add(number)
        for group in self.groups:
            if self.history.has_operator:
                await self._provision(group, EntryId.MIN)
            else:
                self.ask("XGROUP", "CREATE", STREAM, group, "0")
                self._note_position(group, is_new=True)

    async def _provision(self, group: str, start: Any) -> None:
        book, retry = self.book(group), self.retry(group).group(group)
        given = {"start": start, "owner": an_owner(), "with_retry": True}
        await provision_group(self.server, self.keys(group), **given)
        if not book.exists:
            if book.has_been:
                self.reported.add(group)
            self._note_position(group, is_new=True)
            self._note_copies()
        if not retry.exists:
            self._note_position(group, is_new=True, stream=self.retry(group))

    def _note_copies(self) -> None:
        """Only recovery adds copies: all that is in the stream is known."""
        assert self.ask("XLEN", STREAM) == sum(self.main.bodies)

    def _holder(self, book: GroupBook, chance: random.Random) -> tuple[str, list[int]]:
        holders = sorted(name for name, held in book.held.items() if held)
        if not holders:
            return "", []
        owner = chance.choice(holders)
        return owner, sorted(book.held[owner])

    def _acting(self, group: str, source: StreamBook, target: StreamBook) -> Acting:
        is_own = target is not self.main
        return a_context(
            self.keys(group), source=source.name, target=target.name, allows_others=is_own
        )

    async def _recover(
        self, group: str, source: StreamBook, target: StreamBook, chance: random.Random
    ) -> None:
        """A worker has died: the operator copies what it held."""
        owner, held = self._holder(source.group(group), chance)
        if not held:
            return
        order = RecoveryOrder(owner=owner, reason="it died", counts_attempt=chance.random() < 0.3)
        cutoff = await server_time(self.server, self.keys(group)) + _LATER
        acting = self._acting(group, source, target)
        try:
            async for _ in recover_owner(self.server, acting, order, cutoff=cutoff):
                pass
        finally:
            self._note_moved(group, source, target, held, State.REQUEUED)

    async def _settle(
        self,
        group: str,
        source: StreamBook,
        owner: str,
        places: Sequence[int],
        action: Action = Action.DEAD,
    ) -> None:
        """The operator gives up entries, or tries them once more."""
        cutoff = await server_time(self.server, self.keys(group)) + _LATER
        settled = tuple(
            Settlement(
                entry_id=parse_entry_id(source.ids[place]),
                action=action,
                attempts=3,
                isolated_failures=3,
            )
            for place in places
        )
        plan = AttemptPlan(
            owners=(),
            waiting=0,
            retry_batch=RetryBatch(written="", under_way=frozenset()),
            kept=frozenset(),
            resolved=frozenset(),
        )
        owned = OwnerPlan(owner=owner, cutoff=cutoff, settlements=settled, co_failed=None)
        acting = self._acting(group, source, source)
        held = sorted(source.group(group).held[owner])
        try:
            await settle_suspects(
                self.server,
                acting,
                replace(plan, owners=(owned,)),
                owned,
                reason="MaxRetriesExceeded",
                error="its worker failed",
            )
        finally:
            end = State.DEAD_LETTERED if action is Action.DEAD else State.REQUEUED
            self._note_moved(group, source, source, held, end)

    def _note_moved(
        self, group: str, source: StreamBook, target: StreamBook, held: Sequence[int], end: State
    ) -> None:
        """What the operator moved of what was pending, and the copies that it made."""
        words = (source.name, group, "-", "+", _COUNT)
        stay = {source.places[one[0]] for one in self.ask("XPENDING", *words)}
        moved = [place for place in held if place not in stay]
        copied = [place for place in moved if source.bodies[place]]
        book = source.group(group)
        book.finish(copied, end)
        bodiless = [place for place in moved if not source.bodies[place]]
        book.finish(bodiless, State.LETTER_WITHOUT_BODY)
        self.letter_book(group).note_new(source, moved if end is State.DEAD_LETTERED else bodiless)
        if end is State.REQUEUED:
            start = b"(" + target.ids[-1] if target.ids else b"-"
            found = self.ask("XRANGE", target.name, start, "+")
            roots = [source.copies.get(place, source.ids[place]) for place in copied]
            copies = target.add((one for one, _ in found), roots)
            assert len(copies) == len(copied)
            for place, copy, (_, pairs) in zip(copied, copies, found, strict=True):
                book.follow(place, target, copy)
                assert pairs[pairs.index(b"_original_id") + 1] == target.copies[copy]

    async def _watch(self) -> None:
        """Record what the operator observes between two acts, as its loops do."""
        looks = [
            ObservationRequest(self.keys(one), with_retry=True, with_consumers=True)
            for one in self.groups
        ]
        found = await observe_groups(self.server, looks)
        for group, look in zip(self.groups, looks, strict=True):
            stream = found[look]
            if isinstance(stream, PelopsError):
                raise stream
            if stream.group is not None:
                known = self.watched.setdefault(group, Watched())
                await self._record_losses(group, stream, known)
                await self._record_changes(group, stream, known)
                # A minute later, as it were: what it found is in a checkpoint.
                self.ask("HSET", self.keys(group).state, CHECKPOINT_AT, 0)
                await positions.remember_position(self.server, self.keys(group), an_owner())

    async def _record_losses(self, group: str, stream: StreamObservation, known: Watched) -> None:
        keys, owner = self.keys(group), an_owner()
        vanished, loss = find_vanished(known.seen, stream), find_new_loss(stream)
        if vanished is not None:
            await positions.record_loss(self.server, keys, owner, vanished, first_id=None)
        if loss is not None:
            first = stream.first_id or stream.last_generated_id.after()
            await positions.record_loss(self.server, keys, owner, loss, first_id=first)
            book = self.book(group)
            book.lost_by_ledger.update(book.owed_and_gone())

    async def _record_changes(self, group: str, stream: StreamObservation, known: Watched) -> None:
        keys, owner, book = self.keys(group), an_owner(), self.book(group)
        change = decide_went_back(known.seen, stream)
        if change is not None:
            self.reported.add(group)
            hold = timedelta(seconds=1)
            await positions.delay_recovery(self.server, keys, owner, change, hold=hold)
        known.seen = LastSeen.of(stream)
        dropped = find_dropped(known.holders, stream, has_left=lambda _: False)
        known.holders = Holders.of(stream)
        if dropped is not None and await positions.record_dropped(
            self.server, keys, owner, dropped
        ):
            ended = (place for place, state in enumerate(book.states) if state == State.DROPPED)
            book.reported_by_ledger.update(ended)


def _some(chance: random.Random, places: Sequence[int], number: int) -> list[int]:
    return sorted(chance.sample(places, min(number, len(places))))


Done = Callable[[World, str, int, random.Random], Awaitable[None]]
_ACTS: Final[dict[Kind, Done]] = {
    kind: getattr(World, kind.value.replace("-", "_"))
    for kind in Kind
    if kind not in {Kind.ARCHIVE, Kind.AUDIT}
}


@asynccontextmanager
async def open_world(history: History, *, node: int = 5) -> AsyncIterator[World]:
    """An empty server of its own with the groups of the history; `node` entries trim at once."""
    options = ServerOptions(
        append_only=None if history.files is Files.NONE else "no",
        config={
            "aof-timestamp-enabled": "yes",
            "auto-aof-rewrite-percentage": "0",
            "stream-node-max-entries": str(node),
        },
    )
    with start_standalone(history.server, options=options) as servers:
        async with connected(endpoint_of(servers)) as server:
            world = World(history, servers, Wire(servers.master().port), server)
            try:
                await world.begin()
                yield world
            finally:
                world.wire.close()


def ids_of(stream: StreamBook, places: Iterable[int]) -> list[str]:
    """For people."""
    return [stream.ids[place].decode() for place in places]
