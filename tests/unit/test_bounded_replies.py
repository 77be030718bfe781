"""Replies are bounded where they arrive, and otherwise the same as hiredis' own."""

from __future__ import annotations

import asyncio
import random
import time
import tracemalloc
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest
from redis import exceptions

from pelops.errors import InvalidReply
from pelops.redis_core.replies.shapes import BadShape, check_reply, reading
from pelops.redis_core.replies.wire import (
    NOT_ENOUGH_DATA,
    AsyncBoundedParser,
    BoundedParser,
    BoundedReader,
    ReplyBudget,
    ReplyLimit,
    UnboundedReply,
    check_depth,
    limit_of,
)
from tests.fuzz.mutations import Tree, encode

KIB = 1024


def a_reader(limit: ReplyLimit | None = None) -> BoundedReader:
    reader = BoundedReader()
    if limit is not None:
        reader.expect(limit)
    return reader


def a_tree(rng: random.Random, depth: int = 0) -> Tree:
    """A reply, with texts that look like the beginning of large arrays."""
    texts = [b"", b"*1000", b"*100000000\r\n", b"x*12345", b"*", b"a\r\n*99999\r\n", b"\r\n", b"$5"]
    kind = rng.randrange(5 if depth < 4 else 4)
    if kind == 4:
        return [a_tree(rng, depth + 1) for _ in range(rng.randrange(6))]
    if kind == 3:
        return rng.choice((None, 0, -5, 10**15))
    return rng.choice(texts) * rng.randrange(1, 400)


def read_in_pieces(reader: Any, text: bytes, rng: random.Random) -> list[Any]:
    found, at = [], 0
    while at < len(text):
        size = rng.choice((1, 2, 3, 7, 100, 65536))
        reader.feed(text[at : at + size])
        at += size
        while (reply := reader.gets()) is not NOT_ENOUGH_DATA:
            found.append(reply)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_replies_are_the_same_however_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    trees = [a_tree(rng) for _ in range(5)] + [[b"1"] * 1500, [[b"*5555"] * 2000] * 3]
    text = b"".join(map(encode, trees))
    assert read_in_pieces(a_reader(), text, random.Random(seed)) == trees
    plain = hiredis.Reader(notEnoughData=NOT_ENOUGH_DATA)
    assert read_in_pieces(plain, text, random.Random(seed)) == trees


@pytest.mark.parametrize("head", [b"*", b"~", b">", b"%"])
@pytest.mark.parametrize("number", [b"100001", b"1000000000", b"4000000000", b"9" * 18])
@pytest.mark.parametrize("before", [b"", b"*2\r\n:1\r\n", b"*3\r\n$6\r\n*12345\r\n"])
def test_a_large_array_is_refused_before_there_is_room_for_it(
    head: bytes, number: bytes, before: bytes
) -> None:
    for cut in range(len(before), len(before) + len(number) + 2):
        reader, text = a_reader(), before + head + number + b"\r\n"
        began = time.monotonic()
        tracemalloc.start()
        with pytest.raises(UnboundedReply):
            reader.feed(text[:cut])
            reader.feed(text[cut:])
        assert tracemalloc.get_traced_memory()[1] < 64 * KIB
        tracemalloc.stop()
        assert time.monotonic() - began < 1


@pytest.mark.parametrize("size", [9, 99, 999])
def test_small_arrays_in_arrays_make_no_room_without_end(size: int) -> None:
    reader = a_reader()
    tracemalloc.start()
    with pytest.raises(UnboundedReply):
        reader.feed(b"*%d\r\n" % size * 20_000)
        reader.gets()
    assert tracemalloc.get_traced_memory()[1] < 10_000 * KIB
    tracemalloc.stop()


def test_arrays_in_arrays_are_counted_together() -> None:
    reader = a_reader()
    with pytest.raises(UnboundedReply, match="more than 100000 elements"):
        reader.feed(b"*60000\r\n" * 2)


def test_an_endless_text_is_refused() -> None:
    reader = a_reader(ReplyLimit(100 * KIB))
    with pytest.raises(UnboundedReply, match="more than 102400 bytes"):
        for _ in range(100):
            reader.feed(b"$500000000\r\n" + b"x" * 10 * KIB)


def test_endless_elements_are_refused() -> None:
    reader = a_reader(ReplyLimit(100 * KIB))
    with pytest.raises(UnboundedReply, match="more than 102400 bytes"):
        reader.feed(b"*90000\r\n")
        for _ in range(100):
            reader.feed(b"*0\r\n" * 1000)


def test_each_reply_has_its_own_limit() -> None:
    reader = a_reader(ReplyLimit(100 * KIB))
    for _ in range(20):
        reader.feed(encode(b"x" * 50 * KIB))
        assert reader.gets() == b"x" * 50 * KIB


@pytest.mark.parametrize(
    "text",
    [b"%1\r\n+a\r\n+b\r\n", b"%1\r\n*0\r\n:1\r\n", b"#t\r\n", b",1.5\r\n", b">1\r\n+a\r\n",
     b">0\r\n",
     b"HTTP/1.1 400 Bad\r\n", b"*-5\r\n", b":9999999999999999999999\r\n", b"*1\r\n" * 5000,
     b"*3000\r\n" + b"-\r\n" * 3000, b"-MOVED x y\r\n", b"-MOVED\r\n", b"-MOVED 99999 a:1\r\n",
     b"-MOVED 1 a:99999\r\n", b"-ASK 1 a\x01b:1\r\n", b"-MOVED 1 \xff:1\r\n"],
)  # fmt: skip
def test_what_is_no_reply_of_resp2_is_refused_and_not_quoted(text: bytes) -> None:
    reader = a_reader()
    with pytest.raises(UnboundedReply) as refused:
        reader.feed(text)
        check_depth(reader.gets())
    assert '"' not in str(refused.value) and "byte" not in str(refused.value)


@pytest.mark.parametrize("depth", [9, 200, 1000])
def test_lists_too_deep_are_refused(depth: int) -> None:
    reader = a_reader()
    reader.feed(b"*1\r\n" * depth + b":1\r\n")
    with pytest.raises(UnboundedReply, match="deep"):
        check_depth(reader.gets())


def test_a_redirect_is_understood() -> None:
    reader = a_reader()
    reader.feed(b"-MOVED 3999 one:6379\r\n-ASK 5 :6380\r\n-ERR no\r\n")
    assert isinstance(reader.gets(), exceptions.MovedError)
    assert isinstance(reader.gets(), exceptions.AskError)
    assert isinstance(reader.gets(), exceptions.ResponseError)


def test_large_replies_share_a_budget_and_small_replies_are_never_refused() -> None:
    budget = ReplyBudget(most=200 * KIB)
    with budget.open() as first, budget.open() as second, budget.open() as third:
        first.add(150 * KIB)
        third.add(60 * KIB)  # small: never refused
        with pytest.raises(UnboundedReply, match="this process already reads"):
            second.add(70 * KIB)
    assert budget.held == 0
    with budget.open() as again:
        again.add(150 * KIB)


def test_replies_to_commands_sent_together_have_a_limit_together() -> None:
    budget = ReplyBudget(most=10**9)
    with budget.open() as account, pytest.raises(UnboundedReply, match="in total"):
        for _ in range(1000):
            account.add(100 * KIB)
    assert budget.held == 0


ENTRY = [b"1-1", [b"f", b"v"]]
PENDING = [b"1-1", b"c", 5, 1]


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (("TIME",), [b"1760000000", b"5"]),
        (("XRANGE", "s", "-", "+", "COUNT", 2), [ENTRY, [b"2-0", []]]),
        (("XRANGE", "s", "5-0", "5-0"), []),
        (("XRANGE", "s", "-", "+", "COUNT", 2), [[b"1-1", [b"", b""]], [b"2-0", None]]),
        (("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">"), [[b"s", [ENTRY]]]),
        (("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", b"s", ">"), None),
        (("XREAD", "COUNT", 1, "BLOCK", 5, "STREAMS", "s", "0"), [[b"s", [[b"1-1", None]]]]),
        (("XPENDING", "s", "g"), [0, None, None, None]),
        (("XPENDING", "s", "g"), [2, b"1-1", b"2-0", [[b"c", b"2"]]]),
        (("XPENDING", "s", "g", "-", "+", 1), [PENDING]),
        (("XPENDING", "s", "g", "IDLE", 5, "-", "+", 1), [[b"1-1", b"", -1, 0]]),
        (("HMGET", "k", "a", "b"), [None, b"x"]),
        (("CONFIG", "GET", "notify-keyspace-events"), []),
        (("EVALSHA", "x", 0), [[[1]]]),
        (("PTTL", "k"), -2),
    ],
)
def test_replies_as_servers_give_them_pass(command: tuple[Any, ...], reply: Any) -> None:
    check_reply(command, reply)


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (("TIME",), [b"99999999999999", b"5"]),
        (("TIME",), [b"1760000000", b"1000000"]),
        (("TIME",), [b"1760000000", b"9" * 19]),
        (("TIME",), 5),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [ENTRY, ENTRY]),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [[b"1-1", [b"f"]]]),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [[b"1-1", [b"f", 1]]]),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [[b"x", [b"f", b"v"]]]),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [[b"18446744073709551616-0", []]]),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [[b"1-1,2-2", []]]),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [[1, []]]),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [[b"1-1", b""]]),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [[b"1-1", [b"f", None]]]),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [[b"1-1", [[], []]]]),
        (("XRANGE", "s", "-", "+", "COUNT", 1), [[b"1-1", [b"", 5]]]),
        (("XRANGE", "s", "-", "+", "COUNT", 2), [ENTRY, [b"2-2", [b"", b"", b"f", None]]]),
        (("XRANGE", "s", "-", "+", "COUNT", 2), [ENTRY, [b"2-2", [b"f", b"v"], 1]]),
        (("XRANGE", "s", "-", "+", "COUNT", 2), [[b"1-1", None], [b"2-2", [b"f"]]]),
        (("XRANGE", "s", "-", "+", "COUNT", 2), [[b"1-1", None], [b"2-2", 5]]),
        (("XRANGE", "s", "-", "+", "COUNT", 2), [ENTRY, 7]),
        (("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">"), [[b"t", [ENTRY]]]),
        (("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">"), [[b"s", [ENTRY] * 3]]),
        (
            ("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">"),
            [[b"s", [[*ENTRY, 5, None]]]],
        ),
        (
            ("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">"),
            [[b"s", [[*ENTRY, 5, 2**63]]]],
        ),
        (
            ("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">"),
            [[b"s", [[*ENTRY, 5, 1], ENTRY]]],
        ),
        (("XPENDING", "s", "g"), [2, b"1-1", b"2-0", [[b"c", 2]]]),
        (("XPENDING", "s", "g", "-", "+", 1), [PENDING, PENDING]),
        (("XPENDING", "s", "g", "-", "+", 1), [[b"1-1", b"c", 5, b"1"]]),
        (("HMGET", "k", "a", "b"), [None]),
        (("HMGET", "k", "a"), [5]),
        (("CONFIG", "GET", "notify-keyspace-events"), 5),
        (("CONFIG", "GET", "notify-keyspace-events"), [b"notify-keyspace-events", 5]),
        (("PTTL", "k"), b"5"),
        (("PTTL", "k"), True),
        (("XINFO", "GROUPS", "s"), [[b"name", b"g"]]),
        (("XINFO", "CONSUMERS", "s", "g"), [[b"name", b"c", b"pending", b"x", b"idle", 5]]),
        (("HDEL", "k", "f"), exceptions.NoScriptError("no")),
    ],
)
def test_a_reply_of_another_shape_is_one_error_that_names_the_command(
    command: tuple[Any, ...], reply: Any
) -> None:
    with pytest.raises(InvalidReply, match=f"invalid reply to {command[0]}") as refused:
        check_reply(command, reply)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    "error",
    [ValueError("secret"), TypeError("secret"), KeyError("secret"), IndexError("secret"),
     AttributeError("secret"), OverflowError("secret"), RecursionError("secret"),
     UnicodeDecodeError("utf-8", b"secret", 0, 1, "secret"), BadShape("a number is missing")],
)  # fmt: skip
def test_what_goes_wrong_in_reading_is_one_error_that_quotes_nothing(error: Exception) -> None:
    with pytest.raises(InvalidReply, match="invalid reply to XADD") as refused, reading("XADD"):
        raise error
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["XRANGE", "XINFO"])
def test_replies_with_entries_or_long_lists_may_be_large_and_others_not(name: str) -> None:
    assert limit_of(name).bytes > limit_of("XPENDING").bytes


def test_a_dropped_reader_holds_nothing_and_takes_nothing_more() -> None:
    reader = a_reader()
    reader.feed(b"$10\r\nhalf")
    reader.drop()
    assert not reader.has_data()
    assert reader.gets() is NOT_ENOUGH_DATA
    with pytest.raises(exceptions.ConnectionError, match="closed while a reply was read"):
        reader.feed(b"a text\r\n")


async def test_a_read_that_goes_on_after_the_connection_was_closed_says_so() -> None:
    parser = AsyncBoundedParser(65_536)
    parser.on_disconnect()
    with pytest.raises(exceptions.ConnectionError, match="closed while a reply was read"):
        await parser.read_response()


@pytest.mark.parametrize("ends", [False, True])
async def test_what_comes_between_two_commands_shows_before_the_next_one(ends: bool) -> None:
    stream = asyncio.StreamReader()
    parser = AsyncBoundedParser(65_536)
    parser.on_connect(SimpleNamespace(_reader=stream))
    assert not await parser.can_read()
    if ends:
        stream.feed_eof()
    else:
        stream.feed_data(b"+a reply to nothing\r\n")
    assert await parser.can_read()


def test_a_connection_that_was_never_made_can_end() -> None:
    parser = BoundedParser(65_536)
    parser.on_disconnect()
    with pytest.raises(exceptions.ConnectionError, match="closed while a reply was read"):
        parser.read_response()


@pytest.mark.parametrize("inner", [b"-MOVED x\r\n", b"-ASK\r\n", b"*0\r\n"])
@pytest.mark.parametrize(
    "frame", [b"%%1\r\n%s%s", b"*1\r\n%%1\r\n%s%s", b"~2\r\n%s%s", b">2\r\n%s%s"]
)
def test_damaged_errors_in_a_map_do_not_end_the_process(frame: bytes, inner: bytes) -> None:
    reader = a_reader()
    with pytest.raises(UnboundedReply):
        reader.feed(frame % (inner, b"-MOVED 1\r\n"))
        reader.gets()
