"""What a Redis answers on a socket, read as values or only counted; and what checking it costs.

As a program: what each reply costs with its limits and checks, as a multiple of hiredis alone. Both
read the same bytes in turn, without a server, and the fastest of many rounds counts.
"""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hiredis import Reader

from benchmarks.report import Report, Target, build_parser, publish
from pelops.redis_core.commands import Part
from pelops.redis_core.replies.shapes import check_reply
from pelops.redis_core.replies.wire import BoundedReader, limit_of

NAME: Final = "replies"
BUFFER = 1 << 20
PIECE: Final = 1 << 16  # bytes that redis-py reads at once
MOST_OF_PAGE: Final = 1.15


class ReplyStream:
    """The answers on one connection, in their order."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = Reader(notEnoughData=Ellipsis)
        self._lines_ahead = 0

    def take(self, count: int) -> list[Any]:
        """The next answers; errors are among them as hiredis.ReplyError."""
        replies: list[Any] = []
        while len(replies) < count:
            reply = self._reader.gets()
            if reply is Ellipsis:
                self._reader.feed(self._receive())
            else:
                replies.append(reply)
        return replies

    def skip_lines(self, count: int) -> None:
        """Read past so many lines. Counting is all that happens to them."""
        while self._lines_ahead < count:
            self._lines_ahead += self._receive().count(b"\n")
        self._lines_ahead -= count

    def _receive(self) -> bytes:
        received = self._connection.recv(BUFFER)
        if not received:
            raise ConnectionError("the server has closed the connection")
        return received


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A command, and what a server may answer to it."""

    command: tuple[Part, ...]
    reply: Any


def samples() -> dict[str, Sample]:
    """Replies of the hot paths: of workers, of the data source, and of the operator's scripts."""
    read = ("XREADGROUP", "GROUP", "g", "c", "COUNT", 100, "BLOCK", 5, "STREAMS", "s", ">")
    page = ("XRANGE", "s", "-", "+", "COUNT", 1000)
    found = [[b"1760000000000-%d" % number, b"worker-1", 5, 1] for number in range(500)]
    return {
        "xrange_1000": Sample(command=page, reply=_page(1000, b"x" * 100)),
        "xrange_1000_small": Sample(command=page, reply=_page(1000, b"")),
        "xreadgroup_100": Sample(command=read, reply=[[b"s", _page(100, b"x" * 100)]]),
        "xreadgroup_1": Sample(command=read, reply=[[b"s", _page(1, b"x" * 100)]]),
        "xack": Sample(command=("XACK", "s", "g", "1-1"), reply=1),
        "script": Sample(command=("EVALSHA", "", 0), reply=[b"done", 1, [b"1-1", b"2-2"]]),
        "script_500": Sample(command=("EVALSHA", "", 0), reply=[b"done", found]),
    }


def _page(count: int, payload: bytes) -> list[Any]:
    """Entries of five fields, as those of the benchmark of the data source."""
    return [
        [
            b"%d-%d" % (1_760_000_000_000 + number // 10, number % 10),
            [
                *(b"tenant", b"t%d" % (number % 97), b"order_id", b"%010d" % number),
                *(b"qty", b"%d" % (number % 100), b"amount", b"%d.25" % (number % 1000)),
                *(b"payload", payload),
            ],
        ]
        for number in range(count)
    ]


def encode(reply: Any) -> bytes:
    """A reply as RESP2 has it."""
    if isinstance(reply, bytes):
        return b"$%d\r\n%s\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    return b"*%d\r\n%s" % (len(reply), b"".join(map(encode, reply)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = build_parser(NAME, __doc__, has_server=False).parse_args(arguments)
    rounds = 100 if given.quick else 1000
    costs = {name: _compare(sample, rounds) for name, sample in samples().items()}
    figures = {
        name: {"plain_us": a, "checked_us": b, "times": b / a} for name, (a, b) in costs.items()
    }
    value = figures["xrange_1000"]["times"]
    target = Target(name="xrange_times", value=value, target=MOST_OF_PAGE)
    report = Report(benchmark=NAME, server="none", targets=[target], figures=figures)
    publish(report, as_json=given.json)


def _compare(sample: Sample, rounds: int) -> tuple[float, float]:
    """The least microseconds of reading the reply: with hiredis alone, and as Pelops does."""
    text = encode(sample.reply)
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    plain, bounded = Reader(notEnoughData=Ellipsis), BoundedReader()

    def read_plainly() -> None:
        for piece in pieces:
            plain.feed(piece)
            reply = plain.gets()
        assert reply is not Ellipsis

    def read_checked() -> None:
        bounded.expect(limit_of(sample.command[0]))
        for piece in pieces:
            bounded.feed(piece)
            reply = bounded.gets()
        check_reply(sample.command, reply)

    repeats = max(1, 10_000 // len(text))
    best = [float("inf")] * 2
    gc.disable()  # it counts lists of both, and takes its time at either's expense
    for _ in range(rounds):
        for place, read in enumerate((read_plainly, read_checked)):
            best[place] = min(best[place], _seconds(read, repeats))
    gc.enable()
    return best[0] * 1e6, best[1] * 1e6


def _seconds(read: Callable[[], None], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        read()
    return (time.perf_counter() - began) / repeats


if __name__ == "__main__":
    main()
