"""What workers and users do at a group, in any order and with any entries."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from pelops.domain.entry_id import parse_entry_id
from tests.properties.recovery_stage import CONSUMERS, RecoveryStage
from tests.properties.stream_model import Pairs, Pending

ODD_COUNTS = [b"banana", b"", b"nan", b"-5", b"0x10", b"1e400", b"999", b"0", b"1234567", b" 1"]
names = st.sampled_from([b"_original_id", b"_retry_count", b"", b"f", b"f"]) | st.binary(max_size=6)
values = st.binary(max_size=12) | st.sampled_from([b"1-1", b"5-0"])
plain = st.lists(st.tuples(names, values), min_size=1, max_size=4).map(
    lambda pairs: tuple(part for pair in pairs for part in pair)
)
marked = st.tuples(
    plain,
    st.just(b"1-1") | st.sampled_from([b"banana", b"18446744073709551615-1", b"7"]),
    st.just(b"2") | st.sampled_from(ODD_COUNTS),
).map(lambda parts: (*parts[0], b"_original_id", parts[1], b"_retry_count", parts[2]))
wide = st.sampled_from([3_898, 3_900, 3_901, 3_998, 4_500]).map(lambda pairs: (b"f", b"v") * pairs)


class WorkersAndUsers(RecoveryStage):
    """The actions of workers and users, which the model records."""

    @initialize(
        entries=st.lists(plain | marked, min_size=2, max_size=8),
        reads=st.lists(st.tuples(CONSUMERS, st.integers(1, 4)), min_size=1, max_size=3),
    )
    def begin(self, entries: list[Pairs], reads: list[tuple[str, int]]) -> None:
        """Workers hold some entries, and others wait: from nothing, few rules would do anything."""
        self.provision()
        for pairs in entries:
            self.add(pairs)
        for consumer, number in reads:
            self.deliver(consumer, number)

    @rule(pairs=plain | marked)
    def add(self, pairs: Pairs) -> None:
        entry_id = parse_entry_id(self.adapter.ask("XADD", self.keys.stream, "*", *pairs))
        self.model.add(entry_id, pairs)

    @rule(pairs=wide)
    @precondition(lambda self: sum(map(len, self.model.bodies.values())) < 30_000)
    def add_wide(self, pairs: Pairs) -> None:
        self.add(pairs)

    @rule(consumer=CONSUMERS, number=st.integers(1, 6))
    def deliver(self, consumer: str, number: int) -> None:
        self._join(consumer)
        read = ("XREADGROUP", "GROUP", "g", consumer, "COUNT", number, "STREAMS")
        self.adapter.ask(*read, self.keys.stream, ">")
        given = self.model.undelivered()[:number]
        self.model.deliver(given, consumer, self._age(consumer, given))

    @rule(data=st.data())
    @precondition(lambda self: self.model.pending)
    def acknowledge(self, data: st.DataObject) -> None:
        entry_id = self._some_pending(data)
        self.adapter.ask("XACK", self.keys.stream, "g", str(entry_id))
        self.model.acknowledge(entry_id)

    @rule(data=st.data(), consumer=CONSUMERS)
    @precondition(lambda self: self.model.pending)
    def claim(self, data: st.DataObject, consumer: str) -> None:
        entry_id = self._some_pending(data)
        if entry_id not in self.model.bodies:
            return  # Redis would drop it
        self.adapter.ask("XCLAIM", self.keys.stream, "g", consumer, 0, str(entry_id))
        self.model.consumers.add(consumer)
        held = self.model.pending[entry_id]
        delivered_ms = self._age(consumer, [entry_id])
        self.model.pending[entry_id] = Pending(consumer, delivered_ms, held.deliveries + 1)

    @rule(consumer=CONSUMERS)
    def read_history(self, consumer: str) -> None:
        """A worker that starts again reads what it holds, which delivers it again."""
        own = self.model.held_by(consumer)
        if not self.model.bodies.keys() >= set(own):
            return  # versions differ in what they count for an entry without a body
        self._join(consumer)
        read = ("XREADGROUP", "GROUP", "g", consumer, "STREAMS", self.keys.stream, "0")
        self.adapter.ask(*read)
        delivered_ms = self._age(consumer, own)
        for entry_id in own:
            held = self.model.pending[entry_id]
            self.model.pending[entry_id] = Pending(consumer, delivered_ms, held.deliveries + 1)

    @rule(data=st.data())
    @precondition(lambda self: self.model.bodies)
    def delete_body(self, data: st.DataObject) -> None:
        entry_id = data.draw(st.sampled_from(sorted(self.model.bodies)))
        self.adapter.ask("XDEL", self.keys.stream, str(entry_id))
        del self.model.bodies[entry_id]
        if entry_id > self.model.position:
            self.model.deleted.add(entry_id)

    @rule(consumer=CONSUMERS, data=st.data())
    def mark(self, consumer: str, data: st.DataObject) -> None:
        """An SDK worker records what it has started."""
        own = self.model.held_by(consumer)
        started = set(data.draw(st.lists(st.sampled_from(own), max_size=3))) if own else set()
        words = " ".join(map(str, started))
        self.adapter.ask("HSET", self.keys.started, consumer, words)
        self.model.marks[consumer] = started
