"""The dead letters of a group, and where the operator moves them: redriven, discarded, restored."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.records.dead_letter import LetterAction
from pelops.domain.records.ledger import LETTER_FIELDS
from pelops.redis_core.server import Server
from pelops.redis_streams.redrive.moves import finish_redrive, move_letters, start_redrive
from tests.integration.redriving import a_redrive
from tests.pipeline.oracle.books import State, StreamBook
from tests.pipeline.wire import Wire

_ENDS: Final = {
    LetterAction.REDRIVE: State.REDRIVEN,
    LetterAction.DISCARD: State.DISCARDED,
    LetterAction.RESTORE: State.DEAD_LETTERED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """The entry or copy that became a dead letter."""

    stream: StreamBook
    place: int
    has_body: bool

    @property
    def root(self) -> bytes:
        return self.stream.copies.get(self.place, self.stream.ids[self.place])


@dataclass(slots=True)
class LetterBook:
    """The dead letters of one group by their IDs, the oldest first."""

    keys: GroupKeys
    wire: Wire
    there: dict[bytes, Letter] = field(default_factory=dict)  # in the dead-letter stream
    discarded: dict[bytes, Letter] = field(default_factory=dict)

    def note_new(self, stream: StreamBook, places: Sequence[int]) -> None:
        """These entries were dead-lettered, in their order."""
        found = self._new(self.keys.dead_letter, self.there)
        assert len(found) == len(places)
        for (letter_id, pairs), place in zip(found, places, strict=True):
            own = len(pairs) - 2 * len(LETTER_FIELDS)
            letter = Letter(stream=stream, place=place, has_body=own > 0)
            # Without its body the root of a copy is not in its fields.
            roots = {letter.root} if letter.has_body else {letter.root, stream.ids[place]}
            assert pairs[own + 1] in roots
            self.there[letter_id] = letter

    async def move(
        self,
        server: Server,
        action: LetterAction,
        chance: random.Random,
        number: int,
        copies: StreamBook | None = None,
    ) -> None:
        """Move some dead letters as a StreamRedrive does; `copies` is where redriven ones go."""
        source = self.discarded if action is LetterAction.RESTORE else self.there
        chosen = sorted(map(parse_entry_id, chance.sample(list(source), min(number, len(source)))))
        if not chosen:
            return
        to_retry = copies is not None and copies.name == self.keys.retry
        uid = f"of-{chance.randrange(10**9)}"
        context = a_redrive(self.keys, uid=uid, action=action, to_retry_stream=to_retry)
        progress = await start_redrive(server, context)
        try:
            await move_letters(server, context, chosen, after=EntryId.MIN, through=progress.until)
        finally:
            await finish_redrive(server, context, forget=True)
            self._note_moved(action, context.source, copies)

    def _note_moved(self, action: LetterAction, source: str, copies: StreamBook | None) -> None:
        is_restore = action is LetterAction.RESTORE
        letters = self.discarded if is_restore else self.there
        left = {one for one, _ in self.wire.ask("XRANGE", source, "-", "+")}
        moved = [letters.pop(one) for one in list(letters) if one not in left]
        if copies is not None:
            self._note_copies(moved, copies)
        else:
            target = self.keys.dead_letter if is_restore else self.keys.discarded
            known = self.there if is_restore else self.discarded
            for (new_id, pairs), letter in zip(self._new(target, known), moved, strict=True):
                assert pairs[-2 * len(LETTER_FIELDS) + 1] == letter.root or not letter.has_body
                known[new_id] = letter
        group = self.keys.group
        for letter in moved:
            if letter.has_body:
                letter.stream.group(group).move_letter(letter.place, _ENDS[action])

    def _note_copies(self, moved: Sequence[Letter], copies: StreamBook) -> None:
        found = self._new(copies.name, copies.places)
        places = copies.add((one for one, _ in found), [letter.root for letter in moved])
        for place, (_, pairs), letter in zip(places, found, moved, strict=True):
            assert letter.has_body
            assert pairs[-8::2] == [b"_redrive", b"_returned", b"_original_id", b"_retry_count"]
            assert pairs[-3] == letter.root
            letter.stream.group(self.keys.group).follow(letter.place, copies, place)

    def _new(self, stream: str, known: Any) -> list[Any]:
        """What a stream holds that is not among the known."""
        return [one for one in self.wire.ask("XRANGE", stream, "-", "+") if one[0] not in known]
