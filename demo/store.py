"""What the demo writes to Redis and reads from it: a stream, its group and its results."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from demo.declaration import Declaration
from demo.effects import Effect
from demo.recovery import Held, Letter, Traces, list_moves
from demo.scaling import GroupBacklog
from pelops.domain.entry_id import parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.domain.records.audit import AuditSummary, parse_summary
from pelops.domain.records.ledger import LedgerEvent, parse_ledger_event

CHUNK = 500  # entries per round trip
MOST_HELD = 1000


class Store:
    """The demo's part of one Redis."""

    def __init__(self, url: str, declaration: Declaration) -> None:
        # Answers are cast: the client's types speak of every protocol and of asyncio at once.
        self._server: Any = redis.Redis.from_url(url)
        self._names = declaration
        self._keys = derive_keys(declaration.stream, declaration.group)

    def add_entries(self, paths: Sequence[Path]) -> dict[str, str]:
        """Add an entry for each file, many in a round trip; the IDs by path."""
        ids: list[str] = []
        for first in range(0, len(paths), CHUNK):
            with self._server.pipeline(transaction=False) as pipeline:
                for path in paths[first : first + CHUNK]:
                    pipeline.xadd(self._names.stream, {"path": os.fsencode(path)})
                ids += [entry_id.decode() for entry_id in pipeline.execute()]
        return dict(zip(map(str, paths), ids, strict=True))

    def count_entries(self) -> int:
        """The length of the stream."""
        return int(self._server.xlen(self._names.stream))

    def read_held(self, consumer: str) -> tuple[Held, ...]:
        """What a consumer was given and has not acknowledged."""
        with self._server.pipeline() as both:
            both.time()
            both.hget(self._keys.started, consumer)
            both.xpending_range(
                self._names.stream, self._names.group, "-", "+", MOST_HELD, consumer
            )
            (seconds, micros), marks, found = both.execute()
        now_ms = seconds * 1000 + micros // 1000
        started = None if marks is None else set(marks.split())
        return tuple(
            Held(
                entry_id=one["message_id"].decode(),
                delivered_ms=now_ms - one["time_since_delivered"],
                # Who says nothing of it may have started everything.
                has_started=started is None or one["message_id"] in started,
            )
            for one in found
        )

    def read_ledger(self) -> list[LedgerEvent]:
        """What the operator and its workers say that they did, in that order."""
        events = [
            parse_ledger_event(parse_entry_id(entry_id.decode()), pairs)
            for ledger in (self._keys.ledger, self._keys.worker_ledger)
            for entry_id, pairs in self._server.xrange(ledger)
        ]
        return sorted(events, key=lambda event: event.entry_id)

    def read_dead_letters(self) -> list[Letter]:
        """The dead letters."""
        return [
            Letter.parse({key.decode(): value for key, value in pairs.items()})
            for _, pairs in self._server.xrange(self._keys.dead_letter)
        ]

    def read_traces(self) -> Traces:
        """All that the entries have left behind so far."""
        return Traces(
            moves=list_moves(self.read_ledger()),
            effects=self.read_effects(),
            letters=self.read_dead_letters(),
        )

    def observe_group(self) -> GroupBacklog:
        """The backlog of the group; raises LookupError when there is no such group."""
        backlog = self.find_group()
        if backlog is None:
            raise LookupError(f"no consumer group {self._names.group} on {self._names.stream}")
        return backlog

    def find_group(self) -> GroupBacklog | None:
        """The backlog of the group; None before there is one."""
        if not self._server.exists(self._names.stream):
            return None
        for group in self._server.xinfo_groups(self._names.stream):
            if group["name"] == self._names.group.encode():
                return GroupBacklog(pending=group["pending"], lag=group["lag"])
        return None

    def is_drained(self) -> bool:
        """Whether every entry was delivered and acknowledged."""
        return self.observe_group().is_empty

    def read_audit(self, name: str) -> AuditSummary:
        """What an audit of this name recorded of the group. Raises LookupError without a record."""
        text = self._server.hget(self._keys.audit, name)
        if text is None:
            raise LookupError(f"{name} has no record of {self._names.group}")
        return parse_summary(text)

    def read_effects(self) -> list[Effect]:
        """What the workers did, in that order."""
        return [
            Effect.parse(parse_entry_id(entry_id.decode()).ms, pairs)
            for entry_id, pairs in self._server.xrange(self._names.results_stream)
        ]
