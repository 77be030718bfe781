"""The recovery scripts against a model, on real servers: any order of whatever workers, users and
operators do. After each step the server holds what the model holds, byte for byte.
"""

from __future__ import annotations

from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from pelops.domain.entry_id import parse_entry_id
from pelops.domain.records.ledger import LedgerEvent
from tests.properties.recovery_operators import Operators
from tests.properties.recovery_workers import WorkersAndUsers
from tests.properties.server_adapter import ServerAdapter
from tests.properties.stream_model import LETTER_FIELDS, Act, Letter


class RecoveryMachine(WorkersAndUsers, Operators):
    """Workers, users and two operators at one group, and what always holds."""

    @invariant()
    def nothing_is_lost(self) -> None:
        """Invariant 1: each entry is undelivered, pending, acknowledged or a dead letter, or has
        one copy of which the same is true.
        """
        assert self.model.find_lost() == []

    @invariant()
    def the_stream_holds_what_the_model_holds(self) -> None:
        """The user's pairs byte for byte; a copy for each acknowledgement."""
        found = self.adapter.ask("XRANGE", self.keys.stream, "-", "+")
        bodies = {parse_entry_id(one): tuple(pairs) for one, pairs in found}
        assert bodies == self.model.bodies

    @invariant()
    def the_group_holds_what_the_model_holds(self) -> None:
        """Invariant 4: the position is the workers' own. What the cutoff protects stays."""
        (reply,) = self.adapter.ask("XINFO", "GROUPS", self.keys.stream)
        group = dict(zip(reply[::2], reply[1::2], strict=True))
        assert parse_entry_id(group[b"last-delivered-id"]) == self.model.position
        found = self.adapter.ask("XPENDING", self.keys.stream, "g", "-", "+", 1_000)
        pending = {parse_entry_id(one): (owner.decode(), number) for one, owner, _, number in found}
        assert pending == {
            one: (held.owner, held.deliveries) for one, held in self.model.pending.items()
        }
        consumers = self.adapter.ask("XINFO", "CONSUMERS", self.keys.stream, "g")
        assert {reply[1].decode() for reply in consumers} == self.model.consumers

    @invariant()
    def dead_letters_are_whole(self) -> None:
        found = self.adapter.ask("XRANGE", self.keys.dead_letter, "-", "+")
        letters = [_parse_letter(pairs) for _, pairs in found]
        assert sorted(letters, key=repr) == sorted(self.model.letters, key=repr)

    @invariant()
    def the_ledger_records_each_act_once(self) -> None:
        """And the totals are the ledger's."""
        acts, removed, offers = [], [], 0
        for event in self._ledger():
            acts += _parse_acts(event) if event.kind != "released" else []
            offers += len(event.entries) if event.kind == "released" else 0
            removed += [event.details["consumer"]] if event.kind == "consumer-removed" else []
        assert sorted(acts, key=repr) == sorted(self.model.acts, key=repr)
        assert removed == self.model.removed
        assert offers == self.model.offers
        kinds = ("requeued", "released", "dead_lettered", "payload_gone")
        totals = self.adapter.ask("HMGET", self.keys.state, *(f"total:{kind}" for kind in kinds))
        counted = [sum(act.kind == kind.replace("_", "-") for act in acts) for kind in kinds]
        counted[1] = 0  # an offer is counted when it is taken
        assert [int(total or 0) for total in totals] == counted


def _parse_acts(event: LedgerEvent) -> list[Act]:
    return [
        Act(
            kind=event.kind,
            consumer=event.details["consumer"],
            entry_id=entry.entry_id,
            root=entry.root_id,
            retries=entry.retry_count,
            deliveries=entry.deliveries,
        )
        for entry in event.entries
    ]


def _parse_letter(pairs: list[bytes]) -> Letter:
    own, reported = tuple(pairs[: -2 * len(LETTER_FIELDS)]), pairs[-2 * len(LETTER_FIELDS) :]
    assert [name.decode() for name in reported[::2]] == [f"_{name}" for name in LETTER_FIELDS]
    fields = dict(zip(LETTER_FIELDS, reported[1::2], strict=True))
    return Letter(
        pairs=own,
        root=parse_entry_id(fields["original_id"]),
        consumer=fields["consumer"].decode(),
        deliveries=int(fields["delivery_count"]),
        retries=int(fields["retry_count"]),
        reason=fields["reason"].decode(),
    )


def test_recovery_does_what_the_model_says(adapter: ServerAdapter) -> None:
    """Invariants 1, 3, 4, 5, 9 and rules A1, B2, B3, B5, whatever happens in whatever order."""
    run_state_machine_as_test(
        partial(RecoveryMachine, adapter),  # type: ignore[arg-type]  # anything that makes one
        settings=settings(
            max_examples=100, stateful_step_count=25, suppress_health_check=list(HealthCheck)
        ),
    )
