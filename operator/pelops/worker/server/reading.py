"""What is asked when a worker reads, and what the answer holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pelops.errors import NoSuchGroup, PelopsError, RedisError
from pelops.redis_streams.transport import Reply
from pelops.worker.server.claiming import MAX_BYTES, ClaimTurns
from pelops.worker.server.door import Delivered, RawEntry, Source
from pelops.worker.server.names import Names
from pelops.worker.server.place import Place
from pelops.worker.server.scripts import Parts, script_call
from pelops.worker.server.streams import Streams

_FRESH: Final = (0, 0)  # idle time and delivery count of a new entry


@dataclass(slots=True)
class Question:
    """One read: its commands, in this order, and what is needed to understand the replies."""

    commands: list[Parts] = field(default_factory=list)
    claims: list[bytes] = field(default_factory=list)  # streams of the first commands
    block_ms: int = 0


@dataclass(slots=True)
class Answer:
    """What a read brought."""

    delivered: list[Delivered] = field(default_factory=list)
    offers: list[Parts] = field(default_factory=list)  # scripts that take what was offered
    problem: RedisError | None = None
    again: bool = False  # it was asked in a way that this server does not take: ask anew


class Reading:
    """Puts the question and understands the answer; learns what the server can do by trying."""

    def __init__(self, place: Place, names: Names, now: Callable[[], float]) -> None:
        self._names = names
        self._limit = place.idle_limit_ms
        self.knows_claim = True
        self.streams = Streams(names, now)
        self._turns = ClaimTurns(names, place.idle_limit_ms, now)

    def forget(self) -> None:
        """Another server may stand there by now: it is tried anew."""
        self.knows_claim = True

    def question(self, count: int, block_ms: int) -> Question:
        """A read of up to `count` entries; `block_ms` 0: without a wait."""
        asked = Question()
        if not self.knows_claim:
            wait_ms = int(self._turns.wait_s * 1000)
            if wait_ms == 0:
                asked.commands = self._turns.calls(self.streams.with_entries(), count)
                asked.claims = self._turns.keys()
            block_ms = min(block_ms, wait_ms)  # what was claimed is not to wait for what is new
        asked.block_ms = block_ms
        asked.commands.append(self._read(count, block_ms))
        return asked

    def answer(self, asked: Question, replies: list[Reply]) -> Answer:
        """What the replies to this question mean."""
        found = Answer()
        for key, reply in zip(asked.claims, replies, strict=False):
            taken = self._turns.take(key, reply)
            if taken:
                found.delivered.append(Delivered(key, Source.CLAIMED, taken))
        if asked.claims:
            self._turns.finish()
        reply = replies[-1]
        if isinstance(reply, PelopsError):
            self._learn(reply, found)
        else:
            self._sort(reply or (), found)
        return found

    def _read(self, count: int, block_ms: int) -> Parts:
        keys = self.streams.to_read()
        block = ("BLOCK", block_ms) if block_ms > 0 else ()
        claim = ("CLAIM", self._limit) if self.knows_claim else ()
        head = ("XREADGROUP", "GROUP", self._names.group, self._names.me, "COUNT", count)
        return (*head, *block, *claim, "STREAMS", *keys, *(b">",) * len(keys))

    def _learn(self, refusal: PelopsError, found: Answer) -> None:
        if isinstance(refusal, NoSuchGroup) and self.streams.learn_missing(str(refusal)):
            found.again = True
        elif self.knows_claim and _is_about_syntax(refusal):
            self.knows_claim = False
            found.again = True
        elif isinstance(refusal, RedisError):
            found.problem = refusal
        else:
            raise refusal

    def _sort(self, reply: Reply, found: Answer) -> None:
        for key, entries in reply:
            if key == self._names.handover:
                found.offers += [call for offer in entries for call in self._take_over(offer)]
                continue
            if entries and len(entries[0]) == 2:
                for entry in entries:
                    entry.extend(_FRESH)
            found.delivered.append(Delivered(key, Source.NEW, entries))

    def _take_over(self, offer: RawEntry) -> list[Parts]:
        fields = dict(zip(offer[1][::2], offer[1][1::2], strict=False)) if offer[1] else {}
        ids = fields.get(b"ids", b"").split()[:1000]
        owner = fields.get(b"consumer", b"")
        before = fields.get(b"before", b"0")
        names = self._names
        keys = (names.stream, names.handover)
        whose = (names.group, names.me, offer[0], owner, before)
        return [script_call("take_over", keys, *whose, MAX_BYTES, *ids)]


def _is_about_syntax(refusal: PelopsError) -> bool:
    text = str(refusal).lower()
    return "syntax" in text or "unbalanced" in text
