"""The files of a server's append-only directory that hold its history, and the commands in them.

    appendonly.aof.manifest     the list of files; replaced by rename when the server rewrites
    appendonly.aof.2.base.rdb   the data when the last rewrite began; `.aof` without RDB preamble
    appendonly.aof.2.incr.aof   every write since then, growing

A rewrite deletes the older files, unless the server runs with `aof-disable-auto-gc yes`. Then they
stay as history, and the evidence goes back to the oldest file. A new server writes an empty base
file: the commands after it are then its whole history.

Files are read in blocks, and commands are returned in the order in which they took effect. An
incomplete command or transaction at the end of the last file is ignored, because the server may
still be writing it. A time stamp (`aof-timestamp-enabled`) is returned as the command `#TS:` with
its second.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import hiredis

from pelops.errors import PelopsError


class EvidenceUnusable(PelopsError):
    """The append-only files cannot be read or have invalid content; the message has details."""


_HEADER: Final = 9  # REDIS0011 or VALKEY080
_AUXILIARY, _END = 0xFA, 0xFF
_LARGEST_START: Final = 65536  # bytes; auxiliary fields take a few hundred
_INTEGERS: Final = {0: 1, 1: 2, 2: 4}  # bytes of a text that is encoded as an integer


def is_empty_snapshot(file: BinaryIO) -> bool:
    """Whether an RDB file has only auxiliary fields; False also if that is uncertain."""
    file.seek(0)
    start = file.read(_LARGEST_START)
    at = _HEADER
    try:
        while start[at] == _AUXILIARY:
            at = _skip_text(start, _skip_text(start, at + 1))
        return start[at] == _END
    except (IndexError, ValueError):
        return False


def _skip_text(data: bytes, at: int) -> int:
    """The offset after a string. Raises IndexError at the end, ValueError for another encoding."""
    kind, low = data[at] >> 6, data[at] & 0x3F
    if kind == 0:
        return at + 1 + low
    if kind == 1:
        return at + 2 + (low << 8 | data[at + 1])
    if kind == 3 and low in _INTEGERS:
        return at + 1 + _INTEGERS[low]
    raise ValueError("a text of a kind that no auxiliary field has")


_ATTEMPTS: Final = 5  # the server may replace its files meanwhile
_BASE, _HISTORY = "b", "h"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A line of the manifest."""

    name: str
    number: int
    kind: str  # b: base, i: incremental, h: superseded, of either kind

    @property
    def is_incremental(self) -> bool:
        return self.name.endswith(".incr.aof")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFiles:
    """The open files of a history: they stay readable if the server removes them."""

    files: tuple[BinaryIO, ...]  # with commands, the oldest first
    begins_empty: bool  # no data existed before them: they are the whole history


def open_files(directory: Path, stack: ExitStack, *, with_history: bool = False) -> OpenFiles:
    """Open the files that the directory's manifest names; `stack` closes them.

    `with_history`: also the files that a rewrite superseded. Use it only if `appendonly` was never
    switched off, because writes during that time are in none of the files. Raises EvidenceUnusable
    if there is no manifest, or if files that it names are missing.
    """
    missing: OSError | None = None
    for _ in range(_ATTEMPTS):
        with ExitStack() as opened:
            try:
                chain = choose_chain(read_manifest(directory), with_history=with_history)
                chosen = _open_chain(directory, chain, opened)
            except FileNotFoundError as error:
                missing = error
                continue
            stack.enter_context(opened.pop_all())
            return chosen
    raise EvidenceUnusable(f"{missing.filename if missing else directory} is missing") from missing


def read_manifest(directory: Path) -> tuple[ListedFile, ...]:
    """The files that the manifest lists. Raises FileNotFoundError or EvidenceUnusable."""
    manifests = sorted(directory.glob("*.manifest"))
    if len(manifests) != 1:
        what = "no manifest" if not manifests else "several manifests"
        raise EvidenceUnusable(
            f"{directory} holds {what}; give the directory that the server's setting "
            "appenddirname names"
        )
    return tuple(_parse_lines(manifests[0].read_text(errors="surrogateescape")))


def choose_chain(listed: Sequence[ListedFile], *, with_history: bool) -> tuple[ListedFile, ...]:
    """The base if one fits, and the longest sequence of incremental files without a gap."""
    row = sorted(
        (one for one in listed if one.is_incremental and (with_history or one.kind != _HISTORY)),
        key=lambda one: one.number,
    )
    unbroken = row[-1:]
    for file in reversed(row[:-1]):
        if file.number + 1 != unbroken[0].number:
            break
        unbroken.insert(0, file)
    return (*_base_of(listed, unbroken), *unbroken)


def _base_of(listed: Sequence[ListedFile], row: Sequence[ListedFile]) -> Iterator[ListedFile]:
    """The base that the incremental files continue. Of superseded ones, only the first fits."""
    is_superseded = bool(row) and row[0].kind == _HISTORY
    for file in listed:
        if not file.is_incremental and (
            row[0].number == file.number == 1 if is_superseded else file.kind == _BASE
        ):
            yield file


def _open_chain(directory: Path, chain: Sequence[ListedFile], stack: ExitStack) -> OpenFiles:
    files: list[BinaryIO] = []
    begins_empty = bool(chain) and chain[0].number == 1
    for listed_file in chain:
        file = stack.enter_context((directory / listed_file.name).open("rb"))
        if listed_file.is_incremental:
            files.append(file)
        elif listed_file.name.endswith(".rdb"):
            begins_empty = is_empty_snapshot(file)
        else:
            begins_empty = False
            files.append(file)
    return OpenFiles(files=tuple(files), begins_empty=begins_empty)


def _parse_lines(text: str) -> Iterator[ListedFile]:
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        words = shlex.split(line)
        fields = dict(zip(words[::2], words[1::2], strict=False))
        if not fields.get("seq", "").isdigit() or "file" not in fields or "type" not in fields:
            raise EvidenceUnusable(f"the manifest holds an unknown line: {line!r}")
        yield ListedFile(name=fields["file"], number=int(fields["seq"]), kind=fields["type"])


STAMP: Final = b"#TS:"
Command = list[bytes]
_BLOCK: Final = 1 << 20  # bytes
_LINE_END: Final = b"\r\n"
_LONGEST_STAMP: Final = 64  # bytes
_NOTHING: Final = object()


def read_acts(file: BinaryIO, *, may_be_cut: bool) -> Iterator[list[Command]]:
    """Commands that took effect together: one, or those between MULTI and EXEC.

    `may_be_cut`: the file is the last one, to which the server may still be writing. Raises
    EvidenceUnusable for invalid commands, and if another file ends within a command.
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
    """All commands and time stamps of a file. Raises as `read_acts`."""
    reader = hiredis.Reader(protocolError=EvidenceUnusable, notEnoughData=_NOTHING)
    at, rest = 0, b""
    file.seek(0)
    while block := file.read(_BLOCK):
        data = rest + block
        # A possible beginning of a stamp is kept for the next block.
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
    """Parse commands and stamps of data without an unfinished stamp at its end.

    hiredis parses a `#` as a boolean. A stamp is therefore searched where a command could begin:
    after a line end, when the previous command is complete.
    """
    at, search = 0, 0
    while at < len(data):
        if data.startswith(b"#", at) and not reader.has_data():
            end = data.index(_LINE_END, at)
            if data.startswith(STAMP, at):
                yield [STAMP, data[at + len(STAMP) : end]]
            at = search = end + len(_LINE_END)
            continue
        stamp_at = data.find(b"\r\n#", search)
        end = len(data) if stamp_at < 0 else stamp_at + len(_LINE_END)
        reader.feed(data, at, end - at)
        at = search = end
        yield from _drain(reader)


def _drain(reader: hiredis.Reader) -> Iterator[Command]:
    gets = reader.gets
    while (command := gets(False)) is not _NOTHING:
        if type(command) is not list or not command or type(command[0]) is not bytes:
            raise EvidenceUnusable(f"{_shown(command)} is not a command")
        yield command


def _unfinished_stamp(data: bytes) -> bytes:
    """The end of a block that may be the beginning of a stamp, or of the line end before it."""
    found = data.rfind(_LINE_END, max(0, len(data) - _LONGEST_STAMP))
    tail = data[found + len(_LINE_END) :] if found >= 0 else data
    if tail.startswith(b"#") and len(tail) < _LONGEST_STAMP:
        return tail
    return b"\r" if data.endswith(b"\r") else b""


def _is_at_end(reader: hiredis.Reader, rest: bytes) -> bool:
    """Whether the last command is complete. Tested by a PING, which the reader must return."""
    if rest or reader.has_data():
        return False
    try:
        reader.feed(b"*1\r\n$4\r\nPING\r\n")
        return bool(reader.gets(False) == [b"PING"])
    except EvidenceUnusable:
        return False


def _shown(reply: Any) -> str:
    """A description of an invalid command without its bytes, which may be of a payload."""
    size = f" of {len(reply)}" if isinstance(reply, bytes | str | list) else ""
    return f"a reply of type {type(reply).__name__}{size}"
