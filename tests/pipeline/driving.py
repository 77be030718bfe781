"""Acts on a group of a real server, each written down in the truth as the server answered it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import Action, RetryBatch
from pelops.policy.recovery.attempts import AttemptPlan, OwnerPlan, Settlement
from pelops.redis_core.server import Server
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.recovery.stuck_entries import RecoveryOrder, ScanContext, recover_owner
from pelops.redis_streams.recovery.suspects import settle_suspects
from tests.integration.recovering import a_context, server_time
from tests.integration.redis_adapter import an_owner
from tests.pipeline.truth import End, Truth
from tests.pipeline.wire import Wire, Word

_LATER = timedelta(minutes=1)


@dataclass(slots=True)
class Driver:
    """A group, its stream and its retry stream, with all workers and the operator in one hand."""

    wire: Wire
    server: Server  # the operator's adapter to the same server
    keys: GroupKeys
    main: Truth
    retry: Truth
    added: int = 0

    async def provision(self) -> None:
        """Make the group as the operator does."""
        owner = an_owner()
        await provision_group(
            self.server, self.keys, start=EntryId.MIN, owner=owner, with_retry=True
        )

    def add(self, number: int) -> list[int]:
        """Producers add entries."""
        stream, start = self.keys.stream, self.added
        self.added += number
        return self.main.add(
            self.wire.ask_all(
                ("XADD", stream, "*", "order", at, "customer", at * 7919 % 1000)
                for at in range(start, start + number)
            )
        )

    def read(self, consumer: str, number: int, truth: Truth | None = None) -> list[int]:
        """A worker is given new entries."""
        places = self._read(consumer, number, truth or self.main, ())
        (truth or self.main).give(consumer, places)
        return places

    def read_without_record(self, consumer: str, number: int) -> None:
        """As a worker reads that never acknowledges (NOACK)."""
        before = self.main.reached
        places = self._read(consumer, number, self.main, ("NOACK",))
        for place in places:
            self.main.ends[place] = End.READ_WITHOUT_RECORD
        self.main.reached = max(before, self.main.reached)

    def acknowledge(self, consumer: str, places: Iterable[int], truth: Truth | None = None) -> None:
        """A worker has done with entries that it holds."""
        used, done = truth or self.main, sorted(places)
        if done:
            ids = [used.ids[place] for place in done]
            number = self.wire.ask("XACK", used.stream, self.keys.group, *ids)
            assert number == len(done)
            used.finish(consumer, done, End.ACKNOWLEDGED)

    def claim(self, consumer: str, places: Sequence[int], *options: str | int) -> None:
        """A worker takes over entries whose bodies are there, or renews its own."""
        ids = [self.main.ids[place] for place in places]
        self.wire.ask("XCLAIM", self.main.stream, self.keys.group, consumer, 0, *ids, *options)
        self.main.give(consumer, places)

    def claim_any(self, consumer: str, start: int, number: int) -> None:
        """A worker takes over what it finds (XAUTOCLAIM), and drops what has no body."""
        words = (self.main.stream, self.keys.group, consumer, 0, self.main.ids[start])
        _, found, gone = self.wire.ask("XAUTOCLAIM", *words, "COUNT", number)
        dropped = self.main.places(gone)
        for owner in list(self.main.held):
            self.main.finish(owner, self.main.held[owner] & set(dropped), End.DROPPED)
        self.main.give(consumer, self.main.places(one for one, _ in found))

    def claim_bodyless(self, consumer: str, owner: str, places: Sequence[int]) -> None:
        """A worker claims entries by ID whose bodies are gone: servers drop the records."""
        ids = [self.main.ids[place] for place in places]
        assert not self.wire.ask("XCLAIM", self.main.stream, self.keys.group, consumer, 0, *ids)
        self.main.finish(owner, places, End.DROPPED)

    def delete(self, places: Sequence[int]) -> None:
        """A user deletes entries by hand."""
        ids = [self.main.ids[place] for place in places]
        assert self.wire.ask("XDEL", self.main.stream, *ids) == len(ids)
        self.main.lose_bodies(places)

    def trim(self, *how: str | int | bytes) -> None:
        """A user trims the stream."""
        self.wire.ask("XTRIM", self.main.stream, *how)
        left = self.wire.ask("XRANGE", self.main.stream, "-", "+", "COUNT", 1)
        self.main.lose_before(left[0][0] if left else None)

    def remove_consumer(self, consumer: str) -> None:
        """A user deletes a consumer that still holds entries."""
        held = set(self.main.held.get(consumer, set()))
        words = ("XGROUP", "DELCONSUMER", self.main.stream, self.keys.group, consumer)
        assert self.wire.ask(*words) == len(held)
        self.main.finish(consumer, held, End.DROPPED)

    def set_position(self, place: int) -> None:
        """A user sets the position to an entry, past undelivered ones or back."""
        to = self.main.ids[place]
        self.wire.ask("XGROUP", "SETID", self.main.stream, self.keys.group, to)
        if place + 1 < self.main.reached:
            self.main.reached = place + 1
        else:
            self.main.pass_by(place + 1, End.SKIPPED)

    async def recover(self, consumer: str, *, to_retry: bool = False, charged: bool = True) -> None:
        """The operator moves what a dead consumer holds."""
        target = self.retry if to_retry else self.main
        held = set(self.main.held.get(consumer, set()))
        order = RecoveryOrder(owner=consumer, reason="it died", counts_attempt=charged)
        cutoff = await server_time(self.server, self.keys) + _LATER
        act = self._act(target)
        async for _ in recover_owner(self.server, act, order, cutoff=cutoff):
            pass
        self._note_moved(consumer, held, target)

    async def settle(self, consumer: str, place: int, action: Action) -> None:
        """The operator tries a suspect once more, or gives it up."""
        cutoff = await server_time(self.server, self.keys) + _LATER
        settled = Settlement(
            entry_id=parse_entry_id(self.main.ids[place]),
            action=action,
            attempts=self.main.failing[place],
            isolated_failures=1,
        )
        plan = AttemptPlan(
            owners=(),
            waiting=0,
            retry_batch=RetryBatch(written="", under_way=frozenset()),
            kept=frozenset(),
            resolved=frozenset(),
        )
        owner = OwnerPlan(owner=consumer, cutoff=cutoff, settlements=(settled,), co_failed=None)
        act = self._act(self.main)
        await settle_suspects(
            self.server,
            act,
            replace(plan, owners=(owner,)),
            owner,
            reason="MaxRetriesExceeded",
            error="its worker failed",
        )
        self._note_moved(consumer, {place}, self.main, is_dead=action is Action.DEAD)

    def _act(self, target: Truth) -> ScanContext:
        is_own = target is self.retry
        return a_context(self.keys, target=target.stream, allows_others=is_own)

    def _read(
        self, consumer: str, number: int, truth: Truth, options: tuple[str, ...]
    ) -> list[int]:
        group: tuple[Word, ...] = ("GROUP", self.keys.group, consumer, "COUNT", number, *options)
        reply: Any = self.wire.ask("XREADGROUP", *group, "STREAMS", truth.stream, ">")
        places = truth.places(one for one, _ in reply[0][1]) if reply else []
        if places:
            truth.reached = places[-1] + 1
        return places

    def _note_moved(
        self, consumer: str, held: set[int], target: Truth, *, is_dead: bool = False
    ) -> None:
        """What the operator did, as the group and the target now look."""
        words = (self.main.stream, self.keys.group, "-", "+", len(held) + 1, consumer)
        stay = set(self.main.places(one[0] for one in self.wire.ask("XPENDING", *words)))
        moved = sorted(held - stay)
        copied = [place for place in moved if self.main.bodies[place]]
        end = End.DEAD_LETTERED if is_dead else End.REQUEUED
        self.main.finish(consumer, copied, end)
        self.main.finish(consumer, set(moved) - set(copied), End.LETTER_WITHOUT_BODY)
        start = b"(" + target.ids[-1] if target.ids else b"-"
        copies = target.add(one for one, _ in self.wire.ask("XRANGE", target.stream, start, "+"))
        assert len(copies) == (0 if is_dead else len(copied))
        for place, copy in zip(copied, copies, strict=False):
            if place in self.main.failing:
                target.failing[copy] = self.main.failing[place] + 1
