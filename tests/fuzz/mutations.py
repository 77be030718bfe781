"""Replies of a real server, made wrong: by a seed, so that what was found is found again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

Tree = Any  # bytes, int, None, a list of these, or a Raw


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes that are sent in a reply as they are."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Sent:
    """What goes out in place of a reply."""

    text: bytes
    closes: bool = False
    is_endless: bool = False  # more of its last byte, for as long as a client reads
    pause_s: float = 0.0  # before each further byte


def encode(tree: Tree) -> bytes:
    """A reply in RESP2."""
    if isinstance(tree, Raw):
        return tree.text
    if tree is None:
        return b"$-1\r\n"
    if isinstance(tree, int):
        return b":%d\r\n" % tree
    if isinstance(tree, list):
        return b"*%d\r\n" % len(tree) + b"".join(map(encode, tree))
    if isinstance(tree, Exception):
        code = getattr(tree, "status_code", None)
        return f"-{code + ' ' if code else ''}{tree}\r\n".encode()
    return b"$%d\r\n%s\r\n" % (len(tree), tree)


def nested(depth: int) -> Raw:
    return Raw(b"*1\r\n" * depth + b":1\r\n")


# What may stand anywhere in a reply.
VALUES: Final[tuple[Tree, ...]] = (
    None, 0, 1, -1, 2, 7, 10**8, 2**31, 2**63 - 1, -(2**63), 253_370_764_800_001,
    b"", b"x", b"0", b"-1", b"1e9", b"9" * 19, b"9" * 40, b"0-0", b"1-1", b"(1-1", b"-", b"+",
    b"18446744073709551615-18446744073709551615", b"18446744073709551616-0",
    b"99999999999999999999-9", b"1-",
    b"\xff\xfe\x00", b"\xed\xa0\x80", b"'; DROP", b"*100000000", b"%s%s{0}", b"done", b"not-owner",
    b"wrong-type", b"open", b"none", b"stream", b"A" * 70_000, b"{\"version\": 1}", b"[" * 5000,
    b"not-due", b"conflict", b"created", b"recorded", b"no-permission", b"no-group", b"not-due",
    [], [[]], [None], [0], [b"x"], [1, 2], [b"a", b"b"], [[b"1-1", [b"f", b"v"]]], [[b"1-1", None]],
    [[[[[[[[[[1]]]]]]]]]], [0] * 200, [b"1-1"] * 1500, [[b"1-1", [b"f"]]],
    Raw(b"-ERR no\r\n"), Raw(b"-\r\n"), Raw(b"-WRONGTYPE Operation\r\n"),
    Raw(b"+OK\r\n"), Raw(b"*-1\r\n"),
    Raw(b"%1\r\n+a\r\n+b\r\n"), Raw(b"%1\r\n*0\r\n:1\r\n"), Raw(b"_\r\n"), Raw(b",1.5\r\n"),
    Raw(b"#t\r\n"), Raw(b"~1\r\n:1\r\n"), Raw(b"(123456789012345678901234567890\r\n"),
    Raw(b">2\r\n+a\r\n+b\r\n"), Raw(b"=7\r\ntxt:abc\r\n"), nested(9), nested(200), nested(5000),
)  # fmt: skip
# What may come in place of a whole reply.
_REFUSALS: Final = (
    b"ERR x", b"MOVED", b"MOVED x y", b"MOVED 1", b"MOVED 99999 127.0.0.1:1", b"MOVED -1 a:1",
    b"MOVED 5 a:b", b"MOVED 5 :", b"MOVED 5 127.0.0.1:1", b"MOVED 5 127.0.0.1:99999999",
    b"MOVED 5 \xff\xfe:1", b"MOVED 100000000 127.0.0.1:1", b"ASK 1 127.0.0.1:1", b"ASK x", b"ASK",
    b"MOVED 1 h\x01st:6379", b"NOSCRIPT no", b"NOPERM x", b"WRONGPASS x", b"NOAUTH x", b"LOADING x",
    b"BUSY x", b"READONLY x", b"OOM x", b"CLUSTERDOWN x", b"TRYAGAIN x", b"CROSSSLOT x",
    b"NOGROUP No such key 'x' or consumer group 'y'", b"WRONGTYPE x",
    b"EXECABORT x", b"MASTERDOWN x",
    b"ERR max number of clients reached", b"", b" ", b"\xff\xff", b"E" * 100_000, b"UNBLOCKED x",
    b"NOPERM User x has no permissions to run the 'xadd' command", b"ERR unknown command 'x'",
    b"ERR Protocol error", b"NOPROTO x", b"ERR DB index is out of range", b"NOPERM \xff key",
)  # fmt: skip
_RAW: Final = (
    b"HTTP/1.1 400 Bad Request\r\nServer: secret\r\n\r\n", b"\x00" * 64, b"*", b"$", b"*\r\n",
    b"*1000000000\r\n", b"*4000000000\r\n", b"*99999\r\n" * 900, b"*999\r\n" * 900,
    b"$-2\r\n", b"*-2\r\n",
    b"*2147483648\r\n", b":\r\n", b":1e5\r\n", b":99999999999999999999999\r\n", b"%2000000000\r\n",
    b"~2000000000\r\n", b">2000000000\r\n", b"+\xff\r\n", b"-\xff\xfe\r\n",
    b"\r\n", b"SSH-2.0-x\r\n",
    b"*1\r\n" * 100_000, b"*0" + b"0" * 30 + b"\r\n", b"$0" + b"9" * 30 + b"\r\n",
    b">0\r\n", b"|1\r\n+a\r\n+b\r\n:1\r\n",
    b"*3000\r\n" + b"-\r\n" * 3000, b"*50000\r\n" + b"*0\r\n" * 50_000,
)  # fmt: skip


def mutate(rng: Random, tree: Tree) -> Sent:
    """What a hostile server sends in place of a reply; sometimes the reply itself."""
    (spoil,) = rng.choices(_WAYS, _WEIGHTS)
    return spoil(rng, tree)


def _changed_often(rng: Random, tree: Tree) -> Sent:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        tree = _changed(rng, tree)
    return Sent(encode(tree))


def _late(rng: Random, tree: Tree) -> Sent:
    text, kind = encode(tree), rng.randrange(4)
    if kind == 0:
        return Sent(_halved(rng, text))  # and nothing more
    if kind == 1:
        return Sent(text, pause_s=0.05)
    if kind == 2:
        return Sent(b"$500000000\r\nx", is_endless=True)
    return Sent(b"*100000\r\n*0\r\n", is_endless=True)


def _halved(rng: Random, text: bytes) -> bytes:
    return text[: rng.randrange(len(text))]


def _changed(rng: Random, tree: Tree) -> Tree:
    """The same with one change, at any depth."""
    if isinstance(tree, list) and tree and rng.random() < 0.85:
        place = rng.randrange(len(tree))
        return [*tree[:place], _changed(rng, tree[place]), *tree[place + 1 :]]
    return rng.choice(_CHANGES)(rng, tree)


def _replace(rng: Random, _: Tree) -> Tree:
    return rng.choice(VALUES)


def _wrap(_: Random, tree: Tree) -> Tree:
    return [tree]


def _misplace(rng: Random, tree: Tree) -> Tree:
    """A list with a part that is missing, twice there, or elsewhere."""
    if not isinstance(tree, list) or not tree:
        return rng.choice(VALUES)
    place = rng.randrange(len(tree))
    kind = rng.randrange(4)
    if kind == 0:
        return tree[:place] + tree[place + 1 :]
    if kind == 1:
        return tree[: place + 1] + tree[place:]
    if kind == 2:
        return tree[::-1]
    return [*tree[:place], rng.choice(VALUES), *tree[place:]]


def _alter(rng: Random, tree: Tree) -> Tree:
    """Another type, or another value near it."""
    if isinstance(tree, bool | int):
        return rng.choice((str(tree).encode(), tree + 1, -tree, tree * 10**6, tree - 1))
    if isinstance(tree, bytes) and tree:
        place = rng.randrange(len(tree))
        number = int(tree) if tree.isdigit() and len(tree) < 30 else 0
        other = bytes([rng.randrange(256)])
        return rng.choice(
            (tree[:place], tree * 3, number, tree[:place] + other + tree[place + 1 :], tree.upper())
        )
    return rng.choice(VALUES)


_CHANGES: Final[tuple[Callable[[Random, Tree], Tree], ...]] = (
    _replace, _replace, _wrap, _misplace, _misplace, _alter, _alter,
)  # fmt: skip

_SPOILING: Final[tuple[tuple[float, Callable[[Random, Tree], Sent]], ...]] = (
    (0.3, _late),
    (12, lambda rng, _: Sent(rng.choice(_RAW), closes=rng.random() < 0.5)),
    (18, lambda rng, _: Sent(b"-%s\r\n" % rng.choice(_REFUSALS))),
    (6, lambda rng, tree: Sent(_halved(rng, encode(tree)), closes=True)),
    (6, lambda rng, tree: Sent(encode(tree) * rng.choice((2, 2, 50)))),
    (3, lambda rng, tree: Sent(encode(tree) + encode(rng.choice(VALUES)))),
    (5, lambda rng, _: Sent(encode(rng.choice(VALUES)))),
    (4, lambda _, tree: Sent(encode(tree))),
    (45, _changed_often),
)
_WEIGHTS: Final = [weight for weight, _ in _SPOILING]
_WAYS: Final = [way for _, way in _SPOILING]
