"""The words of commands as servers write them: as the client gave them, but for what they chose.

Options may be in lower case. An ID that the server chose is written out, and so is what an
approximate trim has left; only an XADD that was a repetition (IDMP, 8.6) keeps its `*`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pelops.pipeline.evidence.entries import Id, parse_id

_POLICIES: Final = frozenset({b"KEEPREF", b"DELREF", b"ACKED"})
_OPERANDS: Final = {b"NOMKSTREAM": 0, b"LIMIT": 1, b"IDMPAUTO": 1, b"IDMP": 2}  # to pass over
_TRIMS: Final = frozenset({b"MAXLEN", b"MINID"})
_KEEP: Final = b"KEEPREF"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """What was taken from the beginning of a stream: all below an ID, or all but a number."""

    below: Id | None = None
    length: int = 0
    policy: bytes = _KEEP  # what becomes of the pending records of trimmed entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """An XADD."""

    entry_id: Id | None  # None: it was a repetition, and added nothing
    trim: Trim | None
    pairs: Sequence[bytes]


def read_added(command: Sequence[bytes]) -> Added:
    """What an XADD did. Raises ValueError or IndexError for one that no server writes."""
    # Most have no option: the ID follows the key.
    at = 2 if command[2][:1].isdigit() else _pass_options(command, 2)
    trim = None if at == 2 else read_trim(command[2:at])
    chosen = command[at]
    return Added(
        entry_id=None if chosen == b"*" else parse_id(chosen),
        trim=trim if trim and (trim.below is not None or trim.length >= 0) else None,
        pairs=command[at + 1 :],
    )


def read_trim(words: Sequence[bytes]) -> Trim:
    """What options of XTRIM or XADD say; a length of -1 when they trim nothing."""
    policy, below, length, at = _KEEP, None, -1, 0
    while at < len(words):
        word = words[at].upper()
        if word in _POLICIES:
            policy = word
        elif word in _TRIMS:
            at += 2 if words[at + 1] in {b"=", b"~"} else 1
            if word == b"MINID":
                below = parse_id(words[at])
            else:
                length = int(words[at])
        else:
            at += _OPERANDS.get(word, 0)
        at += 1
    return Trim(below=below, length=length, policy=policy)


def read_ids(words: Sequence[bytes]) -> tuple[bytes, list[Id]]:
    """The IDs of an XACK, XDEL, XACKDEL or XDELEX, and what becomes of pending records."""
    if words[0][:1].isdigit():
        return _KEEP, [parse_id(word) for word in words]
    policy = words[0].upper() if words[0].upper() in _POLICIES else _KEEP
    at = next(i for i, word in enumerate(words) if word.upper() == b"IDS")
    return policy, [parse_id(word) for word in words[at + 2 :]]


def _pass_options(command: Sequence[bytes], at: int) -> int:
    """Where the ID of an XADD stands."""
    while True:
        word = command[at].upper()
        if word in _TRIMS:
            at += 2 if command[at + 1] in {b"=", b"~"} else 1
        elif word in _OPERANDS:
            at += _OPERANDS[word]
        elif word not in _POLICIES:
            return at
        at += 1
