"""Redrives on real servers: whatever reads, moves, dies or comes too late, each dead letter moves
once.

Two replicas move the dead letters of one redrive, each by pages that may be old by then. They die
between any two calls, dead letters vanish and are added meanwhile, copies fail again, and limits
stop a call half way.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.records.dead_letter import LetterAction, SkipReason, read_redrive_marks
from pelops.domain.records.ledger import parse_ledger_event
from pelops.redis_streams.redrive.moves import (
    LetterPage,
    RedriveContext,
    RedriveProgress,
    Stop,
    finish_redrive,
    move_letters,
    read_letters,
    start_redrive,
)
from pelops.redis_streams.redrive.outcomes import observe_outcomes
from tests.integration.redis_adapter import provision
from tests.integration.redriving import a_redrive, letter_of
from tests.properties.server_adapter import ServerAdapter
from tests.redis_fixtures import on_newest_unless_full

pytestmark = on_newest_unless_full

_NUMBERS = count()
PARTS: Final = st.sampled_from(
    (
        *(b"", b"f", b"\xff\x00\r\n", b"_original_id", b"_retry_count", b"5-0", b"1", b"x" * 3000),
        *(b"_redrive", b"_returned", b"a.b/11-a", b"A b/", b"7"),
    )
)
OWN: Final = st.lists(st.tuples(PARTS, PARTS), min_size=1, max_size=5)
MARKED: Final = OWN.map(lambda own: [*own, (b"_redrive", b"older/uid-1"), (b"_returned", b"3")])
LETTERS: Final = st.lists(st.one_of(OWN, MARKED), max_size=12)
WHO: Final = st.integers(0, 1)
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("read"), WHO, st.integers(1, 6)),
        st.tuples(st.just("move"), WHO, st.sampled_from((None, 0, 1, 3, 50))),
        st.tuples(st.just("die"), WHO, st.none()),
        st.tuples(st.just("vanish"), st.integers(0, 11), st.none()),
        st.tuples(st.just("add"), st.none(), OWN),
        st.tuples(st.just("fail"), st.none(), st.none()),
    ),
    max_size=25,
)
Entries = dict[EntryId, list[bytes]]


class Replica:
    """The state of one replica; it starts again with none when the replica has died."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.progress: RedriveProgress | None = None
        self._page: tuple[EntryId, LetterPage] | None = None

    def read(self, most: int) -> None:
        scene = self._scene
        self.progress = self.progress or scene.wait(start_redrive(scene.server, scene.context))
        after, until = self.progress.cursor, self.progress.until
        page = read_letters(scene.server, scene.context, after=after, until=until, count=most)
        self._page = after, scene.wait(page)

    def move(self, **bounds: int | None) -> Stop | None:
        if self._page is None:
            return None
        (after, page), self._page = self._page, None
        ids = [one.entry_id for one in page.letters if self._scene.selects(one.entry_id)]
        scene = self._scene
        call = move_letters(
            scene.server, scene.context, ids, after=after, through=page.through, **bounds
        )
        result = scene.wait(call)
        self.progress = result.progress
        return result.stop

    def die(self) -> None:
        self.progress = self._page = None

    def act(self, what: str, argument: Any) -> None:
        if what == "read":
            self.read(argument)
        elif what == "move":
            self.move(limit=argument)
        else:
            self.die()


class Scene:
    """A group with dead letters, beside what there was."""

    def __init__(self, adapter: ServerAdapter, letters: list[list[tuple[bytes, bytes]]]) -> None:
        self.adapter, self.server, self.wait = adapter, adapter.server, adapter.wait
        self.keys: GroupKeys = derive_keys(f"redriven-{next(_NUMBERS)}", "g")
        self.context: RedriveContext = a_redrive(self.keys)
        self.wait(provision(self.server, self.keys))
        self.letters = {self.add(own): own for own in letters}
        self.chosen = {one for place, one in enumerate(self.letters) if place % 3 != 2}
        self.vanished: set[EntryId] = set()
        self.late: set[EntryId] = set()
        self.failed = 0

    def add(self, own: list[tuple[bytes, bytes]], root: str = "5-0") -> EntryId:
        flat = [part for pair in own for part in pair]
        letter = letter_of(self.keys, flat, root)
        return parse_entry_id(self.adapter.ask("XADD", self.keys.dead_letter, "*", *letter))

    def selects(self, one: EntryId) -> bool:
        return one in self.chosen

    def vanish(self, place: int) -> None:
        some = list(self.letters)[place : place + 1]
        if some and self.adapter.ask("XDEL", self.keys.dead_letter, str(some[0])):
            self.vanished.add(some[0])

    def fail(self) -> None:
        """The oldest copy that was not processed yet becomes a dead letter again."""
        group = ("GROUP", "g", "w", "COUNT", 1)
        found = self.adapter.ask("XREADGROUP", *group, "STREAMS", self.keys.stream, ">")
        if found:
            entry_id, flat = found[0][1][0]
            letter = letter_of(self.keys, flat[:-4], flat[-3].decode())
            failed = self.adapter.ask("XADD", self.keys.dead_letter, "*", *letter)
            self.late.add(parse_entry_id(failed))
            self.adapter.ask("XACK", self.keys.stream, "g", entry_id)
            self.failed += 1

    def act(self, what: str, place: Any, own: Any) -> None:
        if what == "vanish":
            self.vanish(place)
        elif what == "add":
            self.late.add(self.add(own))
        else:
            self.fail()

    def entries(self, key: str) -> Entries:
        return {
            parse_entry_id(one): flat for one, flat in self.adapter.ask("XRANGE", key, "-", "+")
        }

    def expected_copy(self, own: list[tuple[bytes, bytes]]) -> list[bytes]:
        flat = [part for pair in own for part in pair]
        mark, returned = read_redrive_marks(flat, b"_")
        kept = flat[:-4] if mark else flat
        added = {"redrive": self.context.mark, "returned": str(returned + 1)}
        added |= {"original_id": "5-0", "retry_count": "0"}
        return [*kept, *(p for n, v in added.items() for p in (b"_" + n.encode(), v.encode()))]


def _run(scene: Scene, steps: list[tuple[str, Any, Any]]) -> RedriveProgress:
    replicas = [Replica(scene), Replica(scene)]
    scene.wait(start_redrive(scene.server, scene.context))
    for what, which, argument in steps:
        if what in {"read", "move", "die"}:
            replicas[which].act(what, argument)
        else:
            scene.act(what, which, argument)
    last = Replica(scene)
    while last.progress is None or not last.progress.is_at_end:
        last.read(5)
        assert last.move() in {Stop.DONE, Stop.BEHIND}
    assert last.progress is not None
    return last.progress


@settings(max_examples=60)
@given(letters=LETTERS, steps=STEPS)
def test_each_selected_letter_moves_once_and_the_counts_agree(
    adapter: ServerAdapter,
    letters: list[list[tuple[bytes, bytes]]],
    steps: list[tuple[str, Any, Any]],
) -> None:
    scene = Scene(adapter, letters)
    progress = _run(scene, steps)
    moved = scene.chosen - scene.vanished
    ledger = [
        parse_ledger_event(one, dict(zip(flat[::2], flat[1::2], strict=True)))
        for one, flat in scene.entries(scene.keys.ledger).items()
    ]
    acts = [one for event in ledger if event.kind == "redriven" for one in event.entries]
    copies = scene.entries(scene.keys.stream)
    assert {one.entry_id for one in acts} == moved
    assert len(acts) == len(copies) == progress.moved == len(moved)
    for act in acts:
        assert act.new_id is not None
        own = scene.letters[act.entry_id]
        assert copies[act.new_id] == scene.expected_copy(own)
        assert act.root_id == EntryId(5)
    left = set(scene.letters) - scene.chosen - scene.vanished
    assert set(scene.entries(scene.keys.dead_letter)) == left | scene.late
    assert progress.skipped.get(SkipReason.VANISHED, 0) <= len(scene.vanished)
    assert set(progress.skipped) <= {SkipReason.VANISHED}
    seen = adapter.wait(observe_outcomes(scene.server, scene.context))
    assert (seen.moved, seen.failed_again) == (len(moved), scene.failed)
    assert (seen.acknowledged, seen.is_exact) == (0, True)


@settings(max_examples=25)
@given(letters=LETTERS, steps=STEPS)
def test_letters_that_are_discarded_and_restored_are_as_they_were(
    adapter: ServerAdapter,
    letters: list[list[tuple[bytes, bytes]]],
    steps: list[tuple[str, Any, Any]],
) -> None:
    steps = [step for step in steps if step[0] not in {"fail", "add", "vanish"}]
    scene = Scene(adapter, letters)
    before = scene.entries(scene.keys.dead_letter)
    scene.context = replace(scene.context, action=LetterAction.DISCARD)
    _run(scene, steps)
    discarded = scene.entries(scene.keys.discarded)
    assert sorted(discarded.values()) == sorted(before[one] for one in scene.chosen)
    adapter.wait(finish_redrive(scene.server, scene.context, forget=True))
    scene.context = replace(scene.context, action=LetterAction.RESTORE, uid="back")
    scene.chosen = set(discarded)
    _run(scene, steps)
    assert scene.entries(scene.keys.discarded) == {}
    after = scene.entries(scene.keys.dead_letter)
    assert sorted(after.values()) == sorted(before.values())


FATES = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.integers(1, 4)),
        st.tuples(st.just("add"), st.integers(1, 2)),
        st.tuples(st.just("read"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(0, 8)),
        st.tuples(st.just("trim"), st.integers(0, 6)),
        st.tuples(st.just("look"), st.just(0)),
    ),
    max_size=30,
)


class Fates:
    """A redrive whose copies are delivered and removed, and what truly became of them."""

    def __init__(self, adapter: ServerAdapter, letters: int) -> None:
        self.scene = Scene(adapter, [[(b"f", b"v")]] * letters)
        self.scene.chosen = set(self.scene.letters)
        self.delivered: set[EntryId] = set()
        self.ask, self.keys = adapter.ask, self.scene.keys
        self.replica = Replica(self.scene)
        self.limit = 0
        self.scene.wait(start_redrive(self.scene.server, self.scene.context))
        self.copies: set[EntryId] = set()
        self.look()

    def act(self, what: str, number: int) -> None:
        stream = self.keys.stream
        if what == "move":
            self.limit += number
            self.replica.read(10)
            self.replica.move(limit=self.limit)
            self.copies |= {
                one for one, flat in self.scene.entries(stream).items() if b"_redrive" in flat
            }
        elif what == "add":
            for _ in range(number):
                self.ask("XADD", stream, "*", "f", "v")
        elif what == "read":
            self.read(number)
        elif what == "delete":
            some = sorted(self.scene.entries(stream))[number : number + 1]
            self.ask("XDEL", stream, *map(str, some or [EntryId(1)]))
        elif what == "trim":
            self.ask("XTRIM", stream, "MAXLEN", number)
        else:
            self.look()

    def read(self, number: int) -> None:
        group = ("GROUP", "g", "w", "COUNT", number)
        found = self.ask("XREADGROUP", *group, "STREAMS", self.keys.stream, ">")
        for entry_id, _ in found[0][1] if found else ():
            self.delivered.add(parse_entry_id(entry_id))
            self.ask("XACK", self.keys.stream, "g", entry_id)

    def look(self) -> None:
        """Nothing that is said to be known is wrong."""
        seen = self.scene.wait(observe_outcomes(self.scene.server, self.scene.context))
        delivered = self.copies & self.delivered
        here = self.copies & set(self.scene.entries(self.keys.stream))
        lost = self.copies - delivered - here
        assert seen.moved == len(self.copies)
        assert seen.unprocessed == len(here - delivered)
        assert seen.lost <= len(lost) <= seen.lost + seen.unknown
        assert seen.acknowledged <= len(delivered) <= seen.acknowledged + seen.unknown


@settings(max_examples=100)
@given(steps=FATES)
def test_what_is_said_of_lost_and_acknowledged_copies_is_true(
    adapter: ServerAdapter, steps: list[tuple[str, int]]
) -> None:
    fates = Fates(adapter, letters=12)
    for what, number in steps:
        fates.act(what, number)
    fates.look()
