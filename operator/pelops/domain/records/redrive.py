"""A redrive plan: which dead letters of a group to redrive, to inspect or to discard.

A text of JSON lines. The first one is the header, and each other one a dead letter, ordered by ID:

    {"kind":"pelops.redrive-plan","version":1,"stream":"orders:events","group":"mail",...}
    {"id":"1760000009000-0","root":"1760000000000-0","cluster":"9f...","action":"redrive"}

Users may edit it: change actions or delete lines. The header's counts are those of the suggestion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Literal

from pelops.domain.entry_id import EntryId
from pelops.domain.records.json_codec import (
    Codec,
    Count,
    Id,
    Moment,
    Stored,
    Text,
    ValueLimits,
    Word,
    names,
    only_version,
)
from pelops.errors import InvalidSpec

KIND: Final = "pelops.redrive-plan"
VERSION: Final = 1
_LINE_LIMIT: Final = 1024 * 1024  # bytes; a header names every cluster


class PlannedLetterAction(StrEnum):
    """What a redrive does with a dead letter."""

    REDRIVE = "redrive"  # move it back: it can succeed as it is
    INSPECT = "inspect"  # leave it until a person has examined it
    DISCARD = "discard"  # nothing is left to process


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster:
    """The action suggested for one cluster of dead letters, and why."""

    cluster: Word
    letters: Count
    action: PlannedLetterAction
    reason: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeader:
    """The group that a plan is for, and a summary of its dead letters."""

    kind: Literal["pelops.redrive-plan"] = KIND
    version: Annotated[int, only_version(VERSION, "the redrive plan")] = VERSION
    stream: Text
    group: Text
    dead_letter: Text  # the stream that holds them
    at: Moment  # when the dead letters were read
    letters: Count
    # Number of dead letters by action; in JSON, every action.
    actions: Annotated[
        Mapping[PlannedLetterAction, int],
        Stored(
            dict[PlannedLetterAction, Count],
            dict,
            lambda counts: {action: counts.get(action, 0) for action in PlannedLetterAction},
        ),
    ] = field(default_factory=dict)
    # The largest ones.
    clusters: Annotated[tuple[PlannedCluster, ...], ValueLimits(fail_fast=True)] = ()
    __pydantic_config__: ClassVar[Any] = names(at="at_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLetter:
    """What to do with one dead letter."""

    entry_id: Id  # in the dead-letter stream
    root_id: Id  # of the original entry
    cluster: Word
    action: PlannedLetterAction
    __pydantic_config__: ClassVar[Any] = names(entry_id="id", root_id="root")


_HEADERS: Final = Codec(PlanHeader, "the header", limit=_LINE_LIMIT)
_LETTERS: Final = Codec(PlannedLetter, "the dead letter", limit=_LINE_LIMIT)


def render_plan(header: PlanHeader, letters: Iterable[PlannedLetter]) -> Iterator[str]:
    """The lines of a plan, each with a line feed. Equal plans give equal bytes."""
    # Escaped, because some readers end a line at a line separator of Unicode.
    yield _HEADERS.render(header, separators=(",", ":")) + "\n"
    for letter in letters:
        yield _LETTERS.render(letter, separators=(",", ":")) + "\n"


def parse_plan(lines: Iterable[str]) -> tuple[PlanHeader, Iterator[PlannedLetter]]:
    """The header, and an iterator over the dead letters; blank lines are skipped.

    Raises InvalidSpec when a line is malformed, when the plan has another version, or when IDs are
    repeated or out of order. The iterator raises it too.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    number, first = next(numbered, (1, ""))
    header = _HEADERS.parse(first, f"line {number}, the header of the redrive plan")
    return header, _parse_letters(numbered)


def _parse_letters(numbered: Iterable[tuple[int, str]]) -> Iterator[PlannedLetter]:
    last: EntryId | None = None
    for number, line in numbered:
        letter = _LETTERS.parse(line, f"line {number}")
        # The ascending order excludes repeated dead letters without keeping their IDs in memory.
        if last is not None and letter.entry_id <= last:
            raise InvalidSpec(f"line {number}: {letter.entry_id} does not follow {last}")
        last = letter.entry_id
        yield letter
