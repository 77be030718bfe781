"""The commands of append-only files, in their order and as they took effect.

Bounded in memory: a block of the file at a time. A tail that is still being written, and a
transaction that has no end, did not happen yet. A time stamp (`aof-timestamp-enabled`) is given as
the command `#TS:` with its second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import hiredis

from pelops.pipeline.evidence.errors import EvidenceUnusable

STAMP: Final = b"#TS:"
Command = list[bytes]
_BLOCK: Final = 1 << 20  # bytes
_LINE_END: Final = b"\r\n"
_LONGEST_STAMP: Final = 64  # bytes
_NOTHING: Final = object()


def read_acts(file: BinaryIO, *, may_be_cut: bool) -> Iterator[list[Command]]:
    """What took effect together: one command, or those between MULTI and EXEC.

    `may_be_cut`: the file is the last one, to whose end the server may be writing. Raises
    EvidenceUnusable for anything that is no command, and for a cut of another file.
    """
    held: list[Command] | None = None
    for command in read_commands(file, may_be_cut=may_be_cut):
        name = command[0]
        if len(command) == 1 and name.upper() == b"MULTI":
            held = []
        elif len(command) == 1 and name.upper() == b"EXEC":
            if held:
                yield held
            held = None
        elif held is None or name == STAMP:
            yield [command]
        else:
            held.append(command)


def read_commands(file: BinaryIO, *, may_be_cut: bool) -> Iterator[Command]:
    """Every command of a file and every time stamp. Raises as `read_acts`."""
    reader = hiredis.Reader(protocolError=EvidenceUnusable, notEnoughData=_NOTHING)
    at, rest = 0, b""
    file.seek(0)
    while block := file.read(_BLOCK):
        data = rest + block
        # What may be the beginning of a stamp waits for its end.
        rest = _unfinished_stamp(data)
        try:
            yield from _parse(reader, data[: len(data) - len(rest)] if rest else data)
        except EvidenceUnusable as error:
            raise EvidenceUnusable(
                f"{file.name} is damaged between its bytes {at} and {at + len(data)}: {error}"
            ) from error
        at += len(data) - len(rest)
    if not may_be_cut and not _is_at_end(reader, rest):
        raise EvidenceUnusable(f"{file.name} ends within a command, and another file follows it")


def _parse(reader: hiredis.Reader, data: bytes) -> Iterator[Command]:
    """The commands of whole lines of a file.

    hiredis takes a `#` for a boolean. A stamp stands where a command could begin: right after a
    line's end, with nothing of a command left to read before it.
    """
    at, search = 0, 0
    while at < len(data):
        if data.startswith(b"#", at) and not reader.has_data():
            end = data.index(_LINE_END, at)
            if data.startswith(STAMP, at):
                yield [STAMP, data[at + len(STAMP) : end]]
            at = search = end + len(_LINE_END)
            continue
        found = data.find(b"\r\n#", search)
        end = len(data) if found < 0 else found + len(_LINE_END)
        reader.feed(data, at, end - at)
        at = search = end
        yield from _drain(reader)


def _drain(reader: hiredis.Reader) -> Iterator[Command]:
    gets = reader.gets
    while (command := gets(False)) is not _NOTHING:
        if type(command) is not list or not command or type(command[0]) is not bytes:
            raise EvidenceUnusable(f"{_shown(command)} is no command")
        yield command


def _unfinished_stamp(data: bytes) -> bytes:
    """The end of a block that might be the beginning of a stamp, or of the line's end before it."""
    found = data.rfind(_LINE_END, max(0, len(data) - _LONGEST_STAMP))
    tail = data[found + len(_LINE_END) :] if found >= 0 else data
    if tail.startswith(b"#") and len(tail) < _LONGEST_STAMP:
        return tail
    return b"\r" if data.endswith(b"\r") else b""


def _is_at_end(reader: hiredis.Reader, rest: bytes) -> bool:
    """Whether a command could begin here: one that is given is read as itself."""
    if rest or reader.has_data():
        return False
    try:
        reader.feed(b"*1\r\n$4\r\nPING\r\n")
        return bool(reader.gets(False) == [b"PING"])
    except EvidenceUnusable:
        return False


def _shown(command: Any) -> str:
    return repr(command)[:60]
