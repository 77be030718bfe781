"""What a Redis that died has kept, and what a cut of its append-only file took away: exactly.

A server that is killed loses nothing that it has written to its file. With `appendfsync always` it
answers only after that write, so nothing acknowledged is ever lost. With `everysec` it answers
before, for up to two seconds, while a sync of the disk is under way (`flushAppendOnlyFile` in
Redis' aof.c). Such acts are in no file, and only the clients that were answered know of them. And a
machine that loses power loses what was not yet synced, about a second; `cut_tail` takes that away.
Redis writes what a script did between MULTI and EXEC, and drops at its start what has no end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ID = re.compile(rb"^\d+-\d+$")
_STAMP = b"#TS:"

Command = tuple[int, list[bytes]]  # where it ends, and its words


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The content of the file when the server starts again."""

    added: frozenset[tuple[str, str]]  # key and ID of every XADD
    acknowledged: frozenset[tuple[str, str]]  # key and ID of every XACK
    # Key, ID and consumer of every XCLAIM, as which reads and claims are kept.
    deliveries: frozenset[tuple[str, str, str]]
    cut_ids: frozenset[tuple[str, str]]  # key and ID of all that the lost commands name
    cut_names: frozenset[str]  # unique names in lost XADDs
    cut_bytes: int


def find_file(directory: Path) -> Path:
    """The file that the server of this directory appends to."""
    found = sorted(directory.glob("appendonlydir/*.incr.aof"), key=lambda one: one.stat().st_mtime)
    return found[-1]


def cut_tail(file: Path, *, keep_until_s: float, fraction: float) -> Kept:
    """Take away a part of what was written after this second of the clock, and return what.

    `fraction` says how much of it is kept; a cut may go through the middle of a command, as a
    lost sync does. With a fraction of 1 nothing is cut.
    """
    data = file.read_bytes()
    synced = _find_stamp(data, keep_until_s)
    size = synced + int((len(data) - synced) * fraction)
    kept, lost = _split(data, size)
    if size < len(data):
        with file.open("r+b") as writing:
            writing.truncate(size)
    return Kept(
        added=frozenset(_added(kept)),
        acknowledged=frozenset(_named_by(b"XACK", kept)),
        deliveries=frozenset(_delivered(kept)),
        cut_ids=frozenset(place for words in lost for place in _named(words)),
        cut_names=frozenset(name for words in lost for name in _unique_of(words)),
        cut_bytes=len(data) - size,
    )


def _find_stamp(data: bytes, second: float) -> int:
    """The offset of the first time stamp after this second; the end without one."""
    at = len(data)
    while (found := data.rfind(_STAMP, 0, at)) >= 0:
        stamped = int(data[found + len(_STAMP) : data.index(b"\r\n", found)])
        if stamped <= second:
            return at
        at = found
    return at


def _split(data: bytes, size: int) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """The commands that take effect at a start with the first `size` bytes, and the others."""
    kept: list[list[bytes]] = []
    lost: list[list[bytes]] = []
    held: list[list[bytes]] | None = None  # of a transaction that has not ended
    for end, words in _read_commands(data):
        name = words[0].upper()
        if name == b"MULTI":
            held = []
        elif name == b"EXEC" and held is not None:
            (kept if end <= size else lost).extend(held)
            held = None
        elif held is not None:
            held.append(words)
        else:
            (kept if end <= size else lost).append(words)
    lost += held or []
    return kept, lost


def _read_commands(data: bytes) -> Iterator[Command]:
    at = 0
    while at < len(data):
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            return
        if data[at : at + 1] == b"#":
            at = line_end + 2
            continue
        count, at = int(data[at + 1 : line_end]), line_end + 2
        words: list[bytes] = []
        for _ in range(count):
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                return
            length = int(data[at + 1 : line_end])
            at = line_end + 2 + length + 2
            if at > len(data):
                return
            words.append(data[at - length - 2 : at - 2])
        yield at, words


def _added(commands: list[list[bytes]]) -> Iterator[tuple[str, str]]:
    for words in commands:
        if words[0].upper() == b"XADD":
            yield words[1].decode(), _id_of_added(words)


def _id_of_added(words: list[bytes]) -> str:
    return next((word for word in words[2:] if _ID.match(word)), b"").decode()


def _delivered(commands: list[list[bytes]]) -> Iterator[tuple[str, str, str]]:
    for words in commands:
        if words[0].upper() == b"XCLAIM":
            key, _, consumer, _, entry_id = words[1:6]
            yield key.decode(), entry_id.decode(), consumer.decode()


def _named_by(command: bytes, commands: list[list[bytes]]) -> Iterator[tuple[str, str]]:
    for words in commands:
        if words[0].upper() == command:
            yield from _named(words)


def _named(words: list[bytes]) -> Iterator[tuple[str, str]]:
    """Every entry that a lost command names: added, delivered, acknowledged or written down."""
    if len(words) > 2:
        for word in words[2:]:
            if _ID.match(word):
                yield words[1].decode(errors="replace"), word.decode()


def _unique_of(words: list[bytes]) -> Iterator[str]:
    if words[0].upper() == b"XADD" and b"unique" in words[3:]:
        yield words[words.index(b"unique", 3) + 1].decode()
