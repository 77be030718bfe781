"""The dead letters of a group, and what is done to them: redriven, discarded, restored."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pelops.domain.dead_letter import REDRIVE_MARKS
from pelops.domain.ledger import LETTER_FIELDS, LedgerKind
from pelops.domain.naming import GroupKeys
from tests.pipeline.oracle.books import OF_LETTERS, State, StreamBook

Ask = Callable[..., Any]
_REDRIVE: Final = "again/6f1a"
# Each letter: its copy into the target, the letter away, and one event for all: as one script.
_SCRIPT: Final = """
local source, target, ledger = KEYS[1], KEYS[2], KEYS[3]
local event = { 'kind', ARGV[1], 'stream', source, 'target', target, 'redrive', ARGV[2], 'actor', 'oracle' }
local new_ids, own, of_redrives, ids = {}, tonumber(ARGV[3]), tonumber(ARGV[4]), {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local pairs_of_letter = redis.call('XRANGE', source, id, id)[1][2]
  local n = #pairs_of_letter
  local root, copy, returned = pairs_of_letter[n - 2 * own + 2], {}, 0
  if ARGV[1] == 'redriven' then
    n = n - 2 * own
    if n >= 2 * of_redrives and pairs_of_letter[n - 3] == '_redrive' and pairs_of_letter[n - 1] == '_returned' then
      returned = tonumber(pairs_of_letter[n])
      n = n - 2 * of_redrives
    end
  end
  for j = 1, n do
    copy[j] = pairs_of_letter[j]
  end
  if ARGV[1] == 'redriven' then
    for _, word in ipairs({ '_redrive', ARGV[2], '_returned', returned + 1, '_original_id', root, '_retry_count', 0 }) do
      copy[#copy + 1] = word
    end
  end
  local new_id = redis.call('XADD', target, '*', unpack(copy))
  redis.call('XDEL', source, id)
  new_ids[#new_ids + 1] = new_id
  event[#event + 1] = id
  event[#event + 1] = new_id .. ' ' .. root .. ' 0 0 0'
end
redis.call('XADD', ledger, '*', unpack(event))
return new_ids
"""  # noqa: E501


class Move(StrEnum):
    """What is done to letters; the value is the ledger's word."""

    REDRIVE = LedgerKind.REDRIVEN
    DISCARD = LedgerKind.DISCARDED
    RESTORE = LedgerKind.RESTORED


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """Which entry or copy a letter was."""

    stream: StreamBook
    place: int
    has_body: bool


@dataclass(slots=True)
class LetterBook:
    """Where the letters of one group are."""

    keys: GroupKeys
    there: dict[bytes, Letter] = field(default_factory=dict)  # in the dead-letter stream
    discarded: dict[bytes, Letter] = field(default_factory=dict)
    _last: bytes = b"0"

    @property
    def discarded_stream(self) -> str:
        return self.keys.discarded

    def note_new(self, ask: Ask, stream: StreamBook, places: Sequence[int]) -> None:
        """These entries were dead-lettered, in their order."""
        found = ask("XRANGE", self.keys.dead_letter, b"(" + self._last, "+")
        assert len(found) == len(places)
        for (letter_id, pairs), place in zip(found, places, strict=True):
            root = stream.copies.get(place, stream.ids[place])
            assert pairs[-2 * len(LETTER_FIELDS) + 1] == root
            has_body = len(pairs) > 2 * len(LETTER_FIELDS)
            self.there[letter_id] = Letter(stream=stream, place=place, has_body=has_body)
            self._last = letter_id

    def choose(
        self,
        chance: random.Random,
        number: int,
        *,
        are_discarded: bool = False,
        have_bodies: bool = False,
    ) -> list[bytes]:
        """Some letters, the oldest first."""
        letters = self.discarded if are_discarded else self.there
        known = [one for one, letter in letters.items() if letter.has_body or not have_bodies]
        chosen = set(chance.sample(known, min(number, len(known))))
        return [one for one in known if one in chosen]


def move_letters(
    ask: Ask,
    letters: LetterBook,
    move: Move,
    chosen: Sequence[bytes],
    copies: StreamBook | None = None,
) -> None:
    """Move letters, in one script, and note where they are; `copies` is where redriven ones go."""
    if not chosen:
        return
    keys, group = letters.keys, letters.keys.group
    source, there, to, gets = (
        keys.dead_letter,
        letters.there,
        letters.discarded_stream,
        letters.discarded,
    )
    if move is Move.RESTORE:
        source, there, to, gets = to, gets, source, there
    if copies is not None:
        to = copies.name
    counts = (len(LETTER_FIELDS), len(REDRIVE_MARKS))
    new_ids = ask(
        "EVAL", _SCRIPT, 3, source, to, keys.ledger, move.value, _REDRIVE, *counts, *chosen
    )
    moved = [there.pop(one) for one in chosen]
    if copies is None:
        end = State.DISCARDED if move is Move.DISCARD else State.DEAD_LETTERED
        for new_id, letter in zip(new_ids, moved, strict=True):
            gets[new_id] = letter
            if letter.has_body:
                letter.stream.group(group).move_letter(letter.place, end)
        if move is Move.RESTORE:
            letters._last = new_ids[-1]
        return
    roots = [one.stream.copies.get(one.place, one.stream.ids[one.place]) for one in moved]
    for copy, letter in zip(copies.add(new_ids, roots), moved, strict=True):
        book = letter.stream.group(group)
        if book.states[letter.place] in OF_LETTERS:
            book.follow(letter.place, copies, copy)
        book.move_letter(letter.place, State.REDRIVEN)
