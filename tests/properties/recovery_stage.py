"""A group on a real server beside its model, and how the model follows the server.

Delivery times lie days back on a grid, written with XCLAIM ... TIME, so that no test waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.records.ledger import LedgerEvent, parse_ledger_event
from pelops.redis_core.commands import Part
from pelops.redis_streams.recovery import stuck_entries as acting
from tests.integration.redis_adapter import provision
from tests.properties.server_adapter import ServerAdapter
from tests.properties.stream_model import Act, StreamModel

GRID_MS: Final = 100_000  # between two deliveries
NAMES: Final = ("a", "b:\x00é", "c")
CONSUMERS = st.sampled_from(("a", *NAMES, "a"))  # one that most often holds something
_NUMBERS = count()


class RecoveryStage(RuleBasedStateMachine):
    """A group and its model before the first rule."""

    def __init__(self, adapter: ServerAdapter) -> None:
        super().__init__()
        self.adapter = adapter
        self.keys: GroupKeys = derive_keys(f"stream-{next(_NUMBERS)}", "g")
        self.model = StreamModel(group="g")
        self.deliveries = 0
        self.base_ms = 0

    def provision(self) -> None:
        """Create the group, before the first rule."""
        self.adapter.wait(provision(self.adapter.server, self.keys))
        seconds, _ = self.adapter.ask("TIME")
        self.base_ms = int(seconds) * 1000 - 10**9

    def teardown(self) -> None:
        derived = [key for key in self.keys.derived()]
        self.adapter.ask("DEL", self.keys.stream, *derived)

    def _ms(self, tick: int) -> int:
        return self.base_ms + tick * GRID_MS

    def _join(self, consumer: str) -> None:
        """Make a consumer, as reading does on some versions also when there is nothing."""
        self.adapter.ask("XGROUP", "CREATECONSUMER", self.keys.stream, "g", consumer)
        self.model.consumers.add(consumer)

    def _age(self, consumer: str, entry_ids: list[EntryId]) -> int:
        """Put a delivery onto the grid, as if it lay back so long; its time."""
        delivered_ms = self._ms(self.deliveries)
        if entry_ids:
            self.deliveries += 1
            ids = [str(one) for one in entry_ids]
            claim: list[Part] = ["XCLAIM", self.keys.stream, "g", consumer, 0, *ids]
            self.adapter.ask(*claim, "TIME", delivered_ms, "JUSTID")
        return delivered_ms

    def _some_pending(self, data: st.DataObject) -> EntryId:
        return data.draw(st.sampled_from(sorted(self.model.pending)))

    def _act(self, batch: int = 100) -> acting.ScanContext:
        return acting.ScanContext(
            keys=self.keys,
            source=self.keys.stream,
            target=self.keys.stream,
            uid="uid-1",
            field_prefix="_",
            batch=batch,
            actor="replica-1",
            trigger="scan",
            allows_others=False,
        )

    def _ledger(self) -> Iterator[LedgerEvent]:
        for entry_id, pairs in self.adapter.ask("XRANGE", self.keys.ledger, "-", "+"):
            named = dict(zip(pairs[::2], pairs[1::2], strict=True))
            yield parse_ledger_event(parse_entry_id(entry_id), named)

    def _take(self, moved: dict[EntryId, Act]) -> dict[EntryId, EntryId]:
        """Take over what the ledger records of the last act; return where each entry went."""
        known = {act.entry_id for act in self.model.acts}
        reported = {
            entry.entry_id: (entry.new_id, event.details["reason"])
            for event in self._ledger()
            for entry in event.entries
            if event.kind != "released" and entry.entry_id not in known
        }
        assert reported.keys() == moved.keys()
        for entry_id, act in moved.items():
            new_id, reason = reported[entry_id]
            assert new_id is not None
            self.model.apply(act, new_id, reason)
        return {one: new for one, (new, _) in reported.items() if new is not None}
